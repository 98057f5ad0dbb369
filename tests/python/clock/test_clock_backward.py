# SPDX-License-Identifier: MIT OR Apache-2.0
"""The clock of AITER's backward kernels, and the rate of atomics that one published row gives."""

from __future__ import annotations

from dataclasses import replace

import pytest
from inner import program

from benchmarks.published.points import ATOMICS, points
from pyfa_rocm import UnsupportedError
from pyfa_rocm.clock.estimate import estimate
from pyfa_rocm.clock.subjects import subjects
from pyfa_rocm.oracle.problem import Problem

pytestmark = pytest.mark.skipif("config.getoption('--device') == 'gpu'", reason="of the software device")
# Keys of the tile of AITER's backward kernel for head dim 128, after which it adds to dQ.
TILE_KEYS = {"mi300x": 192, "mi355x": 256}


@pytest.mark.parametrize(("card", "arch"), [("mi300x", ""), ("mi355x", "gfx950")])
def test_the_rate_of_atomics(card: str, arch: str) -> None:
    """The calibration row gives the middle of the range: dQ's bytes over the published time."""
    (point,) = (
        point
        for point in points()
        if (point.card, point.shape) == (card, ATOMICS) and "a32" in point.rounding
    )
    shape, tiles = point.shape, -(-point.shape.seqlen // TILE_KEYS[card])
    rate = shape.batch * shape.nhead_q * shape.seqlen * shape.hdim * 4 * tiles / point.seconds
    code = "import json; from pyfa_rocm import emulator; print(json.dumps(emulator.timing_constants()))"
    constant = program("-c", code, arch=arch)["atomic_bandwidth"]
    assert 2 / (1 / constant["fast"] + 1 / constant["slow"]) == pytest.approx(rate, rel=0.01)


def test_backward_of_aiter() -> None:
    """AITER's backward kernels as the library has them: the same work on every query head, or a refusal."""
    way = subjects()["aiter backward a32"]
    shape = Problem(1, 2, 1, 256, 128, False)
    with pytest.raises(UnsupportedError, match="got direction 'forward'"):
        estimate(way, shape, "forward")
    if "aiter rtna" not in subjects():
        pytest.skip("this checkout's toolchain has no objects of AITER: CK did not come from its wheel")
    found = estimate(way, shape, "backward")
    assert found.kernel == "fmha_bwd_bf16_d128_aiter"
    assert found.launches == 3
    with pytest.raises(UnsupportedError, match="no kernel of AITER"):
        estimate(way, replace(shape, dtype="float16"), "backward")


def test_the_rate_bounds_float32_sums() -> None:
    """The atomics bound the kernel with float32 sums in a long problem; 16 bits halve their bytes."""
    if "aiter backward a16 rtz" not in subjects():
        pytest.skip("this checkout's toolchain has no objects of AITER that truncate: make fetches them")
    long = Problem(1, 32, 32, 4096, 128, False)
    a32, a16 = (
        estimate(subjects()[f"aiter backward {kind} rtz"], long, "backward") for kind in ("a32", "a16")
    )
    assert (a32.launches, a16.launches) == (3, 2)
    assert a32.middle_tflops <= 2.5 * TILE_KEYS["mi300x"] * 0.99
    assert a16.middle_seconds < a32.middle_seconds
