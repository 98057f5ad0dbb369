# SPDX-License-Identifier: MIT OR Apache-2.0
"""An observer from outside: the events that fmha_emu_trace tells, against counts and against the profile."""

from __future__ import annotations

import ctypes as c
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest

from ..support import hip
from ..support.asm import Kernel, assemble
from ..support.profiles import text

BEFORE, AFTER, GLOBAL, SCALAR, SCRATCH, LDS, BARRIER = (1 << bit for bit in range(7))
ALL = (1 << 7) - 1
LANES = 64


class Event(c.Structure):
    """fmha_emu_event of emu_tools.h."""

    _fields_ = (
        ("kind", c.c_uint32),
        ("wave", c.c_uint32),
        ("workgroup", c.c_uint64),
        ("pc", c.c_uint64),
        ("address", c.c_uint64),
        ("bytes", c.c_uint32),
        ("lane", c.c_int32),
    )


class Told(NamedTuple):
    """A copy of an event, which itself lives no longer than the call."""

    kind: int
    wave: int
    workgroup: int
    pc: int
    address: int
    bytes: int
    lane: int


_FUNCTION = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(Event))


@contextmanager
def trace(kinds: int = ALL) -> Iterator[list[Told]]:
    """Collect the events of the launches inside."""
    told: list[Told] = []

    def collect(_user: object, event: Any) -> None:
        told.append(Told(*(getattr(event.contents, name) for name in Told._fields)))

    function = _FUNCTION(collect)
    hip.call("fmha_emu_trace", function, None, c.c_uint32(kinds))
    try:
        yield told
    finally:
        hip.call("fmha_emu_trace", _FUNCTION(), None, c.c_uint32(0))


_BODY = (
    "s_load_dwordx2 s[8:9], s[0:1], 0x0",
    "v_lshlrev_b32 v3, 2, v0",
    "s_waitcnt lgkmcnt(0)",
    "global_load_dword v2, v3, s[8:9]",
    "s_waitcnt vmcnt(0)",
    "ds_write_b32 v3, v2",
    "s_waitcnt lgkmcnt(0)",
    "s_barrier",
    "ds_read2_b32 v[4:5], v3",
    "s_waitcnt lgkmcnt(0)",
)


def _launch(lines: Sequence[str] = _BODY, grid: int = 1, waves: int = 1, **kernel: Any) -> None:
    code = Kernel("k", [*lines, "s_endpgm"], args=((0, 8, "global_buffer"),), lds=1024, **kernel)
    module = hip.Module(assemble([code]))
    buffer = hip.Buffer.of(np.zeros(4096, np.uint8))
    try:
        module.launch("k", struct.pack("<Q", buffer.address), (grid, 1, 1), (LANES * waves, 1, 1))
    finally:
        module.unload()
        buffer.free()


def _count(told: Sequence[Told], kind: int) -> int:
    return sum(event.kind == kind for event in told)


def test_every_instruction_and_every_access_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FMHA_EMU_CHECKS", "none")
    with trace() as told:
        _launch()
    instructions = len(_BODY) + 1
    assert _count(told, BEFORE) == _count(told, AFTER) == instructions
    assert _count(told, SCALAR) == 1
    loads = [event for event in told if event.kind == GLOBAL]
    assert [event.lane for event in loads] == [-1, *range(LANES)]
    assert [event.bytes for event in loads] == [8, *[4] * LANES]
    assert {event.address - loads[1].address - 4 * event.lane for event in loads[1:]} == {0}
    in_lds = [event for event in told if event.kind == LDS]
    assert [event.address for event in in_lds] == [4 * lane for lane in range(LANES)] * 3
    assert [event.lane for event in in_lds] == [*range(LANES)] * 3
    assert [event.address for event in told if event.kind == BARRIER] == [0, 1]


def test_accesses_come_between_before_and_after_of_their_instruction() -> None:
    with trace() as told:
        _launch()
    running = None
    for event in told:
        if event.kind == BEFORE:
            assert running is None
            running = event.pc
        elif event.kind == AFTER:
            assert running == event.pc
            running = None
        elif event.kind != BARRIER:
            assert running == event.pc


def test_only_the_kinds_asked_for_are_told() -> None:
    with trace(LDS | BARRIER) as told:
        _launch()
    assert {event.kind for event in told} == {LDS, BARRIER}


def test_workgroups_and_waves_are_named() -> None:
    with trace(BEFORE) as told:
        _launch(_BODY[:1], grid=3, waves=2)
    seen = [(event.workgroup, event.wave) for event in told]
    assert seen == [(group, wave) for group in range(3) for wave in range(2) for _ in range(2)]


def test_scratch_is_told() -> None:
    lines = ("v_mov_b32 v1, 8", "scratch_store_dword v1, v1, off", "s_waitcnt vmcnt(0)")
    with trace(SCRATCH) as told:
        _launch(lines, scratch=64)
    assert [(event.lane, event.bytes) for event in told] == [(lane, 4) for lane in range(LANES)]


def test_several_observers_hear_the_same() -> None:
    """The checks and the profile go on as they do without a trace."""
    hip.lib().fmha_emu_profile_enable(1)
    try:
        _launch(waves=2)
        with trace() as told:
            _launch(waves=2)
    finally:
        hip.lib().fmha_emu_profile_enable(0)
    before, together = text("fmha_emu_profile")
    assert before == together
    counted = together["counted"]
    assert counted["instructions"]["total"] == _count(told, BEFORE)
    sums = {kind: sum(event.bytes for event in told if event.kind == kind) for kind in (GLOBAL, LDS)}
    assert sums[GLOBAL] == counted["global"]["load_bytes"] + counted["global"]["scalar_load_bytes"]
    assert sums[LDS] == counted["lds"]["read_bytes"] + counted["lds"]["write_bytes"]
    with trace() as told, pytest.raises(hip.HipError, match="missing wait"):
        _launch(("s_load_dwordx2 s[8:9], s[0:1], 0x0", "s_mov_b32 s10, s8"))
    hip.lib().fmha_emu_clear_fault()
    assert (_count(told, BEFORE), _count(told, AFTER)) == (2, 1)


def test_nobody_hears_after_the_end() -> None:
    with trace() as told:
        pass
    _launch()
    assert not told


@pytest.mark.parametrize("kinds", [0, ALL + 1])
def test_kinds_must_be_known(kinds: int) -> None:
    function = _FUNCTION(lambda _user, _event: None)
    with pytest.raises(hip.HipError):
        hip.call("fmha_emu_trace", function, None, c.c_uint32(kinds))
