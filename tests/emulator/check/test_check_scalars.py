# SPDX-License-Identifier: MIT OR Apache-2.0
"""gfx12's late scalar registers: a finding where LLVM waits, and silence behind the wait.

The sequences were held against the pass of LLVM 22, and are again if there is an llc of 21 or later. clang 20
is asked about whole programs: what it compiles has no finding, and one as soon as its waits are gone.
code/test_rdna_values.py runs this file, as gfx1201.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from ..support import hip, programs, rows
from ..support.findings import Kernels
from ..support.spelling import NARROW
from ..support.toolchain import CLANG20, tool

pytestmark = pytest.mark.skipif(rows.arch() != "gfx1201" or not NARROW, reason="of gfx12; in waves of 32")

_TAIL = "implicit $mode, implicit $exec"
_CARRY = "implicit-def $scc"
# By letter: assembly and machine IR. It is about s20, which V, C, F and D read or write, and VCC.
_INSTS = {
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
_SA, _VA, _VCC = "sa_sdst", "va_sdst", "va_vcc"
_MENDS = {_SA: "1", _VCC: "2", _VA: "3"}
# What must be waited for before the last instruction; "": nothing.
SEQUENCES = {
    # The scalar unit rewrites what a VALU instruction has read, at any distance before.
    **dict.fromkeys(["VSV", "VSr", "VQV", "DSD", "VSD", "VSgV", "VSdV", "VSnV", "VvvvvvvvvvvvvSV"], _SA),
    **dict.fromkeys(["VnnnnnxxxxxxxxxxxxxxSV", "uSV", "VSvvvvvvvvvvvvvV", "VSnnnnnnnnnnnnr", "uou"], _SA),
    **dict.fromkeys(["kmk", "kmq", "kKmk", "VS2V", "VS3V", "VS1SV", "VSxV", "VSyV"], _SA),
    # No VALU instruction has read it, or its pair; or the half that is read was not rewritten.
    **dict.fromkeys(["SV", "Sr", "ySV", "VoV", "Vxr", "mk", "oxV", "VV", "vSV"], ""),
    # It waits, or is forced to.
    **dict.fromkeys(["VS1V", "VS1r", "VSsV", "VSbV", "km1k"], ""),
    # EXEC and M0.
    **dict.fromkeys(["EeE", "LML"], ""),
    # The vector unit rewrites it: VALU instructions must wait, scalar ones do by themselves.
    **dict.fromkeys(["VCV", "VFV", "uCV", "VC1V", "VC2V", "VCdV", "VCqV"], _VA),
    **dict.fromkeys(["kKk", "kK1k", "kK3k", "VkKzk", "kmKk"], _VCC),
    **dict.fromkeys(["CV", "Kk", "VCr", "VFr", "kKq", "VC3V", "kK2k", "VCrV", "VCbV", "VCsV", "kKqk"], ""),
}
# LLVM 20 alone counts scalar instructions, 10 before one that reads and 11 before a VALU one.
EXPIRED = {
    f"VS{'x' * n}{use}": _SA if n < enough else ""
    for use, enough in (("r", 10), ("V", 11)) for n in (enough - 1, enough)
}  # fmt: skip


# A raw resource for `b`.
_RAW = "s_mov_b32 s7, 0x30000000"


def _asm(name: str, mend: str = "") -> list[str]:
    lines = [_RAW, *(_INSTS[letter][0] for letter in name)]
    return [*lines[:-1], *([_INSTS[mend][0]] if mend else []), lines[-1]]


_ALL = SEQUENCES | EXPIRED
_KERNELS = Kernels(
    {f"{n}_plain": _asm(n) for n in _ALL} | {f"{n}_mended": _asm(n, _MENDS[w]) for n, w in _ALL.items() if w},
    lds=1024,
)


@pytest.mark.parametrize("name", _ALL)
def test_a_finding_where_a_wait_is_missing(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Which names the register, the field and the instruction that wrote."""
    monkeypatch.setenv("FMHA_EMU_CHECKS", "hazards-vector-scalar")
    wait = _ALL[name]
    if not wait:
        _KERNELS.run(f"{name}_plain")
        return
    text = _KERNELS.finding(f"{name}_plain")
    assert f"rewritten since: needs s_wait_alu depctr_{wait}(0), after pc 0x" in text, text
    _KERNELS.run(f"{name}_mended")


@pytest.mark.parametrize("name", [name for name, wait in SEQUENCES.items() if wait in (_VA, _VCC)])
def test_writes_of_the_vector_unit_are_a_check_of_their_own(name: str) -> None:
    """Which is off by default."""
    _KERNELS.run(f"{name}_plain")


@cache
def _newer_llc() -> str | None:
    return next((path for n in range(21, 30) if (path := shutil.which(f"llc-{n}"))), None)


@pytest.mark.skipif(_newer_llc() is None, reason="no llc of LLVM 21 or later")
def test_what_llvm_waits_for() -> None:
    """The pass of LLVM 21 and later, with which the one of 20 agrees but for EXPIRED."""
    heads = "".join(f"  define amdgpu_kernel void @f{n}() {{ unreachable }}\n" for n in SEQUENCES)
    bodies = "".join(
        f"---\nname: f{name}\nbody: |\n  bb.0:\n"
        + "".join(f"    {_INSTS[letter][1]}\n" for letter in name)
        + "    S_ENDPGM 0\n...\n"
        for name in SEQUENCES
    )
    command = [str(_newer_llc()), "-mtriple=amdgcn-amd-amdhsa", "-mcpu=gfx1201"]
    done = subprocess.run(
        [*command, "-run-pass=amdgpu-wait-sgpr-hazards", "-x", "mir", "-", "-o", "-"],
        input=f"--- |\n{heads}...\n{bodies}", capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[:3000]
    fields = {_SA: 1, _VCC: 2, _VA: 7 << 9}
    found = {}
    for part in done.stdout.split("\n---\n"):
        match = re.search(r"^name: +f(\w+)$", part, re.MULTILINE)
        if match:
            before = re.findall(r"S_WAITCNT_DEPCTR (\d+)\n.*\n +S_ENDPGM", part)
            missing = [w for w, bits in fields.items() if before and not int(before[0]) & bits]
            own = {"1": _SA, "2": _VCC, "3": _VA}.get(match[1][-2])  # the sequence's, which LLVM adds to
            found[match[1]] = "".join(w for w in missing if w != own)
    assert found == SEQUENCES


# Programs.
_SEEDS = range(3)


def _assembly(seed: int, level: str, tmp_path: Path, clang: object = CLANG20) -> list[str]:
    source = tmp_path / "program.cc"
    source.write_text(programs.write(seed))
    options = ["-std=c++17", "-w", "-fwrapv", "-ffp-contract=off", "-nogpuinc", "-nogpulib", "-S", "-o", "-"]
    command = [clang, "-x", "hip", "--offload-arch=gfx1201", "--cuda-device-only", *options, level, source]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def _launch(lines: list[str], tmp_path: Path) -> None:
    assembly, object_, code = (tmp_path / f"program.{ending}" for ending in ("s", "o", "co"))
    assembly.write_text("\n".join(lines) + "\n")
    target = ["-target", "amdgcn-amd-amdhsa", "-mcpu=gfx1201"]
    subprocess.run([CLANG20, "-x", "assembler", *target, "-c", assembly, "-o", object_], check=True)
    subprocess.run([tool("ld.lld"), "-shared", object_, "-o", code], check=True)
    module = hip.Module(code.read_bytes())
    words = programs.THREADS * programs.GROUPS * programs.WORDS
    buffers = [hip.Buffer(4 * words), hip.Buffer(4 * words)]
    packed = b"".join(b.address.to_bytes(8, "little") for b in buffers) + bytes(4 * programs.UNIFORM)
    try:
        module.launch("program", packed, grid=(1, 1, 1), block=(programs.THREADS, 1, 1))
    finally:
        for buffer in buffers:
            buffer.free()
        module.unload()


_needs_clang20 = pytest.mark.skipif(
    not CLANG20.exists(), reason="no clang 20: `make toolchain`, without a ROCm"
)


@_needs_clang20
@pytest.mark.parametrize("level", ["-O0", "-O2"])
@pytest.mark.parametrize("seed", _SEEDS)
def test_without_the_waits_of_clang20(seed: int, level: str, tmp_path: Path) -> None:
    """Its programs are clean (test_programs has more), and are not as soon as its waits are gone."""
    lines = _assembly(seed, level, tmp_path)
    waits = [line for line in lines if re.search(r"s_wait_alu 0xfffe$", line)]
    assert len(waits) > 20
    _launch(lines, tmp_path)
    with pytest.raises(hip.HipError) as caught:
        _launch([line for line in lines if line not in waits], tmp_path)
    assert "needs s_wait_alu depctr_sa_sdst(0)" in caught.value.fault, caught.value.fault


@_needs_clang20
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_clang19_knows_nothing_of_it(level: str, tmp_path: Path) -> None:
    """Which is why our kernels of gfx12 want clang 20."""
    lines = _assembly(0, level, tmp_path, tool("clang"))
    if not any("clang version 19" in line for line in lines):
        pytest.skip("another clang")
    with pytest.raises(hip.HipError) as caught:
        _launch(lines, tmp_path)
    assert "needs s_wait_alu depctr_sa_sdst(0)" in caught.value.fault, caught.value.fault
