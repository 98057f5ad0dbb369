# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention over a key-value cache where it lies: torch tensors -> ``torch.ops.pyfa_rocm.fmha_decode``."""

from __future__ import annotations

from dataclasses import dataclass

import torch

import pyfa_rocm.torch  # noqa: F401 - the operator

__all__ = ["Keys", "Scores", "can_decode", "decode"]

_DTYPES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Scores:
    """The way from the products of queries and keys to their weights.

    Attributes
    ----------
    scale : float
        Factor on them.
    causal : bool
        Whether a query sees no key after its own; the last query's is the last key.
    window_size : (int, int)
        Keys that it sees before its own and after; -1: all.
    softcap : float
        Above 0, scores become ``softcap * tanh(score / softcap)``.
    sinks : torch.Tensor or None, (nhead_q)
        A logit of each head that takes part in the softmax and has no value.
    """

    scale: float
    causal: bool
    window_size: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    sinks: torch.Tensor | None = None


@dataclass(frozen=True)
class Keys:
    """The tokens of a cache that belong to each sequence. All tensors are int32.

    Attributes
    ----------
    longest : int
        The most tokens of a sequence.
    lengths, begins : torch.Tensor or None, (batch)
        Tokens of each sequence, and how many of them at the beginning are no keys. None: `longest`, and none.
    starts : torch.Tensor or None, (batch + 1)
        Instead of `lengths`, if queries are packed: sums of those before each sequence, and of all.
    table : torch.Tensor or None, (batch, pages)
        The pages of each sequence.
    tokens : torch.Tensor or None, (starts[batch] or more)
        Or the tokens of all, of a cache whose pages have one. Without either, a sequence is an element of the
        cache.
    """

    longest: int
    lengths: torch.Tensor | None = None
    begins: torch.Tensor | None = None
    starts: torch.Tensor | None = None
    table: torch.Tensor | None = None
    tokens: torch.Tensor | None = None


def can_decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout: float) -> bool:
    """Tell whether kernels can read a cache in place: no gradient or dropout, 16 bits, whole 16 bytes."""
    if dropout or (torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))):
        return False
    if q.dtype not in _DTYPES or k.shape[-1] > 512 or v.shape[-1] > 512:
        return False
    return all(_is_readable(x) for x in (q, k, v))


def _is_readable(x: torch.Tensor) -> bool:
    if x.stride(-1) != 1 or any(n % 8 for n in (x.shape[-1], *x.stride()[:-1])):
        return False
    # In a graph there are no addresses; what torch allocates is aligned.
    return bool(torch.compiler.is_compiling() or x.data_ptr() % 16 == 0)


def decode(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    keys: Keys,
    scores: Scores,
    starts: torch.Tensor | None = None,
    longest: int = 0,
) -> torch.Tensor:
    """Return attention over a cache.

    Parameters
    ----------
    q : torch.Tensor, (batch, seqlen_q, nhead_q, hdim), or (total_q, nhead_q, hdim)
        Queries, packed if `starts`, int32 (batch + 1), says where each sequence's begin; at most `longest`.
    k, v : torch.Tensor, (pages or batch, tokens, nhead_k, hdim)
        The cache.
    keys : Keys
        The tokens of it that each sequence has.
    scores : Scores
        The attention.

    Returns
    -------
    torch.Tensor
        Of q's shape, with v's hdim. 0 for a query that sees no key.
    """
    left, right = scores.window_size
    out, _ = torch.ops.pyfa_rocm.fmha_decode.default(
        q, k, v, cache_seqlens=keys.lengths, cache_leftpad=keys.begins, block_table=keys.table,
        kv_indptr=None if keys.tokens is None else keys.starts, kv_indices=keys.tokens,
        sinks=None if scores.sinks is None else scores.sinks.detach().float(), cu_seqlens_q=starts,
        cu_seqlens_k=keys.starts, softmax_scale=scores.scale, causal=scores.causal, window_left=left,
        window_right=right, softcap=scores.softcap, max_seqlen_q=None if starts is None else longest,
        max_seqlen_k=keys.longest,
    )  # fmt: skip
    result: torch.Tensor = out
    return result
