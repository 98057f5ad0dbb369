# SPDX-License-Identifier: MIT OR Apache-2.0
"""Continuous batching: attention of `generate_batch`, over transformers' paged cache.

A step has sequences that begin, sequences of which a chunk of the prompt follows, and sequences that decode a
token. transformers says where each one's tokens are in the cache, and where the new ones go. Its own
implementations then gather the keys of all sequences in a copy, except that flash-attention reads block
tables when all sequences decode. Here the cache is read where it lies, whenever all keys are there: before a
layer with a window stores a chunk, they are not, since it takes the place of what the chunk's first queries
still see.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from pyfa_rocm import flash_attn
from pyfa_rocm.transformers._decode import Keys, Scores, can_decode, decode
from pyfa_rocm.transformers._forward import varlen_forward

__all__ = ["is_paged", "paged_attention", "teach"]

_PACKAGE = "transformers.generation.continuous_batching"
_ASKING = ("cache", "continuous_api", "initialization")
_KNOWS = "_pyfa_rocm"
_KEYS = "_pyfa_rocm_keys"
_SLIDING = "sliding_attention"


def is_paged(cache: Any) -> bool:
    """Whether a cache is that of continuous batching, in the form of transformers 5.20 or newer."""
    return type(cache).__module__ == f"{_PACKAGE}.cache" and hasattr(cache, "layer_to_allocator")


@torch.compiler.disable
def paged_attention(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scores: Scores,
    given: dict[str, Any],
) -> torch.Tensor:  # fmt: skip
    """Store the new keys and values of a step, and return its attention.

    Parameters
    ----------
    module : torch.nn.Module
        The layer; its layer_idx says which part of the cache it has.
    query : torch.Tensor, (1, nhead_q, tokens, hdim)
        Of all sequences, packed.
    key, value : torch.Tensor, (1, nhead_k, tokens, hdim)
        Likewise.
    scores : Scores
        The attention, but for what the layer sees: all before a query, or a window.
    given : dict
        What transformers hands to an attention in a step (``PagedAttentionArgs``).

    Returns
    -------
    torch.Tensor, (1, tokens, nhead_q, hdim)
    """
    cache, layer = given["cache"], int(module.layer_idx)  # type: ignore[arg-type]
    allocator = cache.layer_to_allocator[layer]
    slides = allocator.layer_type == _SLIDING
    scores = replace(scores, causal=True, window_size=(allocator.sliding_window - 1, 0) if slides else (-1, -1))
    q = query[0].transpose(0, 1)
    first = layer == allocator.layer_indices[0]
    if can_decode(q, key[0].transpose(0, 1), value[0].transpose(0, 1), 0.0):
        if given.get("block_table") is not None:
            return _by_pages(allocator, layer, first, q, key, value, scores, given)[None]
        reads = given["read_index"][allocator.index].numel() > 0
        if reads and not (slides and given["max_length_q"] > 1):
            return _by_tokens(allocator, layer, first, q, key, value, scores, given)[None]
    elif given.get("block_table") is not None:
        raise NotImplementedError(
            f"block_table: got one for {q.dtype}, expected float16 or bfloat16; "
            "ContinuousBatchingConfig(max_blocks_per_request=0) does without"
        )
    return _gathered(cache, layer, q, key, value, scores, given)[None]


def _gathered(
    cache: Any, layer: int, q: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scores: Scores,
    given: dict[str, Any],
) -> torch.Tensor:  # fmt: skip
    """Return attention over what transformers gathers: the new tokens themselves, or a copy of all keys."""
    given = dict(given)
    k, v = (x[0].transpose(0, 1) for x in cache.update(key, value, layer, given))
    lengths = given["cu_seq_lens_q"], given["cu_seq_lens_k"], given["max_length_q"], given["max_length_k"]
    return varlen_forward(q, k, v, *lengths, scores, 0.0)


def _by_tokens(
    allocator: Any, layer: int, first: bool, q: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    scores: Scores, given: dict[str, Any],
) -> torch.Tensor:  # fmt: skip
    """Return attention over tokens of the cache, each of which is a page."""
    read, write = (given[name][allocator.index] for name in ("read_index", "write_index"))
    _store(allocator, layer, key, value, write)

    def keys() -> Keys:
        tokens = read.to(torch.int32)
        if allocator.layer_type == _SLIDING:  # the new ones are not listed, but marked
            tokens = tokens.masked_scatter(read == allocator.sentinel_index, write.to(torch.int32))
        longest = min(given["max_length_k"][allocator.layer_type], len(tokens))
        starts = given["cu_seq_lens_k"][allocator.layer_type].to(torch.int32)
        return Keys(longest, starts=starts, tokens=tokens)

    # All keys of the list are in the window of the one query, if there is a window.
    scores = replace(scores, window_size=(-1, -1))
    k, v = (x.flatten(0, 1)[:, None] for x in _pages(allocator, layer))
    listed = _once_a_step(read, first, keys)
    return decode(q, k, v, listed, scores, given["cu_seq_lens_q"], given["max_length_q"])


def _by_pages(
    allocator: Any, layer: int, first: bool, q: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    scores: Scores, given: dict[str, Any],
) -> torch.Tensor:  # fmt: skip
    """Return attention of a query a sequence over the pages of its block table."""
    k, v = _pages(allocator, layer)
    size = k.shape[1]
    table = given["block_table"]

    def keys() -> tuple[Keys, torch.Tensor]:
        pages = table[allocator.index][: len(q)]
        lengths = given["cu_seq_lens_k"][allocator.layer_type].diff().to(torch.int32)[: len(q)]
        last = (lengths - 1).clamp(min=0)
        rows = pages.gather(1, (last // size)[:, None].long())[:, 0] * size + last % size
        # Sequences that only fill up a batch have no tokens.
        rows = torch.where(lengths > 0, rows, allocator.write_trash_index).long()
        return Keys(pages.shape[1] * size, lengths=lengths, table=pages), rows

    listed, rows = _once_a_step(table, first, keys)
    _store(allocator, layer, key, value, rows)
    return decode(q[:, None], k, v, listed, scores)[:, 0]


def _store(allocator: Any, layer: int, key: torch.Tensor, value: torch.Tensor, rows: torch.Tensor) -> None:
    """Write new keys and values to the cache: transformers' own way, told to read nothing."""
    new = (x[0].transpose(0, 1) for x in (key, value))
    allocator.update(*new, layer, rows[:0], rows)


def _pages(allocator: Any, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a layer's keys and values, (pages, page_size, nhead_k, hdim), as the indices count them.

    Layers with a window have them like all others, but transformers offers them no block tables.
    """
    module = importlib.import_module(f"{_PACKAGE}.cache_allocators")
    pages: tuple[torch.Tensor, torch.Tensor] = (
        module.FullAttentionCacheAllocator.get_cache_for_block_table(allocator, layer)
    )
    return pages


def _once_a_step(index: torch.Tensor, first: bool, make: Callable[[], Any]) -> Any:
    """Return what the first layer of a kind made of an index; made anew each step, and in each capture."""
    if first or not hasattr(index, _KEYS):
        setattr(index, _KEYS, make())
    return getattr(index, _KEYS)


def teach(name: str) -> None:
    """Make continuous batching take an implementation of this name for what it is, one like flash-attention.

    It refuses names that it does not know, and goes by "flash" in them: whether masks are made of every query
    and key, memory is kept for those, and steps are captured in graphs. So it asks two functions of
    transformers, which are wrapped where it asks, and nowhere else.
    """
    for part in _ASKING:
        module = importlib.import_module(f"{_PACKAGE}.{part}")
        _wrap(module, "is_flash_attention_requested", functools.partial(_is_flash, name))
    module = importlib.import_module(f"{_PACKAGE}.initialization")
    _wrap(module, "lazy_import_flash_attention", functools.partial(_imported, name))


def _wrap(module: Any, attribute: str, answer: Callable[..., Any]) -> None:
    asked = getattr(module, attribute, None)
    if asked is None or hasattr(asked, _KNOWS):
        return

    @functools.wraps(asked)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return answer(asked, *args, **kwargs)

    setattr(wrapper, _KNOWS, True)
    setattr(module, attribute, wrapper)


def _is_flash(
    name: str, asked: Callable[..., bool], config: Any = None, requested_attention_implementation: Any = None,
    version: Any = None,
) -> bool:  # fmt: skip
    implementation = getattr(config, "_attn_implementation", requested_attention_implementation)
    return implementation == name or asked(config, requested_attention_implementation, version)


def _imported(name: str, asked: Callable[..., Any], implementation: Any, *args: Any, **kwargs: Any) -> Any:
    """Answer which functions there are: of ours it is only asked whether there is the third."""
    if implementation != name:
        return asked(implementation, *args, **kwargs)
    functions = flash_attn.flash_attn_func, flash_attn.flash_attn_varlen_func, paged_attention, None, None
    return functions, (None, None)
