# SPDX-License-Identifier: MIT OR Apache-2.0
"""Finds LLVM's tools and the software device."""

from __future__ import annotations

import os
import shutil
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
_VERSIONS = ("", "-19", "-20", "-21", "-22", "-18", "-17")


@cache
def tool(name: str) -> str:
    """Path of an LLVM tool: $CLANG, $LLD, $LLVM_MC, $LLVM_OBJDUMP, else from PATH, also versioned."""
    env = {"ld.lld": "LLD"}.get(name, name.upper().replace("-", "_"))
    if os.environ.get(env):
        return os.environ[env]
    # Version 19 first: it is what the build uses, and names of instructions differ between versions.
    for version in ("-19", *_VERSIONS):
        path = shutil.which(name + version) or shutil.which(name, path=f"/usr/lib/llvm{version}/bin")
        if path:
            return path
    raise FileNotFoundError(f"{name}: not on PATH, also not as {name}-19; set ${env}")


# The LLVM that the build uses does not know gfx950; this one does, but is only a compiler and an assembler.
CLANG20 = ROOT / "build/toolchain/clang20/bin/clang++"
# The command in front of a compiler: the build's cache, if it has one.
COMPILER_CACHE = tuple(map(str, ROOT.glob("build/release/ccache/host")))
# Whose programs clang 19 does not make, or makes with hazards (native/archs.toml, least_clang).
OF_CLANG20 = ("gfx950", "gfx1153", "gfx1201")
# Rows unknown to LLVM 19, though it knows their archs.
UNKNOWN_TO_LLVM19 = {"ds_bpermute_fi_b32", "v_swap_b16"}
UNKNOWN_TO_CLANG20 = {"v_swap_b16"}  # as it prints registers: LLVM 21 has it


def compiler(arch: str) -> str:
    """Path of the compiler that makes programs for an arch."""
    return str(CLANG20) if arch in OF_CLANG20 else tool("clang")


def target(cpu: str) -> tuple[str, bool]:
    """An arch, and whether waves of 64 lanes are wanted of one that has others: "gfx1100:64"."""
    name, _, lanes = cpu.partition(":")
    return name, lanes == "64"


def assembler(cpu: str, later: bool = False) -> list[str]:
    """The command that assembles for an arch, by clang 20 if `later`; clang's arguments follow it."""
    name, wide = target(cpu)
    program = str(CLANG20) if later or name == "gfx950" else tool("clang")
    waves = ["-mwavefrontsize64"] if wide else []
    return [program, "-x", "assembler", "-target", "amdgcn-amd-amdhsa", f"-mcpu={name}", *waves, "-c"]


def reader(cpu: str, later: bool = False) -> list[str]:
    """The command that reads assembly and prints what it accepts, by clang 20 if `later`."""
    name, wide = target(cpu)
    program = [str(CLANG20.with_name("zig")), "clang"] if later or name == "gfx950" else [tool("clang")]
    waves = ["-target-feature", "+wavefrontsize64"] if wide else []
    arch = ["-triple", "amdgcn-amd-amdhsa", "-target-cpu", name, *waves]
    return [*program, "-cc1as", *arch, "-filetype", "asm", "-o", "-", "-"]


@cache
def emulator_path() -> Path:
    """The software device's libamdhip64: $PYFA_ROCM_EMULATOR, else the release build's."""
    env = os.environ.get("PYFA_ROCM_EMULATOR")
    path = Path(env) if env else ROOT / "build/release/emulator/libamdhip64.so.6"
    if path.is_dir():
        path = path / "libamdhip64.so.6"
    if not path.exists():
        raise FileNotFoundError(f"software device not found at {path}; build it, or set $PYFA_ROCM_EMULATOR")
    return path
