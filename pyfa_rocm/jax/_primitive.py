# SPDX-License-Identifier: MIT OR Apache-2.0
"""The JAX primitives, one for each custom call: types, batching, and how they become custom calls."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from pyfa_rocm.array import dtype_of
from pyfa_rocm.jax._cached import DENSE, TracedAppend, TracedDecode
from pyfa_rocm.jax._library import APPEND, BACKWARD, DECODE, FORWARD, MERGE, PLATFORMS
from pyfa_rocm.jax._merged import TracedMerge
from pyfa_rocm.jax._traced import Axes, TracedCall, names_of

__all__ = ["alike", "bind"]

_Problem = TracedCall | TracedDecode | TracedAppend | TracedMerge
_primitives = {target: Primitive(target) for target in (FORWARD, BACKWARD, DECODE, APPEND, MERGE)}


def bind(problem: _Problem, operands: Sequence[Any]) -> list[Any]:
    """Run a problem, or trace it, and return its results."""
    if problem.packed:
        # The kernels leave rows of no sequence as they were, so results start as what such rows are to be.
        starts = [
            jnp.full(shape, -math.inf if name == "lse" else 0, dtype_of(dtype))
            for name, shape, dtype in problem.results
        ]
        problem = problem._replace(names=problem.names + names_of(problem.results))
        operands = [*operands, *starts]
    axes: tuple[Axes, ...] = ((),) * len(operands)
    primitive = _primitives[problem.target]
    return list(primitive.bind(*alike(operands), problem=problem, sizes=(), axes=axes))


def _varying(array: Any) -> frozenset[Any]:
    """Return the mesh axes that a value inside shard_map differs along, if this JAX keeps book of them."""
    kind = jax.typeof(array)
    axes = getattr(getattr(kind, "manual_axis_type", kind), "varying", None)
    return frozenset(getattr(kind, "vma", ()) if axes is None else axes)


def alike(operands: Sequence[Any]) -> list[Any]:
    """Inside shard_map, mark every operand as different along all the axes that any differs along."""
    varying = [_varying(x) for x in operands]
    union: frozenset[Any] = frozenset().union(*varying)
    if not union:
        return list(operands)
    cast = functools.partial(jax.lax.pcast, to="varying") if hasattr(jax.lax, "pcast") else jax.lax.pvary
    missing = [union - own for own in varying]
    return [cast(x, tuple(axes)) if axes else x for x, axes in zip(operands, missing, strict=True)]


def _replicated(aval: Any, ndim: int) -> jax.sharding.NamedSharding:
    """Return the sharding of a result of so many dimensions, on the mesh of an operand."""
    return jax.sharding.NamedSharding(aval.sharding.mesh, jax.sharding.PartitionSpec(*(None,) * ndim))


def _abstract_eval(
    *avals: Any, problem: _Problem, sizes: tuple[int, ...], axes: tuple[Axes, ...]
) -> list[Any]:
    """Return the types of the results, which differ along the axes of a mesh that the operands do."""
    results = []
    for _, base, dtype in problem.results:
        shape = (*sizes, *base)
        sharding = _replicated(avals[0], len(shape))
        results.append(
            avals[0].update(shape=shape, dtype=dtype_of(dtype), weak_type=False, sharding=sharding)
        )
    return results


def _batch(
    operands: Any, dims: Any, *, problem: _Problem, sizes: tuple[int, ...], axes: tuple[Axes, ...]
) -> tuple[Any, tuple[int, ...]]:
    """Note where the mapped axis is. If the kernels want the array contiguous, or it is the last, move it."""
    size = next(x.shape[dim] for x, dim in zip(operands, dims, strict=True) if dim is not None)
    mapped, positions = [], []
    for name, x, dim, old in zip(problem.names, operands, dims, axes, strict=True):
        if name in names_of(problem.results):
            x = jnp.broadcast_to(x, (size, *x.shape)) if dim is None else jnp.moveaxis(x, dim, 0)
            dim = 0
        elif dim is not None and (dim == x.ndim - 1 or name in DENSE):
            x, dim = jnp.moveaxis(x, dim, 0), 0
        mapped.append(x)
        positions.append((dim, *(a if a is None or dim is None or a < dim else a + 1 for a in old)))
    primitive = _primitives[problem.target]
    results = primitive.bind(*mapped, problem=problem, sizes=(size, *sizes), axes=tuple(positions))
    return results, (0,) * len(results)


def _no_derivative(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise NotImplementedError(
        "pyfa_rocm.jax: attention has first derivatives in reverse mode (jax.grad, jax.vjp), and no second "
        "derivatives; jax.lax.stop_gradient around what was differentiated once says that none is wanted"
    )


def _no_derivative_of_cached(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise NotImplementedError(
        "pyfa_rocm.jax: attention over a KV cache, appending to one, and merging have no derivatives: "
        "flash_attn_func and flash_attn_varlen_func without block_table have; jax.lax.stop_gradient around "
        "what goes in says that none is wanted"
    )


@functools.lru_cache(maxsize=256)
def _compiled(problem: _Problem, sizes: tuple[int, ...], axes: tuple[Axes, ...]) -> Any:
    return jax.jit(
        functools.partial(_primitives[problem.target].bind, problem=problem, sizes=sizes, axes=axes)
    )


def _run(*operands: Any, **params: Any) -> Any:
    with jax.disable_jit(False):
        return _compiled(**params)(*operands)


def _lower(
    ctx: Any, *operands: Any, problem: _Problem, sizes: tuple[int, ...], axes: tuple[Axes, ...]
) -> Any:
    """Emit the custom call. Its workspace is a result of the call that nobody takes."""
    described = [(tuple(aval.shape), aval.dtype.itemsize) for aval in ctx.avals_in]
    told = problem.custom_call(sizes, axes, described)
    names = names_of(problem.results)
    aliases = {i: names.index(name) for i, name in enumerate(problem.names) if name in names}
    rule = jax.ffi.ffi_lowering(problem.target, operand_output_aliases=aliases)
    if told.workspace_bytes:
        workspace = ctx.avals_out[0].update(
            shape=(told.workspace_bytes,), dtype=np.dtype(np.uint8), sharding=_replicated(ctx.avals_out[0], 1)
        )
        ctx = ctx.replace(avals_out=[*ctx.avals_out, workspace])
    return rule(ctx, *operands, **told.attributes)[: len(names)]


for _primitive in _primitives.values():
    _primitive.multiple_results = True
    _primitive.def_impl(_run)
    _primitive.def_abstract_eval(_abstract_eval)
    batching.primitive_batchers[_primitive] = _batch
    _differentiable = _primitive.name in (FORWARD, BACKWARD)
    ad.primitive_jvps[_primitive] = _no_derivative if _differentiable else _no_derivative_of_cached
    for _platform in PLATFORMS:
        mlir.register_lowering(_primitive, _lower, platform=_platform)
