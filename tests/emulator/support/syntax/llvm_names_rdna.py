# SPDX-License-Identifier: MIT OR Apache-2.0
"""Asks LLVM which instructions an arch of RDNA has, as llvm_names.py does."""

from __future__ import annotations

from collections.abc import Iterator

from .llvm_names import Fields, Words, printed

_ROUNDS = 6


def _scalar(f: Fields) -> Iterator[Words]:
    for op in range(256):
        for source in (f.reg(), 128, 0):
            yield (0x17D << 23 | f.pick(f.reg(), 0) << 16 | op << 8 | source, 0)
        base, pick = f.reg() // 2, f.pick(f.reg(), 0)
        for soffset in (124, f.reg()):  # null
            for at in (18, 13):  # gfx11, gfx12
                yield (0x3D << 26 | op << at & 0x3FFFFFF | pick << 6 | base, soffset << 25)
        yield (0x3D << 26 | op << 18 & 0x3FFFFFF, 124 << 25)
    for op in range(128):
        yield (2 << 30 | op << 23 | f.reg() << 16 | f.reg() << 8 | f.reg(), 0)
        yield (0x17E << 23 | op << 16 | f.reg() << 8 | f.reg(), 0)
        for imm in (0, 1, 2, 34):
            yield (0x17F << 23 | op << 16 | imm, 0)
    for op in range(32):
        for imm in (0, 1, 0xF801):
            for sdst in (f.reg(), 124):
                yield (0xB << 28 | op << 23 | sdst << 16 | imm, 5)


def _vector(f: Fields) -> Iterator[Words]:
    for op in range(64):
        yield (op << 25 | f.reg() << 17 | f.reg() << 9 | f.source(), 0x12345678)
    for op in range(256):
        yield (0x3F << 25 | f.reg() << 17 | op << 9 | f.source(), 0)
        yield (0x3F << 25 | op << 9, 0)
        yield (0x3E << 25 | f.reg() << 9 | op << 17 | f.source(), 0)
    for op in range(1024):
        high = f.source() | f.source() << 9 | f.pick(0, f.source()) << 18
        yield (0x35 << 26 | op << 16 | f.pick(0, 0x6A00, 0x0800) | f.reg(), high)
        yield (0x35 << 26 | op << 16 | f.reg(), f.source() | f.vgpr() << 9)
        yield (0x35 << 26 | op << 16 | f.reg(), f.reg())  # of scalar registers
    for op in range(128):
        vectors = f.vgpr() | f.vgpr() << 9
        for third in (0, f.vgpr() << 18, 128 << 18):
            for half in (0, 0x4000):
                for upper in (0, 3 << 27):
                    yield (0xCC << 24 | op << 16 | f.reg() | half, vectors | third | upper)
    for op in range(32):  # LDS_DIRECT and interpolation
        yield (0xCD << 24 | op << 16 | f.reg(), f.vgpr() | f.vgpr() << 9 | f.vgpr() << 18)
        yield (0xCE << 24 | op << 16 | f.reg(), 0)
        for y in range(32):
            banks = 256 + 4 * f.r.getrandbits(4)
            yield (0x32 << 26 | y << 17 | op << 22 | 1 << 9 | banks, (banks + 2) | 3 << 9 | 2 << 24 | 3 << 17)


def _memory(f: Fields) -> Iterator[Words]:
    for op in range(256):
        for used in range(16):  # which of the four register fields are in use
            high = sum(f.reg() << 8 * i for i in range(4) if used >> i & 1)
            yield (0x36 << 26 | op << 18 | f.pick(0, 1 << 17), high)
        high = f.reg() | f.reg() << 8 | f.reg() // 4 << 16
        for rest in (128 << 24, 0):
            yield (0x38 << 26 | op << 18, high | rest)
            yield (0x38 << 26 | op << 18, rest)
            yield (0x3A << 26 | (op & 15) << 15 | 22 << 19, high | rest)
            yield (0x3A << 26 | (op & 7) << 16 | 22 << 19, high | rest | (op >> 3 & 1) << 21)  # gfx10
        for segment in range(3):
            for used in range(8):
                high = sum(f.reg() << s for i, s in enumerate((0, 8, 24)) if used >> i & 1)
                yield (0x37 << 26 | op << 18 | segment << 16 | f.pick(0, 1 << 14), high | 124 << 16)
                for saddr in (125, f.reg()):  # gfx10
                    yield (0x37 << 26 | op << 18 | segment << 14 | f.pick(0, 1 << 16), high | saddr << 16)
                yield (0x37 << 26 | op << 18 | segment << 16 | f.pick(0, 1 << 14), high | f.reg() << 16)
                saddr = f.pick(124, f.reg())
                data = f.reg() | f.pick(0, f.reg()) << 23 | f.pick(0, 1 << 20) | f.pick(0, 1 << 17)
                if not used:
                    data = 0
                yield (0xEC << 24 | segment << 24 | op << 14 | saddr, data, f.pick(0, f.reg()))
        for saddr in (124, f.reg()):
            yield (0x31 << 26 | op << 14 | saddr, f.reg() | f.reg() << 9 | f.pick(0, 1 << 30), f.reg())
            yield (0x31 << 26 | op << 14 | saddr, f.reg() | f.reg() << 9 | 22 << 23, f.reg())
        yield (0x3C << 26 | op << 18 | f.pick(1, 3, 7, 15) << 8, f.reg() | f.reg() << 8)
        yield (0x34 << 26 | op << 14 | f.pick(1, 3, 7, 15) << 22, f.reg() | f.reg() << 9, f.reg())
        yield (
            0x39 << 26 | op << 14 | f.pick(1, 3, 7, 15) << 22,
            f.reg() | f.reg() << 9 | f.reg() << 23,
            f.reg(),
        )
    yield (0x3E << 26 | 0xF, 0x03020100)


def names(cpu: str) -> frozenset[str]:
    """Mnemonics LLVM prints for an arch of RDNA, without the suffix of an encoding."""
    f = Fields()
    words = [w for _ in range(_ROUNDS) for part in (_scalar, _vector, _memory) for w in part(f)]
    return printed(cpu, words)
