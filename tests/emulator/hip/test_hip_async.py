# SPDX-License-Identifier: MIT OR Apache-2.0
"""Streams run on their own: what a caller does not wait for has not happened yet."""

from __future__ import annotations

import ctypes as c
import threading
import time

import numpy as np
import pytest
from inner import run_script

from ..support import hip
from ..support.streams import (
    COUNT,
    DESTROYED,
    HOST_FUNCTION,
    LEGACY,
    NON_BLOCKING,
    NOT_READY,
    PER_THREAD,
    Event,
    Pinned,
    Stream,
    copy_async,
    fill_async,
    launch,
    module,
    status,
    zeros,
)

pytestmark = pytest.mark.usefixtures("rocm")


def test_launch_returns_before_it_runs() -> None:
    """A held stream runs nothing, and queries say so; once released it runs its operations in order."""
    stream, event, buffer, out = Stream(), Event(), zeros(), Pinned(-1)
    with stream.held():
        launch("add_one", stream.handle, buffer.address)
        launch("add_one", stream.handle, buffer.address)
        copy_async(out.address, buffer.address, stream)
        event.record(stream)
        assert stream.query() == NOT_READY
        assert event.query() == NOT_READY
        assert (out.array == -1).all()
    event.synchronize()
    assert stream.query() == 0
    assert event.query() == 0
    assert (out.array == 2).all()
    stream.destroy()


def test_not_ready_is_not_remembered(rocm: str) -> None:
    """hipErrorNotReady is an answer, no error: hipGetLastError has nothing to tell, since ROCm 7."""
    stream = Stream()
    with stream.held():
        fill_async(zeros().address, 1, stream)
        assert hip.lib().hipStreamQuery(stream.pointer) == NOT_READY
        assert hip.lib().hipGetLastError() == (NOT_READY if rocm.startswith("6") else 0)
    stream.synchronize()


@pytest.mark.parametrize("waits", [False, True])
def test_missing_event_is_seen(waits: bool) -> None:
    """Stream B reads what A writes: old data without an event, new data with one."""
    a, b, event, buffer, out = Stream(), Stream(), Event(), zeros(), Pinned(-1)
    with a.held():
        launch("add_one", a.handle, buffer.address)
        event.record(a)
        if waits:
            b.wait(event)
        copy_async(out.address, buffer.address, b)
        if not waits:
            b.synchronize()
    b.synchronize()
    assert (out.array == (1 if waits else 0)).all()
    a.synchronize()


def test_delay_shows_a_missing_wait() -> None:
    """FMHA_EMU_DELAY starts launches late, so that a program that does not wait reads old data."""
    script = """
from emulator.support.streams import *
a, b, buffer, out = Stream(1), Stream(1), zeros(), Pinned(-1)
module()
launch("add_one", a.handle, buffer.address)
copy_async(out.address, buffer.address, b)
b.synchronize()
print("missing", out.array[0])
a.synchronize()
copy_async(out.address, buffer.address, b)
b.synchronize()
print("waited", out.array[0])
"""
    out = run_script(script, env={"FMHA_EMU_DELAY": "300000"})
    assert out.splitlines() == ["missing 0.0", "waited 1.0"]


def test_event_marks_what_was_recorded_before() -> None:
    """A wait is for the recording at the time of the call: recording the event again does not change it."""
    a, b, event, buffer, out = Stream(), Stream(), Event(), zeros(), Pinned(-1)
    launch("add_one", a.handle, buffer.address)
    event.record(a)
    b.wait(event)
    a.synchronize()
    with a.held():
        launch("add_one", a.handle, buffer.address)
        event.record(a)
        copy_async(out.address, buffer.address, b)
        b.synchronize()
        assert (out.array == 1).all()
    event.synchronize()


def test_event_never_recorded() -> None:
    """An event that was never recorded is complete, and has no time."""
    stream, event = Stream(), Event()
    stream.wait(event)
    assert event.query() == 0
    event.synchronize()
    assert status("hipEventElapsedTime", c.byref(c.c_float()), event.pointer, event.pointer) == 400


def test_elapsed_time() -> None:
    """By the clock: a host function that sleeps for 50 ms lies between; not ready before it ran."""
    stream, start, stop = Stream(), Event(), Event()
    sleep = HOST_FUNCTION(lambda _: time.sleep(0.05))
    milliseconds = c.c_float()
    with stream.held():
        start.record(stream)
        hip.call("hipLaunchHostFunc", stream.pointer, sleep, None)
        stop.record(stream)
        assert status("hipEventElapsedTime", c.byref(milliseconds), start.pointer, stop.pointer) == NOT_READY
    stop.synchronize()
    hip.call("hipEventElapsedTime", c.byref(milliseconds), start.pointer, stop.pointer)
    assert 50 <= milliseconds.value < 5000


@pytest.mark.parametrize(("flags", "waits"), [(0, True), (NON_BLOCKING, False)])
def test_null_stream_waits_for_blocking_streams(flags: int, waits: bool) -> None:
    """The null stream comes behind the blocking streams' work, and not behind the others'."""
    stream, buffer, out = Stream(flags), zeros(), Pinned(-1)
    event = Event()
    with stream.held():
        launch("add_one", stream.handle, buffer.address)
        copy_async(out.address, buffer.address, None)
        event.record()
        if waits:
            assert event.query() == NOT_READY
        else:
            event.synchronize()
    event.synchronize()
    assert (out.array == (1 if waits else 0)).all()
    stream.synchronize()


@pytest.mark.parametrize(("flags", "waits"), [(0, True), (NON_BLOCKING, False)])
@pytest.mark.parametrize("null", [None, LEGACY])
def test_blocking_streams_wait_for_the_null_stream(
    rocm: str, flags: int, waits: bool, null: int | None
) -> None:
    """The null stream waits for them too. Its own handle is no stream before ROCm 7."""
    if null == LEGACY and rocm.startswith("6"):
        assert status("hipStreamSynchronize", c.c_void_p(null)) == DESTROYED
        return
    stream, buffer, out = Stream(flags), zeros(), Pinned(-1)
    hip.call("fmha_emu_stream_hold", c.c_void_p(null))
    launch("add_one", null, buffer.address)
    copy_async(out.address, buffer.address, stream)
    assert waits or status("hipStreamSynchronize", stream.pointer) == 0
    assert stream.query() == (NOT_READY if waits else 0)
    hip.call("fmha_emu_stream_release", c.c_void_p(null))
    stream.synchronize()
    assert (out.array == (1 if waits else 0)).all()
    hip.call("hipDeviceSynchronize")


def test_per_thread_stream() -> None:
    """hipStreamPerThread: one a thread, none waits for another, all wait for the null stream."""
    buffer, out = zeros(), Pinned(-1)
    hip.call("fmha_emu_stream_hold", c.c_void_p(PER_THREAD))
    launch("add_one", PER_THREAD, buffer.address)

    def other() -> None:
        launch("add_one", PER_THREAD, buffer.address)
        hip.call("hipStreamSynchronize", c.c_void_p(PER_THREAD))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    copy_async(out.address, buffer.address, None)  # behind both
    assert status("hipStreamQuery", None) == NOT_READY
    hip.call("fmha_emu_stream_release", c.c_void_p(PER_THREAD))
    hip.call("hipStreamSynchronize", None)
    assert (out.array == 2).all()


def test_device_synchronize_waits_for_destroyed_streams() -> None:
    """Destroying a stream returns at once; its work is done, and waited for, all the same."""
    stream, buffer = Stream(NON_BLOCKING), zeros()
    sleep = HOST_FUNCTION(lambda _: time.sleep(0.05))
    hip.call("hipLaunchHostFunc", stream.pointer, sleep, None)
    launch("add_one", stream.handle, buffer.address)
    stream.destroy()
    assert status("hipStreamQuery", stream.pointer) == 709
    hip.call("hipDeviceSynchronize")
    assert (buffer.read(np.float32) == 1).all()


def test_pageable_source_is_taken_at_the_call() -> None:
    """hipMemcpyAsync has read a pageable source when it returns; a pinned one it reads when it runs."""
    for pinned in (False, True):
        stream, buffer = Stream(), zeros()
        memory = Pinned(1)
        source = memory.array if pinned else np.full(COUNT, 1, np.float32)
        with stream.held():
            copy_async(buffer.address, source.ctypes.data, stream)
            source[:] = 2
        stream.synchronize()
        assert (buffer.read(np.float32) == (2 if pinned else 1)).all()


def test_pageable_target_is_waited_for() -> None:
    """hipMemcpyAsync to pageable memory returns when the data is there."""
    stream, buffer, out = Stream(), zeros(), np.full(COUNT, -1, np.float32)
    launch("add_one", stream.handle, buffer.address)
    copy_async(out.ctypes.data, buffer.address, stream)
    assert (out == 1).all()


def test_memset_and_device_copies_do_not_wait() -> None:
    """hipMemset and hipMemcpy within a device leave the host free; a copy to the host does not."""
    buffer, other = zeros(), zeros()
    hip.call("fmha_emu_stream_hold", None)
    hip.call("hipMemset", c.c_void_p(buffer.address), c.c_int(0), c.c_size_t(buffer.nbytes))
    hip.call(
        "hipMemcpy",
        c.c_void_p(other.address),
        c.c_void_p(buffer.address),
        c.c_size_t(buffer.nbytes),
        c.c_int(3),
    )
    assert status("hipStreamQuery", None) == NOT_READY
    hip.call("fmha_emu_stream_release", None)
    assert not other.read(np.float32).any()


def test_arguments_are_copied_at_the_launch() -> None:
    """The caller may reuse its argument block at once (launch() drops it)."""
    stream, buffers = Stream(), [zeros() for _ in range(4)]
    with stream.held():
        for i, buffer in enumerate(buffers):
            for _ in range(i):
                launch("add_one", stream.handle, buffer.address)
    stream.synchronize()
    assert [int(b.read(np.float32)[7]) for b in buffers] == [0, 1, 2, 3]


def test_host_functions_and_callbacks() -> None:
    """They run in order on another thread, and later work waits for them."""
    stream, buffer, out = Stream(), zeros(), Pinned(-1)
    seen: list[tuple[int, ...]] = []
    main = threading.get_ident()
    go = threading.Event()

    def function(data: int) -> None:
        go.wait(10)
        seen.append((data, threading.get_ident() != main))

    callback_type = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_void_p)
    host = HOST_FUNCTION(function)
    callback = callback_type(lambda s, code, data: seen.append((s, code, data)))
    hip.call("hipLaunchHostFunc", stream.pointer, host, c.c_void_p(42))
    hip.call("hipStreamAddCallback", stream.pointer, callback, c.c_void_p(43), c.c_uint(0))
    launch("add_one", stream.handle, buffer.address)
    copy_async(out.address, buffer.address, stream)
    assert stream.query() == NOT_READY
    assert not seen
    go.set()
    stream.synchronize()
    assert seen == [(42, True), (stream.handle, 0, 43)]
    assert (out.array == 1).all()


def test_host_function_must_not_wait() -> None:
    """A wait inside a host function would be for itself: an error, no hang."""
    stream, codes = Stream(), []
    host = HOST_FUNCTION(lambda _: codes.append(status("hipDeviceSynchronize")))
    hip.call("hipLaunchHostFunc", stream.pointer, host, None)
    stream.synchronize()
    assert codes == [801]


def test_free_waits_for_the_device() -> None:
    """hipFree comes back only when nothing uses the memory any more."""
    stream, buffer, ran = Stream(NON_BLOCKING), zeros(), []

    def function(_: int) -> None:
        time.sleep(0.05)
        ran.append(True)

    host = HOST_FUNCTION(function)
    hip.call("hipLaunchHostFunc", stream.pointer, host, None)
    launch("add_one", stream.handle, buffer.address)
    buffer.free()
    assert ran
    assert stream.query() == 0
    stream.synchronize()


def test_module_unload_waits_for_the_device() -> None:
    """The code outlives the launches that were asked for."""
    from ..support.streams import image

    stream, buffer = Stream(), zeros()
    code = hip.Module(image())
    sleep = HOST_FUNCTION(lambda _: time.sleep(0.05))
    hip.call("hipLaunchHostFunc", stream.pointer, sleep, None)
    launch("add_one", stream.handle, buffer.address, code=code)
    code.unload()
    assert (buffer.read(np.float32) == 1).all()


def test_fault_is_told_at_the_next_wait(rocm: str) -> None:
    """A launch that stops says nothing itself; waits and calls after it do; what was queued is dropped."""
    stream, buffer, out = Stream(), zeros(), Pinned(-1)
    event = Event()
    with stream.held():
        launch("add_one", stream.handle, 4096)
        launch("add_one", stream.handle, buffer.address)
        copy_async(out.address, buffer.address, stream)
        event.record(stream)
    with pytest.raises(hip.HipError) as caught:
        stream.synchronize()
    assert caught.value.code == 700
    assert "add_one" in caught.value.fault
    assert (out.array == -1).all()
    assert status("hipEventSynchronize", event.pointer) == 700  # what it marks never happened
    if rocm == "7":
        hip.recover()
    assert not buffer.read(np.float32).any()
    launch("add_one", stream.handle, buffer.address)
    stream.synchronize()
    assert (buffer.read(np.float32) == 1).all()


def test_dropped_work_is_told_though_another_thread_acknowledged(rocm: str) -> None:
    """The thread that waits for a stream whose work was dropped hears of it, even if the fault is history."""
    bad, stream, buffer, order = Stream(NON_BLOCKING), Stream(NON_BLOCKING), zeros(), Event()
    with bad.held():
        launch("add_one", bad.handle, 4096)
        order.record(bad)
        stream.wait(order)
        launch("add_one", stream.handle, buffer.address)
    assert status("hipStreamSynchronize", bad.pointer) == 700  # status() acknowledges it
    assert status("hipStreamSynchronize", stream.pointer) == 700
    if rocm == "7":  # where that did not wait
        hip.recover()
        status("hipStreamSynchronize", stream.pointer)
    assert stream.query() == 0
    assert not buffer.read(np.float32).any()


def test_use_after_free_in_a_copy() -> None:
    """Memory that went away before a queued copy came to it: the device says so, nothing crashes."""
    stream, source, out = Stream(NON_BLOCKING), zeros(), Pinned(-1)
    with stream.held():
        hip.call("hipFreeAsync", c.c_void_p(source.address), stream.pointer)
        copy_async(out.address, source.address, stream)
    with pytest.raises(hip.HipError) as caught:
        stream.synchronize()
    assert caught.value.code == 700
    assert "freed" in caught.value.fault


def test_statistics_are_of_a_finished_launch() -> None:
    """After a wait, fmha_emu_last_launch_stats tells of the launch waited for."""
    stream, buffer = Stream(), zeros()
    launch("add_one", stream.handle, buffer.address)
    stream.synchronize()
    stats = (c.c_uint64 * 5)()
    hip.call("fmha_emu_last_launch_stats", stats)
    assert list(stats)[:3] == [COUNT // 64, COUNT // 64, 10 * COUNT // 64]


def test_many_streams_in_order() -> None:
    """A chain through 16 streams by events, round and round, loses and doubles nothing."""
    streams, buffer, event = [Stream(NON_BLOCKING) for _ in range(16)], zeros(), Event()
    for i in range(160):
        stream = streams[i % len(streams)]
        stream.wait(event)
        launch("add_one", stream.handle, buffer.address)
        event.record(stream)
    event.synchronize()
    assert (buffer.read(np.float32) == 160).all()
    module()
    for stream in streams:
        stream.destroy()
