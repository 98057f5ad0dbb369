# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sequences about gfx12's late scalar registers, in assembly and LLVM's machine IR, and the waits they need.

check/test_check_scalars.py holds the device against them, clients/test_triton_waits.py the LLVM in Triton's
wheel. This module imports nothing of the device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_TAIL = "implicit $mode, implicit $exec"
_CARRY = "implicit-def $scc"
# Each letter's assembly and machine IR. It is about s20, which V, C, F and D read or write, and VCC.
INSTS = {
    "V": ("v_add_f32 v3, s20, v2", f"$vgpr3 = V_ADD_F32_e64 0, $sgpr20, 0, $vgpr2, 0, 0, {_TAIL}"),
    "D": (
        "v_dual_mov_b32 v4, s20 :: v_dual_mov_b32 v5, v6",
        "$vgpr4, $vgpr5 = V_DUAL_MOV_B32_e32_X_MOV_B32_e32_gfx12 $sgpr20, $vgpr6, "
        "implicit $exec, implicit $exec",
    ),
    "S": ("s_mov_b32 s20, 0", "$sgpr20 = S_MOV_B32 0"),
    "Q": ("s_mov_b64 s[20:21], 0", "$sgpr20_sgpr21 = S_MOV_B64 0"),
    "o": ("s_mov_b32 s21, 0", "$sgpr21 = S_MOV_B32 0"),
    "u": ("v_add_f32 v3, s21, v2", f"$vgpr3 = V_ADD_F32_e64 0, $sgpr21, 0, $vgpr2, 0, 0, {_TAIL}"),
    "r": ("s_add_co_u32 s30, s20, 1", f"$sgpr30 = S_ADD_U32 $sgpr20, 1, {_CARRY}"),
    "C": ("v_cmp_eq_u32 s20, v1, v2", "$sgpr20 = V_CMP_EQ_U32_e64 $vgpr1, $vgpr2, implicit $exec"),
    "F": ("v_readfirstlane_b32 s20, v2", "$sgpr20 = V_READFIRSTLANE_B32 $vgpr2, implicit $exec"),
    "k": (
        "v_cndmask_b32 v3, v1, v2, vcc_lo",
        "$vgpr3 = V_CNDMASK_B32_e32 $vgpr1, $vgpr2, implicit $vcc, implicit $exec",
    ),
    "K": (
        "v_cmp_eq_u32 vcc_lo, v1, v2",
        "V_CMP_EQ_U32_e32 $vgpr1, $vgpr2, implicit-def $vcc, implicit $exec",
    ),
    "m": ("s_mov_b32 vcc_lo, 0", "$vcc_lo = S_MOV_B32 0"),
    "q": ("s_mov_b32 s30, vcc_lo", "$sgpr30 = S_MOV_B32 $vcc_lo"),
    "x": ("s_mov_b32 s31, 0", "$sgpr31 = S_MOV_B32 0"),
    "y": ("v_add_f32 v3, s31, v2", f"$vgpr3 = V_ADD_F32_e64 0, $sgpr31, 0, $vgpr2, 0, 0, {_TAIL}"),
    "z": ("s_add_co_u32 s30, s31, 1", f"$sgpr30 = S_ADD_U32 $sgpr31, 1, {_CARRY}"),
    "v": ("v_add_f32 v3, v1, v2", f"$vgpr3 = V_ADD_F32_e64 0, $vgpr1, 0, $vgpr2, 0, 0, {_TAIL}"),
    "n": ("s_nop 7", "S_NOP 7"),
    "e": ("s_mov_b32 exec_lo, -1", "$exec_lo = S_MOV_B32 -1"),
    "E": ("v_mov_b32 v3, exec_lo", "$vgpr3 = V_MOV_B32_e32 $exec_lo, implicit $exec"),
    "M": ("s_mov_b32 m0, 0", "$m0 = S_MOV_B32 0"),
    "L": ("v_mov_b32 v3, m0", "$vgpr3 = V_MOV_B32_e32 $m0, implicit $exec"),
    "d": ("ds_store_b32 v1, v7", "DS_WRITE_B32_gfx9 $vgpr1, $vgpr7, 0, 0, implicit $exec"),
    "g": (
        "global_load_b32 v8, v1, s[8:9]",
        "$vgpr8 = GLOBAL_LOAD_DWORD_SADDR $sgpr8_sgpr9, $vgpr1, 0, 0, implicit $exec",
    ),
    "b": (
        "buffer_load_b32 v8, v1, s[4:7], null offen",
        "$vgpr8 = BUFFER_LOAD_DWORD_OFFEN $vgpr1, $sgpr4_sgpr5_sgpr6_sgpr7, 0, 0, 0, 0, implicit $exec",
    ),
    "s": ("s_load_b32 s40, s[8:9], 0x0", "$sgpr40 = S_LOAD_DWORD_IMM $sgpr8_sgpr9, 0, 0"),
    "1": ("s_wait_alu 0xfffe", "S_WAITCNT_DEPCTR 65534"),
    "2": ("s_wait_alu 0xfffd", "S_WAITCNT_DEPCTR 65533"),
    "3": ("s_wait_alu 0xf1ff", "S_WAITCNT_DEPCTR 61951"),
}
SA, VA, VCC = "sa_sdst", "va_sdst", "va_vcc"
MENDS = {SA: "1", VCC: "2", VA: "3"}
# The wait that each sequence needs before its last instruction; "": none.
SEQUENCES = {
    # The scalar unit rewrites what a VALU instruction has read, at any distance before.
    **dict.fromkeys(["VSV", "VSr", "VQV", "DSD", "VSD", "VSgV", "VSdV", "VSnV", "VvvvvvvvvvvvvSV"], SA),
    **dict.fromkeys(["VnnnnnxxxxxxxxxxxxxxSV", "uSV", "VSvvvvvvvvvvvvvV", "VSnnnnnnnnnnnnr", "uou"], SA),
    **dict.fromkeys(["kmk", "kmq", "kKmk", "VS2V", "VS3V", "VS1SV", "VSxV", "VSyV"], SA),
    # No VALU instruction has read it, or its pair; or the half that is read was not rewritten.
    **dict.fromkeys(["SV", "Sr", "ySV", "VoV", "Vxr", "mk", "oxV", "VV", "vSV"], ""),
    # It waits, or is forced to.
    **dict.fromkeys(["VS1V", "VS1r", "VSsV", "VSbV", "km1k"], ""),
    # EXEC and M0.
    **dict.fromkeys(["EeE", "LML"], ""),
    # The vector unit rewrites it: VALU instructions must wait, scalar ones do by themselves.
    **dict.fromkeys(["VCV", "VFV", "uCV", "VC1V", "VC2V", "VCdV", "VCqV"], VA),
    **dict.fromkeys(["kKk", "kK1k", "kK3k", "VkKzk", "kmKk"], VCC),
    **dict.fromkeys(["CV", "Kk", "VCr", "VFr", "kKq", "VC3V", "kK2k", "VCrV", "VCbV", "VCsV", "kKqk"], ""),
}


def asm(name: str, mend: str = "") -> list[str]:
    """The instructions of a sequence; the wait `mend` before the last."""
    lines = [INSTS[letter][0] for letter in name]
    return [*lines[:-1], *([INSTS[MENDS[mend]][0]] if mend else []), lines[-1]]


def machine_ir(names: Iterable[str] = SEQUENCES) -> str:
    """Functions of these sequences that LLVM does not optimise, each called by its name with an f."""
    names = list(names)
    heads = "".join(
        f"  define amdgpu_kernel void @f{n}() noinline optnone {{ unreachable }}\n" for n in names
    )
    bodies = "".join(
        f"---\nname: f{name}\nmachineFunctionInfo:\n  isEntryFunction: true\nbody: |\n  bb.0:\n"
        + "".join(f"    {INSTS[letter][1]}\n" for letter in name)
        + "    S_ENDPGM 0\n...\n"
        for name in names
    )
    return f"--- |\n{heads}...\n{bodies}"


def added(name: str, wait: str) -> str:
    """Return LLVM's fields that a wait before the last instruction sets, but for the sequence's own."""
    number = re.search(r"0x[0-9a-f]+|\b\d+$", wait)
    fields = {SA: 1, VCC: 2, VA: 7 << 9}
    found = [
        f for f, bits in fields.items() if f"{f}(0)" in wait or (number and not int(number[0], 0) & bits)
    ]
    own = {"1": SA, "2": VCC, "3": VA}.get(name[-2:-1])
    return "".join(f for f in found if f != own)
