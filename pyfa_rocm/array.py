# SPDX-License-Identifier: MIT OR Apache-2.0
"""A small device array, for programs without a framework."""

from __future__ import annotations

import functools
import math
import operator
from types import EllipsisType
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from pyfa_rocm._runtime import dlpack, hip
from pyfa_rocm._runtime.device_memory import Block, memory
from pyfa_rocm._runtime.tensor import Layout, Tensor, contiguous, contiguous_strides, layout_of
from pyfa_rocm.device import device_index, use_device
from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["DeviceArray", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "memory"]

Index = slice | int | EllipsisType

bfloat16 = np.dtype(ml_dtypes.bfloat16)
float8_e4m3fn = np.dtype(ml_dtypes.float8_e4m3fn)
float8_e4m3fnuz = np.dtype(ml_dtypes.float8_e4m3fnuz)
_ADDRESS_SPACE = 1 << 63
# Types that NumPy does not know by name, nor as numbers.
_EXTRA_DTYPES = {str(dtype.name): dtype for dtype in (bfloat16, float8_e4m3fn, float8_e4m3fnuz)}


@functools.cache
def _name_of(dtype: np.dtype[Any]) -> str:
    """Return dtype.name from a table: NumPy works it out anew each time, which is too slow for a call."""
    return str(dtype.name)


@functools.cache
def dtype_of(name: str) -> np.dtype[Any]:
    """Return the type of this name, including those of ml_dtypes."""
    return _EXTRA_DTYPES[name] if name in _EXTRA_DTYPES else np.dtype(name)


def _extent(layout: Layout) -> tuple[np.dtype[Any], int]:
    """Return the type of a contiguous layout's elements, and their bytes; the layout remembers them."""
    dtype = dtype_of(layout.dtype)
    extent = layout.extent = dtype, math.prod(layout.shape) * dtype.itemsize
    return extent


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
    """A strided array in device memory, with views by slicing.

    `from_numpy` and `empty` make one. Any framework takes it without a copy through DLPack
    (``torch.from_dlpack(array)``) or ``__cuda_array_interface__``. When its last view is gone, its memory is
    kept for another array, which gets it only when the kernels that use it are done; nothing waits for them.
    `pyfa_rocm.memory.release` frees kept memory.

    Attributes
    ----------
    shape, strides : tuple of int
        Sizes, and strides in elements.
    dtype : numpy.dtype
        Element type; bfloat16 and the 8-bit floats are ml_dtypes'.
    device : int
        Index of the HIP device.
    data : int
        Device address of element 0. A program that has read it may use it on any stream. So from then on the
        memory is used again only after a wait for the device.
    layout : Layout
        All of the above except the address, in one object.

    Examples
    --------
    >>> q = DeviceArray.from_numpy(np.ones((1, 128, 4, 64), np.float16))
    >>> q.transpose(0, 2, 1, 3).shape
    (1, 4, 128, 64)
    """

    # address is data, for callers that say on which stream they use it; _base the array that this is a view
    # of, which keeps the memory alive.
    __slots__ = ("__weakref__", "_base", "_buffer", "address", "dtype", "layout")

    def __init__(
        self, buffer: Block, address: int, layout: Layout, dtype: np.dtype[Any], base: DeviceArray | None
    ) -> None:
        self._buffer = buffer
        self.address = address
        self._base = base
        self.layout = layout
        self.dtype = dtype

    def _view(self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> DeviceArray:
        """Return a view of the same memory that begins `offset` elements after this one."""
        layout = layout_of(shape, strides, self.layout.dtype, self._buffer.device)
        address = self.address + offset * self.dtype.itemsize
        return DeviceArray(self._buffer, address, layout, self.dtype, self._owner())

    def _owner(self) -> DeviceArray:
        """Return the array that owns the memory."""
        return self if self._base is None else self._base

    @classmethod
    def empty(cls, shape: tuple[int, ...], dtype: npt.DTypeLike, device: int | None = None) -> DeviceArray:
        """Allocate without initialising.

        Parameters
        ----------
        shape : tuple of int
            Sizes.
        dtype : dtype
            Element type, of fixed size. Names such as ``"bfloat16"`` and ``"float8_e4m3fn"`` are understood.
        device : int, optional
            Device to allocate on; the current one by default.

        Raises
        ------
        InvalidArgumentError
            A size is negative, or the element type is not a number.
        HipError
            The device does not have enough memory.
        """
        element = dtype_of(dtype) if isinstance(dtype, str) else np.dtype(dtype)
        if element.kind not in "iufcb" and _name_of(element) not in _EXTRA_DTYPES:
            raise InvalidArgumentError(f"dtype: got {element}, expected a type of numbers")
        try:
            shape = tuple(operator.index(n) for n in shape)
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(f"shape: got {shape!r}, expected a tuple of integers") from error
        if any(n < 0 for n in shape):
            raise InvalidArgumentError(f"shape: got {shape}, expected no negative size")
        if math.prod(shape) * element.itemsize >= _ADDRESS_SPACE:
            raise InvalidArgumentError(f"shape: got {shape} of {element}, which no device has memory for")
        device = device_index(device)
        return cls.allocate(contiguous(shape, _name_of(element), device), stream=None)

    @classmethod
    def allocate(cls, layout: Layout, stream: int | None) -> DeviceArray:
        """Allocate without initialising and without checking, for the next kernel on a stream to write.

        Parameters
        ----------
        layout : Layout
            C-contiguous, made by `layout_of`.
        stream : int or None
            The hipStream_t. None: any stream may use the memory at once, and no kernel is about to write it.
        """
        dtype, nbytes = layout.extent or _extent(layout)
        buffer = memory.allocate(nbytes, layout.device, stream)
        buffer.written_on = stream
        array = cls(buffer, buffer.address, layout, dtype, None)
        if nbytes:
            memory.lend(buffer, array)
        return array

    @classmethod
    def filled(cls, layout: Layout, stream: int, value: float) -> DeviceArray:
        """Like `allocate`, but filled on the stream; the device must be current.

        Parameters
        ----------
        layout, stream
            As in `allocate`.
        value : float
            Value of every element: 0, or any number if the type is float32.
        """
        array = cls.allocate(layout, stream)
        if not array.nbytes:
            return array
        if value:
            bits = int(np.float32(value).view(np.int32))
            hip.call("hipMemsetD32Async", array.address, bits, array.size, stream)
        else:
            hip.call("hipMemsetAsync", array.address, 0, array.nbytes, stream)
        return array

    @classmethod
    def from_numpy(cls, array: npt.ArrayLike, device: int | None = None) -> DeviceArray:
        """Copy a host array to the device, C-contiguous; it may be used on any stream when this returns."""
        host = np.ascontiguousarray(array)
        result = cls.empty(np.shape(array), host.dtype, device)
        if host.nbytes:
            kind = hip.module().hipMemcpyKind.hipMemcpyHostToDevice
            with use_device(result.device):
                hip.call("hipMemcpy", result.address, host.ctypes.data, host.nbytes, kind)
        return result

    def to_numpy(self) -> npt.NDArray[Any]:
        """Wait for all work on the device, and copy to the host, C-contiguous."""
        return copy_to_host(self.address, self.layout)

    @property
    def data(self) -> int:
        """Device address of element 0."""
        self._buffer.shared = True
        return self.address

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
        shape = tuple(operator.index(n) for n in shape)
        if self.strides != contiguous_strides(self.shape) or math.prod(shape) != self.size:
            raise InvalidArgumentError(
                f"shape: got {shape} for {self!r} with strides {self.strides}, expected a contiguous array "
                "and as many elements"
            )
        return self._view(0, shape, contiguous_strides(shape))

    def __getitem__(self, key: Index | tuple[Index, ...]) -> DeviceArray:
        """View by integers, slices with a positive step and `...`, as in NumPy."""
        keys: tuple[Any, ...] = key if isinstance(key, tuple) else (key,)
        for at, item in enumerate(keys):
            if item is Ellipsis:
                keys = (*keys[:at], *[slice(None)] * (self.ndim - len(keys) + 1), *keys[at + 1 :])
                break
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
                try:
                    item = operator.index(item)
                except TypeError as error:
                    raise IndexError(f"index {dim}: got {item!r}, expected an integer or a slice") from error
                if not -n <= item < n:
                    raise IndexError(f"index {dim}: got {item}, expected less than {n}")
                offset += item % n * stride
        return self._view(offset, tuple(shape), tuple(strides))

    def mark_used(self, stream: int) -> None:
        """Say that work which reads this array is about to be enqueued on a stream."""
        if self._buffer.used_on != stream:
            self._buffer.use(stream)

    def mark_written(self, stream: int) -> None:
        """Say that work which writes this array is about to be enqueued on a stream."""
        self.mark_used(stream)
        self._buffer.written_on = stream

    def __pyfa_rocm_tensor__(self) -> Tensor:
        return Tensor(self.data, self.layout, False, self._owner())

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

        Pending writes come before the consumer's work. That needs nothing on the stream that they were
        enqueued on; otherwise the call waits for the device.
        """
        if dl_device is not None and tuple(map(int, dl_device)) != self.__dlpack_device__():
            raise BufferError(f"dl_device: got {tuple(dl_device)}, expected {self.__dlpack_device__()}")
        if copy:
            raise BufferError("copy: got True, expected None or False: exports do not copy")
        stream = None if stream is None else operator.index(stream)
        if stream != -1:
            self._buffer.settle(stream or 0)
        try:
            version = None if max_version is None else (int(max_version[0]), int(max_version[1]))
        except (TypeError, ValueError, LookupError) as error:
            raise BufferError(f"max_version: got {max_version!r}, expected two integers") from error
        return dlpack.make_capsule(
            self.data,
            self.shape,
            self.strides,
            self.layout.dtype,
            self.device,
            max_version=version,
            owner=self._owner(),
        )

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Describe the array by version 3 of the interface, after a wait for pending writes.

        AttributeError if the interface has no name of the type.
        """
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
