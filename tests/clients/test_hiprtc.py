# SPDX-License-Identifier: MIT OR Apache-2.0
"""hiprtc.c, the hiprtc that clients get: what it hands hipcc, and what it hands back."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from built import this_arch
from clients import hiprtc_setup

import pyfa_rocm
from pyfa_rocm import DeviceArray

SUCCESS, INVALID_INPUT, COMPILATION = 0, 3, 6  # hiprtcResult
ADD = 'extern "C" __global__ void add(float* x, float by) { x[threadIdx.x] += by; }\n'
# The low byte of an AMDGPU object's e_flags, at byte 48 of the file.
MACHINES = {"gfx90a": 0x3F, "gfx942": 0x4C, "gfx1100": 0x41}


@dataclass
class Compiled:
    """The outcome of compiling a program."""

    result: int
    code: bytes
    log: bytes
    told: list[str]  # hipcc's arguments

    @property
    def archs(self) -> list[str]:
        """The arguments that name a GPU."""
        return [x for x in self.told if "arch" in x]

    @property
    def machine(self) -> int:
        assert self.code[:4] == b"\x7fELF"
        return self.code[48]


class Hiprtc:
    """The library, and the file in which hipcc notes how it is called."""

    def __init__(self, library: Path, calls: Path) -> None:
        ctypes.CDLL(pyfa_rocm.runtime().path, ctypes.RTLD_GLOBAL)
        self.calls, self._c = calls, ctypes.CDLL(str(library))

    def create(self, source: str, headers: int = 0) -> tuple[int, Any]:
        program = ctypes.c_void_p()
        return self._c.hiprtcCreateProgram(
            ctypes.byref(program), source.encode(), b"a name", headers, None, None
        ), program

    def compile(self, source: str, *options: str) -> Compiled:
        self.calls.write_text("")
        result, program = self.create(source)
        assert result == SUCCESS
        given = (ctypes.c_char_p * len(options))(*(x.encode() for x in options))
        result = self._c.hiprtcCompileProgram(program, len(options), given)
        code, log = self._text(program, "Code"), self._text(program, "ProgramLog")
        assert self._c.hiprtcDestroyProgram(ctypes.byref(program)) == SUCCESS
        assert program.value is None
        return Compiled(result, code, log, self.calls.read_text().split())

    def _text(self, program: Any, what: str) -> bytes:
        size = ctypes.c_size_t()
        assert getattr(self._c, f"hiprtcGet{what}Size")(program, ctypes.byref(size)) == SUCCESS
        text = ctypes.create_string_buffer(size.value)
        assert getattr(self._c, f"hiprtcGet{what}")(program, text) == SUCCESS
        return text.raw


@pytest.fixture(scope="module")
def hiprtc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hiprtc]:
    """It, with a hipcc in front of all others, which notes its arguments."""
    folder = tmp_path_factory.mktemp("hiprtc")
    calls, noting = folder / "calls", folder / "hipcc"
    hiprtc_setup.hiprtc(folder)
    hiprtc_setup.hipcc(folder / "compiler")
    noting.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {calls}\nexec {folder}/compiler/hipcc "$@"\n')
    noting.chmod(0o755)
    before = os.environ["PATH"]
    os.environ["PATH"] = f"{folder}:{before}"
    yield Hiprtc(folder / "libhiprtc.so.7", calls)
    os.environ["PATH"] = before


def run(code: bytes, x: DeviceArray, by: float) -> None:
    """Launch `add` of a code object with a thread for each element."""
    hip = ctypes.CDLL(pyfa_rocm.runtime().path)
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    assert hip.hipModuleLoadData(ctypes.byref(module), code) == 0
    assert hip.hipModuleGetFunction(ctypes.byref(function), module, b"add") == 0
    values = (ctypes.c_void_p(x.data), ctypes.c_float(by))
    addresses = (ctypes.c_void_p * 2)(*(ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values))
    blocks, threads = (1, 1, 1), (x.shape[0], 1, 1)
    assert hip.hipModuleLaunchKernel(function, *blocks, *threads, 0, None, addresses, None) == 0
    pyfa_rocm.synchronize()
    assert hip.hipModuleUnload(module) == 0


def test_a_program_compiles_and_runs(hiprtc: Hiprtc) -> None:
    """hiprtc compiles for the current device without being told which."""
    compiled = hiprtc.compile(ADD)
    assert compiled.result == SUCCESS, compiled.log
    assert compiled.log == b"\0"
    assert compiled.archs == [f"--offload-arch={this_arch()}"]
    x = DeviceArray.from_numpy(np.arange(64, dtype=np.float32))
    run(compiled.code, x, 2.5)
    assert x.to_numpy().tolist() == (np.arange(64) + 2.5).tolist()


@pytest.mark.parametrize("option", ["--offload-arch=", "--gpu-architecture="])
@pytest.mark.parametrize("arch", MACHINES)
def test_the_callers_arch_wins(hiprtc: Hiprtc, option: str, arch: str) -> None:
    """It is the only one: two would be two code objects, and there is one file for them."""
    compiled = hiprtc.compile(ADD, "-ffast-math", option + arch)
    assert compiled.result == SUCCESS, compiled.log
    assert compiled.archs == [f"--offload-arch={arch}"]
    assert compiled.machine == MACHINES[arch]
    assert "-ffast-math" in compiled.told


def test_options_count(hiprtc: Hiprtc) -> None:
    source = ADD.replace("x[threadIdx.x] += by", "x[threadIdx.x] += by * FACTOR")
    assert hiprtc.compile(source).result == COMPILATION
    compiled = hiprtc.compile(source, "-DFACTOR=3")
    assert compiled.result == SUCCESS, compiled.log
    x = DeviceArray.from_numpy(np.zeros(1, np.float32))
    run(compiled.code, x, 2)
    assert x.to_numpy().tolist() == [6]


def test_errors_are_in_the_log(hiprtc: Hiprtc) -> None:
    """The log has the line of the caller's source; there is no code."""
    compiled = hiprtc.compile(ADD + "\nint nothing = missing;\n")
    assert (compiled.result, compiled.code) == (COMPILATION, b"")
    assert compiled.log.endswith(b"\0")
    assert b":3:" in compiled.log
    assert b"error: use of undeclared identifier 'missing'" in compiled.log


def test_headers_are_refused(hiprtc: Hiprtc) -> None:
    assert hiprtc.create(ADD, headers=1)[0] == INVALID_INPUT


def test_more_options_than_there_is_room_for_are_refused(hiprtc: Hiprtc) -> None:
    compiled = hiprtc.compile(ADD, *["-DX=1"] * 101)
    assert (compiled.result, compiled.told) == (INVALID_INPUT, [])
    assert (compiled.code, compiled.log) == (b"", b"\0")
