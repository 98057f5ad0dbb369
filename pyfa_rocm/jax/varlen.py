# SPDX-License-Identifier: MIT OR Apache-2.0
"""`flash_attn_varlen_func` for JAX: attention of sequences of different lengths, packed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyfa_rocm._call.keywords import spelled_out
from pyfa_rocm._call.params import Keywords
from pyfa_rocm.jax._gradient import attend
from pyfa_rocm.jax._operands import Operands, static_options
from pyfa_rocm.jax.kvcache import attend_paged

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["flash_attn_varlen_func"]


@spelled_out
def flash_attn_varlen_func(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Any = None,
    *,
    seqused_q: Any = None,
    seqused_k: Any = None,
    **ours: Unpack[Keywords],
) -> Any:
    """Like `pyfa_rocm.flash_attn_varlen_func`, but of JAX arrays, and under JAX's transformations.

    Sizes are fixed when JAX traces, and lengths are not: pad q, k and v to a total that does for every step,
    and let cu_seqlens say what of it is in use. All other parameters are as in this package's
    `flash_attn_func`.

    Parameters
    ----------
    q : array, (total_q, nhead_q, hdim)
        All queries.
    k : array, (total_k, nhead_k, hdim)
        All keys.
    v : array, (total_k, nhead_k, hdim_v)
        All values.
    cu_seqlens_q, cu_seqlens_k : array, int32 (batch + 1)
        Where each sequence starts, and the end: from 0, not decreasing, up to total_q or total_k at most.
        They may be traced, so what they hold is not checked.
    max_seqlen_q, max_seqlen_k : int
        Upper bounds of the lengths.
    block_table : array, optional, int32 (batch, max_pages)
        k and v are caches, (pages, page_size, nhead_k, hdim): see `flash_attn_with_kvcache`. The lengths of
        keys are `seqused_k`, or else what `cu_seqlens_k` says, `max_seqlen_k` at most. Without `seqused_q`,
        dropout, `bias`, `top_left`, `out_dtype`, and without gradients.
    seqused_q, seqused_k : array, optional, int32 (batch)
        Lengths in use, of sequences that fill a part of their rows, from the first.
    bias : array, optional, (nhead_q, total_q, max_seqlen_k)
        Rows are those of q; column j is key j of the row's own sequence. A size of 1 in place of any but the
        last is broadcast.
    dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs
        As in `flash_attn_func`.
    top_left, philox, out_dtype, q_descale, k_descale, v_descale, return_lse, kernel, sinks
        As in `flash_attn_func`.

    Returns
    -------
    out : array, (total_q, nhead_q, hdim_v)
        Rows of no sequence are 0.
    lse : array, float32 (nhead_q, total_q)
        Natural logarithm, -inf for rows of no sequence; only with `return_lse`.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, NotImplementedError, jax.errors.JaxRuntimeError
        As in `flash_attn_func`.

    Notes
    -----
    Under ``jax.vmap`` the kernel is launched once for each index of a mapped axis, within one custom call.
    Gradients of rows of no sequence are 0.

    Source: ``fmha_fwd`` and ``fmha_bwd`` of native/include/fmha_rocm.h, called by native/jax.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from pyfa_rocm.jax import flash_attn_varlen_func
    >>> q, k, v = (jnp.ones((100, 2, 128), jnp.bfloat16) for _ in range(3))
    >>> cu_seqlens = jnp.array([0, 30, 90], jnp.int32)
    >>> flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, 64, 64, causal=True).shape
    (100, 2, 128)
    """
    options = static_options(
        "flash_attn_varlen_func", ours, dropout_p=dropout_p, softmax_scale=softmax_scale, causal=causal,
        window_size=window_size, softcap=softcap, alibi_slopes=alibi_slopes,
        return_attn_probs=return_attn_probs, deterministic=deterministic,
    )  # fmt: skip
    if block_table is not None:
        arrays = {
            "q": q,
            "k_cache": k,
            "v_cache": v,
            "block_table": block_table,
            "cu_seqlens_q": cu_seqlens_q,
            "cu_seqlens_k": cu_seqlens_k,
            "cache_seqlens": seqused_k,
        }
        paged = attend_paged(arrays | {"seqused_q": seqused_q}, max_seqlen_q, max_seqlen_k, options)
        return tuple(paged) if options.wants_lse else paged[0]
    operands = Operands(
        options, q=q, k=k, v=v, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q,
        seqused_k=seqused_k,
    )  # fmt: skip
    checked = operands.check(max_seqlen_q, max_seqlen_k, packed=True)
    results = attend(operands.traced(checked, deterministic=deterministic), operands.values())
    return tuple(results) if options.wants_lse else results[0]
