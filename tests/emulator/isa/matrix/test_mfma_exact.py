# SPDX-License-Identifier: MIT OR Apache-2.0
"""Matrix instructions on any operands: against exact rational sums, and bit for bit in the order documented.

Two expectations for every element of D = A B + C, both computed here only from the operands' values:

- The exact sum, in integers of any length. Whoever rounds each of the K partial sums once, in whatever order,
  errs each time by at most u (1 + u)^K (|c| + sum |a b|), u = 2^-24 or 2^-53, or by half the smallest
  denormal; so K times that is the bound. Hardware, whose order AMD does not document, keeps it too.
- The device's own order (native/emulator/isa/matrix/mfma.h): s = c, then s = fma(a_k, b_k, s) for k
  ascending, rounded to nearest even: the same bits, except that all NaNs are one.

gfx90a: f16 and bf16 instructions flush denormals of their inputs and results to zero (MIOpen's documentation,
"MI200 MFMA behavior specifics"); here also those of partial sums. All else keeps them, whatever MODE says.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from inner import run_script

from ...support import fp, levels, rows
from ...support.asm import LANES, Case, Result, Suite
from ...support.fp import Array
from ...support.matrix import DTYPES, Shape, inputs, out_dtype, parse, registers, spread

SUITE = Suite("mfma_exact")
_MODES = {"kept": 0x3F0, "flushed": 0x300, "upwards": 0x3F5}  # MODE must not matter


def _bits(kind: str) -> Any:
    return np.dtype(f"u{np.dtype(DTYPES[kind]).itemsize}")


def edges(kind: str) -> Array:
    """Values of a type that deserve a test: denormals, the largest, infinities, NaNs, zeros of both signs."""
    table: dict[str, Array] = {
        "f16": fp.F16_EDGES,
        "bf16": np.unique(fp.F32_EDGES >> 16).astype(np.uint16),
        "f32": fp.F32_EDGES,
        "xf32": fp.F32_EDGES,
        "f64": fp.F64_EDGES,
        "fp8": np.arange(256, dtype=np.uint8),
        "bf8": np.arange(256, dtype=np.uint8),
    }
    return table[kind].view(DTYPES[kind])


def _any_bits(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Finite values of every exponent."""
    width = _bits(kind).itemsize * 8
    values = (
        rng.integers(0, 1 << width, shape, np.uint64, endpoint=False)
        if width < 64
        else (rng.integers(0, (1 << 64) - 1, shape, np.uint64, endpoint=True))
    )
    values = values.astype(_bits(kind)).view(DTYPES[kind])
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return np.where(np.isfinite(values), values, DTYPES[kind](1)).astype(DTYPES[kind])


def _narrow(kind: str, values: Array) -> Array:
    with np.errstate(all="ignore"):
        return values.astype(DTYPES[kind])


def _operands(s: Shape, label: str) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(sum(map(ord, s.name + label)))
    a_shape, b_shape, c_shape = (s.blocks, s.m, s.k), (s.blocks, s.k, s.m), (s.blocks, s.m, s.m)
    acc = "f64" if s.out == "f64" else "f32"
    if label == "any":
        return _any_bits(s.a, a_shape, rng), _any_bits(s.b, b_shape, rng), _any_bits(acc, c_shape, rng)
    if label == "edges":
        c = rng.choice(edges(acc), c_shape)
        # Mostly ordinary values, or every sum would be a NaN.
        a, b = (_narrow(kind, rng.normal(0, 4, shape)) for kind, shape in ((s.a, a_shape), (s.b, b_shape)))
        a = np.where(rng.random(a_shape) < 0.3, rng.choice(edges(s.a), a_shape), a)
        b = np.where(rng.random(b_shape) < 0.3, rng.choice(edges(s.b), b_shape), b)
        return a.astype(DTYPES[s.a]), b.astype(DTYPES[s.b]), c
    if label == "tiny":  # products and sums about the smallest normal number of the accumulator
        half = {"f16": -13, "bf16": -63, "f32": -63, "xf32": -63, "f64": -511}.get(s.a, -6)
        scale = {"f16": -28, "fp8": -14, "bf8": -14}.get(s.a, 2 * half)
        a = _narrow(s.a, rng.normal(0, 1, a_shape) * 2.0**half)
        b = _narrow(s.b, rng.normal(0, 1, b_shape) * 2.0**half)
        c = rng.normal(0, 1, c_shape) * 2.0 ** (
            scale if rng.random() < 0.5 else {"f64": -1023}.get(acc, -127)
        )
        return a, b, c.astype(DTYPES[acc])
    a, b = (_narrow(kind, rng.normal(0, 1, shape)) for kind, shape in ((s.a, a_shape), (s.b, b_shape)))
    c = rng.normal(0, 1, c_shape)
    if label == "cancel":  # c takes away nearly all of what the products add up to
        a = np.where(rng.random(a_shape) < 0.5, a * DTYPES[s.a](8), a).astype(DTYPES[s.a])
        with np.errstate(all="ignore"):
            c = -np.einsum("zmk,zkn->zmn", a.astype(np.float64), b.astype(np.float64)) * (1 + c * 2.0**-20)
    return a, b, c.astype(DTYPES[acc])


def widened(kind: str, x: Array, flush: bool) -> Array:
    """Return the values that the unit multiplies, as float64."""
    if kind == "xf32":  # to ten bits of fraction, nearest even
        bits = x.view(np.uint32)
        rounded = (bits + np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))) & np.uint32(0xFFFFE000)
        x = np.where(np.isfinite(x), rounded.view(np.float32), x)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        wide = x.astype(np.float64)
    if not flush:
        return wide
    smallest = float(ml_dtypes.finfo(x.dtype).smallest_normal)
    return np.where(np.abs(wide) < smallest, np.copysign(0.0, wide), wide)


def _step(a: Array, b: Array, s: Array, flush: bool) -> Array:
    """fma(a, b, s) in the type of s, rounded once."""
    with np.errstate(all="ignore"):
        if s.dtype == np.float64:
            return fp.fma(a, b, s)
        total = fp.to_odd_sum(a * b, s.astype(np.float64))  # the product of two f32 is exact in f64
        result = total.astype(np.float32)
    # Too small for f32 even if its exponent had no end: what "denormal result" means on x86 and in IEEE 754.
    tiny = flush & (np.abs(total) < 2.0**-126 - 2.0**-151)
    return np.where(tiny, np.copysign(np.float32(0), result), result)


def chain(s: Shape, a: Array, b: Array, c: Array, flush: bool) -> Array:
    """D in the documented order."""
    total = widened("f32", c, True).astype(c.dtype) if flush else c
    for k in range(s.k):
        shape = total.shape
        left, right = np.broadcast_to(a[:, :, k, None], shape), np.broadcast_to(b[:, None, k, :], shape)
        total = _step(left, right, total, flush)
    return total


def _integers(x: Array, power: int) -> Array:
    """x * 2^power as Python integers; what is not finite as 0."""
    fraction, exponent = np.frexp(np.where(np.isfinite(x), x, 0))
    whole = (fraction * 2.0**53).astype(np.int64).astype(object)
    shift = exponent.astype(int) - 53 + power
    assert not np.any((shift < 0) & (whole != 0) & (np.abs(shift) > 52))
    out = np.empty(x.shape, object)
    for i, (w, n) in enumerate(zip(whole.flat, shift.flat, strict=True)):
        out.flat[i] = int(w) << int(n) if n >= 0 else int(w) >> -int(n)
    return out


def beyond_bound(s: Shape, a: Array, b: Array, c: Array, got: Array, flush: bool) -> Array:
    """Elements further from the exact sum than K roundings allow."""
    half = 1074 + 52 if s.out == "f64" else 150  # 2^-half is a whole number of the smallest steps of a and b
    left, right, start = _integers(a, half), _integers(b, half), _integers(c, 2 * half)
    exact = np.stack([x @ y for x, y in zip(left, right, strict=True)]) + start
    size = np.stack([abs(x) @ abs(y) for x, y in zip(left, right, strict=True)]) + abs(start)
    bits = 53 if s.out == "f64" else 24
    smallest = -1074 if s.out == "f64" else -149
    # (1 + u)^K < 2; a flushed partial sum or result loses at most the smallest normal number.
    lost = 1 << (2 * half + smallest + bits - 1 if flush else 2 * half + smallest - 1)
    bound = s.k * (size >> (bits - 1)) + (s.k + 1) * lost + s.k
    largest = int(np.finfo(got.dtype).max) << 2 * half
    finite = np.isfinite(a).all(-1)[:, :, None] & np.isfinite(b).all(-2)[:, None, :] & np.isfinite(c)
    wrong = np.zeros(got.shape, bool)
    for at in np.argwhere(finite & (size < largest).astype(bool)):
        i = tuple(at)
        value = _integers(got[i].astype(np.float64).reshape(1), 2 * half)[0] if np.isfinite(got[i]) else None
        wrong[i] = value is None or abs(value - exact[i]) > bound[i]
    return wrong


def _unspread(s: Shape, lanes: Array) -> Array:
    """The matrix whose registers are these: (lanes, registers)."""
    where = spread(s, np.arange(s.blocks * s.m * s.m).reshape(s.blocks, s.m, s.m))
    out = np.empty(s.blocks * s.m * s.m, lanes.dtype)
    out[where] = lanes
    return out.reshape(s.blocks, s.m, s.m)


def _add(s: Shape, label: str, mode: int) -> None:
    a, b, c = _operands(s, label)
    flush = rows.arch() == "gfx90a" and s.a in ("f16", "bf16")
    wide_a, wide_b = widened(s.a, a, flush), widened(s.b, b, flush)
    acc = "f64" if s.out == "f64" else "f32"
    d_reg = registers(s, "v", 64, s.registers, acc)
    names = [registers(s, "v", 2, s.per_lane, s.a), registers(s, "v", 12, s.per_lane, s.b)]
    names.append(registers(s, "v", 24, s.registers, acc))

    def check(result: Result) -> None:
        got = _unspread(s, np.ascontiguousarray(result[d_reg].T).view(out_dtype(s)))
        want = chain(s, wide_a, wide_b, c, flush)
        same = (got.view(_bits(acc)) == want.view(_bits(acc))) | np.isnan(got) & np.isnan(want)
        assert same.all(), _first(same, got, want)
        start = widened(acc, c, flush)
        far = beyond_bound(s, wide_a, wide_b, start, got, flush)
        assert not far.any(), _first(~far, got, want)

    vin = {
        names[0]: inputs(s, "a", a),
        names[1]: inputs(s, "b", b),
        names[2]: np.ascontiguousarray(spread(s, c).view(np.uint32).reshape(LANES, -1).T),
    }
    line = f"{s.name} {d_reg}, {', '.join(names)}"
    SUITE.add(
        f"{s.name}-{label}",
        ["s_nop 4", line, "s_nop 7", "s_nop 7", "s_nop 7"],
        [d_reg],
        check,
        vin,
        {"mode": mode},
        covers=[s.name],
    )


def _first(good: Array, got: Array, want: Array) -> str:
    at = tuple(np.argwhere(~good)[0])
    return f"{(~good).sum()} of {good.size}, first {at}: got {got[at].hex()}, expected {want[at].hex()}"


for _name in sorted(n for n in rows.names() if n.startswith("v_mfma")):
    _shape = parse(_name)
    if _shape is None or _shape.out == "i32":
        continue  # test_coverage reports the one; integers are exact in test_mfma
    for _label, _mode in zip(
        ("ordinary", "any", "edges", "tiny", "cancel"), [*_MODES.values(), 0x3F0, 0x300], strict=True
    ):
        _add(_shape, _label, _mode)


@SUITE.parametrize()
def test_mfma_exact(case: Case) -> None:
    """The documented order's bits, within the bound of any order."""
    SUITE.check(case)


@pytest.mark.parametrize("level", ["2", "3"])
def test_older_cpus(level: str) -> None:
    """The copies of the interpreter for CPUs without AVX-512 and without FMA give the same bits."""
    levels.require(level)
    script = """
import sys, pytest
sys.exit(pytest.main(["-q", "-pno:cacheprovider", "-pno:xdist", "--tb=short", "-knot older", sys.argv[1]]))
"""
    assert " passed" in run_script(script, __file__, env={"FMHA_EMU_LEVEL": level})
