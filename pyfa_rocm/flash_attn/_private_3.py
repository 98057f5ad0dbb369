# SPDX-License-Identifier: MIT OR Apache-2.0
"""flash-attention 3's private functions, which ring attention and others call. They record no gradients.

Signatures and results are those of version 3.0.0; as keywords, `out` and `window_size` of its betas are taken
too, which some programs still give.
"""

from __future__ import annotations

from typing import Any

import torch

from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.flash_attn import flash_attn_2_cuda as extension
from pyfa_rocm.flash_attn import flash_attn_3 as public
from pyfa_rocm.torch._tensors import require_tensors

__all__ = ["_flash_attn_backward", "_flash_attn_forward"]

_Four = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


@torch.no_grad()
def _flash_attn_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    k_new: torch.Tensor | None = None,
    v_new: torch.Tensor | None = None,
    qv: torch.Tensor | None = None,
    out_: torch.Tensor | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    cu_seqlens_k_new: torch.Tensor | None = None,
    seqused_q: torch.Tensor | None = None,
    seqused_k: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    page_table: torch.Tensor | None = None,
    kv_batch_idx: torch.Tensor | None = None,
    leftpad_k: torch.Tensor | None = None,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    seqlens_rotary: torch.Tensor | None = None,
    q_descale: torch.Tensor | None = None,
    k_descale: torch.Tensor | None = None,
    v_descale: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size_left: int = -1,
    window_size_right: int = -1,
    attention_chunk: int = 0,
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    scheduler_metadata: torch.Tensor | None = None,
    num_splits: int = 1,
    pack_gqa: bool | None = None,
    sm_margin: int = 0,
    *,
    out: torch.Tensor | None = None,
    window_size: tuple[int, int] | None = None,
) -> _Four:
    """Return (out, softmax_lse, out_accum, softmax_lse_accum), the last two of no elements.

    Keys are in a cache if they are new, in pages, or of used lengths without starts; then this is
    `flash_attn_with_kvcache`, otherwise `flash_attn_varlen_func` with starts and `flash_attn_func` without.
    """
    new = {"k_new": k_new, "v_new": v_new}  # betas had the scale here
    require_tensors(**{name: x for name, x in new.items() if x is not None})
    out_ = out if out_ is None else out_
    options: dict[str, Any] = {
        "qv": qv,
        "q_descale": q_descale,
        "k_descale": k_descale,
        "v_descale": v_descale,
        "softmax_scale": softmax_scale,
        "causal": causal,
        "attention_chunk": attention_chunk,
        "softcap": softcap,
        "window_size": window_size or (window_size_left, window_size_right),
    }
    cached = any(x is not None for x in (k_new, page_table, kv_batch_idx, leftpad_k))
    if cached or (cu_seqlens_k is None and seqused_k is not None):
        for name, x in (("cu_seqlens_k", cu_seqlens_k), ("seqused_q", seqused_q)):
            if x is not None:
                raise UnsupportedError(f"{name}: got a tensor with keys in a cache, expected None")
        result, lse, *_ = public.flash_attn_with_kvcache(
            q, k, v, k_new, v_new, rotary_cos=rotary_cos, rotary_sin=rotary_sin, cache_seqlens=seqused_k,
            cache_batch_idx=kv_batch_idx, cache_leftpad=leftpad_k, page_table=page_table,
            cu_seqlens_q=cu_seqlens_q, cu_seqlens_k_new=cu_seqlens_k_new, max_seqlen_q=max_seqlen_q,
            rotary_seqlens=seqlens_rotary, rotary_interleaved=rotary_interleaved, num_splits=num_splits,
            return_softmax_lse=True, **options,
        )  # fmt: skip
    elif cu_seqlens_q is not None and cu_seqlens_k is not None:
        result, lse = public.flash_attn_varlen_func(
            q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,  # type: ignore[arg-type]
            seqused_q, seqused_k, return_attn_probs=True, **options,
        )  # fmt: skip
    else:
        result, lse = public.flash_attn_func(q, k, v, return_attn_probs=True, **options)
    return (result if out_ is None else out_.copy_(result)), lse, q.new_empty(0), q.new_empty(0)


def _flash_attn_backward(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    softmax_lse: torch.Tensor,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    sequed_q: torch.Tensor | None = None,
    sequed_k: torch.Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    dq: torch.Tensor | None = None,
    dk: torch.Tensor | None = None,
    dv: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    is_causal: bool = False,
    window_size_left: int = -1,
    window_size_right: int = -1,
    softcap: float = 0.0,
    deterministic: bool = False,
    sm_margin: int = 0,
    *,
    causal: bool = False,
    window_size: tuple[int, int] | None = None,
) -> torch.Tensor:
    """Write dq, dk and dv, and return softmax_d, the row sums of dO * O, as `flash_attn_2_cuda.bwd`."""
    for name, x in (("sequed_q", sequed_q), ("sequed_k", sequed_k)):
        if x is not None:
            raise UnsupportedError(
                f"{name}: got a tensor, expected None: flash_attn_varlen_func has gradients with seqused_q "
                "and seqused_k"
            )
    left, right = window_size or (window_size_left, window_size_right)
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    rest = (left, right, softcap, deterministic)
    tensors = (dout, q, k, v, out, softmax_lse, dq, dk, dv)
    is_causal = is_causal or causal
    if cu_seqlens_q is None or cu_seqlens_k is None:
        return extension.bwd(*tensors, None, 0.0, scale, is_causal, *rest)[3]
    return extension.varlen_bwd(
        *tensors, cu_seqlens_q, cu_seqlens_k, None, max_seqlen_q, max_seqlen_k,
        0.0, scale, False, is_causal, *rest,
    )[3]  # fmt: skip
