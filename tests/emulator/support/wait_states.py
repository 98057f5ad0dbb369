# SPDX-License-Identifier: MIT OR Apache-2.0
"""Wait states that software must keep, found from assembly text: what the fuzzer puts between instructions.

Written from LLVM's GCNHazardRecognizer.cpp and the CDNA2, CDNA3 and CDNA4 ISA guides ("Manually Inserted Wait
States"), independently of the device's checks: if either asks for more than the other, the fuzzer shows it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from . import rows
from .asm import RETURN, registers
from .spelling import bare

_NAMES = {n: [n] for n in ("vcc_lo", "vcc_hi", "exec_lo", "exec_hi", "m0")}
_NAMES |= {"vcc": ["vcc_lo", "vcc_hi"], "exec": ["exec_lo", "exec_hi"]}
_TRANS = re.compile(r"v_(exp|log|rcp|rsq|sqrt|sin|cos)_")
_WRITES_PART = re.compile(r"op_sel:\[[01,]*1\]")
_FURTHEST = 20
_NEW = rows.arch() in ("gfx942", "gfx950")
_CDNA4 = rows.arch() == "gfx950"


def operand_registers(text: str) -> list[str]:
    """Names of the registers in an operand, which may carry signs and be followed by modifiers."""
    found: list[str] = []
    for name in re.findall(
        r"\b(?:vcc_lo|vcc_hi|exec_lo|exec_hi|vcc|exec|m0|[vsa]\d+\b|[vsa]\[\d+:\d+\])", text
    ):
        found += _NAMES.get(name) or registers(name)
    return found


@dataclass
class Uses:
    """The registers that an instruction touches, and the properties that the rules need."""

    name: str
    unit: str  # salu, valu, mfma, vmem, flat, lds, smem
    reads: set[str] = field(default_factory=set)
    sources: set[str] = field(default_factory=set)  # of these, what is read by more than not being written
    writes: set[str] = field(default_factory=set)
    traits: set[str] = field(default_factory=set)
    c: tuple[str, ...] = ()  # MFMA: what it adds to
    d: tuple[str, ...] = ()  # MFMA: what it writes
    ab: set[str] = field(default_factory=set)  # MFMA: what it multiplies
    stored: set[str] = field(default_factory=set)  # data of a store of more than 8 bytes
    select: set[str] = field(default_factory=set)  # v_readlane and v_writelane: the lane
    passes: int = 0

    @property
    def scalars(self) -> set[str]:
        """Scalar registers written."""
        return {r for r in self.writes if r[0] not in "va" or r.startswith("vcc")}

    @property
    def vectors(self) -> set[str]:
        """Vector registers written."""
        return self.writes - self.scalars


_UNITS = {"SMEM": "smem", "DS": "lds", "MUBUF": "vmem", "GLOBAL": "vmem", "SCRATCH": "vmem", "FLAT": "flat"}


def _passes(name: str, line: str) -> int:
    """Passes of four cycles: the tables of the ISA guides."""
    if "mfma_f64" in name:
        return 4 if "_4x4x" in name else 16 if _CDNA4 else 8
    if "_4x4x" in name:
        return 2
    big = "_32x32x" in name
    if name.endswith("f8f6f4"):  # types 0 and 1 have 8 bits, which is what no modifier means
        types = [re.search(rf"{field}:(\d)", line) for field in ("cbsz", "blgp")]
        slow = any(found is None or int(found[1]) < 2 for found in types)
        return (8 if big else 4) * (2 if slow else 1)
    if rows.arch() == "gfx90a":
        return 16 if big else 8
    if name.startswith("v_smfmac"):
        return 8 if big else 4
    depth = int(re.search(r"(?:16x16|32x32)x(\d+)", name)[1])  # type: ignore[index]
    fast = "xf32" in name or depth >= (8 if big else 16)
    return (8 if fast else 16) if big else (4 if fast else 8)


def _is_xdl(name: str) -> bool:
    if "mfma_f64" in name:
        return False
    return rows.arch() == "gfx90a" or "xf32" in name or not name.endswith("f32")


def uses(line: str, row: rows.RowInfo) -> Uses:
    """Reads, writes and properties of an instruction."""
    mnemonic, _, rest = line.partition(" ")
    name = bare(mnemonic)
    operands = rest.split(", ") if rest else []
    matrix = name.startswith(("v_mfma", "v_smfmac"))
    unit = _UNITS.get(row.format) or ("mfma" if matrix else "salu" if row.format[0] == "S" else "valu")
    u = Uses(name, unit)
    outputs = 0 if row.dst == "none" else 1
    if row.format == "VOP3B" or (row.format == "VOP2" and "writes_vcc" in row.flags):
        outputs = 2
    returned = RETURN in rest.split()
    if "atomic" in row.flags and row.format != "DS":
        outputs = int(returned)
    for i, operand in enumerate(operands):
        (u.writes if i < outputs else u.reads).update(operand_registers(operand))
    if row.format == "MUBUF" and "atomic" in row.flags:
        u.reads.update(operand_registers(operands[0]))
    if "writes_exec" in row.flags or re.search("_saveexec|_wrexec", name):
        u.writes |= {"exec_lo", "exec_hi"}
    if name.startswith("v_div_fmas") or "branch_vcc" in name:
        u.reads |= {"vcc_lo", "vcc_hi"}
    if name.startswith(("v_swap", "v_permlane")):
        u.writes |= u.reads
    u.sources = set(u.reads)
    if "reads_dst" in row.flags:
        u.sources |= u.vectors
    # These keep the part of the destination that they do not write, so they read it.
    u.reads = u.sources | (
        u.vectors if "_sdwa" in mnemonic or "_dpp" in mnemonic or "op_sel" in line else set()
    )
    _traits(u, mnemonic, line, operands, row)
    return u


def _traits(u: Uses, mnemonic: str, line: str, operands: list[str], row: rows.RowInfo) -> None:
    n = u.name
    lane = n.startswith(("v_readlane", "v_readfirstlane", "v_writelane"))
    for trait, has in {
        "trans": bool(_TRANS.match(n)),
        "dpp": "_dpp" in mnemonic,
        "dot": n.startswith("v_dot"),
        "lane": lane,
        "readlane": lane and not n.startswith("v_writelane"),
        "setreg": n.startswith("s_setreg"),
        "fma64": n.startswith(("v_fma_f64", "v_fmac_f64")),
        "f64": "mfma_f64" in n,
        "half": ("_sdwa" in mnemonic and row.format != "VOPC" and "dst_sel:DWORD" not in line)
        or bool(row.format == "VOP3" and _WRITES_PART.search(line))
        or "places_late" in row.flags
        or bool("selects_byte" in row.flags and re.search(r"op_sel:\[[01],[01],1", line)),
        "xdl": u.unit == "mfma" and _is_xdl(n),
    }.items():
        if has:
            u.traits.add(trait)
    if n.startswith(("v_readlane", "v_writelane")):
        u.select = {
            r for r in operand_registers(operands[2]) if r[0] == "s" or r in ("vcc_lo", "vcc_hi", "m0")
        }
    if u.unit == "mfma":
        u.passes = _passes(n, line)
        u.d, u.c = tuple(operand_registers(operands[0])), tuple(operand_registers(operands[3]))
        u.ab = set(operand_registers(" ".join(operands[1:3] + operands[4:])))  # and scales
        if n.startswith("v_smfmac"):  # adds to what it writes; its last operand is indices
            u.c, u.ab = u.d, u.ab | set(operand_registers(operands[3]))
    if row.flags & {"store", "atomic"} and u.unit in ("vmem", "flat"):
        buffer = row.format == "MUBUF"
        data = operand_registers(operands[0 if buffer else 1 + int(bool(u.writes))])
        if len(data) > 2:
            u.stored = set(data)
            if buffer and operand_registers(operands[3]):
                u.traits.add("sgpr offset")


def _late(p: Uses, new: bool) -> int:
    """Wait states until the result of an MFMA that is none of f64 can be used, but as the C of another."""
    xdl = "xdl" in p.traits
    return p.passes + (3 if not new or xdl else 2) + int(_CDNA4 and xdl and p.passes != 2)


def _between_matrix(p: Uses, u: Uses, new: bool) -> int:
    """Wait states between an MFMA and another one."""
    written = set(p.d)
    need = 0
    if written & u.ab:
        of_f64 = 6 if p.passes == 4 else 19 if _CDNA4 else 11
        need = of_f64 if "f64" in p.traits else _late(p, new)
    if written & set(u.c):
        to_f64, from_f64 = "f64" in u.traits, "f64" in p.traits
        if from_f64 and not to_f64 and not new:
            state = 0
        elif p.d[0] == u.c[0] and len(p.d) == len(u.c):
            both_small = from_f64 and to_f64 and p.passes == u.passes == 4
            state = 4 if both_small else 2 if new and p.passes == 2 else 0
        elif from_f64:
            state = 0 if "xdl" in u.traits else 4 if p.passes == 4 else p.passes + 1
        elif not new:
            state = p.passes + int(to_f64)
        elif "xdl" in p.traits:
            both = "xdl" in u.traits
            state = p.passes + 1 + int(_CDNA4 and (both or p.passes != 2))
        else:
            state = 0 if "xdl" in u.traits else p.passes
        need = max(need, state)
    return need


def _after_matrix(p: Uses, u: Uses, new: bool) -> int:
    """Wait states between an MFMA and what is none."""
    need = 0
    touched = (u.reads | u.vectors) & set(p.d)
    if touched:
        if "f64" in p.traits:
            memory = u.unit != "valu" and bool(u.reads & set(p.d))
            reads = 19 if _CDNA4 and u.reads & set(p.d) else 11
            need = (9 if memory else 6) if p.passes == 4 else (18 if memory else reads)
        else:
            need = _late(p, new)
    reads_c = "f64" not in p.traits and (not new or "xdl" in p.traits)
    if reads_c and u.vectors & set(p.c):
        need = max(need, p.passes - 1)
    if "f64" in p.traits and "fma64" in u.traits:
        need = max(need, 2)
    return need


def between(p: Uses, u: Uses) -> int:
    """Wait states that must lie between two instructions."""
    new = _NEW
    rules: list[tuple[bool, int]] = []
    vector = u.unit in ("valu", "mfma")
    memory = u.unit in ("vmem", "flat")
    if p.unit == "mfma":
        if u.unit == "mfma":
            return _between_matrix(p, u, new)
        return _after_matrix(p, u, new) if u.unit in ("valu", "lds", "vmem", "flat") else 0
    read = bool(p.vectors & u.reads)
    if p.unit == "valu":
        scalars = bool(p.scalars & u.reads)
        masks = bool(p.writes & {"exec_lo", "exec_hi"})
        rules += [
            (memory and scalars, 5),
            (bool(p.scalars & u.select), 4),
            (u.name.startswith("v_div_fmas") and bool(p.writes & {"vcc_lo", "vcc_hi"}), 4),
            (new and u.unit == "valu" and scalars, 2),
            (masks and "dpp" in u.traits, 5),
            (masks and u.unit == "mfma", 4),
            (new and masks and "lane" in u.traits, 4),
            (u.unit == "mfma" and read and "dot" not in p.traits, 2),
            (new and "readlane" in u.traits and read, 1),
            (new and "trans" in p.traits and "trans" not in u.traits and vector and read, 1),
            (new and "half" in p.traits and vector and bool(p.vectors & (u.reads | u.vectors)), 1),
        ]
        same = p.name == u.name
        # Only the accumulator of the same v_dot is forwarded; here never mind which operand it is.
        rules.append(("dot" in p.traits and u.unit not in ("mfma", "salu", "smem") and read, 3))
        rules.append(("dot" in p.traits and not same and u.unit not in ("mfma", "salu", "smem")
                      and bool(p.vectors & u.vectors), 3))  # fmt: skip
    rules += [
        ("dpp" in u.traits and bool(p.vectors & u.sources), 2),
        (vector and bool(p.stored & u.vectors), 1 + new - ("sgpr offset" in p.traits)),
        ("setreg" in p.traits and "setreg" in u.traits, 2),
    ]
    return max((states for holds, states in rules if holds), default=0)


class History:
    """The instructions issued lately, on any path that leads here."""

    def __init__(self) -> None:
        self.past: list[tuple[Uses, int]] = []  # and the wait states since

    def needed(self, u: Uses) -> int:
        """Wait states to add before this instruction."""
        need = max((between(p, u) - since for p, since in self.past), default=0)
        if rows.arch() == "gfx90a" and u.unit in ("vmem", "flat", "lds"):
            # An erratum: a VALU instruction, an f64 MFMA after it, memory that reads what the first wrote.
            matrix = min((since for p, since in self.past if "f64" in p.traits), default=_FURTHEST)
            written = [t for p, t in self.past if p.unit == "valu" and t > matrix and p.vectors & u.reads]
            need = max([need, *(2 - t for t in written)])
        return need

    def pass_time(self, states: int) -> None:
        """Let this many wait states go by."""
        self.past = [(p, since + states) for p, since in self.past if since + states < _FURTHEST]

    def issue(self, u: Uses | None) -> None:
        """An instruction goes by."""
        self.pass_time(1)
        if u and u.unit == "salu":  # what it writes is no longer what a VALU instruction wrote
            for i, (p, since) in enumerate(self.past):
                if p.unit == "valu" and p.writes & u.writes:
                    self.past[i] = replace(p, writes=p.writes - u.writes), since
        if u:
            self.past.append((u, 0))

    def copy(self) -> History:
        """As it is now."""
        other = History()
        other.past = list(self.past)
        return other

    def join(self, other: History) -> None:
        """Another path leads here too."""
        self.past += other.past
