# SPDX-License-Identifier: MIT OR Apache-2.0
"""Every form of every row of the vector ALU that LLVM takes, run: what it computes is what the form means.

forms.py writes the lines, LLVM says which there are, models.py what their rows compute and
meaning.py what selects, signs, lanes, constants and literals make of the operands. A new row needs a
model, or a line in :data:`WITHOUT`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import pytest

from ..support import byform, rows
from ..support.asm import ALL_LANES, legal
from ..support.byform import EXEC, Program
from ..support.ops import expect
from ..support.ops.expect import FLUSH, IEEE, State, outputs, unsaid
from ..support.ops.inputs import registers_of
from ..support.ops.meaning import Line, parse
from ..support.ops.models import models
from ..support.ops.valu import Op
from ..support.rows import RowInfo
from ..support.syntax.forms import forms, is_kept

# Lines that are run, at least.
FORMS = {"sdwa": 12000, "dpp": 12000, "mixed": 2000, "short": 16000, "long": 30000, "literal": 90}
_SOME = 40  # lines of a program: they share the values of the registers
# Rows whose forms are run elsewhere, or that have one form.
_ONE_LANE = "one lane's value, to or from an SGPR: test_lane_forms"
_NONE = "computes nothing: test_lanes"
WITHOUT = {
    "v_nop": _NONE,
    "v_clrexcp": _NONE,
    "v_screen_partition_4se_b32": "refused: test_scalar_special",
    "v_readlane_b32": _ONE_LANE,
    "v_readfirstlane_b32": _ONE_LANE,
    "v_writelane_b32": _ONE_LANE,
    "v_swap_b32": "one form: test_lanes",
    "v_accvgpr_mov_b32": "one form: test_lanes",
    "v_pk_fmac_f16": "one form: test_vop3p",
    "v_mqsad_u32_u8": "four registers wide: test_vop3p, and test_prepared",
    "v_cvt_sr_fp8_f32": "op_sel picks a byte: test_lanes, and test_prepared",
    "v_cvt_sr_bf8_f32": "op_sel picks a byte: test_lanes, and test_prepared",
    "v_div_scale_f32": "its place is in a division: test_carry, and test_prepared",
    "v_div_scale_f64": "its place is in a division: test_carry, and test_prepared",
}


@dataclass
class _Group:
    """Lines of one row that are run together."""

    model: Op
    lines: Sequence[Line]
    program: Program


@cache
def taken(form: str) -> dict[RowInfo, list[Line]]:
    """The lines of a form that LLVM takes, by row; of the inline integers some."""
    found: dict[RowInfo, list[Line]] = {}
    every = ((row, line) for row in rows.of(rows.arch()) for line in forms(row).get(form, []))
    tried = [(row, line) for row, line in every if is_kept(row, line)]
    for (row, line), good in zip(tried, legal([line for _, line in tried]), strict=True):
        if good:
            found.setdefault(row, []).append(parse(line))
    return found


def _groups(form: str) -> Iterator[_Group]:
    for row, lines in taken(form).items():
        model = models().get(row.mnemonic)
        if model is None:
            continue
        meant = [line for line in lines if not unsaid(line, model)]
        scaled = [line for line in meant if line["mul"] or line["div"]]
        for mode, some in ((IEEE, meant), (FLUSH, scaled)):
            for at in range(0, len(some), _SOME):
                part = some[at : at + _SOME]
                looks = [outputs(line, model) for line in part]
                values = registers_of(model, at)
                # With all lanes on and nothing to modify, the device takes other paths.
                mask = ALL_LANES if (at // _SOME + row.opcode[rows.arch()]) % 2 else EXEC
                yield _Group(model, part, Program([[line.text] for line in part], looks, values, mode, mask))


def _wrong(group: _Group) -> Iterator[str]:
    program = group.program
    if program.error:
        yield program.error
        return
    state = State(program.registers(), program.exec_mask, program.mode)
    for line, got in zip(group.lines, program.results, strict=True):
        try:
            expect.check(line, group.model, state, got)
        except AssertionError as error:
            yield f"{line.text} (MODE {program.mode:#x}): {error}"


@pytest.mark.parametrize("form", FORMS)
def test_form_computes_what_it_means(form: str) -> None:
    """Selects, signs, lanes, constants, literals and output modifiers, on every row that takes them."""
    groups = list(_groups(form))
    byform.run([g.program for g in groups])
    wrong = [text for group in groups for text in _wrong(group)]
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:40])
    assert sum(len(g.lines) for g in groups) > FORMS[form], "fewer lines than there were"


def test_every_row_has_a_model() -> None:
    """No row of the vector ALU is left out of the tests above without a reason.

    LLVM 19 does not know the rows that only gfx950 has: test_gfx950.py tests their values. Other suites test
    Radeon's rows.
    """
    known = (r for r in rows.all_rows() if r.opcode.keys() & {"gfx90a", "gfx942"})
    named = {r.mnemonic for r in known if r.format in ("VOP1", "VOP2", "VOPC", "VOP3", "VOP3B")}
    assert named - set(models()) == set(WITHOUT)
    stale = set(models()) - named
    assert all(n.startswith("v_") for n in stale)


def test_every_row_has_lines() -> None:
    """Every row with a model has a line that is well-formed."""
    tested = {row.mnemonic for form in FORMS for row in taken(form)}
    missing = {n for n in models() if n in rows.names()} - tested
    assert not missing, missing


@pytest.mark.parametrize("form", FORMS)
def test_forms_without_a_meaning_are_refused(form: str) -> None:
    """The device never guesses what no manual says: one line of each row and reason fails the launch."""
    asked: dict[tuple[str, str], _Group] = {}
    for row, lines in taken(form).items():
        model = models().get(row.mnemonic)
        for line in lines if model else ():
            why = unsaid(line, model)
            if why and why != expect.CLASSES and (why, row.mnemonic) not in asked:
                program = Program([[line.text]], [outputs(line, model)], registers_of(model, 0), IEEE)
                asked[why, row.mnemonic] = _Group(model, [line], program)
    byform.run([g.program for g in asked.values()])
    ran = [g.lines[0].text for g in asked.values() if not g.program.error]
    assert not ran, f"{len(ran)} of {len(asked)} ran:\n" + "\n".join(ran[:40])
