# SPDX-License-Identifier: MIT OR Apache-2.0
"""Waves of one workgroup that meet in global memory: a barrier between, and the store drained before it."""

from __future__ import annotations

import re

import pytest

from ..support.asm import RETURN
from ..support.findings import Kernels, only

_DRAIN = "s_waitcnt vmcnt(0)"
_BARRIER = "s_barrier"
_STORE = ["global_store_dword v1, v1, s[8:9] offset:256"]  # wave 0: what wave 1's v1 points at
_STORE_HERE = ["global_store_dword v1, v1, s[8:9]"]
_LOAD = ["global_load_dword v2, v1, s[8:9]", _DRAIN]
_LOAD_AHEAD = ["global_load_dword v2, v1, s[8:9] offset:256", _DRAIN]
_FLAT_STORE = [
    "v_mov_b32 v7, s9",
    "v_add_co_u32 v6, vcc, s8, v1",
    "s_nop 4",
    "flat_store_dword v[6:7], v1 offset:256",
]
_BUFFER_STORE = "buffer_store_dword v1, v1, s[4:7], 0 offen offset:256"
_BUFFER_LOAD = ["buffer_load_dword v2, v1, s[4:7], 0 offen", _DRAIN]
_SCALAR = ["s_load_dword s12, s[8:9], 0x100", "s_waitcnt lgkmcnt(0)"]
_LAST_LANE = ["s_mov_b32 s14, 0", "s_brev_b32 s15, 1", "s_mov_b64 exec, s[14:15]"]
_ONE = ["v_mov_b32 v4, 0", "v_mov_b32 v3, 1"]
_RACE = r"workgroup \(0, 0, 0\), wave 1, pc 0x\w+ .*`: race: "
_WAIT = r"workgroup \(0, 0, 0\), wave 1, pc 0x\w+ .*`: missing wait: "
_FIRST = r"0x\w+, which wave 0 \(lane 0\) (stores|loads) at pc 0x\w+ `"
_SLOW = ".*no s_waitcnt vmcnt of that wave before the s_barrier between.*"
_BARE = ".*with no s_barrier between"
_OF = r"; it is 256 bytes into 0x\w+ \(16384 bytes of device memory"


def _meet(first: list[str], between: list[str], second: list[str]) -> list[str]:
    """Wave 0 does `first`, all do `between`, wave 1 does `second`."""
    return [*only(0, "@a", first), *between, *only(1, "@b", second)]


# name: (the defective kernel, what is said of it, the repaired one)
_CASES: dict[str, tuple[list[str], str, list[str]]] = {
    "read_after_write": (
        _meet([*_STORE, _DRAIN], [], _LOAD),
        _RACE + "lane 0: load of 4 bytes reads " + _FIRST + "global_store" + _BARE + _OF,
        _meet([*_STORE, _DRAIN], [_BARRIER], _LOAD),
    ),
    "write_after_read": (
        _meet(_LOAD_AHEAD, [], _STORE_HERE),
        _RACE + "lane 0: store of 4 bytes writes " + _FIRST + "global_load" + _BARE + _OF,
        _meet(_LOAD_AHEAD, [_BARRIER], _STORE_HERE),
    ),
    "write_after_write": (
        _meet([*_STORE, _DRAIN], [], _STORE_HERE),
        _RACE + "lane 0: store of 4 bytes writes " + _FIRST + "global_store" + _BARE + _OF,
        _meet([*_STORE, _DRAIN], [_BARRIER], _STORE_HERE),
    ),
    "not_drained_read": (
        _meet(_STORE, [_BARRIER], _LOAD),
        _WAIT + "lane 0: load of 4 bytes reads " + _FIRST + "global_store" + _SLOW + _OF,
        _meet(_STORE, [_DRAIN, _BARRIER], _LOAD),
    ),
    "not_drained_write": (
        _meet(_STORE, [_BARRIER], _STORE_HERE),
        _WAIT + "lane 0: store of 4 bytes writes " + _FIRST + "global_store" + _SLOW + _OF,
        _meet(_STORE, [_DRAIN, _BARRIER], _STORE_HERE),
    ),
    "wrong_counter": (
        _meet(_STORE, ["s_waitcnt lgkmcnt(0)", _BARRIER], _LOAD),
        _WAIT,
        _meet(
            [*_STORE, "global_load_dword v3, v1, s[8:9] offset:2048"], ["s_waitcnt vmcnt(1)", _BARRIER], _LOAD
        ),
    ),
    "two_barriers": (
        _meet(_STORE, [_BARRIER, _BARRIER], _LOAD),
        _WAIT,
        _meet(_STORE, [_BARRIER, _DRAIN, _BARRIER], _LOAD),
    ),
    "drained_after": (
        _meet(_STORE, [_BARRIER, _DRAIN], _LOAD),
        _WAIT,
        _meet(_STORE, [_DRAIN, _BARRIER], _LOAD),
    ),
    "buffer": (
        _meet([_BUFFER_STORE], [_BARRIER], _BUFFER_LOAD),
        _WAIT + "lane 0: load of 4 bytes reads " + _FIRST + "buffer_store_dword",
        _meet([_BUFFER_STORE, _DRAIN], [_BARRIER], _BUFFER_LOAD),
    ),
    "flat": (
        _meet([*_FLAT_STORE, _DRAIN], [_BARRIER], _LOAD),
        _WAIT + "lane 0: load of 4 bytes reads " + _FIRST + "flat_store_dword",
        _meet([*_FLAT_STORE, "s_waitcnt vmcnt(0) lgkmcnt(0)"], [_BARRIER], _LOAD),
    ),
    "another_value": (
        [*_ONE, "v_mov_b32 v5, s10", "global_store_dword v4, v5, s[8:9]"],
        _RACE + "lane 0: store of 4 bytes writes ",
        [*_ONE, "v_mov_b32 v5, 1.0", "global_store_dword v4, v5, s[8:9]"],
    ),
    "one_byte": (
        _meet([*_STORE, _DRAIN], [], ["v_mov_b32 v3, -1", "global_store_byte v1, v3, s[8:9] offset:3"]),
        _RACE + "lane 0: store of 1 bytes writes ",
        _meet(
            ["global_store_short v1, v1, s[8:9] offset:256", _DRAIN],
            [],
            ["global_store_short v1, v1, s[8:9] offset:2"],
        ),
    ),
    "one_lane": (
        _meet([*_STORE, _DRAIN], [], [*_LAST_LANE, *_LOAD]),
        _RACE + r"lane 63: load of 4 bytes reads 0x\w+, which wave 0 \(lane 63\) stores",
        _meet([*_STORE, _DRAIN], [], [*_LAST_LANE, "global_load_dword v2, v1, s[8:9] offset:4", _DRAIN]),
    ),
    "scalar_load_of_another": (
        _meet([*_STORE, _DRAIN], [], _SCALAR),
        _RACE + r"lane -1: load of 4 bytes reads 0x\w+, which wave 0 \(lane 0\) stores",
        _meet([*_STORE, _DRAIN], [_BARRIER], _SCALAR),
    ),
    "scalar_load_of_own": (
        [*_STORE, *_SCALAR],
        r"wave 0, .*missing wait: lane -1: load .* which wave 0 \(lane 0\) stores .* the scalar cache is",
        [*_STORE, _DRAIN, *_SCALAR],
    ),
}
_FLAG = "global_atomic_add v5, v4, v3, s[8:9] offset:2048 " + RETURN
# These look like the cases above but are right.
_FINE = {
    "own_store": [*_STORE_HERE, *_LOAD],
    "atomics": [
        *_ONE,
        "global_atomic_add v4, v3, s[8:9]",
        "global_atomic_add v5, v4, v3, s[8:9] " + RETURN,
        _DRAIN,
    ],
    "flag": [*_ONE, *_meet([*_STORE, _DRAIN, _FLAG], [], [_FLAG, _DRAIN, *_LOAD])],
    "read_by_all": [*_ONE, "global_load_dword v2, v4, s[8:9] offset:256", _DRAIN, *_SCALAR],
    "each_its_own": [*_STORE_HERE, _BARRIER, *_LOAD, *_STORE_HERE],
    "the_same_value": ["v_mov_b32 v5, 1.0", *_ONE, "global_store_dword v4, v5, s[8:9]"],
    "ended": [*only(0, "@a", [*_STORE, "s_endpgm"]), _BARRIER, *only(1, "@b", _LOAD)],
}
_KERNELS = Kernels(
    {f"{n}_bad": c[0] for n, c in _CASES.items()} | {f"{n}_good": c[2] for n, c in _CASES.items()} | _FINE
)


def _waves(name: str) -> int:
    return 1 if name == "scalar_load_of_own" else 2


@pytest.mark.parametrize("name", _CASES)
def test_defect_is_named(name: str) -> None:
    """The finding names both instructions, waves and lanes, the address and its allocation."""
    text = _KERNELS.finding(f"{name}_bad", _waves(name))
    assert re.search(_CASES[name][1], text), text


@pytest.mark.parametrize("schedule", ["round", "reverse", "random:3"])
@pytest.mark.parametrize("name", _CASES)
def test_repaired_twin_passes(monkeypatch: pytest.MonkeyPatch, name: str, schedule: str) -> None:
    """No finding when none is due, in whatever order the waves run."""
    monkeypatch.setenv("FMHA_EMU_SCHEDULE", schedule)
    _KERNELS.run(f"{name}_good", _waves(name))


@pytest.mark.parametrize("schedule", ["reverse", "random:3"])
@pytest.mark.parametrize("name", ["read_after_write", "write_after_read", "write_after_write", "one_byte"])
def test_race_is_seen_whoever_comes_first(monkeypatch: pytest.MonkeyPatch, name: str, schedule: str) -> None:
    """The order of the two does not matter: one of them finds the other's trace."""
    monkeypatch.setenv("FMHA_EMU_SCHEDULE", schedule)
    assert ": race: lane 0: " in _KERNELS.finding(f"{name}_bad", 2)


@pytest.mark.parametrize("name", _FINE)
def test_no_finding(name: str) -> None:
    """Atomics, flags made of them, a wave's own bytes, and reads without stores."""
    _KERNELS.run(name, 2)


def test_off_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Races and stores that are not drained go by names of their own."""
    monkeypatch.setenv("FMHA_EMU_CHECKS", "-global-drain")
    _KERNELS.run("not_drained_read_bad", 2)
    _KERNELS.run("scalar_load_of_own_bad")
    assert "race" in _KERNELS.finding("read_after_write_bad", 2)
    monkeypatch.setenv("FMHA_EMU_CHECKS", "-global-race")
    _KERNELS.run("read_after_write_bad", 2)
    assert "missing wait" in _KERNELS.finding("not_drained_read_bad", 2)
    monkeypatch.setenv("FMHA_EMU_CHECKS", "none,global-race")
    assert "race" in _KERNELS.finding("read_after_write_bad", 2)
    monkeypatch.setenv("FMHA_EMU_CHECKS", "-waits")  # then every store counts as drained
    _KERNELS.run("not_drained_read_bad", 2)
