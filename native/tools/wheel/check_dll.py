# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compare a DLL with the public header: ``check_dll.py fmha_rocm.dll fmha_rocm.h``.

It must export the header's functions and nothing else, and may import only what every Windows 10 has.
"""

from __future__ import annotations

import re
import struct
import sys
from pathlib import Path

_SYSTEM = re.compile(r"(?i)kernel32\.dll|ucrtbase\.dll|api-ms-win-crt-[a-z0-9-]+\.dll")
_EXPORTS, _IMPORTS = 0, 1  # places in the optional header's table of directories


class Image:
    """A 64-bit PE file, addressed as the loader would lay it out."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        head = self._number(0x3C)
        if data[:2] != b"MZ" or data[head : head + 4] != b"PE\0\0":
            raise ValueError("this is no PE file")
        sections, size = struct.unpack_from("<H12xH", data, head + 6)
        self._optional = head + 24
        if struct.unpack_from("<H", data, self._optional)[0] != 0x20B:
            raise ValueError("this is no 64-bit PE file")
        first = self._optional + size
        self._sections = [struct.unpack_from("<4I", data, first + 40 * i + 8) for i in range(sections)]

    def _number(self, offset: int) -> int:
        return int(struct.unpack_from("<I", self._data, offset)[0])

    def _offset(self, address: int) -> int:
        for _, begin, size, offset in self._sections:
            if begin <= address < begin + size:
                return int(offset + address - begin)
        raise ValueError(f"no section has address {address:#x}")

    def _text(self, address: int) -> str:
        begin = self._offset(address)
        return self._data[begin : self._data.index(b"\0", begin)].decode("ascii")

    def _directory(self, which: int) -> int:
        return self._number(self._optional + 112 + 8 * which)

    def exports(self) -> set[str]:
        """Names of what it exports."""
        if not (address := self._directory(_EXPORTS)):
            return set()
        table = self._offset(address)
        count, names = self._number(table + 24), self._offset(self._number(table + 32))
        return {self._text(self._number(names + 4 * i)) for i in range(count)}

    def imports(self) -> set[str]:
        """Names of the DLLs that it needs."""
        found: set[str] = set()
        if not (address := self._directory(_IMPORTS)):
            return found
        entry = self._offset(address)
        while name := self._number(entry + 12):
            found.add(self._text(name))
            entry += 20
        return found


def declared(header: str) -> set[str]:
    """Names of the functions that the header declares."""
    part = header[header.index("/* cffi-begin") : header.index("/* cffi-end")]
    code = re.sub(r"/\*.*?\*/", "", part, flags=re.S)
    return set(re.findall(r"\b(fmha_\w+)\s*\(", code))


def differences(image: Image, header: str) -> list[str]:
    """Say what the DLL exports too little or too much, and what it should not need."""
    exported, expected = image.exports(), declared(header)
    return [
        *(f"does not export {name}" for name in sorted(expected - exported)),
        *(f"exports {name}, which the header does not declare" for name in sorted(exported - expected)),
        *(f"needs {name}" for name in sorted(image.imports()) if not _SYSTEM.fullmatch(name)),
    ]


def main() -> int:
    """Return 1 if something differs."""
    if len(sys.argv) != 3:
        sys.exit(f"check_dll.py: got {len(sys.argv) - 1} arguments, expected fmha_rocm.dll fmha_rocm.h")
    dll, header = map(Path, sys.argv[1:])
    image = Image(dll.read_bytes())
    wrong = differences(image, header.read_text(encoding="utf-8"))
    for line in wrong:
        print(f"{dll}: {line}", file=sys.stderr)
    if not wrong:
        needs = ", ".join(sorted(image.imports()))
        print(f"{dll}: {dll.stat().st_size} bytes, exports {len(image.exports())} functions; needs {needs}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
