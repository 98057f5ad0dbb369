# SPDX-License-Identifier: MIT OR Apache-2.0
"""Models of every row of the vector ALU: the tables of the tests, and the rows outside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np

from .. import fp, rows
from ..asm import LANES
from ..fp import Array
from .ops1 import VOP1
from .ops2 import VOP2, i24, sat, u24
from .ops3 import VOP3_OPS, absdiff, sad
from .predicates import compares
from .valu import ARITH, FLOATS, NO_MODS_OUT, READS_DST, Op, op

# More flags of an Op. Its function gives the exact result in int64 or Python integers; the carry is what does
# not fit.
CARRY_OUT = "carry_out"
MASK_IN = "mask_in"  # the function's last argument is a bool a lane


def unfused(a: Array, b: Array, c: Array) -> Array:
    """Product rounded, then the sum; denormals are zeros throughout, as v_mad_f32 has it."""
    a, b, c = (fp.flush(v) for v in (a, b, c))
    return fp.flush((fp.flush((a * b).astype(a.dtype)) + c).astype(a.dtype))


def unfused_legacy(a: Array, b: Array, c: Array) -> Array:
    """Unfused, and zero times anything is +0."""
    a, b, c = (fp.flush(v) for v in (a, b, c))
    product = np.where((a == 0) | (b == 0), np.float32(0), fp.flush((a * b).astype(np.float32)))
    return fp.flush((product + c).astype(np.float32))


def _wide(x: Array) -> Array:
    return x.astype(np.int64)


def _mad16(a: Array, b: Array, c: Array) -> Array:
    return a * b + c


def _below(a: Array, b: Array, first: int) -> Array:
    lower = [(1 << min(max(lane - first, 0), 32)) - 1 for lane in range(LANES)]
    return np.array([(int(x) & m).bit_count() for x, m in zip(a, lower, strict=True)], np.uint32) + b


def _mad64(a: Array, b: Array, c: Array) -> Array:
    return np.array([int(x) * int(y) + int(z) for x, y, z in zip(a, b, c, strict=True)], object)


def _dot2(a: Array, b: Array, c: Array) -> Array:
    """Exact for the small integers that it is given; the sign of a zero depends on the order.

    gfx90a takes denormal halves for zeros, as PyTorch documents.
    """
    halves = [np.ascontiguousarray(v).view(np.float16).reshape(-1, 2) for v in (a, b)]
    if rows.arch() == "gfx90a":
        halves = [fp.flush(v) for v in halves]
    x, y = (v.astype(np.float64) for v in halves)
    total = ((x * y).sum(1) + c).astype(np.float32)
    return np.ma.array(total, mask=total == 0)


def _div_fmas(power: int) -> Callable[[Array, Array, Array, Array], Array]:
    # The manual prints other factors, which undo no scaling that v_div_scale does. Scaled denormals are free.
    def fn(a: Array, b: Array, c: Array, scaled: Array) -> Array:
        once = fp.fma(a, b, c)
        factor = np.where(np.abs(c) >= 2, 2.0**power, 2.0**-power).astype(once.dtype)
        want = np.where(scaled, once * factor, once)
        tiny = np.finfo(once.dtype).tiny
        free = scaled & ((np.abs(once) < tiny) & (once != 0) | (np.abs(want) < tiny) | np.isnan(c))
        return np.ma.array(want, mask=free)

    return fn


_CARRIES: dict[str, tuple[tuple[str, ...], Callable[..., Array]]] = {
    "v_add_co_u32": ((), lambda a, b: _wide(a) + _wide(b)),
    "v_sub_co_u32": ((), lambda a, b: _wide(a) - _wide(b)),
    "v_subrev_co_u32": ((), lambda a, b: _wide(b) - _wide(a)),
    "v_addc_co_u32": ((MASK_IN,), lambda a, b, c: _wide(a) + _wide(b) + c),
    "v_subb_co_u32": ((MASK_IN,), lambda a, b, c: _wide(a) - _wide(b) - c),
    "v_subbrev_co_u32": ((MASK_IN,), lambda a, b, c: _wide(b) - _wide(a) - c),
}
_MORE = [
    *(op(n, "u32", "u32 u32", fn, CARRY_OUT, *flags) for n, (flags, fn) in _CARRIES.items()),
    op("v_cndmask_b32", "u32", "f32 f32", lambda a, b, m: np.where(m, b, a).view(np.uint32), MASK_IN),
    op("v_mad_u64_u32", "u64", "u32 u32 u64", _mad64, CARRY_OUT),
    op("v_mad_i64_i32", "i64", "i32 i32 i64", _mad64, CARRY_OUT),
    op("v_mac_f32", "f32", "f32 f32", unfused, READS_DST),
    op("v_mad_f32", "f32", "f32 f32 f32", unfused),
    op("v_mad_legacy_f32", "f32", "f32 f32 f32", unfused_legacy),
    *(op(f"v_fma{k}k_f32", "f32", "f32 f32 f32", fp.fma) for k in "am"),
    *(op(f"v_mad{k}k_f32", "f32", "f32 f32 f32", unfused) for k in "am"),
    *(op(f"v_mad{k}k_f16", "f16", "f16 f16 f16", _mad16) for k in "am"),
    op("v_mac_f16", "f16", "f16 f16", _mad16, READS_DST),
    op("v_dot2c_f32_f16", "f32", "pf16 pf16", _dot2, READS_DST, NO_MODS_OUT),
    op("v_mbcnt_lo_u32_b32", "u32", "u32 u32", lambda a, b: _below(a, b, 0)),
    op("v_mbcnt_hi_u32_b32", "u32", "u32 u32", lambda a, b: _below(a, b, 32)),
    op("v_div_fmas_f32", "f32", "f32 f32 f32", _div_fmas(64), MASK_IN, ARITH),
    op("v_div_fmas_f64", "f64", "f64 f64 f64", _div_fmas(128), MASK_IN, ARITH),
]


def _exact(x: Array) -> Array:
    return x.astype(object)


def _sums(width: int, shift: int = 0, masked: bool = False) -> Callable[[Array, Array, Array], Array]:
    return lambda a, b, c: (_exact(sad(a, b, width, masked)) << shift) + _exact(c)


def _windows(masked: bool) -> Callable[[Array, Array, Array], Array]:
    """Four sums of 16 bits, each saturated."""

    def fn(a: Array, b: Array, c: Array) -> Array:
        total = np.zeros(len(a), np.uint64)
        for i in range(4):
            window = (a >> np.uint64(8 * i)).astype(np.uint32)
            start = (c >> np.uint64(16 * i) & np.uint64(0xFFFF)).astype(np.uint32)
            part = np.minimum(sad(window, b, 8, masked) + start, 0xFFFF)
            total |= part.astype(np.uint64) << np.uint64(16 * i)
        return total

    return fn


def _dot(part: int) -> Callable[[Array, Array, Array], Array]:
    def fn(a: Array, b: Array, d: Array) -> Array:
        total = _wide(d.view(np.int32))
        for at in range(0, 32, part):
            total += _field(a, at, part) * _field(b, at, part)
        return np.clip(total, -(1 << 31), (1 << 31) - 1).astype(np.int32).view(np.uint32)

    return fn


def _field(x: Array, at: int, bits: int) -> Array:
    return ((_wide(x) >> at & (1 << bits) - 1) ^ 1 << bits - 1) - (1 << bits - 1)


def _mad(a: Array, b: Array, c: Array) -> Array:
    return _exact(a) * _exact(b) + _exact(c)


def _saturated_bits(fn: Callable[..., Array]) -> Callable[..., Array]:
    """A signed result of registers that are typed as unsigned."""

    def wrapped(*a: Array) -> Array:
        exact = [min(max(int(v), -(1 << 31)), (1 << 31) - 1) & 0xFFFFFFFF for v in fn(*a)]
        return np.array(exact, np.uint32)

    return wrapped


# Integer instructions under clamp, beside those whose tables say it: exact, then saturated.
_SATURATED: dict[str, Callable[..., Array]] = {
    "v_mul_i32_i24": _saturated_bits(lambda a, b: _exact(i24(a)) * i24(b)),
    "v_mul_u32_u24": sat(np.uint32, lambda a, b: _exact(u24(a)) * u24(b)),
    "v_mad_i32_i24": _saturated_bits(lambda a, b, c: _exact(i24(a)) * i24(b) + c.view(np.int32)),
    "v_mad_u32_u24": sat(np.uint32, lambda a, b, c: _exact(u24(a)) * u24(b) + c),
    "v_mad_legacy_u16": sat(np.uint16, _mad),
    "v_mad_legacy_i16": sat(np.int16, _mad),
    "v_mad_u32_u16": sat(np.uint32, _mad),
    "v_mad_i32_i16": sat(np.int32, _mad),
    "v_sad_u8": sat(np.uint32, _sums(8)),
    "v_sad_hi_u8": sat(np.uint32, _sums(8, 16)),
    "v_sad_u16": sat(np.uint32, _sums(16)),
    "v_sad_u32": sat(np.uint32, lambda a, b, c: _exact(absdiff(a, b)) + _exact(c)),
    "v_msad_u8": sat(np.uint32, _sums(8, 0, True)),
    "v_qsad_pk_u16_u8": _windows(False),
    "v_mqsad_pk_u16_u8": _windows(True),
    "v_dot2c_i32_i16": _dot(16),
    "v_dot4c_i32_i8": _dot(8),
    "v_dot8c_i32_i4": _dot(4),
}


@cache
def models() -> dict[str, Op]:
    """The model of each row that has one."""
    table = {o.name: o for o in [*VOP1, *VOP2, *VOP3_OPS, *_MORE]}
    for name, o in table.items():
        if not o.clamp and CARRY_OUT not in o.flags and o.dst not in (*FLOATS, "pf32"):
            # Every other integer result can be represented as it is.
            table[name] = replace(o, clamp=_SATURATED.get(name, o.fn))
    return table | {n: op(n, "mask", " ".join(kinds), fn) for n, kinds, fn in compares()}
