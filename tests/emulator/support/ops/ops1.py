# SPDX-License-Identifier: MIT OR Apache-2.0
"""Models of the one-source vector instructions (VOP1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import fp
from ..fp import Array
from ..spelling import GENERATION
from .valu import NO_MODS, NO_MODS_OUT, Op, op


def to_int(lo: int, hi: int, dtype: Any) -> Callable[[Array], Array]:
    """Float to integer: toward zero, saturating, NaN to 0."""

    def fn(x: Array) -> Array:
        wide = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=1e300, neginf=-1e300))
        return np.clip(wide, lo, hi).astype(np.int64).astype(dtype)

    return fn


I32 = to_int(-(1 << 31), (1 << 31) - 1, np.int32)
U32 = to_int(0, (1 << 32) - 1, np.uint32)
I16 = to_int(-(1 << 15), (1 << 15) - 1, np.int16)
U16 = to_int(0, (1 << 16) - 1, np.uint16)


def free_where(mask: Array, x: Array) -> Any:
    """`x` with the lanes in `mask` left unchecked: the manual does not say."""
    return np.ma.array(x, mask=mask)


def denormal(x: Array) -> Array:
    """Denormal numbers other than 0."""
    return (np.abs(x.astype(np.float64)) < float(np.finfo(x.dtype).tiny)) & (x != 0)


def transcendental(
    fn: Callable[[Array], Array], dtype: Any, denormals: bool = False
) -> Callable[[Array], Any]:
    """Result in float64 (compared within an ulp); f32's units have no denormals, so those are left free."""

    def wrapped(x: Array) -> Any:
        want = fn(x.astype(np.float64))
        narrow = want.astype(dtype)
        want = np.where(np.isfinite(narrow), want, narrow)
        return want if denormals else free_where(denormal(x) | denormal(narrow), want)

    return wrapped


def first_bit(x: Array, from_top: bool) -> Array:
    """Distance of the first one bit from the top or bottom end, -1 if none."""
    out = np.full(x.shape, -1, np.int32)
    for distance in range(31, -1, -1):
        bit = 31 - distance if from_top else distance
        out = np.where(x >> np.uint32(bit) & 1 == 1, distance, out).astype(np.int32)
    return out


def ffbh_i32(x: Array) -> Array:
    """Distance from the top of the first bit unlike the sign bit, -1 if none."""
    sign_removed = np.where(x.view(np.int32) < 0, ~x, x).astype(np.uint32)
    return first_bit(sign_removed, True)


def reverse_bits(x: Array) -> Array:
    """Bits mirrored."""
    out = np.zeros_like(x)
    for i in range(32):
        out |= (x >> np.uint32(i) & np.uint32(1)) << np.uint32(31 - i)
    return out


def frexp_mant(x: Array) -> Array:
    """Fraction in [0.5, 1), of special values themselves."""
    mantissa = np.frexp(x.astype(np.float64))[0].astype(x.dtype)
    return np.where(np.isfinite(x), mantissa, x).astype(x.dtype)


def frexp_exp(dtype: Any) -> Callable[[Array], Array]:
    """Exponent of frexp; 0 for infinities and NaN."""

    def fn(x: Array) -> Array:
        return np.where(np.isfinite(x), np.frexp(x.astype(np.float64))[1], 0).astype(dtype)

    return fn


def fract(x: Array) -> Array:
    """x - floor(x), kept below 1 (the largest number under 1 for tiny negative x)."""
    below = np.nextafter(x.dtype.type(1), x.dtype.type(0))
    exact = (x - np.floor(x)).astype(x.dtype)
    return np.where(np.isnan(exact), exact, np.minimum(exact, below)).astype(x.dtype)


def sin_turns(fn: Callable[[Array], Array], outside: float) -> Callable[[Array], Any]:
    """sin or cos of x turns. Lanes outside +-256, and exact zeros of the function, are free."""

    def wrapped(x: Array) -> Any:
        turns = x.astype(np.float64)
        value = fn(np.fmod(turns, 1.0) * (2 * np.pi))
        exact_zero = np.abs(value) < 1e-9
        value = np.where(exact_zero, 0.0, value)
        value = np.where(np.abs(turns) > 256, outside, value)
        value = np.where(np.isfinite(turns), value, np.nan)
        return free_where(denormal(x) | exact_zero | (np.abs(turns) > 256), value)

    return wrapped


def cvt_f16(x: Array) -> Array:
    """float32 to float16, nearest even."""
    return x.astype(np.float16)


def norm16(signed: bool) -> Callable[[Array], Any]:
    """Float to a normalised 16-bit integer, nearest even; what float32 takes for a tie is free."""

    def fn(x: Array) -> Any:
        wide = np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=2, neginf=-2)
        scaled = np.clip(wide, -1 if signed else 0, 1) * (32767 if signed else 65535)
        result = np.rint(scaled).astype(np.int64).astype(np.int16 if signed else np.uint16)
        return free_where(np.abs(np.abs(scaled - np.trunc(scaled)) - 0.5) < 2.0**-7, result)

    return fn


def sat_pk_u8(x: Array) -> Array:
    """Two i16 to two saturated bytes."""
    lo = np.clip((x & 0xFFFF).astype(np.uint16).view(np.int16), 0, 255).astype(np.uint32)
    hi = np.clip((x >> 16).astype(np.uint16).view(np.int16), 0, 255).astype(np.uint32)
    return lo | hi << np.uint32(8)


def pk_f32(table: Array) -> Callable[[Array], Any]:
    """Two 8-bit floats to two float32; the sign of a NaN is free."""

    def fn(x: Array) -> Any:
        pair = np.stack([table[x & 255], table[x >> 8 & 255]], 1).astype(np.float32)
        return free_where(np.isnan(pair).any(1), np.ascontiguousarray(pair).view(np.uint64)[:, 0])

    return fn


def unary(fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """The same type out as in."""
    return lambda x: fn(x).astype(x.dtype)


def _rounded_up(x: Array) -> Any:
    """floor(x + 0.5); where the addition itself rounds the manual is unclear."""
    exact = x.astype(np.float64) + 0.5
    return free_where(
        np.isfinite(x) & ((x + np.float32(0.5)).astype(np.float64) != exact), I32(np.floor(exact))
    )


def _legacy_rsq(x: Array) -> Array:
    with np.errstate(all="ignore"):
        return 1.0 / np.sqrt(x)


VOP1: list[Op] = [
    op("v_mov_b32", "u32", "u32", lambda x: x),
    op("v_mov_b64", "u64", "u64", lambda x: x),
    op("v_cvt_i32_f64", "i32", "f64", I32, NO_MODS_OUT),
    op("v_cvt_u32_f64", "u32", "f64", U32, NO_MODS_OUT),
    op("v_cvt_f64_i32", "f64", "i32", lambda x: x.astype(np.float64)),
    op("v_cvt_f64_u32", "f64", "u32", lambda x: x.astype(np.float64)),
    op("v_cvt_f32_i32", "f32", "i32", lambda x: x.astype(np.float32)),
    op("v_cvt_f32_u32", "f32", "u32", lambda x: x.astype(np.float32)),
    op("v_cvt_u32_f32", "u32", "f32", U32, NO_MODS_OUT),
    op("v_cvt_i32_f32", "i32", "f32", I32, NO_MODS_OUT),
    op("v_cvt_f16_f32", "f16", "f32", cvt_f16),
    op("v_cvt_f32_f16", "f32", "f16", lambda x: x.astype(np.float32)),
    op("v_cvt_rpi_i32_f32", "i32", "f32", _rounded_up, NO_MODS_OUT),
    op("v_cvt_flr_i32_f32", "i32", "f32", lambda x: I32(np.floor(x)), NO_MODS_OUT),
    op(
        "v_cvt_off_f32_i4",
        "f32",
        "u32",
        lambda x: (((x & 15) ^ 8).astype(np.int32) - 8).astype(np.float32) / 16,
    ),
    op("v_cvt_f32_f64", "f32", "f64", lambda x: x.astype(np.float32)),
    op("v_cvt_f64_f32", "f64", "f32", lambda x: x.astype(np.float64)),
    *(
        op(
            f"v_cvt_f32_ubyte{i}",
            "f32",
            "u32",
            lambda x, i=i: (x >> np.uint32(8 * i) & 255).astype(np.float32),
        )
        for i in range(4)
    ),
    *(
        op(f"v_{name}_{t}", t, t, unary(fn))
        for t in ("f16", "f32", "f64")
        for name, fn in (("trunc", np.trunc), ("ceil", np.ceil), ("rndne", np.rint), ("floor", np.floor))
    ),
    *(op(f"v_fract_{t}", t, t, fract) for t in ("f16", "f32", "f64")),
    op("v_exp_f32", "f32", "f32", transcendental(np.exp2, np.float32), ulp=1),
    op("v_log_f32", "f32", "f32", transcendental(np.log2, np.float32), ulp=1),
    op("v_exp_legacy_f32", "f32", "f32", transcendental(np.exp2, np.float32), ulp=1),
    op("v_log_legacy_f32", "f32", "f32", transcendental(np.log2, np.float32), ulp=1),
    op("v_rcp_f32", "f32", "f32", transcendental(lambda x: 1 / x, np.float32), ulp=1),
    op("v_rcp_iflag_f32", "f32", "f32", transcendental(lambda x: 1 / x, np.float32), ulp=1),
    op("v_rsq_f32", "f32", "f32", transcendental(_legacy_rsq, np.float32), ulp=1),
    op("v_sqrt_f32", "f32", "f32", transcendental(np.sqrt, np.float32), ulp=1),
    op("v_sin_f32", "f32", "f32", sin_turns(np.sin, 0.0), ulp=1),
    op("v_cos_f32", "f32", "f32", sin_turns(np.cos, 1.0), ulp=1),
    op("v_rcp_f64", "f64", "f64", transcendental(lambda x: 1 / x, np.float64), ulp=1),
    op("v_rsq_f64", "f64", "f64", transcendental(_legacy_rsq, np.float64), ulp=2),
    op("v_sqrt_f64", "f64", "f64", transcendental(np.sqrt, np.float64), ulp=1),
    op("v_rcp_f16", "f16", "f16", transcendental(lambda x: 1 / x, np.float16, True), ulp=1),
    op("v_rsq_f16", "f16", "f16", transcendental(_legacy_rsq, np.float16, True), ulp=1),
    op("v_sqrt_f16", "f16", "f16", transcendental(np.sqrt, np.float16, True), ulp=1),
    op("v_log_f16", "f16", "f16", transcendental(np.log2, np.float16, True), ulp=1),
    op("v_exp_f16", "f16", "f16", transcendental(np.exp2, np.float16, True), ulp=1),
    op("v_sin_f16", "f16", "f16", sin_turns(np.sin, 0.0), ulp=1),
    op("v_cos_f16", "f16", "f16", sin_turns(np.cos, 1.0), ulp=1),
    op("v_not_b32", "u32", "u32", lambda x: ~x),
    op("v_bfrev_b32", "u32", "u32", reverse_bits),
    op("v_ffbh_u32", "i32", "u32", lambda x: first_bit(x, True)),
    op("v_ffbl_b32", "i32", "u32", lambda x: first_bit(x, False)),
    op("v_ffbh_i32", "i32", "u32", ffbh_i32),
    op("v_frexp_exp_i32_f64", "i32", "f64", frexp_exp(np.int32), NO_MODS_OUT),
    op("v_frexp_exp_i32_f32", "i32", "f32", frexp_exp(np.int32), NO_MODS_OUT),
    op("v_frexp_exp_i16_f16", "i16", "f16", frexp_exp(np.int16), NO_MODS_OUT),
    *(op(f"v_frexp_mant_{t}", t, t, frexp_mant) for t in ("f16", "f32", "f64")),
    op("v_cvt_f16_u16", "f16", "u16", lambda x: x.astype(np.float32).astype(np.float16)),
    op("v_cvt_f16_i16", "f16", "i16", lambda x: x.astype(np.float32).astype(np.float16)),
    op("v_cvt_u16_f16", "u16", "f16", U16, NO_MODS_OUT),
    op("v_cvt_i16_f16", "i16", "f16", I16, NO_MODS_OUT),
    op("v_cvt_norm_i16_f16", "i16", "f16", norm16(True), NO_MODS_OUT),
    op("v_cvt_norm_u16_f16", "u16", "f16", norm16(False), NO_MODS_OUT),
    op("v_sat_pk_u8_i16", "u16" if GENERATION > 10 else "u32", "u32", sat_pk_u8),
    op("v_cvt_f32_fp8", "f32", "u32", lambda x: fp.FP8_VALUES[x & 255], NO_MODS),
    op("v_cvt_f32_bf8", "f32", "u32", lambda x: fp.BF8_VALUES[x & 255], NO_MODS),
    op("v_cvt_pk_f32_fp8", "pf32", "u32", pk_f32(fp.FP8_VALUES), NO_MODS),
    op("v_cvt_pk_f32_bf8", "pf32", "u32", pk_f32(fp.BF8_VALUES), NO_MODS),
]
