# SPDX-License-Identifier: MIT OR Apache-2.0
"""Triton's kernels by the clock, as `--peer` times them beside ours.

The published rows need HipKittens' triton_baseline_v02.py, whose path TRITON_BASELINE_PATH gives, as in the
program that published them. They judge the clock and fit nothing. The ratios are a regression test, and no
evidence of what a card does.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from clients.rounding import draw
from clients.with_triton import triton_driver
from clients.with_triton.test_triton_attention import LOG2_E, attention, expected

from benchmarks.peers.triton_code import Configured, Kernel, configurations
from benchmarks.published.against import Clock, judge
from benchmarks.published.judge import Judged, subject_name
from benchmarks.published.points import points
from pyfa_rocm.array import DeviceArray
from pyfa_rocm.clock.code import Launch
from pyfa_rocm.clock.estimate import estimate
from pyfa_rocm.clock.peers import peers
from pyfa_rocm.clock.subjects import ProblemArrays, subjects
from pyfa_rocm.device import synchronize
from pyfa_rocm.oracle.problem import Problem

SOURCE = os.environ.get("TRITON_BASELINE_PATH", "")
# The ratio of Triton's speed to AITER's at head dim 128, from 1024 to 16384 keys.
RATIO = 0.05
pytestmark = pytest.mark.skipif("arch() != 'gfx942'", reason="the published card is an MI300X")


def arch() -> str:
    triton_driver.use()
    return triton_driver.arch()


def _launches(arrays: ProblemArrays, direction: str, config: dict[str, Any]) -> list[Launch]:
    shape = arrays.shape
    assert direction == "forward"
    arguments = config | {
        "q": arrays.q, "k": arrays.k, "v": arrays.v, "out": arrays.o, "seqlen_q": shape.seqlen,
        "seqlen_k": shape.seqlen, "scale_log2": LOG2_E / math.sqrt(shape.hdim), "HDIM": shape.hdim,
        "CAUSAL": shape.causal,
    }  # fmt: skip
    grid = (-(-shape.seqlen // config["TILE_Q"]), shape.batch * shape.nhead_q)
    return [Kernel.compiled(attention, arguments).launch(grid, arguments)]


CONFIGS: Sequence[dict[str, Any]] = [
    {"TILE_Q": 64, "TILE_K": 32, "num_warps": 4},
    {"TILE_Q": 32, "TILE_K": 64, "num_warps": 2},
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: f"{config['TILE_Q']}x{config['TILE_K']}")
def test_a_launch_does_the_work(config: dict[str, Any]) -> None:
    """A kernel that Triton compiled without a launch computes attention, with arguments packed here."""
    shape = Problem(1, 2, 2, 128, 64, True, "float16")
    arrays = ProblemArrays(shape)
    rng = np.random.default_rng(3)
    q, k, v = (draw(rng, (2, shape.seqlen, shape.hdim), np.float16) for _ in range(3))
    arrays.q, arrays.k, arrays.v = (DeviceArray.from_numpy(x[None]) for x in (q, k, v))
    (launch,) = _launches(arrays, "forward", config)
    launch.enqueue()
    synchronize()
    want, bound = expected(q, k, v, True, config["TILE_K"])
    assert np.all(np.abs(arrays.o.to_numpy()[0].astype(np.float64) - want) <= bound)


def test_the_fastest_configuration_counts() -> None:
    """A kernel that is tuned has the time of its fastest configuration; one that is not has none to try."""
    shape = Problem(1, 4, 4, 512, 64, True)
    each = [estimate(Configured("one", [config], _launches), shape).middle_seconds for config in CONFIGS]
    assert estimate(Configured("both", CONFIGS, _launches), shape).middle_seconds == min(each)
    assert configurations(attention) == [{}]


@pytest.mark.skipif(not SOURCE, reason="TRITON_BASELINE_PATH does not say where HipKittens' kernel is")
@pytest.mark.skipif("aiter rtna" not in subjects(), reason="a checkout without AITER's objects")
def test_published_rows() -> None:
    """Triton's kernel is slower than AITER's package in all ten rows, as published, and by as much at 128."""
    rows = [point for point in points() if point.source == "attn_dsl_bench"]
    ways = subjects() | {way.name: way for found in peers([f"triton={SOURCE}"]).values() for way in found}
    judged = {
        (row.point.implementation == "triton", row.point.shape): row for row in judge(rows, Clock(ways))
    }
    shapes = [shape for is_triton, shape in judged if is_triton]
    assert len(shapes) == 10
    for shape in shapes:
        triton, theirs = judged[True, shape], judged[False, shape]
        published = theirs.point.seconds / triton.point.seconds
        modelled = _middle(theirs) / _middle(triton)
        print(f"{shape} {subject_name(theirs.point)}: published {published:.3f}, modelled {modelled:.3f}")
        assert published < 1
        assert modelled < 1
        if shape.hdim == 128:
            assert modelled == pytest.approx(published, rel=RATIO)


def _middle(row: Judged) -> float:
    assert row.seconds is not None, row.reason
    return (row.seconds.low + row.seconds.high) / 2
