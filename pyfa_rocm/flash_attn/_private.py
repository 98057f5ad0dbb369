# SPDX-License-Identifier: MIT OR Apache-2.0
"""flash-attn's private functions, which many programs call, and the operators of the same names.

Signatures and results are those of flash-attn 2.8. As there, the operators have no gradients: whoever calls
them does. They are defined twice: as ``torch.ops.pyfa_rocm._flash_attn_…``, which the functions here call,
and by `pyfa_rocm.flash_attn.install` as ``torch.ops.flash_attn._flash_attn_…``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pyfa_rocm._call.numbers import HDIM_MULTIPLE
from pyfa_rocm.flash_attn import flash_attn_2_cuda as extension
from pyfa_rocm.flash_attn._functions import number

__all__ = [
    "_flash_attn_backward",
    "_flash_attn_forward",
    "_flash_attn_varlen_backward",
    "_flash_attn_varlen_forward",
    "_wrapped_flash_attn_backward",
    "_wrapped_flash_attn_forward",
    "_wrapped_flash_attn_varlen_backward",
    "_wrapped_flash_attn_varlen_forward",
    "define",
]

_NAMESPACE = "pyfa_rocm"
_INPUTS = "Tensor q, Tensor k, Tensor v"
_GRADIENTS = "Tensor(a!)? dq, Tensor(b!)? dk, Tensor(c!)? dv"
_LENGTHS = "Tensor cu_seqlens_q, Tensor cu_seqlens_k, SymInt max_seqlen_q, SymInt max_seqlen_k"
_MASK = "float dropout_p, float softmax_scale, bool causal"
_WINDOW = "SymInt window_size_left, SymInt window_size_right, float softcap, Tensor? alibi_slopes"
_SCHEMAS = {
    "_flash_attn_forward": (
        f"({_INPUTS}, {_MASK}, {_WINDOW}, bool return_softmax) -> (Tensor, Tensor, Tensor, Tensor)"
    ),
    "_flash_attn_varlen_forward": (
        f"({_INPUTS}, {_LENGTHS}, {_MASK}, SymInt window_size_left=-1, SymInt window_size_right=-1, "
        "float softcap=0.0, Tensor? alibi_slopes=None, bool return_softmax=False, Tensor? block_table=None, "
        "Tensor? leftpad_k=None, Tensor? seqused_k=None, bool zero_tensors=False, SymInt num_splits=0) "
        "-> (Tensor, Tensor, Tensor, Tensor)"
    ),
    "_flash_attn_backward": (
        f"(Tensor dout, {_INPUTS}, Tensor out, Tensor softmax_lse, {_GRADIENTS}, {_MASK}, {_WINDOW}, "
        "bool deterministic, Tensor? rng_state=None) -> Tensor"
    ),
    "_flash_attn_varlen_backward": (
        f"(Tensor dout, {_INPUTS}, Tensor out, Tensor softmax_lse, {_GRADIENTS}, {_LENGTHS}, {_MASK}, "
        f"{_WINDOW}, bool deterministic, Tensor? rng_state=None, bool zero_tensors=False) -> Tensor"
    ),
}
_Four = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


# Implementations for tensors with memory; arguments are those of the functions below.


def _forward(q: Any, k: Any, v: Any, *options: Any) -> Any:
    *numbers, alibi_slopes, return_softmax = options  # from dropout_p to softcap, and those
    return tuple(extension.fwd(q, k, v, None, alibi_slopes, *numbers, return_softmax))


def _varlen_forward(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float, softmax_scale: float, causal: bool, window_size_left: int = -1,
    window_size_right: int = -1, softcap: float = 0.0, alibi_slopes: Any = None, return_softmax: bool = False,
    block_table: Any = None, leftpad_k: Any = None, seqused_k: Any = None, zero_tensors: bool = False,
    num_splits: int = 0,
) -> Any:  # fmt: skip
    tensors = (cu_seqlens_q, cu_seqlens_k, seqused_k, leftpad_k, block_table, alibi_slopes)
    numbers = (max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, zero_tensors, causal)
    window = (window_size_left, window_size_right)
    rest = (*window, softcap, return_softmax, None, num_splits)
    return tuple(extension.varlen_fwd(q, k, v, None, *tensors, *numbers, *rest))


def _backward(
    dout: Any, q: Any, k: Any, v: Any, out: Any, softmax_lse: Any, dq: Any, dk: Any, dv: Any,
    dropout_p: float, softmax_scale: float, causal: bool, window_size_left: int, window_size_right: int,
    softcap: float, alibi_slopes: Any, deterministic: bool, rng_state: Any = None,
) -> torch.Tensor:  # fmt: skip
    tensors = (dout, q, k, v, out, softmax_lse, dq, dk, dv, alibi_slopes)
    numbers = (dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap)
    return extension.bwd(*tensors, *numbers, deterministic, None, rng_state)[3]


def _varlen_backward(
    dout: Any, q: Any, k: Any, v: Any, out: Any, softmax_lse: Any, dq: Any, dk: Any, dv: Any,
    cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int, max_seqlen_k: int, dropout_p: float,
    softmax_scale: float, causal: bool, window_size_left: int, window_size_right: int, softcap: float,
    alibi_slopes: Any, deterministic: bool, rng_state: Any = None, zero_tensors: bool = False,
) -> torch.Tensor:  # fmt: skip
    tensors = (dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k, alibi_slopes)
    numbers = (max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, zero_tensors, causal)
    window = (window_size_left, window_size_right)
    return extension.varlen_bwd(*tensors, *numbers, *window, softcap, deterministic, None, rng_state)[3]


# Implementations for tensors without memory: tracing.


def _trace_of(
    q: Any, hdim_v: Any, rows: tuple[Any, ...], batch: Any, longest: tuple[Any, Any], return_softmax: bool
) -> Any:
    """Return what forward does: of O, of the log-sum-exp, (`batch`, nhead, `longest`) and of the state."""
    multiple = extension.S_DMASK_MULTIPLE
    s_dmask: tuple[Any, ...] = (0,)
    if return_softmax:
        s_dmask = (batch, q.shape[-2], *((n + multiple - 1) // multiple * multiple for n in longest))
    return (
        q.new_empty((*q.shape[:-1], hdim_v)),
        q.new_empty(rows, dtype=torch.float32),
        q.new_empty(s_dmask),
        q.new_empty(2, dtype=torch.int64),
    )


def _padded(hdim: Any) -> Any:
    """Return the head dim of O where v was copied to be readable."""
    return (hdim + HDIM_MULTIPLE - 1) // HDIM_MULTIPLE * HDIM_MULTIPLE


def _trace_forward(q: Any, k: Any, v: Any, *rest: Any) -> Any:
    batch, seqlen_q, nhead, _ = q.shape
    rows, longest = (batch, nhead, seqlen_q), (seqlen_q, k.shape[1])
    return _trace_of(q, _padded(v.shape[-1]), rows, batch, longest, rest[-1])


def _trace_varlen_forward(
    q: Any, k: Any, v: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: Any, max_seqlen_k: Any,
    dropout_p: float, softmax_scale: float, causal: bool, window_size_left: int = -1,
    window_size_right: int = -1, softcap: float = 0.0, alibi_slopes: Any = None,
    return_softmax: bool = False, block_table: Any = None, leftpad_k: Any = None, *rest: Any, **named: Any,
) -> Any:  # fmt: skip
    rows, longest = (q.shape[1], q.shape[0]), (max_seqlen_q, max_seqlen_k)
    is_cached = block_table is not None or leftpad_k is not None
    hdim_v = v.shape[-1] if is_cached else _padded(v.shape[-1])
    return _trace_of(q, hdim_v, rows, cu_seqlens_q.shape[0] - 1, longest, return_softmax)


def _trace_backward(
    dout: Any, q: Any, k: Any, v: Any, out: Any, softmax_lse: Any, *rest: Any, **named: Any
) -> Any:
    return q.new_empty((*q.shape[:-3], q.shape[-2], q.shape[-3]), dtype=torch.float32)


_KERNELS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "_flash_attn_forward": (_forward, _trace_forward),
    "_flash_attn_varlen_forward": (_varlen_forward, _trace_varlen_forward),
    "_flash_attn_backward": (_backward, _trace_backward),
    "_flash_attn_varlen_backward": (_varlen_backward, _trace_backward),
}


def define(namespace: str) -> None:
    """Define the operators in a namespace of ``torch.ops``, unless they are there."""
    operators = getattr(torch.ops, namespace)
    for name, (kernel, trace) in _KERNELS.items():
        if hasattr(operators, name):
            continue
        written = ("dq", "dk", "dv") if "backward" in name else ()
        operator = torch.library.custom_op(
            f"{namespace}::{name}", kernel, mutates_args=written, schema=_SCHEMAS[name]
        )
        operator.register_fake(trace)


define(_NAMESPACE)
_operators: Any = getattr(torch.ops, _NAMESPACE)
_wrapped_flash_attn_forward = _operators._flash_attn_forward
_wrapped_flash_attn_varlen_forward = _operators._flash_attn_varlen_forward
_wrapped_flash_attn_backward = _operators._flash_attn_backward
_wrapped_flash_attn_varlen_backward = _operators._flash_attn_varlen_backward


def _flash_attn_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    alibi_slopes: torch.Tensor | None,
    return_softmax: bool,
) -> _Four:
    """Return (out, softmax_lse, S_dmask, rng_state), as `flash_attn_2_cuda.fwd`."""
    numbers = (dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap)
    result: _Four = _wrapped_flash_attn_forward(q, k, v, *numbers, alibi_slopes, return_softmax)
    return result


def _flash_attn_varlen_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    return_softmax: bool = False,
    block_table: torch.Tensor | None = None,
    leftpad_k: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    zero_tensors: bool = False,
    num_splits: int = 0,
) -> _Four:
    """Return (out, softmax_lse, S_dmask, rng_state), as `flash_attn_2_cuda.varlen_fwd`."""
    lengths = (cu_seqlens_q, cu_seqlens_k, number(max_seqlen_q), number(max_seqlen_k))
    numbers = (dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap)
    rest = (alibi_slopes, return_softmax, block_table, leftpad_k, seqused_k, zero_tensors, num_splits)
    result: _Four = _wrapped_flash_attn_varlen_forward(q, k, v, *lengths, *numbers, *rest)
    return result


def _flash_attn_backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    softmax_lse: torch.Tensor,
    dq: torch.Tensor | None,
    dk: torch.Tensor | None,
    dv: torch.Tensor | None,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    alibi_slopes: torch.Tensor | None,
    deterministic: bool,
    rng_state: torch.Tensor | None = None,
) -> torch.Tensor:
    """Write dq, dk and dv, and return softmax_d, as `flash_attn_2_cuda.bwd`."""
    tensors = (dout, q, k, v, out, softmax_lse, dq, dk, dv)
    numbers = (dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap)
    rest = (alibi_slopes, deterministic, rng_state)
    softmax_d: torch.Tensor = _wrapped_flash_attn_backward(*tensors, *numbers, *rest)
    return softmax_d


def _flash_attn_varlen_backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    softmax_lse: torch.Tensor,
    dq: torch.Tensor | None,
    dk: torch.Tensor | None,
    dv: torch.Tensor | None,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float,
    softmax_scale: float,
    causal: bool,
    window_size_left: int,
    window_size_right: int,
    softcap: float,
    alibi_slopes: torch.Tensor | None,
    deterministic: bool,
    rng_state: torch.Tensor | None = None,
    zero_tensors: bool = False,
) -> torch.Tensor:
    """Write dq, dk and dv, and return softmax_d, as `flash_attn_2_cuda.varlen_bwd`."""
    tensors = (dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k)
    longest = (number(max_seqlen_q), number(max_seqlen_k))
    numbers = (dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap)
    rest = (alibi_slopes, deterministic, rng_state, zero_tensors)
    softmax_d: torch.Tensor = _wrapped_flash_attn_varlen_backward(*tensors, *longest, *numbers, *rest)
    return softmax_d
