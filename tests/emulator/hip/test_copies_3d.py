# SPDX-License-Identifier: MIT OR Apache-2.0
"""Copies of boxes of bytes: hipMemcpy3D and its kin, by HIP's parameters and by the driver's."""

from __future__ import annotations

import ctypes as c
from typing import Any

import numpy as np
import pytest

from ..support import hip
from ..support.streams import Stream, handle, status
from .test_hip_graph import instantiate, replay

INVALID, INVALID_PITCH = 1, 12
HOST, DEVICE = 1, 2
# Slices, rows and bytes of a row of the source and of the destination, and of the box that is copied.
SOURCE, TARGET, BOX = (5, 7, 32), (4, 6, 48), (3, 4, 17)
FROM, TO = (1, 2, 5), (0, 1, 9)


class _Ends(c.Structure):
    """hipMemcpy3DParms."""

    _fields_ = (
        *((name, t) for end in ("src", "dst") for name, t in (
            (f"{end}_array", c.c_void_p), (f"{end}_pos", c.c_size_t * 3), (f"{end}_pointer", c.c_void_p),
            (f"{end}_pitch", c.c_size_t), (f"{end}_width", c.c_size_t), (f"{end}_height", c.c_size_t))),
        ("extent", c.c_size_t * 3),
        ("kind", c.c_int),
    )  # fmt: skip


class _DriverEnds(c.Structure):
    """HIP_MEMCPY3D."""

    _fields_ = (
        *((name, t) for end in ("src", "dst") for name, t in (
            (f"{end}_pos", c.c_size_t * 3), (f"{end}_lod", c.c_size_t), (f"{end}_type", c.c_int),
            (f"{end}_host", c.c_void_p), (f"{end}_device", c.c_void_p), (f"{end}_array", c.c_void_p),
            (f"{end}_pitch", c.c_size_t), (f"{end}_height", c.c_size_t))),
        ("extent", c.c_size_t * 3),
    )  # fmt: skip


def _backwards(values: tuple[int, ...]) -> Any:
    return (c.c_size_t * 3)(*reversed(values))


def _parameters(source: int, target: int) -> _Ends:
    p = _Ends(kind=3, extent=_backwards(BOX), src_pos=_backwards(FROM), dst_pos=_backwards(TO))
    p.src_pointer, p.src_pitch, p.src_width, p.src_height = source, SOURCE[2], SOURCE[2], SOURCE[1]
    p.dst_pointer, p.dst_pitch, p.dst_width, p.dst_height = target, TARGET[2], TARGET[2], TARGET[1]
    return p


def _driver_parameters(source: int, target: int) -> _DriverEnds:
    p = _DriverEnds(extent=_backwards(BOX), src_pos=_backwards(FROM), dst_pos=_backwards(TO))
    p.src_type, p.src_device, p.src_pitch, p.src_height = DEVICE, source, SOURCE[2], SOURCE[1]
    p.dst_type, p.dst_device, p.dst_pitch, p.dst_height = DEVICE, target, TARGET[2], TARGET[1]
    return p


_CALLS = {
    "hipMemcpy3D": (_parameters, False),
    "hipMemcpy3D_spt": (_parameters, False),
    "hipMemcpy3DAsync": (_parameters, True),
    "hipMemcpy3DAsync_spt": (_parameters, True),
    "hipDrvMemcpy3D": (_driver_parameters, False),
    "hipDrvMemcpy3DAsync": (_driver_parameters, True),
}


def _buffers() -> tuple[hip.Buffer, hip.Buffer, np.ndarray]:
    """A source, a target, and what the target holds after the copy."""
    rng = np.random.default_rng(0)
    source, target = (rng.integers(0, 256, shape, np.uint8) for shape in (SOURCE, TARGET))
    buffers = hip.Buffer.of(source), hip.Buffer.of(target)
    boxes = (tuple(slice(at, at + n) for at, n in zip(start, BOX, strict=True)) for start in (TO, FROM))
    into, out_of = boxes
    target[into] = source[out_of]
    return *buffers, target


def _arguments(stream: Stream | None) -> tuple[c.c_void_p, ...]:
    return (stream.pointer,) if stream else ()


@pytest.mark.parametrize("name", _CALLS)
def test_box(stream: Stream, name: str) -> None:
    """The box arrives where it is to go, and all around stays."""
    make, is_async = _CALLS[name]
    source, target, want = _buffers()
    hip.call(name, c.byref(make(source.address, target.address)), *_arguments(stream if is_async else None))
    hip.call("hipDeviceSynchronize")
    np.testing.assert_array_equal(target.read(np.uint8).reshape(TARGET), want)


def test_box_of_the_host(stream: Stream) -> None:
    """Pageable memory is known by its type; the copy has it when the call returns."""
    source, target, want = _buffers()
    host = source.read(np.uint8)
    p = _driver_parameters(0, target.address)
    p.src_type, p.src_host = HOST, host.ctypes.data
    with stream.held():
        hip.call("hipDrvMemcpy3DAsync", c.byref(p), stream.pointer)
        host[:] = 0
    stream.synchronize()
    np.testing.assert_array_equal(target.read(np.uint8).reshape(TARGET), want)


@pytest.mark.parametrize("name", ["hipGraphAddMemcpyNode", "hipDrvGraphAddMemcpyNode"])
def test_node(stream: Stream, name: str) -> None:
    """A graph copies the box at each launch."""
    source, target, want = _buffers()
    graph = handle("hipGraphCreate", c.c_uint(0))
    node, before = c.c_void_p(), target.read(np.uint8)
    driver = name.startswith("hipDrv")
    p = (_driver_parameters if driver else _parameters)(source.address, target.address)
    context = (None,) if driver else ()
    hip.call(name, c.byref(node), c.c_void_p(graph), None, c.c_size_t(0), c.byref(p), *context)
    executable = instantiate(graph)
    for _ in range(2):
        target.write(before)
        replay(executable, stream)
        np.testing.assert_array_equal(target.read(np.uint8).reshape(TARGET), want)
    hip.call("hipGraphExecDestroy", c.c_void_p(executable))
    hip.call("hipGraphDestroy", c.c_void_p(graph))


@pytest.mark.parametrize("name", _CALLS)
def test_refused(stream: Stream, name: str) -> None:
    """Copies that leave an allocation, or whose pitches overflow a sum, fail and write nothing."""
    make, is_async = _CALLS[name]
    source, target, _ = _buffers()
    before = target.read(np.uint8)
    tail = _arguments(stream if is_async else None)

    def code(**fields: int) -> int:
        p = make(source.address, target.address)
        for field, value in fields.items():
            setattr(p, field, value)
        return status(name, c.byref(p), *tail)

    assert status(name, None, *tail) == INVALID
    assert code(dst_height=100) == INVALID
    assert code(dst_pitch=1 << 62) == INVALID
    assert code(dst_height=1 << 63) == INVALID
    assert code(src_pitch=1 << 63) == INVALID
    assert code(src_pitch=3) == INVALID_PITCH
    hip.call("hipDeviceSynchronize")
    np.testing.assert_array_equal(target.read(np.uint8), before)


@pytest.mark.parametrize("pitch", [1 << 63, (1 << 64) - 16])
def test_rows_beyond_all_addresses(pitch: int) -> None:
    """hipMemcpy2D and hipMemset2D, whose last row would begin where the first does, or before."""
    buffer = hip.Buffer.of(np.zeros(64, np.uint8))
    p, width, rows = c.c_void_p(buffer.address), c.c_size_t(16), c.c_size_t(3)
    far, near = c.c_size_t(pitch), c.c_size_t(16)
    assert status("hipMemcpy2D", p, far, p, near, width, rows, c.c_int(3)) == INVALID
    assert status("hipMemcpy2D", p, near, p, far, width, rows, c.c_int(3)) == INVALID
    assert status("hipMemset2D", p, far, c.c_int(1), width, rows) == INVALID
    assert (buffer.read(np.uint8) == 0).all()
