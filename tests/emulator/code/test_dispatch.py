# SPDX-License-Identifier: MIT OR Apache-2.0
"""The state in which a kernel starts, and how the waves of a workgroup run together."""

from __future__ import annotations

import ctypes as c
import struct
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from ..support import hip
from ..support.asm import Kernel, assemble

_LANE = ["v_mbcnt_lo_u32_b32 v9, -1, 0", "v_mbcnt_hi_u32_b32 v9, -1, v9"]
_WAIT = "s_waitcnt vmcnt(0) lgkmcnt(0)"
_ONE = ((0, 8, "global_buffer"),)
_HIDDEN = (
    (0, 8, "global_buffer"),
    (8, 4, "by_value"),
    *((16 + 4 * i, 4, f"hidden_block_count_{d}") for i, d in enumerate("xyz")),
    *((28 + 2 * i, 2, f"hidden_group_size_{d}") for i, d in enumerate("xyz")),
    *((34 + 2 * i, 2, f"hidden_remainder_{d}") for i, d in enumerate("xyz")),
    *((56 + 8 * i, 8, f"hidden_global_offset_{d}") for i, d in enumerate("xyz")),
    (80, 2, "hidden_grid_dims"),
    (136, 4, "hidden_dynamic_lds_size"),
    (208, 4, "hidden_private_base"),
    (212, 4, "hidden_shared_base"),
    (216, 8, "hidden_queue_ptr"),
    (264, 8, "hidden_none"),
)


def _store_ids() -> list[str]:
    return [
        "s_load_dwordx2 s[8:9], s[0:1], 0x0",
        "s_mul_i32 s10, s4, 2",
        "s_add_u32 s10, s10, s3",
        "s_mul_i32 s10, s10, 3",
        "s_add_u32 s10, s10, s2",
        "s_lshl_b32 s10, s10, 6",
        *_LANE,
        "v_add_u32 v9, s10, v9",
        "v_lshlrev_b32 v9, 4, v9",
        "v_mov_b32 v1, s2",
        "v_mov_b32 v2, s3",
        "v_mov_b32 v3, s4",
        "v_mov_b32 v4, v0",
        "v_mov_b32 v5, s2",
        "v_mov_b32 v6, s3",
        "v_mov_b32 v7, s4",
        _WAIT,
        "global_store_dwordx4 v9, v[4:7], s[8:9]",
        "s_endpgm",
    ]


def _packet() -> list[str]:
    """s[0:1] the dispatch packet, s[2:3] the arguments."""
    return [
        "s_load_dwordx2 s[8:9], s[2:3], 0x0",
        *_LANE,
        "v_lshlrev_b32 v9, 2, v9",
        "v_cmp_gt_u32 vcc, 64, v9",
        "s_mov_b64 exec, vcc",
        "global_load_dword v1, v9, s[0:1]",
        "v_mov_b32 v2, s2",
        "v_mov_b32 v3, s3",
        _WAIT,
        "global_store_dword v9, v1, s[8:9]",
        "s_mov_b64 exec, 1",
        "global_store_dwordx2 v9, v[2:3], s[8:9] offset:64",
        "s_endpgm",
    ]


def _arguments() -> list[str]:
    return [
        "s_load_dwordx2 s[8:9], s[0:1], 0x0",
        *_LANE,
        "v_lshlrev_b32 v9, 2, v9",
        "global_load_dword v1, v9, s[0:1]",
        _WAIT,
        "global_store_dword v9, v1, s[8:9]",
        "s_endpgm",
    ]


def _barrier() -> list[str]:
    """Four waves pass a number round through LDS, ten times."""
    return [
        "s_load_dwordx2 s[8:9], s[0:1], 0x0",
        "v_and_b32 v1, 0x3ff, v0",
        "v_lshlrev_b32 v2, 2, v1",
        "v_add_u32 v3, 64, v1",
        "v_and_b32 v3, 0xff, v3",
        "v_lshlrev_b32 v3, 2, v3",
        "v_mov_b32 v4, v1",
        "s_mov_b32 s10, 0",
        # loop:
        "ds_write_b32 v2, v4",
        _WAIT,
        "s_barrier",
        "ds_read_b32 v4, v3",
        _WAIT,
        "v_add_u32 v4, 1, v4",
        "s_barrier",
        "s_add_u32 s10, s10, 1",
        "s_cmp_lt_u32 s10, 10",
        "s_cbranch_scc1 -12",
        "global_store_dword v2, v4, s[8:9]",
        "s_endpgm",
    ]


def _early_end() -> list[str]:
    """Waves 1 to 3 end before the barrier that wave 0 waits at."""
    return [
        "s_load_dwordx2 s[8:9], s[0:1], 0x0",
        "v_and_b32 v1, 0x3ff, v0",
        "s_nop 0",
        "v_readfirstlane_b32 s10, v1",
        "s_cmp_eq_u32 s10, 0",
        "s_cbranch_scc1 1",
        "s_endpgm",
        "s_barrier",
        "v_lshlrev_b32 v2, 2, v1",
        "v_mov_b32 v4, 7",
        _WAIT,
        "global_store_dword v2, v4, s[8:9]",
        "s_endpgm",
    ]


def _partial() -> list[str]:
    """EXEC at the start: written by each wave's lane 0 to the place of the wave."""
    return [
        "s_load_dwordx2 s[8:9], s[0:1], 0x0",
        "v_and_b32 v1, 0x3ff, v0",
        "s_nop 0",
        "v_readfirstlane_b32 s10, v1",
        "s_mov_b64 s[12:13], exec",
        "s_mov_b64 exec, 1",
        "s_lshr_b32 s10, s10, 3",
        "v_mov_b32 v2, s10",
        "v_mov_b32 v4, s12",
        "v_mov_b32 v5, s13",
        _WAIT,
        "global_store_dwordx2 v2, v[4:5], s[8:9]",
        "s_endpgm",
    ]


def _count() -> list[str]:
    return [
        "s_load_dwordx2 s[8:9], s[0:1], 0x0",
        "v_mov_b32 v1, 0",
        "v_mov_b32 v2, 1",
        _WAIT,
        "global_atomic_add v1, v2, s[8:9]",
        _WAIT,
        "s_endpgm",
    ]


def _scratch() -> list[str]:
    """Each lane keeps its own number in private memory across a barrier."""
    return [
        "s_load_dwordx2 s[8:9], s[0:1], 0x0",
        "v_and_b32 v1, 0x3ff, v0",
        "v_lshlrev_b32 v2, 2, v1",
        "v_mov_b32 v5, 4",
        "scratch_store_dword v5, v1, off",
        _WAIT,
        "s_barrier",
        "scratch_load_dword v4, v5, off",
        _WAIT,
        "global_store_dword v2, v4, s[8:9]",
        "s_endpgm",
    ]


def _dynamic_lds() -> list[str]:
    return [
        "s_load_dwordx2 s[8:9], s[0:1], 0x0",
        *_LANE,
        "v_lshlrev_b32 v2, 2, v9",
        "ds_write_b32 v2, v9 offset:768",
        _WAIT,
        "ds_read_b32 v4, v2 offset:768",
        _WAIT,
        "global_store_dword v2, v4, s[8:9]",
        "s_endpgm",
    ]


def _parameters() -> list[str]:
    """Arguments of three sizes: u32 at 8, f64 at 16, pointer at 0."""
    return [
        "s_load_dwordx2 s[8:9], s[0:1], 0x0",
        "s_load_dword s10, s[0:1], 0x8",
        "s_load_dwordx2 s[12:13], s[0:1], 0x10",
        _WAIT,
        "v_mov_b32 v1, 0",
        "v_mov_b32 v2, s10",
        "v_mov_b32 v3, s12",
        "v_mov_b32 v4, s13",
        "global_store_dword v1, v2, s[8:9]",
        "v_mov_b32 v2, v3",
        "v_mov_b32 v3, v4",
        "global_store_dwordx2 v1, v[2:3], s[8:9] offset:8",
        "s_endpgm",
    ]


@cache
def module() -> hip.Module:
    """All the kernels of this file."""
    return hip.Module(
        assemble(
            [
                Kernel("ids", _store_ids(), args=_ONE),
                Kernel("packet", _packet(), args=_ONE, extra=".amdhsa_user_sgpr_dispatch_ptr 1", lds=512),
                Kernel("arguments", _arguments(), args=_HIDDEN),
                Kernel("barrier", _barrier(), lds=1024, args=_ONE),
                Kernel("early_end", _early_end(), args=_ONE),
                Kernel("partial", _partial(), args=_ONE),
                Kernel("count", _count(), args=_ONE),
                Kernel("scratch", _scratch(), args=_ONE, scratch=64),
                Kernel("dynamic_lds", _dynamic_lds(), lds=256, args=_ONE),
                Kernel(
                    "parameters",
                    _parameters(),
                    args=((0, 8, "global_buffer"), (8, 4, "by_value"), (16, 8, "by_value")),
                ),
            ]
        )
    )


@pytest.fixture
def out() -> Iterator[hip.Buffer]:
    """Room for results, zeros."""
    buffer = hip.Buffer.of(np.zeros(16384, np.uint32))
    yield buffer
    buffer.free()


def test_ids_and_packed_v0(out: hip.Buffer) -> None:
    """v0 holds x in bits 9:0, y in 19:10, z in 29:20; s2..s4 the workgroup's place."""
    module().launch("ids", struct.pack("<Q", out.address), (3, 2, 2), (8, 4, 2))
    got = out.read()[: 12 * 64 * 4].reshape(12, 64, 4)
    for group in range(12):
        assert (got[group, :, 1:] == [group % 3, group // 3 % 2, group // 6]).all()
        lane = np.arange(64)
        np.testing.assert_array_equal(got[group, :, 0], lane % 8 | lane // 8 % 4 << 10 | lane // 32 << 20)


def test_dispatch_packet(out: hip.Buffer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The AQL packet is real: workgroup size, grid in work-items, LDS bytes, the argument block's address."""
    monkeypatch.setenv("FMHA_EMU_CHECKS", "-global-race")  # all workgroups store the same
    module().launch("packet", struct.pack("<Q", out.address), (3, 2, 1), (64, 2, 1), dynamic_lds=256)
    raw = out.read(np.uint8)[:72].tobytes()
    setup, wx, wy, wz, _, gx, gy, gz, private, group = struct.unpack_from("<HHHHHIIIII", raw, 2)
    assert setup in (2, 3)
    assert (wx, wy, wz, gx, gy, gz, private, group) == (64, 2, 1, 192, 4, 1, 0, 768)
    assert struct.unpack_from("<Q", raw, 40) == struct.unpack_from("<Q", raw, 64)


def test_hidden_arguments(out: hip.Buffer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code object v5's hidden arguments, at the offsets the metadata gives."""
    monkeypatch.setenv("FMHA_EMU_CHECKS", "-global-race")  # all workgroups store the same
    module().launch(
        "arguments", struct.pack("<QI", out.address, 0xCAFE), (5, 3, 2), (64, 1, 1), dynamic_lds=64
    )
    raw = out.read(np.uint8)[:256].tobytes()
    assert struct.unpack_from("<QI", raw) == (out.address, 0xCAFE)
    assert struct.unpack_from("<III", raw, 16) == (5, 3, 2)
    assert struct.unpack_from("<HHHHHH", raw, 28) == (64, 1, 1, 0, 0, 0)
    assert struct.unpack_from("<QQQ", raw, 56) == (0, 0, 0)
    assert struct.unpack_from("<H", raw, 80) == (3,)
    assert struct.unpack_from("<I", raw, 136) == (64,)
    private, shared = struct.unpack_from("<II", raw, 208)
    assert private
    assert shared
    assert private != shared


def test_barrier(out: hip.Buffer) -> None:
    """Numbers go round the four waves: ten steps of 64, one added at each."""
    for _ in range(3):
        module().launch("barrier", struct.pack("<Q", out.address), (1, 1, 1), (256, 1, 1))
        np.testing.assert_array_equal(out.read()[:256], (np.arange(256) + 640) % 256 + 10)


def test_waves_that_ended_do_not_hold_a_barrier(out: hip.Buffer) -> None:
    """As on hardware, a barrier waits for the waves that still run."""
    module().launch("early_end", struct.pack("<Q", out.address), (1, 1, 1), (256, 1, 1))
    assert (out.read()[:64] == 7).all()


@pytest.mark.parametrize("threads", [1, 37, 64, 100, 193])
def test_partial_waves(out: hip.Buffer, threads: int) -> None:
    """Only the work-items there are run: EXEC at the start says which."""
    module().launch("partial", struct.pack("<Q", out.address), (1, 1, 1), (threads, 1, 1))
    got = out.read(np.uint64)
    waves = -(-threads // 64)
    expected = [(1 << min(64, threads - 64 * w)) - 1 for w in range(waves)]
    assert [int(v) for v in got[:waves]] == expected


def test_all_workgroups_run(out: hip.Buffer) -> None:
    """Every work-item of a large grid, whichever core runs it; atomics lose nothing."""
    module().launch("count", struct.pack("<Q", out.address), (37, 11, 5), (128, 2, 1))
    assert out.read()[0] == 37 * 11 * 5 * 256


def test_scratch_is_private(out: hip.Buffer) -> None:
    """Four waves write the same private address; each lane reads its own back."""
    module().launch("scratch", struct.pack("<Q", out.address), (1, 1, 1), (256, 1, 1))
    np.testing.assert_array_equal(out.read()[:256], np.arange(256))


def test_dynamic_lds(out: hip.Buffer) -> None:
    """LDS given at launch is added to the kernel's own; without it the access is out of range."""
    module().launch("dynamic_lds", struct.pack("<Q", out.address), dynamic_lds=768)
    np.testing.assert_array_equal(out.read()[:64], np.arange(64))
    with pytest.raises(hip.HipError, match=r"(?i)lds"):
        module().launch("dynamic_lds", struct.pack("<Q", out.address))


def test_both_forms_of_arguments(out: hip.Buffer) -> None:
    """`extra` takes the block as it is; `kernelParams` is laid out by the metadata."""
    want = struct.unpack("<II", struct.pack("<d", 2.75))
    module().launch("parameters", struct.pack("<QIxxxxd", out.address, 77, 2.75))
    assert tuple(out.read()[[0, 2, 3]]) == (77, *want)
    out.write(np.zeros(8, np.uint32))
    module().launch_params("parameters", [c.c_uint64(out.address), c.c_uint32(78), c.c_double(2.75)])
    assert tuple(out.read()[[0, 2, 3]]) == (78, *want)
