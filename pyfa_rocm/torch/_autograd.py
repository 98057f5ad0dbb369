# SPDX-License-Identifier: MIT OR Apache-2.0
"""Gradients of the operators, by the operators of `_backward`.

Each operator has a kernel at the key "Autograd". A call whose results need no gradient goes straight on. Else
a function of torch.autograd keeps what backward reads: q, k, v, O, the log-sum-exp, and what else forward was
given, nothing of the size of the scores.

The gradient that the log-sum-exp itself may have, of which the C library knows nothing, is said in columns of
O and dO: see `_with_lse_gradient`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from pyfa_rocm._call.numbers import HDIM_MULTIPLE
from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.torch._backward import backward_kernels, require_supported
from pyfa_rocm.torch._cached import cached_kernels
from pyfa_rocm.torch._copies import readable
from pyfa_rocm.torch._derivatives import refused_in_a_graph, require_no_derivative, require_no_tangent
from pyfa_rocm.torch._operators import forward_kernels, library
from pyfa_rocm.torch._schema import BWD_ARGUMENTS, LENGTHS, Arguments, Lengths

__all__ = ["is_differentiated"]

_ops = torch.ops.pyfa_rocm
_BELOW = torch._C._after_autograd_keyset
_DEVICES = (torch._C.DispatchKey.CPU, torch._C.DispatchKey.CUDA)
_LENGTHS_TENSORS = tuple(name for name, kind in LENGTHS.items() if "Tensor" in kind)
_OPTIONS_TENSORS = ("bias", "alibi_slopes", "philox", "sinks")
_INPUTS = ("q", "k", "v")
# The lowest precision has 8 bits: so many summands make a float32.
_SUMMANDS = 3
_MOST_HDIM_V = 512


def is_differentiated(*tensors: torch.Tensor | None) -> bool:
    """Tell whether results of these tensors need a gradient, or a tangent."""
    there = [x for x in tensors if x is not None]
    if torch.is_grad_enabled() and any(x.requires_grad for x in there):
        return True
    return forward_ad._current_level >= 0 and any(
        forward_ad.unpack_dual(x).tangent is not None for x in there
    )


class _Call(NamedTuple):
    """A forward call on its way: the operator's kernel below, and its arguments.

    Attributes
    ----------
    run : callable
        Calls what is below the key "Autograd", given the operator's positional arguments.
    lengths : Lengths or None
        Where packed sequences are; None: they are not packed.
    arguments : Arguments
        The options.
    """

    run: Callable[..., Any]
    lengths: Any
    arguments: Any


@contextmanager
def _below() -> Iterator[None]:
    """Go on below the key "Autograd", from a function's `forward`.

    There gradients are off, which is not what the other levels of torch.func want that may come next.
    """
    with (
        torch.set_grad_enabled(torch._C._are_functorch_transforms_active()),
        torch._C._AutoDispatchBelowAutograd(),
    ):
        yield


class _Attention(_SingleLevelFunction):
    """Attention, and its gradient."""

    @staticmethod
    def forward(
        ctx: Any, call: _Call, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return O, and the log-sum-exp, which has no elements if it is not wanted."""
        a, lengths = call.arguments, call.lengths
        with _below():
            out, lse = call.run(q, k, v, *(lengths or ()), *a._replace(return_lse=True))
            wanted = lse if a.return_lse else lse.new_empty(0)
        ctx.set_materialize_grads(False)
        ctx.options = a._replace(**dict.fromkeys(_OPTIONS_TENSORS))
        ctx.lengths = lengths and lengths._replace(**dict.fromkeys(_LENGTHS_TENSORS))
        tensors = [getattr(lengths, name) for name in _LENGTHS_TENSORS] if lengths else []
        ctx.save_for_backward(q, k, v, out, lse, bias, a.alibi_slopes, a.philox, *tensors)
        if not a.return_lse:
            ctx.mark_non_differentiable(wanted)
        return out, wanted

    @staticmethod
    def backward(ctx: Any, dout: torch.Tensor | None, dlse: torch.Tensor | None) -> Any:
        """Return the gradients of the tensors that want one."""
        if dout is None and dlse is None:
            return (None,) * 5
        q, k, v, out, lse, bias, alibi_slopes, philox, *tensors = ctx.saved_tensors
        lengths = ctx.lengths and ctx.lengths._replace(**dict(zip(_LENGTHS_TENSORS, tensors, strict=True)))
        options = ctx.options._replace(bias=bias, alibi_slopes=alibi_slopes, philox=philox, candidate=0)
        dout = torch.zeros_like(out) if dout is None else dout.to(out.dtype)
        hdim_v = v.shape[-1]
        if dlse is not None:
            dout, v, out = _with_lse_gradient(dout, v, out, lse, dlse)
            options = options._replace(softmax_scale=_scale(options, q))
        operator = (_ops.fmha_bwd if lengths is None else _ops.fmha_varlen_bwd).default
        _, *wanted = ctx.needs_input_grad
        arguments = [getattr(options, x.name) for x in BWD_ARGUMENTS]
        try:
            dq, dk, dv, dbias = operator(
                readable(dout), q, k, v, out, lse, *(lengths or ()), *arguments, None, wanted[3]
            )
        except UnsupportedError as error:
            if dlse is None:
                raise
            raise UnsupportedError(
                f"{error}. A gradient of lse takes {HDIM_MULTIPLE} more columns of v: "
                "without one, call lse.detach()"
            ) from None
        gradients = (dq, dk, dv if dlse is None else dv[..., :hdim_v], dbias)
        return None, *(x if is_wanted else None for x, is_wanted in zip(gradients, wanted, strict=True))


def _scale(options: Any, q: torch.Tensor) -> float:
    """Return the factor on the scores."""
    return options.softmax_scale if options.softmax_scale is not None else q.shape[-1] ** -0.5  # type: ignore[no-any-return]


def _with_lse_gradient(
    dout: torch.Tensor, v: torch.Tensor, out: torch.Tensor, lse: torch.Tensor, dlse: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return dO, V and O, wider, of which backward makes the gradients that those of the log-sum-exp join.

    dS = P (M dP - D), where D = rowsum(dO * O), and a gradient of the log-sum-exp is subtracted from D. So O
    gets columns that sum up to minus that gradient, and dO ones there; those of V are 0, so dP stays.
    """
    if v.shape[-1] + HDIM_MULTIPLE > _MOST_HDIM_V:
        raise UnsupportedError(
            f"lse: got a gradient with hdim_v {v.shape[-1]}, expected none, or hdim_v up to "
            f"{_MOST_HDIM_V - HDIM_MULTIPLE}: call lse.detach()"
        )
    rest = -torch.where(lse.isfinite(), dlse, 0.0).float().transpose(-1, -2)
    columns = []
    for _ in range(_SUMMANDS):
        columns.append(rest.to(out.dtype))
        rest = rest - columns[-1].float()
    zeros = [torch.zeros_like(columns[0])] * (HDIM_MULTIPLE - _SUMMANDS)
    ones = [torch.ones_like(columns[0])] * _SUMMANDS
    return (
        torch.cat([dout, torch.stack([*ones, *zeros], -1)], -1),
        torch.nn.functional.pad(v, (0, HDIM_MULTIPLE)),
        torch.cat([out, torch.stack([*columns, *zeros], -1)], -1),
    )


class _Gradients(_SingleLevelFunction):
    """The gradients as functions of what they are computed of, which nobody may differentiate."""

    @staticmethod
    def forward(ctx: Any, run: Callable[..., Any], *arguments: Any) -> Any:
        """Return them."""
        with _below():
            return run(*arguments)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        """Refuse."""
        raise UnsupportedError(
            "dq, dk, dv: got a gradient (double backward), expected none: pyfa_rocm has no second "
            "derivatives; call torch.nn.functional.scaled_dot_product_attention under "
            "torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)"
        )


def _applied(function: Any, *arguments: Any) -> Any:
    """Return what a function gives, at the level of torch.func that this call is of.

    torch.func is past its own part when it comes to an operator's kernel at the key "Autograd"; a plain
    `torch.autograd.Function` would begin it again.
    """
    if not torch._C._are_functorch_transforms_active():
        return function.apply(*arguments)
    with enable_single_level_autograd_function():
        return function.apply(*arguments)


def _register(operator: Any, run: Callable[..., Any], differentiate: Callable[..., Any]) -> None:
    """Make the kernel of an operator at the key "Autograd" known to torch.

    `run` is the operator's kernel on tensors with memory. It is called at once if it is the next: a second
    way through torch's dispatcher would take as long as the first. `differentiate` is called if results need
    derivatives, with what goes on and the operator's arguments.
    """
    names = [x.name for x in operator._schema.arguments]

    def kernel(keyset: torch._C.DispatchKeySet, *arguments: Any) -> Any:
        below = keyset & _BELOW

        def go_on(*arguments: Any) -> Any:
            return operator.redispatch(below, *arguments)

        if forward_ad._current_level >= 0 or (
            torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments)
        ):
            try:
                require_no_tangent(dict(zip(names, arguments, strict=False)))
                if torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments):
                    return differentiate(go_on, names, arguments)
            except UnsupportedError as error:
                raise refused_in_a_graph(error) from error
        if below.highestPriorityTypeId() in _DEVICES:
            return run(*arguments)
        return operator.redispatch(below, *arguments)

    library.impl(operator._name.partition("::")[2], kernel, "Autograd", with_keyset=True)


def _attention(go_on: Callable[..., Any], names: list[str], arguments: tuple[Any, ...]) -> Any:
    q, k, v, *rest = arguments
    lengths = None
    if names[3] in Lengths._fields:
        lengths, rest = Lengths(*rest[: len(LENGTHS)]), rest[len(LENGTHS) :]
    options = Arguments(*rest)
    slopes = options.alibi_slopes
    if slopes is not None:
        require_no_derivative(
            {"alibi_slopes": slopes}, "slopes have no gradient; call with alibi_slopes.detach()"
        )
    if options.sinks is not None:
        require_no_derivative({"sinks": options.sinks}, "sinks have no gradient; call with sinks.detach()")
    if torch.are_deterministic_algorithms_enabled():
        options = options._replace(deterministic=True)
    bias_grad = options.bias is not None and options.bias.requires_grad
    require_supported((q, k, v), lengths, options, options.deterministic, bias_grad)
    return _applied(_Attention, _Call(go_on, lengths, options), q, k, v, options.bias)


def _written(go_on: Callable[..., Any], names: list[str], arguments: tuple[Any, ...]) -> Any:
    require_no_derivative(
        dict(zip(names, arguments, strict=False)),
        "what is written to a given tensor has no gradient; call without out, under torch.no_grad(), or with "
        "tensor.detach()",
    )


def _cached(go_on: Callable[..., Any], names: list[str], arguments: tuple[Any, ...]) -> Any:
    require_no_derivative(
        dict(zip(names, arguments, strict=False)),
        "attention over a KV cache, appends and merges have no gradient; call under torch.no_grad(), with "
        "tensor.detach(), or flash_attn_func of keys and values that are no cache",
    )


def _gradients(go_on: Callable[..., Any], names: list[str], arguments: tuple[Any, ...]) -> Any:
    return _applied(_Gradients, go_on, *arguments)


for _name, _run in (forward_kernels | backward_kernels).items():
    _differentiate = _attention if "fwd" in _name else _gradients
    _register(getattr(_ops, _name).default, _run, _written if _name.endswith("_out") else _differentiate)
for _name, _run in cached_kernels.items():
    _register(getattr(_ops, _name).default, _run, _cached)
