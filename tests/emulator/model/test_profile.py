# SPDX-License-Identifier: MIT OR Apache-2.0
"""The profile of small kernels against counts made by hand."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ..support import hip, rows
from ..support.asm import Kernel, assemble
from ..support.profiles import LINE, text

_LANE = ["v_mbcnt_lo_u32_b32 v9, -1, 0", "v_mbcnt_hi_u32_b32 v9, -1, v9"]
_START = ["s_load_dwordx2 s[8:9], s[0:1], 0x0", *_LANE, "s_waitcnt lgkmcnt(0)"]
_ONE = ((0, 8, "global_buffer"),)


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
    (record,) = text("fmha_emu_profile")
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


# Each arch's instruction, its type in the profile, and its multiply-adds.
_MATRIX = {
    "gfx942": {
        "v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]": ("f16", 32 * 32 * 8),
        "v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], a[0:3]": ("f16", 16 * 16 * 16),
        "v_mfma_f32_32x32x8_bf16 a[0:15], v[0:1], v[2:3], a[0:15]": ("bf16", 32 * 32 * 8),
        "v_mfma_f32_32x32x16_fp8_fp8 a[0:15], v[0:1], v[2:3], a[0:15]": ("fp8_fp8", 32 * 32 * 16),
        "v_mfma_f32_16x16x4_f32 a[0:3], v0, v1, a[0:3]": ("f32", 16 * 16 * 4),
        "v_mfma_f64_16x16x4_f64 a[0:7], v[0:1], v[2:3], a[0:7]": ("f64", 16 * 16 * 4),
        "v_mfma_i32_32x32x16_i8 a[0:15], v[0:1], v[2:3], a[0:15]": ("i8", 32 * 32 * 16),
    },
    "gfx90a": {
        "v_mfma_f32_32x32x8f16 a[0:15], v[0:1], v[2:3], a[0:15]": ("f16", 32 * 32 * 8),
        "v_mfma_f32_16x16x16f16 a[0:3], v[0:1], v[2:3], a[0:3]": ("f16", 16 * 16 * 16),
        "v_mfma_f32_32x32x4bf16 a[0:15], v0, v2, a[0:15]": ("bf16", 32 * 32 * 4),
        "v_mfma_f32_32x32x8bf16_1k a[0:15], v[0:1], v[2:3], a[0:15]": ("bf16", 32 * 32 * 8),
        "v_mfma_f32_16x16x4f32 a[0:3], v0, v1, a[0:3]": ("f32", 16 * 16 * 4),
        "v_mfma_f64_16x16x4f64 a[0:7], v[0:1], v[2:3], a[0:7]": ("f64", 16 * 16 * 4),
        "v_mfma_i32_32x32x8i8 a[0:15], v0, v2, a[0:15]": ("i8", 32 * 32 * 8),
    },
    "gfx950": {
        "v_mfma_f32_16x16x128_f8f6f4 a[0:3], v[0:3], v[0:3], a[0:3] cbsz:4 blgp:4": ("f8f6f4", 16 * 16 * 128),
        "v_mfma_scale_f32_32x32x64_f8f6f4 a[0:15], v[0:3], v[0:3], a[0:15], v0, v1 cbsz:4 blgp:4": (
            "f8f6f4",
            32 * 32 * 64,
        ),
    },
}


def test_matrix_flops_by_type() -> None:
    shapes = _MATRIX[rows.arch()]
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


def test_scratch_bytes() -> None:
    record = _profile(
        [
            *_START,
            "v_mov_b32 v2, 0",
            "scratch_store_dwordx2 v2, v[8:9], off",
            "s_waitcnt vmcnt(0)",
            "scratch_load_dword v1, v2, off",
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


def test_lds_of_every_width() -> None:
    """Bytes of each kind of access, EXEC half off; the addresses are those of before the instruction."""
    record = _profile(
        [
            *_START,
            "v_lshlrev_b32 v1, 4, v9",
            "v_mov_b32 v2, v1",
            "v_mov_b32 v3, v1",
            "v_mov_b32 v4, 0",
            "v_mov_b32 v5, 0",
            "v_mov_b32 v6, 0",
            "v_mov_b32 v7, 0",
            "s_mov_b32 m0, 0x10000",
            "ds_write_b128 v1, v[4:7]",  # 1024
            "s_waitcnt lgkmcnt(0)",
            "s_mov_b64 exec, 0xffffffff",
            "ds_read_b128 v[4:7], v1",  # 512
            "ds_read_b64 v[2:3], v2",  # 256, over its own address
            "ds_read_u16 v10, v1 offset:6",  # 64
            "ds_write_b8 v1, v9 offset:1",  # 32
            "s_waitcnt lgkmcnt(0)",
            "ds_write_b64 v1, v[4:5]",  # 256
            "s_waitcnt lgkmcnt(0)",
            "ds_read2st64_b64 v[12:15], v1 offset0:0 offset1:1",  # 512
            "ds_write2_b32 v1, v4, v5 offset0:2 offset1:3",  # 256
            "ds_add_rtn_u32 v16, v1, v9",  # 128
            "ds_add_u64 v1, v[4:5]",  # 256
            "s_waitcnt lgkmcnt(0)",
        ],
        lds=2048,
    )
    assert record["counted"]["lds"] == {
        "read_bytes": 512 + 256 + 64 + 512,
        "write_bytes": 1024 + 32 + 256 + 256,
        "atomic_bytes": 128 + 256,
    }


def test_loads_to_lds_are_lds_writes() -> None:
    record = _profile(
        [
            *_START,
            "s_mov_b32 s10, 0x10000",
            "s_mov_b32 s11, 0x27000",
            "v_lshlrev_b32 v1, 2, v9",
            "s_mov_b32 m0, 0",
            "s_nop 4",
            "buffer_load_dword v1, s[8:11], 0 offen lds",
            "s_waitcnt vmcnt(0)",
            *(["global_load_lds_dword v1, s[8:9]", "s_waitcnt vmcnt(0)"] if rows.arch() == "gfx942" else []),
        ],
        lds=256,
    )
    loads = 2 if rows.arch() == "gfx942" else 1
    assert record["counted"]["lds"] == {"read_bytes": 0, "write_bytes": 256 * loads, "atomic_bytes": 0}
    assert record["modelled"]["lds"] == {"cycles": 2 * loads, "conflict_cycles": 0}
    assert record["counted"]["global"]["load_bytes"] == 256 * loads
    assert _classes(record)["vmem_load"] == loads


def test_flat_accesses_to_lds() -> None:
    """FLAT reaches LDS and global memory by the address; each counts where it went."""
    record = _profile(
        [
            *_START,
            "v_lshlrev_b32 v2, 2, v9",
            "s_mov_b64 s[12:13], src_shared_base",
            "v_mov_b32 v3, s13",
            "v_mov_b32 v4, s8",
            "v_mov_b32 v5, s9",
            "ds_write_b32 v2, v9",
            "s_waitcnt lgkmcnt(0)",
            "flat_load_dword v6, v[2:3]",
            "flat_load_dwordx2 v[8:9], v[4:5]",
            "s_waitcnt vmcnt(0) lgkmcnt(0)",
        ],
        lds=256,
    )
    assert record["counted"]["lds"] == {"read_bytes": 256, "write_bytes": 256, "atomic_bytes": 0}
    assert record["counted"]["global"]["load_bytes"] == 512
    assert _classes(record)["vmem_load"] == 2


def _occupancy(vgprs: int, lds: int, threads: int) -> dict[str, Any]:
    kernel = Kernel("k", ["s_endpgm"], args=_ONE, lds=lds)
    source = kernel.text(rows.arch()).replace(".amdhsa_next_free_vgpr 256", f".amdhsa_next_free_vgpr {vgprs}")
    source = source.replace(".amdhsa_accum_offset 128", f".amdhsa_accum_offset {min(vgprs + 3 & ~3, 256)}")
    kernel.text = lambda _: source  # type: ignore[method-assign]
    module = hip.Module(assemble([kernel]))
    hip.lib().fmha_emu_profile_enable(1)
    try:
        module.launch("k", struct.pack("<Q", 0), (1, 1, 1), (threads, 1, 1))
    finally:
        hip.lib().fmha_emu_profile_enable(0)
        module.unload()
    (record,) = text("fmha_emu_profile")
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
    assert text("fmha_emu_profile") == [record]
    hip.lib().fmha_emu_profile_enable(1)
    hip.lib().fmha_emu_profile_enable(0)
    assert text("fmha_emu_profile") == []
