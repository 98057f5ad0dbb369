# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention in a compiled graph by a mask of tokens, or by the numbers of their sequences.

A graph knows neither how many tokens there are nor how many sequences. So an operator looks at the mask when
the graph runs, in each layer, which waits for the device. It calls the kernels for packed sequences, as eager
mode does, and takes memory in proportion to the tokens.
"""

from __future__ import annotations

from typing import Any

import torch

from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.torch import flash_attn_func, flash_attn_varlen_func
from pyfa_rocm.torch._autograd import _with_lse_gradient
from pyfa_rocm.torch._copies import readable
from pyfa_rocm.transformers._decode import Scores
from pyfa_rocm.transformers._forward import with_sinks
from pyfa_rocm.transformers._mask import Pattern, has_gaps
from pyfa_rocm.transformers._rows import Rows, rows_of_mask

__all__ = ["attend_rows"]

_NAME = "pyfa_rocm::fmha_rows"
_MASK = "Tensor mask, bool causal, int window_left, int window_right"
_OPTIONS = "float softmax_scale, float softcap, float dropout_p, Tensor? philox"
_WITH_LSE = "bool with_lse"  # whether the log-sum-exp has a gradient
_RESULTS = "Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse"
_MOST_INT64 = 2**63 - 1
# They wait for the device, which a captured graph may not. Older versions of torch cannot be told.
_TAGS: dict[str, Any] = (
    {"tags": (torch.Tag.cudagraph_unsafe,)} if hasattr(torch.Tag, "cudagraph_unsafe") else {}
)
_ops: Any = torch.ops.pyfa_rocm


def attend_rows(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scores: Scores, dropout: float
) -> torch.Tensor:
    """Return attention of (batch, seqlen, nhead, hdim) by a mask of `attention_mask`, bool or int64."""
    count, hdim_v = mask.shape[1], v.shape[-1]
    k, v = k[:, :count], v[:, :count]
    philox = None
    if dropout:
        philox = torch.randint(_MOST_INT64, (2,), dtype=torch.int64, device=q.device)
    out, lse = _ops.fmha_rows(
        readable(q), readable(k), readable(v), mask, scores.causal, *scores.window_size, scores.scale,
        scores.softcap, dropout, philox, scores.sinks is not None,
    )  # fmt: skip
    result: torch.Tensor = out if scores.sinks is None else with_sinks(out, lse, scores.sinks)
    return result[..., :hdim_v]


class _Looked:
    """A mask, looked at: the sequences of queries and keys; None: a batch without padding."""

    def __init__(self, mask: torch.Tensor, q: torch.Tensor, causal: bool, window: tuple[int, int]) -> None:
        if mask.dtype == torch.bool and window != (-1, -1) and has_gaps(mask):
            raise UnsupportedError(
                "attention_mask: got padding between tokens of a layer with a window in a compiled graph, "
                "expected it at one end: call the model without torch.compile"
            )
        self.rows: tuple[Rows, Rows] | None = rows_of_mask(mask, q.shape[1], Pattern(causal, window))
        self.size = q.shape[:2]

    def lengths(self) -> tuple[Any, ...]:
        """Return what the kernels for packed sequences take."""
        assert self.rows is not None
        of_q, of_k = self.rows
        return of_q.starts, of_k.starts, of_q.longest, of_k.longest

    def packed(self, *tensors: torch.Tensor, keys: bool = False) -> tuple[torch.Tensor, ...]:
        """Return tensors of all queries, or keys, as those of the tokens."""
        assert self.rows is not None
        return tuple(self.rows[keys].pack(x) for x in tensors)

    def unpacked(self, x: torch.Tensor, like: torch.Tensor, keys: bool = False) -> torch.Tensor:
        """Return a packed tensor as one of all queries or keys, 0 for padding."""
        assert self.rows is not None
        return self.rows[keys].unpack(x, like.shape[0], like.shape[1])


def _rows_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, causal: bool, window_left: int,
    window_right: int, softmax_scale: float, softcap: float, dropout_p: float, philox: torch.Tensor | None,
    with_lse: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    window = window_left, window_right
    looked = _Looked(mask, q, causal, window)
    options: dict[str, Any] = {
        "dropout_p": dropout_p, "softmax_scale": softmax_scale, "causal": causal, "window_size": window,
        "softcap": softcap, "philox": philox, "return_lse": True,
    }  # fmt: skip
    if looked.rows is None:
        out, lse = flash_attn_func(q, k, v, **options)
        return out, lse
    inputs = *looked.packed(q), *looked.packed(k, v, keys=True)
    out, lse = flash_attn_varlen_func(*inputs, *looked.lengths(), **options)
    by_row = looked.unpacked(lse.transpose(0, 1), q)
    if looked.rows[0].index is not None:  # a row of padding sees nothing
        seen = torch.zeros(q.shape[:2], dtype=torch.bool, device=q.device)
        seen[looked.rows[0].index] = True
        by_row = by_row.masked_fill(~seen[..., None], -torch.inf)
    return looked.unpacked(out, q).contiguous(), by_row.transpose(1, 2).contiguous()


def _rows_backward(
    dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor,
    lse: torch.Tensor, mask: torch.Tensor, causal: bool, window_left: int, window_right: int,
    softmax_scale: float, softcap: float, dropout_p: float, philox: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    looked = _Looked(mask, q, causal, (window_left, window_right))
    options: dict[str, Any] = {
        "dropout_p": dropout_p, "softmax_scale": softmax_scale, "causal": causal, "softcap": softcap,
        "window_left": window_left, "window_right": window_right, "philox": philox,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }  # fmt: skip
    if looked.rows is None:
        dq, dk, dv, _ = _ops.fmha_bwd(readable(dout), q, k, v, out, lse, **options)
        return dq, dk, dv
    rows = looked.packed(readable(dout), q, out, lse.transpose(1, 2))
    keys = looked.packed(k, v, keys=True)
    starts_q, starts_k, longest_q, longest_k = looked.lengths()
    dq, dk, dv, _ = _ops.fmha_varlen_bwd(
        rows[0], rows[1], *keys, rows[2], rows[3].transpose(0, 1).contiguous(), cu_seqlens_q=starts_q,
        cu_seqlens_k=starts_k, seqused_q=None, seqused_k=None, max_seqlen_q=longest_q, max_seqlen_k=longest_k,
        **options,
    )  # fmt: skip
    return (
        looked.unpacked(dq, q).contiguous(),
        looked.unpacked(dk, k, keys=True).contiguous(),
        looked.unpacked(dv, v, keys=True).contiguous(),
    )


def _trace_forward(q: Any, k: Any, v: Any, *_: Any) -> Any:
    batch, rows, heads, _hdim = q.shape
    return (
        q.new_empty((batch, rows, heads, v.shape[-1])),
        q.new_empty((batch, heads, rows), dtype=torch.float32),
    )


def _trace_backward(dout: Any, q: Any, k: Any, v: Any, *_: Any) -> Any:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    q, k, v, mask, causal, left, right, scale, softcap, dropout_p, philox, ctx.with_lse = inputs
    ctx.save_for_backward(q, k, v, *output, mask, philox)
    ctx.options = causal, left, right, scale, softcap, dropout_p


def _differentiate(ctx: Any, dout: torch.Tensor, dlse: torch.Tensor | None) -> tuple[Any, ...]:
    q, k, v, out, lse, mask, philox = ctx.saved_tensors
    hdim_v = v.shape[-1]
    if ctx.with_lse and dlse is not None:
        dout, v, out = _with_lse_gradient(dout, v, out, lse, dlse)
    dq, dk, dv = _ops.fmha_rows_bwd(dout, q, k, v, out, lse, mask, *ctx.options, philox)
    return dq, dk, dv[..., :hdim_v], *(None,) * 9


_forward = torch.library.custom_op(
    _NAME, _rows_forward, mutates_args=(), **_TAGS,
    schema=f"(Tensor q, Tensor k, Tensor v, {_MASK}, {_OPTIONS}, {_WITH_LSE}) -> (Tensor, Tensor)",
)  # fmt: skip
_forward.register_fake(_trace_forward)
_backward = torch.library.custom_op(
    f"{_NAME}_bwd", _rows_backward, mutates_args=(), **_TAGS,
    schema=f"({_RESULTS}, {_MASK}, {_OPTIONS}) -> (Tensor, Tensor, Tensor)",
)  # fmt: skip
_backward.register_fake(_trace_backward)
_forward.register_autograd(_differentiate, setup_context=_keep)
