# SPDX-License-Identifier: MIT OR Apache-2.0
"""Machine code as LLVM and as the software device print it, in one spelling."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from .. import rows
from ..spelling import bare
from ..toolchain import assembler, target, tool


def normal(text: str) -> str:
    """One spelling: single blanks, branch distances signed, no symbol notes."""
    text = re.sub(r"\s+", " ", re.sub(r"<.*>", "", text)).strip()
    match = re.fullmatch(
        r"(s_branch|s_cbranch_\w+|s_cbranch_i_fork \S+|s_call_b64 \S+|s_subvector\w+) (-?(?:0x)?\d\w*)", text
    )
    if match:
        distance = int(match[2], 0)
        text = f"{match[1]} {(distance & 0xFFFF ^ 0x8000) - 0x8000}"
    return text


def _options(cpu: str) -> list[str]:
    """How LLVM's tools are told of an arch."""
    name, wide = target(cpu)
    return [f"--mcpu={name}", *(["--mattr=+wavefrontsize64,-wavefrontsize32"] if wide else [])]


def objdump(path: Path, cpu: str) -> tuple[list[tuple[int, str]], bytes, int]:
    """(address, text) of each instruction, the bytes of .text, and its address."""
    done = subprocess.run(
        [tool("llvm-objdump"), "-d", "-z", "-h", *_options(cpu), "-j", ".text", str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    found = []
    words: list[int] = []
    start = -1
    for line in done.stdout.splitlines():
        match = re.match(r"\s+(.*?)\s*// ([0-9A-F]{12}): ([0-9A-F ]+)", line)
        if match:
            address = int(match[2], 16)
            start = address if start < 0 else start
            distance = int(match[3][:8], 16) & 0xFFFF
            text = re.sub(r" label_\w+$", f" {distance}", match[1])  # of assembly with labels
            found.append((address, normal(text)))
            words += [int(w, 16) for w in match[3].split()]
    size = re.search(r"^ *\d+ \.text +([0-9a-f]{8}) ", done.stdout, re.M)
    assert size
    assert 4 * len(words) == int(size[1], 16), "LLVM left out part of .text"
    return found, b"".join(w.to_bytes(4, "little") for w in words), start


def emulator(code: bytes, cpu: str, base: int) -> list[tuple[int, str]]:
    """The software device's disassembly in the same shape."""
    out = []
    for line in rows.disassemble(code, cpu, base):
        address, _, text = line.partition(": ")
        out.append((int(address, 16), normal(text)))
    return out


# Lines LLVM accepts that no program has a use for, which the device refuses to run rather than guess:
# trap-handler registers, jumps to constants, messages to graphics hardware (only LLVM spells them out),
# registers that it calls invalid itself. Its bars around a source of v_cndmask_b32_dpp enclose the mask too.
# LLVM reads the upper halves of v0 to v127 in gfx12's v_cvt_pk_f32_fp8 as v128 and up; clang 20 does not.
_NONSENSE = re.compile(
    r"ttmp|s_(setpc|swappc)_b64 .*[^\]]$|sendmsg\(MSG|/\*Invalid register|\|v\d+, vcc(_lo)?\|"
    r"|v_cvt_pk_f32_(fp|bf)8_(e32|dpp) \S+, v(12[89]|1[3-9]\d|2\d\d)\b"
)


def differences(ours: list[tuple[int, str]], llvm: list[tuple[int, str]]) -> list[str]:
    """Instructions on which the two disagree."""
    mine = dict(ours)
    return [
        f"{address:x}: LLVM {text!r}, the device {mine.get(address)!r}"
        for address, text in llvm
        if mine.get(address) != text and not _NONSENSE.search(text)
    ]


def text_of(data: bytes) -> tuple[int, int, int]:
    """Offset, size and address of an ELF's section .text."""
    table = int.from_bytes(data[40:48], "little")
    size, count, names = (int.from_bytes(data[at : at + 2], "little") for at in (58, 60, 62))
    headers = [np.frombuffer(data, "<u4,<u4,<u8,<u8,<u8,<u8", 1, table + i * size)[0] for i in range(count)]
    for name, _, _, address, offset, length in headers:
        start = int(headers[names][4]) + int(name)
        if data[start : start + 6] == b".text\0":
            return int(offset), int(length), int(address)
    raise AssertionError("no .text")


def by_clang20(lines: list[str], cpu: str) -> bytes:
    """Return clang 20's encoding of these lines."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.o"
        subprocess.run(
            [*assembler(cpu, True), "-", "-o", path], input="\n".join(lines), text=True, check=True
        )
        data = path.read_bytes()
    offset, size, _ = text_of(data)
    return data[offset : offset + size]


def unlike_clang20(lines: list[str], cpu: str) -> list[str]:
    """Lines of which the device has another mnemonic than clang 20, or a text that it encodes otherwise."""
    code = by_clang20(lines, cpu)
    ours = emulator(code, cpu, 0)
    again = by_clang20([text for _, text in ours], cpu)
    ends = [address for address, _ in ours[1:]] + [len(code)]
    assert len(ours) == len(lines)
    return [
        f"clang {line!r}, the device {text!r}"
        for line, (start, text), end in zip(lines, ours, ends, strict=True)
        if bare(line.split()[0]) != bare(text.split()[0]) or code[start:end] != again[start:end]
    ]


def assembled(lines: list[str], cpu: str) -> Path:
    """An object file of these lines."""
    path = Path(tempfile.mkdtemp()) / "x.o"
    subprocess.run(
        [tool("llvm-mc"), "-arch=amdgcn", *_options(cpu), "-filetype=obj", "-o", str(path)],
        input="\n".join(lines),
        text=True,
        check=True,
    )
    return path
