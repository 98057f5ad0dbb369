# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random C++ programs, compiled by clang for each arch and wave size, against gcc's for the host."""

from __future__ import annotations

import ctypes as c
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from inner import run_as
from numpy.typing import NDArray

from ..support import hip, programs
from ..support.toolchain import CLANG20, COMPILER_CACHE, OF_CLANG20, compiler

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1201")
# Their waves of 64: an arch has its own programs, of which each runs at every level.
WIDE = {"gfx1030": 0, "gfx1100": 4, "gfx1151": 8, "gfx1201": 12}
LEVELS = ("-O0", "-O1", "-O2", "-O3")
# In 21 some bits are ~(x >> 32) | (y >> n), of which LLVM 19 forgets the upper half of the first.
SEEDS = range(16)
_SAME = ("-std=c++17", "-w", "-fwrapv", "-ffp-contract=off")
_DEVICE = ("--cuda-device-only", "--no-gpu-bundle-output", "-nogpuinc", "-nogpulib")

Words = NDArray[np.uint32]


@pytest.mark.skipif(bool(os.environ.get("FMHA_EMU_ARCH")), reason="already the inner run")
@pytest.mark.parametrize(
    ("arch", "lanes"), [*((arch, "") for arch in ARCHS), *((arch, "64") for arch in WIDE)]
)
def test_archs(arch: str, lanes: str) -> None:
    """Run the next test as each arch: a process has one."""
    if arch in OF_CLANG20 and not CLANG20.exists():
        pytest.skip("no clang 20: `make toolchain`, without a ROCm")
    said = run_as(arch, f"{__file__}::test_program", FMHA_TEST_LANES=lanes)
    assert f"{len(SEEDS) // 4 if lanes else len(SEEDS)} passed" in said


@pytest.mark.skipif("FMHA_EMU_ARCH" not in os.environ, reason="run by test_archs")
@pytest.mark.parametrize("seed", SEEDS)
def test_program(seed: int, tmp_path: Path) -> None:
    """The same bits at every level, with every check of the software device on."""
    if _waves_of_64() and seed // 4 != WIDE[os.environ["FMHA_EMU_ARCH"]] // 4:
        pytest.skip("another arch's, in waves of 64")
    source = tmp_path / "program.cc"
    source.write_text(programs.write(seed))
    rng = np.random.default_rng(seed)
    threads = programs.THREADS * programs.GROUPS
    inputs, args = (rng.integers(0, 1 << 32, n, np.uint32) for n in (2 * threads, programs.UNIFORM))
    want = _on_host(source, inputs, args)
    assert len(np.unique(want)) > programs.WORDS, "a program whose results say nothing"
    for level in LEVELS:
        np.testing.assert_array_equal(_on_device(source, level, inputs, args), want, level)


def _waves_of_64() -> bool:
    return os.environ.get("FMHA_TEST_LANES") == "64"


def _compile(source: Path, *command: str, to: Path) -> None:
    """Compile once for all clones: a program is the same wherever it lies."""
    words = [*COMPILER_CACHE, *command, "-c", source.name, "-o", to.name]
    subprocess.run(words, check=True, cwd=source.parent)


def _on_host(source: Path, inputs: Words, args: Words) -> Words:
    shared = source.with_suffix(".so")
    _compile(source, "g++", *_SAME, "-O1", "-fPIC", to=source.with_suffix(".o"))
    subprocess.run(["g++", "-shared", source.with_suffix(".o"), "-o", shared], check=True)
    out = np.zeros(programs.WORDS * programs.THREADS * programs.GROUPS, np.uint32)
    c.CDLL(str(shared)).program(*(c.c_void_p(array.ctypes.data) for array in (inputs, out, args)))
    return out


def _on_device(source: Path, level: str, inputs: Words, args: Words) -> Words:
    arch = os.environ["FMHA_EMU_ARCH"]
    code_object = source.with_suffix(".co")
    waves = ["-mwavefrontsize64"] if _waves_of_64() else []
    options = ("-x", "hip", f"--offload-arch={arch}", *waves, *_DEVICE, *_SAME, level)
    _compile(source, compiler(arch), *options, to=code_object)
    module = hip.Module(code_object.read_bytes())
    out = np.zeros(programs.WORDS * programs.THREADS * programs.GROUPS, np.uint32)
    buffers = [hip.Buffer.of(array) for array in (inputs, out)]
    packed = np.array([buffer.address for buffer in buffers], np.uint64).tobytes() + args.tobytes()
    module.launch("program", packed, grid=(programs.GROUPS, 1, 1), block=(programs.THREADS, 1, 1))
    result = buffers[1].read(np.uint32)
    for buffer in buffers:
        buffer.free()
    module.unload()
    return result.astype(np.uint32)
