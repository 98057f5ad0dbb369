# SPDX-License-Identifier: MIT OR Apache-2.0
"""Whether a cache has room for a length that the host knows. Kernels compare lengths on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["require_room"]

_PLAIN, _VECTORS = 4, 5  # dimensions of k_cache


def require_room(
    length: int,
    seqlen_new: int,
    shapes: Mapping[str, Sequence[int]],
    max_seqlen_k: int | None = None,
) -> None:
    """Raise unless a sequence of this length, and new tokens behind it, fit its part of the cache.

    Parameters
    ----------
    length : int
        What cache_seqlens says of all sequences.
    seqlen_new : int
        New tokens of each.
    shapes : mapping
        By name: k_cache, and block_table or kv_indices if there is one. Others check them.
    max_seqlen_k : int, optional
        An upper bound of the lengths, new tokens included.
    """
    capacity, of = _capacity(shapes), "the cache has room for"
    if capacity is None:
        return
    if max_seqlen_k is not None and max_seqlen_k < capacity:
        capacity, of = max_seqlen_k, "max_seqlen_k says that there are at most"
    if length + seqlen_new > capacity:
        raise InvalidArgumentError(
            f"cache_seqlens: got {length}, expected at most {capacity - seqlen_new}: {of} {capacity} tokens "
            f"of a sequence, and {seqlen_new} are new"
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
