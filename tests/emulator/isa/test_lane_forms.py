# SPDX-License-Identifier: MIT OR Apache-2.0
"""v_readlane, v_readfirstlane and v_writelane with every scalar operand that LLVM takes, whatever EXEC is."""

from __future__ import annotations

import numpy as np
import pytest

from ..support import byform
from ..support.asm import ALL_LANES, LANES, legal
from ..support.byform import EXEC, Program
from ..support.fp import Array
from ..support.ops.meaning import Line, constant, parse
from ..support.syntax.forms import CONSTANTS, FEW, FLAGS, SPECIAL

_SCALARS = [*FEW, "33", *SPECIAL, *FLAGS, "s7"]
_LINES = [
    *(f"v_readlane_b32 {dst}, v2, {lane}" for dst in ("s8", *SPECIAL) for lane in _SCALARS),
    *(f"v_readlane_b32 s8, v2, {lane}" for lane in CONSTANTS),
    *(f"v_writelane_b32 v8, {value}, {lane}" for value in _SCALARS for lane in _SCALARS),
    *(f"v_readfirstlane_b32{form} {dst}, v2" for dst in ("s8", *SPECIAL) for form in ("", "_e32", "_e64")),
    *(f"v_readfirstlane_b32 s8, {value}" for value in (*CONSTANTS, *_SCALARS)),
]


def _scalar(text: str, registers: dict[str, Array]) -> int:
    fixed = constant(text, "u32")
    return int((registers[text] if fixed is None else fixed)[0])


def _wanted(line: Line, program: Program) -> Array:
    """Return the destination's value in each lane: an SGPR has the same in all."""
    registers = program.registers()
    if line.name == "v_writelane_b32":
        value, lane = (_scalar(t, registers) for t in line.operands[1:])
        return np.where(np.arange(LANES) == lane % LANES, np.uint32(value), registers["v8"])
    if line.operands[1] != "v2":
        return np.full(LANES, _scalar(line.operands[1], registers))
    first = (program.exec_mask & -program.exec_mask).bit_length() - 1
    lane = _scalar(line.operands[2], registers) if len(line.operands) > 2 else first
    return np.full(LANES, registers["v2"][lane % LANES])


@pytest.mark.parametrize("mask", [EXEC, ALL_LANES, 1 << 40], ids=hex)
def test_lane_and_value_are_the_operands(mask: int) -> None:
    """Only the low six bits of the lane count."""
    taken = [parse(t) for t, good in zip(_LINES, legal(_LINES), strict=True) if good]
    rng = np.random.default_rng(3)
    values = {n: rng.integers(0, 1 << 32, LANES, dtype=np.uint32) for n in ("v2", "v40", "v41")}
    program = Program([[x.text] for x in taken], [[x.operands[0]] for x in taken], values, 0x3F0, mask)
    byform.run([program])
    assert not program.error, program.error
    wrong = [
        line.text
        for line, got in zip(taken, program.results, strict=True)
        if (got[line.operands[0]] != _wanted(line, program)).any()
    ]
    assert not wrong, wrong
    assert len(taken) > 250
