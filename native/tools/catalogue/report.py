# SPDX-License-Identifier: MIT OR Apache-2.0
"""Report of a code object: what its kernels use, and what their main loops are made of.

``report.py CODE_OBJECT --rows ROWS.json --objdump LLVM_OBJDUMP --out REPORT.json [--werror]``. Warns if a
kernel uses scratch memory, or spills registers to others and its catalogue row does not allow it; with
--werror it fails. The instructions are read from the assembly that a code object was made of, if it lies
beside it: of an arch that the disassembler does not know.
"""

from __future__ import annotations

import argparse
import bisect
import hashlib
import itertools
import json
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from code_object import CodeObject
from families import FAMILIES

_LABEL = re.compile(r"^[0-9a-f]+ <(\w+)>:$")
_INSTRUCTION = re.compile(r"^\s+(\S+).*//\s*([0-9A-F]{8,16}): ([0-9A-F]{8})")
_BRANCHES = ("s_branch", "s_cbranch")
_TRANSCENDENTAL = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_")
_PREFIXES = (
    (("v_mfma", "v_smfmac", "v_wmma"), "mfma"),
    (("v_",), "valu"),
    (("ds_",), "lds"),
    (("buffer_", "tbuffer_", "global_", "flat_", "scratch_"), "vmem"),
    (("s_load", "s_buffer_load", "s_store"), "smem"),
    (("s_waitcnt", "s_nop", "s_barrier", "s_sleep", "s_set", "s_branch", "s_cbranch"), "sync_and_branch"),
    (("s_",), "salu"),
)
# These stand in for matrix instructions on an arch without them (native/kernels/hip/common/wmma_dot.h).
_PRODUCTS = ("v_dot2c_f32_f16_dpp", "v_fmac_f32_dpp")


def classify(mnemonic: str) -> str:
    """Return the report's column that an instruction counts in; transcendentals do not count as VALU."""
    if _TRANSCENDENTAL.match(mnemonic):
        return "transcendental"
    for prefixes, column in _PREFIXES:
        if mnemonic.startswith(prefixes):
            return column
    raise ValueError(f"no column for instruction {mnemonic}")


Code = list[tuple[int, str, int | None]]  # address, mnemonic, branch target or None


def disassemble(objdump: str, path: Path) -> dict[str, Code]:
    """Instructions of every function: of every label, which assembly may have inside of one."""
    text = subprocess.run([objdump, "-d", str(path)], check=True, capture_output=True, text=True).stdout
    functions: dict[str, Code] = {}
    code: Code = []
    for line in text.splitlines():
        if head := _LABEL.match(line):
            code = functions.setdefault(head[1], [])
        if not (match := _INSTRUCTION.match(line)):
            continue
        mnemonic, address = match[1], int(match[2], 16)
        target = None
        if mnemonic.startswith(_BRANCHES):
            words = int(match[3], 16) & 0xFFFF  # behind the branch, signed
            target = address + 4 + 4 * (words - 0x10000 * (words >> 15))
        code.append((address, mnemonic, target))
    return functions


def disassemble_by_device(program: Path | None, image: CodeObject, arch: str) -> Code:
    """Instructions of a code object as the software device reads them; none without its program."""
    if program is None:
        return []
    with tempfile.NamedTemporaryFile() as text:
        text.write(image.text())
        text.flush()
        command = [str(program), arch, text.name]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    code: Code = []
    for line in lines:
        at, mnemonic, *operands = line.split()
        address, target = int(at.rstrip(":"), 16), None
        if mnemonic.startswith(_BRANCHES):
            words = int(operands[-1], 0)  # as above
            target = address + 4 + 4 * (words - 0x10000 * (words >> 15))
        code.append((address, mnemonic, target))
    return code


_ASSEMBLY_LABEL = re.compile(r"^([.\w$]+):")
_ASSEMBLY_INSTRUCTION = re.compile(r"^\s*([a-z]\w+)(?:\s+([^\s,;]+))?")


def read_assembly(text: str) -> dict[str, Code]:
    """The same of a compiler's assembly, where the number of a line is an address."""
    functions: dict[str, Code] = {}
    labels: dict[str, int] = {}
    branches: dict[int, str] = {}
    code: Code = []
    for number, line in enumerate(text.splitlines()):
        if head := _ASSEMBLY_LABEL.match(line):
            labels[head[1]] = number
            if not head[1].startswith("."):
                code = functions.setdefault(head[1], [])
        elif match := _ASSEMBLY_INSTRUCTION.match(line):
            code.append((number, match[1], None))
            if match[1].startswith(_BRANCHES):
                branches[number] = match[2]
    return {name: _resolved(code, labels, branches) for name, code in functions.items() if code}


def _resolved(code: Code, labels: dict[str, int], branches: dict[int, str]) -> Code:
    """Add the targets of branches: the instruction that follows a label."""
    after = sorted(number for number, _, _ in code)

    def target(number: int) -> int | None:
        label = labels.get(branches.get(number, ""))
        return None if label is None else after[min(bisect.bisect(after, label), len(after) - 1)]

    return [(number, mnemonic, target(number)) for number, mnemonic, _ in code]


def _leads(code: Code, targets: dict[int, int], begin: int, end: int) -> bool:
    """Is there a way from one instruction to another? A jump to a register may lead anywhere."""
    seen, todo = set[int](), [begin]
    while todo:
        at = todo.pop()
        while at < len(code) and at not in seen:
            if at == end or code[at][1] == "s_setpc_b64":
                return True
            seen.add(at)
            if at in targets:
                todo.append(targets[at])
            if code[at][1] in ("s_branch", "s_endpgm"):
                break
            at += 1
    return False


def main_loop(code: Code) -> dict[str, int]:
    """Counts of the main loop: that with the most MFMAs, or what stands in for them; the innermost.

    Counted from the text: what a branch skips on most iterations (masking of edge tiles) counts in full.
    """
    index = {address: i for i, (address, _, _) in enumerate(code)}
    targets = {
        i: index[target] for i, (_, _, target) in enumerate(code) if target is not None and target in index
    }
    products = [
        0,
        *itertools.accumulate(name in _PRODUCTS or classify(name) == "mfma" for _, name, _ in code),
    ]
    found = [
        (products[end + 1] - products[begin], begin - end, begin, end)
        for end, begin in targets.items()
        if begin <= end
    ]
    # A branch to what lies in front of it may be where blocks are out of order, and no loop.
    best = next((loop for loop in sorted(found, reverse=True) if _leads(code, targets, *loop[2:])), None)
    columns = ["mfma", "valu", "transcendental", "salu", "smem", "lds", "vmem", "sync_and_branch"]
    counts = dict.fromkeys(["instructions", *columns], 0)
    if best is not None:
        for _, mnemonic, _ in code[best[2] : best[3] + 1]:
            counts[classify(mnemonic)] += 1
            counts["instructions"] += 1
    return counts


def facts_of(image: CodeObject, row: dict[str, Any]) -> dict[str, int]:
    """The numbers of a kernel that are its code's: it says them; of a prebuilt one row and origin do."""
    family = FAMILIES[row["family"]]
    if row["object"]:
        of_row = {name: row[name] for name in family.facts if name in row}
        return {**of_row, **family.prebuilt_facts(row["origin"])}
    numbers = struct.unpack(f"<{len(family.facts)}i", image.symbol(f"{row['name']}_facts"))
    return dict(zip(family.facts, numbers, strict=True))


def kernel_report(
    image: CodeObject, kernel: dict[str, Any], row: dict[str, Any], code: Code
) -> dict[str, Any]:
    """Everything the build knows of one kernel: its row, its resources, its main loop."""
    where = f"{image.path}: {row['name']}"
    facts = facts_of(image, row)
    if kernel[".max_flat_workgroup_size"] != facts["block_size"]:
        bound = kernel[".max_flat_workgroup_size"]
        raise ValueError(f"{where}: launch bound is {bound}, the kernel says {facts['block_size']}")
    for key in facts.keys() & row.keys():
        if facts[key] != row[key]:
            raise ValueError(f"{where}: {key} is {row[key]} in the catalogue, {facts[key]} in the code")
    return {
        **row,
        **facts,
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


def make_report(
    path: Path, rows: list[dict[str, Any]], objdump: str, by_device: bool, disassembler: Path | None
) -> dict[str, Any]:
    """Return what the build knows of a code object and of each of its kernels."""
    image = CodeObject(path)
    kernels = {kernel[".name"]: kernel for kernel in image.kernels()}
    symbols = [row["symbol"] or row["name"] for row in rows]
    if sorted(kernels) != sorted(symbols):
        expected = ", ".join(symbols)
        raise ValueError(f"{path}: expected the kernels {expected}, got {', '.join(kernels)}")
    assembly = path.with_suffix(".s")
    if by_device:
        functions = {symbols[0]: disassemble_by_device(disassembler, image, rows[0]["arch"])}
    elif assembly.exists():
        functions = read_assembly(assembly.read_text())
    else:
        functions = disassemble(objdump, path)
    if rows[0]["object"]:  # of one kernel, which may have labels
        functions = {symbols[0]: sorted(itertools.chain(*functions.values()))}
    sha256 = hashlib.sha256(image.data).hexdigest()
    return {
        "name": rows[0]["unit"],
        "arch": rows[0]["arch"],
        "sha256": sha256,
        "bytes": len(image.data),
        "kernels": [
            {**kernel_report(image, kernels[symbol], row, functions[symbol]), "sha256": sha256}
            for row, symbol in zip(rows, symbols, strict=True)
        ],
    }


def complaint(report: dict[str, Any]) -> str | None:
    """Why this kernel may not ship, or None."""
    uses = {key: report[key] for key in ("vgpr_spills", "sgpr_spills", "scratch_bytes") if report[key]}
    in_memory = "scratch_bytes" in uses
    if not uses or (report["allow_spills"] and not in_memory):
        return None
    said = ", ".join(f"{key} {value}" for key, value in uses.items())
    wanted = "expected none" if in_memory else 'expected none, or allow_spills = "reason" in its row'
    return f"{report['arch']} {report['name']}: {said}; {wanted}"


def main() -> int:
    """Write the report, or say why not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("code_object", type=Path)
    parser.add_argument("--rows", required=True, type=Path)
    parser.add_argument("--objdump", required=True)
    parser.add_argument("--by-device", action="store_true", help="the objdump does not know the arch")
    parser.add_argument("--device-disassembler", type=Path, help="then: the software device's emu_disasm")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--werror", action="store_true", help="what it warns of fails")
    args = parser.parse_args()
    try:
        rows = json.loads(args.rows.read_text())
        report = make_report(args.code_object, rows, args.objdump, args.by_device, args.device_disassembler)
        cost = args.code_object.with_suffix(".cost.json")  # of native/tools/compile/compile.py
        report["compile"] = json.loads(cost.read_text()) if cost.exists() else None
    except (ValueError, KeyError, OSError, subprocess.CalledProcessError) as error:
        print(f"report.py: {error}", file=sys.stderr)
        return 1
    wrong = [said for said in map(complaint, report["kernels"]) if said]
    for said in wrong:
        print(f"report.py: {'error' if args.werror else 'warning'}: {said}", file=sys.stderr)
    if wrong and args.werror:
        return 1
    args.out.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
