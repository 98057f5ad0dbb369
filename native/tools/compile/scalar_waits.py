# SPDX-License-Identifier: MIT OR Apache-2.0
"""Add the waits that clang 20 leaves out for gfx12: ``scalar_waits.py FILE.s``.

Where a vector instruction writes scalar registers that vector instructions had read, the next one that reads
them may get what was there before, unless an s_wait_alu comes first. LLVM inserts these from 21 on
(AMDGPUWaitSGPRHazards.cpp); 20 does so behind scalar instructions only. Here they come wherever a vector
instruction may read what one has written: which registers had been read before does not count, and at a label
all that the function's vector instructions write may be under way. Scalar instructions wait by themselves.
The software device's check hazards-vector-scalar has no finding in the result.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

WAIT = "\ts_wait_alu depctr_va_sdst(0) depctr_va_vcc(0)"

_INSTRUCTION = re.compile(r"\t(v_\w+)\s*(.*?)\s*(?:;.*)?$")
_LABEL = re.compile(r"[\w.$]+:")
_REGISTER = re.compile(r"\b(?:s(\d+)|s\[(\d+):(\d+)\]|(vcc)\w*)")
_WRITES_FIRST = re.compile(r"v_(?:cmp|readlane|readfirstlane)_")
_WRITES_SECOND = re.compile(r"v_(?:div_scale_|\w+_co_)")
# Instructions that do not name it: the halves of a pair, and v_div_fmas.
_READS_VCC = re.compile(r"v_dual_cndmask|v_div_fmas")


def _registers(text: str) -> set[str]:
    """Return the scalar registers that operands name."""
    found = set()
    for one, first, last, vcc in _REGISTER.findall(text):
        if vcc:
            found.add("vcc")
        elif one:
            found.add(f"s{one}")
        else:
            found |= {f"s{i}" for i in range(int(first), int(last) + 1)}
    return found


def _uses(line: str) -> tuple[set[str], set[str]] | None:
    """Return the scalar registers that a vector instruction reads and writes; None: the line has none."""
    match = _INSTRUCTION.match(line)
    if not match:
        return None
    name, operands = match.groups()
    at = 0 if _WRITES_FIRST.match(name) else 1 if _WRITES_SECOND.match(name) else None
    parts = operands.split(",")
    writes = _registers(parts[at]) if at is not None else set()
    reads = _registers(",".join(part for i, part in enumerate(parts) if i != at))
    if _READS_VCC.search(line):
        reads.add("vcc")
    return reads, writes


def _functions(lines: list[str]) -> Iterator[list[str]]:
    """Cut the text where functions end."""
    begin = 0
    for i, line in enumerate(lines):
        if line.startswith(".Lfunc_end"):
            yield lines[begin : i + 1]
            begin = i + 1
    yield lines[begin:]


def _mended(lines: list[str]) -> Iterator[str]:
    """Yield the lines of a function with the waits."""
    every = {register for line in lines if (uses := _uses(line)) for register in uses[1]}
    late: set[str] = set()
    for line in lines:
        if _LABEL.match(line):
            late = set(every)
        if uses := _uses(line):
            reads, writes = uses
            if reads & late:
                yield WAIT
                late = set()
            late |= writes
        yield line


def mended(text: str) -> str:
    """Return assembly with the waits in it."""
    functions = _functions(text.split("\n"))
    return "\n".join(line for lines in functions for line in _mended(lines))


def main() -> None:
    """Mend the file."""
    path = Path(sys.argv[1])
    path.write_text(mended(path.read_text()))


if __name__ == "__main__":
    main()
