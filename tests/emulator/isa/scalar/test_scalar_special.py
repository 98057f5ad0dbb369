# SPDX-License-Identifier: MIT OR Apache-2.0
"""VGPR indexing, forks of a wave's lanes, and scalar instructions that only a debugger would miss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from ...support import rows
from ...support.asm import ALL_LANES, LANES, Case, Result, Suite
from ...support.findings import GWS, Kernels
from ...support.fp import Array

SUITE = Suite("scalar_special")
_U = np.uint32
RNG = np.random.default_rng(11)
VGPRS = {f"v{i}": RNG.integers(0, 1 << 32, LANES, dtype=_U) for i in range(2, 30)}
ON = "s_set_gpr_idx_on"
INDEX = ("s_set_gpr_idx_on", "s_set_gpr_idx_off")


def _indexed(
    label: str,
    lines: Sequence[str],
    want: Mapping[str, Array],
    s8: int,
    covers: Sequence[str] = INDEX,
    exec_mask: int = ALL_LANES,
) -> None:
    on = np.array([exec_mask >> i & 1 for i in range(LANES)], bool)

    def check(result: Result) -> None:
        for name, value in want.items():
            first = int(name.strip("v[").split(":")[0])
            old = np.stack([VGPRS[f"v{first + i}"] for i in range(np.atleast_2d(value).shape[0])])
            np.testing.assert_array_equal(result[name], np.where(on, np.atleast_2d(value), old), name)

    SUITE.add(
        label, lines, list(want), check, dict(VGPRS), {"s8": s8, "exec": exec_mask}, covers=list(covers)
    )


def _indexing() -> None:
    v = VGPRS
    off = "s_set_gpr_idx_off"
    move = "v_mov_b32 v10, v2"
    _indexed(
        "idx-src0",
        [f"{ON} s8, gpr_idx(SRC0)", move, off, "v_mov_b32 v11, v2"],
        {"v10": v["v5"], "v11": v["v2"]},
        3,
    )
    _indexed("idx-dst", [f"{ON} s8, gpr_idx(DST)", move, off], {"v10": v["v10"], "v17": v["v2"]}, 7)
    _indexed("idx-both", [f"{ON} s8, gpr_idx(SRC0,DST)", move, off], {"v10": v["v10"], "v12": v["v4"]}, 2)
    _indexed(
        "idx-exec",
        [f"{ON} s8, gpr_idx(SRC0)", move, off],
        {"v10": v["v5"]},
        3,
        exec_mask=0xF0F0_0000_1234_0001,
    )
    add = "v_add3_u32 v20, v2, v3, v4"
    for n, text in ((0, "SRC0"), (1, "SRC1"), (2, "SRC2")):
        moved = [v[f"v{2 + i + (5 if i == n else 0)}"] for i in range(3)]
        _indexed(
            f"idx-{text}",
            [f"{ON} s8, gpr_idx({text})", add, off],
            {"v20": sum(moved, np.zeros(LANES, _U))},
            5,
        )
    # Only the low byte of the index counts, and constants and SGPRs stay what they are.
    _indexed("idx-byte", [f"{ON} s8, gpr_idx(SRC0)", move, off], {"v10": v["v3"]}, 0xFFFFFF01)
    _indexed(
        "idx-constants",
        [f"{ON} s8, gpr_idx(SRC0,SRC1)", "v_add_u32 v10, 5, v2", "v_add_u32 v11, s8, v3", off],
        {"v10": v["v4"] + _U(5), "v11": v["v5"] + _U(2)},
        2,
    )
    wide = "v_lshlrev_b64 v[20:21], 4, v[2:3]"
    value = (v["v9"].astype(np.uint64) << np.uint64(32) | v["v8"]) << np.uint64(4)
    parts = np.stack([value & np.uint64(0xFFFFFFFF), value >> np.uint64(32)]).astype(_U)
    _indexed("idx-wide", [f"{ON} s8, gpr_idx(SRC1)", wide, off], {"v[20:21]": parts}, 6)
    _indexed(
        "idx-change",
        [
            f"{ON} s8, gpr_idx(SRC0)",
            "s_set_gpr_idx_idx 4",
            move,
            "s_set_gpr_idx_mode gpr_idx(DST)",
            move,
            off,
        ],
        {"v10": v["v6"], "v14": v["v2"]},
        1,
        [*INDEX, "s_set_gpr_idx_idx", "s_set_gpr_idx_mode"],
    )
    _indexed("idx-barrier", [f"{ON} s8, gpr_idx(SRC0)", "s_barrier", move, off], {"v10": v["v5"]}, 3)
    _indexed(
        "idx-none",
        [f"{ON} s8, gpr_idx()", move, "s_nop 1", off],
        {"v10": v["v2"]},
        9,
    )
    # A move of one lane: the register it writes, or reads. Its scalar operands stay what they are.
    lane = np.arange(LANES) == 9
    for mode, to in (("DST", "v15"), ("SRC0,SRC1,DST", "v15"), ("SRC0,SRC1", "v10")):
        want = {n: np.where(lane & (n == to), _U(5), v[n]) for n in ("v10", "v15")}
        _indexed(
            f"idx-writelane-{mode}", [f"{ON} s8, gpr_idx({mode})", "v_writelane_b32 v10, s8, 9", off], want, 5
        )
    for mode, read in (("SRC0", "v9"), ("SRC1,DST", "v2")):
        got = {"v10": np.full(LANES, v[read][9]), "v11": np.full(LANES, v[read][0])}
        _indexed(
            f"idx-readlane-{mode}",
            [
                f"{ON} s8, gpr_idx({mode})",
                "v_readlane_b32 s20, v2, 9",
                "v_readfirstlane_b32 s21, v2",
                off,
                "v_mov_b32 v10, s20",
                "v_mov_b32 v11, s21",
            ],
            got,
            7,
        )
    # M0 is what carries it: index and operands go into it, the other bits stay.
    SUITE.add(
        "idx-m0",
        [f"{ON} s8, gpr_idx(SRC1,DST)", off, "s_mov_b32 s20, m0"],
        ["s20"],
        lambda r: np.testing.assert_array_equal(r["s20"], 0xABCDA07B),
        {},
        {"s8": 0x7B, "m0": 0xABCDF0FF},
        covers=list(INDEX),
    )


# The paths put aside lie in s[20:23]: depth 5. s24 collects 1 for the path that fails, 2 for the other.
_DEPTH = "hwreg(HW_REG_MODE, 29, 3)"
_PATHS = [
    "v_mov_b32 v10, 1",  # those that fail
    "s_lshl_b32 s24, s24, 4",
    "s_or_b32 s24, s24, 1",
    "s_branch 3",
    "v_mov_b32 v10, 2",  # those that pass
    "s_lshl_b32 s24, s24, 4",
    "s_or_b32 s24, s24, 2",
    "s_cbranch_join s25",
    "s_mov_b64 exec, s[30:31]",
    f"s_getreg_b32 s26, {_DEPTH}",
    f"s_setreg_imm32_b32 {_DEPTH}, 0",
]
_HEAD = [
    f"s_setreg_imm32_b32 {_DEPTH}, 5",
    "s_mov_b32 s25, 5",
    "s_mov_b32 s24, 0",
    "s_mov_b64 s[30:31], exec",
]
_FORKS = {
    "s_cbranch_i_fork": ["s_cbranch_i_fork s[8:9], 4"],
    "s_cbranch_g_fork": [
        "s_getpc_b64 s[12:13]",
        "s_add_u32 s12, s12, 28",
        "s_addc_u32 s13, s13, 0",
        "s_cbranch_g_fork s[8:9], s[12:13]",
    ],
}


def _forks() -> None:
    part = 0x0000_FFFF_FFFF_0000
    for name, fork in _FORKS.items():
        for mask, active in (
            (0x0000_0001_0001_0000, ALL_LANES),
            (0xFFFF_FFFF_FFFF_FF00, ALL_LANES),
            (0x00FF_00FF_00FF_00FF, ALL_LANES),
            (ALL_LANES, part),
            (0, part),
            (0x1111_1111_1111_1111, part),
        ):
            passing = (mask & active).bit_count()
            failing = active.bit_count() - passing
            order = 0x12 if failing < passing else 0x21
            order = 2 if not failing else 1 if not passing else order
            lanes = [(2 if mask >> i & 1 else 1) if active >> i & 1 else 7 for i in range(LANES)]

            def check(result: Result, order: int = order, lanes: list[int] = lanes) -> None:
                np.testing.assert_array_equal(result["v10"][0], lanes)
                assert result.scalar("s24") == [order]
                assert result.scalar("s26") == [5]

            SUITE.add(
                f"{name}-{mask:x}-{active:x}",
                [*_HEAD, *fork, *_PATHS],
                ["v10", "s24", "s26"],
                check,
                {"v10": np.full(LANES, 7, _U)},
                {"s[8:9]": mask, "exec": active},
                covers=[name, "s_cbranch_join"],
            )


def _nothing() -> None:
    """No debugger has set its bits; nobody waits for the interrupt."""
    for line, name in (
        ("s_cbranch_cdbgsys 1", "s_cbranch_cdbgsys"),
        ("s_cbranch_cdbguser 1", "s_cbranch_cdbguser"),
        ("s_cbranch_cdbgsys_or_user 1", "s_cbranch_cdbgsys_or_user"),
        ("s_cbranch_cdbgsys_and_user 1", "s_cbranch_cdbgsys_and_user"),
        ("s_setkill 0", "s_setkill"),
        ("s_sendmsg sendmsg(MSG_INTERRUPT)", "s_sendmsg"),
    ):
        SUITE.add(
            name,
            [line, "s_mov_b32 s10, 2"],
            ["s10"],
            lambda r: np.testing.assert_array_equal(r["s10"], 2),
            {},
            {"s10": 5},
            covers=[name],
        )


_indexing()
_forks()
_nothing()


@SUITE.parametrize()
def test_scalar_special(case: Case) -> None:
    """Registers after it."""
    SUITE.check(case)


# Rows that exist so that what they refuse has a name: the instruction, and the reason the launch stops for.
_NO_SCRATCH = "the manuals leave its addressing open"
_NO_DISCARD = "leaves undefined data behind"
_NO_TRAP = "only a trap handler can return"
_NO_END = "only a saved wave or a pixel shader"
REFUSED = {
    "s_scratch_load_dword": ("s20, s[8:9], 0x0", _NO_SCRATCH),
    "s_scratch_load_dwordx2": ("s[20:21], s[8:9], 0x0", _NO_SCRATCH),
    "s_scratch_load_dwordx4": ("s[20:23], s[8:9], 0x0", _NO_SCRATCH),
    "s_scratch_store_dword": ("s20, s[8:9], 0x0", _NO_SCRATCH),
    "s_scratch_store_dwordx2": ("s[20:21], s[8:9], 0x0", _NO_SCRATCH),
    "s_scratch_store_dwordx4": ("s[20:23], s[8:9], 0x0", _NO_SCRATCH),
    "s_dcache_discard": ("s[8:9], 0x0", _NO_DISCARD),
    "s_dcache_discard_x2": ("s[8:9], 0x0", _NO_DISCARD),
    "s_setvskip": ("s20, 0", "VSKIP mode"),
    "s_rfe_b64": ("s[20:21]", _NO_TRAP),
    "s_rfe_restore_b64": ("s[20:21], s22", _NO_TRAP),
    "s_endpgm_saved": ("", _NO_END),
    "s_endpgm_ordered_ps_done": ("", _NO_END),
    "v_screen_partition_4se_b32": ("v2, v3", "a graphics instruction"),
    "buffer_store_lds_dword": ("s[4:7], 0 lds", "a store from LDS to memory"),
    **GWS,
}
# Forms of instructions that otherwise run are refused too.
_STOPS = {
    "halt": (["s_sendmsghalt sendmsg(MSG_INTERRUPT)"], "halted itself with message 1"),
    "message": (["s_sendmsg sendmsg(MSG_GET_DOORBELL)"], "message 10 has no receiver"),
    "graphics": (["s_sendmsg sendmsg(MSG_GS_DONE, GS_OP_NOP)"], "has no receiver"),
    "kill": (["s_setkill 1"], "killed itself"),
    "gds": ([".long 0xd8010000, 0x00000201"], "no global data share"),
    "idx_far": (
        [f"{ON} 200, gpr_idx(SRC0)", "v_mov_b32 v2, v100", "s_set_gpr_idx_off"],
        "makes v300 of v100",
    ),
    "idx_far_wide": ([f"{ON} 155, gpr_idx(SRC0)", "v_mov_b32 v2, v101", "s_set_gpr_idx_off"], "beyond v255"),
    "idx_dpp": (
        [f"{ON} 1, gpr_idx(SRC0)", "v_mov_b32_dpp v2, v3 row_shl:1", "s_set_gpr_idx_off"],
        "does not index the VGPRs",
    ),
    "idx_swap": ([f"{ON} 1, gpr_idx(SRC0)", "v_swap_b32 v2, v3", "s_set_gpr_idx_off"], "does not index"),
    "idx_acc_mov": ([f"{ON} 1, gpr_idx(SRC0)", "v_accvgpr_mov_b32 a2, a3"], "does not index"),
    "idx_acc_read": ([f"{ON} 1, gpr_idx(DST)", "v_accvgpr_read_b32 v2, a3"], "does not index"),
    "idx_never_off": ([f"{ON} 1, gpr_idx(SRC0)", "s_branch -1"], "FMHA_EMU_MAX_INSTRUCTIONS"),
}
_REFUSED_HERE = [name for name in REFUSED if name in rows.names()]
KERNELS = Kernels(
    {f"no_{n}": [f"{n} {REFUSED[n][0]}".strip()] for n in _REFUSED_HERE}
    | {f"stop_{n}": b for n, (b, _) in _STOPS.items()}
)


@pytest.mark.parametrize("name", _REFUSED_HERE)
def test_refused(name: str) -> None:
    """Refused by name, with the reason."""
    text = KERNELS.finding(f"no_{name}")
    assert name in text
    assert REFUSED[name][1] in text


@pytest.mark.parametrize("name", _STOPS)
def test_stops(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some forms of an instruction stop the launch."""
    monkeypatch.setenv("FMHA_EMU_MAX_INSTRUCTIONS", "5000")
    assert _STOPS[name][1] in KERNELS.finding(f"stop_{name}")


def test_refused_are_all() -> None:
    """Every row that refuses is in the list, and nothing else."""
    for cpu in ("gfx90a", "gfx942"):
        refused = {r.mnemonic for r in rows.of(cpu) if "refused" in r.flags}
        assert refused == set(REFUSED)
    refused = {r.mnemonic for r in rows.of("gfx950") if "refused" in r.flags}
    scales = {"v_mfma_ld_scale_b32"}  # alone: test_mfma_small
    assert refused == set(REFUSED) - {"buffer_store_lds_dword"} | scales
