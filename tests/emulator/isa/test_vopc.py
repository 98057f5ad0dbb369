# SPDX-License-Identifier: MIT OR Apache-2.0
"""Vector compares: every predicate, type and form, with NaNs, modifiers and lanes off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..support import fp, rows
from ..support.asm import ALL_LANES, LANES, Case, Result, Suite
from ..support.fp import Array
from ..support.valu import EXEC_PART, SRC, decorate, modify, reg

SUITE = Suite("vopc")

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


def _check(want: Array, form: str, cmpx: bool, mask: int) -> Callable[[Result], None]:
    def check(result: Result) -> None:
        expected = [m & mask for m in masks(want)]
        if form == "e32":
            got = result.vcc
        else:
            got = [int(lo) | int(hi) << 32 for lo, hi in zip(*result["s[8:9]"][:, ::LANES], strict=True)]
        assert [hex(g) for g in got] == [hex(e) for e in expected]
        assert result.exec == (expected if cmpx else [mask] * len(expected))

    return check


def _add(name: str, kinds: tuple[str, str], fn: Callable[[Array, Array], Array]) -> None:
    if name not in rows.names():
        return
    cmpx = "cmpx" in name
    for form, mask in (("e32", ALL_LANES), ("e64", EXEC_PART)):
        args = fp.lanes_of(kinds)
        dst = "vcc" if form == "e32" else "s[8:9]"
        srcs = [reg(k, r) for k, r in zip(kinds, SRC, strict=False)]
        vin = {s: _junk_above(a) for s, a in zip(srcs, args, strict=True)}
        line = f"{name}_{form} {dst}, {', '.join(srcs)}"
        SUITE.add(
            f"{name}-{form}",
            [line],
            [] if form == "e32" else ["s[8:9]"],
            _check(fn(*args), form, cmpx, mask),
            vin,
            {"exec": mask, "vcc": 0x5555, "s[8:9]": 0x123456789ABC},
        )
    if kinds[0].startswith("f"):
        args = fp.lanes_of(kinds, seed=4, limit=512)
        second = kinds[1].startswith("f")
        seen = [modify(args[0], True, True), modify(args[1], True, False) if second else args[1]]
        srcs = [decorate(reg(kinds[0], SRC[0]), True, True), decorate(reg(kinds[1], SRC[1]), second, False)]
        vin = {reg(k, r): _junk_above(a) for k, r, a in zip(kinds, SRC, args, strict=False)}
        SUITE.add(
            f"{name}-mods",
            [f"{name}_e64 s[8:9], {', '.join(srcs)}"],
            ["s[8:9]"],
            _check(fn(*seen), "e64", cmpx, ALL_LANES),
            vin,
        )


def _junk_above(a: Array) -> Any:
    return a.view(np.uint16).astype(np.uint32) | np.uint32(0xBEEF0000) if a.dtype.itemsize == 2 else a


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


with np.errstate(all="ignore"):
    for _compare in compares():
        _add(*_compare)


@SUITE.parametrize()
def test_compare(case: Case) -> None:
    """The compare sets the right bits and no others."""
    SUITE.check(case)
