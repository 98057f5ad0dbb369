# SPDX-License-Identifier: MIT OR Apache-2.0
"""The HIP API: through hip-python in a process of its own, and the corners of memory and errors by ctypes."""

from __future__ import annotations

import ctypes as c
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from ..support import hip, rows
from ..support.asm import Kernel, assemble
from ..support.streams import ADD_ONE
from ..support.toolchain import emulator_path

_HIP_PYTHON = r"""
import array, ctypes, sys
from hip import hip

def ok(result):
    error, *values = result if isinstance(result, tuple) else (result,)
    assert error == hip.hipError_t.hipSuccess, error
    return values[0] if len(values) == 1 else values

ok(hip.hipInit(0))
assert ok(hip.hipGetDeviceCount()) >= 1
properties = ok(hip.hipGetDeviceProperties(0))
product, arch = sys.argv[2:]
assert properties.name == f"Emulated AMD Instinct {product} ({arch})", properties.name
assert str(properties.gcnArchName).startswith(arch), properties.gcnArchName
assert properties.warpSize == 64 and properties.multiProcessorCount > 0
assert properties.totalGlobalMem > 1 << 30
assert properties.maxThreadsPerBlock == 1024 and properties.sharedMemPerBlock == 65536
assert ok(hip.hipDeviceGetAttribute(hip.hipDeviceAttribute_t.hipDeviceAttributeWarpSize, 0)) == 64
assert ok(hip.hipRuntimeGetVersion()) > 0 and ok(hip.hipDriverGetVersion()) > 0
ok(hip.hipSetDevice(0))
assert ok(hip.hipGetDevice()) == 0
free, total = ok(hip.hipMemGetInfo())
assert 0 < free <= total

host = array.array("f", range(256))
back = array.array("f", [0.0] * 256)
size = 1024
memory = ok(hip.hipMalloc(size))
stream = ok(hip.hipStreamCreate())
ok(hip.hipMemcpyAsync(memory, host, size, hip.hipMemcpyKind.hipMemcpyHostToDevice, stream))
ok(hip.hipStreamSynchronize(stream))
ok(hip.hipMemcpy(back, memory, size, hip.hipMemcpyKind.hipMemcpyDeviceToHost))
assert back == host
ok(hip.hipMemset(memory, 0, size))
ok(hip.hipMemcpy(back, memory, size, hip.hipMemcpyKind.hipMemcpyDeviceToHost))
assert not any(back)

start, stop = ok(hip.hipEventCreate()), ok(hip.hipEventCreate())
ok(hip.hipEventRecord(start, stream))

image = open(sys.argv[1], "rb").read()
module = ok(hip.hipModuleLoadData(image))
function = ok(hip.hipModuleGetFunction(module, b"add_one"))
pointer = ctypes.c_void_p(int(memory))
ok(hip.hipMemcpy(memory, host, size, hip.hipMemcpyKind.hipMemcpyHostToDevice))
ok(hip.hipModuleLaunchKernel(function, gridDimX=4, gridDimY=1, gridDimZ=1, blockDimX=64,
                             blockDimY=1, blockDimZ=1, sharedMemBytes=0, stream=stream,
                             kernelParams=None, extra=(pointer,)))
ok(hip.hipEventRecord(stop, stream))
ok(hip.hipEventSynchronize(stop))
assert ok(hip.hipEventElapsedTime(start, stop)) >= 0
ok(hip.hipStreamSynchronize(stream))
ok(hip.hipMemcpy(back, memory, size, hip.hipMemcpyKind.hipMemcpyDeviceToHost))
assert list(back) == [x + 1 for x in host], list(back)[:4]
ok(hip.hipModuleUnload(module))
for destroy, handle in ((hip.hipEventDestroy, start), (hip.hipEventDestroy, stop), (hip.hipFree, memory)):
    ok(destroy(handle))
ok(hip.hipStreamDestroy(stream))
assert str(ok(hip.hipGetErrorName(hip.hipError_t.hipErrorOutOfMemory))) == "hipErrorOutOfMemory"
print("hip-python works")
"""

pytestmark = pytest.mark.usefixtures("rocm")


def _add_one() -> bytes:
    return assemble([Kernel("add_one", ADD_ONE, args=((0, 8, "global_buffer"),))])


def test_hip_python(tmp_path: Path) -> None:
    """`from hip import hip` on the software device, unchanged: found only by the loader's path."""
    image = tmp_path / "add_one.co"
    image.write_bytes(_add_one())
    env = os.environ | {
        "LD_LIBRARY_PATH": f"{emulator_path().parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    }
    for name in ("ROCM_PATH", "ROCM_HOME", "HIP_PATH"):
        env.pop(name, None)
    product = "MI300X" if rows.arch() == "gfx942" else "MI250X"
    done = subprocess.run(
        [sys.executable, "-c", _HIP_PYTHON, str(image), product, rows.arch()],
        capture_output=True,
        text=True,
        env=env,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hip-python works" in done.stdout


def test_sonames() -> None:
    """One file under every name a consumer asks the loader for."""
    folder = emulator_path().parent
    targets = {
        (folder / name).resolve()
        for name in ("libamdhip64.so", "libamdhip64.so.5", "libamdhip64.so.6", "libamdhip64.so.7")
    }
    assert len(targets) == 1


@pytest.mark.parametrize(("offset", "count"), [(0, 257), (128, 129), (256, 1), (300, 4)])
def test_copy_out_of_bounds(offset: int, count: int) -> None:
    """A copy that leaves its allocation is refused in both directions."""
    buffer = hip.Buffer(256)
    host = (c.c_uint8 * 512)()
    device = c.c_void_p(buffer.address + offset)
    for args in ((host, device, 2), (device, host, 1)):
        with pytest.raises(hip.HipError):
            hip.call("hipMemcpy", args[0], args[1], c.c_size_t(count), c.c_int(args[2]))
    buffer.free()


def test_memset_out_of_bounds() -> None:
    """So is a fill."""
    buffer = hip.Buffer(256)
    with pytest.raises(hip.HipError):
        hip.call("hipMemset", c.c_void_p(buffer.address), c.c_int(1), c.c_size_t(257))
    buffer.free()


def test_free_twice() -> None:
    """The second free fails; so does one of an inner pointer; of null it succeeds."""
    buffer = hip.Buffer(256)
    with pytest.raises(hip.HipError):
        hip.call("hipFree", c.c_void_p(buffer.address + 16))
    buffer.free()
    with pytest.raises(hip.HipError):
        buffer.free()
    hip.call("hipFree", None)


class _Attributes(c.Structure):
    # hipPointerAttribute_t of HIP 6: type, device, devicePointer, hostPointer, isManaged, allocationFlags.
    _fields_ = [
        ("type", c.c_int),
        ("device", c.c_int),
        ("device_pointer", c.c_void_p),
        ("host_pointer", c.c_void_p),
        ("is_managed", c.c_int),
        ("flags", c.c_uint),
    ]


def test_pointer_attributes() -> None:
    """Device memory is known also by an inner pointer; a plain host pointer is not device memory."""
    buffer = hip.Buffer(4096)
    attributes = _Attributes()
    hip.call("hipPointerGetAttributes", c.byref(attributes), c.c_void_p(buffer.address + 100))
    assert (attributes.type, attributes.device) == (2, 0)
    assert attributes.device_pointer == buffer.address + 100
    buffer.free()
    host = np.zeros(64, np.uint8)
    code = hip.lib().hipPointerGetAttributes(c.byref(attributes), c.c_void_p(host.ctypes.data))
    hip.lib().hipGetLastError()
    assert code != 0 or attributes.type == 0


def test_host_memory_is_reachable() -> None:
    """hipHostMalloc and hipHostRegister make host memory legal for kernels; unregistering ends it."""
    module = hip.Module(_add_one())
    pointer = c.c_void_p()
    hip.call("hipHostMalloc", c.byref(pointer), c.c_size_t(256), c.c_uint(0))
    view = np.ctypeslib.as_array(c.cast(pointer, c.POINTER(c.c_float)), (64,))
    view[:] = 3
    module.launch("add_one", struct.pack("<Q", pointer.value or 0))
    assert (view == 4).all()
    hip.call("hipHostFree", pointer)
    array = np.full(64, 5, np.float32)
    address = c.c_void_p(array.ctypes.data)
    hip.call("hipHostRegister", address, c.c_size_t(256), c.c_uint(0))
    module.launch("add_one", struct.pack("<Q", array.ctypes.data))
    assert (array == 6).all()
    hip.call("hipHostUnregister", address)
    with pytest.raises(hip.HipError):
        module.launch("add_one", struct.pack("<Q", array.ctypes.data))
    hip.recover()
    module.unload()


@pytest.mark.parametrize(
    ("grid", "block"),
    [((1, 1, 1), (1025, 1, 1)), ((1, 1, 1), (32, 32, 2)), ((0, 1, 1), (64, 1, 1)), ((1, 1, 1), (0, 1, 1))],
)
def test_bad_launch(grid: tuple[int, int, int], block: tuple[int, int, int]) -> None:
    """Sizes that no device takes."""
    module = hip.Module(_add_one())
    with pytest.raises(hip.HipError):
        module.launch("add_one", struct.pack("<Q", hip.Buffer(1024).address), grid, block)
    module.unload()


def test_too_much_memory() -> None:
    """More than the device has: error 2, and the message of it."""
    with pytest.raises(hip.HipError) as caught:
        hip.Buffer(1 << 50)
    assert caught.value.code == 2
    assert hip.lib().hipGetErrorName(2) == b"hipErrorOutOfMemory"


def test_threads() -> None:
    """Eight threads that allocate, load, run and free at once."""
    image = _add_one()
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for i in range(10):
                module = hip.Module(image)
                values = np.random.default_rng(seed + i).normal(size=256).astype(np.float32)
                buffer = hip.Buffer.of(values)
                module.launch("add_one", struct.pack("<Q", buffer.address), (4, 1, 1))
                np.testing.assert_array_equal(buffer.read(np.float32), values + np.float32(1))
                buffer.free()
                module.unload()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(100 * i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors, errors[0]
