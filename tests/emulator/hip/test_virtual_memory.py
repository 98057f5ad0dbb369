# SPDX-License-Identifier: MIT OR Apache-2.0
"""Memory whose addresses the program manages: hipMemAddressReserve, hipMemCreate, hipMemMap and their kin."""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterator

import numpy as np
import pytest

from ..support import hip
from ..support.streams import COUNT, handle, launch, status

INVALID, ILLEGAL_ADDRESS, NOT_SUPPORTED, OUT_OF_MEMORY = 1, 700, 801, 2
CHUNK = 4096
NONE, READ, READ_WRITE = 0, 1, 3


class Properties(c.Structure):
    """hipMemAllocationProp: pinned memory on a device."""

    _fields_ = (
        *((name, c.c_int) for name in ("type", "handles", "location", "device")),
        ("security", c.c_void_p),
        ("flags", c.c_ubyte * 4),
    )


class Access(c.Structure):
    """hipMemAccessDesc."""

    _fields_ = tuple((name, c.c_int) for name in ("location", "device", "flags"))


PINNED = Properties(1, 0, 1, 0)


def reserve(nbytes: int, alignment: int = 0) -> int:
    """Addresses."""
    return handle("hipMemAddressReserve", c.c_size_t(nbytes), c.c_size_t(alignment), None, c.c_uint64(0))


def create(nbytes: int) -> int:
    """Memory that is nowhere yet."""
    return handle("hipMemCreate", c.c_size_t(nbytes), c.byref(PINNED), c.c_uint64(0))


def map_status(address: int, memory: int, nbytes: int, offset: int = 0) -> int:
    """Put memory there."""
    return status(
        "hipMemMap",
        c.c_void_p(address),
        c.c_size_t(nbytes),
        c.c_size_t(offset),
        c.c_void_p(memory),
        c.c_uint64(0),
    )


def access_status(address: int, nbytes: int, flags: int = READ_WRITE) -> int:
    """Let device 0 access it, or not."""
    return status(
        "hipMemSetAccess",
        c.c_void_p(address),
        c.c_size_t(nbytes),
        c.byref(Access(1, 0, flags)),
        c.c_size_t(1),
    )


def unmap_status(address: int, nbytes: int) -> int:
    """Take it away."""
    return status("hipMemUnmap", c.c_void_p(address), c.c_size_t(nbytes))


def write(address: int, value: float, count: int = COUNT) -> int:
    """Fill it with floats."""
    data = np.full(count, value, np.float32)
    return status(
        "hipMemcpy", c.c_void_p(address), c.c_void_p(data.ctypes.data), c.c_size_t(data.nbytes), c.c_int(1)
    )


def read(address: int, count: int = COUNT) -> np.ndarray:
    """The floats there."""
    out = np.zeros(count, np.float32)
    hip.call(
        "hipMemcpy", c.c_void_p(out.ctypes.data), c.c_void_p(address), c.c_size_t(out.nbytes), c.c_int(2)
    )
    return out


def add_one(address: int) -> int:
    """A kernel over COUNT floats there, and how it went."""
    launch("add_one", None, address)
    code = status("hipDeviceSynchronize")
    if code:
        hip.recover()
    return code


@pytest.fixture
def place() -> Iterator[int]:
    """Four chunks of addresses."""
    address = reserve(4 * CHUNK)
    yield address
    hip.call("hipMemAddressFree", c.c_void_p(address), c.c_size_t(4 * CHUNK))


def test_from_creation_to_release(place: int) -> None:
    """Mapped memory may be accessed once that is said, and no more when it is unmapped."""
    memory = create(CHUNK)
    assert add_one(place) == ILLEGAL_ADDRESS
    assert map_status(place, memory, CHUNK) == 0
    assert add_one(place) == ILLEGAL_ADDRESS
    assert write(place, 1) == INVALID
    assert access_status(place, CHUNK) == 0
    assert write(place, 1) == 0
    assert add_one(place) == 0
    assert (read(place) == 2).all()
    flags = c.c_uint64(9)
    hip.call("hipMemGetAccess", c.byref(flags), c.byref((c.c_int * 2)(1, 0)), c.c_void_p(place))
    assert flags.value == READ_WRITE
    assert access_status(place, CHUNK, NONE) == 0
    assert add_one(place) == ILLEGAL_ADDRESS
    assert unmap_status(place, CHUNK) == 0
    hip.call("hipMemRelease", c.c_void_p(memory))


def test_new_memory_is_poison(place: int) -> None:
    """It is like hipMalloc's: what nobody wrote does not read as zeros."""
    memory = create(CHUNK)
    assert (map_status(place, memory, CHUNK), access_status(place, CHUNK)) == (0, 0)
    assert (read(place).view(np.uint32) != 0).all()
    assert unmap_status(place, CHUNK) == 0
    hip.call("hipMemRelease", c.c_void_p(memory))


def test_neighbours_are_one_array(place: int) -> None:
    """A kernel and a copy may run from one mapping into the next, and not beyond the last."""
    memory = [create(CHUNK) for _ in range(2)]
    for i, m in enumerate(memory):
        assert map_status(place + i * CHUNK, m, CHUNK) == 0
        hip.call("hipMemRelease", c.c_void_p(m))  # it stays as long as it is mapped
        assert access_status(place + i * CHUNK, CHUNK) == 0  # one after the other, as a heap grows
    middle = place + CHUNK - 2 * COUNT
    assert write(middle, 5) == 0
    assert add_one(middle) == 0
    assert (read(middle) == 6).all()
    assert write(place + 2 * CHUNK - 2 * COUNT, 5) == INVALID
    assert add_one(place + 2 * CHUNK - 2 * COUNT) == ILLEGAL_ADDRESS
    assert unmap_status(place + CHUNK, CHUNK) == 0
    assert add_one(middle) == ILLEGAL_ADDRESS
    assert add_one(place) == 0
    assert unmap_status(place, CHUNK) == 0


def test_memory_in_two_places(place: int) -> None:
    """Two addresses of the same memory read the same; memory keeps its content when it moves."""
    memory = create(2 * CHUNK)
    assert map_status(place, memory, CHUNK, CHUNK) == 0
    assert map_status(place + 2 * CHUNK, memory, 2 * CHUNK) == 0
    assert (access_status(place, CHUNK), access_status(place + 2 * CHUNK, 2 * CHUNK)) == (0, 0)
    assert write(place, 7) == 0
    assert (read(place + 3 * CHUNK) == 7).all()
    assert unmap_status(place + 2 * CHUNK, 2 * CHUNK) == 0
    assert unmap_status(place, CHUNK) == 0
    assert map_status(place + CHUNK, memory, 2 * CHUNK) == 0
    assert access_status(place + CHUNK, 2 * CHUNK) == 0
    assert (read(place + 2 * CHUNK) == 7).all()
    assert unmap_status(place + CHUNK, 2 * CHUNK) == 0
    hip.call("hipMemRelease", c.c_void_p(memory))


def test_handles() -> None:
    """They have properties, and as many uses as they were given out."""
    address, memory = reserve(CHUNK), create(CHUNK)
    assert map_status(address, memory, CHUNK) == 0
    found = Properties()
    hip.call("hipMemGetAllocationPropertiesFromHandle", c.byref(found), c.c_void_p(memory))
    assert (found.type, found.location, found.device) == (1, 1, 0)
    assert handle("hipMemRetainAllocationHandle", c.c_void_p(address)) == memory
    for code in (0, 0, INVALID):
        assert status("hipMemRelease", c.c_void_p(memory)) == code
    assert unmap_status(address, CHUNK) == 0
    hip.call("hipMemAddressFree", c.c_void_p(address), c.c_size_t(CHUNK))


def test_memory_is_counted() -> None:
    """It takes the device's memory while a handle or a mapping exists."""

    def free_bytes() -> int:
        free, total = c.c_size_t(), c.c_size_t()
        hip.call("hipMemGetInfo", c.byref(free), c.byref(total))
        return free.value

    before, address = free_bytes(), reserve(CHUNK)
    memory = create(CHUNK)
    assert free_bytes() == before - CHUNK
    assert map_status(address, memory, CHUNK) == 0
    hip.call("hipMemRelease", c.c_void_p(memory))
    assert free_bytes() == before - CHUNK
    assert unmap_status(address, CHUNK) == 0
    assert free_bytes() == before
    hip.call("hipMemAddressFree", c.c_void_p(address), c.c_size_t(CHUNK))
    huge = status("hipMemCreate", c.byref(c.c_void_p()), c.c_size_t(1 << 50), c.byref(PINNED), c.c_uint64(0))
    assert huge == OUT_OF_MEMORY


@pytest.mark.parametrize("alignment", [0, 4096, 1 << 21, 1 << 30])
def test_alignment(alignment: int) -> None:
    """Addresses are a multiple of it."""
    address = reserve(CHUNK, alignment)
    assert address % (alignment or 4096) == 0
    hip.call("hipMemAddressFree", c.c_void_p(address), c.c_size_t(CHUNK))


def test_granularity() -> None:
    """A page, or what ROCm recommends."""
    for option, want in ((0, 4096), (1, 2 << 20)):
        got = c.c_size_t()
        hip.call("hipMemGetAllocationGranularity", c.byref(got), c.byref(PINNED), c.c_int(option))
        assert got.value == want


def test_refused(place: int) -> None:
    """Whatever is not what was reserved, created or mapped; nothing changes by it."""
    out, memory = c.c_void_p(), create(CHUNK)
    sizes = (c.c_size_t(100), c.c_size_t(0))
    for size in sizes:
        assert (
            status("hipMemAddressReserve", c.byref(out), size, c.c_size_t(0), None, c.c_uint64(0)) == INVALID
        )
        assert status("hipMemCreate", c.byref(out), size, c.byref(PINNED), c.c_uint64(0)) == INVALID
    odd = c.c_size_t(3)
    assert (
        status("hipMemAddressReserve", c.byref(out), c.c_size_t(CHUNK), odd, None, c.c_uint64(0)) == INVALID
    )
    shared = Properties(1, 1, 1, 0)
    assert status("hipMemCreate", c.byref(out), c.c_size_t(CHUNK), c.byref(shared), c.c_uint64(0)) == INVALID
    assert map_status(place, memory + 1, CHUNK) == INVALID
    assert map_status(place, memory, 2 * CHUNK) == INVALID
    assert map_status(place, memory, CHUNK, CHUNK) == INVALID
    assert map_status(place + 4 * CHUNK, memory, CHUNK) == INVALID
    assert access_status(place, CHUNK) == INVALID
    assert unmap_status(place, CHUNK) == INVALID
    assert map_status(place + CHUNK, memory, CHUNK) == 0
    assert map_status(place + CHUNK, memory, CHUNK) == INVALID
    assert access_status(place + CHUNK, 2 * CHUNK) == INVALID
    assert access_status(place + CHUNK, CHUNK, READ) == NOT_SUPPORTED
    assert access_status(place + CHUNK, CHUNK) == 0
    assert status("hipFree", c.c_void_p(place + CHUNK)) == INVALID
    assert status("hipFreeAsync", c.c_void_p(place + CHUNK), None) == INVALID
    assert status("hipMemAddressFree", c.c_void_p(place), c.c_size_t(4 * CHUNK)) == INVALID
    assert status("hipMemAddressFree", c.c_void_p(place), c.c_size_t(CHUNK)) == INVALID
    assert unmap_status(place + CHUNK, CHUNK) == 0
    hip.call("hipMemRelease", c.c_void_p(memory))
