# SPDX-License-Identifier: MIT OR Apache-2.0
"""RDNA's lines that differ from gfx9's, for LLVM to accept or refuse, made from those of lines.py."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from ..rows import RowInfo

_DPP8 = "dpp8:[7,6,5,4,3,2,1,0]"
_HINTS = (
    " th:TH_LOAD_NT scope:SCOPE_SE",
    " th:TH_STORE_HT scope:SCOPE_DEV",
    " th:TH_ATOMIC_RETURN",
    " scope:SCOPE_SYS",
)
# Operations of VOPD: those that either half can be, and further ones for the second; and whether one takes a
# constant in its middle or at its end.
_EITHER = ("fmac", "mul", "add", "sub", "subrev", "max", "min", "max_num", "min_num", "mul_dx9_zero")
_SECOND = ("add_nc_u32", "lshlrev_b32", "and_b32")


def _half(r: random.Random, first: bool, literal: str) -> str:
    """One half of a VOPD; the first writes an even register, the second an odd one."""
    to = f"v{2 * r.randrange(64) + (0 if first else 1)}"
    # The sources of both halves come from different banks: the number's last two bits.
    bank = 0 if first else 2
    a, b = (f"v{4 * r.randrange(32) + bank + i}" for i in (0, 1))
    a = r.choice([a, a, literal, "1.0"])
    pick = r.randrange(6 if first else 8)
    if pick == 0:
        return f"v_dual_mov_b32 {to}, {a}"
    if pick == 1:
        return f"v_dual_cndmask_b32 {to}, {a}, {b}"
    if pick == 2:
        return f"v_dual_fmaak_f32 {to}, {a}, {b}, {literal}"
    if pick == 3:
        return f"v_dual_fmamk_f32 {to}, {a}, {literal}, {b}"
    if pick > 5:
        return f"v_dual_{r.choice(_SECOND)} {to}, {a}, {b}"
    return f"v_dual_{r.choice(_EITHER)}_f32 {to}, {a}, {b}"


def dual(seed: int) -> list[str]:
    """VOPD: two operations in one line."""
    r = random.Random(seed)
    literal = f"0x{r.getrandbits(31):x}"
    return [f"{_half(r, True, literal)} :: {_half(r, False, literal)}" for _ in range(16)]


def _narrow(line: str) -> str:
    """Masks of waves of 32 lanes: one register."""
    return re.sub(r"\bs\[(\d+):\d+\]", r"s\1", re.sub(r"\bvcc\b", "vcc_lo", line))


def _vector(row: RowInfo, line: str, wide: bool) -> Iterator[str]:
    narrow = line if wide else _narrow(line)
    yield narrow
    name, _, operands = narrow.partition(" ")
    if "writes_exec" in row.flags:
        yield f"{name} {operands.partition(', ')[2]}"
    if "cndmask" in name:
        yield f"{narrow}, {'vcc' if wide else 'vcc_lo'}"
        yield f"{narrow}, {'s[6:7]' if wide else 's6'}"
    if name.endswith("_dpp"):
        for text in (narrow, f"{name} {operands.partition(', ')[2]}" if row.format == "VOPC" else narrow):
            eight = re.sub(r" (quad_perm|row_|wave_).*", f" {_DPP8}", text)
            for other in (
                text,
                eight,
                f"{eight} fi:1",
                re.sub(r" (row_shl|row_ror):\d+", " row_xmask:5", text),
            ):
                yield other
                yield other.replace("_dpp ", "_e64_dpp ", 1)


_MOVES = (
    _DPP8,
    f"{_DPP8} fi:1",
    "quad_perm:[3,1,0,2]",
    "row_shl:3 row_mask:0xa bank_mask:0x3",
    "row_share:2 bound_ctrl:1",
    "row_xmask:5 fi:1",
)


def moved(row: RowInfo, lines: list[str], seed: int) -> list[str]:
    """Some of these lines of a 64-bit form, the first source of each from another lane."""
    r = random.Random(f"{row.mnemonic}{seed}moved")
    from_lanes = [line for line in lines if re.match(r"\S+ [^,]+, [-|]*v", line) and "_dpp" not in line]
    plain = [f"v{r.randrange(256)}" for kind in (row.dst, *row.srcs) if kind != "none"]
    out = [f"{row.mnemonic}_e64_dpp {', '.join(plain)} {r.choice(_MOVES)}"]
    for line in r.sample(from_lanes, min(3, len(from_lanes))):
        name, _, operands = line.partition(" ")
        out.append(f"{name.removesuffix('_e64')}_e64_dpp {operands} {r.choice(_MOVES)}")
    return out


def _half_loaded(line: str) -> str:
    """With half as many registers: what a transposing load writes in waves of 64."""

    def half(match: re.Match[str]) -> str:
        first, last = int(match[1]), int(match[2])
        return f"v{first}" if last == first + 1 else f"v[{first}:{(first + last) // 2}]"

    return re.sub(r"v\[(\d+):(\d+)\]", half, line, count=1)


def variants(row: RowInfo, form: str, lines: list[str], seed: int, wide: bool) -> list[str]:
    """The lines, and how RDNA writes them, for waves of 32 or of 64."""
    r = random.Random(f"{row.mnemonic}{seed}")
    if row.format == "VOPD":
        return dual(seed)
    if wide and "load_tr_" in row.mnemonic:
        lines = [_half_loaded(line) for line in lines]
    out = list(lines)
    if form:
        for line in lines:
            out += _vector(row, line, wide)
    if row.format == "VOP3B":
        out += [_narrow(line) for line in lines]
    if row.format in ("SOP1", "SOP2"):
        out.append(f"{row.mnemonic} s{r.randrange(90)}, sendmsg(MSG_RTN_GET_REALTIME)")
        out.append(f"{row.mnemonic} s[8:9], sendmsg(MSG_RTN_GET_TBA)")
        out += [
            f"{row.mnemonic} s4, s5, 0x{r.getrandbits(31):x}, s6",
            f"{row.mnemonic} s4, s5, s6, 0x11213141",
        ]
        out.append(f"{row.mnemonic} s[4:5], s[6:7], vcc")
    if row.mnemonic == "s_version":
        versions = (r.getrandbits(16), *(r.choice((0, 4, 6, 9, 33)) | r.randrange(8) << 13 for _ in range(3)))
        out += [f"{row.mnemonic} 0x{imm:x}" for imm in versions]
    if row.format == "MUBUF" and "to_lds" in row.flags:  # where gfx9 has a bit for it
        to_lds = [line.removesuffix(" lds") for line in lines if line.endswith(" lds")]
        out += [line + policy for line in to_lds for policy in ("", " glc", " slc dlc")]
    if row.format == "SOPK" and "waitcnt" in row.mnemonic:
        out.append(f"{row.mnemonic} null, 0x{r.randrange(64):x}")
    if row.format == "VOP3P" and ("wmma" in row.mnemonic or "swmmac" in row.mnemonic):
        out += _matrix(row, r, wide)
    if re.match("v_cvt_(f32|sr)_(fp8|bf8)", row.mnemonic):
        out += [f"{line} byte_sel:{i}" for line in lines for i in (1, 2, 3)]
    if "prefetch" in row.mnemonic:
        tail = (
            f"{r.choice(('0x', '-0x'))}{r.getrandbits(20):x}, {r.choice(('null', 's7'))}, {r.randrange(32)}"
        )
        out += [f"{row.mnemonic} {base}{tail}" for base in ("", "s[8:9], ", "s[8:11], ")]
    if row.format in ("MUBUF", "MTBUF", "FLAT", "GLOBAL", "SCRATCH", "SMEM"):
        plain = [re.sub(r" (sc0|sc1|nt|glc|slc|scc)\b", "", line) for line in lines]
        plain += [line.replace(", 0 ", ", null ").replace(", 64", ", m0") for line in plain]
        plain.append(row.mnemonic)
        out += [line + hint for line in dict.fromkeys(plain) for hint in ("", r.choice(_HINTS))]
    return out


def _matrix(row: RowInfo, r: random.Random, wide: bool) -> list[str]:
    def registers(count: int) -> str:
        first = 2 * r.randrange(100)
        return f"v[{first}:{first + count - 1}]" if count > 1 else f"v{first}"

    widths = {"i32": 1, "i64": 2, "b128": 4, "b256": 8}
    counts = [[widths.get(kind, 1) for kind in (row.dst, *row.srcs)]]
    if wide:  # half of D and C on gfx11, and on gfx12 of A and B too: LLVM refuses one of the two
        d, a, b, c = counts[0]
        halves = [max(n // 2, 1) for n in (d, a, b, c)]
        counts = [[halves[0], a, b, halves[3]], halves]
    lines = []
    for d, a, b, c in counts:
        head = f"{row.mnemonic} {registers(d)}, {registers(a)}, {registers(b)}"
        lines += [f"{head}, {registers(c)}", f"{head}, 1.0", f"{head}, 0"]
    tails = (
        "",
        " neg_lo:[1,0,0]",
        " neg_lo:[0,1,1] neg_hi:[0,0,1]",
        " clamp",
        " op_sel:[0,0,1]",
        " index_key:1",
        *([" index_key:2", " index_key:3"] if wide else []),
    )
    return [line + tail for line in lines for tail in tails]
