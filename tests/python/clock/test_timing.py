# SPDX-License-Identifier: MIT OR Apache-2.0
"""The clock of the software device from Python: what a profile of attention says about time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pyfa_rocm import DeviceArray, InvalidArgumentError, emulator, flash_attn_func
from pyfa_rocm.emulator import LaunchProfile, Time

pytestmark = pytest.mark.skipif(
    "config.getoption('--device') == 'gpu'", reason="only the software device models time"
)
PEAK_HZ = 2.1e9
PEAK_FLOPS = 1307.4e12  # of an MI300X, fp16 and bf16


def _launch(
    seqlen: int, causal: bool = False, heads: int = 4, batch: int = 1, **options: Any
) -> tuple[LaunchProfile, Time]:
    zeros = np.zeros((batch, seqlen, heads, 128), np.float16)
    q, k, v = (DeviceArray.from_numpy(zeros) for _ in range(3))
    with emulator.profile(timing=True, **options) as profile:
        flash_attn_func(q, k, v, causal=causal)
    launch = profile.launches[0]  # behind it may be one that merges
    assert launch.time is not None
    return launch, launch.time


def test_time_of_attention() -> None:
    launch, time = _launch(256)
    assert time.card == "mi300x"
    assert time.workgroups == launch.counted.workgroups == math.prod(launch.grid)
    for values in (time.cycles, time.seconds, time.clock_hz):
        assert 0 < values.low <= values.high
    assert time.clock_hz.high <= PEAK_HZ
    assert time.seconds.low > time.cycles.low / PEAK_HZ
    assert launch.counted.flops / time.seconds.low < PEAK_FLOPS
    assert set(time.binds) == {"matrix", "vector", "lds", "l1", "memory", "latency", "barriers"}
    assert all(0 <= share <= 1 for share in time.binds.values())
    assert time.binds["matrix"] > 0.1
    assert time.events is None


@pytest.mark.parametrize("causal", [False, True])
def test_a_sample_stands_for_all(causal: bool) -> None:
    """A grid of several rounds: few workgroups give nearly what all of them give."""
    few, time = _launch(1024, causal, heads=2, batch=1, sample=3)
    every, all_time = _launch(1024, causal, heads=2, batch=1)
    assert few.counted.workgroups == time.sampled_workgroups < every.counted.workgroups
    assert time.workgroups == all_time.workgroups
    # Without the other workgroups, more lines come from afar; at the fast end that is no slower.
    assert time.cycles.low == pytest.approx(all_time.cycles.low, rel=0.02)
    assert time.cycles.high == pytest.approx(all_time.cycles.high, rel=0.2)


def test_a_card_sized_launch_is_quick() -> None:
    """Memory that is allocated and not touched costs nothing, and one workgroup stands for 8192."""
    shape = (4, 4096, 64, 128)
    q, k, v = (DeviceArray.empty(s, "float16") for s in (shape, (4, 4096, 8, 128), (4, 4096, 8, 128)))
    with emulator.profile(timing=True, sample=1) as profile:
        flash_attn_func(q, k, v)
    (launch,) = profile.launches
    assert launch.time is not None
    assert launch.counted.workgroups == 1
    flops = 4 * 4 * 64 * 4096**2 * 128
    assert 0.3 * PEAK_FLOPS < flops / launch.time.seconds.high < flops / launch.time.seconds.low
    assert flops / launch.time.seconds.low < 0.6 * PEAK_FLOPS
    assert launch.time.clock_hz.high < 0.85 * PEAK_HZ  # all units at work


def test_constants_count_for_the_block() -> None:
    before = emulator.timing_constants()
    _, fast = _launch(128, constants={"launch_seconds": (1, 2)})
    assert 1 < fast.seconds.low < 1.001
    assert 2 < fast.seconds.high < 2.001
    assert emulator.timing_constants() == before


def test_events_of_a_unit() -> None:
    _, time = _launch(128, heads=1, events=1000)
    assert time.events is not None
    assert len(time.events["slot"]) == len(time.events["wave"]) == 1000
    assert {str(i) for i in time.events["instruction"]} == set(time.events["instructions"])


def test_no_clock_unless_asked_for() -> None:
    q = DeviceArray.from_numpy(np.zeros((1, 128, 1, 128), np.float16))
    with emulator.profile() as profile:
        flash_attn_func(q, q, q)
    assert profile.launches[0].time is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sample": 3}, "sample, events and constants need timing=True, got timing=False"),
        ({"timing": True, "sample": 0}, "sample: got 0, expected None or 1 or more points"),
        ({"timing": True, "events": -1}, "events: got -1, expected 0 or more"),
        ({"timing": True, "constants": {"nothing": (1, 2)}}, "constants: got 'nothing': "),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with (
        pytest.raises(InvalidArgumentError, match="^(profile: )?" + message),
        emulator.profile(**arguments),
    ):
        pass
    with emulator.profile():  # the next one is not in the way
        pass
