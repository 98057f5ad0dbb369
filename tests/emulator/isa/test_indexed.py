# SPDX-License-Identifier: MIT OR Apache-2.0
"""VGPR indexing of every row of the vector ALU: the registers that M0 names move, and no others.

A line under s_set_gpr_idx_on does the same as a line that names the moved registers itself. The ISA guides'
table (6.6.2) says which bit of M0[15:12] moves which operand. Sources count as they are written, so the third
source's bit moves the last one of v_madmk. An accumulator or a kept destination moves with the destination.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import numpy as np

from ..support import byform, rows
from ..support.asm import LANES, legal
from ..support.byform import Program
from ..support.fp import random_bits
from ..support.ops.meaning import Line, dword_names, parse, renamed
from ..support.rows import RowInfo
from ..support.syntax.lines import dwords

BY = 20  # what M0 adds
_ON, _OFF = f"s_set_gpr_idx_on {BY}, gpr_idx({{}})", "s_set_gpr_idx_off"
_NAMES = ("SRC0", "SRC1", "SRC2", "DST")
_DST = 8
WHICH = (1, 2, 4, 8, 9, 14, 15)
_VALUES = [i + by for by in (0, BY) for i in (2, 3, 6, 7, 10, 11)] + [40, 41, 42, 43]
WITHOUT = {
    # The guides do not say what moves; the device refuses them: test_scalar_special.
    "v_swap_b32",
    "v_permlane16_swap_b32",
    "v_permlane32_swap_b32",
    "v_accvgpr_mov_b32",
    "v_screen_partition_4se_b32",
    "v_writelane_b32",  # one register: test_scalar_special
    "v_mqsad_u32_u8",  # wider than what is between the registers here
    *(r.mnemonic for r in rows.of("gfx950") if {"b192", "b512", "b1024"} & {r.dst, *r.srcs}),  # too
}
# Data of two elements, which must be registers: test_scaled.
_PACKED = re.compile(r"v_cvt_scalef32_(pk_(fp8|bf8|fp4)_b?f16|sr_pk_fp4_b?f(16|32))(_e64)? \S+, [^v]")
_FORMATS = ("VOP1", "VOP2", "VOPC", "VOP3", "VOP3B", "VOP3P")


def _register(first: int, count: int, bank: str = "v") -> str:
    return f"{bank}{first}" if count == 1 else f"{bank}[{first}:{first + count - 1}]"


def _plain_lines(row: RowInfo) -> Iterator[str]:
    """The row's forms, with vector registers wherever it takes them, and with other operands between them."""
    kinds = [k for k in row.srcs if k != "none"]
    scalar = row.dst == "mask" or "scalar_dst" in row.flags
    dst = [_register(_DST, dwords(row.dst), "s" if scalar else "v")]
    short = ["vcc"] if row.format == "VOPC" else dst
    sources = [_register(2 + 4 * i, dwords(k)) for i, k in enumerate(kinds)]
    if "literal_k" in row.flags:
        sources.insert(1 if "literal_middle" in row.flags else 2, "0x3c05")
    has_vcc = row.format == "VOP2"
    out = ["vcc"] if has_vcc and "writes_vcc" in row.flags else ["s[14:15]"] if row.format == "VOP3B" else []
    mask = ["vcc"] if has_vcc and "reads_vcc" in row.flags else []
    for suffix in ("", "_e32", "_e64"):
        first = dst if suffix == "_e64" else short
        yield f"{row.mnemonic}{suffix} {', '.join([*first, *out, *sources, *mask])}"
    for i in range(len(sources)):
        for other in ("s7", "m0", "2"):
            changed = [*sources[:i], other, *sources[i + 1 :]]
            yield f"{row.mnemonic} {', '.join([*dst, *out, *changed, *mask])}"
    selects = " ".join(
        f"src{i}_sel:{s}" for i, s in zip(range(len(sources)), ("WORD_1", "BYTE_2"), strict=False)
    )
    placed = "" if row.format == "VOPC" else "dst_sel:{} dst_unused:UNUSED_PRESERVE "
    for select in ("WORD_1", "BYTE_0"):
        operands = ", ".join([*short, *out, *sources, *mask])
        yield f"{row.mnemonic}_sdwa {operands} {placed.format(select)}{selects}".strip()


def _moved(line: Line, which: int, carries: bool) -> Line:
    """The line that names the registers which indexing gives it."""
    names = {}
    for i, text in enumerate(line.operands):
        source = i - (2 if carries else 1)
        bit = 3 if i == 0 else source
        if text.startswith("v") and not text.startswith("vcc") and 0 <= bit <= 3 and which >> bit & 1:
            numbers = dword_names(text)
            names[i] = _register(int(numbers[0][1:]) + BY, len(numbers))
    return renamed(line, names)


@cache
def lines() -> list[tuple[RowInfo, Line]]:
    """Lines that LLVM takes."""
    found = [r for r in rows.of(rows.arch()) if r.format in _FORMATS and r.mnemonic not in WITHOUT]
    every = [(r, t) for r in found if "no_src" not in r.flags for t in dict.fromkeys(_plain_lines(r))]
    tried = [(row, text) for row, text in every if not _PACKED.match(text)]
    good = legal([text for _, text in tried])
    return [(row, parse(text)) for (row, text), ok in zip(tried, good, strict=True) if ok]


def _looks(row: RowInfo, line: Line) -> list[str]:
    found = dword_names(line.operands[0])
    if row.dst != "mask" and "scalar_dst" not in row.flags:
        found = ["v8", "v9", "v28", "v29"]
    carry = [n for t in line.operands[1:2] if t in ("vcc", "s[14:15]") for n in dword_names(t)]
    return [*found, *carry, "exec_lo", "exec_hi"]


def _programs() -> Iterator[tuple[Program, list[tuple[str, str]]]]:
    """Each indexed line, and behind it the one it should be like; and what they are."""
    rng = np.random.default_rng(17)
    for at in range(0, len(lines()), 16):
        made, looks, what = [], [], []
        for row, line in lines()[at : at + 16]:
            carries = line.operands[1] in ("vcc", "s[14:15]") and row.dst != "mask"
            for which in WHICH:
                plain = _moved(line, which, carries)
                on = _ON.format(",".join(n for i, n in enumerate(_NAMES) if which >> i & 1))
                # Both find the same M0, with the bits that s_set_gpr_idx_on leaves alone.
                made += [[on, line.text, _OFF], [on, _OFF, plain.text]]
                looks += [[*_looks(row, line), "m0"]] * 2
                what.append((f"{on}; {line.text}", plain.text))
        values = {
            f"v{i}": random_bits("f32" if i % 2 else "pf16", LANES, rng).view(np.uint32) for i in _VALUES
        }
        yield Program(made, looks, values, 0x3F0), what


def test_every_row_is_indexed() -> None:
    """Every row has lines, and a new one too."""
    have = {row.mnemonic for row, _ in lines()}
    named = {r.mnemonic for r in rows.of(rows.arch()) if r.format in _FORMATS and "no_src" not in r.flags}
    assert named - have == WITHOUT & named


def test_indexed_line_is_the_line_of_the_moved_registers() -> None:
    """Sources, destinations, what is accumulated or kept: each moves by its bit of M0 and by no other."""
    made = list(_programs())
    byform.run([program for program, _ in made])
    wrong = []
    for program, what in made:
        if program.error:
            wrong.append(program.error)
            continue
        for i, (indexed, plain) in enumerate(what):
            got, want = program.results[2 * i : 2 * i + 2]
            differ = [n for n in want if (got[n] != want[n]).any()]
            if differ:
                wrong.append(f"{indexed}: {differ} differ from {plain}")
    assert not wrong, f"{len(wrong)} wrong:\n" + "\n".join(wrong[:40])


def test_which_bit_moves_what() -> None:
    """As the guides' table has it, for the one row whose sources are not counted as they are encoded."""
    line = next(x for r, x in lines() if "literal_middle" in r.flags)
    moved = [_moved(line, bit, False).operands for bit in (1, 2, 4, 8)]
    assert moved == [
        ("v8", "v22", "0x3c05", "v6"),
        ("v8", "v2", "0x3c05", "v6"),
        ("v8", "v2", "0x3c05", "v26"),
        ("v28", "v2", "0x3c05", "v6"),
    ]
