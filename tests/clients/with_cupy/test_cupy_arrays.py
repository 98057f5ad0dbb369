# SPDX-License-Identifier: MIT OR Apache-2.0
"""CuPy for ROCm: arrays, streams, events, pools, its own kernels, modules of ours, and DLPack both ways."""

from __future__ import annotations

import gc
import os
import subprocess
from pathlib import Path
from typing import Any

import cupy
import numpy as np
import pytest
from clients.rounding import U32

import pyfa_rocm

SOURCE = r"""
#ifndef __HIPCC_RTC__
#include <hip/hip_runtime.h>
#endif
extern "C" __constant__ float factor[2] = {2.0f, 0.5f};
extern "C" __global__ void axpy(int n, float a, const float *x, float *y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + factor[1] * y[i];
}
extern "C" __global__ void reversed(const int *x, int *y) {
  extern __shared__ int kept[];
  kept[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}
"""


def arch() -> str:
    return str(cupy.cuda.runtime.getDeviceProperties(0)["gcnArchName"].decode().partition(":")[0])


def test_the_device() -> None:
    """It is the emulated one, as the release of ROCm that the wheel was built for."""
    assert "Emulated" in cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    assert cupy.cuda.runtime.runtimeGetVersion() // 10_000_000 == 7
    assert arch() == os.environ.get("FMHA_EMU_ARCH", "gfx942")
    assert pyfa_rocm.runtime().emulated


def test_elementwise_and_broadcasting() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((7, 33)).astype(np.float32), rng.standard_normal(33).astype(np.float32)
    a, b = cupy.asarray(x), cupy.asarray(y)
    np.testing.assert_array_equal((a + b).get(), x + y)
    np.testing.assert_array_equal(cupy.where(a > b, a, b)[::2, 1:].get(), np.where(x > y, x, y)[::2, 1:])
    np.testing.assert_array_equal(a.T.astype(np.int32).get(), x.T.astype(np.int32))
    exact = np.exp(x.astype(np.float64))
    # HIP's own table of math functions gives expf 1 ulp.
    assert np.all(np.abs(cupy.exp(a).get() - exact) <= 2 * 2 * U32 * exact)


def test_reductions_and_order() -> None:
    x = np.random.default_rng(1).integers(-1000, 1000, (5, 700))
    a = cupy.asarray(x)
    for name in ("sum", "min", "max", "argmax"):
        np.testing.assert_array_equal(getattr(a, name)(axis=1).get(), getattr(x, name)(axis=1))
    np.testing.assert_array_equal(cupy.sort(a, axis=1).get(), np.sort(x, 1))
    np.testing.assert_array_equal(cupy.cumsum(a[0]).get(), np.cumsum(x[0]))
    np.testing.assert_array_equal(cupy.unique(a).get(), np.unique(x))


def test_user_kernels() -> None:
    square = cupy.ElementwiseKernel("float32 x", "float32 y", "y = x * x", "square")
    length = cupy.ReductionKernel("int64 x", "int64 y", "x * x", "a + b", "y = a", "0", "length")
    x = np.arange(-50, 50)
    np.testing.assert_array_equal(square(cupy.asarray(x, np.float32)).get(), (x * x).astype(np.float32))
    assert length(cupy.asarray(x)).get() == (x * x).sum()


def check_module(module: cupy.RawModule) -> None:
    x, y = (np.random.default_rng(n).integers(-8, 8, 300).astype(np.float32) for n in (0, 1))
    a, b = cupy.asarray(x), cupy.asarray(y)
    module.get_function("axpy")((3,), (128,), (np.int32(300), np.float32(3), a, b))
    np.testing.assert_array_equal(b.get(), 3 * x + y / 2)
    # A variable of the module: its address is memory that CuPy can write.
    factor = cupy.ndarray((2,), np.float32, module.get_global("factor"))
    np.testing.assert_array_equal(factor.get(), [2, 0.5])
    factor.set(np.array([0, 1], np.float32))
    module.get_function("axpy")((3,), (128,), (np.int32(300), np.float32(-3), a, b))
    np.testing.assert_array_equal(b.get(), y / 2)
    order = cupy.asarray(np.arange(64, dtype=np.int32))
    out = cupy.empty_like(order)
    module.get_function("reversed")((1,), (64,), (order, out), shared_mem=256)
    np.testing.assert_array_equal(out.get(), np.arange(64)[::-1])


def test_raw_module_of_source() -> None:
    check_module(cupy.RawModule(code=SOURCE))


def test_raw_module_of_a_code_object(tmp_path: Path) -> None:
    (tmp_path / "source.hip").write_text(SOURCE)
    command = ["hipcc", "-O2", "--cuda-device-only", "--no-gpu-bundle-output", f"--offload-arch={arch()}"]
    subprocess.run([*command, "source.hip", "-o", "module.co"], cwd=tmp_path, check=True)
    check_module(cupy.RawModule(path=str(tmp_path / "module.co")))


def test_a_bad_launch_is_an_error() -> None:
    """A finding of the device is CuPy's exception, and the next launch works."""
    wild = cupy.RawKernel('extern "C" __global__ void wild(int *p) { p[1 << 20] = 1; }', "wild")
    wild((1,), (1,), (cupy.zeros(4, np.int32),))
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="hipErrorIllegalAddress"):
        cupy.cuda.Device().synchronize()
    assert cupy.arange(10).sum().get() == 45


def test_streams_and_events() -> None:
    first, second = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    with first:
        begin.record()
        x = cupy.arange(1000)
        for _ in range(20):
            x = x + 1
        end.record()
    second.wait_event(end)
    with second:
        y = x * 2
    second.synchronize()
    assert end.done
    assert first.done
    assert cupy.cuda.get_elapsed_time(begin, end) > 0
    np.testing.assert_array_equal(y.get(), (np.arange(1000) + 20) * 2)
    called: list[str] = []
    second.launch_host_func(called.append, "host")
    second.synchronize()
    assert called == ["host"]


def test_graph() -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        x = cupy.zeros(100, np.float32)
        x += 1  # compiled before it is captured
        stream.synchronize()
        stream.begin_capture()
        x += 1
        x *= 2
        graph = stream.end_capture()
        assert x[0].get() == 1
        for _ in range(3):
            graph.launch(stream)
        stream.synchronize()
        np.testing.assert_array_equal(x.get(), np.full(100, ((1 + 1) * 2 + 1) * 2 * 2 + 2, np.float32))


def test_pool() -> None:
    """A block that is freed is used again, and goes back to the device when it is asked for."""
    before, pool = cupy.cuda.get_allocator(), cupy.cuda.MemoryPool()
    cupy.cuda.set_allocator(pool.malloc)
    try:
        x = cupy.full(1 << 16, 7, np.int32)
        used, address = pool.used_bytes(), x.data.ptr
        assert used >= x.nbytes
        np.testing.assert_array_equal(x.get(), 7)
        del x
        gc.collect()
        cupy.cuda.Stream.null.synchronize()
        assert pool.used_bytes() == 0
        assert pool.total_bytes() >= used
        again = cupy.empty(1 << 16, np.int32)
        assert again.data.ptr == address
        del again
        cupy.cuda.Stream.null.synchronize()
        pool.free_all_blocks()
        assert pool.total_bytes() == 0
    finally:
        cupy.cuda.set_allocator(before)


def test_pinned_and_managed_memory() -> None:
    pinned = np.frombuffer(cupy.cuda.alloc_pinned_memory(400), np.float32, 100)
    pinned[:] = np.arange(100)
    stream = cupy.cuda.Stream(non_blocking=True)
    x = cupy.empty(100, np.float32)
    x.set(pinned, stream)
    stream.synchronize()
    np.testing.assert_array_equal(x.get(), pinned)
    managed = cupy.ndarray(100, np.float32, cupy.cuda.malloc_managed(400))
    managed[...] = x * 2
    np.testing.assert_array_equal(managed.get(), pinned * 2)


def test_peers() -> None:
    if cupy.cuda.runtime.getDeviceCount() == 1:
        return
    x = cupy.arange(10)
    with cupy.cuda.Device(1):
        y = cupy.asarray(x) + 1
        assert y.device.id == 1
        np.testing.assert_array_equal(y.get(), np.arange(1, 11))


def test_dlpack_to_pyfa_rocm() -> None:
    """The same memory, with CuPy's strides."""
    host = np.random.default_rng(5).standard_normal((2, 3, 40, 4, 64)).astype(np.float16)
    x = cupy.asarray(host)[:, :, ::2, 1:]
    q, k, v = (x[:, n] for n in range(3))
    out = pyfa_rocm.flash_attn_func(q, k, v, causal=True)
    copies = [pyfa_rocm.DeviceArray.from_numpy(np.ascontiguousarray(a.get())) for a in (q, k, v)]
    same: Any = pyfa_rocm.flash_attn_func(copies[0], copies[1], copies[2], causal=True)
    np.testing.assert_array_equal(cupy.from_dlpack(out).get(), same.to_numpy())


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32])
def test_dlpack_from_pyfa_rocm(dtype: type) -> None:
    host: np.ndarray = np.arange(24).reshape(4, 6).astype(dtype)
    array = pyfa_rocm.DeviceArray.from_numpy(host)
    x = cupy.from_dlpack(array)
    assert x.data.ptr == array.data
    x += 1
    np.testing.assert_array_equal(array.to_numpy(), host + 1)
    del array
    gc.collect()
    np.testing.assert_array_equal(x.get(), host + 1)  # CuPy's array keeps the memory
