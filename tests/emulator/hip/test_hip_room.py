# SPDX-License-Identifier: MIT OR Apache-2.0
"""A stream's queue has an end: the host waits there, unless what it waits for could wait for it."""

from __future__ import annotations

import ctypes as c
import threading
from functools import cache

import pytest

from ..support import hip
from ..support.asm import Kernel, assemble
from ..support.streams import HOST_FUNCTION, NON_BLOCKING, NOT_READY, Event, Stream, fill_async, handle, zeros

MOST_QUEUED = 16384
MOST_BYTES = 1 << 30


@cache
def _slow() -> hip.Module:
    """A kernel that takes seconds, in which the host could queue far more than there is room for."""
    loop = [
        "s_mov_b32 s4, 0x4000000",
        "s_sub_u32 s4, s4, 1",
        "s_nop 0",
        "s_cmp_lg_u32 s4, 0",
        "s_cbranch_scc1 -4",
    ]
    return hip.Module(assemble([Kernel("slow", [*loop, "s_endpgm"], args=())]))


def _begin(stream: Stream) -> Event:
    """Launch it, and return an event behind it."""
    sizes = map(c.c_uint, (1, 1, 1, 64, 1, 1, 0))
    hip.call("hipModuleLaunchKernel", _slow().function("slow"), *sizes, stream.pointer, None, None)
    return Event().record(stream)


def _end_capture(stream: Stream) -> c.c_void_p:
    """The graph that a capture ends in."""
    graph = c.c_void_p()
    hip.call("hipStreamEndCapture", stream.pointer, c.byref(graph))
    return graph


def test_host_waits_for_room() -> None:
    stream, buffer = Stream(NON_BLOCKING), zeros()
    done = _begin(stream)
    for _ in range(100):
        fill_async(buffer.address, 1, stream)
    assert done.query() == NOT_READY  # of so few it does not wait
    for _ in range(MOST_QUEUED - 100):
        fill_async(buffer.address, 1, stream)
    assert done.query() == 0
    stream.synchronize()


@pytest.mark.parametrize("call", ["record", "wait"])
def test_events_take_room_too(call: str) -> None:
    stream, other, event = Stream(NON_BLOCKING), Stream(NON_BLOCKING), Event()
    done = _begin(stream)
    with other.held():
        pending = Event().record(other)
        for _ in range(MOST_QUEUED):
            event.record(stream) if call == "record" else stream.wait(pending)
    assert done.query() == 0
    stream.synchronize()


def test_memory_that_waits_to_be_freed_takes_room() -> None:
    """Three quarters of the limit are no reason to wait; what comes after the limit is."""
    stream = Stream(NON_BLOCKING)
    blocks = [handle("hipMallocAsync", c.c_size_t(MOST_BYTES * 3 // 4), stream.pointer) for _ in range(2)]
    done, buffer = _begin(stream), zeros()
    hip.call("hipFreeAsync", c.c_void_p(blocks[0]), stream.pointer)
    fill_async(buffer.address, 1, stream)
    assert done.query() == NOT_READY
    hip.call("hipFreeAsync", c.c_void_p(blocks[1]), stream.pointer)
    fill_async(buffer.address, 1, stream)
    assert done.query() == 0
    stream.synchronize()


def test_no_wait_for_a_held_stream() -> None:
    stream, buffer = Stream(NON_BLOCKING), zeros()
    with stream.held():
        for _ in range(MOST_QUEUED + 10):
            fill_async(buffer.address, 1, stream)
        assert stream.query() == NOT_READY
    stream.synchronize()


@pytest.mark.parametrize("graph", [False, True])
def test_no_wait_for_the_program_itself(graph: bool) -> None:
    """The function in front returns when this thread has queued more than there is room for."""
    stream, buffer, go = Stream(NON_BLOCKING), zeros(), threading.Event()
    waited = []
    function = HOST_FUNCTION(lambda _: waited.append(go.wait(60)))
    if graph:
        hip.call("hipStreamBeginCapture", stream.pointer, c.c_int(0))
    hip.call("hipLaunchHostFunc", stream.pointer, function, None)
    if graph:
        executable = handle("hipGraphInstantiate", _end_capture(stream), None, None, c.c_size_t(0))
        hip.call("hipGraphLaunch", c.c_void_p(executable), stream.pointer)
    for _ in range(MOST_QUEUED + 10):
        fill_async(buffer.address, 1, stream)
    assert not waited
    go.set()
    stream.synchronize()
    assert waited == [True]


def test_no_wait_for_another_stream() -> None:
    """Its work may never come: here it is held until this thread has queued its own."""
    stream, other, buffer = Stream(NON_BLOCKING), Stream(NON_BLOCKING), zeros()
    with other.held():
        stream.wait(Event().record(other))
        for _ in range(MOST_QUEUED + 10):
            fill_async(buffer.address, 1, stream)
        assert stream.query() == NOT_READY
    stream.synchronize()


def test_no_wait_under_capture() -> None:
    """Captured operations are not queued, however full the stream is."""
    stream, buffer = Stream(NON_BLOCKING), zeros()
    done = _begin(stream)
    for _ in range(MOST_QUEUED - 2):
        fill_async(buffer.address, 1, stream)
    hip.call("hipStreamBeginCapture", stream.pointer, c.c_int(0))
    for _ in range(10):
        fill_async(buffer.address, 1, stream)
    assert done.query() == NOT_READY
    hip.call("hipGraphDestroy", _end_capture(stream))
    stream.synchronize()
