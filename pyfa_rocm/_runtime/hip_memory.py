# SPDX-License-Identifier: MIT OR Apache-2.0
"""hipMalloc and hipFree of the runtime in use, so that they do no harm to a graph that is being recorded.

Straight to HIP through cffi: hip-python takes a microsecond more for each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import cffi

from pyfa_rocm._runtime import hip, library
from pyfa_rocm._runtime.forks import at_fork
from pyfa_rocm._runtime.shared_library import open_runtime

__all__ = ["allocate", "free", "is_capturing"]

# Addresses as numbers: the same in the C ABI as pointers, and no pointer object to make for each.
_FUNCTIONS = """
int hipMalloc(uintptr_t *address, size_t bytes);
int hipFree(uintptr_t address);
int hipStreamIsCapturing(uintptr_t stream, int *status);
int hipThreadExchangeStreamCaptureMode(int *mode);
"""
_SUCCESS, _OUT_OF_MEMORY = 0, 2  # hipError_t
_NOT_CAPTURING = 0  # hipStreamCaptureStatus
_RELAXED = 2  # hipStreamCaptureMode
_NULL_STREAMS = (0, 1)  # which cannot be captured


@functools.cache
def _hip() -> tuple[Any, Any]:
    """Return what makes room for values, and the functions."""
    ffi = cffi.FFI()
    ffi.cdef(_FUNCTIONS)
    return ffi.new, library.functions_of(ffi, open_runtime(hip.runtime().path))


# A forked child has no runtime: it asks, and is told so.
at_fork(after_in_child=_hip.cache_clear)


@contextmanager
def _beside_captures(lib: Any, new: Any) -> Iterator[None]:
    """Let what HIP calls unsafe during a capture be done: memory of no graph is touched.

    Otherwise it fails, and invalidates the captures of this thread, or of all threads, as their modes say.
    The thread's mode is put back wherever a Ctrl-C comes: `mode` is another one only as long as it is not.
    """
    mode = new("int *", _RELAXED)
    try:
        lib.hipThreadExchangeStreamCaptureMode(mode)
        yield
    finally:
        try:
            if mode[0] != _RELAXED:
                lib.hipThreadExchangeStreamCaptureMode(mode)
        finally:
            if mode[0] != _RELAXED:
                lib.hipThreadExchangeStreamCaptureMode(mode)


def allocate(nbytes: int, make_room: Callable[[], bool]) -> int:
    """Return the address of new memory on the current device.

    Parameters
    ----------
    nbytes : int
        Its size.
    make_room : callable
        Frees memory if the device has not enough, and returns whether to try again.

    Raises
    ------
    HipError
        As HIP says.
    """
    new, lib = _hip()
    address = new("uintptr_t *")
    try:
        with _beside_captures(lib, new):
            status = lib.hipMalloc(address, nbytes)
            if status == _OUT_OF_MEMORY and make_room():
                hip.forget_error()
                status = lib.hipMalloc(address, nbytes)
        if status != _SUCCESS:
            raise hip.failure("hipMalloc", status)
        return int(address[0])
    except BaseException:  # a Ctrl-C, though HIP has given memory
        if address[0]:
            with _beside_captures(lib, new):
                lib.hipFree(address[0])
        raise


class _HasAddress(Protocol):
    address: int


def free(block: _HasAddress) -> None:
    """Give `allocate`'s memory back; waits for all work of its device. HipError as HIP says.

    The block's address is 0 from the moment on at which HIP may have taken the memory: a Ctrl-C during the
    call, when it is most likely, leaves no address that could be freed twice.
    """
    new, lib = _hip()
    with _beside_captures(lib, new):
        address, block.address = block.address, 0
        status = lib.hipFree(address)
    if status != _SUCCESS:
        raise hip.failure("hipFree", status)


def is_capturing(stream: int) -> bool:
    """Tell whether work that is enqueued on a stream is recorded into a graph instead of run."""
    if stream in _NULL_STREAMS:
        return False
    new, lib = _hip()
    status = new("int *")
    if lib.hipStreamIsCapturing(stream, status) != _SUCCESS:  # the call that is to use the stream says why
        hip.forget_error()
        return False
    return bool(status[0] != _NOT_CAPTURING)
