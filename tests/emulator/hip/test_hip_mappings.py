# SPDX-License-Identifier: MIT OR Apache-2.0
"""As many allocations as a program likes: the host gives a process only 65530 mappings."""

from __future__ import annotations

import ctypes as c
import random
from pathlib import Path

import numpy as np
import pytest

from ..support import hip

# Those of an allocation for itself (kMostOwn in hip/memory/pages.cc), and a few for whatever else is mapped.
MOST_OWN, FEW = 16384, 500
POISON = 0x7FBD7FBD


def _mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def _most_mappings() -> int:
    return int(Path("/proc/sys/vm/max_map_count").read_text())


def test_small_allocations_share_mappings() -> None:
    before = _mappings()
    buffers = [hip.Buffer(nbytes) for nbytes in (32, 5000, 70_000) for _ in range(12_000)]
    assert _mappings() - before < MOST_OWN + FEW
    assert len({buffer.address for buffer in buffers}) == len(buffers)
    assert all(buffer.address % 256 == 0 for buffer in buffers)
    for buffer in buffers[::1000] + buffers[-1:]:
        assert (buffer.read() == POISON).all()
        buffer.write(np.full(buffer.nbytes // 4, 7, np.uint32))
    for buffer in buffers[::1000] + buffers[-1:]:
        assert (buffer.read() == 7).all()
    for buffer in buffers:
        buffer.free()
    assert _mappings() - before < FEW


@pytest.mark.parametrize("nbytes", [32, 4033, 70_000, (1 << 20) - 1])
def test_a_slot_is_as_strict(nbytes: int) -> None:
    """Accesses behind the end of a neighbour, and after its free, fail."""
    own = [hip.Buffer(32) for _ in range(MOST_OWN)]
    first, second = hip.Buffer(nbytes), hip.Buffer(nbytes)
    assert abs(second.address - first.address) >= 2 * nbytes
    for offset in (nbytes, nbytes + 64, abs(second.address - first.address) - 1):
        with pytest.raises(hip.HipError):
            hip.call("hipMemset", c.c_void_p(first.address + offset), c.c_int(1), c.c_size_t(1))
    hip.call("hipMemset", c.c_void_p(first.address), c.c_int(1), c.c_size_t(nbytes))
    assert (second.read(np.uint8)[:4] == np.full(1, POISON).view(np.uint8)[:4]).all()
    first.free()
    with pytest.raises(hip.HipError):
        hip.call("hipMemset", c.c_void_p(first.address), c.c_int(1), c.c_size_t(1))
    for buffer in (second, *own):
        buffer.free()


def test_no_mapping_is_left_to_split() -> None:
    """Freeing every other of many neighbours makes more mappings than a process may have."""
    before, most = _mappings(), _most_mappings()
    count = 2 * most
    if count > 1 << 18:
        pytest.skip(f"this system gives {most} mappings")
    buffers = [hip.Buffer(32) for _ in range(MOST_OWN + count)]
    rest = [*buffers[:MOST_OWN], *buffers[MOST_OWN + 1 :: 2]]
    for buffer in buffers[MOST_OWN::2]:
        buffer.free()
    assert _mappings() > most - 100
    random.Random(1).shuffle(rest)
    for buffer in rest:
        buffer.free()
    assert _mappings() - before < FEW
