# SPDX-License-Identifier: MIT OR Apache-2.0
"""`first-day` plans for a card: every kernel of a wheel, within half an hour."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from catalogue import ARCHS, read_catalogue, select_rows

from pyfa_rocm import fmha
from pyfa_rocm.cli.first_day import sizes, steps, timing
from pyfa_rocm.cli.first_day.clockwork import Clockwork
from pyfa_rocm.cli.first_day.workloads import Attention, Decode
from pyfa_rocm.oracle import forced
from pyfa_rocm.oracle.forced import attention

CATALOGUE = read_catalogue(Path(__file__).resolve().parents[3] / "native" / "kernels" / "catalogue")
# Kernels that run beside another one have no number to be asked for by.
BESIDE = "bwd_parts"
# Seconds of one core of a server, measured in November 2026: to check a random problem of a card's size
# against float64, by family; to write the file, twice a step; and to model a kernel of a timed problem. To
# fill an element of such a problem's arrays is a copy of two bytes.
CHECK = {"fwd": 0.12, "bwd": 0.3, "decode": 0.03, "kv_append": 0.03, "merge": 0.03, "quantize": 0.03}
WRITE, FILL, MODEL = 0.05, 1e-9, 1.5
# Kernels that can do a timed problem, of which an MI300X has up to 18, and what the slowest of them is sure
# to reach: operations or bytes a second, and seconds where a problem is too small for that.
CANDIDATES = 18
SLOWEST, LEAST = {"flops": 200e12, "bytes": 0.5e12}, 2e-5
PROMISED = 30 * 60


def rows(arch: str) -> list[Any]:
    """Return the rows of a wheel's kernels for an arch."""
    found: list[Any] = select_rows(CATALOGUE, "default", [arch])
    return found


@pytest.mark.parametrize("arch", ARCHS)
def test_each_kernel_of_a_wheel_is_forced(arch: str) -> None:
    """All but those that run beside others."""
    families = {row.family for row in rows(arch)}
    assert families - {BESIDE} <= set(forced.FAMILIES)
    assert {"fwd", "bwd", "decode"} <= families


def test_each_kernel_here_is_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library does a random problem of a card's size with each kernel. They are not run."""

    class OfferedError(Exception):
        pass

    def stop(*_: object) -> None:
        raise OfferedError

    for family in forced.FAMILIES:
        monkeypatch.setattr(fmha, f"fmha_{family}", stop)
    monkeypatch.setattr(attention, "right_results", stop)
    day = sizes.card(instinct=True)
    for place, row in enumerate(steps.kernels_of_this_device("")[0]):
        with pytest.raises(OfferedError):
            forced.run(row, place % day.rounds, day.forced)


@pytest.mark.parametrize(("arch", "instinct"), [("gfx942", True), ("gfx950", True), ("gfx1201", False)])
def test_half_an_hour(arch: str, instinct: bool) -> None:
    """By what each part takes, all is done in two thirds of the time after which no step begins."""
    day = sizes.card(instinct)
    assert day.minutes * 60 == PROMISED
    kernels = [row for row in rows(arch) if row.family != BESIDE]
    timed = [*day.published, *day.choices, *day.decode]
    launches = len(kernels) * day.rounds * day.forced.runs
    calls = len(timed) * CANDIDATES * (timing.REPEAT + 1)
    assert 2000 < launches < 8000
    assert calls < 30000
    seconds = dict.fromkeys(("kernels", "card", "model", "fill"), 0.0)
    for row in kernels:
        seconds["kernels"] += day.rounds * CHECK[row.family]
    for workload in timed:
        least = max(workload.work / SLOWEST[workload.unit], LEAST)
        seconds["card"] += CANDIDATES * (timing.REPEAT + 1) * least
        seconds["model"] += 2 * MODEL
        if isinstance(workload, Attention):
            p = workload.problem
            seconds["fill"] += FILL * p.batch * (p.nhead_q + 2 * p.nhead_k) * p.seqlen * p.hdim
        else:
            assert isinstance(workload, Decode)
            seconds["fill"] += FILL * workload.work / 2
    names = len(kernels) * day.rounds + 2 * len(timed) + 4
    seconds["file"] = 2 * names * WRITE / 2  # it grows
    seconds["clocks"] = day.load_seconds
    assert sum(seconds.values()) < PROMISED * 2 / 3, seconds


def test_a_card_has_each_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps of a card are of every part, and what tells most comes first."""
    monkeypatch.setattr(timing, "has_card", lambda: True)
    day = sizes.card(instinct=True)
    found = steps.steps(day, steps.PARTS, "merge", Clockwork("gfx942"))
    assert list(dict.fromkeys(step.part for step in found)) == list(steps.PARTS)
    merges = len(steps.kernels_of_this_device("merge")[0])
    counts = Counter(step.part for step in found)
    timed = len(day.published) + len(day.choices) + len(day.decode)
    assert counts["kernels"] == merges * day.rounds
    assert counts["model"] == timed + 1
    assert len({step.name for step in found}) == len(found)
