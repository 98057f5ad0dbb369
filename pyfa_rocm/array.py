# SPDX-License-Identifier: MIT OR Apache-2.0
"""DeviceArray: a small device array, for programs that have no framework."""

from __future__ import annotations

import functools
import math
import threading
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from pyfa_rocm import _dlpack, _hip
from pyfa_rocm._tensor import Tensor, contiguous_strides
from pyfa_rocm.device import current_device, synchronize, use_device
from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["DeviceArray", "MemoryStats", "bfloat16", "memory"]

bfloat16 = np.dtype(ml_dtypes.bfloat16)


@functools.cache
def _name_of(dtype: np.dtype[Any]) -> str:
    """dtype.name, which NumPy works out anew each time: too slow for the path of a call."""
    return str(dtype.name)


class MemoryStats:
    """Count of the device bytes that DeviceArrays hold, over all devices and threads.

    Attributes
    ----------
    live_bytes, peak_bytes : int
        Now, and the most since the last `reset_peak`. Sizes as asked for, without the allocator's rounding.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.live_bytes = 0
        self.peak_bytes = 0

    def add(self, nbytes: int) -> None:
        """Count an allocation (positive) or a release (negative)."""
        with self._lock:
            self.live_bytes += nbytes
            self.peak_bytes = max(self.peak_bytes, self.live_bytes)

    def reset_peak(self) -> None:
        """Forget the peak: it starts again from what is live now."""
        with self._lock:
            self.peak_bytes = self.live_bytes


memory = MemoryStats()


class _Buffer:
    """One allocation, freed when nothing refers to it any more."""

    def __init__(self, nbytes: int, device: int) -> None:
        self.nbytes = nbytes
        self.device = device
        # Stream of the last kernel this package wrote it with; None: nothing pending that we know of.
        self.written_on: int | None = None
        with use_device(device):
            pointer = _hip.call("hipMalloc", nbytes) if nbytes else None
        self.address = int(pointer) if pointer is not None else 0
        memory.add(nbytes)
        finalizer = weakref.finalize(self, _release, self.address, nbytes)
        # At exit the process gives all memory back; the runtime may be half gone by then.
        finalizer.atexit = False

    def settle(self, stream: int | None = None) -> None:
        """Make what was written readable: on the host and everywhere (None), or on a stream."""
        if self.written_on is not None and self.written_on != stream:
            # The stream may be gone by now, so the device is waited for, not the stream.
            synchronize(self.device)
            self.written_on = None


def _release(address: int, nbytes: int) -> None:
    memory.add(-nbytes)
    if address:
        _hip.call("hipFree", address)  # waits for the device, so a kernel still using it is safe


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
        Element type; bfloat16 is ml_dtypes'.
    device : int
        Index of the HIP device.
    data : int
        Device address of element 0.

    Examples
    --------
    >>> q = DeviceArray.from_numpy(np.ones((1, 128, 4, 64), np.float16))
    >>> q.transpose(0, 2, 1, 3).shape
    (1, 4, 128, 64)
    """

    def __init__(
        self,
        buffer: _Buffer,
        data: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> None:
        self._buffer = buffer
        self.data = data
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self._dtype_name = _name_of(dtype)

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: npt.DTypeLike, device: int | None = None) -> DeviceArray:
        """Allocate without initialising.

        Parameters
        ----------
        shape : tuple of int
            Sizes.
        dtype : dtype
            Element type, of fixed size; ``"bfloat16"`` is understood.
        device : int, optional
            Where; the current device by default.

        Raises
        ------
        InvalidArgumentError
            A size is negative, or the element type is not a number.
        HipError
            The device has not enough memory.
        """
        element = bfloat16 if isinstance(dtype, str) and dtype == "bfloat16" else np.dtype(dtype)
        if element != bfloat16 and element.kind not in "iufcb":
            raise InvalidArgumentError(f"dtype: got {element}, expected a type of numbers")
        shape = tuple(int(n) for n in shape)
        if any(n < 0 for n in shape):
            raise InvalidArgumentError(f"shape: got {shape}, expected no negative size")
        buffer = _Buffer(math.prod(shape) * element.itemsize, current_device() if device is None else device)
        return cls(buffer, buffer.address, shape, contiguous_strides(shape), element)

    @classmethod
    def from_numpy(cls, array: npt.ArrayLike, device: int | None = None) -> DeviceArray:
        """Copy a host array to the device, C-contiguous; it may be used on any stream when this returns."""
        host = np.ascontiguousarray(array)
        result = cls.empty(np.shape(array), host.dtype, device)
        if host.nbytes:
            kind = _hip.module().hipMemcpyKind.hipMemcpyHostToDevice
            with use_device(result.device):
                _hip.call("hipMemcpy", result.data, host.ctypes.data, host.nbytes, kind)
        return result

    def to_numpy(self) -> npt.NDArray[Any]:
        """Wait for all work on the device, and copy to the host, C-contiguous."""
        if self.size == 0:
            return np.empty(self.shape, self.dtype)
        # One copy of the range the elements span, then a strided view of it.
        span = 1 + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        host = np.empty(span, self.dtype)
        kind = _hip.module().hipMemcpyKind.hipMemcpyDeviceToHost
        with use_device(self.device):
            _hip.call("hipDeviceSynchronize")
            _hip.call("hipMemcpy", host.ctypes.data, self.data, host.nbytes, kind)
        byte_strides = tuple(s * self.dtype.itemsize for s in self.strides)
        return np.array(np.lib.stride_tricks.as_strided(host, self.shape, byte_strides))

    @property
    def device(self) -> int:
        """Index of the HIP device."""
        return self._buffer.device

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
        """Bytes of the elements, whatever lies between them."""
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"DeviceArray(shape={self.shape}, dtype={self.dtype}, device={self.device})"

    def transpose(self, *axes: int) -> DeviceArray:
        """View with its dimensions permuted, as ``numpy.ndarray.transpose``."""
        if sorted(axes) != list(range(self.ndim)):
            raise InvalidArgumentError(f"axes: got {axes}, expected a permutation of 0 to {self.ndim - 1}")
        shape = tuple(self.shape[a] for a in axes)
        strides = tuple(self.strides[a] for a in axes)
        return DeviceArray(self._buffer, self.data, shape, strides, self.dtype)

    def reshape(self, *shape: int) -> DeviceArray:
        """View of a contiguous array in another shape of as many elements."""
        if self.strides != contiguous_strides(self.shape) or math.prod(shape) != self.size:
            raise InvalidArgumentError(
                f"shape: got {shape} for {self!r} with strides {self.strides}, expected a contiguous array "
                "and as many elements"
            )
        return DeviceArray(self._buffer, self.data, shape, contiguous_strides(shape), self.dtype)

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
        data = self.data + offset * self.dtype.itemsize
        return DeviceArray(self._buffer, data, tuple(shape), tuple(strides), self.dtype)

    def mark_written(self, stream: int) -> None:
        """Say that work which writes this array has been enqueued on a stream."""
        self._buffer.written_on = stream

    def __pyfa_rocm_tensor__(self) -> Tensor:
        return Tensor(
            self.data, self.shape, self.strides, self._dtype_name, self._buffer.device, False, self._buffer
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return _dlpack.ROCM, self.device

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
        versioned = max_version is not None and max_version[0] >= _dlpack.VERSION[0]
        return _dlpack.make_capsule(
            self.data, self.shape, self.strides, self.dtype.name, self.device,
            versioned=versioned, owner=self._buffer,
        )  # fmt: skip

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Version 3; waits for pending writes. bfloat16 has no type string there: AttributeError."""
        if self.dtype == bfloat16:
            raise AttributeError("__cuda_array_interface__ cannot say bfloat16: use __dlpack__")
        self._buffer.settle()
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.data, False),
            "strides": tuple(s * self.dtype.itemsize for s in self.strides),
            "stream": None,
        }
