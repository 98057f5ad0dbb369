# SPDX-License-Identifier: MIT OR Apache-2.0
"""The attention of a layer, as transformers calls it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from pyfa_rocm.errors import InvalidArgumentError
from pyfa_rocm.torch import flash_attn_func
from pyfa_rocm.torch._mask import most_bias
from pyfa_rocm.torch._tensors import autocast
from pyfa_rocm.transformers._compiled import attend_counted
from pyfa_rocm.transformers._continuous import is_paged, paged_attention
from pyfa_rocm.transformers._decode import Keys, Scores, can_decode, decode
from pyfa_rocm.transformers._forward import forward, varlen_forward, with_sinks
from pyfa_rocm.transformers._mask import is_range, tagged_pattern, tokens_of
from pyfa_rocm.transformers._packing import in_use, packed_rows, traced_rows, within_sequences
from pyfa_rocm.transformers._pattern import Pattern
from pyfa_rocm.transformers._rows import Rows, once, rows_of_mask

__all__ = ["attention_forward"]

# Queries of a sequence up to which its cache is read by decode's kernels, which share the keys among compute
# units: a tile of them has 16 rows, of queries and the heads of a group.
_FEW = 16


def _pattern(
    module: Any, mask: torch.Tensor | None, is_causal: bool | None, sliding_window: int | None
) -> Pattern:
    """Return the pattern a mask carries, or else what the layer says of itself."""
    tagged = None if mask is None else tagged_pattern(mask)
    if tagged is not None:
        return tagged
    causal = bool(getattr(module, "is_causal", True) if is_causal is None else is_causal)
    if sliding_window is None:
        return Pattern(causal)
    # transformers' own agreement on what a layer calls its window: the query's own key is one of it.
    return Pattern(causal, (sliding_window - 1, 0 if causal else sliding_window - 1))


def _additive(mask: torch.Tensor, dtype: torch.dtype, kv_length: int) -> torch.Tensor:
    """Return a mask of all queries and keys as what is added to the scores."""
    least = -most_bias(dtype)
    mask = mask[..., :kv_length]
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, least)
    # -inf would leave a row without keys undefined, and the least float32 is -inf in the smaller types.
    return mask.clamp(min=least).to(dtype).contiguous()


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    s_aux: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Compute the attention of a layer: transformers' interface for attention.

    Parameters
    ----------
    module : torch.nn.Module
        The layer; its is_causal counts if nothing else says it.
    query : torch.Tensor, (batch, nhead_q, seqlen_q, hdim)
        Under autocast cast to its type, as are key and value.
    key, value : torch.Tensor, (batch, nhead_k, seqlen_k, hdim)
        Heads are not repeated.
    attention_mask : torch.Tensor, optional
        From `attention_mask` in this package; or (batch, 1 or nhead_q, seqlen_q, seqlen_k), bool or added to
        the scores.
    dropout : float
        Chance to drop a probability.
    scaling : float, optional
        Factor on the scores; ``1 / sqrt(hdim)`` by default.
    sliding_window : int, optional
        Keys that a query sees, with its own, if the mask does not say it.
    softcap : float, optional
        Scores become ``softcap * tanh(score / softcap)``.
    is_causal : bool, optional
        Instead of the layer's.
    s_aux : torch.Tensor, optional, (nhead_q)
        Attention sinks: a logit of each head that takes part in the softmax and has no value.
    **kwargs
        Whatever else a model hands on. Arguments that say which tokens belong together are obeyed:
        cu_seq_lens_q, cu_seq_lens_k, max_length_q and max_length_k, as `FlashAttentionKwargs` of transformers
        has them; seq_idx; and position_ids that start again. Continuous batching gives the paged cache, and
        what to read of it.

    Returns
    -------
    output : torch.Tensor, (batch, seqlen_q, nhead_q, hdim)
        0 for padding.
    weights : None
        There are none.

    Raises
    ------
    NotImplementedError
        The model asks for what no kernel here does: a position bias, a cache of a kind that is not known.
    InvalidArgumentError, UnsupportedError, HipError
        As in `pyfa_rocm.torch.flash_attn_func`.

    Notes
    -----
    Source: for a few queries over a cache, `pyfa_rocm.fmha_decode`, which reads it where it lies; else
    `pyfa_rocm.flash_attn.flash_attn_func` and `flash_attn_varlen_func`; for masks of every query and key, the
    bias of `pyfa_rocm.torch.flash_attn_func`.
    """
    _require_sinks(s_aux, query)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = Scores(scale, False, softcap=softcap or 0.0, sinks=s_aux)
    paged = is_paged(kwargs.get("cache"))
    _require_known(kwargs, ("position_bias",) if paged else ("position_bias", "cache", "block_table"))
    if paged:
        _require_no_mask(attention_mask)
        return paged_attention(module, query, key, value, scores, kwargs), None
    q, k, v = (x.transpose(1, 2) for x in autocast(query, key, value))
    if attention_mask is not None and attention_mask.ndim == 4 and not is_range(attention_mask):
        attention_mask = within_sequences(attention_mask, kwargs, q, k)
        return _with_bias(q, k, v, attention_mask, scores, dropout), None
    pattern = _pattern(module, attention_mask, is_causal, sliding_window)
    scores = replace(scores, causal=pattern.causal, window_size=pattern.window_size)
    packed = packed_rows(kwargs, attention_mask, pattern, q, k)
    if packed is not None:
        count = in_use(attention_mask, k)
        return _packed(q, k[:, :count], v[:, :count], packed, scores, dropout), None
    keys = _keys(attention_mask, q, k)
    if keys is not None and can_decode(q, k, v, dropout):
        return decode(q, k, v, keys, scores), None
    if torch.compiler.is_compiling():
        if attention_mask is not None and not is_range(attention_mask):
            k, v = (x[:, : attention_mask.shape[1]] for x in (k, v))
        rows = traced_rows(kwargs, attention_mask, pattern, q, k)
        if rows is None:
            return forward(q, k, v, scores, dropout), None
        return _packed(q, k, v, rows, scores, dropout), None
    return _by_rows(q, k, v, attention_mask, pattern, scores, dropout), None


def _require_sinks(sinks: torch.Tensor | None, query: torch.Tensor) -> None:
    if sinks is not None and sinks.shape != query.shape[1:2]:
        raise InvalidArgumentError(
            f"s_aux: got shape {tuple(sinks.shape)}, expected ({query.shape[1]},): a sink for each query head"
        )


def _require_known(kwargs: dict[str, Any], unknown: tuple[str, ...]) -> None:
    """Raise for what some models hand to their attention and no kernel here does: results would be wrong."""
    for name in unknown:
        if kwargs.get(name) is not None:
            raise NotImplementedError(
                f"{name}: got a {type(kwargs[name]).__name__}, expected None: attn_implementation "
                "'pyfa_rocm' does not implement it yet; 'eager' or 'sdpa' may"
            )


def _require_no_mask(mask: torch.Tensor | None) -> None:
    """Raise for a mask of every query and key: continuous batching has none for us.

    A compiled model, in which mask functions are not recognised, makes one of the positions.
    """
    if mask is not None and mask.ndim == 4 and not torch.compiler.is_compiling():
        raise NotImplementedError(
            f"attention_mask: got one of shape {tuple(mask.shape)} with a paged cache, expected None: "
            "paged attention of 'pyfa_rocm' is causal; 'sdpa' adds masks"
        )


def _with_bias(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scores: Scores, dropout: float
) -> torch.Tensor:
    """Return attention with a mask of all queries and keys added to the scores."""
    bias = _additive(mask, q.dtype, k.shape[1])
    options = {"dropout_p": dropout, "softmax_scale": scores.scale, "softcap": scores.softcap, "bias": bias}
    if scores.sinks is None:
        return flash_attn_func(q, k, v, **options)
    out, lse = flash_attn_func(q, k, v, return_lse=True, **options)
    return with_sinks(out, lse, scores.sinks)


def _keys(mask: torch.Tensor | None, q: torch.Tensor, k: torch.Tensor) -> Keys | None:
    """Return which keys of a cache count, if the call is to read one; None: it is no such call."""
    batch, q_length = q.shape[:2]
    longest = k.shape[1]
    if mask is None:
        return Keys(longest) if q_length < longest and q_length <= _FEW else None
    if not is_range(mask):
        return None
    if mask.shape != (2, 1, 1, batch):
        raise InvalidArgumentError(
            f"attention_mask: got int32 {tuple(mask.shape)}, expected (2, 1, 1, {batch}) of the function "
            "attention_mask: the model has changed it; 'eager' or 'sdpa' may work"
        )
    return Keys(longest, lengths=mask[1, 0, 0], begins=mask[0, 0, 0])


def _by_rows(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    pattern: Pattern,
    scores: Scores,
    dropout: float,
) -> torch.Tensor:
    """Return attention by the forward kernels, which have gradients: padding left out, in copies."""
    q_length = q.shape[1]
    rows = None
    if mask is not None:
        if is_range(mask):
            given = mask
            mask = once(given, ("tokens",), lambda: tokens_of(given))
        # A cache of fixed size holds more than is in use.
        tokens: torch.Tensor = mask
        k, v = (x[:, : tokens.shape[1]] for x in (k, v))
        what = q_length, pattern.causal, pattern.window_size
        rows = once(tokens, what, lambda: rows_of_mask(tokens, q_length, pattern))
    if rows is None:
        return forward(q, k, v, scores, dropout)
    return _packed(q, k, v, rows, scores, dropout)


def _packed(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: tuple[Rows, Rows], scores: Scores, dropout: float
) -> torch.Tensor:
    """Return attention by the kernels for packed sequences."""
    of_q, of_k = rows
    batch, q_length = q.shape[:2]
    packed = of_q.pack(q), of_k.pack(k), of_k.pack(v)
    if of_q.sizes is not None:
        out = attend_counted(*packed, of_q.starts, of_q.sizes, scores, dropout)
    else:
        lengths = of_q.starts, of_k.starts, of_q.longest, of_k.longest
        out = varlen_forward(*packed, *lengths, scores, dropout)
    return of_q.unpack(out, batch, q_length)
