# SPDX-License-Identifier: MIT OR Apache-2.0
"""The memory of DeviceArrays. Memory that an array gives back serves another array of about its size.

hipFree would wait for the device, so `o = flash_attn_func(...)` in a loop would wait for each call before the
next. Memory that is used again must not be in use still. So a block knows the stream that it is used on:

- work that is enqueued later on the same stream comes later anyway: it may have the block at once;
- a block that several streams used, or one that is closed, or whose address others were told, is used again
  only after its device has been waited for;
- a block that a call allocated while it was recorded into a graph belongs to the graph, which may be run at
  any time: it is not used again.

The end of an array is told by a weak reference whose callback, deque.append, is C code. A finaliser in Python
is where a Ctrl-C may arrive, and there it is lost; and it may run anywhere, so it could take no lock.

A Ctrl-C may arrive between any two steps of an allocation too, or an exception. The block is then in nobody's
hands. `_find_lost` takes it back when memory runs out, or when somebody asks how much there is.
"""

from __future__ import annotations

import sys
from collections import deque

from pyfa_rocm._runtime import dlpack, hip, hip_memory
from pyfa_rocm._runtime.blocks import Block, Kept, Lease, lock
from pyfa_rocm.device import closed_streams, enter_device, leave_device

__all__ = ["Block", "DeviceMemory", "memory"]

# Enough for the outputs of a loop; little beside a card's memory, which frameworks want too.
_MOST_KEPT_BYTES = 2**30
# More than a loop drops in a turn, and few enough to be freed in some milliseconds.
_MOST_KEPT_BLOCKS = 1024


def _holders(block: Block) -> int:
    """Return how many references there are to a block and to its lease."""
    lease = block.lease
    return sys.getrefcount(block) + (0 if lease is None else sys.getrefcount(lease))


def _unheld(blocks: set[Block]) -> list[Block]:
    """Return the blocks that nothing refers to but this set."""
    return [block for block in list(blocks) if _holders(block) <= _HELD_BY_US[block.lease is not None]]


def _count_our_own() -> tuple[int, int]:
    """Return what `_holders` gives `_unheld` for a block in nobody's hands: without a lease, and with one."""
    blocks = {Block(0, 0)}
    (without,) = [_holders(block) for block in list(blocks)]
    for block in blocks:
        block.lease = Lease(set())  # of what is gone at once
        block.lease.block = block
    del block
    (with_one,) = [_holders(block) for block in list(blocks)]
    return without, with_one


_HELD_BY_US = _count_our_own()


class DeviceMemory:
    """The device memory of DeviceArrays, over all devices and threads.

    Attributes
    ----------
    peak_bytes : int
        Most that arrays held since the last `reset_peak`. Sizes as asked for, without HIP's rounding.
    most_kept_bytes : int
        Most that is kept on a device for further arrays; 1 GiB, unless it is set. With 0 memory that an array
        gave back is freed at the next allocation, which waits for the device.
    most_kept_blocks : int
        Most allocations of HIP's that are kept on a device; half of them are freed when there are more.
    exact : bool or None
        True: kept memory serves only arrays of exactly its size. An access behind an array then never hits
        memory of an earlier one, so the software device reports it. False: it also serves arrays that are up
        to a quarter smaller. None, the default: True on the software device, False on a GPU.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self.most_kept_bytes = _MOST_KEPT_BYTES
        self.most_kept_blocks = _MOST_KEPT_BLOCKS
        self.exact: bool | None = None
        self._live_bytes = 0
        # All of them: of a block that goes with its array in one garbage collection the lease says nothing.
        self._blocks: set[Block] = set()
        # Leases of arrays that are gone, as long as nobody has looked at them.
        self._returned: deque[Lease] = deque()
        self._end = self._returned.append
        # Blocks without an array, by device.
        self._kept: dict[int, Kept] = {}
        self._of_graphs: list[Block] = []

    @property
    def live_bytes(self) -> int:
        """Bytes that arrays hold now."""
        with lock:
            self._find_lost()
            return self._live_bytes

    @property
    def kept_bytes(self) -> int:
        """Bytes that no array holds and that HIP has not got back."""
        with lock:
            self._find_lost()
            of_graphs = sum(block.capacity for block in self._of_graphs)
            return sum(kept.nbytes for kept in self._kept.values()) + of_graphs

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
        with lock:
            self._find_lost()
            of_graphs, self._of_graphs = self._of_graphs, []
            devices = list(self._kept)
        while of_graphs:
            self._free(of_graphs.pop())
        for device in devices:
            self._shrink(device, 0, 0)

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
            return Block(0, device)
        if dlpack.lent:
            dlpack.take_back()
        if stream and hip_memory.is_capturing(stream):
            block = self._new(nbytes, device)
            block.captured = True
            block.use(stream)
            return block
        # In a loop it is most often what the call before the last gave back, its output or its log-sum-exp.
        returned = self._returned
        tries = 0 if closed_streams else 2
        while returned and tries and nbytes <= self.most_kept_bytes:
            tries -= 1
            try:
                lease = returned.popleft()
            except IndexError:  # another thread was faster
                break
            block = lease.block
            if (
                block.nbytes == nbytes
                and block.used_on == stream
                and block.device == device
                and not block.shared
                and not block.captured
                and block.lease is lease
            ):
                return block
            returned.append(lease)
        return self._allocate(nbytes, device, stream)

    def lend(self, block: Block, array: object) -> None:
        """Let a block be an array's, for the array's life."""
        lease = Lease(array, self._end)
        lease.block = block
        block.lease = lease

    def _allocate(self, nbytes: int, device: int, stream: int | None) -> Block:
        block = self._reuse(nbytes, device, stream)
        if block is None and self._shrink(device, self.most_kept_bytes, self.most_kept_blocks):
            block = self._reuse(nbytes, device, stream)
        if block is None:
            block = self._new(nbytes, device)
        if stream is not None and block.used_on != stream:
            block.use(stream)
        return block

    def _count(self, block: Block, nbytes: int) -> None:
        """Count a block as an array's. The lock is held."""
        block.nbytes = nbytes
        live = self._live_bytes = self._live_bytes + nbytes
        if live > self.peak_bytes:
            self.peak_bytes = live

    def _reuse(self, nbytes: int, device: int, stream: int | None) -> Block | None:
        """Return a kept block that work on a stream may use, if there is one and not too much is kept."""
        exact = hip.runtime().emulated if self.exact is None else self.exact
        with lock:
            self._take_back()
            kept = self._kept.get(device)
            if kept is None or kept.nbytes > self.most_kept_bytes or kept.count > self.most_kept_blocks:
                return None
            block = kept.take(nbytes, stream, exact)
            if block is not None:
                self._count(block, nbytes)
            return block

    def _new(self, nbytes: int, device: int) -> Block:
        """Return new memory of HIP's; if HIP has none, it gets back all that is kept."""
        block = Block(nbytes, device)
        with lock:
            self._blocks.add(block)
        previous = enter_device(device)
        try:
            block.address = hip_memory.allocate(nbytes, lambda: self._make_room(device))
        finally:
            if not block.address:
                self._blocks.discard(block)
            leave_device(previous)
        with lock:
            self._count(block, nbytes)
        return block

    def _make_room(self, device: int) -> bool:
        with lock:
            self._find_lost()
        return self._shrink(device, 0, 0)

    def _free(self, block: Block) -> None:
        """Give HIP a block back; waits for its device."""
        hip_memory.free(block)
        self._blocks.discard(block)

    def _take_back(self) -> None:
        """Keep the blocks of arrays that are gone. The lock is held."""
        if closed_streams:
            self._leave_streams()
        while self._returned:
            lease = self._returned.popleft()
            if lease.block.lease is lease:
                self._keep(lease.block)

    def _leave_streams(self) -> None:
        """Forget streams that have been closed. The lock is held."""
        closed = {closed_streams.pop() for _ in range(len(closed_streams))}
        for kept in self._kept.values():
            kept.forget_streams(closed)
        for block in self._blocks:
            if block.used_on in closed:
                block.leave_stream()

    def _keep(self, block: Block) -> None:
        """Let a block be no array's. The lock is held."""
        block.lease = block.written_on = None
        self._live_bytes -= block.nbytes
        block.nbytes = 0
        if block.captured:
            self._of_graphs.append(block)
        else:
            self._kept.setdefault(block.device, Kept()).add(block)

    def _find_lost(self) -> None:
        """Take back what an exception has left in nobody's hands, too. The lock is held."""
        self._take_back()
        known = {id(block) for kept in self._kept.values() for block in kept.all()}
        known.update(id(block) for block in self._of_graphs)
        known.update(id(lease.block) for lease in list(self._returned))
        for block in _unheld(self._blocks):
            if id(block) in known or (block.lease is not None and block.lease() is not None):
                continue
            if block.address:
                self._keep(block)
            else:  # HIP has given nothing yet, or has it back
                self._blocks.discard(block)
        for kept in self._kept.values():
            kept.recount()
        self._live_bytes = sum(block.nbytes for block in self._blocks)

    def _shrink(self, device: int, most_bytes: int, most_blocks: int) -> bool:
        """Free blocks of a device until no more is kept; return whether any was."""
        with lock:
            kept = self._kept.get(device)
            if kept is None or (kept.nbytes <= most_bytes and kept.count <= most_blocks):
                return False
            if kept.count > most_blocks:  # not one now and one at the next call: each waits for the device
                most_blocks //= 2
            nbytes = kept.nbytes
            blocks = deque(kept.drain())
        waited = False
        try:
            while nbytes > most_bytes or len(blocks) > most_blocks:
                block = blocks.popleft()
                nbytes -= block.capacity
                self._free(block)
                waited = True
        finally:
            with lock:
                for block in blocks:
                    if waited:  # for all work of the device: nobody is using the others any more
                        block.used_on, block.shared = None, False
                    kept.add(block)
        return True


memory = DeviceMemory()
