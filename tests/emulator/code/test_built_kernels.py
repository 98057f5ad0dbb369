# SPDX-License-Identifier: MIT OR Apache-2.0
"""The device's text of every instruction of the kernels that were built, against the compilers'.

LLVM 19 disassembles those of the archs that it knows. For gfx950 the witnesses are clang 20's assembly, which
lies beside each code object, and that clang as an assembler.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from ..support import rows
from ..support.syntax.decoding import by_clang20, differences, emulator, objdump, text_of
from ..support.toolchain import CLANG20, ROOT

OF_CLANG20 = "gfx950"
KERNELS = ROOT / "build/release/kernels" / OF_CLANG20
ASSEMBLIES = sorted(KERNELS.glob("*.s"))
PREBUILT = sorted(KERNELS.glob("*_aiter*.co"))
here = pytest.mark.skipif(bool(os.environ.get("FMHA_EMU_ARCH")), reason="already the inner run")
compiles = pytest.mark.skipif(not CLANG20.exists(), reason="no clang 20: `make toolchain`, without a ROCm")


def code_objects() -> list[Path]:
    """Every kernel built, but gfx950's, and those named by $FMHA_TEST_CODE_OBJECTS (a folder)."""
    folders = [ROOT / "build/release"]
    if os.environ.get("FMHA_TEST_CODE_OBJECTS"):
        folders.append(Path(os.environ["FMHA_TEST_CODE_OBJECTS"]))
    found = sorted(p for f in folders for p in f.rglob("*.co"))
    return [p for p in found if "gfx950" not in p.parent.name]  # which LLVM here does not know


@pytest.mark.parametrize("path", code_objects(), ids=lambda p: p.stem)
def test_kernel_decodes_as_llvm(path: Path) -> None:
    """Mnemonic and operands of every instruction of a built kernel."""
    named = re.search(r"gfx[0-9a-f]+", path.parent.name)
    cpu = named[0] if named else "gfx942"
    llvm, code, base = objdump(path, cpu)
    assert llvm
    wrong = differences(emulator(code, cpu, base), llvm)
    assert not wrong, f"{len(wrong)} of {len(llvm)} differ:\n" + "\n".join(wrong[:40])


def test_kernels_were_found() -> None:
    """There is something to compare."""
    assert code_objects(), "no code object under build/release: build the kernels first"


def _spelled(text: str) -> str:
    """One spelling of an instruction: no comment, no label, single blanks."""
    text = re.sub(r"\s*;.*", "", text)
    text = re.sub(r"_e(32|64)\b", "", text)  # which LLVM's assembler needs not be told
    text = re.sub(r"^(s_c?branch\w*) .*", r"\1", text.strip())
    # Hide differences: symbols that the linker fills in, ranges of one register, hexadecimal numbers.
    text = re.sub(r"[\w.$]+@\w+(@\w+)?([+-]\d+)?", "SYMBOL", text)
    text = re.sub(r"(?<![\w.])0x([0-9a-f]+)", lambda m: str(int(m[1], 16)), text)
    text = re.sub(r" offset:0\b|,", "", text)  # which CK's asm says, or leaves out, as it likes
    return re.sub(r"\s+", " ", text)


def _of_compiler(text: str) -> list[str]:
    """The instructions of an assembly file."""
    found = re.findall(r"^\s*((?:v|s|ds|buffer|global|flat|scratch)_\w+(?:[ \t].*)?)$", text, re.MULTILINE)
    return [_spelled(line) for line in found]


def _listing(path: Path) -> list[str]:
    """The software device's reading of .text."""
    data = path.read_bytes()
    offset, size, address = text_of(data)
    listing = rows.disassemble(data[offset : offset + size], OF_CLANG20, address)
    return [line.partition(": ")[2] for line in listing]


@here
@pytest.mark.skipif(
    not ASSEMBLIES, reason="no kernel of gfx950 was compiled by the clang 20 of the toolchain"
)
@pytest.mark.parametrize("path", ASSEMBLIES, ids=lambda path: path.stem)
def test_kernels_decode_as_the_compiler_wrote_them(path: Path) -> None:
    """Every instruction of every kernel, but for the targets of branches and addresses of symbols."""
    wanted = _of_compiler(path.read_text())
    padding = ("s_nop 0", "s_code_end", "s_endpgm")  # between functions
    got = [_spelled(line) for line in _listing(path.with_suffix(".co"))]
    at = 0
    for text in wanted:
        while got[at] != text and got[at] in padding:
            at += 1
        if "SYMBOL" not in text:
            assert got[at] == text, f"instruction {at}"
        at += 1
    assert wanted
    assert set(got[at:]) <= set(padding)


@here
@compiles
@pytest.mark.parametrize("path", PREBUILT, ids=lambda path: path.stem)
def test_prebuilt_kernels_decode(path: Path) -> None:
    """clang encodes the device's text of AITER's objects to the same bytes, but for branches."""
    data = path.read_bytes()
    offset, size, _ = text_of(data)
    text = [re.sub(r"^(s_c?branch\w*) .*", r"\1 0", line) for line in _listing(path)]
    got, want = (
        np.frombuffer(x, "<u4") for x in (by_clang20(text, OF_CLANG20), data[offset : offset + size])
    )
    assert len(got) == len(want)
    differ = np.flatnonzero(got != want)
    assert (want[differ] >> 23 == 0x17F).all(), "not SOPP"
    assert (got[differ] == want[differ] & 0xFFFF0000).all()
