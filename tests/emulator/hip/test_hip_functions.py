# SPDX-License-Identifier: MIT OR Apache-2.0
"""Functions that JAX, CuPy and Triton call, built for ROCm, beside launches, copies and graphs."""

from __future__ import annotations

import ctypes as c
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ..support import hip
from ..support.asm import Kernel, assemble
from ..support.streams import (
    COUNT,
    HOST_FUNCTION,
    Stream,
    fill_async,
    handle,
    image,
    launch,
    module,
    status,
    zeros,
)
from .test_hip_graph import add, begin, end, instantiate, kernel_node, replay

pytestmark = pytest.mark.usefixtures("rocm")
INVALID, NOT_SUPPORTED, INVALID_CONTEXT, INVALID_DEVICE, UNSUPPORTED_LIMIT = 1, 801, 201, 101, 215
STACK_SIZE, PRINTF_FIFO = 0, 1


def number(name: str, *args: object) -> int:
    """The int that a call gives."""
    out = c.c_int(-1)
    hip.call(name, c.byref(out), *args)
    return out.value


def test_contexts() -> None:
    """A device has one; a thread has a stack of them."""
    primary = handle("hipDevicePrimaryCtxRetain", c.c_int(0))
    assert handle("hipCtxCreate", c.c_uint(0), c.c_int(0)) == primary
    hip.call("hipCtxPushCurrent", c.c_void_p(primary))
    assert handle("hipCtxGetCurrent") == primary
    assert number("hipCtxGetDevice") == 0
    hip.call("hipCtxSynchronize")
    for _ in range(2):
        assert handle("hipCtxPopCurrent") == primary
    assert status("hipCtxPopCurrent", c.byref(c.c_void_p())) == INVALID_CONTEXT
    flags, active = c.c_uint(9), c.c_int()
    hip.call("hipDevicePrimaryCtxGetState", c.c_int(0), c.byref(flags), c.byref(active))
    assert (flags.value, active.value) == (0, 1)
    hip.call("hipDevicePrimaryCtxRelease", c.c_int(0))
    hip.call("hipCtxDestroy", c.c_void_p(primary))
    assert status("hipCtxPushCurrent", c.c_void_p(42)) == INVALID_CONTEXT
    assert status("hipDevicePrimaryCtxRetain", c.byref(c.c_void_p()), c.c_int(77)) == INVALID_DEVICE


def look_up(name: str, version: int, flags: int = 0) -> int:
    """The address of a function."""
    address, found = c.c_void_p(), c.c_int(-1)
    tail = (c.c_int(version), c.c_uint64(flags), c.byref(found))
    hip.call("hipGetProcAddress", name.encode(), c.byref(address), *tail)
    assert found.value == 0
    return int(address.value or 0)


@pytest.mark.parametrize("name", ["hipMalloc", "hipGetProcAddress", "__hipRegisterFatBinary"])
def test_function_by_name(name: str) -> None:
    """The address that the loader gives, too."""
    assert look_up(name, 602) == c.cast(getattr(hip.lib(), name), c.c_void_p).value


def test_function_by_name_and_version() -> None:
    """The version picks a function whose struct changed with HIP 6; an unknown function is an error."""
    symbols = {version: look_up("hipGetDeviceProperties", version) for version in (501, 600, 60_200_000)}
    new = c.cast(hip.lib().hipGetDevicePropertiesR0600, c.c_void_p).value
    assert symbols[600] == symbols[60_200_000] == new
    assert symbols[501] == c.cast(hip.lib().hipGetDeviceProperties, c.c_void_p).value
    assert look_up("hipStreamQuery", 600, 2) == c.cast(hip.lib().hipStreamQuery_spt, c.c_void_p).value
    for missing in (b"hipNoSuchThing", b"malloc", b"fmha_emu_last_fault"):
        found, address = c.c_int(-1), c.c_void_p(7)
        arguments = (missing, c.byref(address), c.c_int(600), c.c_uint64(0), c.byref(found))
        assert status("hipGetProcAddress", *arguments) == INVALID
        assert (found.value, address.value) == (1, None)


def test_stream_device() -> None:
    """The device itself, or -1."""
    stream = Stream()
    assert hip.lib().hipGetStreamDeviceId(stream.pointer) == 0
    assert hip.lib().hipGetStreamDeviceId(c.c_void_p(4242)) == -1
    hip.lib().hipGetLastError()


def launch_add_one(name: str, groups: int, *tail: object) -> int:
    """A launch over 64 floats a workgroup, arguments as kernelParams; its status, and that it ran."""
    buffer = zeros()
    argument = c.c_void_p(buffer.address)
    params = (c.c_void_p * 1)(c.addressof(argument))
    sizes = (c.c_uint(groups), c.c_uint(1), c.c_uint(1), c.c_uint(64), c.c_uint(1), c.c_uint(1), c.c_uint(0))
    code = status(name, module().function("add_one"), *sizes, None, params, *tail)
    hip.call("hipDeviceSynchronize")
    assert (buffer.read(np.float32) == 1).sum() == (0 if code else 64 * groups)
    return code


@pytest.mark.parametrize(("groups", "code"), [(1, 0), (4, NOT_SUPPORTED)])
def test_cooperative_launch(groups: int, code: int) -> None:
    """A cooperative launch has one workgroup: more would have to run at the same time."""
    assert launch_add_one("hipModuleLaunchCooperativeKernel", groups) == code


class _FatBinary(c.Structure):
    # __CudaFatBinaryWrapper.
    _fields_ = [
        ("magic", c.c_uint),
        ("version", c.c_uint),
        ("image", c.c_void_p),
        ("unused", c.c_void_p),
    ]


@pytest.fixture
def stub() -> Iterator[c.c_void_p]:
    """Registered as the host's side of add_one, as the code that hipcc generates does it."""
    lib = hip.lib()
    lib.__getattr__("__hipRegisterFatBinary").restype = c.c_void_p
    code = c.create_string_buffer(image())
    binary = _FatBinary(0x48495046, 1, c.addressof(code), None)
    registered = c.c_void_p(getattr(lib, "__hipRegisterFatBinary")(c.byref(binary)))
    address = c.c_void_p(c.addressof(binary))
    arguments = (registered, address, b"add_one", b"add_one", c.c_uint(0), *[None] * 5)
    getattr(lib, "__hipRegisterFunction")(*arguments)
    yield address
    getattr(lib, "__hipUnregisterFatBinary")(registered)


class _Dim3(c.Structure):
    _fields_ = [("x", c.c_uint), ("y", c.c_uint), ("z", c.c_uint)]


@pytest.mark.parametrize(("groups", "code"), [(1, 0), (2, NOT_SUPPORTED)])
def test_host_stub(stub: c.c_void_p, groups: int, code: int) -> None:
    """Kernels that hipcc compiled: the function of a stub, and a cooperative launch of one."""
    function = handle("hipGetFuncBySymbol", stub)
    assert number("hipFuncGetAttribute", c.c_int(0), c.c_void_p(function)) == 1024
    assert status("hipGetFuncBySymbol", c.byref(c.c_void_p()), c.c_void_p(77)) == 98
    buffer = zeros()
    argument = c.c_void_p(buffer.address)
    params = (c.c_void_p * 1)(c.addressof(argument))
    sizes = (_Dim3(groups, 1, 1), _Dim3(64, 1, 1))
    assert status("hipLaunchCooperativeKernel", stub, *sizes, params, c.c_uint(0), None) == code
    hip.call("hipDeviceSynchronize")
    assert (buffer.read(np.float32) == 1).sum() == (0 if code else 64)


def test_occupancy(stub: c.c_void_p) -> None:
    """The same for a stub and for its function; fewer with more LDS."""
    function = c.c_void_p(handle("hipGetFuncBySymbol", stub))
    for tail in ((), (c.c_uint(0),)):
        suffix = "WithFlags" if tail else ""
        for dynamic_lds, groups in ((0, None), (16384, 4), (65536, 1), (65537, 0)):
            size = (c.c_int(64), c.c_size_t(dynamic_lds), *tail)
            blocks = f"OccupancyMaxActiveBlocksPerMultiprocessor{suffix}"
            by_stub = number(f"hip{blocks}", stub, *size)
            assert by_stub == number(f"hipModule{blocks}", function, *size)
            assert by_stub == groups or groups is None
    grid, block = c.c_int(), c.c_int()
    best = (c.byref(grid), c.byref(block))
    hip.call("hipOccupancyMaxPotentialBlockSize", *best, stub, c.c_size_t(0), c.c_int(256))
    by_stub = (grid.value, block.value)
    assert by_stub[1] in range(64, 257, 64)
    hip.call("hipModuleOccupancyMaxPotentialBlockSize", *best, function, c.c_size_t(0), c.c_int(256))
    assert by_stub == (grid.value, block.value)


class _Attribute(c.Structure):
    # hipLaunchAttribute.
    _fields_ = [("id", c.c_int), ("pad", c.c_int), ("value", c.c_int), ("rest", c.c_char * 60)]


class _Config(c.Structure):
    # HIP_LAUNCH_CONFIG.
    _fields_ = [
        ("grid", c.c_uint * 3),
        ("block", c.c_uint * 3),
        ("dynamic_lds", c.c_uint),
        ("stream", c.c_void_p),
        ("attributes", c.POINTER(_Attribute)),
        ("count", c.c_uint),
    ]


@pytest.mark.parametrize(
    ("attribute", "groups", "code"),
    [(None, 4, 0), (8, 4, 0), (2, 1, 0), (2, 4, NOT_SUPPORTED), (77, 1, NOT_SUPPORTED)],
)
def test_launch_with_attributes(attribute: int | None, groups: int, code: int) -> None:
    """hipDrvLaunchKernelEx: hints are taken, a cooperative launch as above, what is unknown is refused."""
    buffer = zeros()
    argument = c.c_void_p(buffer.address)
    params = (c.c_void_p * 1)(c.addressof(argument))
    attributes = (_Attribute * 1)(_Attribute(attribute or 0, 0, 1))
    config = _Config((groups, 1, 1), (64, 1, 1), 0, None, attributes, 0 if attribute is None else 1)
    got = status("hipDrvLaunchKernelEx", c.byref(config), module().function("add_one"), params, None)
    assert got == code
    hip.call("hipDeviceSynchronize")
    assert (buffer.read(np.float32) == 1).sum() == (0 if code else 64 * groups)


def test_unsupported() -> None:
    """Surfaces, and memory shared with other processes, are refused: nothing is only called done."""
    assert (
        status("hipCreateSurfaceObject", c.byref(c.c_void_p()), c.byref((c.c_char * 64)())) == NOT_SUPPORTED
    )
    assert status("hipDestroySurfaceObject", None) == NOT_SUPPORTED
    assert status("hipIpcCloseMemHandle", None) == NOT_SUPPORTED


@pytest.fixture
def stack_limit() -> Iterator[int]:
    """The limit in force, put back at the end."""
    size = c.c_size_t()
    hip.call("hipDeviceGetLimit", c.byref(size), c.c_int(STACK_SIZE))
    yield size.value
    hip.call("hipDeviceSetLimit", c.c_int(STACK_SIZE), size)


def test_limits(stack_limit: int) -> None:
    """The limit of the stack can be set, and no other."""
    assert stack_limit == 1024
    hip.call("hipDeviceSetLimit", c.c_int(STACK_SIZE), c.c_size_t(5000))
    size = c.c_size_t()
    hip.call("hipDeviceGetLimit", c.byref(size), c.c_int(STACK_SIZE))
    assert size.value == 5008
    assert status("hipDeviceSetLimit", c.c_int(STACK_SIZE), c.c_size_t(131072)) == INVALID
    assert status("hipDeviceGetLimit", c.byref(size), c.c_int(PRINTF_FIFO)) == UNSUPPORTED_LIMIT
    assert status("hipDeviceGetLimit", c.byref(size), c.c_int(9)) == INVALID


@pytest.mark.parametrize("dynamic", [True, False])
def test_dynamic_stack(stack_limit: int, dynamic: bool) -> None:
    """A kernel that does not know its stack has the limit's; another has what it says."""
    kernels = [
        Kernel(
            f"at_{offset}",
            ["v_mov_b32 v0, 0", f"scratch_store_dword v0, v0, off offset:{offset}", "s_endpgm"],
            scratch=16,
            args=(),
            more_metadata="    .uses_dynamic_stack: true\n" if dynamic else "",
        )
        for offset in (12, 1020, 1024, 4092)
    ]
    code = hip.Module(assemble(kernels))

    def fits(offset: int) -> bool:
        try:
            code.launch(f"at_{offset}", b"")
        except hip.HipError:
            hip.recover()
            return False
        return True

    assert [fits(n) for n in (12, 1020, 1024)] == [True, dynamic, False]
    hip.call("hipDeviceSetLimit", c.c_int(STACK_SIZE), c.c_size_t(4096))
    assert [fits(n) for n in (12, 1020, 1024, 4092)] == [True, dynamic, dynamic, dynamic]


def test_hints_of_managed_memory() -> None:
    """Taken for memory that is managed, and for no other."""
    memory, buffer, stream = handle("hipMallocManaged", c.c_size_t(4096), c.c_uint(1)), zeros(), Stream()
    for name, arguments in (
        ("hipMemAdvise", (c.c_int(3), c.c_int(0))),
        ("hipMemAdvise", (c.c_int(3), c.c_int(-1))),
        ("hipMemPrefetchAsync", (c.c_int(0), stream.pointer)),
        ("hipMemPrefetchAsync", (c.c_int(-1), stream.pointer)),
    ):
        assert status(name, c.c_void_p(memory), c.c_size_t(4096), *arguments) == 0
        assert status(name, c.c_void_p(memory), c.c_size_t(4097), *arguments) == INVALID
        assert status(name, c.c_void_p(buffer.address), c.c_size_t(4), *arguments) == INVALID
    assert status("hipMemAdvise", c.c_void_p(memory), c.c_size_t(4), c.c_int(9), c.c_int(0)) == INVALID
    assert (
        status("hipMemAdvise", c.c_void_p(memory), c.c_size_t(4), c.c_int(3), c.c_int(50)) == INVALID_DEVICE
    )
    stream.synchronize()
    hip.call("hipFree", c.c_void_p(memory))


def test_picture_of_a_graph(tmp_path: Path, stream: Stream) -> None:
    """A file for Graphviz: nodes and edges."""
    buffer = zeros()
    graph = handle("hipGraphCreate", c.c_uint(0))
    kernel = add("hipGraphAddKernelNode", graph, [], c.byref(kernel_node("add_one", buffer.address)))
    add("hipGraphAddEmptyNode", graph, [kernel])
    path = tmp_path / "graph.dot"
    hip.call("hipGraphDebugDotPrint", c.c_void_p(graph), str(path).encode(), c.c_uint(1))
    lines = path.read_text().splitlines()
    assert lines[0].startswith("digraph")
    assert "add_one" in lines[1]
    assert f"({COUNT // 64},1,1)" in lines[1]
    assert lines[3].strip() == "n0 -> n1;"
    nowhere = str(tmp_path / "none" / "graph.dot").encode()
    assert status("hipGraphDebugDotPrint", c.c_void_p(graph), nowhere, c.c_uint(0)) == 304


def test_child_graph_changed(stream: Stream) -> None:
    """hipGraphExecChildGraphNodeSetParams: the launch does what the new child does."""
    buffer = zeros()
    children = []
    for value in (3, 5):
        begin(stream)
        fill_async(buffer.address, value, stream)
        children.append(end(stream))
    parent = handle("hipGraphCreate", c.c_uint(0))
    node = add("hipGraphAddChildGraphNode", parent, [], c.c_void_p(children[0]))
    executable = instantiate(parent)
    for value, child in ((3, children[0]), (5, children[1])):
        hip.call(
            "hipGraphExecChildGraphNodeSetParams",
            c.c_void_p(executable),
            c.c_void_p(node),
            c.c_void_p(child),
        )
        replay(executable, stream)
        assert (buffer.read(np.float32) == value).all()


class _Attributes(c.Structure):
    _fields_ = [
        ("type", c.c_int),
        ("device", c.c_int),
        ("device_pointer", c.c_void_p),
        ("host_pointer", c.c_void_p),
        ("is_managed", c.c_int),
        ("flags", c.c_uint),
    ]


def test_memory_that_is_not_known() -> None:
    """A success of type unregistered, as ROCm's source has it; a single attribute is an error."""
    host, attributes = np.zeros(64, np.uint8), _Attributes(7, 7, 7, 7, 7, 7)
    pointer = c.c_void_p(host.ctypes.data)
    hip.call("hipPointerGetAttributes", c.byref(attributes), pointer)
    assert [getattr(attributes, name) for name, _ in _Attributes._fields_] == [0, -2, None, None, 0, 0]
    assert status("hipPointerGetAttributes", c.byref(attributes), None) == INVALID
    assert status("hipPointerGetAttribute", c.byref(c.c_int()), c.c_int(2), pointer) == INVALID
    kind, base = c.c_int(7), c.c_void_p(7)
    names, values = (c.c_int * 2)(2, 11), (c.c_void_p * 2)(c.addressof(kind), c.addressof(base))
    hip.call("hipDrvPointerGetAttributes", c.c_uint(2), names, values, pointer)
    assert (kind.value, base.value) == (0, None)
    buffer = zeros()
    hip.call("hipDrvPointerGetAttributes", c.c_uint(2), names, values, c.c_void_p(buffer.address + 4))
    assert (kind.value, base.value) == (2, buffer.address)


def resident_bytes() -> int:
    """Memory of this process that is there."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_allocation_touches_no_page() -> None:
    """Memory takes none of the host's before it is written, and reads as poison before it is."""
    nbytes = 3 << 29
    before = resident_bytes()
    buffer = hip.Buffer(nbytes)
    out = np.zeros(4, np.uint32)
    for offset in (0, (1 << 24) - 8, nbytes - 16):
        arguments = (out.ctypes.data_as(c.c_void_p), c.c_void_p(buffer.address + offset), c.c_size_t(16))
        hip.call("hipMemcpy", *arguments, c.c_int(2))
        assert (out == struct.unpack("<I", bytes.fromhex("bd7fbd7f"))[0]).all()
    assert resident_bytes() - before < 64 << 20
    ones = np.ones(1 << 20, np.uint32)
    buffer.write(ones)
    buffer.free()
    other = hip.Buffer(nbytes)
    host = np.zeros(1 << 20, np.uint32)
    hip.call(
        "hipMemcpy",
        host.ctypes.data_as(c.c_void_p),
        c.c_void_p(other.address),
        c.c_size_t(4 << 20),
        c.c_int(2),
    )
    assert (host == 0x7FBD7FBD).all()
    other.free()


def test_host_function_on_a_stopped_device() -> None:
    """It runs, asked for before the launch stopped or after: who waits for it does not hang."""
    stream, seen = Stream(1), []
    note = HOST_FUNCTION(lambda data: seen.append(data))
    with stream.held():
        launch("add_one", stream.handle, 4096)
        hip.call("hipLaunchHostFunc", stream.pointer, note, c.c_void_p(1))
    assert hip.lib().hipStreamSynchronize(stream.pointer) == 700
    code = hip.lib().hipLaunchHostFunc(stream.pointer, note, c.c_void_p(2))  # 700 if a fault is final
    hip.lib().hipStreamSynchronize(stream.pointer)
    hip.recover()
    stream.synchronize()
    assert seen == ([1] if code else [1, 2])
    assert code in (0, 700)
