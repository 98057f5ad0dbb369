# SPDX-License-Identifier: MIT OR Apache-2.0
"""Report of one kernel: what its code object uses, and what its main loop is made of.

``report.py CODE_OBJECT --row ROW.json --objdump LLVM_OBJDUMP --out REPORT.json``. Fails, and so fails the
build, if the kernel spills registers or uses scratch and its catalogue row does not allow that.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from code_object import CodeObject

_INSTRUCTION = re.compile(r"^\s+(\S+).*//\s*([0-9A-F]{8,16}):")
_TARGET = re.compile(r"<[^>+]+(?:\+0x([0-9a-f]+))?>\s*$")
_TRANSCENDENTAL = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_")
_PREFIXES = (
    (("v_mfma", "v_smfmac"), "mfma"),
    (("v_",), "valu"),
    (("ds_",), "lds"),
    (("buffer_", "tbuffer_", "global_", "flat_", "scratch_"), "vmem"),
    (("s_load", "s_buffer_load", "s_store"), "smem"),
    (("s_waitcnt", "s_nop", "s_barrier", "s_sleep", "s_set", "s_branch", "s_cbranch"), "sync_and_branch"),
    (("s_",), "salu"),
)


def classify(mnemonic: str) -> str:
    """Which of the report's columns an instruction counts in; transcendentals are not counted as VALU."""
    if _TRANSCENDENTAL.match(mnemonic):
        return "transcendental"
    for prefixes, column in _PREFIXES:
        if mnemonic.startswith(prefixes):
            return column
    raise ValueError(f"no column for instruction {mnemonic}")


def disassemble(objdump: str, path: Path) -> list[tuple[int, str, int | None]]:
    """Instructions as (address, mnemonic, branch target or None)."""
    text = subprocess.run([objdump, "-d", str(path)], check=True, capture_output=True, text=True).stdout
    code: list[tuple[int, str, int | None]] = []
    for line in text.splitlines():
        match = _INSTRUCTION.match(line)
        if not match:
            continue
        mnemonic, address = match[1], int(match[2], 16)
        target = None
        if mnemonic.startswith(("s_branch", "s_cbranch")):
            label = _TARGET.search(line)
            start = code[0][0] if code else address
            target = start + int(label[1] or "0", 16) if label else None
        code.append((address, mnemonic, target))
    return code


def main_loop(code: list[tuple[int, str, int | None]]) -> dict[str, int]:
    """Instruction counts of the main loop: the loop with the most MFMAs, the innermost of those.

    Counted from the text: what a branch skips on most iterations (masking of edge tiles) counts in full.
    """
    index = {address: i for i, (address, _, _) in enumerate(code)}
    best: tuple[int, int, int, int] | None = None
    for end, (_, _, target) in enumerate(code):
        begin = index.get(target, end + 1) if target is not None else end + 1
        if begin > end:
            continue
        mfma = sum(classify(mnemonic) == "mfma" for _, mnemonic, _ in code[begin : end + 1])
        best = max(best or (0, 0, 0, 0), (mfma, begin - end, begin, end))
    columns = ["mfma", "valu", "transcendental", "salu", "smem", "lds", "vmem", "sync_and_branch"]
    counts = dict.fromkeys(["instructions", *columns], 0)
    if best is not None:
        for _, mnemonic, _ in code[best[2] : best[3] + 1]:
            counts[classify(mnemonic)] += 1
            counts["instructions"] += 1
    return counts


def make_report(path: Path, row: dict[str, Any], objdump: str) -> dict[str, Any]:
    """Everything the build knows of one kernel: its row, its resources, its main loop."""
    image = CodeObject(path)
    kernels = image.kernels()
    if [kernel[".name"] for kernel in kernels] != [row["name"]]:
        names = [kernel[".name"] for kernel in kernels]
        raise ValueError(f"{path}: expected the one kernel {row['name']}, got {names}")
    kernel = kernels[0]
    tile_m, tile_n, tile_nv, block = struct.unpack("<4i", image.symbol("fmha_kernel_facts"))
    if kernel[".max_flat_workgroup_size"] != block:
        bound = kernel[".max_flat_workgroup_size"]
        raise ValueError(f"{path}: launch bound is {bound}, the kernel says {block}")
    code = disassemble(objdump, path)
    return {
        **row,
        "sha256": hashlib.sha256(image.data).hexdigest(),
        "bytes": len(image.data),
        "tile_m": tile_m,
        "tile_n": tile_n,
        "tile_nv": tile_nv,
        "block_size": block,
        "vgpr_count": kernel[".vgpr_count"],
        "agpr_count": kernel.get(".agpr_count", 0),
        "sgpr_count": kernel[".sgpr_count"],
        "vgpr_spills": kernel.get(".vgpr_spill_count", 0),
        "sgpr_spills": kernel.get(".sgpr_spill_count", 0),
        "lds_bytes": kernel[".group_segment_fixed_size"],
        "scratch_bytes": kernel[".private_segment_fixed_size"],
        "kernarg_bytes": kernel[".kernarg_segment_size"],
        "instructions": len(code),
        "main_loop": main_loop(code),
    }


def complaint(report: dict[str, Any]) -> str | None:
    """Why this kernel may not ship, or None."""
    uses = {key: report[key] for key in ("vgpr_spills", "sgpr_spills", "scratch_bytes") if report[key]}
    if not uses or report["allow_scratch"]:
        return None
    said = ", ".join(f"{key} {value}" for key, value in uses.items())
    wanted = 'expected none, or allow_scratch = "reason" in its row'
    return f"{report['arch']} {report['name']}: {said}; {wanted}"


def main() -> int:
    """Write the report, or say why not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("code_object", type=Path)
    parser.add_argument("--row", required=True, type=Path)
    parser.add_argument("--objdump", required=True)
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args()
    try:
        report = make_report(args.code_object, json.loads(args.row.read_text()), args.objdump)
    except (ValueError, KeyError, OSError, subprocess.CalledProcessError) as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 1
    wrong = complaint(report)
    if wrong:
        print(f"report.py: {wrong}", file=sys.stderr)
        return 1
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
