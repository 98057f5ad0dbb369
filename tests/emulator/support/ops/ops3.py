# SPDX-License-Identifier: MIT OR Apache-2.0
"""Models of the vector instructions that have only a VOP3 form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import fp
from ..fp import Array
from .ops1 import free_where, norm16
from .ops2 import i24, ldexp, minmax, mul_hi, mul_legacy, sat, u24
from .valu import ARITH, KEEPS_HIGH, NO_CONST, NO_MODS_OUT, OP_SEL, READS_DST, VOP3, Op, op

_U = np.uint32
_U64 = np.uint64


def bfe(x: Array, offset: Array, width: Array) -> Array:
    """Bit field: unsigned for u32, sign-extended for i32."""
    bits = width & _U(31)
    field = (x >> (offset & _U(31)).astype(x.dtype)).astype(np.int64) & (
        (np.int64(1) << bits.astype(np.int64)) - 1
    )
    if x.dtype.kind == "i":
        sign = np.where(bits > 0, np.int64(1) << (bits.astype(np.int64) - 1).clip(0), 0)
        field = (field ^ sign) - sign
    return field.astype(x.dtype)


def pair(a: Array, b: Array) -> Array:
    """{a, b} as 64 bits, a the upper half."""
    return a.astype(_U64) << _U64(32) | b.astype(_U64)


def perm(a: Array, b: Array, selector: Array) -> Array:
    """Byte permute of {a, b}: 0-7 bytes, 8-11 signs of words, 12 zero, more 0xff."""
    data = pair(a, b)
    byte = [(data >> _U64(8 * i) & _U64(255)).astype(_U) for i in range(8)]
    sign = [np.where(byte[i] & 128, _U(255), _U(0)) for i in (1, 3, 5, 7)]
    table = np.stack([*byte, *sign, np.zeros_like(byte[0])])
    out = np.zeros_like(a)
    for i in range(4):
        s = selector >> _U(8 * i) & _U(255)
        picked = np.where(
            s > 12, _U(255), np.take_along_axis(table, np.minimum(s, 12)[None].astype(np.int64), 0)[0]
        )
        out |= picked << _U(8 * i)
    return out


def absdiff(a: Array, b: Array) -> Array:
    """|a - b| of unsigned values."""
    return np.where(a > b, a - b, b - a)


def sad(a: Array, b: Array, bits: int, masked: bool = False) -> Array:
    """Sum of absolute differences of the parts; masked leaves out parts where b is 0."""
    total = np.zeros(a.shape, _U)
    for i in range(0, 32, bits):
        x, y = (v.astype(_U) >> _U(i) & _U((1 << bits) - 1) for v in (a, b))
        total += np.where(y == 0, _U(0), absdiff(x, y)) if masked else absdiff(x, y)
    return total


def qsad(masked: bool) -> Callable[..., Array]:
    """Four sums of differences, sliding by a byte, as 16-bit parts."""

    def fn(a: Array, b: Array, c: Array) -> Array:
        out = np.zeros_like(a)
        for i in range(4):
            part = sad((a >> _U64(8 * i) & _U64(0xFFFFFFFF)).astype(_U), b, 8, masked)
            out |= ((part.astype(_U64) + (c >> _U64(16 * i))) & _U64(0xFFFF)) << _U64(16 * i)
        return out

    return fn


def lerp(a: Array, b: Array, c: Array) -> Array:
    """Average of bytes, rounding up where c's bit says."""
    out = np.zeros_like(a)
    for i in range(0, 32, 8):
        x, y = (v >> _U(i) & _U(255) for v in (a, b))
        out |= ((x + y + (c >> _U(i) & _U(1))) >> _U(1)) << _U(i)
    return out


def med3_int(a: Array, b: Array, c: Array) -> Array:
    """The middle of three."""
    return np.sort(np.stack([a, b, c]), 0)[1]


def nest(smaller: bool) -> Callable[..., Array]:
    """min3 and max3."""
    two = minmax(smaller)
    return lambda a, b, c: two(two(a, b), c)


def med3(a: Array, b: Array, c: Array) -> Any:
    """The middle of three floats; with a NaN the smallest number."""
    nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
    hi = minmax(False)
    top = hi(hi(a, b), c)
    middle = np.where(top == a, hi(b, c), np.where(top == b, hi(a, c), hi(a, b)))
    value = np.where(nan, nest(True)(a, b, c), middle).astype(a.dtype)
    signalling = fp.is_signalling(a) | fp.is_signalling(b) | fp.is_signalling(c)
    return free_where(
        signalling | ((a == 0) & (b == 0) | (b == 0) & (c == 0) | (a == 0) & (c == 0)) & (value == 0), value
    )


def rtz_f16(x: Array) -> Array:
    """float32 to float16 toward zero."""
    near = x.astype(np.float16)
    bits = near.view(np.uint16)
    too_far = np.isfinite(x) & (np.abs(near.astype(np.float64)) > np.abs(x.astype(np.float64)))
    return np.where(too_far, bits - 1, bits).astype(np.uint16)


def pack16(fn: Callable[[Array], Array]) -> Callable[[Array, Array], Any]:
    """Both sources converted to 16 bits and packed; a NaN's bits are free."""

    def wrapped(a: Array, b: Array) -> Any:
        lo, hi = (fn(v).view(np.uint16).astype(_U) for v in (a, b))
        nan = np.isnan(a.astype(np.float64)) | np.isnan(b.astype(np.float64))
        return free_where(nan, lo | hi << _U(16))

    return wrapped


def pack_nan0(fn: Callable[[Array], Any]) -> Callable[[Array, Array], Any]:
    """Like pack16 for conversions to integers, where a NaN gives 0; free lanes of either half stay free."""

    def wrapped(a: Array, b: Array) -> Any:
        lo, hi = fn(a), fn(b)
        bits = [np.ma.getdata(v).view(np.uint16).astype(_U) for v in (lo, hi)]
        return free_where(np.ma.getmaskarray(lo) | np.ma.getmaskarray(hi), bits[0] | bits[1] << _U(16))

    return wrapped


def cvt_pk_u8(x: Array, byte: Array, old: Array) -> Any:
    """Float to a byte put into `old`; how halves round is left free."""
    value = np.clip(np.nan_to_num(x.astype(np.float64)), 0, 255)
    shift = (byte & _U(3)) * _U(8)
    out = (old & ~(_U(255) << shift)) | np.rint(value).astype(_U) << shift
    return free_where(value != np.trunc(value), out)


def fp8_pair(dtype: Any) -> Callable[..., Array]:
    """Two floats to 8-bit floats in the low half; the rest kept."""

    def code(v: Array) -> Array:
        made = v.astype(dtype).view(np.uint8).astype(_U)
        nan = np.signbit(v).astype(_U) << _U(7) | _U(0x7F)  # OCP's
        return np.where(np.isnan(v) & (made != 0x80), nan, made)

    def fn(a: Array, b: Array, old: Array) -> Array:
        lo, hi = code(a), code(b)
        return (old & _U(0xFFFF0000)) | lo | hi << _U(8)

    return fn


def div_fixup(q: Array, den: Array, num: Array) -> Any:
    """Special cases of a division put right."""
    sign = np.signbit(den) ^ np.signbit(num)
    one = q.dtype.type(1)
    out = np.copysign(q, np.where(sign, -one, one))
    zero = np.copysign(q.dtype.type(0), np.where(sign, -one, one))
    inf = np.copysign(q.dtype.type(np.inf), np.where(sign, -one, one))
    free = np.zeros(q.shape, bool)
    if q.dtype != np.float16:  # results known to overflow or underflow: their bits are not in the manual
        info = np.finfo(q.dtype)
        limit = {4: 150, 8: 1075}[q.dtype.itemsize]
        with np.errstate(all="ignore"):
            en, ed = (np.frexp(v.astype(np.float64))[1] for v in (num, den))
        tiny = (np.abs(num) < info.tiny) | (np.abs(den) < info.tiny)
        far = (en - ed < -limit) | (en - ed > info.maxexp - 2)
        free = np.isfinite(num) & np.isfinite(den) & (num != 0) & (den != 0) & (far | tiny)
        out = np.where(np.isnan(q), inf, out)  # which a card does, and the manual does not say
    out = np.where(np.isinf(den) | (num == 0), zero, out)
    out = np.where((den == 0) | np.isinf(num), inf, out)
    out = np.where((den == 0) & (num == 0) | np.isinf(den) & np.isinf(num), np.nan, out)
    out = np.where(np.isnan(num) | np.isnan(den), np.nan, out).astype(q.dtype)
    return free_where(free, out)


def _cube_axis(x: Array, y: Array, z: Array) -> Array:
    ax, ay, az = np.abs(x), np.abs(y), np.abs(z)
    return np.where((az >= ax) & (az >= ay), 2, np.where(ay >= ax, 1, 0))


def _cube(
    on_x: Callable[..., Array], on_y: Callable[..., Array], on_z: Callable[..., Array]
) -> Callable[..., Any]:
    def fn(x: Array, y: Array, z: Array) -> Any:
        axis = _cube_axis(x, y, z)
        out = np.choose(axis, [on_x(x, y, z), on_y(x, y, z), on_z(x, y, z)]).astype(np.float32)
        return free_where(np.isnan(x) | np.isnan(y) | np.isnan(z), out)

    return fn


def _two_over_pi() -> int:
    """The 1201 bits after the point of 2/pi, from Machin's formula in integers."""
    one = 1 << 1400

    def arctan(inverse: int) -> int:
        total, term, n = 0, one // inverse, 1
        while term:
            total += term // n if n % 4 == 1 else -(term // n)
            term //= inverse * inverse
            n += 2
        return total

    pi = 4 * (4 * arctan(5) - arctan(239))
    return (2 * one << 1201) // pi


def trig_preop(x: Array, segment: Array) -> Array:
    """53 bits of 2/pi, as far down as the segment and the exponent say."""
    bits = _two_over_pi()
    out = []
    for value, s in zip(x.view(_U64), segment, strict=True):
        exponent = int(value) >> 52 & 0x7FF
        shift = (int(s) & 31) * 53 + max(0, exponent - 1077)
        part = (bits << shift >> (1201 - 53)) % (1 << 53)
        scale = -53 - shift + (128 if exponent >= 1968 else 0)
        out.append(np.ldexp(float(part), scale))
    return np.array(out, np.float64)


_MAD16 = {"u16": np.uint16, "i16": np.int16}

VOP3_OPS: list[Op] = [
    op(
        "v_mad_i32_i24",
        "u32",
        "u32 u32 u32",
        lambda a, b, c: (i24(a) * i24(b) + c.astype(np.int64)).astype(_U),
        VOP3,
    ),
    op("v_mad_u32_u24", "u32", "u32 u32 u32", lambda a, b, c: (u24(a) * u24(b) + c).astype(_U), VOP3),
    op(
        "v_cubeid_f32",
        "f32",
        "f32 f32 f32",
        _cube(
            lambda x, y, z: np.where(x < 0, 1.0, 0.0),
            lambda x, y, z: np.where(y < 0, 3.0, 2.0),
            lambda x, y, z: np.where(z < 0, 5.0, 4.0),
        ),
        VOP3,
    ),
    op(
        "v_cubesc_f32",
        "f32",
        "f32 f32 f32",
        _cube(
            lambda x, y, z: np.where(x < 0, z, -z), lambda x, y, z: x, lambda x, y, z: np.where(z < 0, -x, x)
        ),
        VOP3,
    ),
    op(
        "v_cubetc_f32",
        "f32",
        "f32 f32 f32",
        _cube(lambda x, y, z: -y, lambda x, y, z: np.where(y < 0, -z, z), lambda x, y, z: -y),
        VOP3,
    ),
    op(
        "v_cubema_f32",
        "f32",
        "f32 f32 f32",
        _cube(lambda x, y, z: 2 * x, lambda x, y, z: 2 * y, lambda x, y, z: 2 * z),
        VOP3,
    ),
    op("v_bfe_u32", "u32", "u32 u32 u32", bfe, VOP3),
    op("v_bfe_i32", "i32", "i32 u32 u32", bfe, VOP3),
    op("v_bfi_b32", "u32", "u32 u32 u32", lambda a, b, c: (a & b) | (~a & c), VOP3),
    *(op(f"v_fma_{t}", t, f"{t} {t} {t}", fp.fma, VOP3, ARITH) for t in ("f32", "f64")),
    op("v_fma_f16", "f16", "f16 f16 f16", fp.fma, VOP3, ARITH, KEEPS_HIGH, OP_SEL),
    op("v_fma_legacy_f16", "f16", "f16 f16 f16", fp.fma, VOP3),
    op("v_mad_legacy_f16", "f16", "f16 f16 f16", lambda a, b, c: a * b + c, VOP3),
    op("v_mad_f16", "f16", "f16 f16 f16", lambda a, b, c: a * b + c, VOP3, KEEPS_HIGH, OP_SEL),
    op("v_lerp_u8", "u32", "u32 u32 u32", lerp, VOP3),
    op(
        "v_alignbit_b32",
        "u32",
        "u32 u32 u32",
        lambda a, b, c: (pair(a, b) >> (c & _U(31)).astype(_U64)).astype(_U),
        VOP3,
    ),
    op(
        "v_alignbyte_b32",
        "u32",
        "u32 u32 u32",
        lambda a, b, c: (pair(a, b) >> ((c & _U(3)) * _U(8)).astype(_U64)).astype(_U),
        VOP3,
    ),
    *(
        op(f"v_{n}3_{t}", t, f"{t} {t} {t}", lambda a, b, c, f=f: f(f(a, b), c), VOP3)
        for t in ("i32", "u32")
        for n, f in (("min", np.minimum), ("max", np.maximum))
    ),
    *(
        op(f"v_{n}3_{t}", t, f"{t} {t} {t}", lambda a, b, c, f=f: f(f(a, b), c), VOP3, OP_SEL, KEEPS_HIGH)
        for t in ("i16", "u16")
        for n, f in (("min", np.minimum), ("max", np.maximum))
    ),
    *(op(f"v_med3_{t}", t, f"{t} {t} {t}", med3_int, VOP3) for t in ("i32", "u32")),
    *(op(f"v_med3_{t}", t, f"{t} {t} {t}", med3_int, VOP3, OP_SEL, KEEPS_HIGH) for t in ("i16", "u16")),
    *(op(f"v_{n}3_f32", "f32", "f32 f32 f32", nest(n == "min"), VOP3) for n in ("min", "max")),
    *(
        op(f"v_{n}3_f16", "f16", "f16 f16 f16", nest(n == "min"), VOP3, OP_SEL, KEEPS_HIGH)
        for n in ("min", "max")
    ),
    op("v_med3_f32", "f32", "f32 f32 f32", med3, VOP3),
    op("v_med3_f16", "f16", "f16 f16 f16", med3, VOP3, OP_SEL, KEEPS_HIGH),
    op("v_sad_u8", "u32", "u32 u32 u32", lambda a, b, c: sad(a, b, 8) + c, VOP3),
    op("v_sad_hi_u8", "u32", "u32 u32 u32", lambda a, b, c: (sad(a, b, 8) << _U(16)) + c, VOP3),
    op("v_sad_u16", "u32", "u32 u32 u32", lambda a, b, c: sad(a, b, 16) + c, VOP3),
    op("v_sad_u32", "u32", "u32 u32 u32", lambda a, b, c: absdiff(a, b) + c, VOP3),
    op("v_msad_u8", "u32", "u32 u32 u32", lambda a, b, c: sad(a, b, 8, True) + c, VOP3),
    op("v_qsad_pk_u16_u8", "u64", "u64 u32 u64", qsad(False), VOP3, NO_CONST),
    op("v_mqsad_pk_u16_u8", "u64", "u64 u32 u64", qsad(True), VOP3, NO_CONST),
    op("v_cvt_pk_u8_f32", "u32", "f32 u32 u32", cvt_pk_u8, VOP3, NO_MODS_OUT),
    op("v_cvt_pkaccum_u8_f32", "u32", "f32 u32", cvt_pk_u8, VOP3, READS_DST, NO_MODS_OUT),
    *(op(f"v_div_fixup_{t}", t, f"{t} {t} {t}", div_fixup, VOP3) for t in ("f32", "f64")),
    op("v_div_fixup_f16", "f16", "f16 f16 f16", div_fixup, VOP3, OP_SEL, KEEPS_HIGH),
    op("v_div_fixup_legacy_f16", "f16", "f16 f16 f16", div_fixup, VOP3),
    op("v_perm_b32", "u32", "u32 u32 u32", perm, VOP3),
    op("v_xad_u32", "u32", "u32 u32 u32", lambda a, b, c: (a ^ b) + c, VOP3),
    op("v_lshl_add_u32", "u32", "u32 u32 u32", lambda a, b, c: (a << (b & _U(31))) + c, VOP3),
    op("v_add_lshl_u32", "u32", "u32 u32 u32", lambda a, b, c: (a + b) << (c & _U(31)), VOP3),
    op("v_add3_u32", "u32", "u32 u32 u32", lambda a, b, c: a + b + c, VOP3),
    op("v_lshl_or_b32", "u32", "u32 u32 u32", lambda a, b, c: (a << (b & _U(31))) | c, VOP3),
    op("v_and_or_b32", "u32", "u32 u32 u32", lambda a, b, c: (a & b) | c, VOP3),
    op("v_or3_b32", "u32", "u32 u32 u32", lambda a, b, c: a | b | c, VOP3),
    *(
        op(
            f"v_mad_{t}",
            t,
            f"{t} {t} {t}",
            lambda a, b, c: a * b + c,
            VOP3,
            OP_SEL,
            KEEPS_HIGH,
            clamp=sat(_MAD16[t], lambda a, b, c: a * b + c),
        )
        for t in ("u16", "i16")
    ),
    *(op(f"v_mad_legacy_{t}", t, f"{t} {t} {t}", lambda a, b, c: a * b + c, VOP3) for t in ("u16", "i16")),
    op("v_mad_u32_u16", "u32", "u16 u16 u32", lambda a, b, c: a.astype(_U) * b.astype(_U) + c, VOP3, OP_SEL),
    op(
        "v_mad_i32_i16",
        "i32",
        "i16 i16 i32",
        lambda a, b, c: a.astype(np.int32) * b.astype(np.int32) + c,
        VOP3,
        OP_SEL,
    ),
    op("v_lshl_add_u64", "u64", "u64 u32 u64", lambda a, b, c: (a << (b & _U(7)).astype(_U64)) + c, VOP3),
    op("v_add_f64", "f64", "f64 f64", lambda a, b: a + b, VOP3, ARITH),
    op("v_mul_f64", "f64", "f64 f64", lambda a, b: a * b, VOP3, ARITH),
    op("v_min_f64", "f64", "f64 f64", minmax(True), VOP3),
    op("v_max_f64", "f64", "f64 f64", minmax(False), VOP3),
    op("v_ldexp_f64", "f64", "f64 i32", ldexp, VOP3),
    op("v_ldexp_f32", "f32", "f32 i32", ldexp, VOP3),
    op("v_mul_lo_u32", "u32", "u32 u32", lambda a, b: a * b, VOP3),
    op("v_mul_hi_u32", "u32", "u32 u32", mul_hi, VOP3),
    op("v_mul_hi_i32", "i32", "i32 i32", mul_hi, VOP3),
    op(
        "v_bcnt_u32_b32",
        "u32",
        "u32 u32",
        lambda a, b: np.array([int(v).bit_count() for v in a], _U) + b,
        VOP3,
    ),
    op("v_lshlrev_b64", "u64", "u32 u64", lambda s, x: x << (s & _U(63)).astype(_U64), VOP3),
    op("v_lshrrev_b64", "u64", "u32 u64", lambda s, x: x >> (s & _U(63)).astype(_U64), VOP3),
    op("v_ashrrev_i64", "i64", "u32 i64", lambda s, x: x >> (s & _U(63)).astype(np.int64), VOP3),
    op("v_trig_preop_f64", "f64", "f64 u32", trig_preop, VOP3),
    op("v_bfm_b32", "u32", "u32 u32", lambda a, b: ((_U(1) << (a & _U(31))) - _U(1)) << (b & _U(31)), VOP3),
    op("v_cvt_pknorm_i16_f32", "u32", "f32 f32", pack_nan0(norm16(True)), VOP3, NO_MODS_OUT),
    op("v_cvt_pknorm_u16_f32", "u32", "f32 f32", pack_nan0(norm16(False)), VOP3, NO_MODS_OUT),
    op("v_cvt_pknorm_i16_f16", "u32", "f16 f16", pack_nan0(norm16(True)), VOP3, NO_MODS_OUT, OP_SEL),
    op("v_cvt_pknorm_u16_f16", "u32", "f16 f16", pack_nan0(norm16(False)), VOP3, NO_MODS_OUT, OP_SEL),
    op("v_cvt_pkrtz_f16_f32", "u32", "f32 f32", pack16(rtz_f16), VOP3, NO_MODS_OUT),
    op(
        "v_cvt_pk_u16_u32",
        "u32",
        "u32 u32",
        lambda a, b: np.minimum(a, 65535) | np.minimum(b, 65535) << _U(16),
        VOP3,
    ),
    op(
        "v_cvt_pk_i16_i32",
        "u32",
        "i32 i32",
        lambda a, b: pack_nan0(lambda v: np.clip(v, -32768, 32767).astype(np.int16))(a, b),
        VOP3,
    ),
    op("v_add_i32", "i32", "i32 i32", lambda a, b: a + b, VOP3, clamp=sat(np.int32, lambda a, b: a + b)),
    op("v_sub_i32", "i32", "i32 i32", lambda a, b: a - b, VOP3, clamp=sat(np.int32, lambda a, b: a - b)),
    op(
        "v_add_i16",
        "i16",
        "i16 i16",
        lambda a, b: a + b,
        VOP3,
        OP_SEL,
        KEEPS_HIGH,
        clamp=sat(np.int16, lambda a, b: a + b),
    ),
    op(
        "v_sub_i16",
        "i16",
        "i16 i16",
        lambda a, b: a - b,
        VOP3,
        OP_SEL,
        KEEPS_HIGH,
        clamp=sat(np.int16, lambda a, b: a - b),
    ),
    op("v_pack_b32_f16", "u32", "f16 f16", pack16(lambda v: v), VOP3, NO_MODS_OUT, OP_SEL),
    op("v_mul_legacy_f32", "f32", "f32 f32", mul_legacy, VOP3),
    op(
        "v_cvt_pk_fp8_f32",
        "u32",
        "f32 f32",
        fp8_pair(fp.FP8),
        VOP3,
        READS_DST,
        NO_MODS_OUT,
    ),
    op(
        "v_cvt_pk_bf8_f32",
        "u32",
        "f32 f32",
        fp8_pair(fp.BF8),
        VOP3,
        READS_DST,
        NO_MODS_OUT,
    ),
]
