# SPDX-License-Identifier: MIT OR Apache-2.0
"""The JAX primitive: types, batching, derivatives (none), and how it becomes a custom call."""

from __future__ import annotations

import functools
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from pyfa_rocm.jax._library import PLATFORMS, TARGET
from pyfa_rocm.jax._traced import RESULTS, Axes, TracedCall, attributes

__all__ = ["bind"]

_primitive = Primitive(TARGET)
_primitive.multiple_results = True


def bind(problem: TracedCall, operands: list[Any]) -> list[Any]:
    """Run a problem, or trace it: O, and the LSE if it is wanted."""
    axes: tuple[Axes, ...] = ((),) * len(operands)
    return list(_primitive.bind(*_alike(operands), problem=problem, sizes=(), axes=axes))


def _varying(array: Any) -> frozenset[Any]:
    """Return the mesh axes that a value inside shard_map differs along, if this JAX keeps book of them."""
    kind = jax.typeof(array)
    axes = getattr(getattr(kind, "manual_axis_type", kind), "varying", None)
    return frozenset(getattr(kind, "vma", ()) if axes is None else axes)


def _alike(operands: list[Any]) -> list[Any]:
    """Inside shard_map, mark every operand as different along all the axes that any differs along."""
    varying = [_varying(x) for x in operands]
    union: frozenset[Any] = frozenset().union(*varying)
    if not union:
        return operands
    cast = functools.partial(jax.lax.pcast, to="varying") if hasattr(jax.lax, "pcast") else jax.lax.pvary
    missing = [union - own for own in varying]
    return [cast(x, tuple(axes)) if axes else x for x, axes in zip(operands, missing, strict=True)]


def _abstract_eval(
    *avals: Any, problem: TracedCall, sizes: tuple[int, ...], axes: tuple[Axes, ...]
) -> list[Any]:
    """Return the types of the results, which differ along the axes of a mesh that the operands do."""
    results = []
    for base, dtype in problem.results:
        shape = (*sizes, *base)
        spec = jax.sharding.PartitionSpec(*(None,) * len(shape))
        sharding = jax.sharding.NamedSharding(avals[0].sharding.mesh, spec)
        results.append(avals[0].update(shape=shape, dtype=dtype, weak_type=False, sharding=sharding))
    return results


def _batch(
    operands: Any, dims: Any, *, problem: TracedCall, sizes: tuple[int, ...], axes: tuple[Axes, ...]
) -> tuple[Any, tuple[int, ...]]:
    """Note where the mapped axis is. If it is the last, move it: the kernels want that one contiguous."""
    size = next(x.shape[dim] for x, dim in zip(operands, dims, strict=True) if dim is not None)
    mapped, positions = [], []
    for name, x, dim, old in zip(problem.names, operands, dims, axes, strict=True):
        if name in RESULTS:
            x = jnp.broadcast_to(x, (size, *x.shape)) if dim is None else jnp.moveaxis(x, dim, 0)
            dim = 0
        elif dim is not None and dim == x.ndim - 1:
            x, dim = jnp.moveaxis(x, dim, 0), 0
        mapped.append(x)
        positions.append((dim, *(a if a is None or dim is None or a < dim else a + 1 for a in old)))
    results = _primitive.bind(*mapped, problem=problem, sizes=(size, *sizes), axes=tuple(positions))
    return results, (0,) * len(results)


def _no_derivative(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise NotImplementedError(
        "pyfa_rocm.jax: there is no backward pass yet, so attention cannot be differentiated; "
        "jax.lax.stop_gradient around its arguments says that no derivative is wanted"
    )


@functools.lru_cache(maxsize=256)
def _compiled(problem: TracedCall, sizes: tuple[int, ...], axes: tuple[Axes, ...]) -> Any:
    return jax.jit(functools.partial(_primitive.bind, problem=problem, sizes=sizes, axes=axes))


def _run(*operands: Any, **params: Any) -> Any:
    with jax.disable_jit(False):
        return _compiled(**params)(*operands)


def _lower(
    ctx: Any, *operands: Any, problem: TracedCall, sizes: tuple[int, ...], axes: tuple[Axes, ...]
) -> Any:
    """Emit the custom call."""
    described = [(tuple(aval.shape), aval.dtype.itemsize) for aval in ctx.avals_in]
    aliases = {i: RESULTS.index(name) for i, name in enumerate(problem.names) if name in RESULTS}
    rule = jax.ffi.ffi_lowering(TARGET, operand_output_aliases=aliases)
    return rule(ctx, *operands, **attributes(problem, sizes, axes, described))


_primitive.def_impl(_run)
_primitive.def_abstract_eval(_abstract_eval)
batching.primitive_batchers[_primitive] = _batch
ad.primitive_jvps[_primitive] = _no_derivative
for _platform in PLATFORMS:
    mlir.register_lowering(_primitive, _lower, platform=_platform)
