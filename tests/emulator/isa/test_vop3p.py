# SPDX-License-Identifier: MIT OR Apache-2.0
"""Packed, mixed-precision and dot-product instructions with op_sel, op_sel_hi, neg_lo and neg_hi."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ..support import fp, rows
from ..support.asm import Case, Result, Suite, legal
from ..support.findings import Kernels
from ..support.fp import Array
from ..support.ops.ops3 import sad
from ..support.ops.ops3p import DOTS, PACKED, fields, parts, select
from ..support.ops.valu import clamp01, modify, same
from ..support.spelling import GENERATION, exists

SUITE = Suite("vop3p")
# op_sel, op_sel_hi, neg_lo, neg_hi as bit masks; the first is what no modifier means.
PATTERNS = [(0, 7, 0, 0), (5, 2, 0, 0), (2, 5, 0, 0), (7, 0, 0, 0)]
NEG_PATTERNS = [(0, 7, 1, 6), (1, 6, 7, 0), (0, 0, 2, 5)]


def _text(count: int, pattern: tuple[int, int, int, int]) -> str:
    full = (1 << count) - 1
    out = ""
    for name, value, default in zip(
        ("op_sel", "op_sel_hi", "neg_lo", "neg_hi"), pattern, (0, full, 0, 0), strict=True
    ):
        if value & full != default:
            out += f" {name}:[{','.join(str(value >> i & 1) for i in range(count))}]"
    return out


def _packed(
    name: str, kind: str, count: int, fn: Callable[..., Array], clamp: Callable[..., Array] | None = None
) -> None:
    if not exists(name):
        return
    wide = kind == "f32"
    reg = (lambda i: f"v[{i}:{i + 1}]") if wide else (lambda i: f"v{i}")
    patterns = PATTERNS + (NEG_PATTERNS if kind.startswith("f") else [])
    for k, pattern in enumerate(patterns):
        for do_clamp in (False, True):
            if do_clamp and (k or (clamp is None and not kind.startswith("f"))):
                continue
            args = fp.lanes_of(
                ["pf32" if wide else "pf16" if kind == "f16" else "pi16"] * count, seed=40 + k, limit=704
            )
            halves = [select(args, kind, pattern[0], pattern[2]), select(args, kind, pattern[1], pattern[3])]
            srcs = [reg(2 + 2 * i) for i in range(count)]
            line = f"{name} {reg(10)}, {', '.join(srcs)}{_text(count, pattern)}{' clamp' if do_clamp else ''}"
            SUITE.add(
                f"{name}-{k}{'-clamp' if do_clamp else ''}",
                [line],
                [reg(10)],
                _check_packed(kind, halves, fn, clamp if do_clamp else None, do_clamp, reg(10)),
                dict(zip(srcs, args, strict=True)),
            )


def _check_packed(
    kind: str,
    halves: list[list[Array]],
    fn: Callable[..., Array],
    clamp: Callable[..., Array] | None,
    do_clamp: bool,
    dst: str,
) -> Callable[[Result], None]:
    def check(result: Result) -> None:
        rows_ = result[dst]
        got = parts(np.ascontiguousarray(rows_.T), kind) if kind == "f32" else parts(rows_[0], kind)
        for half, args in zip(got, halves, strict=True):
            with np.errstate(all="ignore"):
                want = clamp(*args) if clamp else fn(*args)
                if do_clamp and not clamp:
                    want = clamp01(want)
            same(half, want, 0, args)

    return check


def _overlap() -> None:
    """A destination that overlaps a source by half: both parts read before either is written."""
    args = fp.lanes_of(("pf32", "pf32"), seed=3)
    both = [parts(a, "f32") for a in args]
    # v[2:3] = v[3:4] * v[6:7] needs a pair that starts odd, which gfx90a+ forbids: use op_sel.
    with np.errstate(all="ignore"):
        want = [both[0][1] * both[1][0], both[0][0] * both[1][1]]

    def check(result: Result) -> None:
        for got, w in zip(parts(np.ascontiguousarray(result["v[2:3]"].T), "f32"), want, strict=True):
            same(got, w, 0, args)

    SUITE.add(
        "v_pk_mul_f32-overlap",
        ["v_pk_mul_f32 v[2:3], v[2:3], v[6:7] op_sel:[1,0] op_sel_hi:[0,1]"],
        ["v[2:3]"],
        check,
        {"v[2:3]": args[0], "v[6:7]": args[1]},
    )


def _pk_mov() -> None:
    args = fp.lanes_of(("u64", "u64"))
    for pattern in range(4):
        picks = [(a >> np.uint64(32 * (pattern >> i & 1))).astype(np.uint32) for i, a in enumerate(args)]

        def check(result: Result, picks: list[Array] = picks) -> None:
            for got, want in zip(result["v[10:11]"], picks, strict=True):
                same(got, want, 0, picks)

        SUITE.add(
            f"v_pk_mov_b32-{pattern}",
            [f"v_pk_mov_b32 v[10:11], v[2:3], v[4:5] op_sel:[{pattern & 1},{pattern >> 1}]"],
            ["v[10:11]"],
            check,
            {"v[2:3]": args[0], "v[4:5]": args[1]},
        )


def _scalar_pair() -> None:
    """SGPR pairs and constants as packed f32 operands."""
    args = fp.lanes_of(("pf32",))
    lo, hi = parts(args[0], "f32")
    s = np.array([1.5, -2.25], np.float32)

    with np.errstate(all="ignore"):
        wants = [(lo * s[0], hi * s[1]), (lo * s[0], hi * s[0])]

    for text, want in zip(("", " op_sel_hi:[1,0]"), wants, strict=True):

        def check(result: Result, want: tuple[Array, Array] = want) -> None:
            for got, half in zip(parts(np.ascontiguousarray(result["v[10:11]"].T), "f32"), want, strict=True):
                same(got, half, 0, [lo, hi])

        SUITE.add(
            f"v_pk_mul_f32-sgpr{text.replace(' ', '-')}",
            [f"v_pk_mul_f32 v[10:11], v[2:3], s[4:5]{text}"],
            ["v[10:11]"],
            check,
            {"v[2:3]": args[0]},
            {"s[4:5]": int(s.view(np.uint64)[0])},
        )


def _dots() -> None:
    for name, (bits, signed) in DOTS.items():
        if not exists(name):
            continue
        args = fp.lanes_of(("pi16", "pi16", "u32"))
        total = (fields(args[0], bits, signed) * fields(args[1], bits, signed)).sum(1)
        total += args[2].view(np.int32).astype(np.int64) if signed else args[2].astype(np.int64)
        low, high = (-(1 << 31), (1 << 31) - 1) if signed else (0, (1 << 32) - 1)
        for text, value in (("", total), (" clamp", np.clip(total, low, high))):
            want = (value & 0xFFFFFFFF).astype(np.uint32)
            SUITE.add(
                name + text.replace(" ", "-"),
                [f"{name} v10, v2, v4, v6{text}"],
                ["v10"],
                lambda r, want=want, args=args: same(r["v10"][0], want, 0, args),
                {"v2": args[0], "v4": args[1], "v6": args[2]},
            )
    rng = np.random.default_rng(5)
    for name, form in (("v_dot2_f32_f16", "{} v10, v2, v4, v6"), ("v_dot2c_f32_f16", "{}_e32 v6, v2, v4")):
        if not exists(name):
            continue
        out, line = "v10" if "v10" in form else "v6", form.format(name)
        a, b = (rng.normal(0, 4, (256, 2)).astype(np.float16) for _ in range(2))
        a[np.abs(a) < np.finfo(np.float16).tiny] = 1  # denormals have a case of their own
        c = rng.normal(0, 4, 256).astype(np.float32)
        products = a.astype(np.float64) * b.astype(np.float64)
        want = products.sum(1) + c
        bound = (
            3 * 2.0**-24 * (np.abs(products).sum(1) + np.abs(c))
        )  # at most three roundings of partial sums

        def check(result: Result, want: Array = want, bound: Array = bound, out: str = out) -> None:
            assert (np.abs(result[out][0].view(np.float32) - want) <= bound).all()

        vin = {"v2": a.view(np.uint32)[:, 0], "v4": b.view(np.uint32)[:, 0], "v6": c}
        SUITE.add(name, [line], [out], check, vin)
        if name == "v_dot2_f32_f16" and GENERATION > 10:
            # AMD's __ockl_fdot2 sets it; an RX 7900 XTX, a Radeon 8060S and an RX 9070 XT ignore it.
            SUITE.add(f"{name}-clamp", [f"{line} clamp"], [out], check, vin)
        _dot_denormals(name, line, out)
        ints = [rng.integers(-8, 9, (256, 2)).astype(np.float16) for _ in range(2)]
        exact = (ints[0].astype(np.float64) * ints[1]).sum(1) + 3
        SUITE.add(
            f"{name}-exact",
            [line],
            [out],
            lambda r, exact=exact, out=out: same(r[out][0].view(np.float32), exact.astype(np.float32), 0, []),
            {
                "v2": ints[0].view(np.uint32)[:, 0],
                "v4": ints[1].view(np.uint32)[:, 0],
                "v6": np.full(256, 3, np.float32),
            },
        )


def _dot_denormals(name: str, line: str, out: str) -> None:
    """Denormal halves and a denormal addend: exact, and zeros on gfx90a, as PyTorch documents."""
    kept = rows.arch() != "gfx90a"
    a = np.array([[2.0**-20, 1.0], [1.0, -(2.0**-24)], [2.0**-14, 0.0], [0.0, 0.0]], np.float16)
    b = np.array([[1.0, 2.0], [0.0, 1.0], [1.0, 0.0], [0.0, 0.0]], np.float16)
    c = np.array([3.0, 0.0, 0.0, 2.0**-130], np.float32)
    exact = (a.astype(np.float64) * b).sum(1) + c
    want = (exact if kept else np.array([5.0, 0.0, 2.0**-14, 0.0])).astype(np.float32)
    a, b, c, want = (np.tile(x, (64,) + (1,) * (x.ndim - 1)) for x in (a, b, c, want))
    SUITE.add(
        f"{name}-denormals",
        [line],
        [out],
        lambda r: same(np.abs(r[out][0].view(np.float32)), np.abs(want), 0, []),
        {"v2": a.view(np.uint32)[:, 0], "v4": b.view(np.uint32)[:, 0], "v6": c},
    )


def _pk_fmac() -> None:
    """The two-operand form: the destination is the third source."""
    if not exists("v_pk_fmac_f16"):
        return
    args = fp.lanes_of(("pf16", "pf16", "pf16"))
    halves = [parts(a, "f16") for a in args]
    want = [fp.fma(*(h[i] for h in halves)) for i in range(2)]

    def check(result: Result) -> None:
        for i, got in enumerate(parts(result["v10"][0], "f16")):
            same(got, want[i], 0, [h[i] for h in halves])

    SUITE.add(
        "v_pk_fmac_f16",
        ["v_pk_fmac_f16 v10, v2, v4"],
        ["v10"],
        check,
        {"v2": args[0], "v4": args[1], "v10": args[2]},
    )


def _mqsad() -> None:
    """Four sums of differences, sliding by a byte, parts where the reference is 0 left out."""
    rng = np.random.default_rng(3)
    a = rng.integers(0, 1 << 63, 64, dtype=np.uint64)
    b = rng.integers(0, 1 << 32, 64, dtype=np.uint32)
    b[::3] &= np.uint32(0xFF00FF)
    c = rng.integers(0, 1 << 32, (4, 64), dtype=np.uint32)
    want = [
        sad((a >> np.uint64(8 * i) & np.uint64(0xFFFFFFFF)).astype(np.uint32), b, 8, True) + c[i]
        for i in range(4)
    ]

    def check(result: Result) -> None:
        for got, w in zip(result["v[10:13]"], want, strict=True):
            same(got, w, 0, [a, b])

    SUITE.add(
        "v_mqsad_u32_u8",
        ["v_mqsad_u32_u8 v[10:13], v[2:3], v4, v[6:9]"],
        ["v[10:13]"],
        check,
        {"v[2:3]": a, "v4": b, "v[6:9]": c},
    )


def _mix() -> None:
    """fma_mix: each source float32, or either half read as float16."""
    rng = np.random.default_rng(9)
    values = [fp.lanes_of(("f32",), seed=s)[0] for s in (1, 2, 3)]
    halves = [rng.normal(0, 4, (len(values[0]), 2)).astype(np.float16) for _ in range(3)]
    for name in ("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16"):
        for k, (sel, sel_hi, neg, absolute) in enumerate(
            [(0, 0, 0, 0), (0, 7, 0, 0), (7, 7, 0, 0), (2, 3, 1, 0), (4, 6, 5, 2)]
        ):
            vin, args = {}, []
            for i in range(3):
                half = bool(sel_hi >> i & 1)
                vin[f"v{2 + 2 * i}"] = halves[i].view(np.uint32)[:, 0] if half else rng.permutation(values[i])
                seen = halves[i][:, sel >> i & 1].astype(np.float32) if half else vin[f"v{2 + 2 * i}"]
                args.append(modify(seen, bool(neg >> i & 1), bool(absolute >> i & 1)))
            srcs = [
                ("-" if neg >> i & 1 else "") + (f"|v{2 + 2 * i}|" if absolute >> i & 1 else f"v{2 + 2 * i}")
                for i in range(3)
            ]
            bits = lambda v: ",".join(str(v >> i & 1) for i in range(3))  # noqa: E731
            for clamp in (False, True):
                line = f"{name} v10, {', '.join(srcs)} op_sel:[{bits(sel)}] op_sel_hi:[{bits(sel_hi)}]"
                line += " clamp" if clamp else ""
                old = rng.integers(0, 1 << 32, len(values[0]), dtype=np.uint32)
                SUITE.add(
                    f"{name}-{k}{'-clamp' if clamp else ''}",
                    [line],
                    ["v10"],
                    lambda r, name=name, args=args, old=old, clamp=clamp: check_mix(
                        name, args, old, clamp, r["v10"][0]
                    ),
                    vin | {"v10": old},
                )


def check_mix(name: str, args: list[Array], old: Array, clamp: bool, full: Array) -> None:
    """The destination of v_fma_mix: a float, or a half beside the one that stays."""
    with np.errstate(all="ignore"):
        want: Any = fp.fma(*args)
        if name == "v_fma_mix_f32":
            same(full.view(np.float32), clamp01(want) if clamp else want, 0, args)
            return
        # One rounding to float16 or two: where they differ, either is accepted.
        wide = [a.astype(np.float64) for a in args]
        once = fp.to_odd_sum(wide[0] * wide[1], wide[2]).astype(np.float16)
        twice = want.astype(np.float16)
        if clamp:
            once, twice = clamp01(once), clamp01(twice)
    high = name == "v_fma_mixhi_f16"
    got = (full >> 16 if high else full & 0xFFFF).astype(np.uint16).view(np.float16)
    want16 = np.where(got.view(np.uint16) == twice.view(np.uint16), twice, once)
    same(got, want16, 0, args)
    other, before = (full & 0xFFFF, old & 0xFFFF) if high else (full >> 16, old >> 16)
    assert (other == before).all(), "the other half changed"


for _row in PACKED:
    _packed(_row.name, _row.kind, _row.count, _row.fn, _row.clamp)
_overlap()
_pk_mov()
_scalar_pair()
_dots()
_pk_fmac()
_mqsad()
_mix()


# LLVM takes clamp on no others.
_CLAMPED = {
    "v_dot2_f32_f16": "v_dot2_f32_f16 v10, v1, v1, v1 clamp",
    "v_dot2_f32_bf16": "v_dot2_f32_bf16 v10, v1, v1, v1 clamp",
    "v_dot2c_f32_f16": "v_dot2c_f32_f16_e64 v10, v1, v1 clamp",
}
_UNKNOWN = {
    name: [line]
    for name, line in _CLAMPED.items()
    if exists(name) and (name != "v_dot2_f32_f16" or GENERATION < 11) and legal([line]) == [True]
}
_KERNELS = Kernels(_UNKNOWN)


@pytest.mark.parametrize("name", _UNKNOWN)
def test_clamp_of_a_dot_product_of_floats(name: str) -> None:
    """Where nobody has asked a card, the launch stops, and says what is not known."""
    text = _KERNELS.finding(name)
    assert "clamp on a dot product of floats" in text, text
    assert "nobody has published" in text, text


@SUITE.parametrize()
def test_packed(case: Case) -> None:
    """Each part is computed from the right halves."""
    SUITE.check(case)
