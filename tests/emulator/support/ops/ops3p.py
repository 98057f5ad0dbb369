# SPDX-License-Identifier: MIT OR Apache-2.0
"""Models of the packed instructions and the integer dot products (VOP3P).

Inline constants of 16-bit operands, packed or not: LLVM (getInlineEncodingV216) calls the guides misleading
and says what the hardware does. Integers are sign-extended to 32 bits; floats are half precision with zeros
above for f16 instructions, and single precision, 32 bits of it, for those of 16-bit integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .. import fp
from ..fp import Array
from .ops2 import minmax, sat, shift
from .valu import modify


@dataclass(frozen=True)
class Packed:
    """A row that does the same to both halves of its registers, or to both registers of its pairs."""

    name: str
    kind: str  # of a part
    count: int  # of sources
    fn: Callable[..., Array]
    clamp: Callable[..., Array] | None = None  # of integers: what they do under clamp


def parts(x: Array, kind: str) -> list[Array]:
    """Low and high part of a packed register (or pair)."""
    two = np.ascontiguousarray(x).view(fp.DTYPES[kind]).reshape(-1, 2)
    return [two[:, 0].copy(), two[:, 1].copy()]


def select(args: Sequence[Array], kind: str, sel: int, neg: int) -> list[Array]:
    """The part of each source that `sel` says, negated where `neg` says."""
    out = []
    for i, a in enumerate(args):
        part = parts(a, kind)[sel >> i & 1]
        out.append(modify(part, bool(neg >> i & 1), False) if neg >> i & 1 else part)
    return out


def fields(x: Array, bits: int, signed: bool) -> Array:
    """Bit fields of a register, (lanes, fields) int64."""
    out = []
    for i in range(0, 32, bits):
        field = x.astype(np.int64) >> i & ((1 << bits) - 1)
        out.append((field ^ 1 << bits - 1) - (1 << bits - 1) if signed else field)
    return np.stack(out, 1)


def _floats(kind: str) -> list[Packed]:
    return [
        Packed(f"v_pk_fma_{kind}", kind, 3, fp.fma),
        Packed(f"v_pk_add_{kind}", kind, 2, lambda a, b: a + b),
        Packed(f"v_pk_mul_{kind}", kind, 2, lambda a, b: a * b),
    ]


def _integers(kind: str) -> list[Packed]:
    dtype = fp.DTYPES[kind]

    def saturating(name: str, count: int, fn: Callable[..., Array]) -> Packed:
        return Packed(f"v_pk_{name}_{kind}", kind, count, fn, sat(dtype, fn))

    return [
        saturating("mad", 3, lambda a, b, c: a * b + c),
        saturating("add", 2, lambda a, b: a + b),
        saturating("sub", 2, lambda a, b: a - b),
        Packed(f"v_pk_min_{kind}", kind, 2, np.minimum, np.minimum),
        Packed(f"v_pk_max_{kind}", kind, 2, np.maximum, np.maximum),
    ]


def _ashr(s: Array, x: Array) -> Array:
    return shift(x, s, False)


def _three(smaller: bool) -> Callable[..., Array]:
    """IEEE 754-2019's minimum or maximum of three: a NaN wins, -0 < +0."""
    number = minmax(smaller)

    def fn(a: Array, b: Array, c: Array) -> Array:
        nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
        return np.where(nan, a.dtype.type(np.nan), number(number(a, b), c)).astype(a.dtype)

    return fn


PACKED: list[Packed] = [
    *_floats("f16"),
    *_floats("f32"),
    Packed("v_pk_min_f16", "f16", 2, minmax(True)),
    Packed("v_pk_max_f16", "f16", 2, minmax(False)),
    Packed("v_pk_minimum3_f16", "f16", 3, _three(True)),
    Packed("v_pk_maximum3_f16", "f16", 3, _three(False)),
    *_integers("i16"),
    *_integers("u16"),
    Packed("v_pk_mul_lo_u16", "u16", 2, lambda a, b: a * b),
    Packed("v_pk_lshlrev_b16", "u16", 2, lambda s, x: shift(x, s, True)),
    Packed("v_pk_lshrrev_b16", "u16", 2, lambda s, x: shift(x, s, False)),
    Packed("v_pk_ashrrev_i16", "i16", 2, _ashr, _ashr),
]
DOTS: dict[str, tuple[int, bool]] = {  # bits of a field, signed
    "v_dot2_i32_i16": (16, True),
    "v_dot2_u32_u16": (16, False),
    "v_dot4_i32_i8": (8, True),
    "v_dot4_u32_u8": (8, False),
    "v_dot8_i32_i4": (4, True),
    "v_dot8_u32_u4": (4, False),
}
