# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sequences cut among ranks: which rows each rank has, and which calls attend one rank's rows to another's.

Rows are tokens, packed sequence after sequence. Every rank computes every other's share from the lengths, so
that nobody has to ask.

A window is relative to a row's own place in its sequence, but a kernel aligns the last query with the last
key that it is given. `_tile` translates: it leaves out rows and keys until no side is negative.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["Call", "Shards", "calls", "needed"]

Range = tuple[int, int]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shards:
    """How sequences are cut among `rings` times `heads` ranks.

    Attributes
    ----------
    lengths : tuple of int
        The sequences' lengths, in the order in which they are packed.
    rings : int
        Ranks between which keys and values travel.
    heads : int
        Ranks that exchange heads: they share the rows of one of the `rings`.
    zigzag : bool
        True: each of `rings` ranks has two pieces of a sequence, the i-th from its start and the i-th from
        its end, which have equal work under a causal mask. False: it has one.
    """

    lengths: tuple[int, ...]
    rings: int
    heads: int = 1
    zigzag: bool = True

    def __post_init__(self) -> None:
        """Raise if a length makes no sense."""
        if any(n < 0 for n in self.lengths):
            raise InvalidArgumentError(f"cu_seqlens: got lengths {self.lengths}, expected none below 0")

    def pieces(self, ring: int) -> list[list[Range]]:
        """Return for each sequence the ranges of its places that a ring's rank has, in ascending order."""
        count = 2 * self.rings if self.zigzag else self.rings
        which = (ring, count - 1 - ring) if self.zigzag else (ring,)
        return [[_part(n, i, count) for i in which] for n in self.lengths]

    def ring_rows(self, ring: int) -> Rows:
        """Return the places among all packed rows of those of a ring's rank."""
        return _numbered(self.lengths, self.pieces(ring))

    def rows(self, ring: int, head: int = 0) -> Rows:
        """Return the places among all packed rows of those of one rank."""
        whole = self.pieces(ring)
        counts = [sum(stop - start for start, stop in pieces) for pieces in whole]
        own = [[_part(n, head, self.heads)] for n in counts]
        return np.asarray(self.ring_rows(ring)[_numbered(tuple(counts), own)])

    def gathered(self, ring: int) -> Rows:
        """Return the places among all packed rows of those of a ring's ranks, one rank after the other."""
        return np.concatenate([self.rows(ring, head) for head in range(self.heads)])


def _part(length: int, index: int, count: int) -> Range:
    return index * length // count, (index + 1) * length // count


def _numbered(lengths: tuple[int, ...], pieces: list[list[Range]]) -> Rows:
    """Return the places among all packed rows of ranges of each sequence."""
    first = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    ranges = [np.arange(at + a, at + b) for at, own in zip(first, pieces, strict=False) for a, b in own]
    return np.concatenate([np.empty(0, np.int64), *ranges])


@dataclass(frozen=True)
class _Tile:
    """Rows `q` of one rank, `k` of another, and how far a row sees from its own place; None: to the end."""

    q: Range
    k: Range
    left: int | None
    right: int | None


@dataclass(frozen=True)
class Call:
    """A call of packed attention: ranges of rows, none twice, with the same window.

    Attributes
    ----------
    q, k : tuple of (start, stop)
        Rows of each sequence of the call, among those of the rank, in ascending order.
    window_size : (int, int)
        As flash-attention has it: -1 is no bound.
    """

    q: tuple[Range, ...]
    k: tuple[Range, ...]
    window_size: tuple[int, int]


@functools.lru_cache(maxsize=512)
def calls(
    shards: Shards, q_ring: int, k_ring: int, causal: bool, window_size: tuple[int, int]
) -> tuple[Call, ...]:
    """Return the calls that attend the rows of one of the `rings` to the keys of another."""
    left, right = (None if side < 0 else side for side in window_size)
    right = 0 if causal else right
    found: list[tuple[list[_Tile], tuple[int | None, int | None]]] = []
    for tile in _tiles(shards, q_ring, k_ring, left, right):
        window = tile.left, tile.right
        for tiles, same in found:
            if same == window and tiles[-1].q[1] <= tile.q[0] and tiles[-1].k[1] <= tile.k[0]:
                tiles.append(tile)
                break
        else:
            found.append(([tile], window))
    return tuple(
        Call(
            tuple(x.q for x in tiles),
            tuple(x.k for x in tiles),
            (-1 if window[0] is None else window[0], -1 if window[1] is None else window[1]),
        )
        for tiles, window in found
    )


def needed(found: tuple[Call, ...]) -> Range:
    """Return the range of the other rank's rows that the calls read; (0, 0): none."""
    if not found:
        return 0, 0
    return min(x.k[0][0] for x in found), max(x.k[-1][1] for x in found)


def _tiles(shards: Shards, q_ring: int, k_ring: int, left: int | None, right: int | None) -> Iterator[_Tile]:
    """Yield what the rows of one rank see of another's, sequence by sequence."""
    q_row = k_row = 0
    for q_pieces, k_pieces in zip(shards.pieces(q_ring), shards.pieces(k_ring), strict=True):
        q_rows, k_rows = (_placed(x, row) for x, row in ((q_pieces, q_row), (k_pieces, k_row)))
        q_end, k_end = (x[-1][1] for x in (q_rows, k_rows))
        if left is None and q_ring == k_ring and right in (0, None) and q_end > q_row:
            # Places ascend with rows: the mask of the pieces is that of the rows.
            yield _Tile((q_row, q_end), (k_row, k_end), None, right if q_end - q_row > 1 else None)
        else:
            yield from _joined(
                [
                    tile
                    for q, q_at in zip(q_pieces, q_rows, strict=True)
                    for k, k_at in zip(k_pieces, k_rows, strict=True)
                    if (tile := _tile(q, k, q_at[0] - q[0], k_at[0] - k[0], left, right))
                ]
            )
        q_row, k_row = q_end, k_end


def _placed(pieces: list[Range], row: int) -> list[Range]:
    """Return the rows of pieces that follow each other from a row on."""
    rows = []
    for start, stop in pieces:
        rows.append((row, row + stop - start))
        row += stop - start
    return rows


def _tile(
    q: Range, k: Range, q_shift: int, k_shift: int, left: int | None, right: int | None
) -> _Tile | None:
    """Return what queries at places `q` see of the keys at `k`, in rows, which are places plus a shift."""
    (q0, q1), (k0, k1) = q, k
    if right is not None:
        k1 = min(k1, q1 + right)  # no row sees the keys behind
    if left is not None:
        q1 = min(q1, k1 + left)  # these rows see no key
    if left is not None:
        k0 = max(k0, q0 - left)
    if right is not None:
        q0 = max(q0, k0 - right)
    if q0 >= q1 or k0 >= k1:
        return None
    ahead = k1 - q1  # the kernel has the last query at the last key
    left = None if left is None or left + ahead >= k1 - k0 - 1 else left + ahead
    right = None if right is None or right - ahead >= q1 - q0 - 1 else right - ahead
    return _Tile((q0 + q_shift, q1 + q_shift), (k0 + k_shift, k1 + k_shift), left, right)


def _joined(tiles: list[_Tile]) -> list[_Tile]:
    """Return the tiles, neighbours joined whose rows see all of the same keys."""
    joined: list[_Tile] = []
    for tile in tiles:
        before = joined[-1] if joined else None
        if before and before.left is before.right is tile.left is tile.right is None:
            if before.q == tile.q and before.k[1] == tile.k[0]:
                joined[-1] = replace(before, k=(before.k[0], tile.k[1]))
                continue
            if before.k == tile.k and before.q[1] == tile.q[0]:
                joined[-1] = replace(before, q=(before.q[0], tile.q[1]))
                continue
        joined.append(tile)
    return joined
