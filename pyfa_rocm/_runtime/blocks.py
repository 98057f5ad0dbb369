# SPDX-License-Identifier: MIT OR Apache-2.0
"""Blocks of device memory, and those of a device that no array has."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from pyfa_rocm._runtime.forks import at_fork
from pyfa_rocm.device import closed_streams, synchronize

__all__ = ["UNKNOWN_STREAM", "Block", "Kept", "Lease", "lock", "size_class"]

# hipStreamPerThread: one handle, and a stream for each thread.
_PER_THREAD = 2
# Stands for the streams of a block that has to wait for the device: no stream has this handle.
UNKNOWN_STREAM = -1
# Classes to each power of two: the next class holds nothing that is more than a quarter larger.
_CLASSES = 8
# HIP hands out no less than a page; what is smaller is all one class.
_SMALL_BYTES = 512

# Guards everything that is known of blocks.
lock = threading.RLock()
# A forked child must not get a lock that a thread of its parent holds.
at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)


class Block:
    """One allocation of HIP's.

    Attributes
    ----------
    address, capacity, device : int
        Where it is, and its size.
    nbytes : int
        Size of the array that it belongs to or last belonged to, as it is counted.
    used_on : int or None
        Stream of the last work that uses it; None: there is none that the device has not done.
    written_on : int or None
        Stream of the last kernel of this package that writes the array in it; None: nothing is pending.
    shared : bool
        Whether its work may be on other streams too.
    captured : bool
        Whether a graph may use it.
    lease : weakref or None
        The lease of the array that it belongs to.
    returned : int
        When it was kept: a number that grows.
    """

    __slots__ = (
        "address",
        "capacity",
        "captured",
        "device",
        "lease",
        "nbytes",
        "returned",
        "shared",
        "used_on",
        "written_on",
    )

    def __init__(self, capacity: int, device: int) -> None:
        self.address = self.nbytes = self.returned = 0
        self.capacity = capacity
        self.device = device
        self.used_on: int | None = None
        self.written_on: int | None = None
        self.shared = self.captured = False
        self.lease: Lease | None = None

    def use(self, stream: int) -> None:
        """Say that work on a stream will use it."""
        # Not two at a time: the second would not see that it has company.
        with lock:
            if stream == _PER_THREAD or self.used_on not in (None, stream):
                self.shared = True
            self.used_on = stream

    def settle(self, stream: int | None = None) -> None:
        """Make what was written readable: on the host and everywhere (None), or on a stream."""
        if self.written_on is not None and (self.written_on != stream or stream in closed_streams):
            # The stream may be gone by now, so the device is waited for, not the stream.
            synchronize(self.device)
            self.written_on = None

    def leave_stream(self) -> None:
        """Say that its stream is closed: one that has the handle from now on is another."""
        self.shared = True
        if self.written_on is not None:
            self.written_on = UNKNOWN_STREAM


class Lease(weakref.ref[Any]):
    """The weak reference to the array that has a block."""

    __slots__ = ("block",)
    block: Block


def size_class(nbytes: int) -> int:
    """Return the class of a size; the next class is that of the next larger sizes."""
    nbytes = max(nbytes, _SMALL_BYTES)
    shift = nbytes.bit_length() - _CLASSES.bit_length()
    return shift * _CLASSES + (nbytes >> shift)


class Kept:
    """The blocks of a device that no array has, by size class and stream.

    Attributes
    ----------
    nbytes, count : int
        Their sizes together, and how many they are.
    """

    __slots__ = ("_blocks", "_clock", "count", "nbytes")

    def __init__(self) -> None:
        # No list is empty: sizes that do not recur would leave one each.
        self._blocks: dict[tuple[int, int | None], list[Block]] = {}
        self._clock = self.count = self.nbytes = 0

    def add(self, block: Block) -> None:
        """Keep a block."""
        self._clock += 1
        block.returned = self._clock
        stream = UNKNOWN_STREAM if block.shared else block.used_on
        self._blocks.setdefault((size_class(block.capacity), stream), []).append(block)
        self.count += 1
        self.nbytes += block.capacity

    def take(self, nbytes: int, stream: int | None, exact: bool) -> Block | None:
        """Return a block of this size, or a little more, that work on a stream may use; None: none is."""
        own = size_class(nbytes)
        for place in (own,) if exact else (own, own + 1):
            for user in (stream, None) if stream is not None else (None,):
                if (block := self._take_from((place, user), nbytes, exact)) is not None:
                    self.count -= 1
                    self.nbytes -= block.capacity
                    return block
        return None

    def _take_from(self, key: tuple[int, int | None], nbytes: int, exact: bool) -> Block | None:
        blocks = self._blocks.get(key, [])
        for i in range(len(blocks) - 1, -1, -1):
            capacity = blocks[i].capacity
            if capacity == nbytes or (capacity > nbytes and not exact):
                block = blocks.pop(i)
                if not blocks:
                    del self._blocks[key]
                return block
        return None

    def drain(self) -> list[Block]:
        """Return all, the one that was kept first in front, and keep none."""
        blocks = self.all()
        self._blocks.clear()
        self.count = self.nbytes = 0
        blocks.sort(key=lambda block: block.returned)
        return blocks

    def all(self) -> list[Block]:
        """Return all."""
        return [block for blocks in self._blocks.values() for block in blocks]

    def recount(self) -> None:
        """Set the numbers right, if an exception came between a step and its count."""
        blocks = self.all()
        self.count = len(blocks)
        self.nbytes = sum(block.capacity for block in blocks)

    def forget_streams(self, closed: set[int]) -> None:
        """Let blocks that such a stream used wait for the device: a stream of that handle is another now."""
        for key in [key for key in self._blocks if key[1] in closed]:
            for block in self._blocks.pop(key):
                block.leave_stream()
                self._blocks.setdefault((key[0], UNKNOWN_STREAM), []).append(block)
