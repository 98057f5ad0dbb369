# SPDX-License-Identifier: MIT OR Apache-2.0
"""Number formats: edge values, exact rounding, fused multiply-add. Nothing here knows the software device."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from . import rows

Array = NDArray[Any]

DTYPES: dict[str, Any] = {
    "i16": np.int16,
    "u16": np.uint16,
    "f16": np.float16,
    "i32": np.int32,
    "u32": np.uint32,
    "f32": np.float32,
    "i64": np.int64,
    "u64": np.uint64,
    "f64": np.float64,
    "pi16": np.uint32,
    "pf16": np.uint32,
    "pf32": np.uint64,  # packed: seen as bits
}

F32_EDGES = np.array(
    [
        0x00000000,
        0x80000000,
        0x00000001,
        0x80000001,
        0x007FFFFF,
        0x00800000,
        0x80800000,
        0x33800000,
        0x3F000000,
        0x3F800000,
        0xBF800000,
        0x3FC00000,
        0xC0200000,
        0x40490FDB,
        0x4B000001,
        0x4EFFFFFF,
        0x4F000000,
        0xCF000000,
        0x4F7FFFFF,
        0x4F800000,
        0x7F7FFFFF,
        0xFF7FFFFF,
        0x7F800000,
        0xFF800000,
        0x7FC00000,
        0xFFC12345,
        0x7F812345,
    ],
    np.uint32,
)
F16_EDGES = np.array(
    [
        0x0000,
        0x8000,
        0x0001,
        0x8001,
        0x03FF,
        0x0400,
        0x8400,
        0x1400,
        0x3800,
        0x3C00,
        0xBC00,
        0x3E00,
        0xC100,
        0x4248,
        0x6401,
        0x77FF,
        0x7800,
        0xF800,
        0x7BFF,
        0xFBFF,
        0x7C00,
        0xFC00,
        0x7E00,
        0xFE12,
        0x7D12,
    ],
    np.uint16,
)
F64_EDGES = np.array(
    [
        0,
        1 << 63,
        1,
        (1 << 63) | 1,
        0x000FFFFFFFFFFFFF,
        0x0010000000000000,
        0x3FE0000000000000,
        0x3FF0000000000000,
        0xBFF0000000000000,
        0x3FF8000000000000,
        0xC004000000000000,
        0x400921FB54442D18,
        0x41DFFFFFFFC00000,
        0x41E0000000000000,
        0xC1E0000000000000,
        0x41EFFFFFFFE00000,
        0x41F0000000000000,
        0x36A0000000000001,
        0x47EFFFFFE0000000,
        0x47EFFFFFF0000000,
        0x7FEFFFFFFFFFFFFF,
        0xFFEFFFFFFFFFFFFF,
        0x7FF0000000000000,
        0xFFF0000000000000,
        0x7FF8000000000000,
        0xFFF8000012345678,
        0x7FF0000012345678,
    ],
    np.uint64,
)
I32_EDGES = np.array(
    [
        0,
        1,
        2,
        3,
        4,
        5,
        7,
        15,
        16,
        23,
        24,
        31,
        32,
        33,
        63,
        64,
        255,
        0x7FFF,
        0x8000,
        0xFFFF,
        0x10000,
        0x7FFFFF,
        0x800000,
        0xFFFFFF,
        0x1000000,
        0x12345678,
        0x7FFFFFFF,
        0x80000000,
        0x80000001,
        0xFFFF0000,
        0xFFFFFF80,
        0xFFFFFFFF,
        0xFFFFFFFE,
    ],
    np.uint32,
)
I16_EDGES = np.array(
    [
        0,
        1,
        2,
        7,
        15,
        16,
        17,
        31,
        32,
        127,
        128,
        255,
        256,
        0x1234,
        0x7FFF,
        0x8000,
        0x8001,
        0xFF80,
        0xFFFE,
        0xFFFF,
    ],
    np.uint16,
)
I64_EDGES = np.array(
    [
        0,
        1,
        31,
        32,
        63,
        64,
        0x7FFFFFFF,
        0x80000000,
        0xFFFFFFFF,
        0x100000000,
        0x123456789ABCDEF0,
        0x7FFFFFFFFFFFFFFF,
        0x8000000000000000,
        0xFFFFFFFF00000000,
        0xFFFFFFFFFFFFFFFF,
    ],
    np.uint64,
)


def edges(kind: str) -> Array:
    """Values of a type that deserve a test, as unsigned bits."""
    table = {
        "f32": F32_EDGES,
        "f16": F16_EDGES,
        "f64": F64_EDGES,
        "i32": I32_EDGES,
        "u32": I32_EDGES,
        "i16": I16_EDGES,
        "u16": I16_EDGES,
        "i64": I64_EDGES,
        "u64": I64_EDGES,
    }
    if kind in table:
        return table[kind]
    if kind == "pf32":
        return (F32_EDGES[::-1].astype(np.uint64) << np.uint64(32)) | F32_EDGES
    half = F16_EDGES if kind == "pf16" else I16_EDGES
    return (half[::-1].astype(np.uint32) << np.uint32(16)) | half


def random_bits(kind: str, count: int, rng: np.random.Generator) -> Array:
    """Random values of a type, as bits: floats of ordinary size mostly, any bits sometimes."""
    width = np.dtype(DTYPES[kind]).itemsize * 8
    anything = (
        rng.integers(0, 1 << width, count, np.uint64, endpoint=False)
        if width < 64
        else rng.integers(0, (1 << 64) - 1, count, np.uint64, endpoint=True)
    )
    bits = anything.astype(f"u{width // 8}")
    if kind in ("f16", "f32", "f64"):
        sane = rng.normal(0, 8, count).astype(DTYPES[kind]).view(bits.dtype)
        return np.where(rng.random(count) < 0.75, sane, bits)
    if kind == "pf32":
        return rng.normal(0, 8, (count, 2)).astype(np.float32).view(np.uint64)[:, 0]
    if kind == "pf16":
        return rng.normal(0, 8, (count, 2)).astype(np.float16).view(np.uint32)[:, 0]
    return bits


def lanes_of(kinds: Sequence[str], seed: int = 1, limit: int = 1024) -> list[Array]:
    """Operands: all pairs of edges (samples of all triples), filled with random values to whole waves."""
    rng = np.random.default_rng(seed)
    sets = [edges(k) for k in kinds]
    total = int(np.prod([len(s) for s in sets])) if sets else 1
    if total <= limit - 64:
        grids = [g.ravel() for g in np.meshgrid(*sets, indexing="ij")]
    else:
        grids = [rng.choice(s, limit - 128) for s in sets]
    count = -(-(len(grids[0]) + 32) // 64) * 64
    return [
        np.concatenate([g, random_bits(k, count - len(g), rng).astype(g.dtype)]).view(DTYPES[k])
        for g, k in zip(grids, kinds, strict=True)
    ]


_libm = ctypes.CDLL(ctypes.util.find_library("m"))
_libm.fma.restype, _libm.fma.argtypes = ctypes.c_double, [ctypes.c_double] * 3
_libm.fmaf.restype, _libm.fmaf.argtypes = ctypes.c_float, [ctypes.c_float] * 3
_fma64: Callable[..., Array] = np.vectorize(_libm.fma, otypes=[np.float64])
_fma32: Callable[..., Array] = np.vectorize(_libm.fmaf, otypes=[np.float32])


def fma(a: Array, b: Array, c: Array) -> Array:
    """a*b + c with one rounding, by the C library; f16 through float64 rounded to odd."""
    if a.dtype == np.float64:
        return _fma64(a, b, c)
    if a.dtype == np.float32:
        return _fma32(a, b, c)
    with np.errstate(all="ignore"):
        return to_odd_sum(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)).astype(
            np.float16
        )


def to_odd_sum(p: Array, c: Array) -> Array:
    """p + c in float64 rounded to odd: a second rounding to a narrower type is then the right single one."""
    with np.errstate(all="ignore"):
        s = p + c
        t = s - p
        error = (p - (s - t)) + (c - t)
        bits = s.view(np.int64).copy()
        fix = np.isfinite(s) & (error != 0) & (bits & 1 == 0)
        toward = np.where((error > 0) == (s > 0), 1, -1)
        bits[fix] += toward[fix]
    return bits.view(np.float64)


def flush(x: Array) -> Array:
    """Denormals to zero of the same sign."""
    tiny = np.finfo(x.dtype).tiny
    return np.where(np.abs(x) < tiny, np.copysign(np.zeros_like(x), x), x)


def quiet(x: Array) -> Array:
    """NaNs made quiet, all else unchanged."""
    bit = {2: 1 << 9, 4: 1 << 22, 8: 1 << 51}[x.dtype.itemsize]
    bits = x.view(f"u{x.dtype.itemsize}")
    return np.where(np.isnan(x), bits | bits.dtype.type(bit), bits).view(x.dtype)


def is_signalling(x: Array) -> Array:
    """NaNs whose quiet bit is clear."""
    bit = {2: 1 << 9, 4: 1 << 22, 8: 1 << 51}[x.dtype.itemsize]
    bits = x.view(f"u{x.dtype.itemsize}")
    return np.isnan(x) & (bits & bits.dtype.type(bit) == 0)


def ulps(x: Array, dtype: Any) -> Array:
    """Distance between numbers of `dtype` at |x|, at least that of denormals."""
    info = np.finfo(dtype)
    magnitude = np.maximum(np.abs(np.asarray(x, np.float64)), float(info.tiny))
    with np.errstate(all="ignore"):
        return np.exp2(np.floor(np.log2(magnitude)) - info.nmant)


def _fp8(dtype: Any) -> Array:
    return np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)


# gfx942's 8-bit floats are the "fnuz" kind: one NaN (0x80), no infinities, no minus zero. Those of gfx950
# and gfx12 are OCP's.
_OCP = rows.arch() in ("gfx950", "gfx1201")
FP8: Any = ml_dtypes.float8_e4m3fn if _OCP else ml_dtypes.float8_e4m3fnuz
BF8: Any = ml_dtypes.float8_e5m2 if _OCP else ml_dtypes.float8_e5m2fnuz
FP8_VALUES = _fp8(FP8)
BF8_VALUES = _fp8(BF8)
