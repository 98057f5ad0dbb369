# SPDX-License-Identifier: MIT OR Apache-2.0
"""Models of the vector instructions that gfx11 and gfx12 have and gfx9 lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from .. import fp
from ..fp import Array
from ..spelling import GENERATION
from .ops1 import I16, U16, free_where, transcendental
from .ops2 import minmax
from .ops3 import pack_nan0
from .valu import ARITH, NO_MODS, NO_MODS_OUT, READS_DST, Op, op

_U = np.uint32
MIN, MAX = minmax(True), minmax(False)


def propagating(number: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """IEEE 754-2019's minimum or maximum: a NaN wins."""

    def fn(a: Array, b: Array) -> Array:
        return np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), number(a, b)).astype(a.dtype)

    return fn


MINIMUM, MAXIMUM = propagating(MIN), propagating(MAX)


def _then(first: Callable[..., Array], second: Callable[..., Array]) -> Callable[..., Array]:
    return lambda a, b, c: second(first(a, b), c)


def fma_dx9(a: Array, b: Array, c: Array) -> Array:
    """0 times anything is 0, and adds nothing."""
    return np.where((a == 0) | (b == 0), c, fp.fma(a, b, c)).astype(np.float32)


def mullit(a: Array, b: Array, c: Array) -> Array:
    """A product, or the least finite number where b is one that no light has, or c is not above 0."""
    least = -np.finfo(np.float32).max
    dark = (b == least) | (b == -np.inf) | np.isnan(b) | (c <= 0) | np.isnan(c)
    return np.where(dark, least, np.where((a == 0) | (b == 0), np.float32(0), a * b)).astype(np.float32)


def dot2(kind: Any) -> Callable[[Array, Array, Array], Any]:
    """Sums of two products where no rounding can matter: small integers. Others are free."""

    def fn(a: Array, b: Array, c: Array) -> Any:
        x, y = (np.ascontiguousarray(v).view(kind).reshape(-1, 2).astype(np.float64) for v in (a, b))
        z = np.ascontiguousarray(c).view(kind if c.dtype.itemsize == 2 else np.float32).astype(np.float64)
        small = [np.nan_to_num(v, nan=99, posinf=99, neginf=99) for v in (x, y)]
        exact = [(v == np.rint(v)).all(1) & (np.abs(v) <= 8).all(1) for v in small]
        whole = np.isfinite(z) & (z == np.rint(z)) & (np.abs(z) <= 64)
        total = (x * y).sum(1) + z
        return free_where(~(exact[0] & exact[1] & whole) | (total == 0), total.astype(kind))

    return fn


def _of(kind: str, name: str, count: int, fn: Callable[..., Array], *flags: str) -> Op:
    return op(f"v_{name}_{kind}", kind, " ".join([kind] * count), fn, *flags)


_FLOATS = ("f16", "f32")
_INTEGERS = ("i32", "u32")
NEW: list[Op] = [
    op("v_not_b16", "u16", "u16", lambda a: ~a),
    op("v_cvt_i32_i16", "i32", "i16", lambda a: a.astype(np.int32)),
    op("v_cvt_u32_u16", "u32", "u16", lambda a: a.astype(_U)),
    *(
        op(f"v_{n}_b16", "u16", "u16 u16", f)
        for n, f in (("and", lambda a, b: a & b), ("or", lambda a, b: a | b), ("xor", lambda a, b: a ^ b))
    ),
    op("v_xor3_b32", "u32", "u32 u32 u32", lambda a, b, c: a ^ b ^ c),
    op("v_cvt_pk_i16_f32", "u32", "f32 f32", pack_nan0(I16), NO_MODS_OUT),
    op("v_cvt_pk_u16_f32", "u32", "f32 f32", pack_nan0(U16), NO_MODS_OUT),
    op("v_fma_dx9_zero_f32", "f32", "f32 f32 f32", fma_dx9),
    op("v_fmac_dx9_zero_f32", "f32", "f32 f32", fma_dx9, READS_DST),
    op("v_mullit_f32", "f32", "f32 f32 f32", mullit),
    *(_of(t, "minmax", 3, _then(np.minimum, np.maximum)) for t in _INTEGERS),
    *(_of(t, "maxmin", 3, _then(np.maximum, np.minimum)) for t in _INTEGERS),
    *(_of(t, f"minmax{'_num' * (GENERATION == 12)}", 3, _then(MIN, MAX)) for t in _FLOATS),
    *(_of(t, f"maxmin{'_num' * (GENERATION == 12)}", 3, _then(MAX, MIN)) for t in _FLOATS),
    *(_of(t, n, 2, f) for t in (*_FLOATS, "f64") for n, f in (("minimum", MINIMUM), ("maximum", MAXIMUM))),
    *(_of(t, "minimum3", 3, _then(MINIMUM, MINIMUM)) for t in _FLOATS),
    *(_of(t, "maximum3", 3, _then(MAXIMUM, MAXIMUM)) for t in _FLOATS),
    *(_of(t, "minimummaximum", 3, _then(MINIMUM, MAXIMUM)) for t in _FLOATS),
    *(_of(t, "maximumminimum", 3, _then(MAXIMUM, MINIMUM)) for t in _FLOATS),
]

# One value, in SGPRs: gfx12's v_s_exp_f32 and the like.
TO_SCALAR: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp2,
    "log": np.log2,
    "rcp": lambda x: 1 / x,
    "rsq": lambda x: 1 / np.sqrt(x),
    "sqrt": np.sqrt,
}


def to_scalar(name: str, kind: str) -> Callable[[Array], Any]:
    """Return the model of v_s_<name>_<kind>."""
    return transcendental(TO_SCALAR[name], fp.DTYPES[kind], kind == "f16")


BF16 = ml_dtypes.bfloat16
__all__ = ["ARITH", "NEW", "NO_MODS", "TO_SCALAR", "dot2", "to_scalar"]
