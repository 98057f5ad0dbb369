# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random assembly lines for a row of the instruction table, for LLVM to accept or refuse."""

from __future__ import annotations

import random
from collections.abc import Callable

from ..rows import RowInfo
from .lines_rdna import moved, variants

_DWORDS = {
    "none": 0,
    "i64": 2,
    "f64": 2,
    "pk_f32": 2,
    "mask": 2,
    "b96": 3,
    "b128": 4,
    "b192": 6,
    "b256": 8,
    "b512": 16,
    "b1024": 32,
}
_SMALL = [
    "0",
    "1",
    "64",
    "-1",
    "-16",
    "0.5",
    "-0.5",
    "1.0",
    "-1.0",
    "2.0",
    "-2.0",
    "4.0",
    "-4.0",
    "0.15915494",
    "0.15915494309189532",
]
_SPECIAL = [
    "vcc",
    "vcc_lo",
    "vcc_hi",
    "exec",
    "exec_lo",
    "exec_hi",
    "m0",
    "src_shared_base",
    "src_private_base",
    "src_vccz",
    "src_execz",
    "src_scc",
    "flat_scratch",
    "flat_scratch_lo",
    "xnack_mask_lo",
]
_DPP = [
    "quad_perm:[0,1,2,3]",
    "quad_perm:[3,1,0,2]",
    "row_shl:1",
    "row_shl:15",
    "row_shr:7",
    "row_ror:3",
    "wave_shl:1",
    "wave_rol:1",
    "wave_shr:1",
    "wave_ror:1",
    "row_mirror",
    "row_half_mirror",
    "row_bcast:15",
    "row_bcast:31",
    "row_newbcast:5",
]
_HWREGS = ["HW_REG_MODE", "HW_REG_STATUS", "HW_REG_TRAPSTS", "HW_REG_HW_ID", "HW_REG_LDS_ALLOC"]
_MESSAGES = ["MSG_INTERRUPT", "MSG_GS, GS_OP_EMIT, 0", "MSG_SAVEWAVE", "MSG_HALT_WAVES"]
UNUSED = ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"]
SELECTS = ["BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD"]


def dwords(kind: str) -> int:
    """Registers of a type."""
    return _DWORDS.get(kind, 1)


class Maker:
    """Makes operand texts with one random generator."""

    def __init__(self, row: RowInfo, seed: int) -> None:
        self.row, self.r = row, random.Random(f"{row.mnemonic}{seed}")

    def regs(self, bank: str, dwords: int) -> str:
        """A register or an aligned range."""
        limit = {"v": 256, "a": 256, "s": 102}[bank]
        align = 1 if dwords == 1 else 2 if bank != "s" or dwords == 2 else 4
        first = self.r.randrange(0, (limit - dwords) // align + 1) * align
        return f"{bank}{first}" if dwords == 1 else f"{bank}[{first}:{first + dwords - 1}]"

    def width(self, kind: str) -> int:
        """Registers of a type; now and then another width, for rows whose table entry does not say."""
        return dwords(kind) or 1

    def vgpr(self, kind: str) -> str:
        """A VGPR operand."""
        return self.regs("v", self.width(kind))

    def any_src(self, kind: str, literal: bool = False) -> str:
        """A VALU or SALU source."""
        pick = self.r.random()
        if pick < 0.4:
            return self.vgpr(kind) if self.row.format[0] in "VM" else self.regs("s", self.width(kind))
        if pick < 0.6:
            return self.regs("s", self.width(kind))
        if pick < 0.75:
            return self.r.choice(_SMALL)
        if pick < 0.85 and literal:
            return f"0x{self.r.getrandbits(32):x}"
        if pick < 0.95:
            special = self.r.choice(_SPECIAL)
            # The apertures are 64 bits wide; what a 32-bit operand reads of them is not documented.
            return special if "base" not in special or self.width(kind) == 2 else "m0"
        return self.vgpr(kind)

    def modified(self, text: str) -> str:
        """Perhaps with neg or abs."""
        if "has_modifiers" in self.row.flags and text[0] in "vs" and "src" not in text:
            pick = self.r.random()
            if pick < 0.2:
                return f"-{text}"
            if pick < 0.4:
                return f"|{text}|"
            if pick < 0.5:
                return f"-|{text}|"
        return text

    def sources(self) -> list[str]:
        """Types of the sources the row has."""
        return [s for s in self.row.srcs if s != "none"]

    def maybe(self, *texts: str) -> str:
        """Each text with a chance of a third."""
        return "".join(f" {t}" for t in texts if self.r.random() < 0.34)

    def bits(self, count: int) -> str:
        """A list of random bits."""
        return "[" + ",".join(str(self.r.randrange(2)) for _ in range(count)) + "]"


def _scalar(m: Maker) -> list[str]:
    row, r = m.row, m.r
    n = row.mnemonic
    srcs = [m.any_src(s, True) for s in m.sources()]
    sdst = r.choice(
        [
            m.regs("s", m.width(row.dst)),
            m.regs("s", m.width(row.dst)),
            "vcc",
            "vcc_hi",
            "m0",
            "exec",
            "exec_lo",
        ]
    )
    k = r.choice([f"0x{r.getrandbits(16):x}", str(r.randrange(64))])
    hwreg = f"hwreg({r.choice(_HWREGS)}" + r.choice([")", f", {r.randrange(20)}, {r.randrange(1, 12)})"])
    wait = "s_waitcnt" + m.maybe(
        f"vmcnt({r.randrange(63)})", f"lgkmcnt({r.randrange(15)})", f"expcnt({r.randrange(7)})"
    )
    message = f"{n} sendmsg({r.choice(_MESSAGES)})"
    by_format: dict[str, list[str]] = {
        "SOP1": [
            f"{n} {sdst}, {', '.join(srcs)}",
            f"{n} {sdst}, {m.any_src('i32', True)}",
            f"{n} {sdst}",
            f"{n} {m.any_src('i64')}",
            f"{n} {m.any_src('i32')}",
        ],
        "SOP2": [f"{n} {sdst}, {', '.join(srcs)}", f"{n} {', '.join(srcs)}"],
        "SOPC": [f"{n} {', '.join(srcs)}", f"{n} {m.any_src('i32')}, gpr_idx(SRC0,DST)", f"{n} s5, 0x3"],
        "SOPK": [
            f"{n} {sdst}, {k}",
            f"{n} {sdst}, {hwreg}",
            f"{n} {hwreg}, {m.regs('s', 1)}",
            f"{n} {hwreg}, 0x{r.getrandbits(32):x}",
            f"{n} {m.regs('s', 2)}, {k}",
        ],
        "SOPP": [
            n,
            f"{n} {k}",
            f"{n} {r.randrange(8)}",
            wait if n == "s_waitcnt" else n,
            message,
            f"{n} gpr_idx(SRC0)",
        ],
    }
    return by_format[row.format]


def _smem(m: Maker) -> list[str]:
    n, r = m.row.mnemonic, m.r
    dst = m.regs("s", m.width(m.row.dst))
    base = m.regs("s", 4 if "buffer" in n else 2)
    offset = r.choice(
        [
            f"0x{r.getrandbits(20):x}",
            f"-0x{r.getrandbits(19):x}",
            m.regs("s", 1),
            f"{m.regs('s', 1)} offset:0x{r.getrandbits(12):x}",
            "m0",
            "0x0",
        ]
    )
    data = m.regs("s", m.width(m.row.srcs[1]))
    return [
        f"{n} {dst}, {base}, {offset}{m.maybe('glc')}",
        f"{n} {data}, {base}, {offset}{m.maybe('glc')}",
        f"{n} {r.randrange(128)}, {base}, {offset}",
        f"{n} {base}, {offset}",
        n,
        f"{n} {m.regs('s', 2)}",
    ]


def _vop(m: Maker) -> dict[str, list[str]]:
    """e32, e64, SDWA and DPP lines."""
    row, r = m.row, m.r
    n, kinds = row.mnemonic, m.sources()
    dst = m.regs("s", 2) if row.format == "VOPC" else m.vgpr(row.dst)
    if "scalar_dst" in row.flags and row.format != "VOPC":
        dst = m.regs("s", 1)
    first = [m.any_src(kinds[0], True)] if kinds else []
    short = [*first, *(m.vgpr(k) for k in kinds[1:])]
    carry_out = "writes_vcc" in row.flags and row.format != "VOPC"
    carry_in = "reads_vcc" in row.flags
    e32_dst = ["vcc"] if row.format == "VOPC" else [dst, *(["vcc"] if carry_out else [])]
    e32 = f"{n}_e32 " + ", ".join([*e32_dst, *short[:2], *(["vcc"] if carry_in else [])])
    literal = f"0x{r.getrandbits(32):x}"
    if row.dst == "f16":
        literal = f"0x{r.getrandbits(14) | 0x4000:x}"
    fmak = [
        f"{n} {dst}, {first[0] if first else 'v0'}, {literal}, {m.vgpr('i32')}",
        f"{n} {dst}, {first[0] if first else 'v0'}, {m.vgpr('i32')}, {literal}",
    ]
    mods = [m.modified(m.any_src(k)) for k in kinds]
    # Output scaling means nothing on integers, though LLVM takes it there.
    scaled = "f" in row.dst and "has_modifiers" in row.flags
    out = m.maybe("clamp", *([r.choice(["mul:2", "mul:4", "div:2"])] if scaled else []))
    sdst = [m.regs("s", 2)] if carry_out or row.format == "VOP3B" else []
    explicit = carry_in and row.format == "VOP2"  # v_div_fmas reads VCC without saying so
    mask = [r.choice([m.regs("s", 2), "vcc"])] if explicit else []
    e64_sources = mods[:2] if explicit else mods
    sel = m.maybe(f"op_sel:{m.bits(len(kinds) + 1)}")
    e64 = [
        f"{n}{suffix} "
        + ", ".join([r.choice([dst, "vcc"]) if row.format == "VOPC" else dst, *sdst, *e64_sources, *mask])
        + tail
        for suffix in ("_e64", "")
        for tail in (out, "", sel)
    ]
    e64.append(f"{n} {', '.join([dst, *sdst, *(m.modified(m.vgpr(k)) for k in kinds)])}{out}")
    e64 += [f"{n}{suffix} {m.regs('s', 1)}, {', '.join(mods)}" for suffix in ("", "_e64")] + [
        n,
        f"{n}_e32",
        f"{n}_e64",
        f"{n} {m.regs('a', 1)}, {m.regs('a', 1)}",
    ]
    sources = [
        r.choice([f"sext({v})", v, v, f"-{v}", f"|{v}|"])
        for v in (m.regs(r.choice("vvvs"), 1) for _ in kinds[:2])
    ]
    selects = "".join(f" src{i}_sel:{r.choice(SELECTS)}" for i in range(len(kinds[:2])))
    placed = "" if row.format == "VOPC" else f" dst_sel:{r.choice(SELECTS)} dst_unused:{r.choice(UNUSED)}"
    sdwa_dst = (
        [r.choice(["vcc", m.regs("s", 2)])]
        if row.format == "VOPC"
        else [dst, *(["vcc"] if carry_out else [])]
    )
    tail_in = ["vcc"] if carry_in else []
    sdwa = [
        f"{n}_sdwa {', '.join([*sdwa_dst, *sources, *tail_in])}{text}{placed}{selects}"
        for text in ("", m.maybe("clamp"), m.maybe("mul:2", "clamp") if scaled else "")
    ]
    # LLVM also takes signs on the packed halves of v_dot2c, of which the manual says nothing.
    dpp_sources = [
        v if "dot2c" in n else r.choice([v, v, f"-{v}", f"|{v}|"]) for v in (m.vgpr(k) for k in kinds[:2])
    ]
    dpp = [
        f"{n}_dpp {', '.join([dst, *['vcc'] * carry_out, *dpp_sources, *tail_in])} {r.choice(_DPP)}"
        + r.choice(["", f" row_mask:0x{r.randrange(16):x} bank_mask:0x{r.randrange(16):x}"])
        + m.maybe("bound_ctrl:0")
    ]
    return {"e32": [e32, *fmak], "e64": e64, "sdwa": sdwa, "dpp": dpp}


def _vop3p(m: Maker) -> list[str]:
    n, kinds = m.row.mnemonic, m.sources()
    count = len(kinds)
    mods = (
        m.maybe(f"op_sel:{m.bits(count)}")
        + m.maybe(f"op_sel_hi:{m.bits(count)}")
        + m.maybe(f"neg_lo:{m.bits(count)}")
        + m.maybe(f"neg_hi:{m.bits(count)}")
    )
    srcs = [m.any_src(k) for k in kinds]
    mixed = [m.modified(s) if "mix" in n else s for s in srcs]
    return [
        f"{n} {m.vgpr(m.row.dst)}, {', '.join(s)}{t}{c}"
        for s in (mixed, srcs)
        for t in (mods, "")
        for c in ("", m.maybe("clamp"))
    ]


def _scales(m: Maker) -> list[str]:
    """Two scales: registers, or constants, which may stand beside each other."""
    return [
        m.r.choice([m.regs("v", 1), m.regs("v", 1), m.regs("s", 1), m.r.choice(_SMALL)]) for _ in range(2)
    ]


def _small_matrix(m: Maker) -> list[str]:
    """MFMA of operands as wide as cbsz and blgp say; no op_sel, which clang 20 encodes wrongly."""
    n, r = m.row.mnemonic, m.r
    if "_ld_scale" in n:
        return [f"{n} {', '.join(_scales(m))}{m.maybe(f'op_sel:{m.bits(2)}', f'op_sel_hi:{m.bits(2)}')}"]
    widths, bank = (8, 8, 6, 6, 4), r.choice("va")
    kinds = [r.randrange(5), r.randrange(5)]
    a, b = (m.regs(r.choice("va"), widths[k]) for k in kinds)
    acc = m.width(m.row.dst)
    c = r.choice([m.regs(bank, acc), m.regs(bank, acc), r.choice(_SMALL)])
    scales = [] if "_scale_" not in n else _scales(m)
    types = "".join(f" {field}:{k}" for field, k in zip(("cbsz", "blgp"), kinds, strict=True) if k)
    operands = [m.regs(bank, acc), a, b, c, *scales]
    return [f"{n} {', '.join(operands)}{types}"]


def _mai(m: Maker) -> list[str]:
    n, r = m.row.mnemonic, m.r
    if n.endswith("f8f6f4") or "_ld_scale" in n:
        return _small_matrix(m)
    if "accvgpr" in n:
        return [f"{n} {m.regs('v', 1)}, {m.regs('a', 1)}", f"{n} {m.regs('a', 1)}, {m.any_src('i32')}"]
    dst, *srcs = (m.width(k) for k in (m.row.dst, *m.row.srcs))
    bank = r.choice("va")
    if "smfmac" in n:
        tail = r.choice(["", f" cbsz:{r.randrange(8)} abid:{r.randrange(16)}"])
        a, b = (m.regs(r.choice("va"), width) for width in srcs[:2])
        return [f"{n} {m.regs(bank, dst)}, {a}, {b}, {m.regs('v', 1)}{tail}"]
    a, b = (m.regs(r.choice("va"), width) for width in srcs[:2])
    c = r.choice([m.regs(bank, dst), m.regs(bank, dst), r.choice(_SMALL)])
    tail = r.choice(
        ["", f" cbsz:{r.randrange(5)} abid:{r.randrange(16)}", f" blgp:{r.randrange(8)}", f" neg:{m.bits(3)}"]
    )
    return [f"{n} {m.regs(bank, dst)}, {a}, {b}, {c}{tail}"]


def _widths(m: Maker, kind: str) -> list[int]:
    return [dwords(kind)] if kind != "none" else [1, 2, 3, 4]


def _memory(m: Maker) -> list[str]:
    """DS, MUBUF, MTBUF, FLAT, GLOBAL and SCRATCH: the operand lists there are; LLVM says which fit."""
    row, r = m.row, m.r
    n, out = row.mnemonic, []
    bank = r.choice("vvva")
    policy = m.maybe(*r.choice([("sc0", "sc1", "nt"), ("glc", "slc", "scc")]))
    block = {dwords(row.srcs[0])} if row.srcs[0] == "b1024" else set()
    for w in {*_widths(m, row.dst), *block, 1, 2, 3, 4}:
        d, d2, ret = m.regs(bank, w), m.regs(bank, w), m.regs(bank, w)
        half, half2 = m.regs(bank, max(w // 2, 1)), m.regs(bank, max(w // 2, 1))
        a, a2 = m.regs("v", 1), m.regs("v", 2)
        if row.format == "DS":
            offset = r.choice(
                [
                    "",
                    f" offset:{r.getrandbits(16)}",
                    f" offset0:{r.getrandbits(8)} offset1:{r.getrandbits(8)}",
                ]
            )
            bodies = [
                f"{d}, {a}",
                f"{a}, {d}",
                f"{a}, {d}, {d2}",
                f"{ret}, {a}, {d}",
                f"{ret}, {a}, {d}, {d2}",
                f"{d}",
                f"{a}",
                "",
                f"{ret}, {a}, {half}, {half2}",
            ]
            out += [f"{n} {b}{offset}{m.maybe('gds')}" for b in bodies]
        elif row.format in ("MUBUF", "MTBUF"):
            s = m.regs("s", 4)
            so = r.choice([m.regs("s", 1), "0", "64", "m0", "-1"])
            of = r.choice(["", f" offset:{r.randrange(4096)}"])
            kind = f" format:{r.choice([1, 78, r.randrange(128)])}" if row.format == "MTBUF" else ""
            out += [f"{n} {s}, {so}{of} lds"]
            for shape in (
                f"off, {s}, {so}{kind}",
                f"{a}, {s}, {so}{kind} offen",
                f"{a}, {s}, {so}{kind} idxen",
                f"{a2}, {s}, {so}{kind} idxen offen",
            ):
                out += [
                    f"{n} {d}, {shape}{of}{policy}",
                    f"{n} {shape}{of} lds",
                    f"{n} {d}, {shape}{of} sc0",
                    f"{n} {d}, {shape}{of} glc",
                ]
            out += [n, f"{n} sc1", f"{n} sc0 sc1"]
        else:
            of = r.choice(["", f" offset:{r.randrange(-4096 if row.format != 'FLAT' else 0, 4096)}"])
            sp = m.regs("s", 2)
            if row.format == "FLAT":
                shapes = [f"{d}, {a2}", f"{a2}, {d}", f"{ret}, {a2}, {d}"]
            elif row.format == "GLOBAL":
                shapes = [
                    f"{d}, {a2}, off",
                    f"{d}, {a}, {sp}",
                    f"{a2}, {d}, off",
                    f"{a}, {d}, {sp}",
                    f"{ret}, {a2}, {d}, off",
                    f"{ret}, {a}, {d}, {sp}",
                    f"{m.regs(bank, max(w // 2, 1))}, {a}, {d}, {sp}",
                    f"{a2}, off",
                    f"{a}, {sp}",
                ]
            else:
                s1 = m.regs("s", 1)
                shapes = [
                    f"{d}, off, {s1}",
                    f"{d}, {a}, off",
                    f"{d}, off, off",
                    f"off, {d}, {s1}",
                    f"{a}, {d}, off",
                    f"off, {d}, off",
                    f"{d}, {a}, {s1}",
                    f"{a}, {d}, {s1}",
                    *(f"{v}, {s}" for v in (a, "off") for s in (s1, "off")),
                ]
            out += [f"{n} {b}{of}{p}" for b in shapes for p in (policy, " sc0", " glc", "")]
    return out


def candidates(row: RowInfo, rounds: int = 8, rdna: bool = False, wide: bool = False) -> dict[str, list[str]]:
    """Lines to try, by form."""
    out: dict[str, list[str]] = {}
    simple: dict[str, Callable[[Maker], list[str]]] = {
        **dict.fromkeys(("SOP1", "SOP2", "SOPC", "SOPP", "SOPK"), _scalar),
        "SMEM": _smem,
        "VOP3P": _vop3p,
        "MAI": _mai,
        **dict.fromkeys(("DS", "MUBUF", "MTBUF", "FLAT", "GLOBAL", "SCRATCH"), _memory),
    }
    for seed in range(rounds):
        m = Maker(row, seed)
        made = (
            {"": simple[row.format](m)} if row.format in simple else {} if row.format == "VOPD" else _vop(m)
        )
        for form, lines in (made or {"": []}).items():
            taken = variants(row, form, lines, seed, wide) if rdna else lines
            out.setdefault(form, []).extend(taken)
            if rdna and (form == "e64" or row.format == "VOP3P"):
                out.setdefault("e64_dpp", []).extend(moved(row, taken, seed))
    return {form: list(dict.fromkeys(lines)) for form, lines in out.items()}
