# SPDX-License-Identifier: MIT OR Apache-2.0
"""The profile against counts made by hand: small kernels, LDS addresses, traces for the caches."""

from __future__ import annotations

import ctypes as c
import json
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from . import hip, rows
from .asm import Kernel, assemble

LINE = 128
L2_BYTES, L2_WAYS, XCDS = 4 << 20, 16, 8
READ, WRITE, ATOMIC, END = range(4)
LANES = (1 << 64) - 1
_LANE = ["v_mbcnt_lo_u32_b32 v9, -1, 0", "v_mbcnt_hi_u32_b32 v9, -1, v9"]
_START = ["s_load_dwordx2 s[8:9], s[0:1], 0x0", *_LANE, "s_waitcnt lgkmcnt(0)"]
_ONE = ((0, 8, "global_buffer"),)


def _text(name: str, *args: Any) -> Any:
    function = getattr(hip.lib(), name)
    size = function(*args, None, c.c_size_t(0))
    assert size > 0
    buffer = c.create_string_buffer(size)
    assert function(*args, buffer, c.c_size_t(size)) == size
    return json.loads(buffer.value)


def _profile(
    lines: Sequence[str],
    nbytes: int = 1 << 16,
    grid: Sequence[int] = (1, 1, 1),
    block: Sequence[int] = (64, 1, 1),
    **kernel: Any,
) -> dict[str, Any]:
    """The record of one launch of `lines`; its buffer's address is the only argument."""
    module = hip.Module(assemble([Kernel("k", [*lines, "s_endpgm"], args=_ONE, **kernel)]))
    buffer = hip.Buffer.of(np.zeros(nbytes, np.uint8))
    hip.lib().fmha_emu_profile_enable(1)
    try:
        module.launch("k", struct.pack("<Q", buffer.address), grid, block)
    finally:
        hip.lib().fmha_emu_profile_enable(0)
        module.unload()
        buffer.free()
    (record,) = _text("fmha_emu_profile")
    assert record["version"] == 1
    assert record["kernel"] == "k"
    assert record["grid"] == list(grid)
    assert record["block"] == list(block)
    result: dict[str, Any] = record
    return result


def _classes(record: dict[str, Any]) -> dict[str, int]:
    return {k: n for k, n in record["counted"]["instructions"].items() if n}


def test_instruction_classes() -> None:
    record = _profile(
        [
            *_START,  # 1 smem, 2 valu, 1 sync
            "v_lshlrev_b32 v3, 2, v9",
            "s_lshl_b32 s10, s2, 8",  # each workgroup has 256 bytes of its own
            "v_add_u32 v1, s10, v3",
            "v_exp_f32 v2, v1",
            "v_rcp_f32_e64 v2, v1",
            "v_accvgpr_write_b32 a0, v1",
            "v_mfma_f32_4x4x4_16b_f16 v[4:7], v[10:11], v[12:13], 0"
            if rows.arch() == "gfx942"
            else "v_mfma_f32_4x4x4f16 v[4:7], v[10:11], v[12:13], 0",
            "s_mov_b32 s10, 3",
            "s_nop 0",
            "s_nop 7",
            "global_load_dword v2, v1, s[8:9]",
            "s_waitcnt vmcnt(0)",
            "global_atomic_add v1, v2, s[8:9]",
            "ds_write_b32 v3, v2",
            "s_waitcnt lgkmcnt(0)",
            "ds_read_b32 v2, v3",
            # three times:
            "s_sub_u32 s10, s10, 1",
            "s_cmp_lg_u32 s10, 0",
            "s_cbranch_scc1 -3",
            "s_waitcnt lgkmcnt(0)",
            "s_barrier",
            "global_store_dword v1, v2, s[8:9]",
        ],
        lds=256,
        grid=(5, 1, 1),
    )
    expected = {
        "valu": 5, "transcendental": 2, "mfma": 1, "salu": 2 + 6, "smem": 1, "lds": 2, "vmem_load": 1,
        "vmem_store": 1, "vmem_atomic": 1, "branch": 3, "sync": 5, "other": 3,
    }  # fmt: skip
    expected["total"] = sum(expected.values())
    assert _classes(record) == {name: 5 * n for name, n in expected.items()}
    assert record["counted"]["workgroups"] == record["counted"]["waves"] == 5
    (matrix,) = record["counted"]["mfma"].values()
    assert matrix == {"count": 5, "flops": 5 * 2 * 4 * 4 * 4 * 16}
    assert record["counted"]["mfma_by_type"] == {"f16": matrix}


@pytest.mark.skipif(rows.arch() != "gfx942", reason="names as on gfx942")
def test_matrix_flops_by_type() -> None:
    shapes = {
        "v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]": ("f16", 32 * 32 * 8),
        "v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], a[0:3]": ("f16", 16 * 16 * 16),
        "v_mfma_f32_32x32x8_bf16 a[0:15], v[0:1], v[2:3], a[0:15]": ("bf16", 32 * 32 * 8),
        "v_mfma_f32_32x32x16_fp8_fp8 a[0:15], v[0:1], v[2:3], a[0:15]": ("fp8_fp8", 32 * 32 * 16),
        "v_mfma_f32_16x16x4_f32 a[0:3], v0, v1, a[0:3]": ("f32", 16 * 16 * 4),
        "v_mfma_f64_16x16x4_f64 a[0:7], v[0:1], v[2:3], a[0:7]": ("f64", 16 * 16 * 4),
        "v_mfma_i32_32x32x16_i8 a[0:15], v[0:1], v[2:3], a[0:15]": ("i8", 32 * 32 * 16),
    }
    zeros = [f"v_mov_b32 v{i}, 0" for i in range(4)] + [f"v_accvgpr_write_b32 a{i}, 0" for i in range(16)]
    spaced = [line for shape in shapes for line in (shape, "s_nop 15", "s_nop 15")]
    counted = _profile([*zeros, "s_nop 4", *spaced])["counted"]
    assert counted["mfma"] == {
        line.split()[0]: {"count": 1, "flops": 2 * macs} for line, (_, macs) in shapes.items()
    }
    by_type: dict[str, dict[str, int]] = {}
    for type_, macs in shapes.values():
        total = by_type.setdefault(type_, {"count": 0, "flops": 0})
        total["count"] += 1
        total["flops"] += 2 * macs
    assert counted["mfma_by_type"] == by_type


def test_global_bytes_and_lines() -> None:
    record = _profile(
        [
            *_START,
            "v_lshlrev_b32 v1, 4, v9",
            "global_load_dwordx4 v[4:7], v1, s[8:9]",  # 1024 bytes, 8 lines
            "global_load_ushort v3, v1, s[8:9]",  # 128 bytes of the same lines
            "s_waitcnt vmcnt(0)",
            "s_mov_b64 exec, 0xff",
            "global_store_dwordx2 v1, v[4:5], s[8:9] offset:1040",  # 8 lanes: 64 bytes, lines 8 and 9
            "s_mov_b64 exec, 1",
            "global_store_dword v1, v4, s[8:9] offset:4092",  # lines 31 and, from 4096 - 4, no other
            "global_atomic_add v1, v4, s[8:9] offset:2048",  # line 16
        ]
    )
    counted = record["counted"]["global"]
    assert counted["load_bytes"] == 1024 + 128
    assert counted["store_bytes"] == 64 + 4
    assert counted["atomic_bytes"] == 4
    assert counted["scalar_load_bytes"] == 8
    # 8 + 1 lines read, 2 + 1 written (1040 to 1168, and 4092), 1 atomic, which is both
    assert counted["lines_read"] == 8 + 1 + 1
    assert counted["lines_written"] == 2 + 1 + 1
    assert counted["lines_touched"] == 8 + 1 + 2 + 1 + 1
    caches = record["modelled"]["caches"]
    assert caches["l2_requests"] == 1 + 8 + 8 + 2 + 1 + 1
    assert caches["l2_hits"] == 8  # the second load
    assert caches["hbm_read_bytes"] == LINE * (8 + 1 + 1)
    assert caches["hbm_write_bytes"] == LINE * (2 + 1 + 1)


def test_out_of_range_lanes_ask_for_nothing() -> None:
    record = _profile(
        [
            *_START,
            "s_mov_b32 s10, 100",  # records: 100 bytes, so 25 lanes
            "s_mov_b32 s11, 0x27000",
            "v_lshlrev_b32 v1, 2, v9",
            "buffer_load_dword v2, v1, s[8:11], 0 offen",
            "s_waitcnt vmcnt(0)",
            "buffer_store_dword v2, v1, s[8:11], 0 offen offset:20",  # 20 lanes
        ]
    )
    assert record["counted"]["global"]["load_bytes"] == 100
    assert record["counted"]["global"]["store_bytes"] == 80


@pytest.mark.skipif(rows.arch() != "gfx942", reason="gfx90a has no architected flat scratch")
def test_scratch_bytes() -> None:
    record = _profile(
        [
            *_START,
            "scratch_store_dwordx2 off, v[8:9], off",
            "s_waitcnt vmcnt(0)",
            "scratch_load_dword v1, off, off",
        ],
        scratch=16,
    )
    assert record["counted"]["scratch"] == {"load_bytes": 256, "store_bytes": 512}
    assert record["counted"]["global"]["load_bytes"] == record["counted"]["global"]["store_bytes"] == 0


def test_lds_of_a_kernel() -> None:
    record = _profile(
        [
            *_START,
            "v_lshlrev_b32 v1, 2, v9",
            "v_lshlrev_b32 v2, 7, v9",  # 32 dwords apart: all in one bank
            "ds_write_b32 v1, v9",
            "ds_write_b32 v2, v9",
            "s_waitcnt lgkmcnt(0)",
            "ds_read_b32 v3, v2",
            "ds_read2_b32 v[4:5], v1 offset0:0 offset1:1",
            "ds_add_u32 v1, v9",
            "ds_bpermute_b32 v6, v1, v9",
            "s_waitcnt lgkmcnt(0)",
        ],
        lds=8192,
    )
    assert record["counted"]["lds"] == {"read_bytes": 256 + 512, "write_bytes": 512, "atomic_bytes": 256}
    lds = record["modelled"]["lds"]
    assert lds["conflict_cycles"] == 2 * 2 * 31
    assert lds["cycles"] == 6 * 2 + lds["conflict_cycles"]


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


def _caches(trace: Iterable[tuple[int, int, int, int]]) -> dict[str, int]:
    dtype = [("address", "u8"), ("bytes", "u8"), ("workgroup", "u4"), ("kind", "u4")]
    array = np.array(list(trace), dtype)
    result: dict[str, int] = _text(
        "fmha_emu_cache_model", c.c_void_p(array.ctypes.data), c.c_size_t(array.size)
    )["caches"]
    return result


def _read(line: int, workgroup: int = 0) -> tuple[int, int, int, int]:
    return line * LINE, LINE, workgroup, READ


def test_cache_reads() -> None:
    caches = _caches([_read(0), _read(0), _read(0, 1), _read(0, 8), (130, 4, 0, READ)])
    assert caches == {
        "l2_requests": 5, "l2_hits": 2,  # workgroups 0 and 8 share an XCD, workgroup 1 does not
        "l2_fill_bytes": 3 * LINE, "l2_writeback_bytes": 0,
        "mall_hits": 1, "mall_misses": 2, "hbm_read_bytes": 2 * LINE, "hbm_write_bytes": 0,
    }  # fmt: skip


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
    # What was written can be read without a fetch, what was not cannot.
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


def _occupancy(vgprs: int, lds: int, threads: int) -> dict[str, Any]:
    module_lds = lds
    kernel = Kernel("k", ["s_endpgm"], args=_ONE, lds=module_lds)
    text = kernel.text().replace(".amdhsa_next_free_vgpr 256", f".amdhsa_next_free_vgpr {vgprs}")
    text = text.replace(".amdhsa_accum_offset 128", f".amdhsa_accum_offset {min(vgprs + 3 & ~3, 256)}")
    kernel.text = lambda: text  # type: ignore[method-assign]
    module = hip.Module(assemble([kernel]))
    hip.lib().fmha_emu_profile_enable(1)
    try:
        module.launch("k", struct.pack("<Q", 0), (1, 1, 1), (threads, 1, 1))
    finally:
        hip.lib().fmha_emu_profile_enable(0)
        module.unload()
    (record,) = _text("fmha_emu_profile")
    result: dict[str, Any] = record["modelled"]["occupancy"]
    return result


@pytest.mark.parametrize(
    ("vgprs", "lds", "threads", "groups", "waves", "limit"),
    [
        (64, 0, 256, 8, 8, "waves"),
        (65, 0, 256, 7, 7, "registers"),
        (128, 0, 256, 4, 4, "registers"),
        (132, 13824, 256, 3, 3, "registers"),
        (512, 0, 256, 1, 1, "registers"),
        (64, 16384, 256, 4, 4, "lds"),
        (64, 16385, 256, 3, 3, "lds"),
        (64, 65536, 64, 1, 1, "lds"),
        (64, 0, 64, 32, 8, "waves"),
        (32, 0, 128, 16, 8, "waves"),
        (128, 0, 1024, 1, 4, "registers"),
    ],
)
def test_occupancy(vgprs: int, lds: int, threads: int, groups: int, waves: int, limit: str) -> None:
    occupancy = _occupancy(vgprs, lds, threads)
    assert occupancy["vgprs"] == (vgprs + 7) // 8 * 8
    assert occupancy["lds_bytes"] == (lds + 511) // 512 * 512
    assert occupancy["waves_per_workgroup"] == threads // 64
    assert (occupancy["workgroups_per_cu"], occupancy["waves_per_simd"]) == (groups, waves)
    assert occupancy["limit"] == limit


def test_the_same_each_time() -> None:
    lines = [
        *_START,
        "s_lshl_b32 s10, s2, 10",
        "v_lshlrev_b32 v1, 4, v9",
        "v_add_u32 v1, s10, v1",
        "global_load_dwordx4 v[4:7], v1, s[8:9]",
        "s_waitcnt vmcnt(0)",
        "global_store_dwordx4 v1, v[4:7], s[8:9]",
    ]
    first, second = (_profile(lines, 1 << 16, (64, 1, 1)) for _ in range(2))
    assert first == second
    assert first["counted"]["global"]["lines_touched"] == 64 * 8 + 1


def test_off_is_off() -> None:
    record = _profile(_START)
    module = hip.Module(assemble([Kernel("k", ["s_endpgm"])]))
    module.launch("k", bytes(32))
    module.unload()
    assert _text("fmha_emu_profile") == [record]
    hip.lib().fmha_emu_profile_enable(1)
    hip.lib().fmha_emu_profile_enable(0)
    assert _text("fmha_emu_profile") == []


def test_constants_have_sources() -> None:
    constants = _text("fmha_emu_profile_constants")
    assert {name: entry["value"] for name, entry in constants.items()}.items() >= {
        "line_bytes": LINE, "xcds": XCDS, "l2_bytes_per_xcd": L2_BYTES, "l2_ways": L2_WAYS,
        "mall_bytes": 256 << 20, "lds_banks": 32, "vgprs_per_simd_lane": 512, "most_waves_per_simd": 8,
    }.items()  # fmt: skip
    assert all(len(entry["source"]) > 20 for entry in constants.values())
