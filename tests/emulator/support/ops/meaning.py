# SPDX-License-Identifier: MIT OR Apache-2.0
"""The meaning of a line of the vector ALU: the values of its operands, and the place of its result.

A :class:`Line` is a line of assembly taken apart; :func:`read` gives an operand's value out of registers, and
:func:`written` puts a result into the destination. The forms mean what the CDNA3 and CDNA2 ISA guides say
(chapter 6 and the encodings of SDWA and DPP); literals of 64-bit operands what the guides and LLVM's operand
syntax say: the high half of a float, the low half of an integer, extended as it is signed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from .. import fp
from ..asm import LANES
from ..fp import Array
from .valu import dwords, modify

_U = np.uint32
Registers = Mapping[str, Array]  # a dword of 64 lanes by the name of its register; scalars too
FIELDS = {
    **{f"BYTE_{i}": (8 * i, 8) for i in range(4)},
    **{f"WORD_{i}": (16 * i, 16) for i in range(2)},
    "DWORD": (0, 32),
}  # first bit and width
_FLOATS = {"0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0.15915494", "0.15915494309189532"}
_OPERAND = re.compile(r"(?:sext\([^)]*\)|[^\s,\[|]+(?:\[[^\]]*\])?|-?\|[^|]*\|)(?=,|\s|$)")


@dataclass(frozen=True)
class Operand:
    """A source as it is written."""

    name: str
    neg: bool = False
    absolute: bool = False
    sext: bool = False


def operand(text: str) -> Operand:
    """A source taken apart."""
    if text.startswith("sext("):
        return Operand(text[5:-1], sext=True)
    neg = text.startswith("-") and not text[1:2].isdigit()
    text = text[neg:]
    absolute = text.startswith("|")
    return Operand(text.strip("|"), neg, absolute)


@dataclass(frozen=True)
class Line:
    """An instruction taken apart."""

    text: str
    name: str
    form: str  # "e32", "e64", "sdwa", "dpp"; "" without a suffix
    operands: tuple[str, ...]
    options: Mapping[str, str] = field(hash=False)

    def __getitem__(self, option: str) -> str:
        """An option's value, "" without."""
        return self.options.get(option, "")

    def lines_up_to(self) -> str:
        """The text up to the options."""
        return f"{self.text.split()[0]} {', '.join(self.operands)}"


def parse(text: str) -> Line:
    """A line taken apart."""
    mnemonic, _, rest = text.partition(" ")
    found = re.fullmatch(r"(.*?)(?:_(e32|e64|sdwa|dpp))?", mnemonic)
    assert found
    operands = []
    while True:
        match = _OPERAND.match(rest)
        if not match:
            break
        operands.append(match[0])
        rest = rest[match.end() :]
        if not rest.startswith(","):
            break
        rest = rest[1:].lstrip()
    options = {}
    for part in rest.split():
        name, _, value = part.partition(":")
        options[name] = value or "1"
    return Line(text, found[1], found[2] or "", tuple(operands), options)


def dword_names(name: str) -> list[str]:
    """The registers of one dword that a register or range is."""
    pairs = {"vcc", "exec", "flat_scratch", "xnack_mask"}
    if name in pairs:
        return [f"{name}_lo", f"{name}_hi"]
    if name.startswith("src_") and name.endswith(("_base", "_limit")):
        return [f"{name}.lo", f"{name}.hi"]
    match = re.fullmatch(r"([vs])\[(\d+):(\d+)\]", name)
    return [f"{match[1]}{i}" for i in range(int(match[2]), int(match[3]) + 1)] if match else [name]


def _of_type(bits: int, kind: str) -> Array:
    dtype = np.dtype(fp.DTYPES[kind])
    return np.full(LANES, bits & (1 << 8 * dtype.itemsize) - 1, f"u{dtype.itemsize}").view(dtype)


@cache
def constant(text: str, kind: str) -> Array | None:
    """The value that a constant has for an operand of a type; None if it is no constant."""
    dtype = np.dtype(fp.DTYPES[kind])
    if text in _FLOATS:
        if kind == "pf16":
            return _of_type(int(np.float16(text).view(np.uint16)), kind)  # GFX9: the low half only
        as_float = {2: np.float16, 4: np.float32, 8: np.float64}[dtype.itemsize]
        if text.startswith("0.159") and dtype.itemsize == 4:
            return _of_type(0x3E22F983, kind)
        if dtype.itemsize == 8 and text == "0.15915494":  # no constant, but a literal: the high half
            return _of_type(int(np.float64(text).view(np.uint64)) >> 32 << 32, kind)
        if kind in ("i16", "u16"):  # single precision, of which there is the low half: see ops3p
            single = constant(text, "u32")
            assert single is not None
            return _of_type(int(single[0]), kind)
        return np.full(LANES, float(text), as_float).view(dtype)
    if not re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", text):
        return None
    value = int(text, 0)
    if -16 <= value <= 64 or dtype.itemsize < 8:
        return _of_type(value, kind)
    low = value & 0xFFFFFFFF
    if kind == "f64":
        return _of_type(low << 32, kind)
    return _of_type((low ^ 1 << 31) - (1 << 31) if kind == "i64" else low, kind)


def dwords_as(parts: list[Array], kind: str) -> Array:
    """Registers as values of a type."""
    dtype = np.dtype(fp.DTYPES[kind])
    if dwords(kind) == 2:
        high = parts[1] if len(parts) > 1 else np.zeros(LANES, _U)
        return (parts[0].astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)).view(dtype)
    return parts[0].astype(np.uint16).view(dtype) if dtype.itemsize == 2 else parts[0].view(dtype)


def pick(x: Array, select: str, sext: bool) -> Array:
    """The selected part of a register, extended to 32 bits."""
    start, width = FIELDS[select]
    part = x >> _U(start) & _U((1 << width) - 1)
    if sext and width < 32:
        part = ((part.astype(np.int64) ^ 1 << width - 1) - (1 << width - 1)).astype(_U)
    return part


def place(value: Array, old: Array, select: str, unused: str) -> Array:
    """A 32-bit result put into the selected part of the destination."""
    start, width = FIELDS[select]
    mask = _U((1 << width) - 1 << start)
    placed = value << _U(start) & mask
    if unused == "UNUSED_PRESERVE":
        return placed | (old & ~mask)
    if unused == "UNUSED_SEXT" and start + width < 32:
        negative = placed >> _U(start + width - 1) & _U(1) == 1
        placed = np.where(negative, placed | _U(0xFFFFFFFF << (start + width) & 0xFFFFFFFF), placed)
    return placed


@cache
def dpp_source(control: str) -> tuple[int, ...]:
    """For each lane the lane that it reads, -1 if there is none."""
    return tuple(_dpp_lane(control, lane) for lane in range(LANES))


def _dpp_lane(control: str, lane: int) -> int:
    row, i = lane & ~15, lane & 15
    name, _, arg = control.partition(":")
    if name == "quad_perm":
        return lane & ~3 | [int(v) for v in arg.strip("[]").split(",")][lane & 3]
    n = int(arg or 0)
    inside = {"row_shl": i + n, "row_shr": i - n}.get(name)
    if inside is not None:
        return row + inside if 0 <= inside < 16 else -1
    wave = {"wave_shl": lane + 1, "wave_shr": lane - 1}.get(name)
    if wave is not None:
        return wave if 0 <= wave < 64 else -1
    if name == "row_bcast":
        return (row - 1 if row else -1) if n == 15 else (31 if lane >= 32 else -1)
    return {
        "row_ror": row | (i - n) % 16,
        "wave_rol": (lane + 1) % 64,
        "wave_ror": (lane - 1) % 64,
        "row_mirror": row | 15 - i,
        "row_half_mirror": lane & ~7 | 7 - (lane & 7),
        "row_newbcast": row | n,
    }[name]


_CONTROLS = ("quad_perm", "row_", "wave_")


def control_of(line: Line) -> str:
    """The control of a DPP line."""
    for name, value in line.options.items():
        if name.startswith(_CONTROLS) and name != "row_mask":
            return name if value == "1" and name.endswith("mirror") else f"{name}:{value}"
    return ""


def dpp_lanes(line: Line, exec_mask: int) -> tuple[Array, Array]:
    """For each lane: the lane read (-1: a zero), and whether it is written."""
    source = np.array(dpp_source(control_of(line)))
    on = lanes_of_mask(exec_mask)
    # Lanes that are off count as outside: there is no fetch-inactive on GFX9.
    source = np.where((source >= 0) & on[np.maximum(source, 0)], source, -1)
    lane = np.arange(LANES)
    rows, banks = (int(line[n] or "0xf", 0) for n in ("row_mask", "bank_mask"))
    enabled = on & (rows >> lane // 16 & 1 == 1) & (banks >> lane // 4 % 4 & 1 == 1)
    return source, enabled & ((source >= 0) | ("bound_ctrl" in line.options))


def lanes_of_mask(mask: int) -> Array:
    """A mask as a bool a lane."""
    return np.array([mask >> i & 1 for i in range(LANES)], bool)


def mask_of_lanes(lanes: Array) -> int:
    """Turn it back."""
    return int(np.packbits(lanes, bitorder="little").view(np.uint64)[0])


def read(
    line: Line, n: int, text: str, kind: str, registers: Registers, source: Array | None
) -> Array | None:
    """The value of source n; `source` is DPP's lane for each lane. None if nobody says what it is."""
    o = operand(text)
    value = constant(o.name, kind)
    if value is None:
        if o.name not in registers and dword_names(o.name)[0] not in registers:
            return None
        parts = [registers[r] for r in dword_names(o.name)]
        if source is not None:
            parts = [np.where(source >= 0, p[np.maximum(source, 0)], _U(0)) for p in parts]
        select = line[f"src{n}_sel"]
        if select:
            parts[0] = pick(parts[0], select, o.sext)
        if line["op_sel"] and line["op_sel"].strip("[]").split(",")[n] == "1":
            parts[0] = parts[0] >> _U(16)
        value = dwords_as(parts, kind)
    elif line["op_sel"] and line["op_sel"].strip("[]").split(",")[n] == "1":
        return None
    return modify(value, o.neg, o.absolute) if o.neg or o.absolute else value


def renamed(line: Line, names: Mapping[int, str]) -> Line:
    """The line with some operands replaced, by their places."""
    operands = tuple(names.get(i, text) for i, text in enumerate(line.operands))
    tail = line.text[len(line.lines_up_to()) :]
    made = replace(line, operands=operands)
    return replace(made, text=made.lines_up_to() + tail)
