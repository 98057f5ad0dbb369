# SPDX-License-Identifier: MIT OR Apache-2.0
"""Vector instructions with a mask operand: carries, cndmask, 64-bit multiply-add, division steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..support import fp, rows
from ..support.asm import ALL_LANES, LANES, MODE_DEFAULT, Case, Result, Suite
from ..support.fp import Array
from ..support.ops.predicates import masks
from ..support.ops.valu import EXEC_PART, bits_of_exec, modify, same, view
from ..support.spelling import GENERATION, exists, renamed

SUITE = Suite("carry")
CARRY_IN = 0x9669_F00F_A5A5_3C3C


def _check(
    want: Any,
    carry: Array | None,
    where: str,
    kind: str,
    args: Sequence[Array],
    mask: int = ALL_LANES,
    ulp: float = 0,
    before: int = 0,
) -> Callable[[Result], None]:
    def check(result: Result) -> None:
        name = "v[10:11]" if kind in ("u64", "i64", "f64") else "v10"
        n = result[name].shape[1]
        same(view(result, name, kind), want, ulp, args, bits_of_exec(mask, n))
        if carry is not None:
            assert [hex(m) for m in result.mask(where, before)] == [hex(m & mask) for m in masks(carry)]

    return check


def _carry_ops() -> None:
    def wide(a: Array) -> Array:
        return a.astype(np.int64)

    table: dict[str, tuple[bool, Callable[..., Array]]] = {
        "v_add_co_u32": (False, lambda a, b, c: wide(a) + wide(b)),
        "v_sub_co_u32": (False, lambda a, b, c: wide(a) - wide(b)),
        "v_subrev_co_u32": (False, lambda a, b, c: wide(b) - wide(a)),
        "v_addc_co_u32": (True, lambda a, b, c: wide(a) + wide(b) + c),
        "v_subb_co_u32": (True, lambda a, b, c: wide(a) - wide(b) - c),
        "v_subbrev_co_u32": (True, lambda a, b, c: wide(b) - wide(a) - c),
    }
    args = fp.lanes_of(("u32", "u32"))
    cin = bits_of_exec(CARRY_IN, len(args[0]))
    for name, (reads, fn) in table.items():
        row = rows.by_name(rows.arch()).get(renamed(name))
        if not row:
            continue
        short = row.format == "VOP2"  # those without a carry in are VOP3 only on RDNA
        exact = fn(*args, cin.astype(np.int64))
        carry = (exact < 0) | (exact > 0xFFFFFFFF)
        want = (exact & 0xFFFFFFFF).astype(np.uint32)
        vin = {"v2": args[0], "v4": args[1], "v10": np.full(len(args[0]), 0xAAAA5555, np.uint32)}
        tail = ", vcc" if reads else ""
        if short:
            SUITE.add(
                f"{name}-e32",
                [f"{name}_e32 v10, vcc, v2, v4{tail}"],
                ["v10"],
                _check(want, carry, "vcc", "u32", args, before=CARRY_IN),
                vin,
                {"vcc": CARRY_IN},
            )
        tail = ", s[12:13]" if reads else ""
        SUITE.add(
            f"{name}-e64",
            [f"{name}{'_e64' if short else ''} v10, s[8:9], v2, v4{tail}"],
            ["v10", "s[8:9]"],
            _check(want, carry, "s[8:9]", "u32", args, EXEC_PART),
            vin,
            {"vcc": 5, "s[8:9]": 0, "s[12:13]": CARRY_IN, "exec": EXEC_PART},
        )


def _cndmask() -> None:
    args = fp.lanes_of(("u32", "u32"))
    pick = bits_of_exec(CARRY_IN, len(args[0]))
    vin = {"v2": args[0], "v4": args[1]}
    plain = np.where(pick, args[1], args[0])
    SUITE.add(
        "v_cndmask_b32-e32",
        ["v_cndmask_b32_e32 v10, v2, v4, vcc"],
        ["v10"],
        _check(plain, None, "", "u32", args),
        vin,
        {"vcc": CARRY_IN},
    )
    SUITE.add(
        "v_cndmask_b32-e64",
        ["v_cndmask_b32_e64 v10, v2, v4, s[8:9]"],
        ["v10"],
        _check(plain, None, "", "u32", args),
        vin,
        {"s[8:9]": CARRY_IN},
    )
    zero = np.where(pick, args[1], np.uint32(0x3F800000))
    SUITE.add(
        "v_cndmask_b32-const",
        ["v_cndmask_b32_e64 v10, 1.0, v4, s[8:9]"],
        ["v10"],
        _check(zero, None, "", "u32", args),
        vin,
        {"s[8:9]": CARRY_IN},
    )
    floats = [a.view(np.float32) for a in args]
    negated = np.where(pick, modify(floats[1], False, True), modify(floats[0], True, False)).view(np.uint32)
    nan = np.where(pick, np.isnan(floats[1]), np.isnan(floats[0]))
    SUITE.add(
        "v_cndmask_b32-neg",
        ["v_cndmask_b32_e64 v10, -v2, |v4|, s[8:9]"],
        ["v10"],
        _check(np.ma.array(negated, mask=nan), None, "", "u32", args),
        vin,
        {"s[8:9]": CARRY_IN},
    )


def _mad64() -> None:
    for name, kind32, kind64 in (("v_mad_u64_u32", "u32", "u64"), ("v_mad_i64_i32", "i32", "i64")):
        if not exists(name):
            continue
        args = fp.lanes_of((kind32, kind32, kind64))
        exact = [int(a) * int(b) + int(c) for a, b, c in zip(*args, strict=True)]
        want = np.array([e & (1 << 64) - 1 for e in exact], np.uint64).view(fp.DTYPES[kind64])
        limit = (0, 1 << 64) if kind32 == "u32" else (-(1 << 63), 1 << 63)
        carry = np.array([not limit[0] <= e < limit[1] for e in exact]) if kind32 == "u32" else None
        SUITE.add(
            name,
            [f"{name} v[10:11], s[8:9], v2, v4, v[6:7]"],
            ["v[10:11]", "s[8:9]"],
            _check(want, carry, "s[8:9]", kind64, args),
            {"v2": args[0], "v4": args[1], "v[6:7]": args[2]},
            {"s[8:9]": 77},
        )


def _div_fmas() -> None:
    # The manual prints factors of 2^32 and 2^64, which undo no scaling v_div_scale does; the divisions
    # below need those. The direction depends on the size of the numerator, src2.
    for name, kind, power in (("v_div_fmas_f32", "f32", 64), ("v_div_fmas_f64", "f64", 128)):
        args = fp.lanes_of((kind, kind, kind), seed=6)
        scaled = bits_of_exec(CARRY_IN, len(args[0]))
        with np.errstate(all="ignore"):
            once = fp.fma(*args)
            factor = np.where(np.abs(args[2]) >= 2, 2.0**power, 2.0**-power).astype(once.dtype)
            want = np.where(scaled, once * factor, once)
        # Scaling a denormal could be exact or rounded twice: the manual's formula rounds first.
        tiny = np.finfo(once.dtype).tiny
        free = scaled & ((np.abs(once) < tiny) & (once != 0) | (np.abs(want) < tiny) | np.isnan(args[2]))
        pairs = kind == "f64"
        srcs = ["v[2:3]", "v[4:5]", "v[6:7]"] if pairs else ["v2", "v4", "v6"]
        dst = "v[10:11]" if pairs else "v10"
        SUITE.add(
            name,
            [f"{name} {dst}, {', '.join(srcs)}"],
            [dst],
            _check(np.ma.array(want, mask=free), None, "", kind, args),
            dict(zip(srcs, args, strict=True)),
            {"vcc": CARRY_IN},
        )


def _divide(kind: str) -> None:
    """The whole sequence a compiler emits for a division: right to the last bit."""
    rng = np.random.default_rng(12)
    values = fp.lanes_of((kind, kind), seed=8, limit=960)
    num = np.where(
        rng.random(len(values[0])) < 0.5,
        values[0],
        rng.lognormal(0, 20, len(values[0])).astype(values[0].dtype),
    )
    den = values[1]
    p = "f32" if kind == "f32" else "f64"
    r = (lambda i: f"v{i}") if kind == "f32" else (lambda i: f"v[{i}:{i + 1}]")
    n, d, a, b, c, e, f = r(2), r(4), r(12), r(14), r(16), r(18), r(20)
    lines = [
        f"v_div_scale_{p} {a}, s[8:9], {d}, {d}, {n}",
        f"v_div_scale_{p} {b}, vcc, {n}, {d}, {n}",
        f"v_rcp_{p} {c}, {a}",
        "s_nop 4",
        *(["s_waitcnt_depctr 0xfff"] if GENERATION == 11 else []),  # for the result of v_rcp
        *[x for _ in range(2) for x in (f"v_fma_{p} {e}, -{a}, {c}, 1.0", f"v_fma_{p} {c}, {e}, {c}, {c}")],
        f"v_mul_{p} {e}, {b}, {c}",
        *([f"v_fma_{p} {f}, -{a}, {e}, {b}", f"v_fma_{p} {e}, {f}, {c}, {e}"] if kind == "f32" else []),
        f"v_fma_{p} {f}, -{a}, {e}, {b}",
        f"v_div_fmas_{p} {f}, {f}, {c}, {e}",
        f"v_div_fixup_{p} {r(10)}, {f}, {d}, {n}",
    ]
    with np.errstate(all="ignore"):
        want = num / den
    # A quotient in the denormals is rounded twice by the scaling of the last step.
    free = (np.abs(want) < np.finfo(want.dtype).tiny * 2) & (want != 0)
    SUITE.add(
        f"divide-{kind}",
        lines,
        [r(10)],
        _check(np.ma.array(want, mask=free), None, "", kind, (num, den)),
        {n: num, d: den},
        covers=[f"v_div_scale_{p}"],
    )


# v_div_scale's denominator and numerator as powers of two (None: 0), its results of either (None: NaN), VCC.
# They are the manual's but for two cases, of which a card sets VCC: zeros, and the least normal number over
# one, whose quotient is not denormal.
_Scaled = tuple[int | None, int | None, int | None, int | None, int]
_SCALED: dict[str, list[_Scaled]] = {
    "f32": [
        (None, 1, None, None, 1),
        (3, None, None, None, 1),
        (None, None, None, None, 1),
        (3, 99, 67, 99, 1),  # exponents 96 apart: the denominator is scaled
        (3, 98, 3, 98, 0),
        (-130, -60, -66, 4, 0),  # a denormal denominator: both
        (-140, -100, -76, -36, 0),
        (127, 0, 63, 0, 1),  # 1 / d and n / d are denormal
        (127, 20, 63, -44, 0),  # only 1 / d: both, downward
        (30, -100, 30, -36, 1),  # only n / d: the numerator
        (-10, -104, 54, -40, 0),  # a tiny numerator, of exponent 23: both ...
        (-10, -103, -10, -103, 0),  # ... and an ordinary one, of 24
        (0, -126, 0, -62, 1),
    ],
    "f64": [
        (None, 1, None, None, 1),
        (3, None, None, None, 1),
        (3, 771, 131, 771, 1),
        (3, 770, 3, 770, 0),
        (-1030, -400, -902, -272, 0),
        (1023, 0, 895, 0, 1),
        (1023, 100, 895, -28, 0),
        (300, -800, 300, -672, 1),
        (-10, -970, 118, -842, 0),
        (-10, -969, -10, -969, 0),
        (0, -1022, 0, -894, 1),
    ],
}


def _powers(exponents: Sequence[int | None], kind: str, zero: float = 0.0) -> Array:
    """A power of two for each lane, again from the first when they are used up."""
    values = [zero if e is None else 2.0**e for e in exponents]
    return np.resize(np.array(values, fp.DTYPES[kind]), LANES)


def _div_scale_rows() -> None:
    for kind, table in _SCALED.items():
        r = (lambda i: f"v{i}") if kind == "f32" else (lambda i: f"v[{i}:{i + 1}]")
        den, num = (_powers([row[i] for row in table], kind) for i in (0, 1))
        vcc = np.resize(np.array([row[4] for row in table], bool), LANES)
        for name, first, column in (("denominator", den, 2), ("numerator", num, 3)):
            want = _powers([row[column] for row in table], kind, np.nan)
            vin = {r(2): first, r(4): den, r(6): num}
            line = f"v_div_scale_{kind} {r(10)}, vcc, {r(2)}, {r(4)}, {r(6)}"
            check = _check(want, vcc, "vcc", kind, (first, den, num))
            SUITE.add(f"v_div_scale_{kind}-{name}", [line], [r(10)], check, vin)
    # Denormals that MODE flushes are zeros.
    den, num = (np.full(LANES, v, np.float32) for v in (2.0**-149, 1.0))
    want, all_set = np.full(LANES, np.nan, np.float32), np.ones(LANES, bool)
    SUITE.add(
        "v_div_scale_f32-flushed",
        ["v_div_scale_f32 v10, vcc, v2, v2, v4"],
        ["v10"],
        _check(want, all_set, "vcc", "f32", (den, num)),
        {"v2": den, "v4": num},
        {"mode": MODE_DEFAULT & ~0x30},
    )


def _div_fixup_rows() -> None:
    """If the estimate is NaN and the operands are not, the result is an infinity of the quotient's sign."""
    for kind in ("f32", "f64"):
        r = (lambda i: f"v{i}") if kind == "f32" else (lambda i: f"v[{i}:{i + 1}]")
        estimate = np.full(LANES, np.nan, fp.DTYPES[kind])
        den, num = (np.resize(np.array(v, fp.DTYPES[kind]), LANES) for v in ([3, -3, 3, -3], [7, 7, -7, -7]))
        want = np.copysign(fp.DTYPES[kind](np.inf), den * num)
        SUITE.add(
            f"v_div_fixup_{kind}-nan",
            [f"v_div_fixup_{kind} {r(10)}, {r(2)}, {r(4)}, {r(6)}"],
            [r(10)],
            _check(want, None, "", kind, (estimate, den, num)),
            {r(2): estimate, r(4): den, r(6): num},
        )


def _div_scale() -> None:
    """Ordinary quotients need no scaling: the value comes back, VCC is clear. Zeros give NaN, and set it."""
    for kind in ("f32", "f64"):
        rng = np.random.default_rng(2)
        den, num = (rng.normal(0, 4, LANES).astype(fp.DTYPES[kind]) for _ in range(2))
        den[:2], num[2:4] = 0, 0
        want = den.copy()
        want[:4] = np.nan
        pairs = kind == "f64"
        d, n, o = ("v[2:3]", "v[4:5]", "v[10:11]") if pairs else ("v2", "v4", "v10")
        SUITE.add(
            f"v_div_scale_{kind}-plain",
            [f"v_div_scale_{kind} {o}, vcc, {d}, {d}, {n}"],
            [o],
            _check(want, np.arange(LANES) < 4, "vcc", kind, (den, num)),
            {d: den, n: num},
            {"vcc": ALL_LANES},
        )
        big, small = (1e38, 1e-1) if kind == "f32" else (1e300, 1e-1)
        den = np.full(LANES, small, fp.DTYPES[kind])
        num = np.full(LANES, big, fp.DTYPES[kind])
        want = den * fp.DTYPES[kind](2.0 ** (64 if kind == "f32" else 128))
        SUITE.add(
            f"v_div_scale_{kind}-big",
            [f"v_div_scale_{kind} {o}, vcc, {d}, {d}, {n}"],
            [o],
            _check(want, np.ones(LANES, bool), "vcc", kind, (den, num)),
            {d: den, n: num},
        )


_carry_ops()
_cndmask()
_mad64()
_div_fmas()
for _kind in ("f32", "f64"):
    _divide(_kind)
_div_scale()
_div_scale_rows()
_div_fixup_rows()


@SUITE.parametrize()
def test_carry(case: Case) -> None:
    """Value and mask are right."""
    SUITE.check(case)
