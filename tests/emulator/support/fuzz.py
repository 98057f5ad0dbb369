# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random straight-line programs that no check objects to, and what they leave in the registers.

A program keeps off the harness's registers (asm.py) and off v118, the lanes' LDS addresses; LDS is written
before it starts. Wait states and s_waitcnt stand wherever the hardware might need them.

``python -m emulator.support.fuzz IN OUT`` in tests/ runs a pickled :class:`Batch` in a process of its own.
"""

from __future__ import annotations

import os
import pickle
import random
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from . import asm, hip, rows
from .fuzz_gfx950 import refused
from .spelling import RDNA
from .syntax.lines import candidates

VGPRS, ACCVGPRS, SGPRS = 112, 64, 68  # those a program uses
ADDRESS = "v118"  # 16 bytes times the lane
SPARSE = "v119"  # indices of sparse matrices
LDS_BYTES = 8192
MEMORY = "memory"
_OUT = (f"v[0:{VGPRS - 1}]", "v[112:117]", f"a[0:{ACCVGPRS - 1}]", f"s[0:{SGPRS - 1}]")
_WEIGHTS = {
    "VOP1": 14, "VOP2": 20, "VOPC": 10, "VOP3": 50, "VOP3B": 6, "VOP3P": 8, "MAI": 3, "DS": 50,
    "SOP1": 6, "SOP2": 9, "SOPC": 4, "SOPK": 4,
}  # fmt: skip
# Jumps, registers picked by M0, what depends on where the code lies, on the time or on M0, what wants
# certain lanes on, what the device refuses to run, and MODE, which is set apart.
_LEFT_OUT = re.compile(
    r"s_(getpc|setpc|swappc|call|movrel|set_gpr|getreg|setreg|cbranch|setvskip|rfe|memtime|memrealtime|atc_probe)"
    r"|ds_(append|consume|nop|gws|ordered|\w*addtid|read\w*_tr_)|v_(clrexcp|screen|interp|permlane\d+_swap)"
)
# VALU instructions that cause or mind a hazard: parts of registers, lanes, f64, transcendental ones, masks.
_TOUCHY = re.compile(
    r"_sdwa|_dpp|op_sel|lane|dot|div_fmas|_f64|cvt_(pk|sr)_|swap|16|vcc|exec|v_(exp|log|rcp|rsq|sqrt|sin|cos)_"
)
# Special registers whose value belongs to the process, not to the program; and the trap handler's.
FOREIGN = re.compile(r"_base|flat_scratch|xnack|ttmp|gds|gpr_idx")
# Instructions for which the device takes clamp, which LLVM takes everywhere.
_CLAMPED = re.compile(
    r"v_((pk_)?(add|sub|subrev|addc|subb|subbrev|mad)_(co_|nc_|co_ci_)?[iu](16|24|32)|dot\d_)"
)
LONG_NOPS = ("s_nop 15", "s_nop 7")


LIMITS = {"v": VGPRS, "a": ACCVGPRS, "s": SGPRS}


def folded(line: str, limits: dict[str, int]) -> str:
    """The line with its registers (or ranges) moved into those a program may use, alignment kept."""

    def fold(match: re.Match[str]) -> str:
        bank, first, last = match[1], int(match[2] or match[3]), int(match[2] or match[4])
        count = last - first + 1
        align = 1 if count == 1 else 2 if bank != "s" or count == 2 else 4
        first = first % (limits[bank] - count + 1) // align * align
        return f"{bank}{first}" if count == 1 else f"{bank}[{first}:{first + count - 1}]"

    mnemonic, _, rest = line.partition(" ")
    rest = re.sub(r"(?<![\w:\]])([vsa])(?:(\d+)|\[(\d+):(\d+)\])(?!\w)", fold, rest)
    return f"{mnemonic} {rest}".strip()


def _ds_line(line: str, flags: frozenset[str], r: random.Random) -> str:
    """A DS line whose address is the lane's own, and whose offset keeps it in LDS."""
    mnemonic, _, rest = line.partition(" ")
    if "swizzle" in mnemonic:
        pattern = r.choice([r.randrange(0x8000), 0x8000 | r.randrange(256)])
        return f"{mnemonic} {rest.split(' offset')[0]} offset:{pattern}"
    operands = re.split(r" offset| gds", rest)[0].split(", ")
    at = 1 if re.search(r"_rtn|_read|_load", mnemonic) else 0
    if "permute" in mnemonic:
        return f"{mnemonic} {', '.join(operands)}"
    if len(operands) <= at:
        return ""
    operands[at] = ADDRESS
    if "two_offsets" in flags:
        offset = f"offset0:{r.randrange(8)} offset1:{r.randrange(8, 14)}"
    else:
        offset = f"offset:{16 * r.randrange(LDS_BYTES // 16 - asm.LANES)}"
    return f"{mnemonic} {', '.join(operands)} {offset}"


@cache
def _rows_by_format() -> dict[str, list[rows.RowInfo]]:
    out: dict[str, list[rows.RowInfo]] = {}
    for row in rows.of(rows.arch()):
        if not _LEFT_OUT.match(row.mnemonic):
            out.setdefault(row.format, []).append(row)
    return out


@cache
def _lines_of(row: rows.RowInfo) -> dict[str, list[str]]:
    return candidates(row, 6, rdna=RDNA, wide=RDNA)


def drawable(format_: str) -> list[rows.RowInfo]:
    """Rows of a format that a program may have."""
    return _rows_by_format().get(format_, [])


def draw(
    r: random.Random, weights: dict[str, int] = _WEIGHTS, limits: dict[str, int] = LIMITS
) -> tuple[rows.RowInfo, str]:
    """A row and a line of it, which LLVM may refuse."""
    row = r.choice(_rows_by_format()[r.choices(list(weights), list(weights.values()))[0]])
    by_form = _lines_of(row)
    line = folded(r.choice(by_form[r.choice(list(by_form))]), limits)
    if row.format == "DS":
        line = _ds_line(line, row.flags, r)
    if row.format == "MAI" and not row.mnemonic.endswith("f8f6f4"):
        line = re.split(r" cbsz| abid| blgp| neg:", line)[0]
    if row.mnemonic.startswith("v_smfmac"):  # indices that ascend
        line = f"{line.rpartition(', ')[0]}, {SPARSE}"
    floats = "f" in row.dst
    if row.format == "VOP3P" and not floats:
        line = re.sub(r" neg_(lo|hi):\S+", "", line)
    if row.mnemonic.startswith("v_dot") and floats:  # refused: nobody has published what a clamp does there
        line = line.replace(" clamp", "")
    if not floats and not _CLAMPED.match(line):
        line = line.replace(" clamp", "")
    if re.match("v_(cvt_(pk|sr)_(fp|bf)8|mad_[iu](64|32_[iu]16)|pack_)", line):
        line = re.sub(r" clamp| op_sel:\S+", "", line)
    return row, "" if refused(row, line) else line


@dataclass
class Drawn:
    """An instruction and what it asks of those around it."""

    line: str
    row: rows.RowInfo | None = None

    def text(self) -> list[str]:
        """The instruction with the waits that only it needs."""
        return [self.line, "s_waitcnt 0"] if self.row and self.row.format == "DS" else [self.line]

    def plain(self) -> bool:
        """Return whether it has no hazard with another plain one, before or behind it."""
        row = self.row
        if row is None or "m0" in self.line:
            return False
        if row.format in ("SOP1", "SOP2", "SOPC", "SOPK"):
            return True
        return (
            row.format in ("VOP1", "VOP2", "VOP3")
            and not _TOUCHY.search(self.line)
            and not row.flags & {"scalar_dst", "writes_vcc", "writes_exec"}
        )


def environment_change(r: random.Random) -> list[str]:
    """Another EXEC or MODE."""
    if r.random() < 0.5:
        return [f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 10), {r.choice([0x3F0, r.getrandbits(10)]):#x}"]
    if r.random() < 0.5:
        return ["s_mov_b64 exec, -1"]
    return [f"s_mov_b32 exec_{half}, {r.getrandbits(32):#x}" for half in ("lo", "hi")]


@dataclass
class Program:
    """The instructions of one program and the registers it starts from."""

    seed: int
    drawn: list[Drawn] = field(default_factory=list)

    def case(self, length: int | None = None) -> asm.Case:
        """The program, or its first instructions, for the harness."""
        body: list[str] = []
        for before, d in zip([None, *self.drawn], self.drawn[:length], strict=False):
            if before is None or not (before.plain() and d.plain()):
                body += LONG_NOPS
            body += d.text()
        g = np.random.default_rng(self.seed)
        fill = [
            f"ds_write_b128 {ADDRESS}, v[{4 * i}:{4 * i + 3}] offset:{1024 * i}"
            for i in range(LDS_BYTES // 1024)
        ]
        last = f"ds_read_b128 v[112:115], {ADDRESS} offset:{self.seed % 7 * 1024}"
        lines = [*fill, "s_waitcnt 0", *body, *LONG_NOPS, last, "s_waitcnt 0", *LONG_NOPS]
        vin = {name: values(g, name) for name in _OUT[:3]}
        vin[ADDRESS] = np.arange(asm.LANES, dtype=np.uint32) * 16
        vin[SPARSE] = sparse_indices(g)
        scalars = values(g, _OUT[3])[:, 0]
        sin = {f"s{i}": int(v) for i, v in enumerate(scalars)}
        sin["vcc"] = int(g.integers(1 << 63))
        sin["scc"] = self.seed & 1
        return asm.Case(f"seed {self.seed}", lines, _OUT, no_check, vin, sin, lds=LDS_BYTES)


def sparse_indices(g: np.random.Generator) -> asm.U32:
    """Pairs of indices below four, the second of each the greater."""
    pairs = g.choice(np.array([0x4, 0x8, 0xC, 0x9, 0xD, 0xE], np.uint32), (8, asm.LANES))
    return np.bitwise_or.reduce(pairs << np.arange(0, 32, 4, dtype=np.uint32)[:, None])


def no_check(_: asm.Result) -> None:
    """For the harness, which wants one."""


def values(g: np.random.Generator, name: str, lanes: int = asm.LANES) -> asm.U32:
    """Random bits; of some registers every lane is a float: ordinary, special or a NaN."""
    count = len(asm.registers(name))
    out = g.integers(0, 1 << 32, (count, lanes), dtype=np.uint32)
    floats = (g.standard_normal((count, lanes)) * 10).astype(np.float32).view(np.uint32)
    special = np.array(
        [
            0,
            1 << 31,
            1,
            0x3F800000,
            0x7F800000,
            0xFF800000,
            0x7FC00000,
            0x7F800001,
            0xFFC12345,
            0x7BFF7C01,
            0x3C00,
        ],
        np.uint32,
    )
    kind = g.integers(0, 3, (count, 1))
    out = np.where(kind == 1, floats, out)
    odd = (kind == 2) & (g.random(out.shape) < 0.5)
    return np.where(odd, g.choice(special, out.shape), out)


def programs(seeds: Sequence[int]) -> list[Program]:
    """A program of 40 to 200 instructions for each seed."""
    made: list[Program] = []
    drawn: list[list[tuple[rows.RowInfo, str]]] = []
    for seed in seeds:
        r = random.Random(seed)
        length = r.randrange(40, 201)
        drawn.append([draw(r) for _ in range(5 * length)])
    flat = [line or "?" for per in drawn for _, line in per]
    good = iter(asm.legal(flat))
    for seed, per in zip(seeds, drawn, strict=True):
        taken = [Drawn(line, row) for row, line in per if next(good) and line and not FOREIGN.search(line)]
        r = random.Random(~seed)
        program = Program(seed)
        for d in taken[: random.Random(seed).randrange(40, 201)]:
            if r.random() < 0.05:
                program.drawn += [Drawn(line) for line in environment_change(r)]
            program.drawn.append(d)
        made.append(program)
    return made


@dataclass
class Batch:
    """Cases in one code object."""

    cases: list[tuple[asm.Case, str, int]]  # with the kernel's name and its rows of input
    image: bytes

    @classmethod
    def of(cls, cases: Sequence[asm.Case]) -> Batch:
        """Assemble the cases."""
        kernels, entries = [], []
        for number, case in enumerate(cases):
            body, count = asm._body(case)
            kernels.append(asm.Kernel(f"k{number}", body, case.lds, case.scratch))
            entries.append((case, f"k{number}", count))
        return cls(entries, asm.assemble(kernels))

    def run(self) -> list[dict[str, asm.U32]]:
        """Every register and the memory afterwards, by name."""
        module = hip.Module(self.image)
        out = []
        try:
            for case, kernel, count in self.cases:
                try:
                    result = asm._launch(module, case, kernel, count)
                except hip.HipError as error:
                    raise AssertionError(f"{case.name}: {error}") from error
                states = {"vcc": result.vcc[0], "exec": result.exec[0], "scc": result.scc[0]}
                scalars = {k: np.array([v], np.uint64) for k, v in states.items()}
                out.append(result.regs | scalars | {MEMORY: result.mem.view(np.uint32)})
        finally:
            module.unload()
        return out


def differences(one: dict[str, asm.U32], other: dict[str, asm.U32]) -> list[str]:
    """Registers whose bits differ."""
    out = []
    for name, a in one.items():
        b = other[name]
        if name == MEMORY:
            words = np.flatnonzero(a != b)
            out += [f"{words.size} words of memory, the first at {4 * words[0]}"] if words.size else []
            continue
        single = asm.registers(name) if a.ndim == 2 else [name]
        for register, x, y in zip(single, a, b, strict=True):
            lanes = np.flatnonzero(x != y)
            if lanes.size:
                lane = lanes[0]
                p, q = int(np.atleast_1d(x)[lane]), int(np.atleast_1d(y)[lane])
                out.append(f"{register}: {lanes.size} lanes, in lane {lane} {p:#x} and {q:#x}")
    return out


def beyond_nans(program: Program, one: dict[str, asm.U32], other: dict[str, asm.U32]) -> list[str]:
    """The same for one instruction, where which of two NaNs it passes on may differ."""
    halves = "16" in program.drawn[0].line

    def nan(x: asm.U32) -> asm.U32:
        is_nan = (x & 0x7FFFFFFF) > 0x7F800000
        return is_nan | halves & (((x & 0x7FFF) > 0x7C00) | ((x >> 16 & 0x7FFF) > 0x7C00))

    alike = {}
    for name, x in one.items():
        y = other[name]
        if x.ndim == 2:
            both = nan(x) & nan(y)
            # The low half of a double goes with its high half.
            y = np.where(both | np.roll(both, -1, 0), x, y)
        alike[name] = y
    return differences(one, alike)


def main() -> None:
    """Run the batch pickled in the first argument's file, the results into the second's."""
    batch = pickle.loads(Path(sys.argv[1]).read_bytes())
    Path(sys.argv[2]).write_bytes(pickle.dumps(batch.run()))


def wanted(default: int) -> int:
    """How many programs to run: $FMHA_FUZZ_PROGRAMS."""
    return int(os.environ.get("FMHA_FUZZ_PROGRAMS") or default)


if __name__ == "__main__":
    main()
