# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention by its formula, in plain torch, for calls that no kernel does: only if the caller allows it."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import torch

from pyfa_rocm._call.checks import check, params_of
from pyfa_rocm._runtime import library
from pyfa_rocm.device import current_device, enter_device, leave_device
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError
from pyfa_rocm.fmha import fmha_fwd_supported
from pyfa_rocm.torch._autograd import is_differentiated
from pyfa_rocm.torch._backward import require_supported
from pyfa_rocm.torch._operators import invocation_of
from pyfa_rocm.torch._schema import Arguments
from pyfa_rocm.torch._tensors import symbolic

__all__ = ["attend_by_formula", "require_fallback", "takes_formula"]

# An address that nothing uses, of a bias that is there.
_ANYWHERE = 2**8
_warned: set[str] = set()


def require_fallback(fallback: Any) -> None:
    """Raise unless `fallback` is one that there is."""
    if fallback not in (None, "math"):
        raise InvalidArgumentError(f"fallback: got {fallback!r}, expected None or 'math'")


def takes_formula(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor | None, **options: Any
) -> bool:
    """Tell whether no kernel does a call, of (batch, seqlen, nhead, hdim) tensors; then it has warned, once.

    In a graph this is a constant of it, for these sizes.
    """
    tensors = [x for x in (q, k, v, bias) if x is not None]
    kinds = tuple(
        (tuple(int(n) for n in x.shape), tuple(int(n) for n in x.stride()), str(x.dtype)) for x in tensors
    )
    bias_grad = bias is not None and bias.requires_grad
    differentiated = is_differentiated(*tensors)
    result: bool = _is_unsupported(kinds, str(q.device), differentiated, bias_grad, tuple(options.items()))
    return result


@torch.compiler.assume_constant_result
def _is_unsupported(
    kinds: tuple[Any, ...], device: str, differentiated: bool, bias_grad: bool, options: tuple[Any, ...]
) -> bool:
    try:
        _require(kinds, device, differentiated, bias_grad, dict(options))
    except UnsupportedError as error:
        if (reason := str(error)) not in _warned:
            _warned.add(reason)
            warnings.warn(f'fallback="math": by the formula, in plain torch, since {reason}', stacklevel=4)
        return True
    return False


def _require(
    kinds: tuple[Any, ...], device: str, differentiated: bool, bias_grad: bool, options: dict[str, Any]
) -> None:
    """Ask the library about a call, forward and, if it is to be differentiated, backward."""
    q, k, v, *bias = (
        torch.empty_strided(shape, stride, dtype=getattr(torch, dtype.removeprefix("torch.")), device="meta")
        for shape, stride, dtype in kinds
    )
    arguments = Arguments(**options, bias=bias[0] if bias else None)
    invocation = invocation_of(q, k, v, None, None, arguments)
    call = invocation.call(invocation.described(symbolic))
    params, _, _ = params_of(call, check(call))
    if params.bias is not None:
        params = replace(params, bias=params.bias._replace(data=_ANYWHERE))
    index = torch.device(device).index
    previous = enter_device(current_device() if index is None else index)
    try:
        fmha_fwd_supported(replace(params, flags=library.load()[1].FMHA_NO_MEMORY_CHECK))
        if differentiated:
            deterministic = torch.are_deterministic_algorithms_enabled()
            require_supported((q, k, v), None, arguments, deterministic, bias_grad)
    finally:
        leave_device(previous)


def attend_by_formula(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    dropout_p: float,
    softmax_scale: float | None,
    causal: bool,
    top_left: bool = False,
) -> torch.Tensor:
    """Return attention of (batch, seqlen, nhead, hdim) tensors, in float32 and by all pairs of tokens.

    A row that sees no key gives 0, as the kernels have it.
    """
    group = q.shape[2] // k.shape[2]
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    keys, values = (x.float().repeat_interleave(group, 2).transpose(1, 2) for x in (k, v))
    scores = (q.float().transpose(1, 2) * scale) @ keys.mT
    if bias is not None:
        scores = scores + bias.float()
    if causal:
        rows, columns = scores.shape[-2:]
        own = torch.arange(rows, device=q.device)[:, None] + (0 if top_left else columns - rows)
        scores = scores.masked_fill(torch.arange(columns, device=q.device) > own, -math.inf)
    seen = scores > -math.inf
    nothing = ~seen.any(-1, keepdim=True)
    p = torch.softmax(scores.masked_fill(nothing, 0.0), -1).masked_fill(nothing, 0.0)
    if dropout_p:
        p = torch.nn.functional.dropout(p, dropout_p)
    return (p @ values).transpose(1, 2).to(q.dtype)
