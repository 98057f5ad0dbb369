# SPDX-License-Identifier: MIT OR Apache-2.0
"""The decoder against LLVM: every row in every form on each arch that has rows of its own, and every kernel.

LLVM 19 prints what it encodes. Clang 20 encodes the device's text of instructions that LLVM 19 does not
know, such as gfx950's.
"""

from __future__ import annotations

import re
from functools import cache

import pytest

from ..support import rows
from ..support.asm import legal
from ..support.rows import RowInfo
from ..support.spelling import bare
from ..support.syntax.decoding import assembled, differences, emulator, objdump, unlike_clang20
from ..support.syntax.lines import candidates
from ..support.toolchain import CLANG20, UNKNOWN_TO_CLANG20, UNKNOWN_TO_LLVM19, target

CDNA = ("gfx90a", "gfx942")
RDNA = ("gfx1030", "gfx1100", "gfx1150", "gfx1201")
WIDE = tuple(f"{cpu}:64" for cpu in RDNA if cpu != "gfx1150")  # their waves of 64
ARCHS = CDNA + RDNA
OF_CLANG20 = "gfx950"
_KEEP = 16  # accepted lines a row and form
compiles = pytest.mark.skipif(not CLANG20.exists(), reason="no clang 20: `make toolchain`, without a ROCm")

# LLVM writes them in a way that it reads as something else; and inline constants of i16.
_UNREAD = re.compile(r"s_waitcnt 0x|v_(nop|clrexcp)_e64")


def _kept(cpu: str, of: list[RowInfo], later: bool = False) -> dict[tuple[str, str], list[str]]:
    """Return for each (row, form) the lines that LLVM or clang 20 takes."""
    rdna = target(cpu)[0] in RDNA
    tried = [
        (row, form, line)
        for row in of
        for form, lines in candidates(row, rdna=rdna, wide=cpu in WIDE).items()
        for line in lines
    ]
    good = legal([line for _, _, line in tried], cpu, later)
    kept: dict[tuple[str, str], list[str]] = {}
    for (row, form, line), ok in zip(tried, good, strict=True):
        unread = later and (("i16" in row.srcs and re.search(r"\d\.\d", line)) or _UNREAD.match(line))
        if ok and not unread and len(kept.setdefault((row.mnemonic, form), [])) < _KEEP:
            kept[row.mnemonic, form].append(line)
    return kept


@cache
def accepted(cpu: str) -> tuple[dict[tuple[str, str], list[str]], list[tuple[int, str]], list[str]]:
    """By (row, form) the lines LLVM takes and their listing; all of LLVM's listing; the disagreements."""
    kept = _kept(cpu, rows.of(cpu))
    path = assembled([line for lines in kept.values() for line in lines], cpu)
    llvm, code, base = objdump(path, cpu)
    return kept, llvm, differences(emulator(code, cpu, base), llvm)


@pytest.mark.parametrize("cpu", ARCHS + WIDE)
def test_rows_decode_as_llvm(cpu: str) -> None:
    """Random operands of every row print as LLVM prints them."""
    _, llvm, wrong = accepted(cpu)
    assert not wrong, f"{len(wrong)} of {len(llvm)} differ:\n" + "\n".join(wrong[:60])


@compiles
@pytest.mark.parametrize("cpu", [OF_CLANG20, "gfx1201"])
def test_rows_decode_as_clang20(cpu: str) -> None:
    """Each row occurs that LLVM 19 does not know on the arch, and clang 20 reads what the device writes."""
    unknown = UNKNOWN_TO_LLVM19 - UNKNOWN_TO_CLANG20
    of = [r for r in rows.of(cpu) if cpu == OF_CLANG20 or r.mnemonic in unknown]
    kept = _kept(cpu, of, later=True)
    missing = {r.mnemonic for r in of} - {name for name, _ in kept}
    assert not missing, f"{len(missing)} rows were never assembled: {sorted(missing)}"
    wrong = unlike_clang20([line for lines in kept.values() for line in lines], cpu)
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:60])


# LLVM 19 takes them only if it is told to print registers' halves.
_NEEDS_HALVES = {"v_mov_b16", "v_fmamk_f16"}


@pytest.mark.parametrize("cpu", ARCHS + WIDE)
def test_every_opcode_is_met(cpu: str) -> None:
    """Each row's opcode occurred: LLVM disassembles some accepted line to the row's name."""
    _, llvm, _ = accepted(cpu)
    seen = {bare(text.split()[0]) for _, text in llvm}
    if any("::" in text for _, text in llvm):
        seen.add("v_dual")  # the row of all pairs of operations
    if cpu in WIDE:
        assert "v_dual" not in seen
        seen.add("v_dual")  # waves of 64 do not have it
    if cpu not in CDNA:
        seen |= _NEEDS_HALVES
    missing = sorted({r.mnemonic for r in rows.of(cpu)} - seen - UNKNOWN_TO_LLVM19)
    assert not missing, f"{len(missing)} rows were never assembled: {missing}"


@pytest.mark.parametrize("cpu", RDNA + WIDE)
def test_every_form_of_rdna_is_met(cpu: str) -> None:
    """The same of RDNA, which has DPP8, and from gfx11 on DPP of 64-bit forms instead of SDWA."""
    kept, _, _ = accepted(cpu)
    without = [
        r.mnemonic
        for r in rows.of(cpu)
        if r.format == "VOPC" and not (kept.get((r.mnemonic, "e32")) or kept.get((r.mnemonic, "e64")))
    ]
    assert not without
    lines = [line for (_, form), of_form in kept.items() for line in of_form if "dpp" in form]
    for text in ("dpp8:", "row_xmask:", *(() if cpu.startswith("gfx1030") else ("_e64_dpp ",))):
        assert sum(1 for line in lines if text in line) > 50, text
    assert (sum(form == "sdwa" for _, form in kept) > 50) == cpu.startswith("gfx1030")


@pytest.mark.parametrize("cpu", CDNA)
def test_every_form_is_met(cpu: str) -> None:
    """VOP1, VOP2 and VOPC rows were tried in e64 form, and most in SDWA and DPP form."""
    kept, _, _ = accepted(cpu)
    forms = {"VOP1": ("e32", "e64"), "VOP2": ("e32",), "VOPC": ("e32", "e64")}
    missing = [
        f"{r.mnemonic}_{form}"
        for r in rows.of(cpu)
        for form in forms.get(r.format, ())
        if not kept.get((r.mnemonic, form))
    ]
    # Written without a suffix, so counted as e64.
    allowed = {"v_nop_e32", "v_clrexcp_e32", "v_accvgpr_mov_b32_e32"}
    assert set(missing) == allowed, "forms never met, or exemptions that no longer are any"
    for form in ("sdwa", "dpp"):
        assert sum(1 for name, f in kept if f == form) > 50


# Where the VOP3 forms of the short formats are.
_VOP3_FORM = {"VOPC": 0, "VOP2": 0x100}
_ONE_FORM = {"literal_k", "scalar_dst", "one_form"}


@pytest.mark.parametrize("cpu", [*ARCHS, OF_CLANG20])
def test_rows_are_unique(cpu: str) -> None:
    """One row a name, and one row an opcode of an encoding, VOP3 forms included. There is no exemption."""
    forms = _VOP3_FORM | {"VOP1": 0x180 if cpu in RDNA else 0x140}
    names = [row.mnemonic for row in rows.of(cpu)]
    assert len(names) == len(set(names)), sorted({n for n in names if names.count(n) > 1})
    seen: dict[tuple[str, int], str] = {}
    for row in rows.of(cpu):
        family = {"VOP3B": "VOP3", "MAI": "VOP3P"}.get(row.format, row.format)
        places = [(family, row.opcode[cpu])]
        if row.format in forms and not row.flags & _ONE_FORM:
            places.append(("VOP3", forms[row.format] + row.opcode[cpu]))
        for place in places:
            other = seen.setdefault(place, row.mnemonic)
            assert other == row.mnemonic, f"{place}: {other} and {row.mnemonic}"


def test_every_row_is_bound() -> None:
    """Some arch's opcode table names each row."""
    assert not [row.mnemonic for row in rows.all_rows() if not row.opcode]
