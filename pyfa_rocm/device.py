# SPDX-License-Identifier: MIT OR Apache-2.0
"""Devices and streams of the HIP runtime in use, through hip-python."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyfa_rocm._call.numbers import to_integer
from pyfa_rocm._runtime import hip, library
from pyfa_rocm._runtime.hip import Runtime, runtime
from pyfa_rocm.errors import InvalidArgumentError

__all__ = [
    "Device",
    "Runtime",
    "Stream",
    "current_device",
    "current_stream",
    "device_count",
    "devices",
    "runtime",
    "stream_for",
    "stream_handle",
    "synchronize",
    "use_device",
]


# HIP has fewer, and numbers them by a C int.
_MOST_DEVICES = 1 << 31


@dataclass(frozen=True)
class Device:
    """A device as its runtime describes it.

    Attributes
    ----------
    index : int
        HIP's number of the device.
    name, arch : str
        Product name, such as "AMD Instinct MI300X", and LLVM's name of the architecture, without features.
    memory_bytes : int
        Size of its memory.
    compute_units : int
        Number of its compute units. HIP counts a Radeon's in pairs, as multiprocessors.
    """

    index: int
    name: str
    arch: str
    memory_bytes: int
    compute_units: int


def device_count() -> int:
    """Return the number of devices."""
    return int(hip.call("hipGetDeviceCount"))


def describe(index: int) -> Device:
    """Describe one device."""
    properties = hip.call("hipGetDeviceProperties", index)
    arch = str(properties.gcnArchName).split(":")[0]
    per_multiprocessor = int(library.known_archs().get(arch, {}).get("cus_per_multiprocessor", 1))
    units = int(properties.multiProcessorCount) * per_multiprocessor
    return Device(index, str(properties.name), arch, int(properties.totalGlobalMem), units)


def devices() -> list[Device]:
    """Describe all devices."""
    return [describe(index) for index in range(device_count())]


def current_device() -> int:
    """Return the calling thread's current device."""
    return int(hip.call("hipGetDevice"))


def device_index(device: int | None) -> int:
    """Return the number of a device after checking it, or of the current one for None."""
    if device is None:
        return current_device()
    return device if type(device) is int and 0 <= device < _MOST_DEVICES else _checked_index(device)


def _checked_index(device: Any) -> int:
    index = to_integer("device", device)
    if index >= _MOST_DEVICES:
        raise InvalidArgumentError(f"device: got {index}, expected one of {device_count()}")
    return index


def enter_device(index: int) -> int:
    """Make a device the calling thread's current one, as `use_device` does, for the path of a call.

    Returns
    -------
    int
        The argument of `leave_device`: the device that was current, or -1 if it is this one.
    """
    if index == 0 and hip.has_one_device():
        return -1
    previous = current_device()
    if previous == index:
        return -1
    hip.call("hipSetDevice", index)
    return previous


def leave_device(previous: int) -> None:
    """Undo `enter_device`."""
    if previous >= 0:
        hip.call("hipSetDevice", previous)


@contextmanager
def use_device(index: int) -> Iterator[None]:
    """Make a device the calling thread's current one for the length of a block."""
    previous = enter_device(device_index(index))
    try:
        yield
    finally:
        leave_device(previous)


def synchronize(device: int | None = None) -> None:
    """Wait for all work on a device, the current one by default."""
    with use_device(device_index(device)):
        hip.call("hipDeviceSynchronize")


# A handle is a pointer: below this number.
_HANDLES = 1 << 64
# Handles of Streams that have been closed, until the memory of DeviceArrays has looked at them: HIP may give
# another stream the same handle.
closed_streams: set[int] = set()


class Stream:
    """A stream of our own, for a program that has none.

    Parameters
    ----------
    device : int, optional
        Where; the current device by default.

    Attributes
    ----------
    handle : int
        The hipStream_t.
    """

    def __init__(self, device: int | None = None) -> None:
        self.handle = 0
        self.device = device_index(device)
        with use_device(self.device):
            self.handle = int(hip.call("hipStreamCreate"))

    def synchronize(self) -> None:
        """Wait for all work of this stream."""
        hip.call("hipStreamSynchronize", self.handle)

    def close(self) -> None:
        """Give the stream back once its work is done. Further use is an error."""
        handle, self.handle = self.handle, 0
        if handle and not hip.is_forked():
            closed_streams.add(handle)
            hip.call("hipStreamDestroy", handle)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Stream({self.handle:#x}, device={self.device})"


def stream_handle(stream: object) -> int:
    """Return the hipStream_t behind a stream object.

    Parameters
    ----------
    stream : object
        None (the null stream), an integer, a Stream, or a stream of torch, CuPy or hip-python.

    Raises
    ------
    TypeError
        It is none of these.
    """
    if stream is None:
        return 0
    if type(stream) is int and 0 <= stream < _HANDLES:
        return stream
    if isinstance(stream, Stream):
        if not stream.handle:
            raise InvalidArgumentError("stream: got a Stream that has been closed, expected an open one")
        return stream.handle
    # hip-python's ihipStream_t converts itself; torch names the handle cuda_stream on ROCm too, CuPy ptr.
    for attribute in ("cuda_stream", "ptr"):
        stream = getattr(stream, attribute, stream)
    if isinstance(stream, bool) or not hasattr(stream, "__int__") or isinstance(stream, float):
        raise TypeError(
            f"stream: got {type(stream).__name__}, expected None, an integer handle, or a Stream of "
            "pyfa_rocm, torch, CuPy or hip-python"
        )
    try:
        handle = int(stream)
    except (ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"stream: got {stream!r}, expected a hipStream_t") from error
    if not 0 <= handle < _HANDLES:
        raise InvalidArgumentError(f"stream: got {handle}, expected a hipStream_t")
    return handle


# Arrays of torch or CuPy that are not on a device have no stream; the call refuses them later.


def _torch_stream(tensor: Any) -> int:
    if not getattr(tensor, "is_cuda", False):
        return 0
    return int(sys.modules["torch"].cuda.current_stream(tensor.device).cuda_stream)


def _cupy_stream(array: Any) -> int:
    device = getattr(array, "device", None)
    return 0 if device is None else int(sys.modules["cupy"].cuda.get_current_stream(device.id).ptr)


# Libraries that have a current stream, by the name of their top module: the hipStream_t an array of theirs
# is worked on now.
_CURRENT_STREAMS: dict[str, Callable[[Any], int]] = {"cupy": _cupy_stream, "torch": _torch_stream}


@functools.lru_cache(maxsize=64)
def _library_of(kind: type) -> str | None:
    """Return the library that has a current stream and owns an array type or one of its bases."""
    for base in kind.__mro__:
        library = base.__module__.partition(".")[0]
        if library in _CURRENT_STREAMS and library in sys.modules:
            return library
    return None


@contextmanager
def use_device_of(array: Any, index: int) -> Iterator[None]:
    """Make the device of an array the current one for a block, for HIP and for the array's library.

    torch exports no tensor of a device that is not current, and remembers which one is. So it is told too.
    """
    if _library_of(array.__class__) == "torch":
        with sys.modules["torch"].cuda.device(index):
            yield
    else:
        with use_device(index):
            yield


def current_stream(array: Any) -> int:
    """Return the hipStream_t that the library of an array enqueues its own work on now.

    Parameters
    ----------
    array : object
        A torch.Tensor, a cupy.ndarray, or any other.

    Returns
    -------
    int
        ``torch.cuda.current_stream`` or ``cupy.cuda.get_current_stream`` of the array's device. 0, the null
        stream, if the array's library has no current stream.
    """
    library = _library_of(array.__class__)
    return 0 if library is None else _CURRENT_STREAMS[library](array)


def stream_for(stream: object, array: Any) -> int:
    """Return the hipStream_t of a call on an array: `stream_handle`, or for None `current_stream`."""
    return current_stream(array) if stream is None else stream_handle(stream)
