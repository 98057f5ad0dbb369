# SPDX-License-Identifier: MIT OR Apache-2.0
"""All 1281 objects decode as LLVM decodes them.

Their 1081 different texts have 5.3 million instructions, of which 96,000 differ. How an instruction decodes
depends on its own words only: each different one goes to LLVM once, end to end with the others. If LLVM finds
the same borders and prints the same text there, it does so in every object, from the first instruction on.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from clients.objects import wheel
from emulator.support import rows
from emulator.support.syntax.decoding import assembled, differences, emulator, objdump

CPU = "gfx942"
_SECTION = struct.Struct("<IIQQQQIIQQ")


def text(data: bytes) -> bytes:
    """An object's .text."""
    table, size, count, names = struct.unpack_from("<Q10xHHH", data, 40)
    sections = [_SECTION.unpack_from(data, table + i * size) for i in range(count)]
    strings = sections[names][4]
    for section in sections:
        if data.startswith(b".text\0", strings + section[0]):
            return data[section[4] : section[4] + section[5]]
    raise ValueError("no .text")


@dataclass
class Census:
    """The different instructions, and the first place of each."""

    places: dict[bytes, str] = field(default_factory=dict)
    instructions: int = 0
    texts: set[bytes] = field(default_factory=set)

    def add(self, name: str) -> None:
        """Add the texts of an object."""
        code = text(wheel.image(name))
        if code in self.texts:
            return
        self.texts.add(code)
        starts = [int(line.partition(": ")[0], 16) for line in rows.disassemble(code, CPU)]
        assert starts[0] == 0, name
        self.instructions += len(starts)
        for start, end in zip(starts, [*starts[1:], len(code)], strict=True):
            words = code[start:end]
            if words not in self.places:
                self.places[words] = f"{name}+{start:#x}"


def test_all_are_there() -> None:
    """The wheel has as many objects as it had when this was written."""
    assert len(wheel.names()) == wheel.COUNT


def test_objects_decode_as_llvm() -> None:
    """Borders and text, of each instruction where it first occurs."""
    census = Census()
    for name in wheel.names():
        census.add(name)
    assert census.instructions > 4_000_000, "the objects have become fewer or smaller"
    together = b"".join(census.places)
    path = assembled([f".long {word:#x}" for (word,) in struct.iter_unpack("<I", together)], CPU)
    llvm, code, base = objdump(path, CPU)
    assert code == together
    at = dict(zip((base + n for n in offsets(census.places)), census.places.values(), strict=True))
    wrong = differences(emulator(code, CPU, base), llvm)
    named = [f"{at.get(int(line.partition(':')[0], 16), 'inside an instruction')}: {line}" for line in wrong]
    assert not wrong, f"{len(wrong)} of {len(llvm)} differ:\n" + "\n".join(named[:60])
    assert [address for address, _ in llvm] == list(at), "LLVM and the device find other borders"


def offsets(places: dict[bytes, str]) -> list[int]:
    """Where each instruction starts, end to end."""
    out, total = [], 0
    for words in places:
        out.append(total)
        total += len(words)
    return out
