# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random programs as compilers write them: no wait state too many, branches, loops, memory of every kind.

Between instructions stand only the wait states that wait_states.py asks for. A program waits for a load where
its result is first used, or at some random place before. Every check must let such a program pass.

Registers: a program uses v0..v47, a0..a47, s0..s55. Above them lie addresses (v110..v118), loop counters
(s56..s59), a buffer descriptor (s[60:63]) and zero (s64).
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from . import asm, rows
from .fuzz import (
    ADDRESS,
    FOREIGN,
    LDS_BYTES,
    LONG_NOPS,
    SPARSE,
    draw,
    drawable,
    environment_change,
    no_check,
    sparse_indices,
    values,
)
from .ops.memory_ops import resource
from .wait_states import History, Uses, uses

LIMITS = {"v": 48, "a": 48, "s": 56}
_OUT = ("v[0:47]", "a[0:47]", "s[0:55]")
_OWN = "v117"  # 64 bytes times the lane: the lane's own part of memory
_FLAT = "v[114:115]"  # its address
_PRIVATE = "v116"  # an offset into private memory, by lane
_RECORDS, _CONSTANTS, _DUMP = (
    3000,
    8192,
    16384,
)  # bytes the descriptor allows; where constants and the dump lie
_SCRATCH = 256
_WEIGHTS = {
    "VOP1": 14, "VOP2": 24, "VOPC": 10, "VOP3": 40, "VOP3B": 6, "VOP3P": 8, "MAI": 8, "DS": 16,
    "SOP1": 7, "SOP2": 10, "SOPC": 5, "SOPK": 4,
}  # fmt: skip
_MEMORY = {"GLOBAL": 6, "MUBUF": 5, "FLAT": 3, "SCRATCH": 4, "SMEM": 5}
_WIDTHS = {"i64": 2, "f64": 2, "b96": 3, "b128": 4, "b256": 8, "b512": 16}
# They lag behind VCC and EXEC: of the wait states they need, LLVM, which never reads them, says nothing.
_STALE = re.compile(r"src_(vccz|execz)")
BRANCHES = ("scc0", "scc1", "vccz", "vccnz", "execz", "execnz")


def _registers(r: random.Random, bank: str, count: int) -> str:
    align = 1 if count == 1 else 2 if bank != "s" or count == 2 else 4
    first = r.randrange((LIMITS[bank] - count) // align + 1) * align
    return f"{bank}{first}" if count == 1 else f"{bank}[{first}:{first + count - 1}]"


def _memory_line(row: rows.RowInfo, r: random.Random) -> str:
    """A load, store or atomic on memory that is the lane's own, or a scalar load of constants."""
    n = row.mnemonic
    if row.format == "SMEM":
        if not n.startswith(("s_load", "s_buffer_load")):
            return ""
        base = "s[60:63]" if "buffer" in n else "s[70:71]"
        offset = 4 * r.randrange(500) + (0 if "buffer" in n else _CONSTANTS)
        # The descriptor's range is the lanes' own memory, which is not constant.
        return (
            "" if "buffer" in n else f"{n} {_registers(r, 's', _WIDTHS.get(row.dst, 1))}, {base}, {offset:#x}"
        )
    if "lds" in n or "format" in n or not row.flags & {"load", "store", "atomic"}:
        return ""
    kind = row.dst if "load" in row.flags else row.srcs[0]
    width, bank = _WIDTHS.get(kind, 1), r.choice("vvva")
    step = 1 if "byte" in n else 2 if "short" in n else 8 if "x2" in n or "f64" in n else 4
    at = {"GLOBAL": (_OWN, "s[70:71]"), "FLAT": (_FLAT,), "SCRATCH": (_PRIVATE, "off"), "MUBUF": ()}[
        row.format
    ]
    offset = step * r.randrange(48 // step + 1)
    tail = f" offset:{offset}" if offset else ""
    data = _registers(r, bank, width)
    if row.format == "MUBUF":
        back = f" {asm.RETURN}" if "atomic" in row.flags and r.random() < 0.5 else ""
        return f"{n} {data}, {_OWN}, s[60:63], {r.choice(['0', 's64'])} offen{tail}{back}"
    if "load" in row.flags:
        return f"{n} {', '.join([data, *at])}{tail}"
    if "atomic" in row.flags and r.random() < 0.5:
        half = width // 2 if "cmpswap" in n else width
        return f"{n} {', '.join([_registers(r, bank, half), at[0], data, *at[1:]])}{tail} {asm.RETURN}"
    return f"{n} {', '.join([at[0], data, *at[1:]])}{tail}"


def candidate(r: random.Random, floats: bool) -> tuple[rows.RowInfo, str]:
    """A row and a line, empty if it is not wanted."""
    if r.random() < 0.15:
        row = r.choice(drawable(r.choices(list(_MEMORY), list(_MEMORY.values()))[0]))
        line = _memory_line(row, r)
    else:
        row, line = draw(r, _WEIGHTS, LIMITS)
    kinds = {row.dst, *row.srcs}
    numeric = any("f" in k for k in kinds) or re.search(r"_f(16|32|64)|bf16|fp8|bf8|xf32", row.mnemonic)
    if _STALE.search(line) or FOREIGN.search(line) or (numeric and not floats):
        line = ""
    return row, line


@dataclass
class _Flight:
    """A memory instruction not yet waited for."""

    writes: set[str]
    unordered: bool  # scalar loads and FLAT return in any order


@dataclass
class Writer:
    """Turns instructions into text, with the waits and wait states they need."""

    r: random.Random
    text: list[str] = field(default_factory=list)
    history: History = field(default_factory=History)
    vector: list[_Flight] = field(default_factory=list)  # that vmcnt counts
    other: list[_Flight] = field(default_factory=list)  # that lgkmcnt counts
    labels: int = 0
    asked: list[int] = field(
        default_factory=list
    )  # lines of `text`: the last wait states before an instruction

    def raw(self, line: str, u: Uses | None = None) -> None:
        """An instruction that needs nothing before it."""
        self.text.append(line)
        self.history.issue(u)

    def nops(self, states: int) -> None:
        """Add this many wait states."""
        while states > 0:
            count = min(states, 16)
            self.text.append(f"s_nop {count - 1}")
            self.history.pass_time(count)
            states -= count

    def settle(self) -> None:
        """Wait for all memory."""
        self.raw("s_waitcnt vmcnt(0) lgkmcnt(0)")
        self.vector, self.other = [], []

    def wait(self, touched: set[str]) -> None:
        """Wait for what is on its way to these registers, and perhaps for more."""
        counts = [self._count(q, touched) for q in (self.vector, self.other)]
        if self.r.random() < 0.05:
            counts = [
                min(c, self.r.randrange(len(q) + 1))
                for c, q in zip(counts, (self.vector, self.other), strict=True)
            ]
        mixed = any(f.unordered for f in self.vector)
        if mixed and (counts[0] < len(self.vector) or counts[1] < len(self.other)):
            self.settle()
            return
        if counts[1] < len(self.other) and any(f.unordered for f in self.other):
            counts[1] = 0
        parts = []
        if counts[0] < len(self.vector):
            parts.append(f"vmcnt({counts[0]})")
            self.vector = self.vector[len(self.vector) - counts[0] :]
        if counts[1] < len(self.other):
            parts.append(f"lgkmcnt({counts[1]})")
            self.other = self.other[len(self.other) - counts[1] :]
        if parts:
            self.raw(f"s_waitcnt {' '.join(parts)}")

    @staticmethod
    def _count(queue: list[_Flight], touched: set[str]) -> int:
        last = max((i for i, f in enumerate(queue) if f.writes & touched), default=-1)
        return min(len(queue) - 1 - last, 12)

    def put(self, line: str, row: rows.RowInfo) -> None:
        """An instruction, after what it must wait for."""
        u = uses(line, row)
        self.wait(u.reads | u.writes)
        needed = self.history.needed(u)
        if needed > 0:
            self.nops(needed)
            self.asked.append(len(self.text) - 1)
        self.raw(line, u)
        flight = _Flight(u.writes, u.unit in ("smem", "flat"))
        if u.unit in ("vmem", "flat"):
            self.vector.append(flight)
        if u.unit in ("smem", "lds", "flat"):
            self.other.append(flight)

    def label(self) -> str:
        """A new name."""
        self.labels += 1
        return f"L{{name}}_{self.labels}"

    def branch(self, condition: str, target: str) -> None:
        """A conditional branch; VCCZ is made current first."""
        if "vcc" in condition:
            self.settle()
            self.put("s_mov_b64 vcc, vcc", _row("s_mov_b64"))
        self.raw(f"s_cbranch_{condition} {target}")


def _row(name: str) -> rows.RowInfo:
    return next(r for r in rows.all_rows() if r.mnemonic == name)


class Program:
    """A program and what it starts from, made of a stock of lines that LLVM accepts."""

    def __init__(self, seed: int, stock: Sequence[tuple[rows.RowInfo, str]], length: int) -> None:
        self.seed = seed
        self.writer = Writer(random.Random(~seed))
        self._stock = iter(stock)
        self._left = length
        self._prologue()
        self._block(0, [])
        while self._left > 0:
            self._block(0, [])
        self.writer.settle()
        self._dump()

    def _prologue(self) -> None:
        w = self.writer
        w.text += [
            "v_mov_b32 v115, s71",
            f"v_add_co_u32 v114, vcc, s70, {_OWN}",
            *LONG_NOPS,
            "v_addc_co_u32 v115, vcc, 0, v115, vcc",
            *(f"ds_write_b128 {ADDRESS}, v[{4 * i}:{4 * i + 3}] offset:{1024 * i}" for i in range(8)),
            *(f"scratch_store_dwordx4 {_PRIVATE}, v[0:3], off offset:{16 * i}" for i in range(8)),
            *LONG_NOPS,
        ]
        w.settle()

    def _dump(self) -> None:
        """LDS and private memory to where the harness looks."""
        w = self.writer
        w.text += [*LONG_NOPS, "s_mov_b64 exec, -1", f"v_add_u32 v113, {_DUMP:#x}, {ADDRESS}"]
        sources = [f"ds_read_b128 v[100:103], {ADDRESS} offset:{1024 * i}" for i in range(LDS_BYTES // 1024)]
        sources += [f"scratch_load_dwordx4 v[100:103], {_PRIVATE}, off offset:{16 * i}" for i in range(8)]
        for source in sources:
            w.text += [source, "s_waitcnt vmcnt(0) lgkmcnt(0)",
                       "global_store_dwordx4 v113, v[100:103], s[70:71]", *LONG_NOPS,
                       "v_add_u32 v113, 0x400, v113", *LONG_NOPS]  # fmt: skip
        w.text.append("s_waitcnt vmcnt(0)")

    def _block(self, depth: int, breaks: list[History]) -> None:
        """Some instructions, branches forward and loops. `breaks`: of the loop around, the paths out."""
        w, r = self.writer, self.writer.r
        for _ in range(r.randrange(4, 24)):
            if self._left <= 0:
                return
            pick = r.random()
            if pick < 0.03 and depth < 3:
                self._skip(depth, breaks)
            elif pick < 0.045 and depth < 2:
                self._loop(depth)
            elif pick < 0.09:
                for line in environment_change(r):
                    w.put(line, _row("s_mov_b64" if "b64" in line else "s_mov_b32" if "s_mov" in line
                                     else "s_setreg_imm32_b32"))  # fmt: skip
            elif (entry := next(self._stock, None)) is not None:
                self._left -= 1
                w.put(entry[1], entry[0])
            else:
                self._left = 0

    def _skip(self, depth: int, breaks: list[History]) -> None:
        w = self.writer
        end = w.label()
        w.branch(w.r.choice(BRANCHES), end)
        taken = w.history.copy()
        self._block(depth + 1, breaks)
        self._meet(end, [taken])

    def _meet(self, label: str, others: Sequence[History]) -> None:
        """A label that several paths lead to."""
        w = self.writer
        w.text.append(f"{label}:")
        for other in others:
            w.history.join(other)
        w.settle()

    def _loop(self, depth: int) -> None:
        w = self.writer
        counter, head, end = f"s{56 + depth}", w.label(), w.label()
        w.raw(f"s_movk_i32 {counter}, {w.r.randrange(1, 4)}")
        w.nops(20)
        w.text.append(f"{head}:")
        w.settle()
        left: list[History] = []
        self._block(depth + 1, left)
        if w.r.random() < 0.5:
            w.branch(w.r.choice(BRANCHES), end)
            left.append(w.history.copy())
            self._block(depth + 1, left)
        w.nops(20)  # what the loop leaves, its beginning does not know of
        w.raw(f"s_sub_u32 {counter}, {counter}, 1")
        w.raw(f"s_cmp_lg_u32 {counter}, 0")
        w.raw(f"s_cbranch_scc1 {head}")
        self._meet(end, left)

    def less(self, count: int) -> list[list[str]]:
        """Texts with one wait state too few before some instruction that is sure to be reached."""
        text = self.writer.text
        straight = next((i for i, line in enumerate(text) if "cbranch" in line), len(text))
        sure = [i for i in self.writer.asked if i < straight]
        out = []
        for i in random.Random(self.seed).sample(sure, min(len(sure), count)):
            states = int(text[i].split()[1])
            out.append([*text[:i], *([f"s_nop {states - 1}"] if states else []), *text[i + 1 :]])
        return out

    def case(self, name: str = "", text: Sequence[str] | None = None) -> asm.Case:
        """The program, or another text of it; `name` tells its labels from those of others in a batch."""
        g = np.random.default_rng(self.seed)
        vin = {n: values(g, n) for n in _OUT[:2]}
        lanes = np.arange(asm.LANES, dtype=np.uint32)
        vin |= {ADDRESS: lanes * 16, _OWN: lanes * 64, _PRIVATE: lanes % 8 * 16, SPARSE: sparse_indices(g)}
        scalars = values(g, _OUT[2])[:, 0]
        sin: dict[str, object] = {f"s{i}": int(v) for i, v in enumerate(scalars)}
        sin |= {
            "vcc": int(g.integers(1 << 63)),
            "scc": self.seed & 1,
            "s64": 0,
            "s[60:63]": resource(_RECORDS),
        }
        lines = [line.replace("{name}", name or str(self.seed)) for line in text or self.writer.text]
        memory = g.integers(0, 256, _DUMP + 20480, dtype=np.uint8)
        return asm.Case(f"seed {self.seed}", lines, _OUT, no_check, vin, sin, memory, LDS_BYTES, _SCRATCH)


def programs(seeds: Sequence[int]) -> list[Program]:
    """A program for each seed; those of odd seeds have no floating-point arithmetic."""
    stocks = []
    lengths = []
    for seed in seeds:
        r = random.Random(seed)
        lengths.append(r.randrange(30, 250))
        stocks.append([candidate(r, seed % 2 == 0) for _ in range(5 * lengths[-1])])
    good = iter(asm.legal([line or "?" for stock in stocks for _, line in stock]))
    made = []
    for seed, length, stock in zip(seeds, lengths, stocks, strict=True):
        kept = [(row, line) for row, line in stock if next(good) and line]
        made.append(Program(seed, kept, length))
    return made
