# SPDX-License-Identifier: MIT OR Apache-2.0
"""Models of the two-source vector instructions (VOP2). Those with carries are in test_carry.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import fp
from ..fp import Array
from ..spelling import GENERATION
from .valu import ARITH, KEEPS_HIGH, READS_DST, Op, op


def sat(dtype: Any, fn: Callable[..., Array]) -> Callable[..., Array]:
    """Computed exactly, then saturated to `dtype`."""
    info = np.iinfo(dtype)

    def wrapped(*a: Array) -> Array:
        exact = fn(*(x.astype(object) for x in a))
        return np.array([min(max(int(v), info.min), info.max) for v in exact], dtype)

    return wrapped


def i24(x: Array) -> Array:
    """The low 24 bits, sign-extended to 64."""
    return ((x.astype(np.int64) & 0xFFFFFF) ^ 0x800000) - 0x800000


def u24(x: Array) -> Array:
    """The low 24 bits."""
    return x.astype(np.uint64) & np.uint64(0xFFFFFF)


def minmax(smaller: bool) -> Callable[[Array, Array], Array]:
    """v_min/v_max with IEEE set: a signalling NaN comes out quiet; else a NaN loses to a number; -0 < +0.

    gfx12 has no such mode: there every NaN loses (RDNA4's guide, V_MIN_NUM_F32).
    """

    def fn(a: Array, b: Array) -> Array:
        pick = np.where(
            np.isnan(a), b, np.where(np.isnan(b), a, np.minimum(a, b) if smaller else np.maximum(a, b))
        )
        zeros = (a == 0) & (b == 0)
        sign = (np.signbit(a) | np.signbit(b)) if smaller else (np.signbit(a) & np.signbit(b))
        pick = np.where(zeros, np.where(sign, -0.0, 0.0), pick).astype(a.dtype)
        if GENERATION == 12:
            return pick
        pick = np.where(fp.is_signalling(b), fp.quiet(b), pick)
        return np.where(fp.is_signalling(a), fp.quiet(a), pick).astype(a.dtype)

    return fn


def shift(x: Array, by: Array, left: bool) -> Array:
    """Shift by the low bits of `by`, as many as the width needs."""
    bits = x.dtype.itemsize * 8
    count = by.astype(x.dtype) & x.dtype.type(bits - 1)
    return (x << count if left else x >> count).astype(x.dtype)


def mul_hi(a: Array, b: Array, bits: int = 32) -> Array:
    """High half of a product."""
    return np.array([(int(x) * int(y)) >> bits for x, y in zip(a, b, strict=True)], object)


def _u32(values: Array) -> Array:
    return np.array([int(v) & 0xFFFFFFFF for v in values], np.uint32)


def ldexp16(x: Array, e: Array) -> Array:
    """x * 2**e, rounded once."""
    return ldexp(x, e.astype(np.int16).astype(np.int32))


def ldexp(x: Array, e: Array) -> Array:
    """x * 2**e, rounded once: through steps that stay exact until the last."""
    if x.dtype != np.float64:
        return np.ldexp(x.astype(np.float64), np.clip(e, -400, 400)).astype(x.dtype)
    return np.ldexp(x, np.clip(e, -2200, 2200))


def mul_legacy(a: Array, b: Array) -> Array:
    """0 times anything is 0."""
    return np.where((a == 0) | (b == 0), a.dtype.type(0), a * b).astype(a.dtype)


_F = ("f16", "f32")
_S16, _S32 = "i16", "i32"

VOP2: list[Op] = [
    *(
        op(f"v_{n}_{t}", t, f"{t} {t}", fn, ARITH)
        for t in _F
        for n, fn in (
            ("add", lambda a, b: a + b),
            ("sub", lambda a, b: a - b),
            ("subrev", lambda a, b: b - a),
            ("mul", lambda a, b: a * b),
        )
    ),
    *(op(f"v_{n}_{t}", t, f"{t} {t}", minmax(n == "min")) for t in _F for n in ("min", "max")),
    op("v_mul_legacy_f32", "f32", "f32 f32", mul_legacy),
    op("v_mul_i32_i24", "u32", "u32 u32", lambda a, b: (i24(a) * i24(b)).astype(np.uint32)),
    op("v_mul_hi_i32_i24", "u32", "u32 u32", lambda a, b: (i24(a) * i24(b) >> 32).astype(np.uint32)),
    op("v_mul_u32_u24", "u32", "u32 u32", lambda a, b: (u24(a) * u24(b)).astype(np.uint32)),
    op(
        "v_mul_hi_u32_u24",
        "u32",
        "u32 u32",
        lambda a, b: (u24(a) * u24(b) >> np.uint64(32)).astype(np.uint32),
    ),
    *(
        op(f"v_{n}_{t}", t, f"{t} {t}", np.minimum if n == "min" else np.maximum)
        for t in ("i32", "u32", "i16", "u16")
        for n in ("min", "max")
    ),
    op("v_lshrrev_b32", "u32", "u32 u32", lambda s, x: shift(x, s, False)),
    op("v_ashrrev_i32", "i32", "u32 i32", lambda s, x: shift(x, s, False)),
    op("v_lshlrev_b32", "u32", "u32 u32", lambda s, x: shift(x, s, True)),
    op("v_lshrrev_b16", "u16", "u16 u16", lambda s, x: shift(x, s, False)),
    op("v_ashrrev_i16", "i16", "u16 i16", lambda s, x: shift(x, s, False)),
    op("v_lshlrev_b16", "u16", "u16 u16", lambda s, x: shift(x, s, True)),
    op("v_and_b32", "u32", "u32 u32", lambda a, b: a & b),
    op("v_or_b32", "u32", "u32 u32", lambda a, b: a | b),
    op("v_xor_b32", "u32", "u32 u32", lambda a, b: a ^ b),
    op("v_xnor_b32", "u32", "u32 u32", lambda a, b: ~(a ^ b)),
    op("v_add_u32", "u32", "u32 u32", lambda a, b: a + b, clamp=sat(np.uint32, lambda a, b: a + b)),
    op("v_sub_u32", "u32", "u32 u32", lambda a, b: a - b, clamp=sat(np.uint32, lambda a, b: a - b)),
    op("v_subrev_u32", "u32", "u32 u32", lambda a, b: b - a, clamp=sat(np.uint32, lambda a, b: b - a)),
    op("v_add_u16", "u16", "u16 u16", lambda a, b: a + b, clamp=sat(np.uint16, lambda a, b: a + b)),
    op("v_sub_u16", "u16", "u16 u16", lambda a, b: a - b, clamp=sat(np.uint16, lambda a, b: a - b)),
    op("v_subrev_u16", "u16", "u16 u16", lambda a, b: b - a, clamp=sat(np.uint16, lambda a, b: b - a)),
    op("v_mul_lo_u16", "u16", "u16 u16", lambda a, b: a * b),
    op("v_ldexp_f16", "f16", "f16 i16", ldexp16),
    op("v_fmac_f32", "f32", "f32 f32", fp.fma, READS_DST, ARITH),
    op("v_fmac_f64", "f64", "f64 f64", fp.fma, READS_DST),
    op("v_fmac_f16", "f16", "f16 f16", fp.fma, READS_DST, KEEPS_HIGH),
    # The unfused multiply-adds round twice and never see denormals; the values here leave them out.
    op("v_dot2c_i32_i16", "u32", "u32 u32", lambda a, b, d: _dot(a, b, d, np.int16), READS_DST),
    op("v_dot4c_i32_i8", "u32", "u32 u32", lambda a, b, d: _dot(a, b, d, np.int8), READS_DST),
    op(
        "v_dot8c_i32_i4",
        "u32",
        "u32 u32",
        lambda a, b, d: _u32(d.astype(np.int64) + _dot_nibbles(a, b)),
        READS_DST,
    ),
]


def _dot(a: Array, b: Array, d: Array, part: Any) -> Array:
    count = 4 // np.dtype(part).itemsize
    x, y = (np.ascontiguousarray(v).view(part).reshape(-1, count).astype(np.int64) for v in (a, b))
    return _u32((x * y).sum(1) + d.astype(np.int64))


def _dot_nibbles(a: Array, b: Array) -> Array:
    total = np.zeros(a.shape, np.int64)
    for i in range(8):
        x, y = (((v.astype(np.int64) >> (4 * i) & 15) ^ 8) - 8 for v in (a, b))
        total += x * y
    return total
