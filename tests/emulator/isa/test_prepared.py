# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rows without a model: a form gives what the plain instruction gives of registers that hold its operands.

The operands are prepared here, by what meaning.py says of constants, scalar registers and signs; what
the plain instruction computes is tested elsewhere (test_carry, test_lanes, test_vop3p).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from ..support import byform, fp, rows
from ..support.asm import LANES
from ..support.byform import Program
from ..support.fp import Array
from ..support.ops.expect import APERTURE, BITS, IEEE
from ..support.ops.meaning import Line, dword_names, read
from ..support.ops.valu import clamp01, dwords
from .test_forms_run import WITHOUT, taken

_U = np.uint32
# Types of the sources, and of a result that clamp can clamp to [0, 1].
_ROWS = {
    "v_div_scale_f32": (("f32", "f32", "f32"), "f32"),
    "v_div_scale_f64": (("f64", "f64", "f64"), "f64"),
    "v_cvt_sr_fp8_f32": (("f32", "u32"), ""),
    "v_cvt_sr_bf8_f32": (("f32", "u32"), ""),
    "v_mqsad_u32_u8": (("u64", "u32", ""), ""),
}
_FIRST = (2, 6, 10)  # registers of the sources


@dataclass
class _Pair:
    """A line, and the plain one, whose registers hold the first one's operands."""

    line: Line
    form: Program
    plain: Program
    dst: str


def _bits(kind: str, rng: np.random.Generator) -> list[Array]:
    values = np.ascontiguousarray(fp.random_bits(kind, LANES, rng))
    return list(values.view(_U).reshape(LANES, -1).T.copy())


def _registers(kinds: tuple[str, ...]) -> dict[str, Array]:
    """Random values of the types; the third source of v_mqsad is four registers that overlap the result."""
    rng = np.random.default_rng(4)
    names = ("v2", "v3", "v6", "v7", "v10", "v11", "v12", "v13", "v40", "v41")
    found = {n: rng.integers(0, 1 << 32, LANES, dtype=_U) for n in names}
    for first, kind in zip(_FIRST, kinds, strict=False):
        if kind:
            found |= {f"v{first + i}": part for i, part in enumerate(_bits(kind, rng))}
    return found


def _unsaid(line: Line, kinds: tuple[str, ...], dst: str) -> str:
    narrow = [t for t, k in zip(line.operands[-len(kinds) :], kinds, strict=True) if not k or dwords(k) == 1]
    if any(t.startswith("src_") and t.endswith(("_base", "_limit")) for t in narrow):
        return APERTURE
    # Halves of operands that have none are refused as they are for every row: test_forms_run.
    halves = line["op_sel"].strip("[]").split(",")[: 2 if line.name.startswith("v_cvt_sr") else 4]
    if "1" in halves:
        return "op_sel of operands of 32 bits"
    return BITS if line["clamp"] and line.name.startswith("v_cvt_sr") else ""


def _prepared(
    line: Line, kinds: tuple[str, ...], found: dict[str, Array], program: Program
) -> dict[str, Array]:
    held = dict(found)
    for n, (text, kind) in enumerate(zip(line.operands[-len(kinds) :], kinds, strict=True)):
        if not kind:
            continue
        quiet = Line(line.text, line.name, line.form, line.operands, {})
        value = read(quiet, n, text, kind, program.registers(), None)
        assert value is not None, text
        bits = np.ascontiguousarray(value).view(_U).reshape(LANES, -1)
        held |= {f"v{_FIRST[n] + i}": bits[:, i].copy() for i in range(bits.shape[1])}
    return held


def _pairs(name: str) -> Iterator[_Pair]:
    kinds, dst = _ROWS[name]
    row = next(r for r in rows.of(rows.arch()) if r.mnemonic == name)
    for line in taken("long")[row]:
        if _unsaid(line, kinds, dst):
            continue
        looks = dword_names(line.operands[0])
        if len(line.operands) > 1 + len(kinds):
            looks = looks + dword_names(line.operands[1])
        found = _registers(kinds)
        form = Program([[line.text]], [looks], found, IEEE)
        wide = [4 if not k else dwords(k) for k in kinds]
        plain = [f"v[{f}:{f + w - 1}]" if w > 1 else f"v{f}" for f, w in zip(_FIRST, wide, strict=False)]
        operands = [*line.operands[: -len(kinds)], *plain]
        tail = f" op_sel:{line['op_sel']}" if line["op_sel"] else ""
        tail += " clamp" if line["clamp"] and not dst else ""
        text = f"{line.text.split()[0]} {', '.join(operands)}{tail}"
        yield _Pair(line, form, Program([[text]], [looks], _prepared(line, kinds, found, form), IEEE), dst)


def _differs(pair: _Pair) -> str:
    if pair.form.error or pair.plain.error:
        return pair.form.error or pair.plain.error
    got, want = pair.form.results[0], dict(pair.plain.results[0])
    if pair.dst and pair.line["clamp"]:
        names = dword_names(pair.line.operands[0])
        value = np.stack([want[n] for n in names], 1).copy().view(fp.DTYPES[pair.dst])[:, 0]
        clamped = np.ascontiguousarray(clamp01(value)).view(_U).reshape(LANES, -1)
        on = np.array([byform.EXEC >> i & 1 for i in range(LANES)], bool)
        want |= {n: np.where(on, clamped[:, i], want[n]) for i, n in enumerate(names)}
    bad = [n for n in want if (got[n] != want[n]).any()]
    return f"{pair.line.text}: {bad} differ from the plain one" if bad else ""


@pytest.mark.parametrize("name", [n for n in _ROWS if n in rows.names()])
def test_form_is_the_plain_one_of_its_operands(name: str) -> None:
    """Constants, scalar registers, signs and output modifiers."""
    pairs = list(_pairs(name))
    byform.run([p for pair in pairs for p in (pair.form, pair.plain)])
    wrong = [text for pair in pairs if (text := _differs(pair))]
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:40])
    assert len(pairs) > 50


def test_rows_without_a_model_are_here() -> None:
    """Instructions that have forms and no model."""
    assert set(_ROWS) == {n for n, why in WITHOUT.items() if "prepared" in why}
