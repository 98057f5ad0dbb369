# SPDX-License-Identifier: MIT OR Apache-2.0
"""Our own forward kernel beside others, by the clock: what docs/kernels/fwd_pingpong.md says of it.

These are regression tests: they find a kernel or a choice that the clock calls slower. They are no evidence
of what a card does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import pytest
from built import fp8

from pyfa_rocm import fmha
from pyfa_rocm.clock.cards import played
from pyfa_rocm.clock.estimate import Estimate, estimate
from pyfa_rocm.clock.subjects import Enqueue, Ours, ProblemArrays, subjects
from pyfa_rocm.oracle.problem import Problem

SHAPES = {"plain": Problem(4, 64, 8, 8192, 128, False), "causal": Problem(8, 32, 8, 8192, 128, True)}
OVER_AITER = 1.05  # of AITER's kernels that round to nearest, at either end of the clock's range
# TFLOPS of 8-bit floats by head dim, middle of the range: a hundredth below docs/kernels/fwd_pingpong.md.
FP8_TFLOPS = {"mi300x": {64: 717, 128: 1099, 256: 1238}, "mi355x": {64: 1011, 128: 1806, 256: 2464}}
pytestmark = [
    pytest.mark.skipif("config.getoption('--device') == 'gpu'", reason="of the software device"),
    pytest.mark.skipif("aiter rtna" not in subjects(), reason="a build without AITER's objects"),
]


# Few heads: workgroups share the keys of row tiles, in a workspace.
SHARED = {
    "5_heads": Problem(1, 5, 5, 8192, 128, False),
    "tail": Problem(1, 20, 20, 4096, 128, False),
    "three_rounds": Problem(1, 12, 12, 16384, 128, False),
    "causal": Problem(1, 1, 1, 16384, 128, True),
    "d64": Problem(1, 1, 1, 16384, 64, False),
}


class WithoutWorkspace(Ours):
    """The library's choice for a caller that has none."""

    name = "without workspace"

    @contextmanager
    def prepare(self, shape: Problem, direction: str) -> Iterator[Enqueue]:
        """See Subject."""
        del direction
        arrays = ProblemArrays(shape)
        yield Enqueue(self.name, lambda: fmha.fmha_fwd(arrays.params()))


@pytest.mark.parametrize("name", SHARED)
def test_shared_keys_are_faster(name: str) -> None:
    """Where the selector has workgroups share keys, that is faster at either end of the range."""
    params = ProblemArrays(SHARED[name]).params()
    assert fmha.fmha_fwd_workspace_bytes(params) > 0
    shared, without = (estimate(way, SHARED[name]) for way in (Ours(), WithoutWorkspace()))
    assert shared.tflops.low > without.tflops.low
    assert shared.tflops.high > without.tflops.high


# Problems that leave units idle: TFLOPS on an MI300X, middle of the range, a hundredth below
# docs/kernels/fwd_pingpong.md, by waves that divide the keys of their tile.
SHORT = {
    "512": (Problem(1, 32, 32, 512, 128, False), 207),
    "1024_causal": (Problem(1, 32, 8, 1024, 128, True), 234),
    "512_d64": (Problem(1, 32, 32, 512, 64, False), 133),
}


@pytest.mark.skipif("played() != 'mi300x'", reason="only gfx942 has them")
@pytest.mark.parametrize("name", SHORT)
def test_short_problems(name: str) -> None:
    problem, least = SHORT[name]
    found = estimate(Ours(), problem)
    assert found.kernel == f"fmha_fwd_bf16_d{problem.hdim}_mask_pad_pingpong_shares"
    assert found.middle_tflops >= least


@cache
def _timed(name: str, mask: str) -> Estimate:
    return estimate(subjects()[name], SHAPES[mask])


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


@pytest.mark.parametrize("hdim", [64, 128, 256])
def test_8_bit_floats(hdim: int) -> None:
    found = estimate(Ours(), Problem(4, 64, 8, 4096, hdim, False, fp8()))
    assert found.kernel.endswith(f"_bf16_d{hdim}_mask_pad_pingpong")
    assert found.middle_tflops >= FP8_TFLOPS[played()][hdim]
