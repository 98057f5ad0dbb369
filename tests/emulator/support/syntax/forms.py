# SPDX-License-Identifier: MIT OR Apache-2.0
"""Assembly lines of every form of an ALU row, one property at a time, for LLVM to take or refuse.

lines.py draws operands at random; here each select, modifier, control, mask and constant has its turn.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence

from ..rows import RowInfo
from .lines import SELECTS, UNUSED, dwords

CONTROLS = [
    *(f"quad_perm:[{p}]" for p in ("0,1,2,3", "3,2,1,0", "0,0,2,2", "1,3,3,0")),
    *(f"row_{kind}:{n}" for kind in ("shl", "shr", "ror") for n in range(1, 16)),
    *(f"wave_{kind}:1" for kind in ("shl", "rol", "shr", "ror")),
    "row_mirror",
    "row_half_mirror",
    "row_bcast:15",
    "row_bcast:31",
    *(f"row_newbcast:{n}" for n in range(16)),
]
MODIFIED = ["{}", "-{}", "|{}|", "-|{}|", "sext({})"]
CONSTANTS = [
    *map(str, range(-16, 65)),
    *("0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0.15915494", "0.15915494309189532"),
]
FEW = ["0", "64", "-1", "-16", "0.5", "-4.0", "0.15915494"]
LITERALS = ["0x12345678", "0x41", "-17", "0xffff8000", "0x3e22f984", "0x42c80000", "0x3119", "0x4248"]
SPECIAL = ["vcc_lo", "vcc_hi", "m0", "exec_lo", "exec_hi", "flat_scratch_lo", "xnack_mask_hi", "s101"]
PAIRS = ["vcc", "exec", "flat_scratch", "xnack_mask", "src_shared_base", "src_private_limit", "s[100:101]"]
FLAGS = ["src_vccz", "src_execz", "src_scc"]
OUTPUTS = ["clamp", "mul:2", "mul:4", "div:2", "mul:4 clamp"]


def register(bank: str, first: int, count: int) -> str:
    """A register or a range."""
    return f"{bank}{first}" if count == 1 else f"{bank}[{first}:{first + count - 1}]"


class _Operands:
    """The operands of a row as they are when nothing about them is special."""

    def __init__(self, row: RowInfo) -> None:
        self.row = row
        self.kinds = [k for k in row.srcs if k != "none"]
        self.carries = ("writes_vcc" in row.flags and row.format == "VOP2") or row.format == "VOP3B"
        self.masked = "reads_vcc" in row.flags and row.format == "VOP2"
        scalar = "scalar_dst" in row.flags or row.format == "VOPC"
        self.scalar = row.format[0] == "S"
        bank = "s" if scalar or self.scalar else "v"
        self.dst = register(bank, 8, dwords(row.dst)) if row.dst != "none" else ""
        self.sources = [
            register("s" if self.scalar else "v", 2 + 4 * i, dwords(k)) for i, k in enumerate(self.kinds)
        ]

    def line(
        self, suffix: str, sources: Sequence[str], tail: str = "", dst: str = "", mask: str = "vcc"
    ) -> str:
        """The instruction with these sources."""
        first = [dst or self.dst, mask if self.carries else ""]
        operands = [o for o in (*first, *sources, mask if self.masked else "") if o]
        return f"{self.row.mnemonic}{suffix} {', '.join(operands)} {tail}".strip()

    def with_source(self, i: int, pattern: str) -> list[str]:
        """The sources, one of them in this pattern, or replaced."""
        return [*self.sources[:i], pattern.format(self.sources[i]), *self.sources[i + 1 :]]

    def each(self, suffix: str, patterns: Sequence[str], tail: str = "", **given: str) -> Iterator[str]:
        """Each source in each pattern, or replaced by each text."""
        for i in range(len(self.sources)):
            for pattern in patterns:
                yield self.line(suffix, self.with_source(i, pattern), tail, **given)


def sdwa(row: RowInfo) -> Iterator[str]:
    """Selects of sources and destination, signs, scalar sources, output modifiers."""
    o = _Operands(row)
    given = {"dst": "vcc"} if row.format == "VOPC" else {}
    placed = "dst_sel:DWORD dst_unused:UNUSED_PAD"
    if row.format == "VOPC" or "no_dst_sel" in row.flags:
        placed = ""
    plain = [f"src{i}_sel:DWORD" for i in range(len(o.sources))]

    def tail(*parts: str) -> str:
        return " ".join(p for p in parts if p)

    for i in range(len(o.sources)):
        for select in SELECTS:
            selects = [*plain[:i], f"src{i}_sel:{select}", *plain[i + 1 :]]
            for pattern in MODIFIED:
                yield o.line("_sdwa", o.with_source(i, pattern), tail(placed, *selects), **given)
    for select in SELECTS:
        for unused in UNUSED:
            yield o.line("_sdwa", o.sources, tail(f"dst_sel:{select} dst_unused:{unused}", *plain), **given)
    for output in OUTPUTS:
        yield o.line("_sdwa", o.sources, tail(output, placed, *plain), **given)
    yield from o.each("_sdwa", ["s7", "vcc_lo", "m0", "exec_hi", "v255"], tail(placed, *plain), **given)
    if row.format == "VOPC":
        for dst in ("vcc", "s[10:11]", "exec", "flat_scratch"):
            yield o.line("_sdwa", o.sources, tail(*plain), dst=dst)


def dpp(row: RowInfo) -> Iterator[str]:
    """Controls, masks, what lanes without a source do, signs."""
    o = _Operands(row)
    tails = ["", " row_mask:0xa bank_mask:0x5", " row_mask:0xf bank_mask:0xf bound_ctrl:0"]
    # Compares have no DPP form on GFX9; LLVM is asked about a few, should it ever say otherwise.
    controls = CONTROLS[:3] if row.format == "VOPC" else CONTROLS
    for i, control in enumerate(controls):
        yield o.line("_dpp", o.sources, control + tails[i % 3])
    for control in ("quad_perm:[3,2,1,0]", "row_newbcast:3") if len(controls) > 3 else ():
        for mask in range(16):
            yield o.line("_dpp", o.sources, f"{control} row_mask:{mask:#x} bank_mask:{15 - mask:#x}")
        yield from o.each("_dpp", MODIFIED[:4], control + tails[2])


def mixed(row: RowInfo) -> Iterator[str]:
    """Selects, signs, placements, controls and masks together, at random."""
    o, r = _Operands(row), random.Random(row.mnemonic)
    given = {"dst": "vcc"} if row.format == "VOPC" else {}
    for _ in range(16):
        sources = [r.choice(MODIFIED).format(s) for s in o.sources]
        tail = " ".join(f"src{i}_sel:{r.choice(SELECTS)}" for i in range(len(sources)))
        placed = f"dst_sel:{r.choice(SELECTS)} dst_unused:{r.choice(UNUSED)} "
        out = r.choice(("", "", "clamp ", "mul:2 "))
        yield o.line("_sdwa", sources, f"{out}{'' if row.format == 'VOPC' else placed}{tail}", **given)
        masks = f"row_mask:{r.randrange(16):#x} bank_mask:{r.randrange(16):#x}"
        bound = r.choice(("", " bound_ctrl:0"))
        sources = [r.choice(MODIFIED[:4]).format(s) for s in o.sources]
        yield o.line("_dpp", sources, f"{r.choice(CONTROLS)} {masks}{bound}")


def short(row: RowInfo) -> Iterator[str]:
    """The e32 form: constants, literals and scalar registers as the first source."""
    o = _Operands(row)
    given = {"dst": "vcc"} if row.format == "VOPC" else {}
    for text in (*CONSTANTS, *LITERALS, *SPECIAL, *PAIRS, *FLAGS):
        if o.sources:
            yield o.line("_e32", [text, *o.sources[1:]], **given)


def long(row: RowInfo) -> Iterator[str]:
    """The e64 form: constants and scalar registers in every place, signs, output modifiers, halves."""
    o = _Operands(row)
    suffix = "_e64" if row.format in ("VOP1", "VOP2", "VOPC") else ""
    mask = {"mask": "s[14:15]"}
    yield from o.each(suffix, [*FEW, *SPECIAL, *PAIRS, *FLAGS], **mask)
    for text in CONSTANTS:
        if o.sources:
            yield o.line(suffix, o.with_source(0, text), **mask)
    for output in ("", *OUTPUTS):
        yield from o.each(suffix, MODIFIED[:4], output, **mask)
    n = len(o.sources) + 1
    for bits in range(1, 1 << n):
        yield o.line(suffix, o.sources, f"op_sel:[{','.join(str(bits >> i & 1) for i in range(n))}]", **mask)


def packed(row: RowInfo) -> Iterator[str]:
    """VOP3P: every choice of halves and of their signs, constants and scalar registers, clamp."""
    o = _Operands(row)
    n = len(o.sources)
    for option in ("op_sel", "op_sel_hi", "neg_lo", "neg_hi"):
        for bits in range(1 << n):
            yield o.line("", o.sources, f"{option}:[{','.join(str(bits >> i & 1) for i in range(n))}]")
    both = f"op_sel:[{','.join('1' * n)}] op_sel_hi:[{','.join('0' * n)}]"
    for tail in (both, "clamp", f"{both} clamp"):
        yield o.line("", o.sources, tail)
    yield from o.each("", MODIFIED[:4])
    for i in range(n):  # the low half of the source, or the low register, for both results
        low = f"op_sel_hi:[{','.join('0' if k == i else '1' for k in range(n))}]"
        for text in (*CONSTANTS, *SPECIAL, *PAIRS, *FLAGS):
            for tail in ("", low):
                yield o.line("", o.with_source(i, text), tail)


def literal(row: RowInfo) -> Iterator[str]:
    """The constant that v_madmk and v_madak carry, and constants beside it."""
    if "literal_k" not in row.flags:
        return
    o = _Operands(row)
    first, second = o.sources
    for text in LITERALS:
        for source in (first, *FEW, *SPECIAL, text):
            operands = [source, text, second] if "literal_middle" in row.flags else [source, second, text]
            yield o.line("", operands)


def scalar(row: RowInfo) -> Iterator[str]:
    """SOP1, SOP2, SOPC: constants, literals and special registers in every place."""
    o = _Operands(row)
    yield from o.each("", [*CONSTANTS, *LITERALS, *SPECIAL, *PAIRS, *FLAGS])
    for dst in (*SPECIAL, *PAIRS[:4]):
        if o.dst:
            yield o.line("", o.sources, dst=dst)


def is_kept(row: RowInfo, line: str) -> bool:
    """Return whether a row runs a line: of the inline integers each row takes a different fourth."""
    found = re.search(r"(?<= )(-?\d+)(?=,|$)", line)
    value = int(found[1]) if found else 64
    return not -16 < value < 64 or (value + sum(row.mnemonic.encode())) % 4 == 0


_BY_FORMAT = {
    "VOP1": (sdwa, dpp, mixed, short, long),
    "VOP2": (sdwa, dpp, mixed, short, long, literal),
    "VOPC": (sdwa, dpp, mixed, short, long),
    "VOP3": (long,),
    "VOP3B": (long,),
    "VOP3P": (packed,),
    "SOP1": (scalar,),
    "SOP2": (scalar,),
    "SOPC": (scalar,),
}


def forms(row: RowInfo) -> dict[str, list[str]]:
    """Lines to try, by form."""
    makers = _BY_FORMAT.get(row.format, ())
    return {maker.__name__: list(dict.fromkeys(maker(row))) for maker in makers}
