# SPDX-License-Identifier: MIT OR Apache-2.0
"""Numbers in memory that a stream writes, or waits for: hipStreamWriteValue and hipStreamWaitValue."""

from __future__ import annotations

import ctypes as c
import time
from collections.abc import Iterator

import numpy as np
import pytest

from ..support import hip
from ..support.streams import COUNT, NON_BLOCKING, NOT_READY, Stream, launch, status, zeros
from .test_hip_graph import begin, end_status

INVALID, CAPTURE_UNSUPPORTED = 1, 900
AT_LEAST, EQUAL, AND, NOR = range(4)
_TYPES = {32: (c.c_uint32, np.uint32), 64: (c.c_uint64, np.uint64)}


def wait(
    stream: Stream, address: int, value: int, flags: int, bits: int = 64, mask: int | None = None
) -> int:
    """Queue a wait."""
    kind = _TYPES[bits][0]
    all_bits = (1 << bits) - 1
    return status(
        f"hipStreamWaitValue{bits}",
        stream.pointer,
        c.c_void_p(address),
        kind(value),
        c.c_uint(flags),
        kind(all_bits if mask is None else mask),
    )


def write(stream: Stream | None, address: int, value: int, bits: int = 64) -> int:
    """Queue a write."""
    pointer = stream.pointer if stream else None
    kind = _TYPES[bits][0]
    return status(f"hipStreamWriteValue{bits}", pointer, c.c_void_p(address), kind(value), c.c_uint(0))


@pytest.fixture
def aside() -> Iterator[Stream]:
    """A stream that copies by the host do not wait for."""
    s = Stream(NON_BLOCKING)
    yield s
    s.destroy()


def is_busy(stream: Stream) -> bool:
    """Return whether the stream still has work a moment later."""
    time.sleep(0.02)
    return status("hipStreamQuery", stream.pointer) == NOT_READY


@pytest.mark.parametrize("bits", [32, 64])
def test_one_stream_waits_for_another(stream: Stream, bits: int) -> None:
    """Operations behind the wait run once the other stream has written the number, and not before."""
    data, place = zeros(), hip.Buffer.of(np.zeros(2, np.uint64))
    other = Stream()
    high = (1 << bits) - 2
    assert wait(stream, place.address, high, AT_LEAST, bits) == 0
    launch("add_one", stream.handle, data.address)
    assert write(other, place.address, high - 1, bits) == 0
    hip.call("hipStreamSynchronize", other.pointer)
    assert is_busy(stream)
    assert write(other, place.address, high + 1, bits) == 0
    hip.call("hipStreamSynchronize", stream.pointer)
    assert (data.read(np.float32)[:COUNT] == 1).all()
    assert place.read(np.uint64).tolist() == [high + 1, 0]
    other.destroy()


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize(
    ("flags", "value", "mask", "never", "then"),
    [
        (AT_LEAST, 5, -1, 4, 6),
        (AT_LEAST, 5, 0xF, 0xF4, 0x15),
        (EQUAL, 5, -1, 6, 5),
        (EQUAL, 5, 0xF, 0x14, 0xF5),
        (AND, 6, -1, 9, 4),
        (AND, 6, 3, 4, 2),
        (NOR, -2, -1, 1, 2),
    ],
)
def test_conditions(
    aside: Stream, bits: int, flags: int, value: int, mask: int, never: int, then: int
) -> None:
    """At least, equal, a bit in common, a bit in neither; of the bits of the mask."""
    low = (1 << bits) - 1
    place = hip.Buffer.of(np.array([never], np.uint64))
    assert wait(aside, place.address, value & low, flags, bits, mask & low) == 0
    assert is_busy(aside)
    place.write(np.array([then], np.uint64))
    hip.call("hipStreamSynchronize", aside.pointer)


def test_write_comes_after_what_was_queued_before(stream: Stream) -> None:
    """A write waits for nothing of other streams."""
    data = zeros()
    launch("add_one", stream.handle, data.address)
    assert write(stream, data.address, 0x40000000, 32) == 0
    launch("add_one", stream.handle, data.address)
    hip.call("hipStreamSynchronize", stream.pointer)
    assert data.read(np.float32)[:2].tolist() == [3.0, 2.0]


def test_refused(stream: Stream) -> None:
    """Null, misaligned and host addresses are refused, and so are unknown conditions."""
    place = hip.Buffer.of(np.zeros(2, np.uint64))
    host = np.zeros(2, np.uint64)
    for address in (0, place.address + 4, place.address + 16, host.ctypes.data):
        assert wait(stream, address, 0, AT_LEAST) == INVALID
        assert write(stream, address, 0) == INVALID
    assert wait(stream, place.address, 0, 4) == INVALID
    begin(stream)
    assert wait(stream, place.address, 0, AT_LEAST) == CAPTURE_UNSUPPORTED
    assert end_status(stream) != 0


def test_device_says_so() -> None:
    """hipDeviceAttributeCanUseStreamWaitValue, and that of virtual memory."""
    for name in (
        "hipDeviceAttributeCanUseStreamWaitValue",
        "hipDeviceAttributeVirtualMemoryManagementSupported",
    ):
        value = c.c_int(-1)
        hip.call("hipDeviceGetAttribute", c.byref(value), c.c_int(ATTRIBUTES[name]), c.c_int(0))
        assert value.value == 1, name


ATTRIBUTES = {
    "hipDeviceAttributeCanUseStreamWaitValue": 10013,
    "hipDeviceAttributeVirtualMemoryManagementSupported": 89,
}
