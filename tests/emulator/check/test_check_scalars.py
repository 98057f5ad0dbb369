# SPDX-License-Identifier: MIT OR Apache-2.0
"""gfx12's late scalar registers: a finding where LLVM waits, and silence behind the wait.

The sequences are held against the pass of LLVM 21 and later by an llc, if there is one, and by the LLVM in
Triton's wheel (clients/test_triton_waits.py). clang 20, which does not mend writes of the vector unit, is
asked about whole programs: what it compiles has no finding, and one as soon as its waits are gone.
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
from ..support.late_scalars import SA, SEQUENCES, VA, VCC, added, asm, machine_ir
from ..support.spelling import NARROW
from ..support.toolchain import CLANG20, tool

pytestmark = pytest.mark.skipif(rows.arch() != "gfx1201" or not NARROW, reason="of gfx12; in waves of 32")

# Only LLVM 20 counts scalar instructions, 10 before one that reads and 11 before a VALU one.
EXPIRED = {
    f"VS{'x' * n}{use}": SA if n < enough else ""
    for use, enough in (("r", 10), ("V", 11))
    for n in (enough - 1, enough)
}


# A raw resource for `b`.
_RAW = "s_mov_b32 s7, 0x30000000"


_ALL = SEQUENCES | EXPIRED
_KERNELS = Kernels(
    {f"{n}_plain": [_RAW, *asm(n)] for n in _ALL}
    | {f"{n}_mended": [_RAW, *asm(n, w)] for n, w in _ALL.items() if w},
    lds=1024,
)


@pytest.mark.parametrize("name", _ALL)
def test_a_finding_where_a_wait_is_missing(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The finding names the register, the field and the instruction that wrote."""
    monkeypatch.setenv("FMHA_EMU_CHECKS", "hazards-vector-scalar")
    wait = _ALL[name]
    if not wait:
        _KERNELS.run(f"{name}_plain")
        return
    text = _KERNELS.finding(f"{name}_plain")
    assert f"rewritten since: needs s_wait_alu depctr_{wait}(0), after pc 0x" in text, text
    _KERNELS.run(f"{name}_mended")


@pytest.mark.parametrize("name", [name for name, wait in SEQUENCES.items() if wait in (VA, VCC)])
def test_writes_of_the_vector_unit_are_a_check_of_their_own(name: str) -> None:
    """The check is off by default."""
    _KERNELS.run(f"{name}_plain")


@cache
def _newer_llc() -> str | None:
    return next((path for n in range(21, 30) if (path := shutil.which(f"llc-{n}"))), None)


@pytest.mark.skipif(
    _newer_llc() is None,
    reason="no llc-21 or later on PATH; `make test-clients` asks the LLVM in Triton's wheel instead",
)
def test_what_llvm_waits_for() -> None:
    """The pass of LLVM 21 and later, with which the one of 20 agrees but for EXPIRED."""
    command = [str(_newer_llc()), "-mtriple=amdgcn-amd-amdhsa", "-mcpu=gfx1201"]
    done = subprocess.run(
        [*command, "-run-pass=amdgpu-wait-sgpr-hazards", "-x", "mir", "-", "-o", "-"],
        input=machine_ir(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[:3000]
    found = {}
    for part in done.stdout.split("\n---\n"):
        match = re.search(r"^name: +f(\w+)$", part, re.MULTILINE)
        if match:
            before = re.findall(r"S_WAITCNT_DEPCTR (\d+)\n.*\n +S_ENDPGM", part)
            found[match[1]] = added(match[1], before[0] if before else "")
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
    """clang 19 lacks the waits, so our kernels for gfx12 need clang 20."""
    lines = _assembly(0, level, tmp_path, tool("clang"))
    if not any("clang version 19" in line for line in lines):
        pytest.skip("another clang")
    with pytest.raises(hip.HipError) as caught:
        _launch(lines, tmp_path)
    assert "needs s_wait_alu depctr_sa_sdst(0)" in caught.value.fault, caught.value.fault
