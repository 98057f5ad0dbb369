# SPDX-License-Identifier: MIT OR Apache-2.0
"""The models of the profile against patterns of LDS addresses and traces for the caches made by hand."""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterable

import numpy as np
import pytest

from ..support import hip
from ..support.profiles import LINE, text

L2_BYTES, L2_WAYS, XCDS = 4 << 20, 16, 8
READ, WRITE, ATOMIC, END = range(4)
LANES = (1 << 64) - 1


def _lds(addresses: Iterable[int], nbytes: int, access: int = READ, lanes: int = LANES) -> tuple[int, int]:
    """Cycles without conflicts, and conflict cycles."""
    array = (c.c_uint32 * 64)(*addresses)
    groups, cycles = c.c_uint32(), c.c_uint32()
    hip.call(
        "fmha_emu_lds_cycles", array, c.c_uint64(lanes), c.c_uint32(nbytes), c.c_int(access),
        c.byref(groups), c.byref(cycles),
    )  # fmt: skip
    return groups.value, cycles.value - groups.value


@pytest.mark.parametrize(
    ("stride", "conflicts"), [(4, 0), (8, 2), (16, 6), (64, 30), (128, 62), (132, 0), (0, 0)]
)
def test_bank_conflicts_by_stride(stride: int, conflicts: int) -> None:
    """b32: each of two halves of the wave waits for as many dwords as fall into one bank."""
    assert _lds([stride * lane for lane in range(64)], 4) == (2, conflicts)


def test_bank_conflicts_by_width() -> None:
    for nbytes, groups in ((1, 2), (2, 2), (4, 2), (8, 4), (16, 8)):
        for access in (READ, WRITE):
            assert _lds([nbytes * lane for lane in range(64)], nbytes, access) == (groups, 0)
    # Rows of 256 bytes, a lane a row: all lanes of a group want the same banks.
    assert _lds([256 * lane for lane in range(64)], 8) == (4, 4 * 15)
    assert _lds([256 * lane for lane in range(64)], 16, WRITE) == (8, 8 * 7)


def test_groups_of_128_bit_accesses() -> None:
    """Reads go in other groups of lanes than writes: lanes 0-3 with 20-23, and so on."""
    # Lanes of a read's group, and only they, want different banks.
    position = {}
    for first, second in ((0, 20), (4, 16), (8, 28), (12, 24)):
        for half in (0, 32):
            for i in range(4):
                position[half + first + i] = i
                position[half + second + i] = 4 + i
    # The row differs from lane to lane, so that equal banks are different dwords.
    addresses = [128 * lane + 16 * position[lane] for lane in range(64)]
    assert _lds(addresses, 16, READ) == (8, 0)
    assert _lds(addresses, 16, WRITE)[1] > 0
    consecutive = [128 * lane + 16 * (lane % 8) for lane in range(64)]
    assert _lds(consecutive, 16, WRITE) == (8, 0)


def test_lds_atomics_wait_for_each_other() -> None:
    assert _lds([0] * 64, 4, READ) == (2, 0)
    assert _lds([0] * 64, 4, ATOMIC) == (2, 62)
    assert _lds([0] * 64, 4, ATOMIC, lanes=0b111) == (1, 2)
    assert _lds([0] * 64, 4, READ, lanes=0) == (0, 0)


def test_accesses_do_not_get_the_cycles_of_others() -> None:
    """The device remembers accesses: many that differ little count as each does by itself."""
    rng = np.random.default_rng(1)
    strides = (0, 4, 8, 60, 64, 128, 132)
    for _ in range(2000):
        addresses = int(rng.integers(0, 999)) + rng.choice(strides) * np.arange(64) % int(
            rng.choice((512, 8192))
        )
        active = np.flatnonzero(rng.random(64) < rng.choice((0.5, 1.0, 0.02)))
        halves = [addresses[active[active // 32 == half]] // 4 for half in (0, 1)]
        merged = [np.bincount(np.unique(dwords) % 32).max() for dwords in halves if dwords.size]
        apart = [np.bincount(dwords % 32).max() for dwords in halves if dwords.size]
        lanes = sum(1 << int(lane) for lane in active)
        for access, cycles in ((READ, merged), (ATOMIC, apart)):
            expected = (len(cycles), sum(cycles) - len(cycles))
            assert _lds(addresses // 4 * 4, 4, access, lanes) == expected


def _caches(trace: Iterable[tuple[int, int, int, int]]) -> dict[str, int]:
    dtype = [("address", "u8"), ("bytes", "u8"), ("workgroup", "u4"), ("kind", "u4")]
    array = np.array(list(trace), dtype)
    result: dict[str, int] = text(
        "fmha_emu_cache_model", c.c_void_p(array.ctypes.data), c.c_size_t(array.size)
    )["caches"]
    return result


def _read(line: int, workgroup: int = 0) -> tuple[int, int, int, int]:
    return line * LINE, LINE, workgroup, READ


def test_cache_reads() -> None:
    caches = _caches([_read(0), _read(0), _read(0, 1), _read(0, 8), (130, 4, 0, READ)])
    assert caches == {
        "l2_requests": 5,
        "l2_hits": 2,  # workgroups 0 and 8 share an XCD, workgroup 1 does not
        "l2_fill_bytes": 3 * LINE,
        "l2_writeback_bytes": 0,
        "mall_hits": 1,
        "mall_misses": 2,
        "hbm_read_bytes": 2 * LINE,
        "hbm_write_bytes": 0,
    }


def test_cache_replaces_the_least_recently_used() -> None:
    sets = L2_BYTES // LINE // L2_WAYS
    same_set = [_read(i * sets) for i in range(L2_WAYS)]
    assert _caches(same_set + same_set)["l2_hits"] == L2_WAYS
    # One more pushes out the oldest, which was used again: so the second oldest goes.
    trace = [*same_set, same_set[0], _read(L2_WAYS * sets)]
    assert _caches([*trace, same_set[0]])["l2_hits"] == 2
    assert _caches([*trace, same_set[1]])["l2_hits"] == 1
    # Round and round over one more than fits never hits, and comes from the MALL the second time.
    lines = [_read(i * sets) for i in range(L2_WAYS + 1)]
    caches = _caches(lines * 3)
    assert caches["l2_hits"] == 0
    assert caches["mall_misses"] == len(lines)
    assert caches["mall_hits"] == 2 * len(lines)


def test_cache_writes() -> None:
    write = (0, 64, 0, WRITE)
    # A store fetches nothing; its line goes back once, at the end.
    caches = _caches([write, write])
    assert (caches["l2_hits"], caches["hbm_read_bytes"], caches["hbm_write_bytes"]) == (1, 0, LINE)
    # Bytes that were written are read without a fetch, all others need one.
    assert _caches([write, (32, 32, 0, READ)])["hbm_read_bytes"] == 0
    assert _caches([write, (32, 64, 0, READ)])["hbm_read_bytes"] == LINE
    # An atomic reads and writes.
    caches = _caches([(0, 4, 0, ATOMIC)])
    assert (caches["hbm_read_bytes"], caches["hbm_write_bytes"]) == (LINE, LINE)
    # A dirty line that must go is written back; the MALL has it for whoever asks.
    sets = L2_BYTES // LINE // L2_WAYS
    caches = _caches([(0, LINE, 0, WRITE), *(_read(i * sets) for i in range(1, L2_WAYS + 1)), _read(0)])
    assert caches["hbm_write_bytes"] == LINE
    assert caches["hbm_read_bytes"] == L2_WAYS * LINE
    assert caches["mall_hits"] == 1


def test_cache_between_kernels() -> None:
    caches = _caches([(0, LINE, 0, WRITE), (0, 0, 0, END), _read(0), (0, 0, 0, END)])
    assert caches["l2_hits"] == 0
    assert caches["mall_hits"] == 1
    assert caches["hbm_read_bytes"] == 0
    assert caches["hbm_write_bytes"] == LINE


def test_cache_model_refuses() -> None:
    array = np.array(
        [(0, 4, 0, 7)], [("address", "u8"), ("bytes", "u8"), ("workgroup", "u4"), ("kind", "u4")]
    )
    result = hip.lib().fmha_emu_cache_model(c.c_void_p(array.ctypes.data), c.c_size_t(1), None, c.c_size_t(0))
    assert result == -1
    hip.lib().hipGetLastError()


def test_constants_have_sources() -> None:
    constants = text("fmha_emu_profile_constants")
    assert {name: entry["value"] for name, entry in constants.items()}.items() >= {
        "line_bytes": LINE,
        "xcds": XCDS,
        "l2_bytes_per_xcd": L2_BYTES,
        "l2_ways": L2_WAYS,
        "mall_bytes": 256 << 20,
        "lds_banks": 32,
        "vgprs_per_simd_lane": 512,
        "most_waves_per_simd": 8,
    }.items()
    assert all(len(entry["source"]) > 20 for entry in constants.values())
