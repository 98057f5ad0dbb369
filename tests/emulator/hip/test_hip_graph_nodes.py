# SPDX-License-Identifier: MIT OR Apache-2.0
"""Graphs whose nodes allocate memory or record events, the order of nodes, and failures made on order."""

from __future__ import annotations

import ctypes as c

import numpy as np
import pytest
from inner import run_script

from ..support import hip
from ..support.streams import COUNT, Event, Pinned, Stream, copy_async, fill_async, handle, status, zeros
from ..support.streams import launch as launch_kernel
from .test_hip_graph import add, begin, end, end_status, instantiate, kernel_node, replay

NBYTES = 4 * COUNT
ILLEGAL_ADDRESS, INVALID, NOT_SUPPORTED, CAPTURE_UNSUPPORTED, NOT_READY = 700, 1, 801, 900, 600

pytestmark = pytest.mark.usefixtures("rocm")


def malloc_async(stream: Stream) -> int:
    """COUNT floats, in stream order."""
    return handle("hipMallocAsync", c.c_size_t(NBYTES), stream.pointer)


def free_async(address: int, stream: Stream) -> None:
    """Give them back."""
    hip.call("hipFreeAsync", c.c_void_p(address), stream.pointer)


def launch_status(executable: int, stream: Stream) -> int:
    """Launch a graph, and return its status."""
    return status("hipGraphLaunch", c.c_void_p(executable), stream.pointer)


def test_memory_of_a_capture(stream: Stream) -> None:
    """hipMallocAsync and hipFreeAsync become nodes: at each launch the memory comes and goes."""
    out = Pinned(-1)
    begin(stream)
    memory = malloc_async(stream)
    fill_async(memory, 4, stream)
    launch_kernel("add_one", stream.handle, memory)
    copy_async(out.address, memory, stream)
    free_async(memory, stream)
    graph = end(stream)
    executable = instantiate(graph)
    host = np.zeros(COUNT, np.float32)
    arguments = (host.ctypes.data_as(c.c_void_p), c.c_void_p(memory), c.c_size_t(NBYTES), c.c_int(2))
    for _ in range(3):
        out.array[:] = -1
        replay(executable, stream)
        assert (out.array == 5).all()
        assert (
            status("hipFreeAsync", c.c_void_p(memory), stream.pointer) == INVALID
        )  # its own node has freed it
    hip.call("hipGraphExecDestroy", c.c_void_p(executable))
    hip.call("hipGraphDestroy", c.c_void_p(graph))
    assert status("hipMemcpy", *arguments) == INVALID  # it is nobody's memory any more


def test_use_before_and_after_its_time(stream: Stream) -> None:
    """A kernel that is not between the allocation and the free meets no memory."""
    graph = handle("hipGraphCreate", c.c_uint(0))
    params = _AllocNode(nbytes=NBYTES)
    allocation = add("hipGraphAddMemAllocNode", graph, [], c.byref(params))
    kernel = add(
        "hipGraphAddKernelNode", graph, [allocation], c.byref(kernel_node("add_one", params.address))
    )
    free = add("hipGraphAddMemFreeNode", graph, [kernel], c.c_void_p(params.address))
    assert [_kind(n) for n in (allocation, kernel, free)] == [10, 0, 11]
    seen = _AllocNode()
    hip.call("hipGraphMemAllocNodeGetParams", c.c_void_p(allocation), c.byref(seen))
    assert (seen.address, seen.nbytes) == (params.address, NBYTES)
    address = c.c_void_p()
    hip.call("hipGraphMemFreeNodeGetParams", c.c_void_p(free), c.byref(address))
    assert address.value == params.address
    replay(instantiate(graph), stream)
    add("hipGraphAddKernelNode", graph, [free], c.byref(kernel_node("add_one", params.address)))
    executable = instantiate(graph)
    hip.call("hipGraphLaunch", c.c_void_p(executable), stream.pointer)
    assert status("hipStreamSynchronize", stream.pointer) == ILLEGAL_ADDRESS
    assert "use after free" in hip.last_fault()


class _AllocNode(c.Structure):
    # hipMemAllocNodeParams.
    _fields_ = [
        ("kind", c.c_int),
        ("handles", c.c_int),
        ("location", c.c_int),
        ("device", c.c_int),
        ("security", c.c_void_p),
        ("reserved", c.c_ubyte * 64),
        ("access", c.c_void_p),
        ("access_count", c.c_size_t),
        ("nbytes", c.c_size_t),
        ("address", c.c_void_p),
    ]

    def __init__(self, nbytes: int = 0) -> None:
        super().__init__(kind=1, location=1, nbytes=nbytes)


def _kind(node: int) -> int:
    kind = c.c_int(-1)
    hip.call("hipGraphNodeGetType", c.c_void_p(node), c.byref(kind))
    return kind.value


def test_memory_that_outlives_the_launch(stream: Stream) -> None:
    """It is the caller's to free, and the graph cannot be launched before, unless it frees on launch."""
    begin(stream)
    memory = malloc_async(stream)
    fill_async(memory, 4, stream)
    graph = end(stream)
    executable = instantiate(graph)
    assert status("hipFreeAsync", c.c_void_p(memory), stream.pointer) == INVALID  # not launched yet
    out = Pinned(-1)
    for free in ("hipFreeAsync", "hipFree"):
        hip.call("hipGraphLaunch", c.c_void_p(executable), stream.pointer)
        copy_async(out.address, memory, stream)
        assert launch_status(executable, stream) == INVALID
        stream.synchronize()
        assert (out.array == 4).all()
        hip.call(free, c.c_void_p(memory), *([stream.pointer] if free == "hipFreeAsync" else []))
    automatic = handle("hipGraphInstantiateWithFlags", c.c_void_p(graph), c.c_ulonglong(1))
    for _ in range(3):
        replay(automatic, stream)
    hip.call("hipFree", c.c_void_p(memory))


def test_memory_freed_by_another_graph(stream: Stream) -> None:
    """One graph allocates, another frees; each cannot run twice in a row."""
    begin(stream)
    memory = malloc_async(stream)
    first = instantiate(end(stream))
    begin(stream)
    fill_async(memory, 1, stream)
    free_async(memory, stream)
    second = instantiate(end(stream))
    assert launch_status(second, stream) == INVALID
    for _ in range(2):
        assert launch_status(first, stream) == 0
        assert launch_status(first, stream) == INVALID
        assert launch_status(second, stream) == 0
        assert launch_status(second, stream) == INVALID
    stream.synchronize()


def test_memory_has_one_owner(stream: Stream) -> None:
    """No copies of graphs that allocate, no graphs within graphs, and no free of what no graph allocates."""
    buffer = zeros()
    begin(stream)
    free_async(malloc_async(stream), stream)
    graph = end(stream)
    executable = instantiate(graph)
    assert status("hipGraphClone", c.byref(c.c_void_p()), c.c_void_p(graph)) == NOT_SUPPORTED
    parent = handle("hipGraphCreate", c.c_uint(0))
    arguments = (c.byref(c.c_void_p()), c.c_void_p(parent), None, c.c_size_t(0), c.c_void_p(graph))
    assert status("hipGraphAddChildGraphNode", *arguments) == NOT_SUPPORTED
    begin(stream)
    assert launch_status(executable, stream) == CAPTURE_UNSUPPORTED
    assert end_status(stream) == 901
    begin(stream)
    assert status("hipFreeAsync", c.c_void_p(buffer.address), stream.pointer) == INVALID
    assert end_status(stream) == 901


def test_no_memory_for_a_launch() -> None:
    """The allocation fails in its turn, and the device says which it was."""
    script = """
import ctypes as c
from emulator.support import hip
from emulator.support.streams import Stream, handle, status
from emulator.hip.test_hip_graph import begin, end, instantiate
s = Stream()
begin(s)
p = handle("hipMallocAsync", c.c_size_t(4096), s.pointer)
e = instantiate(end(s))
print([status("hipGraphLaunch", c.c_void_p(e), s.pointer), status("hipStreamSynchronize", s.pointer)])
print(hip.last_fault())
"""
    out = run_script(script, env={"FMHA_EMU_FAIL_ALLOC": "1"})
    assert "[0, 2]" in out
    assert "graph: allocation of 4096 bytes at 0x" in out


def test_event_nodes(stream: Stream) -> None:
    """A node records an event at every launch; another graph's node waits for what was recorded last."""
    event, buffer, out, other = Event(), zeros(), Pinned(-1), Stream(1)
    graph = handle("hipGraphCreate", c.c_uint(0))
    kernel = add("hipGraphAddKernelNode", graph, [], c.byref(kernel_node("add_one", buffer.address)))
    record = add("hipGraphAddEventRecordNode", graph, [kernel], event.pointer)
    first = instantiate(graph)
    graph = handle("hipGraphCreate", c.c_uint(0))
    wait = add("hipGraphAddEventWaitNode", graph, [], event.pointer)
    copy = (c.c_void_p(out.address), c.c_void_p(buffer.address), c.c_size_t(NBYTES), c.c_int(2))
    add("hipGraphAddMemcpyNode1D", graph, [wait], *copy)
    second = instantiate(graph)
    assert [_kind(record), _kind(wait)] == [7, 6]
    for name, node in (("Record", record), ("Wait", wait)):
        found = c.c_void_p()
        hip.call(f"hipGraphEvent{name}NodeGetEvent", c.c_void_p(node), c.byref(found))
        assert found.value == event.handle
    for turn in (1, 2):
        with stream.held():
            hip.call("hipGraphLaunch", c.c_void_p(first), stream.pointer)
            hip.call("hipGraphLaunch", c.c_void_p(second), other.pointer)
            assert event.query() == NOT_READY
            assert other.query() == NOT_READY
        other.synchronize()
        assert event.query() == 0
        assert (out.array == turn).all()
    replaced = Event()
    hip.call("hipGraphExecEventRecordNodeSetEvent", c.c_void_p(first), c.c_void_p(record), replaced.pointer)
    with stream.held():
        hip.call("hipGraphLaunch", c.c_void_p(first), stream.pointer)
        assert (event.query(), replaced.query()) == (0, NOT_READY)
    replaced.synchronize()
    other.destroy()


def test_external_events_of_a_capture(stream: Stream) -> None:
    """A record or wait captured with the external flags is a node and does not join the streams."""
    event, start, buffer, other = Event(), Event(), zeros(), Stream(1)
    begin(stream)
    hip.call("hipStreamWaitEvent", stream.pointer, start.pointer, c.c_uint(1))
    launch_kernel("add_one", stream.handle, buffer.address)
    hip.call("hipEventRecordWithFlags", event.pointer, stream.pointer, c.c_uint(1))
    executable = instantiate(end(stream))
    replay(executable, stream)  # nothing was recorded: nothing to wait for
    with other.held():
        start.record(other)
        hip.call("hipGraphLaunch", c.c_void_p(executable), stream.pointer)
        assert event.query() == NOT_READY
    event.synchronize()
    assert (buffer.read(np.float32) == 2).all()
    other.destroy()


def test_event_of_a_launch_that_stops(stream: Stream) -> None:
    """The event is done, and says that what it marks was dropped."""
    event = Event()
    graph = handle("hipGraphCreate", c.c_uint(0))
    kernel = add("hipGraphAddKernelNode", graph, [], c.byref(kernel_node("add_one", 4096)))
    add("hipGraphAddEventRecordNode", graph, [kernel], event.pointer)
    executable = instantiate(graph)
    hip.call("hipGraphLaunch", c.c_void_p(executable), stream.pointer)
    assert status("hipEventSynchronize", event.pointer) == ILLEGAL_ADDRESS
    hip.lib().hipGetLastError()


@pytest.mark.parametrize("complete", [False, True])
def test_missing_dependency_is_seen(monkeypatch: pytest.MonkeyPatch, stream: Stream, complete: bool) -> None:
    """Nodes that nothing orders run in this order or that, as the schedule says."""
    buffer, other, out = zeros(), zeros(), Pinned(-1)
    graph = handle("hipGraphCreate", c.c_uint(0))
    first = add("hipGraphAddKernelNode", graph, [], c.byref(kernel_node("add_one", buffer.address)))
    before = [first] if complete else []
    work = c.byref(kernel_node("add", other.address, buffer.address))
    second = add("hipGraphAddKernelNode", graph, before, work)
    copy = (c.c_void_p(out.address), c.c_void_p(other.address), c.c_size_t(NBYTES), c.c_int(2))
    add("hipGraphAddMemcpyNode1D", graph, [second], *copy)
    executable = instantiate(graph)
    results = []
    for schedule in ("round", "reverse", *(f"random:{seed}" for seed in range(6))):
        monkeypatch.setenv("FMHA_EMU_SCHEDULE", schedule)
        for memory in (buffer, other):
            memory.write(np.zeros(COUNT, np.float32))
        replay(executable, stream)
        results.append(float(out.array[0]))
    assert results[:2] == ([1, 1] if complete else [1, 0])
    assert set(results[2:]) == ({1} if complete else {0, 1})


def test_kernels_of_graphs_count() -> None:
    """FMHA_EMU_FAIL_LAUNCH refuses the launch of the graph whose kernel is the nth; nothing of it runs."""
    script = """
import ctypes as c
from emulator.support import hip
from emulator.support.streams import Stream, launch, module, status, zeros
from emulator.hip.test_hip_graph import begin, end, instantiate
module()
s, x = Stream(), zeros()
begin(s)
for _ in range(3):
    launch("add_one", s.handle, x.address)
e = instantiate(end(s))
codes = [status("hipGraphLaunch", c.c_void_p(e), s.pointer) for _ in range(3)]
s.synchronize()
print(codes, float(x.read(__import__("numpy").float32)[0]))
"""
    assert "[0, 701, 0] 6.0" in run_script(script, env={"FMHA_EMU_FAIL_LAUNCH": "5"})
