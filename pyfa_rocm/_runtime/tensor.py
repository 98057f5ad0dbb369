# SPDX-License-Identifier: MIT OR Apache-2.0
"""Anyone's device array -> address, shape, strides: DLPack, __cuda_array_interface__, or our DeviceArray.

Nothing is copied. An array that is not in device memory, or not readable as it stands, is an error.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from pyfa_rocm._runtime import dlpack, hip
from pyfa_rocm.device import use_device, use_device_of
from pyfa_rocm.errors import HipError, InvalidArgumentError


class Layout:
    """Everything about a tensor except where it is. Only `layout_of` makes them.

    Attributes
    ----------
    shape, strides : tuple of int
        Sizes, and strides in elements.
    dtype : str
        NumPy's name of the element type, or that of ml_dtypes: "bfloat16", "float8_e4m3fn".
    device : int
        Index of the HIP device.
    extent : (numpy.dtype, int) or None
        Element type and bytes, once an array of this layout has been allocated.
    """

    # Compared and hashed by identity: what a call derives from its tensors' layouts is looked up by them, and
    # hashing nested tuples would take longer than the look-up saves.
    __slots__ = ("device", "dtype", "extent", "shape", "strides")

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, device: int) -> None:
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.device = device
        self.extent: tuple[np.dtype[Any], int] | None = None


# Layouts in use, so that equal ones are mostly one object. Forgotten as a whole when there are many: a layout
# that comes again is then another object, which costs its next call a new look-up and nothing else.
_layouts: dict[tuple[tuple[int, ...], tuple[int, ...], str, int], Layout] = {}
_MOST_LAYOUTS = 4096


def layout_of(shape: tuple[int, ...], strides: tuple[int, ...], dtype: str, device: int) -> Layout:
    """Return the layout of this description."""
    key = (shape, strides, dtype, device)
    try:
        layout = _layouts.get(key)
    except TypeError:  # sizes that are symbols have no hash
        return Layout(*key)
    if layout is None:
        if len(_layouts) >= _MOST_LAYOUTS:
            _layouts.clear()
        layout = _layouts.setdefault(key, Layout(*key))
    return layout


def contiguous(shape: tuple[int, ...], dtype: str, device: int) -> Layout:
    """Return the C-contiguous layout of a shape."""
    return layout_of(shape, contiguous_strides(shape), dtype, device)


class Tensor(NamedTuple):
    """A tensor in device memory.

    Attributes
    ----------
    address : int
        Address of element 0.
    layout : Layout
        Shape, strides, element type and device; also attributes of the tensor's own.
    readonly : bool
        Whether its owner forbids writing.
    owner : object
        The object that keeps the memory alive.
    """

    address: int
    layout: Layout
    readonly: bool
    owner: object

    @property
    def data(self) -> int:
        """Address of element 0, by DeviceArray's name."""
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
    def dtype(self) -> str:
        """Name of the element type."""
        return self.layout.dtype

    @property
    def device(self) -> int:
        """Index of the HIP device."""
        return self.layout.device


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of a C-contiguous array; never 0, as in NumPy and torch."""
    return tuple(math.prod(max(n, 1) for n in shape[i + 1 :]) for i in range(len(shape)))


def as_tensor(obj: object, name: str, stream: int) -> Tensor:
    """Describe a device array, after its producer has made it ready on a stream.

    Parameters
    ----------
    obj : object
        A DeviceArray, or any object with ``__dlpack__`` or ``__cuda_array_interface__``; a Tensor is returned
        as it is.
    name : str
        Its name in messages.
    stream : int
        The hipStream_t that will read or write it, 0 being the null stream. A DeviceArray is taken as it
        is: between streams of one's own the order is one's own, as in HIP.

    Raises
    ------
    TypeError
        It is none of these.
    InvalidArgumentError
        It is not in device memory, or is exported in a form that cannot be used.
    """
    if isinstance(obj, Tensor):
        return obj
    if describe := getattr(type(obj), "__pyfa_rocm_tensor__", None):
        tensor: Tensor = describe(obj)
        return tensor
    if hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__"):
        return _from_dlpack(obj, name, stream)
    # hasattr, not a Protocol: the attribute is a property that may refuse by raising AttributeError.
    if hasattr(obj, "__cuda_array_interface__"):
        return _from_cuda_array_interface(obj.__cuda_array_interface__, name, stream, obj)
    hint = "; wrap host data with pyfa_rocm.DeviceArray.from_numpy" if isinstance(obj, (list, tuple)) else ""
    raise TypeError(
        f"{name}: got {type(obj).__name__}, expected a pyfa_rocm.DeviceArray or an object with __dlpack__ "
        f"or __cuda_array_interface__{hint}"
    )


def _from_dlpack(obj: Any, name: str, stream: int) -> Tensor:
    try:
        device_type, device = map(int, obj.__dlpack_device__())
    except (TypeError, ValueError, BufferError, RuntimeError) as error:
        raise InvalidArgumentError(
            f"{name}: {type(obj).__name__}.__dlpack_device__ failed ({error}), expected type and number of a "
            "device"
        ) from error
    dlpack.require_rocm(device_type, name)
    on_device = device_type == dlpack.ROCM
    with use_device_of(obj, device) if on_device and not hip.has_one_device() else nullcontext():
        export = dlpack.request(obj, name, dlpack.consumer(stream) if on_device else None)
    if export.copied:
        # The copy would be freed when this call returns, while the kernel may still be reading it.
        raise InvalidArgumentError(f"{name}: __dlpack__ gave a copy, expected the array's own memory")
    strides = contiguous_strides(export.shape) if export.strides is None else export.strides
    layout = layout_of(export.shape, strides, export.dtype, device)
    return Tensor(export.data, layout, export.readonly, (obj, export.capsule))


def _from_cuda_array_interface(interface: dict[str, Any], name: str, stream: int, owner: object) -> Tensor:
    try:
        dtype = np.dtype(interface["typestr"])
        shape = tuple(int(n) for n in interface["shape"])
        address, readonly = interface["data"]
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgumentError(
            f"{name}: __cuda_array_interface__ is malformed ({type(error).__name__}: {error}), "
            "expected shape, typestr and data"
        ) from error
    if interface.get("mask") is not None:
        raise InvalidArgumentError(f"{name}: __cuda_array_interface__ has a mask, expected none")
    byte_strides = interface.get("strides")
    if byte_strides is None:
        strides = contiguous_strides(shape)
    else:
        if any(int(s) % dtype.itemsize for s in byte_strides):
            raise InvalidArgumentError(
                f"{name}: got strides {tuple(byte_strides)} bytes, expected multiples of {dtype.itemsize}"
            )
        strides = tuple(int(s) // dtype.itemsize for s in byte_strides)
    address = int(address or 0)
    device = _device_of(address, name) if address else int(hip.call("hipGetDevice"))
    _order_after(_producer(interface.get("stream"), name), stream, device)
    return Tensor(address, layout_of(shape, strides, dtype.name, device), bool(readonly), owner)


def _device_of(address: int, name: str) -> int:
    """Return the device of an address, which __cuda_array_interface__ does not say."""
    try:
        device = int(hip.call("hipPointerGetAttributes", address).device)
        why = ""
    except HipError as error:
        device, why = -1, f" ({error})"
    if device < 0:  # of memory that it does not know ROCm says this, its manual an error
        raise InvalidArgumentError(
            f"{name}: got address {address:#x}, expected device memory of {hip.runtime().path}{why}"
        )
    return device


def _producer(stream: object, name: str) -> int | None:
    """Return the hipStream_t that version 3 of the interface says the data is written on; None: it is ready.

    1 is the legacy default stream, which is HIP's null stream; 2 the per-thread default stream, as in HIP. 0,
    which the interface leaves out because it could mean either, is the null stream as well: HIP's own 0 is.
    """
    if stream is None:
        return None
    if isinstance(stream, bool) or not isinstance(stream, int) or stream < 0:
        raise InvalidArgumentError(
            f"{name}: __cuda_array_interface__ has the stream {stream!r}, expected None or a hipStream_t"
        )
    return 0 if stream == 1 else stream


def _order_after(producer: int | None, consumer: int, device: int) -> None:
    """Make the consumer's stream wait for what the producer's stream has now been given."""
    if producer is None or producer == consumer:
        return
    with use_device(device):
        event = hip.call("hipEventCreateWithFlags", hip.module().hipEventDisableTiming)
        try:
            hip.call("hipEventRecord", event, producer)
            hip.call("hipStreamWaitEvent", consumer, event, 0)
        finally:
            hip.call("hipEventDestroy", event)
