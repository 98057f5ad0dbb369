# SPDX-License-Identifier: MIT OR Apache-2.0
"""Mistakes with raw pointers that the library cannot check: the software device catches them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import numpy as np
import pytest
from inner import ok, run

import pyfa_rocm as p
from pyfa_rocm._runtime import hip, hip_memory, host_memory

# k is said to have 700 rows, its memory holds 70.
OUT_OF_BOUNDS = """
import numpy as np
import pyfa_rocm as p
arrays = [p.DeviceArray.from_numpy(np.ones((1, n, 1, 128), np.float16)) for n in (700, 70, 700, 700)]
q, k, v, o = (p.Strided(x.data, *x.strides[:3]) for x in arrays)
try:
    p.fmha_fwd(p.FwdParams("float16", 1, 700, 700, 1, 1, 128, 128, 0.1, q, k, v, o))
    p.synchronize()
except p.HipError as error:
    print(k.data, error)
"""


def _run() -> subprocess.CompletedProcess[str]:
    return run(OUT_OF_BOUNDS, PYFA_ROCM_DEVICE="emulator")


def test_out_of_bounds(device_kind: str) -> None:
    """A read past an allocation ends the launch, naming kernel, pc, lane, address and what is nearest."""
    if device_kind == "gpu":
        pytest.skip("hardware reads what lies there")
    done = _run()
    assert done.returncode == 0, done.stderr
    address, message = done.stdout.split(" ", 1)
    assert "hip" in message
    for word in ("fmha_fwd_fp16_d128", "pc 0x", "lane", f"{int(address):#x}"):
        assert word in done.stderr, done.stderr


AFTER_A_FAULT = (
    OUT_OF_BOUNDS.rpartition("try:")[0]
    + """
from pyfa_rocm import emulator
from pyfa_rocm._runtime import host_memory

host = np.zeros(1024, np.uint8)

def on_host_memory():
    with host_memory.registered([(host.ctypes.data, host.nbytes)]):
        pass

def profile():
    with emulator.profile():
        pass

def fault():
    p.fmha_fwd(p.FwdParams("float16", 1, 700, 700, 1, 1, 128, 128, 0.1, q, k, v, o))

right = p.Strided(arrays[0].data, *arrays[0].strides[:3])

def call():
    p.fmha_fwd(p.FwdParams("float16", 1, 700, 700, 1, 1, 128, 128, 0.1, q, right, v, o))

operations = {
    "from_numpy": lambda: p.DeviceArray.from_numpy(np.ones(4)), "to_numpy": arrays[1].to_numpy,
    "synchronize": p.synchronize, "stream": lambda: p.Stream().synchronize(), "call": call,
    "on_host_memory": on_host_memory, "profile": profile,
}
for first in operations:
    fault()
    failures = []
    for name in (first, *operations, "synchronize"):
        try:
            operations[name]()
        except p.HipError:
            failures.append(name)
    print(first, len(failures))
"""
)


def test_a_fault_is_told_once(device_kind: str) -> None:
    """Whatever is done first after it; what is done next works."""
    if device_kind == "gpu":
        pytest.skip("hardware does not recover")
    told = dict(line.split() for line in ok(AFTER_A_FAULT, PYFA_ROCM_DEVICE="emulator").splitlines())
    names = ("from_numpy", "to_numpy", "synchronize", "stream", "call", "on_host_memory", "profile")
    assert told == dict.fromkeys(names, "1")


def _last_error() -> int:
    """HIP's last error of this thread, which another library would take for that of its own launch."""
    (status,) = hip.module().hipPeekAtLastError()
    hip.module().hipGetLastError()
    return int(status)


def _raising() -> None:
    with pytest.raises(p.HipError):
        hip.call("hipFree", 12)


def _allocation_that_makes_room() -> None:
    with pytest.raises(p.HipError, match="hipMalloc"):
        hip_memory.allocate(1 << 60, lambda: True)


def _stream_that_is_none() -> None:
    gone = p.Stream()
    handle = gone.handle
    gone.close()
    assert not hip_memory.is_capturing(handle)


def _memory_that_is_known() -> None:
    x = p.DeviceArray.empty((8,), "float32")
    with host_memory.registered([(x.data, x.nbytes)]):
        pass


@pytest.mark.parametrize(
    "fail", [_raising, _allocation_that_makes_room, _stream_that_is_none, _memory_that_is_known]
)
def test_nothing_is_left_in_the_last_error(fail: Callable[[], None]) -> None:
    p.current_device()
    _last_error()
    fail()
    assert _last_error() == 0


def test_room_that_was_made_leaves_no_error() -> None:
    """The first hipMalloc fails, the second works."""
    code = """
import pyfa_rocm as p
from pyfa_rocm._runtime import hip
kept = p.DeviceArray.empty((1000,), "uint8").nbytes
x = p.DeviceArray.empty((2000,), "uint8")
print(p.memory.kept_bytes, int(hip.module().hipPeekAtLastError()[0]))
"""
    assert ok(code, PYFA_ROCM_DEVICE="emulator", FMHA_EMU_FAIL_ALLOC="2") == "0 0"


def test_all_host_memory_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though HIP refuses one range."""
    if not p.runtime().emulated:
        pytest.skip("host memory is for the software device")
    host = np.zeros((3, 4096), np.uint8)
    ranges = [(row.ctypes.data, 64) for row in host]
    call = hip.call
    refused: list[tuple[object, ...]] = []

    def refuse_once(name: str, *args: object) -> object:
        result = call(name, *args)
        if name == "hipHostUnregister" and not refused:
            refused.append(args)
            raise p.HipError("refused")
        return result

    monkeypatch.setattr(hip, "call", refuse_once)
    with pytest.raises(p.HipError, match="refused"), host_memory.registered(ranges):
        pass
    for address, nbytes in ranges:
        assert host_memory._register(address, nbytes), "it was still registered"
        hip.call("hipHostUnregister", address)


def test_no_clock() -> None:
    """The software device has no constants of every card: that is an error, not a profile without times."""
    code = """
import pyfa_rocm as p
from pyfa_rocm import emulator
from pyfa_rocm._runtime import hip
try:
    with emulator.profile(timing=True):
        print("entered")
except p.HipError as error:
    print(error)
print(int(hip.module().hipPeekAtLastError()[0]))
"""
    text = ok(code, PYFA_ROCM_DEVICE="emulator", FMHA_EMU_CARD="AMD Instinct MI308X")
    assert "the clock has no constants of an AMD Instinct MI308X" in text
    assert text.splitlines()[-1] == "0"
