# SPDX-License-Identifier: MIT OR Apache-2.0
"""The software device's instruction table, as it reports it."""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from . import hip
from .toolchain import target


@dataclass(frozen=True)
class RowInfo:
    """One row: its name and format, and its opcode on each arch that has it."""

    mnemonic: str
    format: str
    opcode: Mapping[str, int] = field(hash=False)
    dst: str
    srcs: tuple[str, ...]
    flags: frozenset[str]


@cache
def _table() -> list[list[str]]:
    size = hip.lib().fmha_emu_rows(None, c.c_size_t(0))
    text = c.create_string_buffer(size)
    hip.lib().fmha_emu_rows(text, c.c_size_t(size))
    return [line.split("\t") for line in text.value.decode().splitlines()]


def archs() -> list[str]:
    """Every arch that the device can play, in the order of its enum."""
    header = _table()[0]
    return header[header.index("format") + 1 : header.index("dst")]


@cache
def all_rows() -> list[RowInfo]:
    """Every row of the table."""
    header, *lines = _table()
    first, last = header.index("format") + 1, header.index("dst")
    rows = []
    for f in lines:
        opcode = {header[i]: int(f[i]) for i in range(first, last) if int(f[i]) >= 0}
        dst, *srcs, flags = f[last:]
        rows.append(RowInfo(f[0], f[1], opcode, dst, tuple(srcs), frozenset(flags.split("|")) - {""}))
    return rows


def of(name: str) -> list[RowInfo]:
    """The rows that an arch has, whatever its waves are."""
    return [r for r in all_rows() if target(name)[0] in r.opcode]


@cache
def by_name(name: str) -> dict[str, RowInfo]:
    """The rows that an arch has, by mnemonic."""
    return {r.mnemonic: r for r in of(name)}


def arch() -> str:
    """The arch the software device plays in this process: $FMHA_EMU_ARCH, else gfx942."""
    return os.environ.get("FMHA_EMU_ARCH") or "gfx942"


def names(arch_name: str | None = None) -> frozenset[str]:
    """Mnemonics an arch has; this process's arch if none is named."""
    return _names(arch_name or arch())


@cache
def _names(arch_name: str) -> frozenset[str]:
    return frozenset(r.mnemonic for r in of(arch_name))


def disassemble(code: bytes, arch_name: str, base: int = 0) -> list[str]:
    """The software device's disassembly, a line an instruction."""
    name, wide = target(arch_name)
    lanes = c.c_int(64 if wide or name.startswith("gfx9") else 32)
    number = c.c_int(archs().index(name))
    fn = hip.lib().fmha_emu_disassemble
    size = fn(number, lanes, code, c.c_size_t(len(code)), c.c_uint64(base), None, c.c_size_t(0))
    text = c.create_string_buffer(size)
    fn(number, lanes, code, c.c_size_t(len(code)), c.c_uint64(base), text, c.c_size_t(size))
    return text.value.decode().splitlines()
