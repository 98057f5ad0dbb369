# SPDX-License-Identifier: MIT OR Apache-2.0
"""Graphs: captured from streams or made node by node, replayed with what memory holds then."""

from __future__ import annotations

import ctypes as c
import threading

import numpy as np
import pytest

from ..support import hip
from ..support.streams import (
    COUNT,
    HOST_FUNCTION,
    Event,
    Pinned,
    Stream,
    copy_async,
    fill_async,
    handle,
    image,
    module,
    status,
    zeros,
)
from ..support.streams import launch as launch_kernel

GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
NONE, ACTIVE, INVALIDATED = 0, 1, 2
UNSUPPORTED, LOST, MERGE, UNMATCHED, UNJOINED, ISOLATION, IMPLICIT, CAPTURED_EVENT, WRONG_THREAD = range(
    900, 909
)

pytestmark = pytest.mark.usefixtures("rocm")


def begin(stream: Stream, mode: int = GLOBAL) -> None:
    """Start to capture."""
    hip.call("hipStreamBeginCapture", stream.pointer, c.c_int(mode))


def end(stream: Stream) -> int:
    """The graph captured."""
    graph = c.c_void_p()
    hip.call("hipStreamEndCapture", stream.pointer, c.byref(graph))
    return int(graph.value or 0)


def end_status(stream: Stream) -> int:
    """How the capture ends."""
    return status("hipStreamEndCapture", stream.pointer, c.byref(c.c_void_p()))


def capture_status(stream: Stream) -> int:
    """hipStreamIsCapturing."""
    out = c.c_int(-1)
    hip.call("hipStreamIsCapturing", stream.pointer, c.byref(out))
    return out.value


def instantiate(graph: int) -> int:
    """An executable graph."""
    return handle("hipGraphInstantiate", c.c_void_p(graph), None, None, c.c_size_t(0))


def replay(executable: int, stream: Stream) -> None:
    """Launch it, and wait."""
    hip.call("hipGraphLaunch", c.c_void_p(executable), stream.pointer)
    stream.synchronize()


def node_count(graph: int) -> int:
    """How many nodes a graph has."""
    count = c.c_size_t()
    hip.call("hipGraphGetNodes", c.c_void_p(graph), None, c.byref(count))
    return count.value


def test_capture_and_replay(stream: Stream) -> None:
    """Nothing runs while it is captured; each replay does it all, with what memory holds then."""
    source, buffer, out = Pinned(10), zeros(), Pinned(-1)
    seen: list[float] = []
    look = HOST_FUNCTION(lambda _: seen.append(float(out.array[0])))
    begin(stream)
    assert capture_status(stream) == ACTIVE
    copy_async(buffer.address, source.address, stream)
    launch_kernel("add_one", stream.handle, buffer.address)
    copy_async(out.address, buffer.address, stream)
    hip.call("hipLaunchHostFunc", stream.pointer, look, None)
    fill_async(buffer.address, 7, stream)
    graph = end(stream)
    assert capture_status(stream) == NONE
    hip.call("hipDeviceSynchronize")
    assert (out.array == -1).all()
    assert node_count(graph) == 5
    executable = instantiate(graph)
    hip.call("hipGraphDestroy", c.c_void_p(graph))
    for value in (10, 20):
        source.array[:] = value
        replay(executable, stream)
        assert (out.array == value + 1).all()
        assert (buffer.read(np.float32) == 7).all()
    assert seen == [11, 21]
    hip.call("hipGraphExecDestroy", c.c_void_p(executable))
    assert status("hipGraphLaunch", c.c_void_p(executable), stream.pointer) == 1


def test_capture_over_two_streams(stream: Stream) -> None:
    """Events carry the capture to another stream and back; the graph keeps the order they make."""
    other, fork, join, buffer, side, out = Stream(), Event(), Event(), zeros(), zeros(), Pinned(-1)
    begin(stream)
    launch_kernel("add_one", stream.handle, buffer.address)
    fork.record(stream)
    other.wait(fork)
    assert capture_status(other) == ACTIVE
    launch_kernel("add", other.handle, side.address, buffer.address)
    join.record(other)
    launch_kernel("add_one", stream.handle, buffer.address)
    stream.wait(join)
    launch_kernel("add", stream.handle, buffer.address, side.address)
    copy_async(out.address, buffer.address, stream)
    executable = instantiate(end(stream))
    assert capture_status(other) == NONE
    replay(executable, stream)
    assert set(out.array) <= {3.0, 4.0}  # the two middle kernels are not ordered
    assert status("hipEventQuery", join.pointer) == CAPTURED_EVENT


def test_unjoined_stream(stream: Stream) -> None:
    """Work of another stream that never came back."""
    other, fork, buffer = Stream(), Event(), zeros()
    begin(stream)
    launch_kernel("add_one", stream.handle, buffer.address)
    other.wait(fork.record(stream))
    launch_kernel("add_one", other.handle, buffer.address)
    assert end_status(stream) == UNJOINED
    assert capture_status(stream) == NONE
    assert capture_status(other) == NONE


def test_wrong_stream_ends(stream: Stream) -> None:
    """The capture ends where it began."""
    other, fork = Stream(), Event()
    begin(stream)
    other.wait(fork.record(stream))
    assert end_status(other) == UNMATCHED
    assert end_status(stream) == LOST
    assert status("hipStreamEndCapture", stream.pointer, c.byref(c.c_void_p())) == 401


def test_two_captures_do_not_merge(stream: Stream) -> None:
    """Neither survives the attempt."""
    other, event = Stream(), Event()
    begin(stream, RELAXED)
    begin(other, RELAXED)
    assert status("hipStreamWaitEvent", other.pointer, event.record(stream).pointer, c.c_uint(0)) == MERGE
    assert end_status(stream) == LOST
    assert end_status(other) == LOST


def test_event_from_outside(stream: Stream) -> None:
    """A capture cannot depend on what ran outside of it."""
    event = Event().record(Stream())
    begin(stream)
    assert status("hipStreamWaitEvent", stream.pointer, event.pointer, c.c_uint(0)) == ISOLATION
    assert end_status(stream) == LOST


@pytest.mark.parametrize("name", ["hipStreamSynchronize", "hipStreamQuery"])
def test_waiting_for_a_captured_stream(stream: Stream, name: str) -> None:
    """No mode permits it; the capture is lost, and calls in it say so."""
    buffer = zeros()
    begin(stream, RELAXED)
    assert status(name, stream.pointer) == UNSUPPORTED
    assert capture_status(stream) == INVALIDATED
    bits = c.c_int(0)
    assert (
        status("hipMemsetD32Async", c.c_void_p(buffer.address), bits, c.c_size_t(4), stream.pointer) == LOST
    )
    assert end_status(stream) == LOST
    stream.synchronize()


def unsafe_calls() -> dict[str, tuple[object, ...]]:
    """Calls that could wait for the device."""
    buffer, host = zeros(), np.zeros(COUNT, np.float32)
    pointer = c.c_void_p(buffer.address)
    return {
        "hipMalloc": (c.byref(c.c_void_p()), c.c_size_t(64)),
        "hipFree": (pointer,),
        "hipMemcpy": (host.ctypes.data_as(c.c_void_p), pointer, c.c_size_t(host.nbytes), c.c_int(2)),
        "hipModuleLoadData": (c.byref(c.c_void_p()), image()),
    }


@pytest.mark.parametrize("name", ["hipMalloc", "hipFree", "hipMemcpy", "hipModuleLoadData"])
@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
@pytest.mark.parametrize("own", [True, False])
def test_unsafe_calls(name: str, mode: int, own: bool) -> None:
    """A mode forbids them to every thread, to the capturing one, or to none; a copy that waits, to all."""
    stream = Stream(1)
    codes: list[int] = []
    args = unsafe_calls()[name]
    begin(stream, mode)
    thread = threading.Thread(target=lambda: codes.append(status(name, *args)))
    if own:
        codes.append(status(name, *args))
    else:
        thread.start()
        thread.join()
    waits = name == "hipMemcpy"
    forbidden = waits or mode == GLOBAL or (mode == THREAD_LOCAL and own)
    assert codes == [IMPLICIT if waits else UNSUPPORTED if forbidden else 0]
    assert end_status(stream) == (LOST if forbidden else 0)
    stream.destroy()


def test_device_synchronize_while_capturing(stream: Stream) -> None:
    """Loses the capture."""
    begin(stream, RELAXED)
    assert status("hipDeviceSynchronize") == UNSUPPORTED
    assert end_status(stream) == LOST


@pytest.mark.parametrize(("flags", "code"), [(0, IMPLICIT), (1, 0)])
def test_null_stream_while_capturing(flags: int, code: int) -> None:
    """The null stream would wait for a blocking stream that is captured; not for a non-blocking one."""
    stream, buffer = Stream(flags), zeros()
    begin(stream, RELAXED)
    got = status("hipMemsetAsync", c.c_void_p(buffer.address), c.c_int(0), c.c_size_t(4), None)
    assert got == code
    assert end_status(stream) == (LOST if code else 0)
    hip.call("hipDeviceSynchronize")
    stream.destroy()


def test_null_stream_cannot_be_captured() -> None:
    """It is nobody's own."""
    assert status("hipStreamBeginCapture", None, c.c_int(GLOBAL)) == UNSUPPORTED


@pytest.mark.parametrize(("mode", "code"), [(THREAD_LOCAL, WRONG_THREAD), (RELAXED, 0)])
def test_capture_ends_in_its_thread(stream: Stream, mode: int, code: int) -> None:
    """But for the relaxed mode."""
    codes: list[int] = []
    begin(stream, mode)
    thread = threading.Thread(target=lambda: codes.append(end_status(stream)))
    thread.start()
    thread.join()
    assert codes == [code]
    if code:
        assert end_status(stream) == LOST


class _KernelNode(c.Structure):
    # hipKernelNodeParams.
    _fields_ = [
        ("block", c.c_uint * 3),
        ("extra", c.c_void_p),
        ("function", c.c_void_p),
        ("grid", c.c_uint * 3),
        ("params", c.POINTER(c.c_void_p)),
        ("dynamic_lds", c.c_uint),
    ]


class _Memset(c.Structure):
    # hipMemsetParams.
    _fields_ = [
        ("dst", c.c_void_p),
        ("element_bytes", c.c_uint),
        ("height", c.c_size_t),
        ("pitch", c.c_size_t),
        ("value", c.c_uint),
        ("width", c.c_size_t),
    ]


def kernel_node(kernel: str, *buffers: int) -> _KernelNode:
    """A launch over COUNT floats."""
    values = [c.c_void_p(b) for b in buffers]
    pointers = (c.c_void_p * len(values))(*(c.addressof(v) for v in values))
    node = _KernelNode(
        (c.c_uint * 3)(64, 1, 1),
        None,
        module().function(kernel).value,
        (c.c_uint * 3)(COUNT // 64, 1, 1),
        c.cast(pointers, c.POINTER(c.c_void_p)),
        0,
    )
    node.keep = (values, pointers)
    return node


def add(name: str, graph: int, before: list[int], *args: object) -> int:
    """A node behind others."""
    nodes = (c.c_void_p * max(len(before), 1))(*before)
    return handle(name, c.c_void_p(graph), nodes, c.c_size_t(len(before)), *args)


def test_graph_by_hand(stream: Stream) -> None:
    """Nodes of every kind, ordered only by dependencies, and parameters changed afterwards."""
    buffer, other, out = zeros(), zeros(), Pinned(-1)
    seen: list[int] = []
    look = HOST_FUNCTION(lambda _: seen.append(1))
    graph = handle("hipGraphCreate", c.c_uint(0))
    fill = _Memset(buffer.address, 4, 1, 0, 0x40A00000, COUNT)  # 5.0
    copy_args = (c.c_void_p(out.address), c.c_void_p(buffer.address), c.c_size_t(4 * COUNT), c.c_int(2))
    host_params = (c.c_void_p * 2)(c.cast(look, c.c_void_p), None)
    # Added last first, so that the order of creation is not the order of dependencies.
    host = add("hipGraphAddHostNode", graph, [], host_params)
    copy = add("hipGraphAddMemcpyNode1D", graph, [], *copy_args)
    kernel = add("hipGraphAddKernelNode", graph, [], c.byref(kernel_node("add_one", buffer.address)))
    empty = add("hipGraphAddEmptyNode", graph, [])
    first = add("hipGraphAddMemsetNode", graph, [], c.byref(fill))
    chain = [first, empty, kernel, copy, host]
    sources, targets = (c.c_void_p * 4)(*chain[:-1]), (c.c_void_p * 4)(*chain[1:])
    hip.call("hipGraphAddDependencies", c.c_void_p(graph), sources, targets, c.c_size_t(4))
    kinds = []
    for node in chain:
        kind = c.c_int(-1)
        hip.call("hipGraphNodeGetType", c.c_void_p(node), c.byref(kind))
        kinds.append(kind.value)
    assert kinds == [2, 5, 0, 1, 3]
    executable = instantiate(graph)
    replay(executable, stream)
    assert (out.array == 6).all()
    assert seen == [1]
    changed = kernel_node("add", buffer.address, other.address)
    set_params = "hipGraphExecKernelNodeSetParams"
    hip.call(set_params, c.c_void_p(executable), c.c_void_p(kernel), c.byref(changed))
    other.write(np.full(COUNT, 30, np.float32))
    replay(executable, stream)
    assert (out.array == 35).all()
    assert status(set_params, c.c_void_p(executable), c.c_void_p(copy), c.byref(changed)) == 1
    params = _KernelNode()
    hip.call("hipGraphKernelNodeGetParams", c.c_void_p(kernel), c.byref(params))
    assert c.cast(params.params[0], c.POINTER(c.c_uint64))[0] == buffer.address


def test_circle() -> None:
    """Nodes that wait for each other make no executable graph."""
    graph = handle("hipGraphCreate", c.c_uint(0))
    a = add("hipGraphAddEmptyNode", graph, [])
    b = add("hipGraphAddEmptyNode", graph, [a])
    hip.call(
        "hipGraphAddDependencies",
        c.c_void_p(graph),
        (c.c_void_p * 1)(b),
        (c.c_void_p * 1)(a),
        c.c_size_t(1),
    )
    arguments = (c.byref(c.c_void_p()), c.c_void_p(graph), None, None, c.c_size_t(0))
    assert status("hipGraphInstantiate", *arguments) == 1
    hip.call("hipGraphDestroy", c.c_void_p(graph))
    assert status("hipGraphNodeGetType", c.c_void_p(a), c.byref(c.c_int())) == 1


def test_graph_of_an_unloaded_module(stream: Stream) -> None:
    """Its kernels are gone: the launch says so."""
    buffer, code = zeros(), hip.Module(image())
    begin(stream)
    launch_kernel("add_one", stream.handle, buffer.address, code=code)
    executable = instantiate(end(stream))
    replay(executable, stream)
    code.unload()
    assert status("hipGraphLaunch", c.c_void_p(executable), stream.pointer) == 400
    assert (buffer.read(np.float32) == 1).all()


def test_fault_in_a_graph(stream: Stream) -> None:
    """Ends it: nodes after the fault do not run."""
    out = Pinned(-1)
    buffer = zeros()
    begin(stream)
    launch_kernel("add_one", stream.handle, 4096)
    copy_async(out.address, buffer.address, stream)
    executable = instantiate(end(stream))
    hip.call("hipGraphLaunch", c.c_void_p(executable), stream.pointer)
    assert status("hipStreamSynchronize", stream.pointer) == 700
    assert (out.array == -1).all()


def test_captured_launch_is_a_child(stream: Stream) -> None:
    """Launching a graph while another is captured makes it a part of that one; updates take new nodes."""
    buffer, other = zeros(), zeros()
    executables = []
    for target in (buffer, other):
        begin(stream)
        launch_kernel("add_one", stream.handle, target.address)
        executables.append(end(stream))
    child = instantiate(executables[0])
    begin(stream)
    for _ in range(3):
        hip.call("hipGraphLaunch", c.c_void_p(child), stream.pointer)
    replay(instantiate(end(stream)), stream)
    assert (buffer.read(np.float32) == 3).all()
    culprit, result = c.c_void_p(), c.c_int()
    hip.call(
        "hipGraphExecUpdate", c.c_void_p(child), c.c_void_p(executables[1]), c.byref(culprit), c.byref(result)
    )
    replay(child, stream)
    assert (other.read(np.float32) == 1).all()
    assert (buffer.read(np.float32) == 3).all()
