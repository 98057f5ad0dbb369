# SPDX-License-Identifier: MIT OR Apache-2.0
"""Checks that a cache has room for a length that the host knows. Kernels compare lengths on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["require_room"]

_PLAIN, _VECTORS = 4, 5  # dimensions of k_cache


def require_room(
    lengths: int | Sequence[int],
    seqlen_new: int | Sequence[int],
    shapes: Mapping[str, Sequence[int]],
    max_seqlen_k: int | None = None,
    name: str = "cache_seqlens",
) -> None:
    """Raise unless sequences of these lengths, and new tokens behind them, fit their parts of the cache.

    Parameters
    ----------
    lengths : int or sequence of int
        Values of cache_seqlens: one for all sequences, or one for each.
    seqlen_new : int or sequence of int
        New tokens: one number for all sequences, or one for each.
    shapes : mapping
        By name: k_cache, and block_table or kv_indices if there is one. Others check them.
    max_seqlen_k : int, optional
        An upper bound of the lengths, new tokens included.
    name : str
        The argument's name.
    """
    capacity, of = _capacity(shapes), "the cache has room for"
    if capacity is None:
        return
    if max_seqlen_k is not None and max_seqlen_k < capacity:
        capacity, of = max_seqlen_k, "max_seqlen_k says that there are at most"
    if isinstance(lengths, int):
        lengths, at = (lengths,), ""
    else:
        at = " at {}"
    for b, length in enumerate(lengths):
        new = seqlen_new if isinstance(seqlen_new, int) else seqlen_new[b]
        if length < 0:
            raise InvalidArgumentError(f"{name}: got {length}{at.format(b)}, expected 0 or more")
        if length + new > capacity:
            raise InvalidArgumentError(
                f"{name}: got {length}{at.format(b)}, expected at most {capacity - new}: {of} {capacity} "
                f"tokens of a sequence, and {new} are new"
            )


def _capacity(shapes: Mapping[str, Sequence[int]]) -> int | None:
    """Return the tokens that a sequence may have; None if the shapes are not those of a cache."""
    k = shapes["k_cache"]
    if len(k) not in (_PLAIN, _VECTORS):
        return None
    page_size = k[1] if len(k) == _PLAIN else k[3]
    table, indices = shapes.get("block_table"), shapes.get("kv_indices")
    if table is not None:
        return table[1] * page_size if len(table) == 2 else None
    if indices is not None:
        return indices[0] * page_size if len(indices) == 1 else None
    return page_size
