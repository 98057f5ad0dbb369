# SPDX-License-Identifier: MIT OR Apache-2.0
"""Models of the vector compares: every predicate of every type."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from .. import fp
from ..asm import LANES
from ..fp import Array

_FLOAT: dict[str, Callable[[Array, Array], Array]] = {
    "f": lambda a, b: np.zeros(a.shape, bool),
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "lg": lambda a, b: (a < b) | (a > b),
    "ge": lambda a, b: a >= b,
    "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
    "u": lambda a, b: np.isnan(a) | np.isnan(b),
    "nge": lambda a, b: ~(a >= b),
    "nlg": lambda a, b: ~((a < b) | (a > b)),
    "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b),
    "neq": lambda a, b: ~(a == b),
    "nlt": lambda a, b: ~(a < b),
    "tru": lambda a, b: np.ones(a.shape, bool),
}
_INT: dict[str, Callable[[Array, Array], Array]] = {
    "f": _FLOAT["f"],
    "lt": _FLOAT["lt"],
    "eq": _FLOAT["eq"],
    "le": _FLOAT["le"],
    "gt": _FLOAT["gt"],
    "ne": lambda a, b: a != b,
    "ge": _FLOAT["ge"],
    "t": _FLOAT["tru"],
}


def classify(x: Array, wanted: Array) -> Array:
    """v_cmp_class: is x in one of the classes whose bits are set?"""
    sign = np.signbit(x)
    tiny = np.finfo(x.dtype).tiny
    quiet = np.isnan(x) & ~fp.is_signalling(x)
    number = np.select(
        [fp.is_signalling(x), quiet, np.isinf(x), np.abs(x) >= tiny, x != 0],
        [0, 1, np.where(sign, 2, 9), np.where(sign, 3, 8), np.where(sign, 4, 7)],
        np.where(sign, 5, 6),
    )
    return (wanted.astype(np.int64) >> number & 1).astype(bool)


def masks(bits: Array) -> list[int]:
    """Bools of the lanes as one integer a wave."""
    return [sum(1 << i for i in range(LANES) if wave[i]) for wave in bits.reshape(-1, LANES)]


def compares() -> Iterator[tuple[str, tuple[str, str], Callable[[Array, Array], Array]]]:
    """Every compare: its name, the types of its sources, and what it computes."""
    for x in ("cmp", "cmpx"):
        for kind in ("f16", "f32", "f64"):
            for name, fn in _FLOAT.items():
                yield f"v_{x}_{name}_{kind}", (kind, kind), fn
            yield f"v_{x}_class_{kind}", (kind, "i16" if kind == "f16" else "u32"), classify
        for kind in ("i16", "u16", "i32", "u32", "i64", "u64"):
            for name, fn in _INT.items():
                yield f"v_{x}_{name}_{kind}", (kind, kind), fn
