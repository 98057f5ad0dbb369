# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention of packed sequences in a compiled graph, which does not know how many there are.

`_look` has counted them when the mask was made, and left the count on the host. An operator reads it there,
which waits for nothing, and calls the kernels for packed sequences.
"""

from __future__ import annotations

from typing import Any

import torch

from pyfa_rocm.torch import flash_attn_varlen_func
from pyfa_rocm.torch._autograd import _with_lse_gradient
from pyfa_rocm.torch._copies import readable
from pyfa_rocm.transformers._decode import Scores
from pyfa_rocm.transformers._forward import with_sinks
from pyfa_rocm.transformers._look import TAGS

__all__ = ["attend_counted"]

_NAME = "pyfa_rocm::fmha_counted"
_WHERE = "Tensor starts, Tensor sizes, bool causal, int window_left, int window_right"
_OPTIONS = "float softmax_scale, float softcap, float dropout_p, Tensor? philox"
_WITH_LSE = "bool with_lse"  # whether the log-sum-exp has a gradient
_RESULTS = "Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse"
_MOST_INT64 = 2**63 - 1
_ops: Any = torch.ops.pyfa_rocm


def attend_counted(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    starts: torch.Tensor,
    sizes: torch.Tensor,
    scores: Scores,
    dropout: float,
) -> torch.Tensor:
    """Return attention of packed sequences, (total, nhead, hdim), by what `starts_of` says of them."""
    philox = None
    if dropout:
        philox = torch.randint(_MOST_INT64, (2,), dtype=torch.int64, device=q.device)
    out, lse = _ops.fmha_counted(
        readable(q), readable(k), readable(v), starts, sizes, scores.causal, *scores.window_size,
        scores.scale, scores.softcap, dropout, philox, scores.sinks is not None,
    )  # fmt: skip
    result: torch.Tensor = out if scores.sinks is None else with_sinks(out, lse, scores.sinks)
    return result[..., : v.shape[-1]]


def _counted(starts: torch.Tensor, sizes: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return where sequences begin and the last one ends, and the length of the longest."""
    count, longest = sizes.tolist()
    return starts[: count + 1], longest


def _forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, starts: torch.Tensor, sizes: torch.Tensor,
    causal: bool, window_left: int, window_right: int, softmax_scale: float, softcap: float,
    dropout_p: float, philox: torch.Tensor | None, with_lse: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    at, longest = _counted(starts, sizes)
    out, lse = flash_attn_varlen_func(
        q, k, v, at, at, longest, longest, dropout_p=dropout_p, softmax_scale=softmax_scale, causal=causal,
        window_size=(window_left, window_right), softcap=softcap, philox=philox, return_lse=True,
    )  # fmt: skip
    return out, lse


def _backward(
    dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor,
    lse: torch.Tensor, starts: torch.Tensor, sizes: torch.Tensor, causal: bool, window_left: int,
    window_right: int, softmax_scale: float, softcap: float, dropout_p: float, philox: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    at, longest = _counted(starts, sizes)
    dq, dk, dv, _ = _ops.fmha_varlen_bwd(
        readable(dout), q, k, v, out, lse, cu_seqlens_q=at, cu_seqlens_k=at, seqused_q=None, seqused_k=None,
        max_seqlen_q=longest, max_seqlen_k=longest, softmax_scale=softmax_scale, causal=causal,
        window_left=window_left, window_right=window_right, softcap=softcap, dropout_p=dropout_p,
        philox=philox, deterministic=torch.are_deterministic_algorithms_enabled(),
    )  # fmt: skip
    return dq, dk, dv


def _trace_forward(q: Any, k: Any, v: Any, *_: Any) -> Any:
    total, heads, _hdim = q.shape
    return q.new_empty((total, heads, v.shape[-1])), q.new_empty((heads, total), dtype=torch.float32)


def _trace_backward(dout: Any, q: Any, k: Any, v: Any, *_: Any) -> Any:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    q, k, v, starts, sizes, causal, left, right, scale, softcap, dropout_p, philox, ctx.with_lse = inputs
    ctx.save_for_backward(q, k, v, *output, starts, sizes, philox)
    ctx.options = causal, left, right, scale, softcap, dropout_p


def _differentiate(ctx: Any, dout: torch.Tensor, dlse: torch.Tensor | None) -> tuple[Any, ...]:
    q, k, v, out, lse, starts, sizes, philox = ctx.saved_tensors
    hdim_v = v.shape[-1]
    if ctx.with_lse and dlse is not None:
        dout, v, out = _with_lse_gradient(dout, v, out, lse, dlse)
    dq, dk, dv = _ops.fmha_counted_bwd(dout, q, k, v, out, lse, starts, sizes, *ctx.options, philox)
    return dq, dk, dv[..., :hdim_v], *(None,) * 10


_operator = torch.library.custom_op(
    _NAME,
    _forward,
    mutates_args=(),
    **TAGS,
    schema=f"(Tensor q, Tensor k, Tensor v, {_WHERE}, {_OPTIONS}, {_WITH_LSE}) -> (Tensor, Tensor)",
)
_operator.register_fake(_trace_forward)
_operator.register_autograd(_differentiate, setup_context=_keep)
torch.library.custom_op(
    f"{_NAME}_bwd",
    _backward,
    mutates_args=(),
    **TAGS,
    schema=f"({_RESULTS}, {_WHERE}, {_OPTIONS}) -> (Tensor, Tensor, Tensor)",
).register_fake(_trace_backward)
