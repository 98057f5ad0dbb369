# SPDX-License-Identifier: MIT OR Apache-2.0
"""Scalar arithmetic: values, SCC, EXEC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...support.asm import ALL_LANES, Case, Result, Suite
from ...support.ops.scalar_ops import COMPARE, M32, M64, ONE, ORDER, TWO, V32, V64, Fn, add_i32, check, s32
from ...support.spelling import NARROW, RDNA, exists

SUITE = Suite("scalar")


def _reg(bits: int, index: int) -> str:
    return f"s{index}" if bits == 32 else f"s[{index}:{index + 1}]"


def _cross(bits: Sequence[int]) -> list[list[int]]:
    sets = [V32 if b == 32 else V64 for b in bits]
    out: list[list[int]] = [[]]
    for s in sets:
        out = [[*row, v] for row in out for v in s]
    return [list(column) for column in zip(*out, strict=True)]


def _table() -> None:
    for name, (dst_bits, src_bits, one) in ONE.items():
        if exists(name):
            _simple(name, dst_bits, [src_bits], one)
    for name, (dst_bits, a_bits, b_bits, two) in TWO.items():
        if exists(name):
            _simple(name, dst_bits, [a_bits, b_bits], two)
    for name, (a_bits, b_bits, fn) in COMPARE.items():
        if exists(name):
            a, b = _cross([a_bits, b_bits])
            SUITE.add(
                name,
                [f"{name} {_reg(a_bits, 4)}, {_reg(b_bits, 6)}"],
                [],
                check(None, None, [int(fn(x, y)) for x, y in zip(a, b, strict=True)]),
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
            check(dst, [v for v, _ in done], expected),
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
                check("s10", [v for v, _ in done], [s for _, s in done]),
                {},
                sin | {"scc": scc},
            )
        c, d = _cross([64, 64])
        SUITE.add(
            f"s_cselect_b64-{scc}",
            ["s_cselect_b64 s[10:11], s[4:5], s[6:7]"],
            ["s[10:11]"],
            check("s[10:11]", c if scc else d, scc),
            {},
            {"s[4:5]": c, "s[6:7]": d, "scc": scc},
        )
        SUITE.add(
            f"s_cmov_b32-{scc}",
            ["s_cmov_b32 s10, s4"],
            ["s10"],
            check("s10", [7 if scc else 9], scc),
            {},
            {"s4": 7, "s10": 9, "scc": scc},
        )
        SUITE.add(
            f"s_cmov_b64-{scc}",
            ["s_cmov_b64 s[10:11], s[4:5]"],
            ["s[10:11]"],
            check("s[10:11]", [7 << 32 if scc else 9], scc),
            {},
            {"s[4:5]": 7 << 32, "s[10:11]": 9, "scc": scc},
        )
        SUITE.add(
            f"s_cmovk_i32-{scc}",
            ["s_cmovk_i32 s10, 0x8000"],
            ["s10"],
            check("s10", [0xFFFF8000 if scc else 9], scc),
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
        ("exec_lo" if NARROW else "exec_hi", M32),
    ):
        SUITE.add(
            f"s_mov_b32-{text}",
            [f"s_mov_b32 s10, {text}"],
            ["s10"],
            check("s10", [value], 0),
            {},
            {"m0": 99, "vcc": 17},
        )
    for text, value in (
        ("-1", M64),
        ("64", 64),
        *(() if NARROW else (("exec", ALL_LANES),)),
        ("vcc", 17),
        ("1.0", 0x3FF0000000000000),
    ):
        SUITE.add(
            f"s_mov_b64-{text}",
            [f"s_mov_b64 s[10:11], {text}"],
            ["s[10:11]"],
            check("s[10:11]", [value], 0),
            {},
            {"vcc": 17},
        )


def _sopk() -> None:
    base = [v for v in V32 for _ in (0x7FFF, 0x8000, 5)]
    SUITE.add("s_movk_i32", ["s_movk_i32 s10, 0x8001"], ["s10"], check("s10", [0xFFFF8001], 0))
    for k in (0x7FFF, 0x8000, 5, 0xFFFF):
        signed = (k ^ 0x8000) - 0x8000
        for name, fn in (("s_addk_i32", add_i32), ("s_mulk_i32", lambda a, b: (a * b & M32, None))):
            done = [fn(v, signed & M32) for v in base]
            SUITE.add(
                f"{name}-{k}",
                [f"{name} s10, 0x{k:x}"],
                ["s10"],
                check("s10", [v for v, _ in done], [0 if s is None else s for _, s in done]),
                {},
                {"s10": base},
            )
        for n, f in ORDER.items():
            SUITE.add(
                f"s_cmpk_{n}_i32-{k}",
                [f"s_cmpk_{n}_i32 s10, 0x{k:x}"],
                [],
                check(None, None, [int(f(s32(v), signed)) for v in base]),
                {},
                {"s10": base},
            )
            SUITE.add(
                f"s_cmpk_{n}_u32-{k}",
                [f"s_cmpk_{n}_u32 s10, 0x{k:x}"],
                [],
                check(None, None, [int(f(v, k)) for v in base]),
                {},
                {"s10": base},
            )


def _exec_ops() -> None:
    # Waves of 32 have them in 32 bits; from gfx11 on names say which operand is inverted.
    bits, full = (32, M32) if NARROW else (64, M64)
    masks = [0xF0F0, ALL_LANES, 0xFFFF00000000FFFF & full]
    table: dict[str, Callable[[int, int], int]] = {
        "and": lambda s, e: s & e,
        "or": lambda s, e: s | e,
        "xor": lambda s, e: s ^ e,
        "and_not1" if RDNA else "andn2": lambda s, e: s & ~e,
        "or_not1" if RDNA else "orn2": lambda s, e: s | ~e,
        "nand": lambda s, e: ~(s & e),
        "nor": lambda s, e: ~(s | e),
        "xnor": lambda s, e: ~(s ^ e),
        "and_not0" if RDNA else "andn1": lambda s, e: ~s & e,
        "or_not0" if RDNA else "orn1": lambda s, e: ~s | e,
    }
    for stem, fn in table.items():
        for kind in ("saveexec", "wrexec"):
            name = f"s_{stem}_{kind}_b{bits}"
            if not exists(name):
                continue
            for mask in masks:
                for value in V32 if NARROW else V64:
                    new = fn(value, mask) & full
                    saved = mask if kind == "saveexec" else new

                    def check(result: Result, new: int = new, saved: int = saved) -> None:
                        assert (result.scalar(_reg(bits, 10)), result.exec, result.scc) == (
                            [saved],
                            [new],
                            [int(new != 0)],
                        )

                    SUITE.add(
                        f"{name}-{mask:x}-{value:x}",
                        [f"{name} {_reg(bits, 10)}, {_reg(bits, 4)}"],
                        [_reg(bits, 10)],
                        check,
                        {},
                        {"exec": mask, _reg(bits, 4): value, "scc": 1},
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
                check(_reg(bits, 10), [fn(old, index & bits - 1)], 0),
                {},
                {_reg(bits, 10): old, "s4": index},
            )


def _movrel() -> None:
    for name, lines, sin in (
        ("s_movrels_b32", ["s_movrels_b32 s10, s4"], {"s4": 1, "s7": 77}),
        ("s_movreld_b32", ["s_movreld_b32 s7, s4"], {"s4": 77, "s10": 0}),
    ):
        if exists(name):
            SUITE.add(name, lines, ["s10"], check("s10", [77], 0), {}, sin | {"m0": 3})
    if exists("s_movrels_b64"):
        SUITE.add(
            "s_movrels_b64",
            ["s_movrels_b64 s[10:11], s[4:5]"],
            ["s[10:11]"],
            check("s[10:11]", [77 << 32], 0),
            {},
            {"s[8:9]": 77 << 32, "m0": 4},
        )
        SUITE.add(
            "s_movreld_b64",
            ["s_movreld_b64 s[6:7], s[4:5]"],
            ["s[10:11]"],
            check("s[10:11]", [77 << 32], 0),
            {},
            {"s[4:5]": 77 << 32, "s[10:11]": 0, "m0": 4},
        )


_table()
_with_scc()
_constants()
_sopk()
_exec_ops()
_bitset()
_movrel()


@SUITE.parametrize()
def test_scalar(case: Case) -> None:
    """Value, SCC and EXEC are right."""
    SUITE.check(case)
