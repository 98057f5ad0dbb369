# SPDX-License-Identifier: MIT OR Apache-2.0
"""The random bytes of dropout, in NumPy: what ck_tile's BlockDropout gives each element of P.

P of a head is cut into tiles of 32 x 32. Each tile is a subsequence of a counter-based generator, Philox
4x32 with 7 rounds, keyed with the seed; the offset, the head and one of 64 lanes are the counter within it. A
lane's 16 bytes are the rows of a column that it holds in the accumulator of a 32x32x16 matrix instruction. No
tile size of a kernel enters, nor its mask, nor the lengths.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["keep_at_most", "keep_scale", "random_bytes"]

_TILE = 32
_LANES = 64
_ROUNDS = 7
_WEYL = (np.uint32(0x9E3779B9), np.uint32(0xBB67AE85))
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)

Uint32 = npt.NDArray[np.uint32]
Uint64 = npt.NDArray[np.uint64]


def philox_4x32(seed: int, low: Uint64, high: Uint64) -> Uint32:
    """Return four random words (..., 4) of the 128-bit counters high:low."""
    low, high = np.broadcast_arrays(low, high)
    counter = [_word(low), _word(low >> _HALF), _word(high), _word(high >> _HALF)]
    key = [np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32)]
    with np.errstate(over="ignore"):
        for _ in range(_ROUNDS):
            x, y = (counter[i].astype(np.uint64) * m for i, m in zip((0, 2), _MULTIPLIERS, strict=True))
            counter = [
                _word(y >> _HALF) ^ counter[1] ^ key[0],
                _word(y),
                _word(x >> _HALF) ^ counter[3] ^ key[1],
                _word(x),
            ]
            key = [k + w for k, w in zip(key, _WEYL, strict=True)]
    return np.stack(counter, axis=-1)


def random_bytes(
    seed: int, offset: int, nhead: int, rows: int, columns: int, batch: int = 0
) -> npt.NDArray[np.uint8]:
    """Return the bytes of one batch entry, (nhead, rows, columns)."""
    tiles = (math.ceil(rows / _TILE), math.ceil(columns / _TILE))
    head = np.arange(nhead, dtype=np.uint64)[:, None, None, None] + np.uint64(batch * nhead)
    row = np.arange(tiles[0], dtype=np.uint64)[:, None, None]
    column = np.arange(tiles[1], dtype=np.uint64)[:, None]
    lane = np.arange(_LANES, dtype=np.uint64)
    with np.errstate(over="ignore"):
        words = philox_4x32(seed, np.uint64(offset) + head * np.uint64(_LANES) + lane, row | column << _HALF)
    held = np.ascontiguousarray(words.astype("<u4")).view(np.uint8)  # (head, row, column, lane, byte)
    held = held.reshape(nhead, *tiles, 2, 32, 2, 8)  # lane is (half, column); byte is (16 rows, of 8)
    placed = held.transpose(0, 1, 5, 3, 6, 2, 4)  # (head, tile, 16 rows, half, of 8, tile, column)
    return np.asarray(placed.reshape(nhead, tiles[0] * _TILE, tiles[1] * _TILE)[:, :rows, :columns])


def keep_at_most(p_drop: float) -> int:
    """Return the largest byte that is kept, worked out in float32 as CK does."""
    keep = np.float32(1.0 - float(np.float32(p_drop)))
    return int(np.floor(keep * np.float32(255)))


def keep_scale(p_drop: float) -> float:
    """Return the factor on what is kept."""
    return float(np.float32(1.0 / float(np.float32(1.0 - float(np.float32(p_drop))))))


def _word(x: Any) -> Uint32:
    return np.asarray(x & _LOW).astype(np.uint32)
