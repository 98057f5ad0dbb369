# SPDX-License-Identifier: MIT OR Apache-2.0
"""RDNA's hazards against LLVM's own: a finding where llc mends the sequence, and silence where it does not.

Each sequence is machine IR for llc, which runs its hazard recogniser over it, and assembly for the device.
code/test_rdna_values.py runs this file as RDNA's archs, in waves of 32 and of 64.
"""

from __future__ import annotations

import itertools
import re
import subprocess
from functools import cache

import pytest

from ..support import rows
from ..support.findings import Kernels
from ..support.spelling import GENERATION, NARROW, RDNA, renamed
from ..support.toolchain import tool

pytestmark = pytest.mark.skipif(not RDNA, reason="gfx9 has wait states")

_GFX10 = rows.arch() == "gfx1030"
_TAIL = "implicit $mode, implicit $exec"
_EXEC = "exec_lo" if NARROW else "exec"
# Each letter's machine IR and assembly. v3 is what a transcendental instruction writes.
_INSTS = {
    "T": (f"$vgpr3 = V_RCP_F32_e32 $vgpr2, {_TAIL}", "v_rcp_f32 v3, v2"),
    "E": (f"$vgpr3 = V_EXP_F32_e32 $vgpr2, {_TAIL}", "v_exp_f32 v3, v2"),
    "H": (f"$vgpr3 = V_SQRT_F16_e32 $vgpr2, {_TAIL}", "v_sqrt_f16 v3, v2"),
    "D": (f"$vgpr2_vgpr3 = V_RCP_F64_e32 $vgpr4_vgpr5, {_TAIL}", "v_rcp_f64 v[2:3], v[4:5]"),
    "M": ("$vgpr3 = V_MOV_B32_e32 0, implicit $exec", "v_mov_b32 v3, 0"),
    "t": (f"$vgpr6 = V_RCP_F32_e32 $vgpr7, {_TAIL}", "v_rcp_f32 v6, v7"),
    "v": ("$vgpr6 = V_MOV_B32_e32 $vgpr7, implicit $exec", "v_mov_b32 v6, v7"),
    "n": ("V_NOP_e32 implicit $exec", "v_nop"),
    "s": ("S_NOP 7", "s_nop 7"),
    "m": ("$sgpr20 = S_MOV_B32 0", "s_mov_b32 s20, 0"),
    "l": ("DS_WRITE_B32_gfx9 $vgpr1, $vgpr7, 0, 0, implicit $exec", "ds_write_b32 v1, v7"),
    "g": (
        "$vgpr8 = GLOBAL_LOAD_DWORD_SADDR $sgpr8_sgpr9, $vgpr1, 0, 0, implicit $exec",
        "global_load_dword v8, v1, s[8:9]",
    ),
    "U": ("$vgpr9 = V_MOV_B32_e32 $vgpr3, implicit $exec", "v_mov_b32 v9, v3"),
    "W": ("$vgpr3 = V_MOV_B32_e32 $vgpr7, implicit $exec", "v_mov_b32 v3, v7"),
    "F": (f"$vgpr9 = V_FMAC_F32_e32 $vgpr7, $vgpr3, $vgpr9, {_TAIL}", "v_fmac_f32 v9, v7, v3"),
    "R": ("$sgpr20 = V_READFIRSTLANE_B32 $vgpr3, implicit $exec", "v_readfirstlane_b32 s20, v3"),
    "X": (
        "V_CMPX_EQ_U32_nosdst_e64 $vgpr1, $vgpr1, implicit-def $exec, implicit $exec",
        "v_cmpx_eq_u32 v1, v1",
    ),
    "P": (
        "$vgpr9 = V_PERMLANE16_B32_e64 0, $vgpr7, 0, $sgpr8, 0, $sgpr9, $vgpr9, 0, implicit $exec",
        "v_permlane16_b32 v9, v7, s8, s9",
    ),
    "Q": (
        "$vgpr9 = V_PERMLANEX16_B32_e64 0, $vgpr7, 0, $sgpr8, 0, $sgpr9, $vgpr9, 0, implicit $exec",
        "v_permlanex16_b32 v9, v7, s8, s9",
    ),
    # Those that write EXEC and are no v_cmpx: x is none of the rule, Z is.
    "x": ("$exec_lo = V_READFIRSTLANE_B32 $vgpr7, implicit $exec", "v_readfirstlane_b32 exec_lo, v7"),
    "Z": (
        f"${_EXEC} = V_CMP_EQ_U32_e64 $vgpr1, $vgpr1, implicit $exec",
        f"v_cmp_eq_u32_e64 {_EXEC}, v1, v1",
    ),
    # gfx10.
    "G": (
        "GLOBAL_ATOMIC_FMIN $vgpr4_vgpr5, $vgpr2, 0, 0, implicit $exec",
        "global_atomic_fmin v[4:5], v2, off",
    ),
    "Y": (
        "$vgpr2 = FLAT_ATOMIC_FMAX_RTN $vgpr4_vgpr5, $vgpr2, 0, 1, implicit $exec, implicit $flat_scr",
        "flat_atomic_fmax v2, v[4:5], v2 glc",
    ),
    "B": (
        "BUFFER_ATOMIC_MIN_F64_OFFEN $vgpr2_vgpr3, $vgpr10, $sgpr4_sgpr5_sgpr6_sgpr7, 0, 0, 0, "
        "implicit $exec",
        "buffer_atomic_fmin_x2 v[2:3], v10, s[4:7], 0 offen",
    ),
    "I": (
        "GLOBAL_ATOMIC_ADD $vgpr4_vgpr5, $vgpr2, 0, 0, implicit $exec",
        "global_atomic_add v[4:5], v2, off",
    ),
    "J": ("DS_MIN_F32_gfx9 $vgpr1, $vgpr7, 0, 0, implicit $exec", "ds_min_f32 v1, v7"),
    "N": ("S_DENORM_MODE 15, implicit-def $mode, implicit $mode", "s_denorm_mode 15"),
    "O": ("S_ROUND_MODE 0, implicit-def $mode, implicit $mode", "s_round_mode 0"),
    "y": ("S_NOP 1", "s_nop 1"),
    "w": ("S_WAITCNT 0", "s_waitcnt 0"),
    "z": ("S_WAITCNT_VSCNT undef $sgpr_null, 0", "s_waitcnt_vscnt null, 0x0"),
    # For waves of 64: a reads v10 and v11, which p and q write; e writes EXEC; c reads s[20:21] as a mask, C
    # VCC, k and K write these, j half of them, r and V read them; S reads another SGPR, L a literal.
    "p": ("$vgpr10 = V_MOV_B32_e32 $vgpr7, implicit $exec", "v_mov_b32 v10, v7"),
    "q": ("$vgpr11 = V_MOV_B32_e32 $vgpr7, implicit $exec", "v_mov_b32 v11, v7"),
    "e": ("$exec = S_MOV_B64 -1", "s_mov_b64 exec, -1"),
    "h": ("$exec_hi = S_MOV_B32 -1", "s_mov_b32 exec_hi, -1"),
    "a": (f"$vgpr9 = V_ADD_F32_e32 $vgpr10, $vgpr11, {_TAIL}", "v_add_f32 v9, v10, v11"),
    "b": (f"$vgpr9 = V_ADD_F32_e32 $vgpr10, $vgpr10, {_TAIL}", "v_add_f32 v9, v10, v10"),
    "c": (
        "$vgpr9 = V_CNDMASK_B32_e64 0, $vgpr7, 0, $vgpr8, $sgpr20_sgpr21, implicit $exec",
        "v_cndmask_b32 v9, v7, v8, s[20:21]",
    ),
    "C": (
        "$vgpr9 = V_CNDMASK_B32_e32 $vgpr7, $vgpr8, implicit $vcc, implicit $exec",
        "v_cndmask_b32 v9, v7, v8, vcc",
    ),
    "k": ("$sgpr20_sgpr21 = S_MOV_B64 -1", "s_mov_b64 s[20:21], -1"),
    "K": ("$vcc = S_MOV_B64 -1", "s_mov_b64 vcc, -1"),
    "j": ("$sgpr21 = S_MOV_B32 0", "s_mov_b32 s21, 0"),
    "r": ("$sgpr22_sgpr23 = S_MOV_B64 $sgpr20_sgpr21", "s_mov_b64 s[22:23], s[20:21]"),
    "V": ("$sgpr22_sgpr23 = S_MOV_B64 $vcc", "s_mov_b64 s[22:23], vcc"),
    "S": ("$vgpr6 = V_MOV_B32_e32 $sgpr8, implicit $exec", "v_mov_b32 v6, s8"),
    "L": ("$vgpr6 = V_MOV_B32_e32 305419896, implicit $exec", "v_mov_b32 v6, 0x12345678"),
}
_GAPS = ["", *("v" * n for n in range(1, 8)), "t", "tt", "vt", "vvvvt", "vvvvvt", "tvt", "ttt"]
_GAPS += ["s", "m", "sssssss", "n", "nnnnn", "nnnnnn", "l", "g", "vlv", "M", "vMv", "vvsvvmv", "vvsvvmvv"]
SEQUENCES = [
    *("T" + gap + use for gap, use in itertools.product(_GAPS, "UW")),
    *(first + gap + use for first, gap, use in itertools.product("EHD", ["", "v" * 5, "v" * 6], "UFR")),
    *("X" + gap + use for gap, use in itertools.product(["", "v", "n", "s", "m", "nsn", "nv", "l"], "PQ")),
    *("".join(parts) for parts in itertools.product("GYBIJ", ["", "m", "mm", "mmm"], "N") if _GFX10),
    *(f"G{gap}N" for gap in ("y", "ym", "s", "v", "n", "l", "O", "w", "z", "mlm", "ml", "g") if _GFX10),
    *("xP", "ZP", "ZvP", "ZnP"),
    *("MU", "vP", "TT", "Tt", "TET", "TvF", "TR"),
]
_MASKS = "rV"  # the last letters of those about masks
_FORWARDED = [
    *(
        "p" + one + "e" + two + "q" + gap + "a"
        for one, two, gap in itertools.product(
            ["", "v", "vv", "vvv", "s"], ["", "v", "vv", "vvv", "m"], ["", "vvvv", "vvvvv"]
        )
    ),
    *("pqa", "pqea", "epqa", "qvepa", "peqb", "peqgvvvva", "peqla", "pleqa", "pevqsa", "peepa", "pepqa"),
    *("peqea", "pqepa", "phqa", "pvhqa", "phqb", "pqha"),
]
_REWRITTEN = [
    *(
        mask + gap + write + read
        for (mask, write, read), gap in itertools.product(
            ["ckr", "cjr", "CKV", "cKV", "Ckr"], ["", "v", "S", "L", "s", "g", "vv", "n"]
        )
    ),
    *("kr", "cr", "ckvr", "ckSr", "cckr", "Sckr", "ckmr", "cekr"),
]
if not NARROW:
    SEQUENCES += _FORWARDED + (_REWRITTEN if GENERATION < 12 else [])  # gfx12: test_check_scalars


@cache
def _mended() -> dict[str, bool]:
    """By sequence, whether llc puts anything in front of its last instruction."""
    bodies = "".join(
        f"---\nname: {name}\nbody: |\n  bb.0:\n"
        + "".join(f"    {_INSTS[letter][0]}\n" for letter in name)
        + "    S_ENDPGM 0\n...\n"
        for name in SEQUENCES
    )
    command = [tool("llc"), "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={rows.arch()}"]
    command += [] if NARROW else ["-mattr=+wavefrontsize64,-wavefrontsize32"]
    done = subprocess.run(
        [*command, "-run-pass=post-RA-hazard-rec", "-x", "mir", "-", "-o", "-"],
        input=bodies,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[:3000]
    found = {}
    for part in done.stdout.split("\n---\n"):
        match = re.search(r"^name: +(\w+)$", part, re.MULTILINE)
        if match:
            body = part.split("bb.0:")[1].split("S_ENDPGM")[0].splitlines()
            count = sum(bool(line.strip()) and "liveins" not in line for line in body)
            found[match[1]] = count > len(match[1])
    assert set(found) == set(SEQUENCES)
    return found


# v[4:5] is the buffer's address, s[4:7] a raw resource of it, v10 an offset in it; v1 has its place in LDS.
_HEAD = (
    "v_mov_b32 v4, s8",
    "v_mov_b32 v5, s9",
    "s_mov_b32 s7, 0x30000000",
    "v_mov_b32 v2, 0",
    "v_mov_b32 v3, 0",
    "v_lshlrev_b32 v10, 1, v1",
    "ds_write_b32 v1, v2",
)


def _asm(name: str, mend: str = "") -> list[str]:
    lines = [_INSTS[letter][1] for letter in name]
    head = _HEAD if _GFX10 else ()
    return [*head, *lines[:-1], *([mend] if mend else []), lines[-1]]


# llc inserts a wait for VGPRs, or one for SGPRs behind the write of a mask; a move for v_permlane, and wait
# states for s_denorm_mode.
def _mend(name: str) -> str:
    if name[-1] == "N":
        return "s_nop 2"
    if name[-1] in _MASKS:
        return "s_waitcnt_depctr 0xfffe"
    return "v_mov_b32 v7, v7" if name[-1] in "PQ" else "s_waitcnt_depctr 0xfff"


@cache
def _kernels() -> Kernels:
    mended = {f"{n}_mended": _asm(n, _mend(n)) for n in SEQUENCES if _mended()[n]}
    # The counts of other units are no wait for VGPRs.
    wrong = {"wrong": _asm("TU", "s_waitcnt_depctr 0xf000")} if _mended()["TU"] else {}
    return Kernels({f"{n}_plain": _asm(n) for n in SEQUENCES} | mended | wrong, lds=1024)


def test_llvm_mends_some() -> None:
    """gfx1100 has both rules; gfx1201 and gfx1030 have no late transcendental results."""
    assert _mended()["XP"] == (rows.arch() != "gfx1030")
    assert not _mended()["XvP"]
    assert not _mended()["vP"]
    if _GFX10:
        assert _mended()["GmmN"]
        assert not _mended()["GmmmN"]
    assert _mended()["TU"] == (rows.arch() == "gfx1100")
    if not NARROW:
        assert _mended()["peqa"] == (GENERATION == 11)
        assert not _mended()["peqb"]
    if not NARROW and GENERATION < 12:
        assert _mended()["ckr"] == (GENERATION == 11)
        assert not _mended()["cSkr"]


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_finding_where_llvm_mends(name: str) -> None:
    if not _mended()[name]:
        _kernels().run(f"{name}_plain")
        return
    text = _kernels().finding(f"{name}_plain")
    assert "hazard: " in text, text
    kinds = {
        **dict.fromkeys("PQ", "v_permlane"),
        **dict.fromkeys(_MASKS, "as a mask"),
        "a": "a scalar one EXEC",
        "N": "then s_denorm_mode",
    }
    assert kinds.get(name[-1], "transcendental") in text, text
    _kernels().run(f"{name}_mended")


def test_other_fields_do_not_count() -> None:
    if not _mended()["TU"]:
        pytest.skip("this arch waits by itself")
    assert "transcendental" in _kernels().finding("wrong")


# A multiplication of 32 bits and a sum of 64, of a number of which a part is a factor.
_MAD = """
define amdgpu_kernel void @{kind}(ptr addrspace(1) %p) {{
  %t = call i32 @llvm.amdgcn.workitem.id.x()
  %at = getelementptr i64, ptr addrspace(1) %p, i32 %t
  %sum = load i64, ptr addrspace(1) %at
  %low = trunc i64 %sum to i32
  %x = {kind} i32 %low to i64
  %y = {kind} i32 %t to i64
  %product = mul i64 %x, %y
  %r = add i64 %product, %sum
  store i64 %r, ptr addrspace(1) %at
  ret void
}}
"""


@cache
def _mads(cpu: str) -> list[str]:
    """llc keeps the result off the sources on gfx1100, which has the rule, but not on gfx1150."""
    text = "".join(_MAD.format(kind=kind) for kind in ("zext", "sext"))
    command = [tool("llc"), "-mtriple=amdgcn-amd-amdhsa", f"-mcpu={cpu}", "-", "-o", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    lines = re.findall(r"v_mad_[iu]64_[iu]32 .*", done.stdout)
    assert len(lines) == 2
    return [renamed(line.split()[0]) + line[line.index(" ") :] for line in lines]


_MAD64 = renamed("v_mad_u64_u32")
_HIGH = f"{_MAD64} v[2:3], null, v8, v9, v[1:2]"  # only v3 is wrong
_MADS = {
    "same": ([f"{_MAD64} v[2:3], null, v8, v9, v[2:3]", "v_mov_b32 v6, v3"], ""),
    "scalars": ([f"{_MAD64} v[2:3], null, s8, s9, v[10:11]"], ""),
    "low": ([f"{_MAD64} v[2:3], null, v8, v9, v[3:4]"], "reads v[3:4]"),
    "first": ([f"{_MAD64} v[2:3], null, v2, v9, v[10:11]"], "reads v2"),
    "second": ([f"{_MAD64} v[2:3], null, v8, v3, v[2:3]"], "reads v3"),
    "unread": ([_HIGH, "v_mov_b32 v6, v2"], ""),
    "overwritten": ([_HIGH, "v_mov_b32 v3, 0", "v_mov_b32 v6, v3"], ""),
    "read": ([_HIGH, "v_mov_b32 v6, v3"], "reads v3"),
    "stored": ([_HIGH, "ds_write_b32 v1, v3"], "reads v3"),
    "factor": ([_HIGH, f"{_MAD64} v[4:5], null, v3, v9, v[10:11]"], "reads v3"),
    "summed": ([_HIGH, f"{_MAD64} v[4:5], null, v8, v9, v[2:3]", "v_mov_b32 v6, v4"], ""),
    "summed_read": ([_HIGH, f"{_MAD64} v[4:5], null, v8, v9, v[2:3]", "v_mov_b32 v6, v5"], "reads v5"),
}


@pytest.mark.parametrize("name", [*_MADS, "gfx1100", "gfx1150"])
def test_products_keep_their_sources(name: str) -> None:
    """Where llc keeps the result apart from its sources, what it makes for another arch has a finding."""
    of_llc = {cpu: (_mads(cpu), "reads v0" if cpu == "gfx1150" else "") for cpu in ("gfx1100", "gfx1150")}
    lines, want = (_MADS | of_llc)[name]
    kernels = Kernels({"mad": lines}, lds=1024)
    if want and rows.arch() == "gfx1100":
        assert f"{want}, which may be" in kernels.finding("mad")
    else:
        kernels.run("mad")


@pytest.mark.skipif(_GFX10, reason="from gfx11 on")
def test_vgprs_are_given_back_behind_a_nop() -> None:
    """As clang ends kernels: directly behind it."""
    give, nop = "s_sendmsg sendmsg(MSG_DEALLOC_VGPRS)", "s_nop 0"
    kernels = Kernels(
        {"good": [nop, give], "bad": [nop, "s_mov_b32 s20, 0", give], "interrupt": ["s_sendmsg 1"]}
    )
    kernels.run("good")
    kernels.run("interrupt")
    assert "MSG_DEALLOC_VGPRS must come directly behind s_nop" in kernels.finding("bad")
