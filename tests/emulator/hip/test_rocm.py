# SPDX-License-Identifier: MIT OR Apache-2.0
"""How releases of ROCm differ, and what all do where a kinder device would hide a fault."""

from __future__ import annotations

import ctypes as c
import signal
import threading

import pytest
from inner import run_script

from ..support import hip
from ..support.streams import DESTROYED, Stream, launch, status, zeros
from ..support.toolchain import emulator_path
from .test_environment import run as run_with
from .test_hip_graph import IMPLICIT, LOST, RELAXED, begin, end_status

INVALID = 1


def test_last_error(rocm: str) -> None:
    """A success takes it away in ROCm 6, and leaves it in 7."""
    assert hip.lib().hipGetDevice(None) == INVALID
    assert hip.lib().hipPeekAtLastError() == INVALID
    assert hip.lib().hipGetDevice(c.byref(c.c_int())) == 0
    kept = 0 if rocm.startswith("6") else INVALID
    assert (hip.lib().hipPeekAtLastError(), hip.lib().hipGetLastError()) == (kept, kept)
    assert hip.lib().hipGetLastError() == 0


def test_legacy_handle(rocm: str) -> None:
    """hipStreamLegacy came with ROCm 7."""
    assert status("hipStreamSynchronize", c.c_void_p(1)) == (DESTROYED if rocm.startswith("6") else 0)


def test_fault_ends_the_process_for_good(rocm: str) -> None:
    """In ROCm 7 every call returns it from then on; else hipGetLastError acknowledges it."""
    stream = Stream()
    launch("add_one", stream.handle, 4096)
    assert hip.lib().hipStreamSynchronize(stream.pointer) == 700
    final = rocm == "7"
    assert hip.lib().hipGetLastError() == 700
    assert hip.lib().hipGetLastError() == (700 if final else 0)
    assert status("hipGetDevice", c.byref(c.c_int())) == (700 if final else 0)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(status("hipInit", c.c_uint(0))))
    thread.start()
    thread.join()
    assert codes == [700 if final else 0]
    hip.recover()
    stream.synchronize()


def test_fault_of_another_release_is_not_final() -> None:
    """A launch that stopped while another release was played ends nothing in ROCm 7."""
    stream = Stream()
    launch("add_one", stream.handle, 4096)
    assert hip.lib().hipStreamSynchronize(stream.pointer) == 700
    assert hip.lib().hipGetLastError() == 700
    hip.call("fmha_emu_set_rocm", b"7")
    try:
        assert status("hipGetDevice", c.byref(c.c_int())) == 0
    finally:
        hip.lib().fmha_emu_set_rocm(b"")
        hip.recover()


def test_fill_that_waits_ends_every_capture(rocm: str) -> None:
    """ROCm ends every capture of the process, in any mode and thread."""
    stream, buffer = Stream(1), zeros()
    begin(stream, RELAXED)
    codes: list[int] = []
    arguments = (c.c_void_p(buffer.address), c.c_int(0), c.c_size_t(4))
    thread = threading.Thread(target=lambda: codes.append(status("hipMemset", *arguments)))
    thread.start()
    thread.join()
    assert codes == [IMPLICIT], rocm
    assert end_status(stream) == LOST


_TWO_DEVICES = """
from emulator.support import hip
from emulator.support.streams import *
hip.call("hipSetDevice", c.c_int(1))
far = Stream(1)
hip.call("hipStreamBeginCapture", far.pointer, c.c_int(2))
memory = handle("hipMallocAsync", c.c_size_t(1024), far.pointer)
ordinal = c.c_int(-1)
hip.call("hipPointerGetAttribute", c.byref(ordinal), c.c_int(9), c.c_void_p(memory))
hip.call("hipSetDevice", c.c_int(0))
print(ordinal.value, status("hipDeviceSynchronize"))
print(status("hipStreamEndCapture", far.pointer, c.byref(c.c_void_p())))
"""


def test_other_devices() -> None:
    """Memory that a graph allocates is of device 0; hipDeviceSynchronize ends captures of other devices."""
    assert run_script(_TWO_DEVICES, env={"FMHA_EMU_DEVICES": "2"}).split() == ["0", "900", "901"]


_GET_FUNCTION = """
from emulator.support import hip
from emulator.support.streams import *
code = hip.Module(image())
hip.call("hipSetDevice", c.c_int(1))
code.function("add_one")
print("found")
"""


@pytest.mark.parametrize("release", ["", "6.0", "6.2", "7"])
def test_function_of_another_device(release: str) -> None:
    """hipModuleGetFunction ends the process in ROCm 6.2 only."""
    env = {"FMHA_EMU_DEVICES": "2", "FMHA_EMU_ROCM": release}
    if release != "6.2":
        assert "found" in run_script(_GET_FUNCTION, env=env)
        return
    with pytest.raises(AssertionError, match="add_one is of a module of device 0, the current device is 1"):
        run_script(_GET_FUNCTION, env=env)


_VERSION = """
import ctypes as c, sys
version = c.c_int()
c.CDLL(sys.argv[1]).hipRuntimeGetVersion(c.byref(version))
print(version.value // 100_000)
"""


@pytest.mark.parametrize(
    ("name", "release", "version"),
    [
        ("libamdhip64.so.6", "", 604),
        ("libamdhip64.so.7", "", 700),
        ("libamdhip64.so", "", 604),
        ("libamdhip64.so.6", "7", 700),
        ("libamdhip64.so.7", "6.2", 602),
        ("libamdhip64.so.6", "6.0", 600),
    ],
)
def test_runtime_version(name: str, release: str, version: int) -> None:
    """The version is the release's, or that of the name by which the library was asked for."""
    library = emulator_path().parent / name
    assert run_script(_VERSION, str(library), env={"FMHA_EMU_ROCM": release}) == f"{version}\n"


@pytest.mark.parametrize("on_fault", ["", "error", "abort"])
def test_on_fault(on_fault: str) -> None:
    """The process ends at a fault, and says at which, if it was told to, as ROCm does before 7."""
    done = run_with(FMHA_EMU_MAX_INSTRUCTIONS="10", FMHA_EMU_QUIET="1", FMHA_EMU_ON_FAULT=on_fault)
    assert done.returncode == (-signal.SIGABRT if on_fault == "abort" else 0)
    assert ("has run 10 instructions" in done.stderr) == (on_fault == "abort")
