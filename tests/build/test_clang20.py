# SPDX-License-Identifier: MIT OR Apache-2.0
"""The clang 20 that `make toolchain` makes of ziglang, for archs that Debian's clang 19 does not know."""

from __future__ import annotations

import re
import struct
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLCHAIN = ROOT / "build" / "toolchain"
CLANG = TOOLCHAIN / "clang20"
EF_AMDGPU_MACH_GFX950 = 0x4F  # LLVM's AMDGPUUsage

pytestmark = pytest.mark.skipif(
    not (CLANG / "SOURCE").exists(), reason="`make toolchain` was not run for gfx950, or a ROCm has it"
)


def compiled(source: Path, out: Path, *flags: str) -> Path:
    """Compile a kernel for gfx950 with the headers and the bitcode of a build; return its assembly."""
    hip = TOOLCHAIN / "hip"
    subprocess.run(
        [
            CLANG / "bin/clang++", "-x", "hip", "--offload-arch=gfx950", "-O3", "--cuda-device-only",
            "--no-gpu-bundle-output", f"--rocm-path={hip}", f"--hip-path={hip}",
            f"--rocm-device-lib-path={CLANG / 'bitcode'}", *flags, source, "-o", out,
        ],
        check=True,
    )  # fmt: skip
    return out


def test_a_code_object_is_of_gfx950(tmp_path: Path) -> None:
    """With a linker of its own: nothing of the machine's LLVM is in PATH here."""
    data = compiled(ROOT / "native/tools/fetch/clang20_trial.hip", tmp_path / "k.co", "-c").read_bytes()
    assert data[:4] == b"\x7fELF"
    assert data[8] == 3, "code object version 5 is ABI version 3"
    assert struct.unpack_from("<I", data, 48)[0] & 0xFF == EF_AMDGPU_MACH_GFX950


def test_its_assembly_makes_the_same_code_object(tmp_path: Path) -> None:
    """A build compiles to assembly, which the report reads: no disassembler here knows gfx950."""
    source = ROOT / "native/tools/fetch/clang20_trial.hip"
    at_once = compiled(source, tmp_path / "k.co", "-c")
    assembly = compiled(source, tmp_path / "k.s", "-S")
    assert re.search(r"^\s+v_mfma_f32_32x32x16_bf16 ", assembly.read_text(), re.MULTILINE)
    subprocess.run(
        [
            CLANG / "bin/clang++",
            "--target=amdgcn-amd-amdhsa",
            "-mcpu=gfx950",
            assembly,
            "-o",
            tmp_path / "s.co",
        ],
        check=True,
    )
    sections = [text_of(path) for path in (at_once, tmp_path / "s.co")]
    assert sections[0]
    assert sections[0] == sections[1]


def text_of(path: Path) -> bytes:
    """The section .text: its name is in the last section's table of names."""
    data = path.read_bytes()
    table, size, count, names = struct.unpack_from("<Q10xHHH", data, 40)
    sections = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    for name, _, _, _, offset, length in sections:
        start = sections[names][4] + name
        if data[start : start + 6] == b".text\0":
            return data[offset : offset + length]
    raise AssertionError(f"{path}: no .text")


def test_the_device_library_knows_the_arch(tmp_path: Path) -> None:
    """Its bitcode, read back by this very clang."""
    bitcode, text = CLANG / "bitcode/oclc_isa_version_950.bc", tmp_path / "k.ll"
    target = ("--target=amdgcn-amd-amdhsa", "-nogpulib")
    command = (
        str(CLANG / "bin/clang++"),
        *target,
        "-x",
        "ir",
        "-S",
        "-emit-llvm",
        str(bitcode),
        "-o",
        str(text),
    )
    subprocess.run(command, check=True)
    assert re.search(r"^@__oclc_ISA_version = .* constant i32 9500\b", text.read_text(), re.MULTILINE)
