# SPDX-License-Identifier: MIT OR Apache-2.0
"""DeviceArray: a small device array, for programs that have no framework."""

from __future__ import annotations

import functools
import math
import sys
import threading
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from pyfa_rocm._runtime import dlpack, hip
from pyfa_rocm._runtime.tensor import Layout, Tensor, contiguous, contiguous_strides, layout_of
from pyfa_rocm.device import current_device, enter_device, leave_device, synchronize, use_device
from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["DeviceArray", "MemoryStats", "bfloat16", "float8_e4m3fnuz", "memory"]

bfloat16 = np.dtype(ml_dtypes.bfloat16)
float8_e4m3fnuz = np.dtype(ml_dtypes.float8_e4m3fnuz)
# Types that NumPy does not know by name, nor as numbers.
_EXTRA_DTYPES = {"bfloat16": bfloat16, "float8_e4m3fnuz": float8_e4m3fnuz}


@functools.cache
def _name_of(dtype: np.dtype[Any]) -> str:
    """dtype.name, which NumPy works out anew each time: too slow for the path of a call."""
    return str(dtype.name)


@functools.cache
def dtype_of(name: str) -> np.dtype[Any]:
    """Return the type of a name, ml_dtypes' names included."""
    return _EXTRA_DTYPES[name] if name in _EXTRA_DTYPES else np.dtype(name)


class MemoryStats:
    """Count of the device bytes that DeviceArrays hold, over all devices and threads.

    Attributes
    ----------
    live_bytes, peak_bytes : int
        Now, and the most since the last `reset_peak`. Sizes as asked for, without the allocator's rounding.
    """

    __slots__ = ("_lock", "live_bytes", "peak_bytes")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.live_bytes = 0
        self.peak_bytes = 0

    def add(self, nbytes: int) -> None:
        """Count an allocation (positive) or a release (negative)."""
        with self._lock:
            live = self.live_bytes = self.live_bytes + nbytes
            if live > self.peak_bytes:
                self.peak_bytes = live

    def reset_peak(self) -> None:
        """Forget the peak: it starts again from what is live now."""
        with self._lock:
            self.peak_bytes = self.live_bytes


memory = MemoryStats()


class _Buffer:
    """One allocation, freed when nothing refers to it any more."""

    __slots__ = ("address", "device", "nbytes", "written_on")

    def __init__(self, nbytes: int, device: int) -> None:
        self.nbytes = self.address = 0
        self.device = device
        # Stream of the last kernel this package wrote it with; None: nothing pending that we know of.
        self.written_on: int | None = None
        if nbytes:
            if dlpack.lent:
                dlpack.take_back()
            previous = enter_device(device)
            try:
                self.address = hip.allocate(nbytes)
            finally:
                leave_device(previous)
            self.nbytes = nbytes
            memory.add(nbytes)

    # At exit the process gives all memory back; the runtime, and this module, may be half gone by then.
    def __del__(self, exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        if self.address and not exiting():
            memory.add(-self.nbytes)
            hip.free(self.address)  # waits for the device, so a kernel still using it is safe

    def settle(self, stream: int | None = None) -> None:
        """Make what was written readable: on the host and everywhere (None), or on a stream."""
        if self.written_on is not None and self.written_on != stream:
            # The stream may be gone by now, so the device is waited for, not the stream.
            synchronize(self.device)
            self.written_on = None


def copy_to_host(data: int, layout: Layout) -> npt.NDArray[Any]:
    """Wait for all work on the device of a tensor, and copy it to the host, C-contiguous."""
    shape, strides, dtype = layout.shape, layout.strides, dtype_of(layout.dtype)
    if 0 in shape:
        return np.empty(shape, dtype)
    # One copy of the range the elements span, then a strided view of it.
    span = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    host = np.empty(span, dtype)
    kind = hip.module().hipMemcpyKind.hipMemcpyDeviceToHost
    with use_device(layout.device):
        hip.call("hipDeviceSynchronize")
        hip.call("hipMemcpy", host.ctypes.data, data, host.nbytes, kind)
    return np.array(np.lib.stride_tricks.as_strided(host, shape, tuple(s * dtype.itemsize for s in strides)))


class DeviceArray:
    """An array in device memory, strided, with views by slicing.

    Made by `from_numpy` or `empty`. Any framework takes it without a copy through DLPack
    (``torch.from_dlpack(array)``) or ``__cuda_array_interface__``. The memory is given back when the last
    view of it is gone; giving back waits for the device (hipFree does), so kernels still running on it are
    safe.

    Attributes
    ----------
    shape, strides : tuple of int
        Sizes, and strides in elements.
    dtype : numpy.dtype
        Element type; bfloat16 and float8_e4m3fnuz are ml_dtypes'.
    device : int
        Index of the HIP device.
    data : int
        Device address of element 0.
    layout : Layout
        All of the above but the address, in one object.

    Examples
    --------
    >>> q = DeviceArray.from_numpy(np.ones((1, 128, 4, 64), np.float16))
    >>> q.transpose(0, 2, 1, 3).shape
    (1, 4, 128, 64)
    """

    __slots__ = ("__weakref__", "_buffer", "data", "dtype", "layout")

    def __init__(self, buffer: _Buffer, data: int, layout: Layout, dtype: np.dtype[Any]) -> None:
        self._buffer = buffer
        self.data = data
        self.layout = layout
        self.dtype = dtype

    def _view(self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> DeviceArray:
        """Return other elements of the same memory, the first of them `offset` elements from this one's."""
        layout = layout_of(shape, strides, self.layout.dtype, self._buffer.device)
        return DeviceArray(self._buffer, self.data + offset * self.dtype.itemsize, layout, self.dtype)

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: npt.DTypeLike, device: int | None = None) -> DeviceArray:
        """Allocate without initialising.

        Parameters
        ----------
        shape : tuple of int
            Sizes.
        dtype : dtype
            Element type, of fixed size; ``"bfloat16"`` and ``"float8_e4m3fnuz"`` are understood.
        device : int, optional
            Where; the current device by default.

        Raises
        ------
        InvalidArgumentError
            A size is negative, or the element type is not a number.
        HipError
            The device has not enough memory.
        """
        element = dtype_of(dtype) if isinstance(dtype, str) else np.dtype(dtype)
        if element.kind not in "iufcb" and _name_of(element) not in _EXTRA_DTYPES:
            raise InvalidArgumentError(f"dtype: got {element}, expected a type of numbers")
        shape = tuple(int(n) for n in shape)
        if any(n < 0 for n in shape):
            raise InvalidArgumentError(f"shape: got {shape}, expected no negative size")
        device = current_device() if device is None else device
        return cls.allocate(contiguous(shape, _name_of(element), device))

    @classmethod
    def allocate(cls, layout: Layout) -> DeviceArray:
        """Allocate without initialising and without checking: a C-contiguous layout made by `layout_of`."""
        dtype = dtype_of(layout.dtype)
        buffer = _Buffer(math.prod(layout.shape) * dtype.itemsize, layout.device)
        return cls(buffer, buffer.address, layout, dtype)

    @classmethod
    def from_numpy(cls, array: npt.ArrayLike, device: int | None = None) -> DeviceArray:
        """Copy a host array to the device, C-contiguous; it may be used on any stream when this returns."""
        host = np.ascontiguousarray(array)
        result = cls.empty(np.shape(array), host.dtype, device)
        if host.nbytes:
            kind = hip.module().hipMemcpyKind.hipMemcpyHostToDevice
            with use_device(result.device):
                hip.call("hipMemcpy", result.data, host.ctypes.data, host.nbytes, kind)
        return result

    def to_numpy(self) -> npt.NDArray[Any]:
        """Wait for all work on the device, and copy to the host, C-contiguous."""
        return copy_to_host(self.data, self.layout)

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""
        return self.layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides in elements."""
        return self.layout.strides

    @property
    def device(self) -> int:
        """Index of the HIP device."""
        return self.layout.device

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, without the gaps between them."""
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, device={self.device})"

    def transpose(self, *axes: int) -> DeviceArray:
        """View with its dimensions permuted, as ``numpy.ndarray.transpose``."""
        if sorted(axes) != list(range(self.ndim)):
            raise InvalidArgumentError(f"axes: got {axes}, expected a permutation of 0 to {self.ndim - 1}")
        shape = tuple(self.shape[a] for a in axes)
        strides = tuple(self.strides[a] for a in axes)
        return self._view(0, shape, strides)

    def reshape(self, *shape: int) -> DeviceArray:
        """View of a contiguous array in another shape of as many elements."""
        if self.strides != contiguous_strides(self.shape) or math.prod(shape) != self.size:
            raise InvalidArgumentError(
                f"shape: got {shape} for {self!r} with strides {self.strides}, expected a contiguous array "
                "and as many elements"
            )
        return self._view(0, shape, contiguous_strides(shape))

    def __getitem__(self, key: slice | int | tuple[slice | int, ...]) -> DeviceArray:
        """View by integers and slices with a positive step, as in NumPy."""
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) > self.ndim:
            raise IndexError(f"got {len(keys)} indices, expected at most {self.ndim}")
        offset, shape, strides = 0, [], []
        for dim, (n, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            item = keys[dim] if dim < len(keys) else slice(None)
            if isinstance(item, slice):
                start, stop, step = item.indices(n)
                if step < 0:
                    raise IndexError(f"index {dim}: got step {step}, expected a positive one")
                shape.append(max(0, -(-(stop - start) // step)))
                strides.append(stride * step)
                offset += start * stride if shape[-1] else 0
            else:
                if not -n <= item < n:
                    raise IndexError(f"index {dim}: got {item}, expected less than {n}")
                offset += item % n * stride
        return self._view(offset, tuple(shape), tuple(strides))

    def mark_written(self, stream: int) -> None:
        """Say that work which writes this array has been enqueued on a stream."""
        self._buffer.written_on = stream

    def __pyfa_rocm_tensor__(self) -> Tensor:
        return Tensor(self.data, self.layout, False, self._buffer)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.ROCM, self.device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object:
        """Lend the array as a DLPack capsule, as the Python array API standard says for ROCm.

        Pending writes are ordered before the consumer's stream: nothing to do on the stream they were
        enqueued on, else the device is waited for.
        """
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"dl_device: got {tuple(dl_device)}, expected {self.__dlpack_device__()}")
        if copy:
            raise BufferError("copy: got True, expected None or False: exports do not copy")
        if stream != -1:
            self._buffer.settle(stream or 0)
        version = None if max_version is None else (int(max_version[0]), int(max_version[1]))
        return dlpack.make_capsule(
            self.data, self.shape, self.strides, self.layout.dtype, self.device,
            max_version=version, owner=self._buffer,
        )  # fmt: skip

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3; waits for pending writes. AttributeError for types that have no type string there."""
        if self.layout.dtype in _EXTRA_DTYPES:
            raise AttributeError(f"__cuda_array_interface__ cannot say {self.layout.dtype}: use __dlpack__")
        self._buffer.settle()
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.data, False),
            "strides": tuple(s * self.dtype.itemsize for s in self.strides),
            "stream": None,
        }
