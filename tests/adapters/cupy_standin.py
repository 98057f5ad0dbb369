# SPDX-License-Identifier: MIT OR Apache-2.0
"""A stand-in for CuPy on ROCm, which cannot be installed without it: the public interface that matters to us.

`cupy.cuda.Stream` and `get_current_stream`, and arrays with `__dlpack__` and `__cuda_array_interface__`, as
CuPy's documentation has them: a thread has a current stream for each device, work is enqueued there, and an
exported array is ordered for its consumer from there. Memory and streams are the software device's.
"""

from __future__ import annotations

import threading
import types
from typing import Any

import numpy as np

from pyfa_rocm import DeviceArray
from pyfa_rocm._runtime import hip

_local = threading.local()


class Stream:
    """`cupy.cuda.Stream`."""

    null: Stream

    def __init__(self, null: bool = False, non_blocking: bool = False) -> None:
        flags = hip.module().hipStreamNonBlocking if non_blocking else 0
        self.ptr = 0 if null else int(hip.call("hipStreamCreateWithFlags", flags))

    def use(self) -> Stream:
        _local.current = self
        return self

    def __enter__(self) -> Stream:
        self._previous = get_current_stream()
        return self.use()

    def __exit__(self, *exception: object) -> None:
        self._previous.use()

    def synchronize(self) -> None:
        hip.call("hipStreamSynchronize", self.ptr)


def get_current_stream(device_id: int = -1) -> Stream:
    """`cupy.cuda.get_current_stream`. The device is the only one here, or the current one."""
    assert device_id in (-1, 0)
    current: Stream = getattr(_local, "current", Stream.null)
    return current


class ndarray:  # noqa: N801
    """`cupy.ndarray`; its memory is a DeviceArray's."""

    def __init__(self, memory: DeviceArray) -> None:
        self._memory = memory
        self.shape, self.dtype = memory.shape, memory.dtype
        self.strides = tuple(s * memory.dtype.itemsize for s in memory.strides)
        self.device = types.SimpleNamespace(id=memory.device)

    def set(self, host: np.ndarray) -> None:
        """Copy from the host; enqueued on the current stream."""
        kind = hip.module().hipMemcpyKind.hipMemcpyHostToDevice
        stream = get_current_stream().ptr
        hip.call("hipMemcpyAsync", self._memory.data, host.ctypes.data, host.nbytes, kind, stream)

    def __getitem__(self, key: Any) -> ndarray:
        return ndarray(self._memory[key])

    def transpose(self, *axes: int) -> ndarray:
        return ndarray(self._memory.transpose(*axes))

    def __dlpack_device__(self) -> tuple[int, int]:
        return 10, self.device.id

    def __dlpack__(self, *, stream: int | None = None, max_version: Any = None) -> object:
        if stream in (1, 2):
            raise ValueError("On ROCm/HIP, stream 1 and 2 are not supported")
        current = get_current_stream().ptr
        if stream != -1 and (stream or 0) != current:
            event = hip.call("hipEventCreate")
            hip.call("hipEventRecord", event, current)
            hip.call("hipStreamWaitEvent", stream or 0, event, 0)
            hip.call("hipEventDestroy", event)
        return self._memory.__dlpack__(stream=-1, max_version=max_version)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        # Version 3 has no 0 for a stream: the null stream is 1.
        return self._memory.__cuda_array_interface__ | {"stream": get_current_stream().ptr or 1}


def asnumpy(array: ndarray) -> np.ndarray:
    get_current_stream().synchronize()
    return array._memory.to_numpy()


def empty(shape: tuple[int, ...], dtype: Any) -> ndarray:
    return ndarray(DeviceArray.from_numpy(np.zeros(shape, dtype)))


def module() -> types.ModuleType:
    """Return it as the module `cupy`, its array type under CuPy's own name for its home."""
    Stream.null = Stream(null=True)
    ndarray.__module__ = "cupy._core.core"
    cupy = types.ModuleType("cupy")
    cuda = types.SimpleNamespace(Stream=Stream, get_current_stream=get_current_stream)
    vars(cupy).update(cuda=cuda, ndarray=ndarray, asnumpy=asnumpy, empty=empty)
    return cupy
