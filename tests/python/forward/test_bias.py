# SPDX-License-Identifier: MIT OR Apache-2.0
"""Features of scores: elementwise bias, ALiBi, softcap."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from built import nearest
from cases import Bias, Case, Layout, Placement, cases, expected, run_flash, run_or_refused, run_raw
from hypothesis import given, settings
from plugins.hypothesis_profile import EXAMPLES

import pyfa_rocm

BASE = Case(batch=2, seqlen_q=150, seqlen_k=211, nhead_k=2, ratio=2, hdim=128, dtype="bfloat16", seed=11)
MASKS = [{}, {"causal": True}, {"causal": True, "top_left": True}, {"window": (60, 9)}, {"window": (-1, 40)}]


def both(case: Case) -> None:
    case = nearest(case)
    run_raw(case)
    run_flash(case)


@settings(max_examples=EXAMPLES)
@given(case=cases(variants=("bias", "alibi", "softcap"), sinks=(False, False, True)))
def test_random(case: Case) -> None:
    run_or_refused(case)


@settings(max_examples=EXAMPLES * 3 // 8)
@given(case=cases(variants=("bias", "alibi", "softcap"), sinks=(False, False, True), max_tiles=24))
def test_random_flash(case: Case) -> None:
    run_flash(case)


@pytest.mark.parametrize("dims", list(product((False, True), repeat=3)), ids=str)
def test_broadcasts(dims: tuple[bool, bool, bool]) -> None:
    both(replace(BASE, bias=Bias(dims)))


@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("gap", [0, 1, 8])
def test_bias_with_masks(mask: dict[str, object], gap: int) -> None:
    """Infinities hide keys as a mask does; rows may lie at any stride."""
    bias = Bias(layout=Layout((1, 2, 0), (0, 0, 1, gap)), infinities=True)
    both(replace(BASE, bias=bias, **mask))  # type: ignore[arg-type]


@pytest.mark.parametrize("seqlen_k", [128, 200])
def test_bias_that_hides_all(seqlen_k: int) -> None:
    """A row of -inf is a row without keys."""
    case = replace(BASE, seqlen_k=seqlen_k, bias=Bias(infinities=True))
    assert np.isneginf(expected(case, case.inputs()).lse).any()
    both(case)


@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("lengths", [(150, 211), (211, 150), (1, 300), (300, 1)], ids=str)
def test_alibi(mask: dict[str, object], lengths: tuple[int, int]) -> None:
    """Distances from each query's own column, whatever the mask: the LSE shows any other origin."""
    case = replace(BASE, seqlen_q=lengths[0], seqlen_k=lengths[1], **mask)  # type: ignore[arg-type]
    both(replace(case, alibi=1))
    both(replace(case, alibi=2, top_left=True))


def test_alibi_beyond_16_bits() -> None:
    """Distances of 65536 and more, which 16-bit arithmetic would wrap round to near ones."""
    case = replace(
        BASE, batch=1, seqlen_q=3, seqlen_k=65536 + 200, nhead_k=1, ratio=1, hdim=64, scale=0.01,
        alibi=1, slope=2.0**-14,
    )  # fmt: skip
    run_raw(nearest(case))


@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("cap", [0.5, 30.0, 819.0])
@pytest.mark.parametrize("scale", [None, 2.0])
def test_softcap(mask: dict[str, object], cap: float, scale: float | None) -> None:
    """Scores far beyond the cap as well as below it; the mask comes after it."""
    both(replace(BASE, softcap=cap, scale=scale, **mask))  # type: ignore[arg-type]


@pytest.mark.parametrize("cap", [1.0, 50.0, 819.0])
@pytest.mark.parametrize("scale", [1e-3, 0.1, 3.0])
def test_precision_of_softcap(cap: float, scale: float) -> None:
    """With one key the LSE is the capped score itself: within what CK's tanh may be off by, however small."""
    case = replace(BASE, batch=1, seqlen_k=1, softcap=cap, scale=scale)
    run_raw(nearest(case))


@pytest.mark.parametrize("change", [{"bias": Bias()}, {"alibi": 1}], ids=str)
def test_softcap_with_bias_is_refused(change: dict[str, object]) -> None:
    placement = Placement(replace(BASE, softcap=5.0, **change))  # type: ignore[arg-type]
    with pytest.raises(pyfa_rocm.UnsupportedError, match="softcap"):
        pyfa_rocm.fmha_fwd(placement.params())
    assert placement.unchanged()
