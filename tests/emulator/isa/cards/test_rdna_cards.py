# SPDX-License-Identifier: MIT OR Apache-2.0
"""Values expected of a card: each row of values.txt, as gfx1100 in waves of 32."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ...support import rows
from ...support.asm import LANES, Case, Result, Suite
from ...support.fp import Array
from ...support.spelling import NARROW

SUITE = Suite("rdna_cards")
_FLOATS: dict[str, type[np.floating[Any]]] = {"f32": np.float32, "f64": np.float64}
_MODE = 0x3C0  # that of a kernel which says nothing: float32 has no denormals
_HALVES = {"f16": 0, "f16h": 16}
_VALUE = re.compile(
    r"(?P<register>[^@.]+)(?:@(?P<lane>\d+))?\.(?P<kind>[^=]+)=(?P<value>[^~]+)(?:~(?P<error>.+))?"
)


def _bits(result: Result, register: str) -> Array:
    """A register's bits, of each lane."""
    if register in ("vcc", "scc"):
        return np.full(LANES, {"vcc": result.vcc, "scc": result.scc}[register][0], np.uint64)
    words = result[register].astype(np.uint64)
    out: Array = sum(word << np.uint64(32 * i) for i, word in enumerate(words))
    return out


def _check(
    result: Result, register: str, lane: str | None, kind: str, value: str, error: str | None, on: int
) -> None:
    bits = _bits(result, register)[slice(on) if lane is None else [int(lane)]]
    if kind in _FLOATS or kind in _HALVES:
        if kind in _HALVES:
            found = (bits >> np.uint64(_HALVES[kind])).astype(np.uint16).view(np.float16)
        else:
            found = bits.astype(f"u{np.dtype(_FLOATS[kind]).itemsize}").view(_FLOATS[kind])
        wide = found.astype(np.float64)
        if value in ("nan", "inf"):
            assert np.all(np.isnan(wide) if value == "nan" else np.isinf(wide)), wide
        else:
            np.testing.assert_allclose(wide, float(value), rtol=0, atol=float(error or 0))
        return
    first, count = map(int, kind[1:].split(":")) if kind[0] == "b" else (0, int(kind[1:]))
    mask = np.uint64((1 << count) - 1)
    np.testing.assert_array_equal(bits >> np.uint64(first) & mask, np.uint64(int(value, 16)))


def _add(number: int, row: str) -> None:
    line, before, on, after = row.split(" | ")
    values = [_VALUE.fullmatch(text) for text in after.split()]
    assert all(values), row
    inputs = dict(text.split("=") for text in before.split())
    vector: dict[str, Any] = {}
    scalar: dict[str, Any] = {"exec": (1 << int(on)) - 1, "mode": _MODE}
    for name, value in inputs.items():
        if name[0] == "s" or name == "vcc":
            scalar[name] = int(value, 16)
        else:
            vector[name] = np.arange(LANES, dtype=np.uint32) if value == "lane" else np.uint32(int(value, 16))

    def check(result: Result) -> None:
        for match in values:
            assert match
            _check(result, *match.groups(), on=int(on))

    out = list(dict.fromkeys(m["register"] for m in values if m and m["register"] not in ("vcc", "scc")))
    name = line.split()[0]
    covers = ["v_dual" if name.startswith("v_dual_") else name]
    case = Case(f"{number} {name}", [line], out, check, vector, scalar, covers=covers)
    assert set(case.mnemonics()) <= rows.names(), row
    SUITE.cases.append(case)


def _rows() -> Iterable[str]:
    text = Path(__file__).with_name("values.txt").read_text()
    return (line for line in text.splitlines() if not line.startswith("#"))


if rows.arch() == "gfx1100" and NARROW:
    for _number, _row in enumerate(_rows()):
        _add(_number, _row)


@SUITE.parametrize()
def test_value(case: Case) -> None:
    SUITE.check(case)
