# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scalar instructions: values, SCC, branches, MODE."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import rows
from .asm import ALL_LANES, MODE_DEFAULT, Case, Result, Suite
from .scalar_ops import COMPARE, M32, M64, ONE, ORDER, TWO, V32, V64, Fn, add_i32, s32

SUITE = Suite("scalar")


def _reg(bits: int, index: int) -> str:
    return f"s{index}" if bits == 32 else f"s[{index}:{index + 1}]"


def _cross(bits: Sequence[int]) -> list[list[int]]:
    sets = [V32 if b == 32 else V64 for b in bits]
    out: list[list[int]] = [[]]
    for s in sets:
        out = [[*row, v] for row in out for v in s]
    return [list(column) for column in zip(*out, strict=True)]


def _check(dst: str | None, want: list[int] | None, scc: list[int] | int) -> Callable[[Result], None]:
    def check(result: Result) -> None:
        if dst and want is not None:
            assert [hex(v) for v in result.scalar(dst)] == [hex(v) for v in want]
        assert result.scc == (scc if isinstance(scc, list) else [scc] * len(result.scc))

    return check


def _table() -> None:
    for name, (dst_bits, src_bits, one) in ONE.items():
        if name in rows.names():
            _simple(name, dst_bits, [src_bits], one)
    for name, (dst_bits, a_bits, b_bits, two) in TWO.items():
        if name in rows.names():
            _simple(name, dst_bits, [a_bits, b_bits], two)
    for name, (a_bits, b_bits, fn) in COMPARE.items():
        if name in rows.names():
            a, b = _cross([a_bits, b_bits])
            SUITE.add(
                name,
                [f"{name} {_reg(a_bits, 4)}, {_reg(b_bits, 6)}"],
                [],
                _check(None, None, [int(fn(x, y)) for x, y in zip(a, b, strict=True)]),
                {},
                {_reg(a_bits, 4): a, _reg(b_bits, 6): b, "scc": 1},
            )


def _simple(name: str, dst_bits: int, src_bits: list[int], fn: Fn) -> None:
    columns = _cross(src_bits)
    done = [fn(*row) for row in zip(*columns, strict=True)]
    dst = _reg(dst_bits, 10)
    srcs = [_reg(b, 4 + 2 * i) for i, b in enumerate(src_bits)]
    sin: dict[str, Any] = dict(zip(srcs, columns, strict=True))
    for scc in (0, 1):
        expected = [scc if s is None else s for _, s in done]
        SUITE.add(
            f"{name}-scc{scc}",
            [f"{name} {dst}, {', '.join(srcs)}"],
            [dst],
            _check(dst, [v for v, _ in done], expected),
            {},
            sin | {"scc": scc},
        )


def _with_scc() -> None:
    a, b = _cross([32, 32])
    pairs = list(zip(a, b, strict=True))
    sin = {"s4": a, "s6": b}
    for scc in (0, 1):
        cases: dict[str, list[tuple[int, int]]] = {
            "s_addc_u32": [(x + y + scc & M32, int(x + y + scc > M32)) for x, y in pairs],
            "s_subb_u32": [(x - y - scc & M32, int(y + scc > x)) for x, y in pairs],
            "s_cselect_b32": [(x if scc else y, scc) for x, y in pairs],
        }
        for name, done in cases.items():
            SUITE.add(
                f"{name}-{scc}",
                [f"{name} s10, s4, s6"],
                ["s10"],
                _check("s10", [v for v, _ in done], [s for _, s in done]),
                {},
                sin | {"scc": scc},
            )
        c, d = _cross([64, 64])
        SUITE.add(
            f"s_cselect_b64-{scc}",
            ["s_cselect_b64 s[10:11], s[4:5], s[6:7]"],
            ["s[10:11]"],
            _check("s[10:11]", c if scc else d, scc),
            {},
            {"s[4:5]": c, "s[6:7]": d, "scc": scc},
        )
        SUITE.add(
            f"s_cmov_b32-{scc}",
            ["s_cmov_b32 s10, s4"],
            ["s10"],
            _check("s10", [7 if scc else 9], scc),
            {},
            {"s4": 7, "s10": 9, "scc": scc},
        )
        SUITE.add(
            f"s_cmov_b64-{scc}",
            ["s_cmov_b64 s[10:11], s[4:5]"],
            ["s[10:11]"],
            _check("s[10:11]", [7 << 32 if scc else 9], scc),
            {},
            {"s[4:5]": 7 << 32, "s[10:11]": 9, "scc": scc},
        )
        SUITE.add(
            f"s_cmovk_i32-{scc}",
            ["s_cmovk_i32 s10, 0x8000"],
            ["s10"],
            _check("s10", [0xFFFF8000 if scc else 9], scc),
            {},
            {"s10": 9, "scc": scc},
        )


def _constants() -> None:
    for text, value in (
        ("0", 0),
        ("64", 64),
        ("-16", M32 - 15),
        ("0.5", 0x3F000000),
        ("-4.0", 0xC0800000),
        ("0x12345678", 0x12345678),
        ("0.15915494", 0x3E22F983),
        ("m0", 99),
        ("vcc_lo", 17),
        ("exec_hi", M32),
    ):
        SUITE.add(
            f"s_mov_b32-{text}",
            [f"s_mov_b32 s10, {text}"],
            ["s10"],
            _check("s10", [value], 0),
            {},
            {"m0": 99, "vcc": 17},
        )
    for text, value in (
        ("-1", M64),
        ("64", 64),
        ("exec", ALL_LANES),
        ("vcc", 17),
        ("1.0", 0x3FF0000000000000),
    ):
        SUITE.add(
            f"s_mov_b64-{text}",
            [f"s_mov_b64 s[10:11], {text}"],
            ["s[10:11]"],
            _check("s[10:11]", [value], 0),
            {},
            {"vcc": 17},
        )


def _sopk() -> None:
    base = [v for v in V32 for _ in (0x7FFF, 0x8000, 5)]
    SUITE.add("s_movk_i32", ["s_movk_i32 s10, 0x8001"], ["s10"], _check("s10", [0xFFFF8001], 0))
    for k in (0x7FFF, 0x8000, 5, 0xFFFF):
        signed = (k ^ 0x8000) - 0x8000
        for name, fn in (("s_addk_i32", add_i32), ("s_mulk_i32", lambda a, b: (a * b & M32, None))):
            done = [fn(v, signed & M32) for v in base]
            SUITE.add(
                f"{name}-{k}",
                [f"{name} s10, 0x{k:x}"],
                ["s10"],
                _check("s10", [v for v, _ in done], [0 if s is None else s for _, s in done]),
                {},
                {"s10": base},
            )
        for n, f in ORDER.items():
            SUITE.add(
                f"s_cmpk_{n}_i32-{k}",
                [f"s_cmpk_{n}_i32 s10, 0x{k:x}"],
                [],
                _check(None, None, [int(f(s32(v), signed)) for v in base]),
                {},
                {"s10": base},
            )
            SUITE.add(
                f"s_cmpk_{n}_u32-{k}",
                [f"s_cmpk_{n}_u32 s10, 0x{k:x}"],
                [],
                _check(None, None, [int(f(v, k)) for v in base]),
                {},
                {"s10": base},
            )


def _exec_ops() -> None:
    masks = [0xF0F0, ALL_LANES, 0xFFFF00000000FFFF]
    table: dict[str, Callable[[int, int], int]] = {
        "and": lambda s, e: s & e,
        "or": lambda s, e: s | e,
        "xor": lambda s, e: s ^ e,
        "andn2": lambda s, e: s & ~e,
        "orn2": lambda s, e: s | ~e,
        "nand": lambda s, e: ~(s & e),
        "nor": lambda s, e: ~(s | e),
        "xnor": lambda s, e: ~(s ^ e),
        "andn1": lambda s, e: ~s & e,
        "orn1": lambda s, e: ~s | e,
    }
    for stem, fn in table.items():
        for kind in ("saveexec", "wrexec"):
            name = f"s_{stem}_{kind}_b64" if kind == "saveexec" else f"s_{stem}_wrexec_b64"
            if name not in rows.names() or (kind == "wrexec" and stem not in ("andn1", "andn2")):
                continue
            for mask in masks:
                for value in V64:
                    new = fn(value, mask) & M64
                    saved = mask if kind == "saveexec" else new

                    def check(result: Result, new: int = new, saved: int = saved) -> None:
                        assert (result.scalar("s[10:11]"), result.exec, result.scc) == (
                            [saved],
                            [new],
                            [int(new != 0)],
                        )

                    SUITE.add(
                        f"{name}-{mask:x}-{value:x}",
                        [f"{name} s[10:11], s[4:5]"],
                        ["s[10:11]"],
                        check,
                        {},
                        {"exec": mask, "s[4:5]": value, "scc": 1},
                    )


def _bitset() -> None:
    for name, bits, fn in (
        ("s_bitset0_b32", 32, lambda d, i: d & ~(1 << i)),
        ("s_bitset1_b32", 32, lambda d, i: d | 1 << i),
        ("s_bitset0_b64", 64, lambda d, i: d & ~(1 << i)),
        ("s_bitset1_b64", 64, lambda d, i: d | 1 << i),
    ):
        for index in (0, 31, 33, 63, 70):
            old = 0xA5A5F00F_0FF05A5A & (1 << bits) - 1
            SUITE.add(
                f"{name}-{index}",
                [f"{name} {_reg(bits, 10)}, s4"],
                [_reg(bits, 10)],
                _check(_reg(bits, 10), [fn(old, index & bits - 1)], 0),
                {},
                {_reg(bits, 10): old, "s4": index},
            )


def _branches() -> None:
    for name, sin, jumps in (
        ("s_branch", {}, True),
        ("s_cbranch_scc0", {"scc": 0}, True),
        ("s_cbranch_scc0", {"scc": 1}, False),
        ("s_cbranch_scc1", {"scc": 1}, True),
        ("s_cbranch_scc1", {"scc": 0}, False),
        ("s_cbranch_vccz", {"vcc": 0}, True),
        ("s_cbranch_vccz", {"vcc": 1 << 40}, False),
        ("s_cbranch_vccnz", {"vcc": 1 << 40}, True),
        ("s_cbranch_vccnz", {"vcc": 0}, False),
        ("s_cbranch_execz", {"exec": 0}, True),
        ("s_cbranch_execz", {"exec": 1 << 63}, False),
        ("s_cbranch_execnz", {"exec": 1 << 63}, True),
        ("s_cbranch_execnz", {"exec": 0}, False),
    ):
        # Over one instruction, by a number: labels would clash between kernels.
        SUITE.add(
            f"{name}-{sin}",
            [f"{name} 1", "s_mov_b32 s10, 2"],
            ["s10"],
            _check("s10", [5 if jumps else 2], int(sin.get("scc", 0))),
            {},
            {"s10": 5} | sin,
        )
    SUITE.add(
        "s_cbranch-back",
        ["s_add_u32 s10, s10, 1", "s_cmp_lt_u32 s10, 10", "s_cbranch_scc1 -3"],
        ["s10"],
        _check("s10", [10], 0),
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
        _check("s10", [5], 0),
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


def _movrel() -> None:
    for name, lines, sin in (
        ("s_movrels_b32", ["s_movrels_b32 s10, s4"], {"s4": 1, "s7": 77}),
        ("s_movreld_b32", ["s_movreld_b32 s7, s4"], {"s4": 77, "s10": 0}),
    ):
        if name in rows.names():
            SUITE.add(name, lines, ["s10"], _check("s10", [77], 0), {}, sin | {"m0": 3})
    if "s_movrels_b64" in rows.names():
        SUITE.add(
            "s_movrels_b64",
            ["s_movrels_b64 s[10:11], s[4:5]"],
            ["s[10:11]"],
            _check("s[10:11]", [77 << 32], 0),
            {},
            {"s[8:9]": 77 << 32, "m0": 4},
        )
        SUITE.add(
            "s_movreld_b64",
            ["s_movreld_b64 s[6:7], s[4:5]"],
            ["s[10:11]"],
            _check("s[10:11]", [77 << 32], 0),
            {},
            {"s[4:5]": 77 << 32, "s[10:11]": 0, "m0": 4},
        )


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
            lambda r, want=want: _vector(r, "v4", want),
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
            lambda r, want=want: _vector(r, "v4", want),
            covers=["s_setreg_imm32_b32"],
        )
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


def _vector(result: Result, name: str, want: int) -> None:
    assert {hex(v) for v in result[name][0]} == {hex(want)}


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
    ):
        name = line.split()[0]
        if name in rows.names() and name != "s_setkill":
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
    if "s_memrealtime" in rows.names():
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


_table()
_with_scc()
_constants()
_sopk()
_exec_ops()
_bitset()
_branches()
_movrel()
_mode()
_quiet()


@SUITE.parametrize()
def test_scalar(case: Case) -> None:
    """Value, SCC and EXEC are right."""
    SUITE.check(case)
