# SPDX-License-Identifier: MIT OR Apache-2.0
"""The memory of DeviceArrays. What an array gives back is kept, and serves the next array of its size.

hipFree would wait for the device, so `o = flash_attn_func(...)` in a loop would wait for each call before the
next. Memory that is used again must not be in use still. So a block knows the stream that it is used on:

- work that is enqueued later on the same stream comes later anyway: it may have the block at once;
- a block that several streams used, or whose address others were told, is used again only after its device
  has been waited for;
- a block that a call allocated while it was recorded into a graph belongs to the graph, which may be run at
  any time: it is not used again.

The end of an array is told by a weak reference whose callback, deque.append, is C code. A finaliser in Python
is where a Ctrl-C may arrive, and there it is lost; and it may run anywhere, so it could take no lock.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from typing import Any

from pyfa_rocm._runtime import dlpack, hip_memory
from pyfa_rocm.device import enter_device, leave_device, synchronize

__all__ = ["Block", "DeviceMemory", "memory"]

# hipStreamPerThread: one handle, and a stream for each thread.
_PER_THREAD = 2
# Where blocks are kept that have to wait for the device: no stream has this handle.
_UNKNOWN = -1
# Enough for the outputs of a loop; little beside a card's memory, which frameworks want too.
_MOST_KEPT_BYTES = 2**30

_lock = threading.RLock()
# A forked child must not get a lock that a thread of its parent holds.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


class Block:
    """One allocation of HIP's.

    Attributes
    ----------
    address, nbytes, device : int
        Where it is.
    used_on : int or None
        Stream of the last work that uses it; None: there is none that the device has not done.
    written_on : int or None
        Stream of the last kernel of this package that writes the array in it; None: nothing is pending.
    shared : bool
        Whether its work may be on other streams too.
    captured : bool
        Whether a graph may use it.
    lease : weakref or None
        Of the array that it belongs to.
    """

    __slots__ = ("address", "captured", "device", "lease", "nbytes", "shared", "used_on", "written_on")

    def __init__(self, address: int, nbytes: int, device: int) -> None:
        self.address = address
        self.nbytes = nbytes
        self.device = device
        self.used_on: int | None = None
        self.written_on: int | None = None
        self.shared = self.captured = False
        self.lease: _Lease | None = None

    def use(self, stream: int) -> None:
        """Say that work on a stream will use it."""
        # Not two at a time: the second would not see that it has company.
        with _lock:
            if stream == _PER_THREAD or self.used_on not in (None, stream):
                self.shared = True
            self.used_on = stream

    def settle(self, stream: int | None = None) -> None:
        """Make what was written readable: on the host and everywhere (None), or on a stream."""
        if self.written_on is not None and self.written_on != stream:
            # The stream may be gone by now, so the device is waited for, not the stream.
            synchronize(self.device)
            self.written_on = None


class _Lease(weakref.ref[Any]):
    """The weak reference to the array that has a block."""

    __slots__ = ("block",)
    block: Block


class DeviceMemory:
    """The device memory of DeviceArrays, over all devices and threads.

    Attributes
    ----------
    peak_bytes : int
        Most that arrays held since the last `reset_peak`. Sizes as asked for, without HIP's rounding.
    most_kept_bytes : int
        Most that is kept on a device for further arrays; 1 GiB, unless it is set. With 0 memory that an array
        gave back is freed at the next allocation, which waits for the device.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self.most_kept_bytes = _MOST_KEPT_BYTES
        self._live_bytes = 0
        self._kept_bytes: dict[int, int] = {}
        # All of them: of a block that goes with its array in one garbage collection the lease says nothing.
        self._blocks: set[Block] = set()
        # Leases of arrays that are gone, as long as nobody has looked at them.
        self._returned: deque[_Lease] = deque()
        self._end = self._returned.append
        # Blocks without an array, by device, size and stream; None: nobody is using them.
        self._kept: dict[tuple[int, int, int | None], list[Block]] = {}
        self._of_graphs: list[Block] = []

    @property
    def live_bytes(self) -> int:
        """Bytes that arrays hold now."""
        with _lock:
            self._take_back()
            return self._live_bytes

    @property
    def kept_bytes(self) -> int:
        """Bytes that no array holds and that HIP has not got back."""
        with _lock:
            self._take_back()
            return sum(self._kept_bytes.values()) + sum(block.nbytes for block in self._of_graphs)

    def reset_peak(self) -> None:
        """Forget the peak: it starts again from what is live now."""
        self.peak_bytes = self.live_bytes

    def release(self) -> None:
        """Give HIP all memory back that no array holds; waits for the devices.

        That includes what calls allocated while they were recorded into a graph, and what was dropped since:
        such graphs must not be run any more.

        Raises
        ------
        HipError
            HIP refused.
        """
        with _lock:
            self._take_back()
            of_graphs, self._of_graphs = self._of_graphs, []
            devices = list(self._kept_bytes)
        for block in of_graphs:
            self._free(block)
        for device in devices:
            self._shrink(device, 0)

    def allocate(self, nbytes: int, device: int, stream: int | None) -> Block:
        """Return memory for an array; `lend` says which.

        Parameters
        ----------
        nbytes : int
            Its size, exactly.
        device : int
            Where.
        stream : int or None
            The hipStream_t of the work that uses it first; None: it may be used anywhere at once.

        Raises
        ------
        HipError
            The device has not enough memory.
        """
        if not nbytes:
            return Block(0, 0, device)
        if dlpack.lent:
            dlpack.take_back()
        if stream and hip_memory.is_capturing(stream):
            block = self._new(nbytes, device)
            block.captured = True
            block.use(stream)
            return block
        # In a loop it is most often what the call before the last gave back, its output or its log-sum-exp.
        returned = self._returned
        tries = 2
        while returned and tries and nbytes <= self.most_kept_bytes:
            tries -= 1
            try:
                lease = returned.popleft()
            except IndexError:  # another thread was faster
                break
            block = lease.block
            if (
                block.nbytes == nbytes and block.used_on == stream and block.device == device
                and not block.shared and not block.captured
            ):  # fmt: skip
                return block
            returned.append(lease)
        return self._allocate(nbytes, device, stream)

    def lend(self, block: Block, array: object) -> None:
        """Let a block be an array's, for the array's life."""
        lease = _Lease(array, self._end)
        lease.block = block
        block.lease = lease

    def _allocate(self, nbytes: int, device: int, stream: int | None) -> Block:
        block = self._reuse(nbytes, device, stream)
        if block is None and self._shrink(device, self.most_kept_bytes):
            block = self._reuse(nbytes, device, stream)
        if block is None:
            block = self._new(nbytes, device)
        if stream is not None and block.used_on != stream:
            block.use(stream)
        return block

    def _count(self, nbytes: int) -> None:
        live = self._live_bytes = self._live_bytes + nbytes
        if live > self.peak_bytes:
            self.peak_bytes = live

    def _reuse(self, nbytes: int, device: int, stream: int | None) -> Block | None:
        """Return a kept block that work on a stream may use, if there is one and not too much is kept."""
        with _lock:
            if self._returned:
                self._take_back()
            blocks = self._kept.get((device, nbytes, stream)) or self._kept.get((device, nbytes, None))
            if not blocks or self._kept_bytes[device] > self.most_kept_bytes:
                return None
            self._kept_bytes[device] -= nbytes
            self._count(nbytes)
            return blocks.pop()

    def _new(self, nbytes: int, device: int) -> Block:
        """Return new memory of HIP's; if HIP has none, it gets back all that is kept."""
        previous = enter_device(device)
        try:
            address = hip_memory.allocate(nbytes, lambda: self._shrink(device, 0))
        finally:
            leave_device(previous)
        block = Block(address, nbytes, device)
        with _lock:
            self._blocks.add(block)
            self._count(nbytes)
        return block

    def _free(self, block: Block) -> None:
        """Give HIP a block back; waits for its device."""
        self._blocks.discard(block)
        hip_memory.free(block.address)

    def _take_back(self) -> None:
        """Keep the blocks of arrays that are gone. The lock is held."""
        while self._returned:
            block = self._returned.popleft().block
            block.lease = block.written_on = None
            self._live_bytes -= block.nbytes
            if block.captured:
                self._of_graphs.append(block)
            else:
                self._keep(block, _UNKNOWN if block.shared else block.used_on)

    def _keep(self, block: Block, stream: int | None) -> None:
        self._kept.setdefault((block.device, block.nbytes, stream), []).append(block)
        self._kept_bytes[block.device] = self._kept_bytes.get(block.device, 0) + block.nbytes

    def _shrink(self, device: int, most_bytes: int) -> bool:
        """Free blocks of a device until no more is kept; return whether any was."""
        with _lock:
            if self._kept_bytes.get(device, 0) <= most_bytes:
                return False
            blocks = [x for key in list(self._kept) if key[0] == device for x in self._kept.pop(key)]
            nbytes = self._kept_bytes.pop(device)
        waited = False
        try:
            while nbytes > most_bytes:
                block = blocks.pop(0)
                nbytes -= block.nbytes
                self._free(block)
                waited = True
        finally:
            with _lock:
                for block in blocks:
                    if waited:  # for all work of the device: nobody is using the others any more
                        block.used_on, block.shared = None, False
                    self._keep(block, _UNKNOWN if block.shared else block.used_on)
        return True


memory = DeviceMemory()
