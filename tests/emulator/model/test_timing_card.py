# SPDX-License-Identifier: MIT OR Apache-2.0
"""The model of a card: rounds, samples, the clock, bandwidth; and what the C functions refuse."""

from __future__ import annotations

import ctypes as c
import struct
from typing import Any

import numpy as np
import pytest

from ..support import hip
from ..support.asm import Kernel, assemble
from ..support.profiles import text
from ..support.timing import ARGS, BIG, BIG_SLOTS, EXACT, START, Request, clock, timed

UNITS, XCDS, SIMDS, SLOT = 304, 8, 4, 4
PEAK = 2.1e9
_WORK = ["v_exp_f32 v40, v41"] * 50
_ALL_LDS = 65536


def _cycles(**kwargs: Any) -> float:
    return float(timed(**kwargs)["time"]["cycles"]["low"])


def test_rounds() -> None:
    """One workgroup a unit: the 305th starts a second round, and one XCD has 39 of them."""
    one = _cycles(lines=_WORK, lds=_ALL_LDS)
    assert _cycles(lines=_WORK, lds=_ALL_LDS, grid=(UNITS, 1, 1), only=True) == one
    assert _cycles(lines=_WORK, lds=_ALL_LDS, grid=(UNITS + 1, 1, 1), only=True) == 2 * one
    assert _cycles(lines=_WORK, lds=_ALL_LDS, grid=(UNITS, 2, 1), only=True) == 2 * one
    slow = EXACT | {"start_cycles": 1000}
    late = _cycles(lines=_WORK, lds=_ALL_LDS, grid=(UNITS, 5, 1), only=True, constants=slow)
    assert late == 5 * (one + 1000)


def test_workgroups_side_by_side() -> None:
    """Two of four waves share a unit once there are more than units; their vector work adds up."""
    few = timed(_WORK, block=256, lds=32768, grid=(UNITS, 1, 1), only=True)["time"]
    many = timed(_WORK, block=256, lds=32768, grid=(UNITS, 2, 1), only=True)["time"]
    assert (few["workgroups_per_cu"], many["workgroups_per_cu"]) == (1, 2)
    added = len(_WORK) * 4 * SLOT
    assert few["cycles"]["low"] + added - 200 <= many["cycles"]["low"] <= few["cycles"]["low"] + added + 500


# As many rounds of a loop as the workgroup's x, y or z says, and one.
def _loop(register: str) -> list[str]:
    return [
        f"s_add_u32 s13, {register}, 1",
        "again:",
        *_WORK,
        "s_sub_u32 s13, s13, 1",
        "s_cmp_lg_u32 s13, 0",
        "s_cbranch_scc1 again",
    ]


@pytest.mark.parametrize("points", [1, 2, 3, 5])
def test_sample_of_linear_cost(points: int) -> None:
    """Two points and the middle give what all workgroups give; one point takes the middle for all."""
    grid, each = (41, 4, 1 if points == 1 else 2), len(_WORK) * 4 * SLOT
    every = timed(_loop("s2"), lds=_ALL_LDS, grid=grid, points=41)
    few = timed(_loop("s2"), lds=_ALL_LDS, grid=grid, points=points, only=True)
    assert every["counted"]["workgroups"] == np.prod(grid)
    assert few["counted"]["workgroups"] == few["time"]["sampled_workgroups"] < 12
    assert few["time"]["workgroups"] == every["time"]["workgroups"] == np.prod(grid)
    cycles = [r["time"]["cycles"]["low"] for r in (every, few)]
    if points == 1:
        assert cycles[0] - cycles[1] == 20 * each  # scalar instructions go beside the last v_exp
    else:
        assert cycles[0] == pytest.approx(cycles[1], rel=1e-12)
    units = {u["workgroup"]: u["cycles"]["low"] for u in every["time"]["units"]}
    assert all(u["cycles"]["low"] == units[u["workgroup"]] for u in few["time"]["units"])


def test_only_sampled_workgroups_run() -> None:
    lines = ["v_lshlrev_b32 v1, 2, v9", "s_lshl_b32 s13, s2, 8", "v_add_u32 v1, s13, v1", "v_mov_b32 v2, 1"]
    lines = [*START, *lines, "global_store_dword v1, v2, s[8:9]", "s_endpgm"]
    module = hip.Module(assemble([Kernel("k", lines, args=ARGS)]))
    buffer = hip.Buffer.of(np.zeros(64 * 20, np.uint32))
    with clock({}, only=True):
        hip.lib().fmha_emu_profile_enable(1)
        module.launch("k", struct.pack("<Q", buffer.address), (20, 1, 1))
        hip.lib().fmha_emu_profile_enable(0)
    module.unload()
    written = buffer.read().reshape(20, 64).any(axis=1)
    buffer.free()
    assert list(np.flatnonzero(written)) == [0, 9, 10, 19]


def test_clock_falls_with_use() -> None:
    zero = [f"v_mov_b32 v{i}, 0" for i in range(16, 20)] + [f"v_accvgpr_write_b32 a{i}, 0" for i in range(16)]
    lines = [*zero, "s_nop 4", *[f"{BIG} a[0:15], v[16:17], v[18:19], a[0:15]"] * 100]
    constants = EXACT | {"clock_matrix": (0.4, 0.5), "clock_vector": (0.1, 0.3)}
    record = timed(lines, block=256, grid=(UNITS, 1, 1), lds=_ALL_LDS, constants=constants, only=True)
    classes, waves = record["counted"]["instructions"], record["counted"]["waves"]
    cycles = record["time"]["cycles"]["low"]  # a wave a SIMD, and one round
    matrix = 100 * BIG_SLOTS * SLOT / cycles
    vector = classes["valu"] / waves * SLOT / cycles
    assert matrix > 0.9
    clock_hz = record["time"]["clock_hz"]
    assert clock_hz["high"] == pytest.approx(PEAK * (1 - 0.4 * matrix - 0.1 * vector))
    assert clock_hz["low"] == pytest.approx(PEAK * (1 - 0.5 * matrix - 0.3 * vector))
    assert record["time"]["seconds"]["low"] == pytest.approx(cycles / clock_hz["high"])
    small = timed(lines, block=256, lds=_ALL_LDS, constants=constants)["time"]["clock_hz"]["low"]
    assert small == pytest.approx(PEAK, rel=0.005)  # one unit of 304 draws little


def test_bandwidth() -> None:
    """No launch is faster than its bytes; arrays that the Infinity Cache holds come from there."""
    nbytes = 1 << 16
    lines = [
        "v_lshlrev_b32 v1, 4, v9",
        "s_lshl_b32 s13, s2, 10",
        "v_add_u32 v1, s13, v1",
        "global_load_dwordx4 v[40:43], v1, s[8:9]",
        "s_waitcnt vmcnt(0)",
    ]
    constants = EXACT | {"mall_bandwidth": (2e6, 1e6), "hbm_bandwidth": 1}
    time = timed(lines, grid=(nbytes >> 10, 1, 1), nbytes=nbytes, constants=constants)["time"]
    assert time["seconds"]["low"] == pytest.approx(nbytes / 2e6)
    assert time["seconds"]["high"] == pytest.approx(nbytes / 1e6)
    assert time["binds"]["memory"] == pytest.approx(1)
    later = timed(lines, grid=(nbytes >> 10, 1, 1), constants=constants | {"launch_seconds": 1})["time"]
    assert later["seconds"]["low"] == pytest.approx(1 + nbytes / 2e6)
    # Eight workgroups, one an XCD, each ask their L2 for 1024 bytes.
    narrow = timed(lines, grid=(8, 1, 1), constants=EXACT | {"l2_bandwidth": 0.5})["time"]
    assert narrow["cycles"]["low"] == pytest.approx(1024 / 0.5)


def test_atomics_have_a_rate_of_their_own() -> None:
    """No launch is faster than the bytes that its lanes add, wherever they add them."""
    lines = ["v_mov_b32 v1, 0", "v_mov_b32 v2, 1.0", "global_atomic_add_f32 v1, v2, s[8:9]"]
    constants = EXACT | {"atomic_bandwidth": (2e6, 1e6)}
    time = timed(lines, grid=(100, 1, 1), constants=constants, only=True)["time"]
    assert time["seconds"]["low"] == pytest.approx(100 * 64 * 4 / 2e6)
    assert time["seconds"]["high"] == pytest.approx(100 * 64 * 4 / 1e6)
    assert time["binds"]["memory"] == pytest.approx(1)


def test_l1_serves_the_second_wave() -> None:
    """The waves of a workgroup load the same lines: the first waits for the L2, the others for the L1."""
    load = ["v_lshlrev_b32 v1, 2, v9", "global_load_dword v40, v1, s[8:9]", "s_waitcnt vmcnt(0)"]
    far = EXACT | dict.fromkeys(("l2_latency", "mall_latency", "hbm_latency"), 4000) | {"l1_latency": 400}
    events = timed(load, block=128, constants=far, events=1000)["time"]["events"]
    (wait,) = [
        int(i)
        for i, e in events["instructions"].items()
        if e["text"].startswith("s_waitcnt vmcnt(0)") and int(i) == max(events["instruction"]) - 1
    ]
    stalled = {
        w: s
        for w, i, s in zip(events["wave"], events["instruction"], events["stalled"], strict=True)
        if i == wait
    }
    assert 4000 // SLOT <= stalled[0] + 2 <= 4000 // SLOT + 8
    assert 400 // SLOT <= stalled[1] + 2 <= 400 // SLOT + 8


def test_a_stopped_launch_has_no_time() -> None:
    lines = ["v_mov_b32 v0, 0", "s_mov_b64 s[0:1], 0", "global_load_dword v1, v0, s[0:1]", "s_endpgm"]
    module = hip.Module(assemble([Kernel("k", lines, args=ARGS)]))
    with clock({}):
        hip.lib().fmha_emu_profile_enable(1)
        try:
            with pytest.raises(hip.HipError):
                module.launch("k", struct.pack("<Q", 0))
        finally:
            hip.recover()
            hip.lib().fmha_emu_profile_enable(0)
            module.unload()
    (record,) = text("fmha_emu_profile")
    assert record["hip_error"]
    assert "time" not in record


def test_off_unless_asked_for() -> None:
    module = hip.Module(assemble([Kernel("k", ["s_endpgm"], args=ARGS)]))
    hip.lib().fmha_emu_profile_enable(1)
    module.launch("k", struct.pack("<Q", 0))
    hip.lib().fmha_emu_profile_enable(0)
    module.unload()
    (record,) = text("fmha_emu_profile")
    assert "time" not in record


def test_constants() -> None:
    before = text("fmha_emu_timing_constants")
    for name, row in before.items():
        assert set(row) == {"fast", "slow", "unit", "source"}, name
        assert row["unit"]
        assert row["source"]
        sign = -1 if name.endswith("_bandwidth") or name == "queue_cycles" else 1
        assert sign * row["fast"] <= sign * row["slow"], name
    assert set(EXACT) < set(before)
    with clock({"lds_latency": (1, 2)}):
        assert text("fmha_emu_timing_constants")["lds_latency"]["slow"] == 2
    assert text("fmha_emu_timing_constants") == before


@pytest.mark.parametrize(
    ("name", "value"), [(b"no_such", 1.0), (b"lds_latency", -1.0), (b"lds_latency", float("nan"))]
)
def test_bad_constants(name: bytes, value: float) -> None:
    before = text("fmha_emu_timing_constants")
    error = hip.lib().fmha_emu_set_timing_constant(name, c.c_double(1), c.c_double(value))
    assert error == 1
    assert text("fmha_emu_timing_constants") == before


@pytest.mark.parametrize("request_", [(0, 0, 0), (1, 2, 0)])
def test_bad_requests(request_: tuple[int, int, int]) -> None:
    assert hip.lib().fmha_emu_timing(c.byref(Request(*request_))) == 1
