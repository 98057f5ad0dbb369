# SPDX-License-Identifier: MIT OR Apache-2.0
"""gfx12's late scalar registers: where the LLVM in Triton's wheel waits for them.

tests/emulator/check/test_check_scalars.py has the software device say the same of the same sequences.
"""

from __future__ import annotations

import re
from pathlib import Path

from emulator.support.late_scalars import SEQUENCES, added, machine_ir
from triton._C.libtriton import llvm


def test_what_llvm_waits_for(tmp_path: Path) -> None:
    """Before the last instruction of each sequence."""
    source = tmp_path / "sequences.mir"
    source.write_text(machine_ir())
    llvm.init_targets()
    text = llvm.translate_mir_to_asm(str(source), "amdgcn-amd-amdhsa", "gfx1201", "", [], False, False)
    found = {}
    for name, body in re.findall(r"^f(\w+):.*\n(?:;.*\n)?((?:\t.*\n)+)", text, re.MULTILINE):
        lines = [line.strip() for line in body.splitlines()]
        before = lines[: lines.index("s_endpgm") - 1]
        waits = before and before[-1].startswith("s_wait_alu")
        found[name] = added(name, before[-1] if waits else "")
    assert found == SEQUENCES
