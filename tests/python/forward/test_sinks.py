# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention sinks: with every feature and head dim, at their extremes, and where no kernel has them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from archs import read_archs
from built import candidates, fp8, nearest, this_arch
from cases import Case, Dropout, Placement, Varlen, bits, run_flash, run_raw

import pyfa_rocm
from pyfa_rocm import DeviceArray, UnsupportedError

BASE = Case(
    batch=2, seqlen_q=150, seqlen_k=211, nhead_k=2, ratio=4, hdim=64, dtype="bfloat16", seed=5, sinks=True
)
FP8 = replace(BASE, dtype=fp8(), o_dtype="bfloat16", descale=(0.5, 1.5, 2.0))
FAMILY = {arch.name: arch.family for arch in read_archs().archs}


def _results(case: Case, sinks: float | None) -> tuple[Any, Any]:
    """O and LSE with one sink for all heads; None: without any, by the kernel that the sinks would have."""
    placement = Placement(replace(case, sinks=False))
    held = DeviceArray.from_numpy(np.full(case.nhead_q, 0 if sinks is None else sinks, np.float32))
    params = replace(placement.params(), sinks=held.data)
    if sinks is None:
        name = pyfa_rocm.fmha_fwd_kernel(params).name
        params = replace(params, sinks=0, kernel=1)
        while pyfa_rocm.fmha_fwd_kernel(params).name != name:
            params.kernel += 1
    pyfa_rocm.fmha_fwd(params)
    return placement.o.take(), placement.lse.take()


@pytest.mark.parametrize(
    "change",
    [
        {}, {"causal": True}, {"window": (40, 0), "seqlen_q": 33}, {"seqlen_q": 300, "causal": True},
        {"seqlen_k": 0}, {"softcap": 5.0}, {"alibi": 1}, {"hdim": 128}, {"hdim": 96}, {"hdim": 192},
        {"hdim": 256}, {"hdim": 512}, {"batch": 3, "varlen": Varlen((150, 0, 7), (211, 20, 0))},
    ],
    ids=str,
)  # fmt: skip
def test_features(change: dict[str, Any]) -> None:
    case = nearest(replace(BASE, **change))
    run_raw(case)
    run_flash(case)


@pytest.mark.parametrize("case", [BASE, FP8], ids=["bfloat16", "fp8"])
def test_far_below(case: Case) -> None:
    """A sink that weighs nothing, or is -inf, changes no bit."""
    if not candidates(case):
        pytest.skip("no such kernel in this library")
    plain = _results(case, None)
    for sink in (-np.inf, -3e38, -1e4):
        for got, want in zip(_results(case, sink), plain, strict=True):
            np.testing.assert_array_equal(bits(got), bits(want))


@pytest.mark.parametrize("sink", [1e3, 1e30, 2.3e38])
def test_far_above(sink: float) -> None:
    """A sink that outweighs all: O is 0, and the LSE the sink."""
    o, lse = _results(nearest(BASE), sink)
    assert not o.astype(np.float32).any()
    np.testing.assert_allclose(lse, sink, rtol=1e-6)


def test_nan() -> None:
    """It does not vanish."""
    for got in _results(nearest(BASE), np.nan):
        assert np.isnan(got.astype(np.float32)).all()


def test_refused() -> None:
    """Composable Kernel's have none: the message names what it is that no kernel does."""
    if FAMILY[this_arch()] != "instinct":
        pytest.skip("Radeon's kernels have sinks with everything")
    for change in ({"dtype": "float32"}, {"dropout": Dropout(0.5)}):
        case = replace(BASE, **change)
        with pytest.raises(UnsupportedError, match=r"sinks|dtype"):
            pyfa_rocm.fmha_fwd_supported(Placement(case).params())
