# SPDX-License-Identifier: MIT OR Apache-2.0
"""Several devices, access between them, and stream-ordered allocation."""

from __future__ import annotations

import ctypes as c

import numpy as np
import pytest
from inner import run_script

from ..support import hip
from ..support.streams import COUNT, NOT_READY, Pinned, Stream, copy_async, handle, launch, status, zeros

_PEERS = """
import numpy as np
from emulator.support import hip
from emulator.support.streams import *
hip.call("hipSetDevice", c.c_int(1))
theirs = zeros()
hip.call("hipSetDevice", c.c_int(0))
stream, out = Stream(), Pinned(-1)

def touch():
    launch("add_one", stream.handle, theirs.address)
    try:
        stream.synchronize()
        return "fine"
    except hip.HipError as error:
        return f"{error.code} {error.fault}"

print(touch())
hip.call("hipDeviceEnablePeerAccess", c.c_int(1), c.c_uint(0))
print(status("hipDeviceEnablePeerAccess", c.c_int(1), c.c_uint(0)), touch())
hip.call("hipDeviceDisablePeerAccess", c.c_int(1))
print(touch())
mine = zeros()
hip.call("hipMemcpyPeerAsync", c.c_void_p(mine.address), c.c_int(0), c.c_void_p(theirs.address), c.c_int(1),
         c.c_size_t(4 * COUNT), stream.pointer)
copy_async(out.address, mine.address, stream)
stream.synchronize()
print(out.array[0])
# A stream of one device waits for an event of another; neither device's synchronisation is the other's.
event = Event()
hip.call("hipSetDevice", c.c_int(1))
far = Stream()
with stream.held():
    launch("add_one", stream.handle, mine.address)
    event.record(stream)
    far.wait(event)
    assert far.query() == NOT_READY
far.synchronize()
with stream.held():
    launch("add_one", stream.handle, mine.address)
    hip.call("hipDeviceSynchronize")
    print(status("hipStreamQuery", stream.pointer))
print(status("hipEventRecord", event.pointer, far.pointer))
"""

pytestmark = pytest.mark.usefixtures("rocm")


def test_peers() -> None:
    """A kernel reaches another device's memory only if that was enabled; copies always do."""
    out = run_script(_PEERS, env={"FMHA_EMU_DEVICES": "8", "FMHA_EMU_QUIET": "1"}).splitlines()
    assert out[0].startswith("700")
    assert "device 1" in out[0]
    assert "peer" in out[0]
    assert out[1] == "704 fine"
    assert out[2].startswith("700")
    assert out[3:] == ["1.0", str(NOT_READY), "400"]


class _Props(c.Structure):
    # hipMemPoolProps: type, handle types, location, security attributes, reserved.
    _fields_ = [
        ("type", c.c_int),
        ("handles", c.c_int),
        ("location_type", c.c_int),
        ("location", c.c_int),
        ("security", c.c_void_p),
        ("reserved", c.c_ubyte * 64),
    ]


RELEASE_THRESHOLD, RESERVED, RESERVED_HIGH, USED, USED_HIGH = 4, 5, 6, 7, 8


def attribute(pool: int, number: int) -> int:
    """A number of a pool."""
    value = c.c_uint64()
    hip.call("hipMemPoolGetAttribute", c.c_void_p(pool), c.c_int(number), c.byref(value))
    return value.value


def test_free_async_is_in_stream_order() -> None:
    """The memory lives until the stream comes to the free; a second free is refused at once."""
    stream, out = Stream(), Pinned(-1)
    memory = handle("hipMallocAsync", c.c_size_t(4 * COUNT), stream.pointer)
    with stream.held():
        hip.call("hipMemsetAsync", c.c_void_p(memory), c.c_int(0), c.c_size_t(4 * COUNT), stream.pointer)
        launch("add_one", stream.handle, memory)
        copy_async(out.address, memory, stream)
        hip.call("hipFreeAsync", c.c_void_p(memory), stream.pointer)
        assert status("hipFreeAsync", c.c_void_p(memory), stream.pointer) == 1
        assert status("hipFree", c.c_void_p(memory)) == 1
    stream.synchronize()
    assert (out.array == 1).all()
    launch("add_one", stream.handle, memory)
    with pytest.raises(hip.HipError) as caught:
        stream.synchronize()
    assert caught.value.code == 700


def test_pool() -> None:
    """Made, used, counted, destroyed while in use."""
    stream = Stream()
    pool = handle("hipMemPoolCreate", c.byref(_Props(1, 0, 1, 0)))
    a = handle("hipMallocFromPoolAsync", c.c_size_t(1024), c.c_void_p(pool), stream.pointer)
    b = handle("hipMallocFromPoolAsync", c.c_size_t(4096), c.c_void_p(pool), stream.pointer)
    assert attribute(pool, USED) == 5120
    hip.call("hipFreeAsync", c.c_void_p(a), stream.pointer)
    stream.synchronize()
    assert attribute(pool, USED) == 4096
    assert attribute(pool, RESERVED) == 4096
    assert attribute(pool, USED_HIGH) == 5120
    reset = c.c_uint64(0)
    hip.call("hipMemPoolSetAttribute", c.c_void_p(pool), c.c_int(USED_HIGH), c.byref(reset))
    assert attribute(pool, USED_HIGH) == 4096
    threshold = c.c_uint64(1 << 20)
    hip.call("hipMemPoolSetAttribute", c.c_void_p(pool), c.c_int(RELEASE_THRESHOLD), c.byref(threshold))
    assert attribute(pool, RELEASE_THRESHOLD) == 1 << 20
    assert status("hipMemPoolSetAttribute", c.c_void_p(pool), c.c_int(USED), c.byref(reset)) == 1
    hip.call("hipMemPoolTrimTo", c.c_void_p(pool), c.c_size_t(0))
    hip.call("hipMemPoolDestroy", c.c_void_p(pool))
    assert status("hipMemPoolDestroy", c.c_void_p(pool)) == 1
    hip.call("hipMemset", c.c_void_p(b), c.c_int(0), c.c_size_t(4096))
    hip.call("hipFree", c.c_void_p(b))


def test_default_pool() -> None:
    """hipMallocAsync takes from the device's current pool, which may be changed and changed back."""
    stream = Stream()
    default = handle("hipDeviceGetDefaultMemPool", c.c_int(0))
    assert handle("hipDeviceGetMemPool", c.c_int(0)) == default
    assert status("hipMemPoolDestroy", c.c_void_p(default)) == 1
    own = handle("hipMemPoolCreate", c.byref(_Props(1, 0, 1, 0)))
    hip.call("hipDeviceSetMemPool", c.c_int(0), c.c_void_p(own))
    memory = handle("hipMallocAsync", c.c_size_t(256), stream.pointer)
    assert attribute(own, USED) == 256
    hip.call("hipFreeAsync", c.c_void_p(memory), stream.pointer)
    hip.call("hipMemPoolDestroy", c.c_void_p(own))
    assert handle("hipDeviceGetMemPool", c.c_int(0)) == default
    stream.synchronize()


@pytest.mark.parametrize("props", [(0, 0, 1, 0), (1, 0, 0, 0), (1, 0, 1, 99), (1, 1, 1, 0)])
def test_bad_pools(props: tuple[int, int, int, int]) -> None:
    """No such kind of memory, place or way to share."""
    assert status("hipMemPoolCreate", c.byref(c.c_void_p()), c.byref(_Props(*props))) in (1, 101, 801)


def test_peer_copy_of_no_device() -> None:
    """A device that is not there."""
    buffer = zeros()
    pointer = c.c_void_p(buffer.address)
    assert status("hipMemcpyPeer", pointer, c.c_int(0), pointer, c.c_int(50), c.c_size_t(4)) == 101
    assert not buffer.read(np.float32).any()
