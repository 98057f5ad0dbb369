# SPDX-License-Identifier: MIT OR Apache-2.0
"""MUBUF: the range of a buffer, structured buffers, loads into LDS."""

from __future__ import annotations

import numpy as np

from ..support.asm import LANES, Case, Result, Suite
from ..support.fp import Array
from ..support.ops.memory_ops import HOLES, LANE, MEMORY, ON, WAIT, gather, into_lds, memory_is, resource
from ..support.spelling import RDNA

SUITE = Suite("buffer")
_U = np.uint32


def _buffer_range() -> None:
    """Raw buffers: a dword is in range if offset + soffset + 4 <= num_records, else 0 or dropped."""
    for records in (256, 250, 100):
        for soffset in (0, 8):
            address = LANE * 8
            data = np.zeros((4, LANES), _U)
            kept = np.zeros((4, LANES), bool)
            for i in range(4):
                end = address + 4 * i + soffset + 4
                kept[i] = end <= records
                data[i] = np.where(kept[i], gather(MEMORY, np.minimum(end - 4, 4096), 4).view(_U)[:, 0], 0)

            def check(result: Result, data: Array = data) -> None:
                np.testing.assert_array_equal(result["v[10:13]"], data)

            SUITE.add(
                f"buffer-range-load-{records}-{soffset}",
                ["buffer_load_dwordx4 v[10:13], v2, s[64:67], s6 offen", WAIT],
                ["v[10:13]"],
                check,
                {"v2": address.astype(_U), "v[10:13]": np.full((4, LANES), 7, _U)},
                {"s[64:67]": resource(records), "s6": soffset},
                MEMORY,
                covers=["buffer_load_dwordx4"],
            )
            want = MEMORY.copy()
            stored = np.random.default_rng(7).integers(0, 1 << 32, (4, LANES), dtype=_U)
            address16 = LANE * 16
            for lane in range(LANES):
                for i in range(4):
                    at = int(address16[lane]) + 4 * i + soffset
                    if at + 4 <= records:
                        want[at : at + 4] = stored[i, lane : lane + 1].view(np.uint8)
            SUITE.add(
                f"buffer-range-store-{records}-{soffset}",
                ["buffer_store_dwordx4 v[10:13], v2, s[64:67], s6 offen", WAIT],
                [],
                memory_is(want),
                {"v2": address16.astype(_U), "v[10:13]": stored},
                {"s[64:67]": resource(records), "s6": soffset},
                MEMORY,
                covers=["buffer_store_dwordx4"],
            )
    # An offset near 2^32 is out of range, not before the start.
    SUITE.add(
        "buffer-range-wrap",
        ["buffer_load_dword v10, v2, s[64:67], 0 offen offset:16", WAIT],
        ["v10"],
        lambda r: np.testing.assert_array_equal(r["v10"][0], 0),
        {"v2": np.full(LANES, 0xFFFFFF00, _U), "v10": 7},
        {"s[64:67]": resource(4096)},
        MEMORY,
        covers=["buffer_load_dword"],
    )


def _buffer_structured() -> None:
    """idxen with a stride: address index * stride + offset; in range while index < num_records."""
    stride, records = 24, 40
    index = LANE
    inside = index < records
    want = np.where(inside, gather(MEMORY, np.where(inside, index * stride + 4, 0), 4).view(_U)[:, 0], 0)
    SUITE.add(
        "buffer-idxen",
        ["buffer_load_dword v10, v2, s[64:67], 0 idxen offset:4", WAIT],
        ["v10"],
        lambda r: np.testing.assert_array_equal(r["v10"][0], want),
        {"v2": index.astype(_U)},
        {"s[64:67]": resource(records, stride)},
        MEMORY,
        covers=["buffer_load_dword"],
    )
    both = np.where(inside, gather(MEMORY, np.where(inside, index * stride + 8, 0), 4).view(_U)[:, 0], 0)
    SUITE.add(
        "buffer-idxen-offen",
        ["buffer_load_dword v10, v[2:3], s[64:67], 0 idxen offen", WAIT],
        ["v10"],
        lambda r: np.testing.assert_array_equal(r["v10"][0], both),
        {"v2": index.astype(_U), "v3": 8},
        {"s[64:67]": resource(records, stride)},
        MEMORY,
        covers=["buffer_load_dword"],
    )
    SUITE.add(
        "buffer-plain",
        ["buffer_load_dword v10, off, s[64:67], s6 offset:8", WAIT],
        ["v10"],
        lambda r: np.testing.assert_array_equal(r["v10"][0], MEMORY[20:24].view(_U)[0]),
        {"v10": 1},
        {"s[64:67]": resource(24), "s6": 12},
        MEMORY,
        covers=["buffer_load_dword"],
    )


def _buffer_to_lds() -> None:
    """Loads go into LDS at M0 + offset + lane*4; a lane out of range writes 0, a lane off writes nothing."""
    records = 160
    address = LANE * 4
    values = np.where(address + 4 <= records, gather(MEMORY, np.minimum(address, 4096), 4).view(_U)[:, 0], 0)
    lds = np.full(256, 0xABABABAB, _U)
    lds[(64 + 16) // 4 : (64 + 16) // 4 + LANES] = np.where(ON, values, 0xABABABAB)
    # The instruction's own offset counts for the memory address too.
    shifted = np.where(
        address + 20 <= records, gather(MEMORY, np.minimum(address + 16, 4096), 4).view(_U)[:, 0], 0
    )
    lds[(64 + 16) // 4 : (64 + 16) // 4 + LANES] = np.where(ON, shifted, 0xABABABAB)

    def check(result: Result) -> None:
        np.testing.assert_array_equal(result["v[10:13]"].reshape(-1), lds)

    SUITE.add(
        "buffer_load_dword-lds",
        into_lds("buffer_load_dword v2, s[64:67], 0 offen offset:16 lds"),
        ["v[10:13]"],
        check,
        {"v2": address.astype(_U), "v3": address.astype(_U), "v4": 0xABABABAB},
        {"s[64:67]": resource(records), "m0": 64, "exec": HOLES},
        MEMORY,
        lds=4096,
        covers=["buffer_load_dword"],
    )


_buffer_range()
if not RDNA:  # whose resources with a stride the device refuses, and which loads to registers only
    _buffer_structured()
    _buffer_to_lds()


@SUITE.parametrize()
def test_buffer(case: Case) -> None:
    """Loads out of range give 0, stores are dropped; all others go where the descriptor says."""
    SUITE.check(case)
