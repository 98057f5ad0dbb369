# SPDX-License-Identifier: MIT OR Apache-2.0
"""Ask LLVM's disassembler for an arch's instructions: every opcode, many operands."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Iterator, Sequence

from ..toolchain import tool

_ROUNDS = 12
Words = tuple[int, ...]


class Fields:
    """Random operands: registers whose number suits any width, now and then a constant."""

    def __init__(self) -> None:
        self.r = random.Random(4)

    def reg(self) -> int:
        return 4 * self.r.getrandbits(4)

    def vgpr(self) -> int:
        return 256 + self.reg()

    def source(self) -> int:
        return self.r.choice([self.vgpr(), self.vgpr(), self.reg(), 128, 242])

    def pick(self, *values: int) -> int:
        return self.r.choice(values)


def _scalar(f: Fields) -> Iterator[Words]:
    for op in range(256):
        yield 0x17D << 23 | f.reg() << 16 | op << 8 | f.pick(f.reg(), 128), 0
        yield (
            0x30 << 26 | op << 18 | f.pick(0, 1 << 17) | f.pick(0, 1 << 16) | f.reg() << 6 | f.reg() // 2,
            f.reg(),
        )
        yield 0x30 << 26 | op << 18, 0
    for op in range(128):
        yield 2 << 30 | op << 23 | f.reg() << 16 | f.reg() << 8 | f.reg(), 0
        yield 0x17E << 23 | op << 16 | f.reg() << 8 | f.reg(), 0
        yield 0x17F << 23 | op << 16 | f.pick(0, 1, 2, 34), 0
    for op in range(32):
        yield 0xB << 28 | op << 23 | f.reg() << 16 | f.pick(0, 1, 0xF801), 5


def _vector(f: Fields) -> Iterator[Words]:
    for op in range(64):
        yield op << 25 | f.reg() << 17 | f.reg() << 9 | f.source(), 0x12345678
    for op in range(256):
        yield 0x3F << 25 | f.reg() << 17 | op << 9 | f.source(), 0
        yield 0x3F << 25 | op << 9, 0
        yield 0x3E << 25 | f.reg() << 9 | op << 17 | f.source(), 0
    for op in range(1024):
        high = f.source() | f.source() << 9
        yield 0x34 << 26 | op << 16 | f.pick(0, 0x6A00) | f.reg(), high | f.pick(0, f.source()) << 18
    for op in range(128):
        first, second = f.vgpr(), f.vgpr() << 9
        for third in (0, f.vgpr() << 18, 128 << 18):
            for banks in (0, 3 << 27):
                low = 0x1A7 << 23 | op << 16 | f.reg()
                yield low | f.pick(0, 0x4000), first | second | third | banks
                yield low | 0x8000, first | second | third | banks
                yield low | f.pick(0, 0x4000), first | banks
                yield low | 0x4000, first | second | third | banks


def _memory(f: Fields) -> Iterator[Words]:
    for op in range(256):
        for used in range(16):  # which of the four register fields are in use
            high = sum(f.reg() << 8 * i for i in range(4) if used >> i & 1)
            yield 0x36 << 26 | op << 17 | f.pick(0, 1 << 16), high
    for op in range(128):
        high = f.reg() | f.reg() << 8 | f.reg() // 4 << 16 | f.pick(128, 4) << 24
        for flags in (0, 1 << 12, 1 << 13, 1 << 14, 1 << 16):
            yield 0x38 << 26 | op << 18 | flags, high
        yield 0x38 << 26 | op << 18 | f.pick(0, 3 << 14), 0
        yield 0x3A << 26 | (op & 15) << 15 | f.r.getrandbits(7) << 19, high
        yield 0x3C << 26 | op << 18 | f.pick(1, 3, 7, 15) << 8 | f.pick(0, 1 << 15), high & 0xFFFFFF
        for segment in range(3):
            for used in range(8):
                saddr = f.pick(0x7F, 0x7F, f.reg()) << 16 if segment else 0
                high = sum(f.reg() << s for i, s in enumerate((0, 8, 24)) if used >> i & 1)
                yield 0x37 << 26 | op << 18 | segment << 14 | f.pick(0, 1 << 16, 1 << 13), high | saddr


def names(cpu: str) -> frozenset[str]:
    """Mnemonics LLVM prints for an arch of gfx9, without the suffix of an encoding."""
    f = Fields()
    words = [w for _ in range(_ROUNDS) for part in (_scalar, _vector, _memory) for w in part(f)]
    return printed(cpu, words)


def printed(cpu: str, words: Sequence[Words]) -> frozenset[str]:
    """The same of these words."""
    text = "\n".join(
        ",".join(f"0x{b:02x}" for word in several for b in word.to_bytes(4, "little")) for several in words
    )
    done = subprocess.run(
        [tool("llvm-mc"), "-disassemble", "-arch=amdgcn", f"-mcpu={cpu}"],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # its complaints come a few bytes at a time, which takes long
        text=True,
        check=False,  # most words are no instruction
    )
    found = re.findall(r"^\t([a-z]\w+)", done.stdout, re.MULTILINE)
    return frozenset(re.sub(r"_(e32|e64|sdwa|dpp|e64_dpp)$", "", name) for name in found)
