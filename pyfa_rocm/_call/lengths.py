# SPDX-License-Identifier: MIT OR Apache-2.0
"""Check that sequences whose lengths the host knows fit their tensors; kernels see to the others."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import pairwise
from typing import Any

from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["LENGTHS", "require_appended", "require_cached", "require_packed", "require_room"]

_PLAIN, _VECTORS = 4, 5  # dimensions of k_cache
# Arrays whose numbers are looked at where the host has them.
LENGTHS = ("cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k", "cache_seqlens", "cu_seqlens")
Host = Mapping[str, Sequence[int]]
Shapes = Mapping[str, Sequence[int]]


def require_packed(
    host: Host, given: Container[str], totals: Mapping[str, int], longest: Mapping[str, Any]
) -> None:
    """Raise unless the rows of each sequence are those of the tensors.

    Parameters
    ----------
    host : mapping
        The numbers that the host knows, by the array's name.
    given : container
        Names of the arrays that the call has, whether the host knows what is in them or not.
    totals : mapping
        By side, "q" or "k": the rows that there are.
    longest : mapping
        By side: max_seqlen_q or max_seqlen_k.
    """
    for side, total in totals.items():
        starts = host.get(f"cu_seqlens_{side}")
        if starts is None:
            continue
        _require_starts(f"cu_seqlens_{side}", starts, total)
        counts, used = _differences(starts), f"seqused_{side}"
        _require_used(used, host.get(used), counts)
        if used not in given:
            _require_bound(side, f"cu_seqlens_{side}", counts, longest[side])
        elif used in host:
            _require_bound(side, used, host[used], longest[side])


def require_cached(host: Host, shapes: Shapes, seqlen_new: int, max_seqlen_k: int | None) -> None:
    """Raise unless a cache has room for its sequences, and q the rows that they have of it.

    Parameters
    ----------
    host : mapping
        As in `require_packed`.
    shapes : mapping
        Shapes of the arrays of attention over a cache, by name.
    seqlen_new, max_seqlen_k : int
        As in `require_room`.
    """
    if "cu_seqlens_q" in host:
        _require_starts("cu_seqlens_q", host["cu_seqlens_q"], shapes["q"][0])
    if "cache_seqlens" in host:
        require_room(host["cache_seqlens"], seqlen_new, shapes, max_seqlen_k)
    elif "cu_seqlens_k" in host and "cache_seqlens" not in shapes:
        lengths = _differences(host["cu_seqlens_k"])
        require_room(lengths, seqlen_new, shapes, max_seqlen_k, "difference of cu_seqlens_k")


def require_appended(host: Host, shapes: Shapes, max_seqlen: int | None) -> None:
    """Raise unless a cache has room for its sequences and their new tokens, and these are among the rows.

    Parameters
    ----------
    host, shapes : mapping
        As in `require_cached`, of an append.
    max_seqlen : int, optional
        New tokens of a sequence, at most: others are left out.
    """
    tokens = shapes["k" if "k" in shapes else "q"][:-2]
    starts = host.get("cu_seqlens")
    if starts is not None:
        _require_starts("cu_seqlens", starts, tokens[0])
    if "cache_seqlens" not in host or "k_cache" not in shapes or "slots" in shapes:
        return
    most = tokens[-1] if max_seqlen is None else max_seqlen
    batch = len(host["cache_seqlens"])
    if "cu_seqlens" in shapes:  # of which the host may know nothing
        new = [0] * batch if starts is None else [min(n, most) for n in _differences(starts)]
    else:
        new = [most] * batch
    require_room(host["cache_seqlens"], new, shapes)


def _differences(starts: Sequence[int]) -> list[int]:
    return [end - start for start, end in pairwise(starts)]


def _require_starts(name: str, starts: Sequence[int], total: int) -> None:
    """Raise unless first rows and the end are in order, and among `total` rows."""
    before = 0
    for i, start in enumerate(starts):
        if not before <= start <= total:
            raise InvalidArgumentError(
                f"{name}: got {start} at {i}, expected {before} to {total}: in order, and of {total} rows"
            )
        before = start


def _require_bound(side: str, name: str, counts: Sequence[int], longest: Any) -> None:
    for b, count in enumerate(counts):
        if count > longest:
            raise InvalidArgumentError(
                f"max_seqlen_{side}: got {longest}, expected {count} or more: {name} has so many rows of "
                f"sequence {b}"
            )


def _require_used(name: str, used: Sequence[int] | None, counts: Sequence[int]) -> None:
    for b, (length, count) in enumerate(zip(used or (), counts, strict=False)):
        if not 0 <= length <= count:
            raise InvalidArgumentError(
                f"{name}: got {length} at {b}, expected 0 to {count}, the rows of that sequence"
            )


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
