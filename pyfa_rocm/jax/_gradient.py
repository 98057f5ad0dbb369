# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention as JAX differentiates it: what is saved, the backward call, and what has no derivative.

The forward rule saves the operands, O and the LSE, all of them O(seqlen). ``jax.custom_vjp`` does the rest:
its rules see unmapped arrays, and sum the gradients of arrays that ``vmap`` did not map; gradients of what is
the same on several devices are summed by the transpose of the cast that makes it differ (`alike`), which
happens outside.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from pyfa_rocm._call.numbers import HDIM_MULTIPLE
from pyfa_rocm.array import dtype_of
from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.jax._primitive import alike, bind
from pyfa_rocm.jax._traced import TracedCall, custom_call, names_of

__all__ = ["attend"]

# Operands that have a gradient, in their order.
_DIFFERENTIABLE = ("q", "k", "v", "bias")
# How many numbers of 16 bits make a float32 in _with_gradient_of_lse: of 8 bits each at least.
_LSE_PARTS = 3


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Wanted:
    """The requests to the backward pass, known while the forward pass is traced."""

    bias: bool


def _is_real(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


def attend(problem: TracedCall, operands: Sequence[Any]) -> list[Any]:
    """Run a forward problem, or trace it, and return O, and the LSE if it is wanted."""
    guarded = [_reverse_only.bind(x) if _is_real(x) else x for x in alike(operands)]
    return list(_traced(problem, *guarded))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend(problem: TracedCall, *operands: Any) -> tuple[Any, ...]:
    return tuple(bind(problem, operands))


def _forward(problem: TracedCall, *operands: Any) -> tuple[tuple[Any, ...], Any]:
    """Run what is differentiated; return its results, and what the backward pass needs."""
    values = [x.value for x in operands]
    for name, x in zip(problem.names, operands, strict=True):
        if x.perturbed and name not in _DIFFERENTIABLE and _is_real(x.value):
            raise UnsupportedError(
                f"{name}: got an array that is differentiated, expected one that is not: attention has the "
                f"gradients of q, k, v and bias; jax.lax.stop_gradient({name}) says that none is wanted"
            )
    perturbed = {name for name, x in zip(problem.names, operands, strict=True) if x.perturbed}
    wanted = _Wanted("bias" in perturbed)
    _require_supported(problem, values, wanted)
    o, lse = bind(problem.with_lse(), values)
    return (o, lse)[: len(problem.results)], (values, o, lse, wanted)


def _backward(problem: TracedCall, saved: Any, cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a gradient for each operand, None for those that have none."""
    values, o, lse, wanted = saved
    dout, *dlse = cotangents
    if isinstance(dout, SymbolicZero):
        dout = jnp.zeros_like(o)
    arrays = dict(zip(problem.names, values, strict=True)) | {"dout": dout, "o": o, "lse": lse}
    if dlse and not isinstance(dlse[0], SymbolicZero):
        problem, wide = _with_gradient_of_lse(problem, arrays, dlse[0], wanted)
    else:
        wide = arrays
    call = _backward_of(problem, wide, wanted)
    results = bind(call, [wide[name] for name in call.names])
    gradients = {name.removeprefix("d"): x for name, x in zip(names_of(call.results), results, strict=True)}
    gradients["v"] = gradients["v"][..., : arrays["v"].shape[-1]]
    return tuple(gradients.get(name) for name in problem.names)


def _with_gradient_of_lse(
    problem: TracedCall, arrays: dict[str, Any], dlse: Any, wanted: _Wanted
) -> tuple[TracedCall, dict[str, Any]]:
    """Return the problem, and the arrays, of a backward pass that takes the LSE's gradient too.

    The kernels take D = rowsum(dO * O) off dP = dO V^T, and the LSE's gradient is to be taken off D. So dO
    has it, negated, in more columns, in which O is 1 and V is 0: in as many as it takes numbers of 16 bits to
    make one of 32.
    """
    lse, dtype = arrays["lse"], arrays["dout"].dtype
    # A row that sees no key has P = 0, so its gradient counts for nothing.
    rest = -jnp.where(jnp.isneginf(lse), 0, dlse).swapaxes(-1, -2)
    limits, parts = jnp.finfo(dtype), []
    for _ in range(_LSE_PARTS):
        # Not by a cast there and back, which XLA may leave out.
        part = jax.lax.reduce_precision(rest, limits.nexp, limits.nmant)
        parts.append(part.astype(dtype))
        rest = rest - part
    column = jnp.stack(parts, axis=-1)
    missing = HDIM_MULTIPLE - _LSE_PARTS

    def widened(x: Any, more: Any) -> Any:
        zeros = jnp.zeros((*x.shape[:-1], missing), x.dtype)
        return jnp.concatenate([x, more, zeros], axis=-1)

    wide = arrays | {
        "dout": widened(arrays["dout"], column),
        "o": widened(arrays["o"], jnp.ones_like(column)),
        "v": widened(arrays["v"], jnp.zeros((*arrays["v"].shape[:-1], _LSE_PARTS), arrays["v"].dtype)),
    }
    fields = dict(problem.fields) | {"hdim_v": wide["v"].shape[-1]}
    o, *others = problem.results
    results = (o._replace(shape=wide["o"].shape), *others)
    problem = problem._replace(fields=tuple(fields.items()), results=results)
    try:
        _require_supported(problem, [wide[name] for name in problem.names], wanted)
    except UnsupportedError as error:
        raise UnsupportedError(
            f"lse: got a log-sum-exp that is differentiated, which takes {HDIM_MULTIPLE} more columns of v, "
            f"and that is refused: {error}; jax.lax.stop_gradient(lse) says that no gradient is wanted"
        ) from error
    return problem, wide


_attend.defvjp(_forward, _backward, symbolic_zeros=True)
# Without jit, shard_map does not take a custom_vjp that knows what is zero.
_traced = jax.jit(_attend, static_argnums=0, inline=True)


def _backward_of(problem: TracedCall, arrays: Mapping[str, Any], wanted: _Wanted) -> TracedCall:
    return problem.backward({name: x.shape for name, x in arrays.items()}, dbias=wanted.bias)


def _require_supported(problem: TracedCall, values: Sequence[Any], wanted: _Wanted) -> None:
    """Raise what the library says of the backward pass, while the differentiated call is traced."""
    described = {name: (x.shape, x.dtype.itemsize) for name, x in zip(problem.names, values, strict=True)}
    for name, shape, dtype in problem.with_lse().results:
        described[name] = (shape, dtype_of(dtype).itemsize)
    described["dout"] = described["o"]
    backward = _backward_of(problem, dict(zip(problem.names, values, strict=True)), wanted)
    custom_call(backward, (), ((),) * len(backward.names), [described[name] for name in backward.names])


# The identity, with derivatives in reverse mode only. JAX's own refusal of forward mode names no function.
_reverse_only = Primitive("pyfa_rocm_reverse_mode_only")
_tangent = Primitive("pyfa_rocm_tangent")


def _no_forward_mode(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise NotImplementedError(
        "pyfa_rocm.jax: attention has no derivatives in forward mode (jax.jvp, jax.jacfwd, jax.linearize): "
        "use jax.grad, jax.vjp or jax.jacrev"
    )


def _register() -> None:
    for primitive in (_reverse_only, _tangent):
        primitive.def_abstract_eval(lambda x: x)
        batching.primitive_batchers[primitive] = functools.partial(_same_dim, primitive)
    _reverse_only.def_impl(lambda x: x)
    mlir.register_lowering(_reverse_only, lambda _ctx, x: [x])
    ad.primitive_jvps[_reverse_only] = lambda x, t: (_reverse_only.bind(x[0]), _tangent_of(t[0]))
    _tangent.def_impl(_no_forward_mode)
    mlir.register_lowering(_tangent, _no_forward_mode)
    ad.primitive_transposes[_tangent] = lambda cotangent, _: [cotangent]


def _same_dim(primitive: Primitive, operands: Any, dims: Any) -> tuple[Any, Any]:
    return primitive.bind(operands[0]), dims[0]


def _tangent_of(tangent: Any) -> Any:
    return tangent if isinstance(tangent, ad.Zero) else _tangent.bind(tangent)


_register()
