# SPDX-License-Identifier: MIT OR Apache-2.0
"""Vector compares: every predicate, type and form, with NaNs, modifiers and lanes off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..support import fp
from ..support.asm import ALL_LANES, Case, Result, Suite
from ..support.fp import Array
from ..support.ops.predicates import compares, masks
from ..support.ops.valu import EXEC_PART, SRC, decorate, modify, reg
from ..support.spelling import RDNA, exists

SUITE = Suite("vopc")
_VCC, _BEFORE = 0x5555, 0x123456789ABC  # what masks hold before


def _check(want: Array, form: str, cmpx: bool, mask: int) -> Callable[[Result], None]:
    def check(result: Result) -> None:
        expected = [m & mask for m in masks(want)]
        if not (cmpx and RDNA):  # which writes EXEC only
            got = result.mask("vcc", _VCC) if form == "e32" else result.mask("s[8:9]", _BEFORE)
            assert [hex(g) for g in got] == [hex(e) for e in expected]
        assert result.exec == (expected if cmpx else [mask] * len(expected))

    return check


def _add(name: str, kinds: tuple[str, str], fn: Callable[[Array, Array], Array]) -> None:
    if not exists(name):
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
            {"exec": mask, "vcc": _VCC, "s[8:9]": _BEFORE},
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
            {"s[8:9]": _BEFORE},
        )


def _junk_above(a: Array) -> Any:
    return a.view(np.uint16).astype(np.uint32) | np.uint32(0xBEEF0000) if a.dtype.itemsize == 2 else a


with np.errstate(all="ignore"):
    for _compare in compares():
        _add(*_compare)


@SUITE.parametrize()
def test_compare(case: Case) -> None:
    """The compare sets the right bits and no others."""
    SUITE.check(case)
