# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scalar control: branches, MODE, and what changes nothing a program can see."""

from __future__ import annotations

from ...support.asm import LANES, MODE_DEFAULT, Case, Result, Suite
from ...support.ops.scalar_ops import check
from ...support.spelling import exists

SUITE = Suite("scalar_control")


def _branches() -> None:
    for name, sin, jumps in (
        ("s_branch", {}, True),
        ("s_cbranch_scc0", {"scc": 0}, True),
        ("s_cbranch_scc0", {"scc": 1}, False),
        ("s_cbranch_scc1", {"scc": 1}, True),
        ("s_cbranch_scc1", {"scc": 0}, False),
        ("s_cbranch_vccz", {"vcc": 0}, True),
        ("s_cbranch_vccz", {"vcc": 1 << LANES - 24}, False),
        ("s_cbranch_vccnz", {"vcc": 1 << LANES - 24}, True),
        ("s_cbranch_vccnz", {"vcc": 0}, False),
        ("s_cbranch_execz", {"exec": 0}, True),
        ("s_cbranch_execz", {"exec": 1 << LANES - 1}, False),
        ("s_cbranch_execnz", {"exec": 1 << LANES - 1}, True),
        ("s_cbranch_execnz", {"exec": 0}, False),
    ):
        # Over one instruction, by a number: labels would clash between kernels.
        SUITE.add(
            f"{name}-{sin}",
            [f"{name} 1", "s_mov_b32 s10, 2"],
            ["s10"],
            check("s10", [5 if jumps else 2], int(sin.get("scc", 0))),
            {},
            {"s10": 5} | sin,
        )
    SUITE.add(
        "s_cbranch-back",
        ["s_add_u32 s10, s10, 1", "s_cmp_lt_u32 s10, 10", "s_cbranch_scc1 -3"],
        ["s10"],
        check("s10", [10], 0),
        {},
        {"s10": 0},
        covers=["s_cbranch_scc1"],
    )
    # s_getpc gives the address after itself; from there over the next three dwords.
    SUITE.add(
        "s_getpc_b64",
        ["s_getpc_b64 s[12:13]", "s_getpc_b64 s[14:15]"],
        ["s[12:13]", "s[14:15]"],
        lambda r: _differ(r, 4),
    )
    SUITE.add(
        "s_setpc_b64",
        [
            "s_getpc_b64 s[12:13]",
            "s_add_u32 s12, s12, 16",
            "s_addc_u32 s13, s13, 0",
            "s_setpc_b64 s[12:13]",
            "s_mov_b32 s10, 2",
        ],
        ["s10"],
        check("s10", [5], 0),
        {},
        {"s10": 5},
        covers=["s_setpc_b64"],
    )
    SUITE.add(
        "s_swappc_b64",
        [
            "s_getpc_b64 s[12:13]",
            "s_add_u32 s12, s12, 16",
            "s_addc_u32 s13, s13, 0",
            "s_swappc_b64 s[14:15], s[12:13]",
            "s_mov_b32 s10, 2",
            "s_sub_u32 s16, s12, s14",
        ],
        ["s10", "s16"],
        lambda r: _expect(r, {"s10": 5, "s16": 4}),
        {},
        {"s10": 5},
        covers=["s_swappc_b64"],
    )
    SUITE.add(
        "s_call_b64",
        ["s_getpc_b64 s[12:13]", "s_call_b64 s[14:15], 1", "s_mov_b32 s10, 2", "s_sub_u32 s16, s14, s12"],
        ["s10", "s16"],
        lambda r: _expect(r, {"s10": 5, "s16": 4}),
        {},
        {"s10": 5},
        covers=["s_call_b64"],
    )


def _differ(result: Result, by: int) -> None:
    assert result.scalar("s[14:15]")[0] - result.scalar("s[12:13]")[0] == by


def _expect(result: Result, values: dict[str, int]) -> None:
    for name, value in values.items():
        assert result.scalar(name) == [value], name


def _mode() -> None:
    """Rounding and denormals of float32, and back: as CK does around a division."""
    one_third = ["v_mov_b32 v2, 1.0", "v_mov_b32 v3, 0x33800001", "v_add_f32 v4, v2, v3"]
    for mode, want in ((0, 0x3F800001), (1, 0x3F800001), (2, 0x3F800000), (3, 0x3F800000)):
        SUITE.add(
            f"s_setreg_imm32_b32-round{mode}",
            [f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), {mode}", "s_nop 4", *one_third],
            ["v4"],
            lambda r, want=want: _vector(r, "v4", want),
        )
    for bits, want in ((3, 1), (0, 0), (1, 0), (2, 0)):
        # The smallest denormal times 1: kept only if inputs and outputs are.
        SUITE.add(
            f"s_setreg_imm32_b32-denorm{bits}",
            [
                f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), {bits}",
                "s_nop 4",
                "v_mov_b32 v2, 1",
                "v_mul_f32 v4, 1.0, v2",
            ],
            ["v4"],
            lambda r, want=want: _vector(r, "v4", want),
        )
    # Output only: the smallest normal halved is a denormal.
    for bits, want in ((3, 0x400000), (2, 0x400000), (1, 0), (0, 0)):
        SUITE.add(
            f"s_setreg-output{bits}",
            [
                f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), {bits}",
                "s_nop 4",
                "v_mov_b32 v2, 0x800000",
                "v_mul_f32 v4, 0.5, v2",
            ],
            ["v4"],
            lambda r, want=want: _vector(r, "v4", want),
            covers=["s_setreg_imm32_b32"],
        )
    # float16 and float64 have bits of their own.
    for bits, want in ((3, 1), (0, 0)):
        SUITE.add(
            f"s_setreg-f16-{bits}",
            [
                f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, 6, 2), {bits}",
                "s_nop 4",
                "v_mov_b32 v2, 1",
                "v_mul_f16 v4, 1.0, v2",
            ],
            ["v4"],
            lambda r, want=want: _vector(r, "v4", want, 0xFFFF),
            covers=["s_setreg_imm32_b32"],
        )
    for mode, want in ((0, 0x3C00), (1, 0x3C01), (2, 0x3C00), (3, 0x3C00)):
        SUITE.add(
            f"s_setreg-f16-round{mode}",
            [
                f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, 2, 2), {mode}",
                "s_nop 4",
                "v_mov_b32 v2, 0x3c00",
                "v_add_f16 v4, 0x1000, v2",
            ],
            ["v4"],
            lambda r, want=want: _vector(r, "v4", want, 0xFFFF),
            covers=["s_setreg_imm32_b32"],
        )
    add_one, denormal = ["v_mov_b32 v2, 1.0", "v_add_f32 v4, 0x33800001, v2"], ["v_mul_f32 v4, 1.0, v3"]
    if exists("s_round_mode"):
        _mode_by_name(add_one, denormal)
    lines = [
        "s_setreg_b32 hwreg(HW_REG_MODE, 4, 4), s4",
        "s_nop 4",
        "s_getreg_b32 s10, hwreg(HW_REG_MODE, 0, 10)",
        "s_getreg_b32 s11, hwreg(HW_REG_MODE, 4, 4)",
    ]
    SUITE.add(
        "s_setreg_b32",
        lines,
        ["s10", "s11"],
        lambda r: _expect(r, {"s10": MODE_DEFAULT & ~0xF0 | 0x50, "s11": 5}),
        {},
        {"s4": 0xFFFFFF05},
        covers=["s_setreg_b32", "s_getreg_b32"],
    )
    SUITE.add(
        "s_setreg-back",
        [
            "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0",
            "v_mov_b32 v2, 1",
            "v_mul_f32 v4, 1.0, v2",
            "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 3",
            "s_nop 4",
            "v_mul_f32 v5, 1.0, v2",
        ],
        ["v4", "v5"],
        lambda r: (_vector(r, "v4", 0), _vector(r, "v5", 1)),
        covers=["s_setreg_imm32_b32"],
    )


def _mode_by_name(add_one: list[str], denormal: list[str]) -> None:
    """RDNA's own instructions for the fields; the first of the two is f32's."""
    for value, want in ((0x3, 0x3F800000), (0x1, 0x3F800001), (0xC, 0x3F800001)):
        SUITE.add(
            f"s_round_mode-{value}",
            [f"s_round_mode 0x{value:x}", *add_one],
            ["v4"],
            lambda r, want=want: _vector(r, "v4", want),
        )
    for value, want in ((0xF, 1), (0x3, 1), (0xC, 0), (0x1, 0)):
        SUITE.add(
            f"s_denorm_mode-{value}",
            [f"s_denorm_mode {value}", "v_mov_b32 v3, 1", *denormal],
            ["v4"],
            lambda r, want=want: _vector(r, "v4", want),
        )


def _vector(result: Result, name: str, want: int, bits: int = 0xFFFFFFFF) -> None:
    assert {hex(int(v) & bits) for v in result[name][0]} == {hex(want)}


_RDNA_QUIET = (
    "s_ttracedata_imm 0x3",
    "s_prefetch_inst s[12:13], 0x10, s14, 5",
    "s_prefetch_inst_pc_rel 0x10, null, 31",
    "s_prefetch_data s[12:13], -0x10, null, 0",
    "s_buffer_prefetch_data s[12:15], 0x10, s11, 5",
    "s_prefetch_data_pc_rel 0x10, null, 5",
    "s_clause 0x3",
    "s_delay_alu instid0(VALU_DEP_1) | instskip(NEXT) | instid1(VALU_DEP_2)",
    "s_set_inst_prefetch_distance 0x1",
    "s_waitcnt_depctr 0xffe3",
    "s_wait_idle",
    "s_wait_event 0x1",
    "s_waitcnt_vscnt null, 0x0",
    "s_waitcnt_vmcnt null, 0x0",
    "s_waitcnt_expcnt null, 0x0",
    "s_waitcnt_lgkmcnt null, 0x0",
    "s_wait_alu 0xfffd",
    "s_wait_loadcnt 0x0",
    "s_wait_storecnt 0x0",
    "s_wait_samplecnt 0x0",
    "s_wait_bvhcnt 0x0",
    "s_wait_expcnt 0x0",
    "s_wait_dscnt 0x0",
    "s_wait_kmcnt 0x0",
    "s_wait_loadcnt_dscnt 0x0",
    "s_wait_storecnt_dscnt 0x0",
    "s_singleuse_vdst 0x3",
    "s_sleep_var s10",
    "s_gl1_inv",
    "buffer_gl0_inv",
    "buffer_gl1_inv",
    "global_inv scope:SCOPE_DEV",
    "global_wb scope:SCOPE_SYS",
    "global_wbinv scope:SCOPE_SE",
)


def _quiet() -> None:
    """Instructions that change nothing a program can see."""
    for line in (
        "s_nop 3",
        "s_waitcnt vmcnt(0)",
        "s_sleep 1",
        "s_setprio 3",
        "s_barrier",
        "s_icache_inv",
        "s_dcache_inv",
        "s_dcache_wb",
        "s_dcache_inv_vol",
        "s_dcache_wb_vol",
        "s_incperflevel 1",
        "s_decperflevel 1",
        "s_ttracedata",
        "s_sethalt 0",
        "s_wakeup",
        "buffer_wbl2",
        "buffer_invl2",
        "buffer_inv",
        "buffer_wbinvl1",
        "buffer_wbinvl1_vol",
        "s_setkill 0",
        *_RDNA_QUIET,
    ):
        name = line.split()[0]
        if exists(name) and name != "s_setkill":
            SUITE.add(
                name,
                [line],
                ["s10", "v2"],
                lambda r: (_expect(r, {"s10": 5}), _vector(r, "v2", 9)),
                {"v2": 9},
                {"s10": 5, "scc": 1},
            )
    SUITE.add(
        "s_memtime",
        [
            "s_memtime s[12:13]",
            "s_waitcnt lgkmcnt(0)",
            "s_nop 9",
            "s_memtime s[14:15]",
            "s_waitcnt lgkmcnt(0)",
        ],
        ["s[12:13]", "s[14:15]"],
        lambda r: _later(r),
    )
    if exists("s_memrealtime"):
        SUITE.add(
            "s_memrealtime",
            [
                "s_memrealtime s[12:13]",
                "s_waitcnt lgkmcnt(0)",
                "s_nop 9",
                "s_memrealtime s[14:15]",
                "s_waitcnt lgkmcnt(0)",
            ],
            ["s[12:13]", "s[14:15]"],
            lambda r: _later(r, True),
        )


def _later(result: Result, equal: bool = False) -> None:
    a, b = result.scalar("s[12:13]")[0], result.scalar("s[14:15]")[0]
    assert b > a or (equal and b == a), (a, b)


_branches()
_mode()
_quiet()


@SUITE.parametrize()
def test_scalar_control(case: Case) -> None:
    """The next instruction, MODE and what is left alone are right."""
    SUITE.check(case)
