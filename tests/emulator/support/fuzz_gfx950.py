# SPDX-License-Identifier: MIT OR Apache-2.0
"""Forms of gfx950's own instructions that clang 20 takes and the device refuses: no manual explains them.

docs/software-device.md has the list. The fuzzers leave such lines out.
"""

from __future__ import annotations

import re

from .rows import RowInfo
from .wait_states import operand_registers

_MODIFIERS = re.compile(
    r" (?:op_sel|op_sel_hi|clamp|mul|div|cbsz|blgp|bitop3|bound_ctrl|fi|neg_lo|neg_hi)\b.*"
)
_SIGNED = re.compile(r"-?\||-[vs]")
_FLOATS = {"f16", "bf16", "f32", "f64"}
_HALVES = {"f16", "bf16", "i16"}
# Their source is two elements in a register or two: no constant can stand for it.
_OF_PAIRS = re.compile(r"v_cvt_scalef32_(sr_)?pk_(fp8|bf8|fp4)_b?f16|v_cvt_scalef32_sr_pk_fp4_f32")


def _stray_select(row: RowInfo, line: str) -> bool:
    """Return whether op_sel picks halves of an operand that has none."""
    found = re.search(r" op_sel:\[([01,]+)\]", line)
    if not found:
        return False
    bits = [i for i, bit in enumerate(found[1].split(",")) if bit == "1"]
    sources = [s for s in row.srcs if s != "none"]
    allowed = {i for i, kind in enumerate(sources) if kind in _HALVES}
    places_byte = "selects_byte" in row.flags
    if places_byte:
        allowed = {2, 3}
    if row.flags & {"own_op_sel", "swaps_lanes"}:
        allowed |= {0, 1}
    if "selects_source" in row.flags:
        allowed |= {0}
    own = "own_op_sel" in row.flags and "no_result_modifiers" not in row.flags
    if row.dst in _HALVES and not places_byte and not own:
        allowed |= {len(sources)}
    return not set(bits) <= allowed


def _overlaps(operands: list[str]) -> bool:
    return not set(operand_registers(operands[0])).isdisjoint(operand_registers(" ".join(operands[1:])))


def refused(row: RowInfo, line: str) -> bool:
    """Return whether the device refuses a line of a row that gfx942 lacks."""
    if "gfx942" in row.opcode:
        return False
    operands = _MODIFIERS.sub("", line.partition(" ")[2]).split(", ")
    if row.format == "MAI":
        # A scale is a VGPR or a float constant; clang 20 encodes its op_sel in other places.
        scales = operands[4:]
        return "loads_scales" in row.flags or any(not re.match(r"v|-?\d+\.", text) for text in scales)
    sources = list(zip(operands[1:], row.srcs, strict=False))
    if any(_SIGNED.match(text) and kind not in _FLOATS for text, kind in sources):
        return True
    if _OF_PAIRS.fullmatch(row.mnemonic) and any(
        not re.match(r"-?\|?(v|s\d|m0|(vcc|exec)_)", text) for text in operands[1:2]
    ):
        return True
    if "_pk32_" in row.mnemonic and _overlaps(operands):
        return True
    return row.format == "VOP3" and _stray_select(row, line)
