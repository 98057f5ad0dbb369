# SPDX-License-Identifier: MIT OR Apache-2.0
"""Matrix instructions: every shape and type, exact on small integers, within a derived bound on others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...support import rows
from ...support.asm import LANES, Case, Result, Suite
from ...support.fp import Array
from ...support.matrix import DTYPES, Shape, inputs, out_dtype, parse, registers, spread

SUITE = Suite("mfma")
LANE = np.arange(LANES)


def add(
    s: Shape,
    label: str,
    a: Array,
    b: Array,
    c: Array,
    want: Array,
    bound: Array | None,
    modifiers: str = "",
    banks: str = "vvvv",
    exec_mask: int = 0xFFFF_FFFF_FFFF_FFFF,
    c_text: str = "",
) -> None:
    """A case; banks: of D, A, B, C. bound None: the same bits."""
    acc = "f64" if s.out == "f64" else "f32"
    d_reg = registers(s, banks[0], 64, s.registers, acc)
    a_reg = registers(s, banks[1], 2, s.per_lane, s.a)
    b_reg = registers(s, banks[2], 12, s.per_lane, s.b)
    c_reg = registers(s, banks[3], 24, s.registers, acc)
    c_rows = np.ascontiguousarray(spread(s, c).view(np.uint32).reshape(LANES, -1).T)
    vin: dict[str, Any] = {a_reg: inputs(s, "a", a), b_reg: inputs(s, "b", b)}
    if not c_text:
        vin[c_reg] = c_rows
    expected, limit = spread(s, want), None if bound is None else spread(s, bound)

    def check(result: Result) -> None:
        got = np.ascontiguousarray(result[d_reg].T).view(out_dtype(s))
        if limit is None:
            np.testing.assert_array_equal(got, expected.astype(got.dtype))
        else:
            with np.errstate(invalid="ignore"):
                good = (
                    (np.abs(got - expected) <= limit)
                    | (got == expected)
                    | (np.isnan(got) & np.isnan(expected))
                )
            assert good.all(), (
                f"{(~good).sum()} of {good.size} beyond {np.nanmax(np.abs(got - expected) / limit):.2f} times"
            )

    line = f"{s.name} {d_reg}, {a_reg}, {b_reg}, {c_text or c_reg}{modifiers}"
    SUITE.add(
        f"{s.name}-{label}",
        ["s_nop 4", line, "s_nop 7", "s_nop 7", "s_nop 7"],
        [d_reg],
        check,
        vin,
        {"exec": exec_mask},
        covers=[s.name],
    )


def integers(s: Shape, rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> Array:
    """Small integers: every order of summation gives the same bits."""
    return rng.integers(-4, 5, shape).astype(np.float64).astype(DTYPES[kind])


def exact(a: Array, b: Array, c: Array) -> Array:
    """Products in float64 (exact on small integers)."""
    return np.einsum("zmk,zkn->zmn", a.astype(np.float64), b.astype(np.float64)) + c.astype(np.float64)


def _integer_cases(s: Shape) -> None:
    rng = np.random.default_rng(s.m * s.k)
    a = integers(s, rng, s.a, (s.blocks, s.m, s.k))
    b = integers(s, rng, s.b, (s.blocks, s.k, s.m))
    c = rng.integers(-100, 101, (s.blocks, s.m, s.m)).astype(out_dtype(s))
    want = exact(a, b, c)
    add(s, "integers", a, b, c, want, None)
    add(s, "agpr", a, b, c, want, None, banks="avva")
    add(s, "agpr-inputs", a, b, c, want, None, banks="vaav")
    add(s, "exec", a, b, c, want, None, exec_mask=0x8000_0000_0000_1230)
    add(s, "c-zero", a, b, c, exact(a, b, np.zeros_like(c)), None, c_text="0")


def _random_case(s: Shape) -> None:
    rng = np.random.default_rng(7)
    if s.out == "i32":
        a, b = (
            rng.integers(-128, 128, shape).astype(np.int8)
            for shape in ((s.blocks, s.m, s.k), (s.blocks, s.k, s.m))
        )
        c = rng.integers(-(1 << 31), 1 << 31, (s.blocks, s.m, s.m)).astype(np.int32)
        total = np.einsum("zmk,zkn->zmn", a.astype(np.int64), b.astype(np.int64)) + c
        add(s, "random", a, b, c, (total & 0xFFFFFFFF).astype(np.uint32).view(np.int32), None)
        return
    a = rng.normal(0, 2, (s.blocks, s.m, s.k)).astype(np.float32).astype(DTYPES[s.a])
    b = rng.normal(0, 2, (s.blocks, s.k, s.m)).astype(np.float32).astype(DTYPES[s.b])
    if s.a == "xf32":  # ten bits of fraction: what the unit keeps
        a, b = ((v.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for v in (a, b))
    c = rng.normal(0, 2, (s.blocks, s.m, s.m)).astype(out_dtype(s))
    size = np.einsum("zmk,zkn->zmn", np.abs(a.astype(np.float64)), np.abs(b.astype(np.float64))) + np.abs(c)
    unit = 2.0 ** (-53 if s.out == "f64" else -24)
    # k + 1 roundings, each of a partial sum no larger than `size`; the reference itself rounds in float64.
    add(s, "random", a, b, c, exact(a, b, c), (s.k + 1) * (unit + 2.0**-53 * (s.k + 1)) * size)


def _special_case(s: Shape) -> None:
    """Denormal inputs count, infinities and NaN spread along their row or column only."""
    dtype = DTYPES[s.a]
    a = np.zeros((s.blocks, s.m, s.k), dtype)
    b = np.zeros((s.blocks, s.k, s.m), dtype)
    a[:, 0, 0], a[:, 1, 0], a[:, 2, 0] = (
        np.finfo(np.float16).smallest_subnormal if s.a == "f16" else 2.0**-130,
        np.inf,
        np.nan,
    )
    b[:, 0, :] = 1
    b[:, 0, 3] = 2
    c = np.zeros((s.blocks, s.m, s.m), np.float32)
    want = np.zeros_like(c, np.float64)
    want[:, 0, :] = float(a[0, 0, 0])
    want[:, 0, 3] *= 2
    want[:, 1, :], want[:, 2, :] = np.inf, np.nan
    for k in range(1, s.k):
        assert (a[:, :, k] == 0).all()
    add(s, "special", a, b, c, want, np.zeros_like(want))


def _broadcast_cases(s: Shape) -> None:
    """cbsz and abid broadcast blocks of A; blgp moves groups of B's lanes."""
    rng = np.random.default_rng(3)
    a = integers(s, rng, s.a, (s.blocks, s.m, s.k))
    b = integers(s, rng, s.b, (s.blocks, s.k, s.m))
    c = rng.integers(-9, 9, (s.blocks, s.m, s.m)).astype(out_dtype(s))
    for cbsz in range(1, 5):
        group = 1 << cbsz
        if group > s.blocks:
            break
        for abid in {0, group - 1}:
            picked = a[[z // group * group + abid for z in range(s.blocks)]]
            add(s, f"cbsz{cbsz}-{abid}", a, b, c, exact(picked, b, c), None, f" cbsz:{cbsz} abid:{abid}")
    registers = inputs(s, "b", b)
    for blgp in range(1, 8):
        lanes = {1: LANE % 32, 2: LANE % 32 + 32, 3: (LANE + 16) % 64}.get(blgp, LANE % 16 + 16 * (blgp - 4))
        moved = _unspread_b(s, registers[:, lanes])
        add(s, f"blgp{blgp}", a, b, c, exact(a, moved, c), None, f" blgp:{blgp}")


def _unspread_b(s: Shape, registers: Array) -> Array:
    """B back from registers: the inverse of `inputs`."""
    elements = np.ascontiguousarray(registers.T).view(DTYPES[s.b]).reshape(LANES, s.per_lane)
    out = np.zeros((s.blocks, s.k, s.m), DTYPES[s.b])
    for lane in range(LANES):
        for j in range(s.per_lane):
            block, kk = (0, lane // s.m * s.per_lane + j) if s.blocks == 1 else (lane // s.m, j)
            out[block, kk, lane % s.m] = elements[lane, j]
    return out


def _negate_cases(s: Shape) -> None:
    rng = np.random.default_rng(4)
    a, b = integers(s, rng, s.a, (s.blocks, s.m, s.k)), integers(s, rng, s.b, (s.blocks, s.k, s.m))
    c = rng.integers(-9, 9, (s.blocks, s.m, s.m)).astype(np.float64)
    for bits in range(1, 8):
        sign = [-1.0 if bits >> i & 1 else 1.0 for i in range(3)]
        add(
            s,
            f"neg{bits}",
            a,
            b,
            c,
            exact(a * sign[0], b * sign[1], c * sign[2]),
            None,
            f" neg:[{bits & 1},{bits >> 1 & 1},{bits >> 2}]",
        )


def _in_place() -> None:
    """D on top of C, as every kernel's accumulation does."""
    s = parse("v_mfma_f32_32x32x8_f16")
    if not s or s.name not in rows.names():
        return
    rng = np.random.default_rng(5)
    a, b = integers(s, rng, s.a, (1, 32, 8)), integers(s, rng, s.b, (1, 8, 32))
    c = rng.integers(-9, 9, (1, 32, 32)).astype(np.float32)
    want = spread(s, exact(a, b, exact(a, b, c).astype(np.float32)))
    line = f"{s.name} v[24:39], v[2:3], v[12:13], v[24:39]"

    def check(result: Result) -> None:
        np.testing.assert_array_equal(np.ascontiguousarray(result["v[24:39]"].T).view(np.float32), want)

    vin = {
        "v[2:3]": inputs(s, "a", a),
        "v[12:13]": inputs(s, "b", b),
        "v[24:39]": spread(s, c).view(np.uint32).T,
    }
    SUITE.add(
        "in-place",
        ["s_nop 4", line, line, "s_nop 7", "s_nop 7", "s_nop 7"],
        ["v[24:39]"],
        check,
        vin,
        covers=[s.name],
    )


def _build(broadcasts: Callable[[str], bool]) -> None:
    for name in sorted(n for n in rows.names() if n.startswith("v_mfma")):
        s = parse(name)
        if s is None:
            continue  # test_coverage reports it
        _integer_cases(s)
        _random_case(s)
        if s.out == "f64" and rows.arch() == "gfx942":
            _negate_cases(s)
        elif broadcasts(s.a):
            _broadcast_cases(s)
        if s.a in ("f16", "bf16") and rows.arch() == "gfx942":
            _special_case(s)


_build(lambda kind: kind in ("f32", "f16", "bf16"))
_in_place()


@SUITE.parametrize()
def test_mfma(case: Case) -> None:
    """D = A B + C."""
    SUITE.check(case)
