# SPDX-License-Identifier: MIT OR Apache-2.0
"""The software device's instruction table, as it reports it."""

from __future__ import annotations

import ctypes as c
import os
from dataclasses import dataclass
from functools import cache

from . import hip


@dataclass(frozen=True)
class RowInfo:
    """One row: its name, format and opcode on each arch (-1: the arch lacks it)."""

    mnemonic: str
    format: str
    gfx90a: int
    gfx942: int
    dst: str
    srcs: tuple[str, ...]
    flags: frozenset[str]


@cache
def all_rows() -> list[RowInfo]:
    """Every row of the table."""
    size = hip.lib().fmha_emu_rows(None, c.c_size_t(0))
    text = c.create_string_buffer(size)
    hip.lib().fmha_emu_rows(text, c.c_size_t(size))
    rows = []
    for line in text.value.decode().splitlines()[1:]:
        f = line.split("\t")
        flags = frozenset(x for x in (f[8].split("|") if len(f) > 8 else []) if x)
        rows.append(RowInfo(f[0], f[1], int(f[2]), int(f[3]), f[4], tuple(f[5:8]), flags))
    return rows


def arch() -> str:
    """The arch the software device plays in this process: $FMHA_EMU_ARCH, else gfx942."""
    return os.environ.get("FMHA_EMU_ARCH") or "gfx942"


def names(of: str | None = None) -> frozenset[str]:
    """Mnemonics an arch has; this process's arch if none is named."""
    return _names(of or arch())


@cache
def _names(of: str) -> frozenset[str]:
    return frozenset(r.mnemonic for r in all_rows() if getattr(r, of) >= 0)


def disassemble(code: bytes, of: str, base: int = 0) -> list[str]:
    """The software device's disassembly, a line an instruction."""
    number = c.c_int(("gfx90a", "gfx942").index(of))
    fn = hip.lib().fmha_emu_disassemble
    size = fn(number, code, c.c_size_t(len(code)), c.c_uint64(base), None, c.c_size_t(0))
    text = c.create_string_buffer(size)
    fn(number, code, c.c_size_t(len(code)), c.c_uint64(base), text, c.c_size_t(size))
    return text.value.decode().splitlines()
