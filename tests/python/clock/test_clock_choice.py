# SPDX-License-Identifier: MIT OR Apache-2.0
"""The forward selector's choice between origins of kernels, by the clock of the card that is played.

These are regression tests: they find a choice that the clock calls slow. They are no evidence of what a card
does.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from inner import run_as

from pyfa_rocm._runtime import library
from pyfa_rocm.clock.estimate import estimate
from pyfa_rocm.clock.subjects import AiterForward, CompositeKernel, Ours, Subject
from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.oracle.problem import Problem

ROOT = Path(__file__).resolve().parents[3]

SHAPES = {
    "plain": Problem(4, 64, 8, 8192, 128, False),
    "causal": Problem(8, 32, 8, 8192, 128, True),
    "short": Problem(2, 16, 16, 2048, 128, False),
}
pytestmark = pytest.mark.skipif(
    "config.getoption('--device') == 'gpu'", reason="the clock is of the software device"
)


@pytest.mark.parametrize("other", [AiterForward(), CompositeKernel()], ids=lambda way: way.name)
@pytest.mark.parametrize("name", SHAPES)
def test_no_other_kernel_is_faster(name: str, other: Subject) -> None:
    """Than the library's choice, in the middle of the range."""
    try:
        theirs = estimate(other, SHAPES[name])
    except UnsupportedError as error:
        pytest.skip(str(error))
    ours = estimate(Ours(), SHAPES[name])
    assert ours.middle_tflops >= 0.99 * theirs.middle_tflops, (ours.kernel, theirs.kernel)


@pytest.mark.skipif(os.environ.get("FMHA_EMU_ARCH") != "gfx950", reason="of an MI355X")
def test_how_much_faster_on_an_mi355x() -> None:
    """Our kernel than AITER's, at either end of the range; with a mask, of which AITER's races, than CK's."""
    for name, other, least in (("plain", AiterForward(), 1.05), ("causal", CompositeKernel(), 1.5)):
        ours, theirs = (estimate(way, SHAPES[name]) for way in (Ours(), other))
        assert ours.kernel == f"fmha_fwd_bf16_d128_{'mask_' * (name == 'causal')}pad_pingpong"
        assert ours.tflops.low >= least * theirs.tflops.low
        assert ours.tflops.high >= least * theirs.tflops.high


@pytest.mark.skipif(bool(os.environ.get("FMHA_EMU_ARCH")), reason="already the inner run")
def test_on_an_mi355x() -> None:
    """The same there."""
    if "gfx950" not in json.loads(library.build_info_json())["archs"]:
        pytest.skip("the library was built without kernels for gfx950")
    run_as("gfx950", __file__)
