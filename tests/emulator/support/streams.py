# SPDX-License-Identifier: MIT OR Apache-2.0
"""Streams, events and kernels for the tests of asynchrony, by ctypes on the software device."""

from __future__ import annotations

import ctypes as c
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
from numpy.typing import NDArray

from . import hip
from .asm import Kernel, assemble

NOT_READY = 600
DESTROYED = 709
NON_BLOCKING = 1
LEGACY, PER_THREAD = 1, 2  # handles
COUNT = 256  # floats that the kernels work on
HOST_FUNCTION = c.CFUNCTYPE(None, c.c_void_p)

ADD_ONE = [
    "s_load_dwordx2 s[8:9], s[0:1], 0x0",
    "s_lshl_b32 s10, s2, 6",
    "v_add_u32 v1, s10, v0",
    "v_lshlrev_b32 v1, 2, v1",
    "s_waitcnt lgkmcnt(0)",
    "global_load_dword v2, v1, s[8:9]",
    "s_waitcnt vmcnt(0)",
    "v_add_f32 v2, 1.0, v2",
    "global_store_dword v1, v2, s[8:9]",
    "s_endpgm",
]
_ADD = [
    "s_load_dwordx4 s[8:11], s[0:1], 0x0",
    "s_lshl_b32 s12, s2, 6",
    "v_add_u32 v1, s12, v0",
    "v_lshlrev_b32 v1, 2, v1",
    "s_waitcnt lgkmcnt(0)",
    "global_load_dword v2, v1, s[8:9]",
    "global_load_dword v3, v1, s[10:11]",
    "s_waitcnt vmcnt(0)",
    "v_add_f32 v2, v3, v2",
    "global_store_dword v1, v2, s[8:9]",
    "s_endpgm",
]


def image() -> bytes:
    """add_one(x): x += 1; add(x, y): x += y; both over 64 floats a workgroup."""
    pointer = ((0, 8, "global_buffer"),)
    return assemble(
        [
            Kernel("add_one", ADD_ONE, args=pointer),
            Kernel("add", _ADD, args=(*pointer, (8, 8, "global_buffer"))),
        ]
    )


@cache
def module() -> hip.Module:
    """The kernels, loaded on device 0."""
    return hip.Module(image())


def launch(kernel: str, stream: int | None, *buffers: int, code: hip.Module | None = None) -> None:
    """Launch over COUNT floats, and return at once."""
    args = struct.pack(f"<{len(buffers)}Q", *buffers)
    size = c.c_size_t(len(args))
    block = c.create_string_buffer(args, len(args))
    extra = (c.c_void_p * 5)(1, c.addressof(block), 2, c.addressof(size), 3)
    sizes = map(c.c_uint, (COUNT // 64, 1, 1, 64, 1, 1, 0))
    hip.call(
        "hipModuleLaunchKernel",
        (code or module()).function(kernel),
        *sizes,
        c.c_void_p(stream),
        None,
        extra,
    )


def status(name: str, *args: object) -> int:
    """A call's status; what it left in hipGetLastError is taken away."""
    code = int(getattr(hip.lib(), name)(*args))
    hip.lib().hipGetLastError()
    return code


def handle(name: str, *args: object) -> int:
    """The handle a call creates."""
    out = c.c_void_p()
    hip.call(name, c.byref(out), *args)
    return int(out.value or 0)


class Stream:
    """A stream."""

    def __init__(self, flags: int = 0) -> None:
        self.handle = handle("hipStreamCreateWithFlags", c.c_uint(flags))

    @property
    def pointer(self) -> c.c_void_p:
        """As an argument."""
        return c.c_void_p(self.handle)

    def synchronize(self) -> None:
        """Wait for it."""
        hip.call("hipStreamSynchronize", self.pointer)

    def query(self) -> int:
        """The status of hipStreamQuery."""
        return status("hipStreamQuery", self.pointer)

    def wait(self, event: Event) -> None:
        """Let the stream wait for an event."""
        hip.call("hipStreamWaitEvent", self.pointer, event.pointer, c.c_uint(0))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the stream: operations that it has not begun start after the end of the block."""
        hip.call("fmha_emu_stream_hold", self.pointer)
        try:
            yield
        finally:
            hip.call("fmha_emu_stream_release", self.pointer)

    def destroy(self) -> None:
        """Give the handle back."""
        hip.call("hipStreamDestroy", self.pointer)


class Event:
    """An event."""

    def __init__(self, flags: int = 0) -> None:
        self.handle = handle("hipEventCreateWithFlags", c.c_uint(flags))

    @property
    def pointer(self) -> c.c_void_p:
        """As an argument."""
        return c.c_void_p(self.handle)

    def record(self, stream: Stream | None = None) -> Event:
        """Record it, in the null stream by default."""
        hip.call("hipEventRecord", self.pointer, stream.pointer if stream else None)
        return self

    def query(self) -> int:
        """The status of hipEventQuery."""
        return status("hipEventQuery", self.pointer)

    def synchronize(self) -> None:
        """Wait for it."""
        hip.call("hipEventSynchronize", self.pointer)


class Pinned:
    """Host memory of the runtime, as floats."""

    def __init__(self, value: float = 0) -> None:
        self.address = handle("hipHostMalloc", c.c_size_t(4 * COUNT), c.c_uint(0))
        self.array: NDArray[np.float32] = np.ctypeslib.as_array(
            c.cast(self.address, c.POINTER(c.c_float)), (COUNT,)
        )
        self.array[:] = value

    def free(self) -> None:
        """Give the memory back."""
        hip.call("hipHostFree", c.c_void_p(self.address))


def zeros() -> hip.Buffer:
    """COUNT floats of 0 on the device."""
    return hip.Buffer.of(np.zeros(COUNT, np.float32))


def copy_async(dst: int, src: int, stream: Stream | None, nbytes: int = 4 * COUNT) -> None:
    """hipMemcpyAsync, direction found out by the runtime."""
    hip.call(
        "hipMemcpyAsync",
        c.c_void_p(dst),
        c.c_void_p(src),
        c.c_size_t(nbytes),
        c.c_int(4),
        stream.pointer if stream else None,
    )


def fill_async(dst: int, value: float, stream: Stream | None) -> None:
    """COUNT floats of `value`."""
    bits = struct.unpack("<i", struct.pack("<f", value))[0]
    hip.call(
        "hipMemsetD32Async",
        c.c_void_p(dst),
        c.c_int(bits),
        c.c_size_t(COUNT),
        stream.pointer if stream else None,
    )
