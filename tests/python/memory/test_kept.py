# SPDX-License-Identifier: MIT OR Apache-2.0
"""Kept memory when sizes and streams change all the time, and after an exception."""

from __future__ import annotations

import inspect
import linecache
import random
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest

import pyfa_rocm as p
from pyfa_rocm._runtime import blocks, device_memory, hip, hip_memory
from pyfa_rocm._runtime.blocks import Kept, size_class
from pyfa_rocm._runtime.tensor import contiguous


def array(nbytes: int, stream: int | None = None) -> p.DeviceArray:
    return p.DeviceArray.allocate(contiguous((nbytes,), "uint8", 0), stream)


@pytest.fixture
def fitting(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU."""
    monkeypatch.setattr(p.memory, "exact", False)


def test_classes() -> None:
    """A block of a class or the next is at most a quarter too large, and the next is the next larger."""
    sizes = range(512, 20_000)
    for nbytes in sizes:
        assert 0 <= size_class(nbytes + 1) - size_class(nbytes) <= 1
    largest = {size_class(nbytes): nbytes for nbytes in sizes}
    for nbytes in range(512, 15_000):
        assert nbytes * 5 // 4 >= largest[size_class(nbytes) + 1] - 1
    assert size_class(1) == size_class(512)


@pytest.mark.usefixtures("fitting")
def test_a_smaller_array_has_it(calls_of_hip: list[str]) -> None:
    """Its size is counted as it is, and the block may serve a larger one afterwards."""
    address = array(2000).address
    before = p.memory.live_bytes
    calls_of_hip.clear()
    for nbytes in (*range(2000, 1791, -1), 2000):
        x = array(nbytes)
        assert (x.address, p.memory.live_bytes - before) == (address, nbytes)
        del x
    assert calls_of_hip == []
    assert p.memory.kept_bytes == 2000
    assert array(1500).address != address


def test_the_software_device_is_exact(calls_of_hip: list[str]) -> None:
    """An access behind an array is then outside of what HIP gave."""
    if not p.runtime().emulated:
        pytest.skip("of the software device")
    array(2000)
    array(1999)
    assert calls_of_hip == ["allocate", "allocate"]


@pytest.mark.parametrize("exact", [False, True])
def test_sizes_that_do_not_recur(monkeypatch: pytest.MonkeyPatch, exact: bool) -> None:
    """Neither blocks nor lists of them grow with the number of sizes."""
    most = 50
    monkeypatch.setattr(p.memory, "most_kept_blocks", most)
    monkeypatch.setattr(p.memory, "exact", exact)
    draw = random.Random(1)
    for _ in range(40):
        held = [array(draw.randint(1, 10**6)) for _ in range(10)]
        del held
    array(1)
    kept = p.memory._kept[0]
    assert kept.count <= most
    assert len(kept._blocks) <= kept.count == len(kept.all())
    assert kept.nbytes == sum(block.capacity for block in kept.all()) == p.memory.kept_bytes - 1


def test_most_blocks_that_are_kept(monkeypatch: pytest.MonkeyPatch, calls_of_hip: list[str]) -> None:
    """Half of them are freed at once, the oldest first: each hipFree waits."""
    monkeypatch.setattr(p.memory, "most_kept_blocks", 8)
    held = [array(1000 + i) for i in range(9)]
    addresses = [x.address for x in held]
    for _ in addresses:
        held.pop(0)
        assert p.memory.kept_bytes  # looks at what has come back
    calls_of_hip.clear()
    array(7)
    assert calls_of_hip == ["free"] * 5 + ["allocate"]
    assert [array(1000 + i).address for i in range(5, 9)] == addresses[5:]


@pytest.mark.parametrize("live", [False, True])
def test_a_closed_stream(live: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """HIP may give another stream its handle, whose work does not come after that of the old one."""
    monkeypatch.setattr(p.memory, "most_kept_blocks", 7)
    older = [array(2000 + i) for i in range(5)]
    del older
    assert p.memory.kept_bytes
    stream = p.Stream()
    handle = stream.handle
    old = array(1000, handle)
    address = old.address
    if not live:
        del old
        assert array(1000, handle).address == address
    stream.close()
    if live:
        waited: list[int] = []
        monkeypatch.setattr(blocks, "synchronize", waited.append)
        old._buffer.settle(handle)
        assert waited == [0]
        del old
    assert array(1000, handle).address != address
    assert array(1000, None).address != address
    array(10)  # which is one block too many: older ones are freed, and so the device is waited for
    array(20)
    assert address in [x.address for x in [array(1000, 0) for _ in range(3)]]


def test_streams_leave_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(p.memory, "most_kept_blocks", 20)
    for _ in range(100):
        with p.Stream() as stream:
            array(1000, stream.handle)
    array(1)
    assert p.memory._kept[0].count <= 21


def _used_bytes() -> int:
    free, total = hip.call("hipMemGetInfo")
    return int(total) - int(free)


_OURS = {module.__file__ for module in (p.array, blocks, device_memory, hip_memory)}


class _Interrupt:
    """Raises KeyboardInterrupt at the n-th place of what allocates at which Python may: around calls."""

    def __init__(self, at: int) -> None:
        self.left = at
        self._line = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in _OURS:
            return None
        line, self._line = self._line, linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        # At its end a `with` has no such place between the block and the release of the lock.
        ends = self._line.lstrip().startswith("with ")
        # Nor has a generator that goes on: Python looks for a Ctrl-C inside it.
        begins = event == "call" and not frame.f_code.co_flags & inspect.CO_GENERATOR
        if begins or (event == "line" and "(" in line and not ends):
            self.left -= 1
            if not self.left:
                sys.settrace(None)
                raise KeyboardInterrupt
        return self


def _interrupted(call: Callable[[], object]) -> Iterator[int]:
    """Run something again and again, each time with a Ctrl-C one line later, until it ends without."""
    tracer = sys.gettrace()
    for at in range(1, 1000):
        interrupt = _Interrupt(at)
        sys.settrace(interrupt)
        try:
            call()
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(tracer)
        yield at
        if interrupt.left > 0:
            return


def _capture_mode() -> int:
    """This thread's mode of captures, which is global (0) unless it is changed; it is then."""
    new, lib = hip_memory._hip()
    mode = new("int *", 0)
    lib.hipThreadExchangeStreamCaptureMode(mode)
    return int(mode[0])


def _new() -> object:
    return p.DeviceArray.empty((3000,), np.uint8)


def _on_a_stream() -> object:
    return array(1000, 0)


def _another_size() -> object:
    return array(900, 0)


def _too_much() -> object:
    return [array(n) for n in (5000, 5001, 5002)]


@pytest.mark.parametrize("call", [_new, _on_a_stream, _another_size, _too_much])
@pytest.mark.parametrize("kept", [0, 2, 2**30])
def test_an_interrupt_loses_nothing(
    call: Callable[[], object], kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt leaves the counts of live memory as they were, agrees with HIP, and leaks nothing."""
    p.memory.release()
    live, used = p.memory.live_bytes, _used_bytes()
    monkeypatch.setattr(p.memory, "most_kept_bytes", 2**30 if kept else 0)
    monkeypatch.setattr(p.memory, "most_kept_blocks", kept)
    ends = 0
    for _ in _interrupted(call):
        ends += 1
        assert not blocks.lock._is_owned()  # type: ignore[attr-defined]
        assert _capture_mode() == 0
        assert p.memory.live_bytes == live
        assert _used_bytes() - used == p.memory.kept_bytes
    assert ends > 10
    p.memory.release()
    assert _used_bytes() == used


def test_an_array_that_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory serves the next one."""
    before = p.memory.live_bytes

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(p.DeviceArray, "__init__", fail)
        with pytest.raises(MemoryError):
            array(1234)
    assert (p.memory.live_bytes, p.memory.kept_bytes) == (before, 1234)
    address = p.memory._kept[0].all()[0].address
    assert array(1234).address == address


def test_memory_in_use_is_not_lost() -> None:
    """A caller holds it that has lent it to no array yet."""
    before = p.memory.live_bytes
    block = p.memory.allocate(500, 0, None)
    assert p.memory.live_bytes == before + 500
    assert block.address
    del block
    assert p.memory.live_bytes == before


def test_nothing_is_kept_empty() -> None:
    kept = Kept()
    block = blocks.Block(100, 0)
    kept.add(block)
    assert kept.take(101, None, False) is None
    assert kept.take(100, None, True) is block
    assert (kept.count, kept.nbytes, kept.all(), kept._blocks) == (0, 0, [], {})
