# SPDX-License-Identifier: MIT OR Apache-2.0
"""Read an AMDGPU code object: its metadata note and its exported data."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

_SHT_NOTE, _SHT_DYNSYM = 7, 11
_NT_AMDGPU_METADATA = 32
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


class CodeObject:
    """A 64-bit little-endian ELF for AMDGPU, as device-only compilation writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = path.read_bytes()
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path}: not a 64-bit little-endian ELF")
        table, size, count = struct.unpack_from("<Q10xHH", self.data, 40)
        self._sections = [_SECTION.unpack_from(self.data, table + i * size) for i in range(count)]
        (self._names,) = struct.unpack_from("<H", self.data, 62)

    def text(self) -> bytes:
        """Content of its section of code."""
        names = self._sections[self._names][4]
        for section in self._sections:
            if self._string(names + section[0]) == ".text":
                return self.data[section[4] : section[4] + section[5]]
        raise ValueError(f"{self.path}: no section .text")

    def symbol(self, name: str) -> bytes:
        """Content of an exported data symbol."""
        for section in self._sections:
            if section[1] != _SHT_DYNSYM:
                continue
            strings = self._sections[section[6]][4]
            for at in range(section[4], section[4] + section[5], _SYMBOL.size):
                name_at, _, _, index, value, size = _SYMBOL.unpack_from(self.data, at)
                if self._string(strings + name_at) == name:
                    home = self._sections[index]
                    start = value - home[3] + home[4]
                    return self.data[start : start + size]
        raise ValueError(f"{self.path}: exports no symbol {name}")

    def kernels(self) -> list[dict[str, Any]]:
        """Metadata of its kernels, keys as in LLVM's AMDGPUUsage (".vgpr_count", ...)."""
        for section in self._sections:
            if section[1] != _SHT_NOTE:
                continue
            at, end = section[4], section[4] + section[5]
            while at < end:
                name_bytes, bytes_, kind = struct.unpack_from("<III", self.data, at)
                body = at + 12 + (name_bytes + 3) // 4 * 4
                if kind == _NT_AMDGPU_METADATA and self.data[at + 12 : at + 18] == b"AMDGPU":
                    return list(_unpack(self.data, body)[0]["amdhsa.kernels"])
                at = body + (bytes_ + 3) // 4 * 4
        raise ValueError(f"{self.path}: no AMDGPU metadata note")

    def _string(self, at: int) -> str:
        return self.data[at : self.data.index(b"\0", at)].decode()


_FIXED = {
    0xCA: ">f",
    0xCB: ">d",
    0xCC: ">B",
    0xCD: ">H",
    0xCE: ">I",
    0xCF: ">Q",
    0xD0: ">b",
    0xD1: ">h",
    0xD2: ">i",
    0xD3: ">q",
}
_LENGTH = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}


def _unpack(data: bytes, at: int) -> tuple[Any, int]:
    """The MessagePack value at `at`, and its end. Binary and extension types do not occur here."""
    tag = data[at]
    at += 1
    if tag <= 0x7F:
        return tag, at
    if tag >= 0xE0:
        return tag - 256, at
    if tag in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[tag], at
    if tag in _FIXED:
        return struct.unpack_from(_FIXED[tag], data, at)[0], at + struct.calcsize(_FIXED[tag])
    if tag <= 0xBF:
        kind = "map" if tag <= 0x8F else "array" if tag <= 0x9F else "str"
        count = tag & (31 if kind == "str" else 15)
    elif tag in _LENGTH:
        kind = "str" if tag <= 0xDB else "array" if tag <= 0xDD else "map"
        count = struct.unpack_from(_LENGTH[tag], data, at)[0]
        at += struct.calcsize(_LENGTH[tag])
    else:
        raise ValueError(f"MessagePack type {tag:#x} is not one a metadata note uses")
    if kind == "str":
        return data[at : at + count].decode(), at + count
    items = []
    for _ in range(count * 2 if kind == "map" else count):
        item, at = _unpack(data, at)
        items.append(item)
    return (dict(zip(items[::2], items[1::2], strict=True)) if kind == "map" else items), at
