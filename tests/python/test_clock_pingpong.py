# SPDX-License-Identifier: MIT OR Apache-2.0
"""Our own forward kernel beside others, by the clock: what docs/kernels/fwd_pingpong.md says of it."""

from __future__ import annotations

from functools import cache

import pytest

from pyfa_rocm.cli import bench_model
from pyfa_rocm.cli.clock import Estimate, estimate
from pyfa_rocm.cli.published import Shape

SHAPES = {"plain": Shape(4, 64, 8, 8192, 128, False), "causal": Shape(8, 32, 8, 8192, 128, True)}
OVER_AITER = 1.05  # of AITER's kernels that round to nearest, at either end of the clock's range
pytestmark = [
    pytest.mark.skipif("config.getoption('--device') == 'gpu'", reason="of the software device"),
    pytest.mark.skipif(
        "aiter rtna" not in bench_model.subjects(None), reason="a build without AITER's objects"
    ),
]


@cache
def _timed(name: str, mask: str) -> Estimate:
    return estimate(bench_model.subjects(None)[name], SHAPES[mask])


@pytest.mark.parametrize("mask", SHAPES)
@pytest.mark.parametrize(
    ("other", "least"), [("aiter rtna", OVER_AITER), ("aiter rtne", OVER_AITER), ("ck", 1)]
)
def test_faster(other: str, least: float, mask: str) -> None:
    """By the whole range: at the slow ends of the clock's constants, and at the fast ends."""
    ours, theirs = _timed("pyfa_rocm", mask), _timed(other, mask)
    assert ours.kernel == f"fmha_fwd_bf16_d128_{'mask_' * (mask == 'causal')}pad_pingpong"
    assert ours.tflops.low >= least * theirs.tflops.low
    assert ours.tflops.high >= least * theirs.tflops.high
