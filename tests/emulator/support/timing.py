# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tests of the clock share this: a kernel's modelled time, with constants that a test chooses."""

from __future__ import annotations

import ctypes as c
import struct
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from . import hip, rows
from .asm import Kernel, assemble
from .profiles import text

if TYPE_CHECKING:
    from collections.abc import Iterator

ARGS = ((0, 8, "global_buffer"),)
# The lane in v9, the buffer in s[8:9], the number of the wave in s12.
START = [
    "v_lshrrev_b32 v8, 6, v0",
    "s_nop 4",
    "v_readfirstlane_b32 s12, v8",
    "s_load_dwordx2 s[8:9], s[0:1], 0x0",
    "v_mbcnt_lo_u32_b32 v9, -1, 0",
    "v_mbcnt_hi_u32_b32 v9, -1, v9",
    "s_waitcnt lgkmcnt(0)",
]
# No latency and no cost but those that a test is about.
_LATENCIES = ("lds", "scalar", "l1", "l2", "mall", "hbm", "store")
_NO_SLOTS = ("matrix_issue_slots", "vector_result_slots", "matrix_slots", "transcendental_issue_slots")
_NO_COSTS = ("start_cycles", "launch_seconds", "clock_matrix", "clock_vector")
_ONE_SLOT = ("taken_branch_slots", "branch_slots", "barrier_slots")
EXACT = dict.fromkeys((*(f"{x}_latency" for x in _LATENCIES), *_NO_SLOTS, *_NO_COSTS), 0)
EXACT |= dict.fromkeys(_ONE_SLOT, 1) | {"queue_cycles": 64, "matrix_result_slots": 4}
BIG, SMALL = (
    ("v_mfma_f32_32x32x8_f16", "v_mfma_f32_16x16x16_f16")
    if rows.arch() == "gfx942"
    else ("v_mfma_f32_32x32x8f16", "v_mfma_f32_16x16x16f16")
)
BIG_SLOTS, SMALL_SLOTS = (8, 4) if rows.arch() == "gfx942" else (16, 8)


class Request(c.Structure):
    """fmha_emu_timing_request."""

    _fields_ = (("points", c.c_uint32), ("only_sampled", c.c_uint32), ("events", c.c_uint32))


@contextmanager
def clock(
    constants: Mapping[str, float | tuple[float, float]], points: int = 3, only: bool = False, events: int = 0
) -> Iterator[None]:
    """The clock is on, with these constants in place of its own."""
    lib = hip.lib()
    try:
        for name, value in constants.items():
            fast, slow = value if isinstance(value, tuple) else (value, value)
            hip.call("fmha_emu_set_timing_constant", name.encode(), c.c_double(fast), c.c_double(slow))
        hip.call("fmha_emu_timing", c.byref(Request(points, only, events)))
        yield
    finally:
        lib.fmha_emu_timing(None)
        lib.fmha_emu_set_timing_constant(None, c.c_double(0), c.c_double(0))


def timed(
    lines: Sequence[str],
    block: int = 64,
    grid: Sequence[int] = (1, 1, 1),
    constants: Mapping[str, float | tuple[float, float]] = EXACT,
    nbytes: int = 1 << 16,
    points: int = 3,
    only: bool = False,
    events: int = 0,
    **kernel: Any,
) -> dict[str, Any]:
    """The record of one launch of START and `lines`."""
    module = hip.Module(assemble([Kernel("k", [*START, *lines, "s_endpgm"], args=ARGS, **kernel)]))
    buffer = hip.Buffer.of(np.zeros(nbytes, np.uint8))
    with clock(constants, points, only, events):
        hip.lib().fmha_emu_profile_enable(1)
        try:
            module.launch("k", struct.pack("<Q", buffer.address), grid, (block, 1, 1))
        finally:
            hip.lib().fmha_emu_profile_enable(0)
            module.unload()
            buffer.free()
    (record,) = text("fmha_emu_profile")
    result: dict[str, Any] = record
    return result


def unit_cycles(record: dict[str, Any], end: str = "low") -> int:
    """Return the cycles of a compute unit for the first sampled workgroup."""
    return int(record["time"]["units"][0]["cycles"][end])


def cycles_each(
    body: Sequence[str], n: int = 8, before: Sequence[str] = (), after: Sequence[str] = (), **kwargs: Any
) -> float:
    """The cycles that one more repetition of `body` takes."""
    short, long = (unit_cycles(timed([*before, *body * k, *after], **kwargs)) for k in (n, 2 * n))
    return (long - short) / n
