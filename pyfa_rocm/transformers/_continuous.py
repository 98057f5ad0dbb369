# SPDX-License-Identifier: MIT OR Apache-2.0
"""Continuous batching: attention of `generate_batch`, over transformers' paged cache.

A step has sequences that begin, sequences of which a chunk of the prompt follows, and sequences that decode a
token. transformers says where each one's tokens are in the cache, and where the new ones go. Its own
implementations then gather the keys of all sequences in a copy, except that flash-attention reads block
tables when all sequences decode. Here the cache is read where it lies, whenever all keys are in it. Those of
a layer with a window are not once a chunk is stored: it takes the place of what its first queries still see.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from pyfa_rocm.transformers._decode import Keys, Scores, can_decode, decode
from pyfa_rocm.transformers._forward import varlen_forward

__all__ = ["PACKAGE", "Step", "is_paged", "paged_attention"]

PACKAGE = "transformers.generation.continuous_batching"
_KEYS = "_pyfa_rocm_keys"
_SLIDING = "sliding_attention"


def is_paged(cache: Any) -> bool:
    """Tell whether a cache is that of continuous batching, in the form of transformers 5.20 or newer."""
    return type(cache).__module__ == f"{PACKAGE}.cache" and hasattr(cache, "layer_to_allocator")


@torch.compiler.disable  # the cache is written in views of it, which a compiler would copy
def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    scores: Scores,
    given: dict[str, Any],
) -> torch.Tensor:
    """Store the new keys and values of a step, and return its attention.

    Parameters
    ----------
    module : torch.nn.Module
        The layer; its layer_idx says which part of the cache it has.
    query : torch.Tensor, (1, nhead_q, tokens, hdim)
        Queries of all sequences, packed.
    key, value : torch.Tensor, (1, nhead_k, tokens, hdim)
        Likewise.
    scores : Scores
        The attention, but for what the layer sees: all before a query, or a window.
    given : dict
        Arguments that transformers gives an attention in a step (``PagedAttentionArgs``).

    Returns
    -------
    torch.Tensor, (1, tokens, nhead_q, hdim)
        Rows of no sequence, which fill up a batch, are 0.

    Raises
    ------
    NotImplementedError
        There is a block table, and q is not float16 or bfloat16.
    """
    return Step(module, query, key, value, scores, given).attention()[None]


class Step:
    """A layer's part of a step.

    Attributes
    ----------
    cache, given : PagedAttentionCache, dict
        Arguments that transformers gives an attention.
    layer, allocator : int, CacheAllocator
        The layer's number, and what has its cache and those of the layers like it.
    new : (torch.Tensor, torch.Tensor), (1, nhead_k, tokens, hdim)
        Keys and values that are not in the cache.
    q : torch.Tensor, (tokens, nhead_q, hdim)
    scores : Scores
    """

    def __init__(
        self,
        module: Any,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scores: Scores,
        given: dict[str, Any],
    ) -> None:
        self.cache, self.given = given["cache"], given
        self.layer = module.layer_idx
        self.allocator = self.cache.layer_to_allocator[self.layer]
        self.new = key, value
        self.q = query[0].transpose(0, 1)
        self.slides = self.allocator.layer_type == _SLIDING
        window = (self.allocator.sliding_window - 1, 0) if self.slides else (-1, -1)
        self.scores = replace(scores, causal=True, window_size=window)

    def attention(self) -> torch.Tensor:
        """Return (tokens, nhead_q, hdim), by whichever way copies least."""
        k, v = (x[0].transpose(0, 1) for x in self.new)
        readable = can_decode(self.q, k, v, 0.0)
        if self.given.get("block_table") is not None:
            if not readable:
                raise NotImplementedError(
                    f"block_table: got one for {self.q.dtype}, expected float16 or bfloat16; "
                    "ContinuousBatchingConfig(max_blocks_per_request=0) does without"
                )
            return self.by_pages()
        chunk_in_window = self.slides and self.given["max_length_q"] > 1
        if readable and self.of_kind("read_index").numel() and not chunk_in_window:
            return self.by_tokens()
        return self.gathered()

    def of_kind(self, name: str) -> torch.Tensor:
        """Return what there is one of for each kind of layers, by its number."""
        index: torch.Tensor = self.given[name][self.allocator.index]
        return index

    def gathered(self) -> torch.Tensor:
        """Attend to what transformers gathers: the new tokens, if no others count, or a copy of all keys."""
        given = dict(self.given)
        k, v = (x[0].transpose(0, 1) for x in self.cache.update(*self.new, self.layer, given))
        return varlen_forward(
            self.q, k, v, given["cu_seq_lens_q"], given["cu_seq_lens_k"], given["max_length_q"],
            given["max_length_k"], self.scores, 0.0,
        )  # fmt: skip

    def by_tokens(self) -> torch.Tensor:
        """Attend by the list of all tokens, each of which is a page."""
        allocator, read, write = self.allocator, self.of_kind("read_index"), self.of_kind("write_index")

        def keys() -> Keys:
            tokens = read.to(torch.int32)
            if self.slides:  # the new ones are not listed, but marked
                tokens = tokens.masked_scatter(read == allocator.sentinel_index, write.to(torch.int32))
            longest = min(self.given["max_length_k"][allocator.layer_type], len(tokens))
            starts = self.given["cu_seq_lens_k"][allocator.layer_type].to(torch.int32)
            return Keys(longest, starts=starts, tokens=tokens)

        self.store(write)
        k, v = (x.flatten(0, 1)[:, None] for x in self.pages())
        # All listed are in the window of the one query, if there is a window.
        scores = replace(self.scores, window_size=(-1, -1))
        starts, longest = self.given["cu_seq_lens_q"], self.given["max_length_q"]
        return decode(self.q, k, v, self.once_a_step(read, keys), scores, starts, longest)

    def by_pages(self) -> torch.Tensor:
        """Attend by a block table; each sequence has one query."""
        allocator, table, count = self.allocator, self.given["block_table"], len(self.q)
        k, v = self.pages()
        size = k.shape[1]

        def keys() -> tuple[Keys, torch.Tensor]:
            pages = table[allocator.index][:count]
            lengths = self.given["cu_seq_lens_k"][allocator.layer_type].diff().to(torch.int32)[:count]
            last = (lengths - 1).clamp(min=0)
            rows = pages.gather(1, (last // size)[:, None].long())[:, 0] * size + last % size
            # Sequences that only fill up a batch have no tokens.
            rows = torch.where(lengths > 0, rows, allocator.write_trash_index).long()
            return Keys(pages.shape[1] * size, lengths=lengths, table=pages), rows

        listed, rows = self.once_a_step(table, keys)
        self.store(rows)
        return decode(self.q[:, None], k, v, listed, self.scores)[:, 0]

    def store(self, rows: torch.Tensor) -> None:
        """Write the new keys and values to rows of the cache: transformers' own way, told to read nothing."""
        new = (x[0].transpose(0, 1) for x in self.new)
        self.allocator.update(*new, self.layer, rows[:0], rows)

    def pages(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the layer's keys and values, (pages, page_size, nhead_k, hdim), as the indices count them.

        Layers with a window have them like all others, but transformers offers no block tables for them.
        """
        kind = importlib.import_module(f"{PACKAGE}.cache_allocators").FullAttentionCacheAllocator
        k, v = kind.get_cache_for_block_table(self.allocator, self.layer)
        return k, v

    def once_a_step(self, index: torch.Tensor, make: Callable[[], Any]) -> Any:
        """Return what the first layer of a kind made of an index: anew each step, and in each capture."""
        if self.layer == self.allocator.layer_indices[0] or not hasattr(index, _KEYS):
            setattr(index, _KEYS, make())
        return getattr(index, _KEYS)
