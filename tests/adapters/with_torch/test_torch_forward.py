# SPDX-License-Identifier: MIT OR Apache-2.0
"""pyfa_rocm.torch on CPU tensors against float64: every feature, any shape and layout."""

from __future__ import annotations

from dataclasses import replace

import pytest
from adapters.with_torch.torch_cases import run_or_refused
from built import candidates
from cases import Bias, Case, Dropout, Varlen, cases
from hypothesis import given, settings
from hypothesis import strategies as st

BASE = Case(batch=2, seqlen_q=120, seqlen_k=143, nhead_k=2, ratio=2, hdim=128, dtype="bfloat16", seed=3)
# One case for each feature that the smallest set of kernels has; others are drawn.
FEATURES = {
    "plain": {},
    "fp16": {"dtype": "float16", "hdim": 64},
    "fp32": {"dtype": "float32", "hdim": 64},
    "fp8": {
        "dtype": "float8_e4m3fnuz",
        "o_dtype": "bfloat16",
        "descale": (0.5, 1.5, 3.0),
        "broadcast_kv": (True, True),
    },
    "causal": {"causal": True, "lse": False},
    "top_left": {"causal": True, "top_left": True},
    "window": {"window": (40, 9)},
    "softcap": {"softcap": 5.0, "dtype": "float16"},
    "bias": {"bias": Bias((False, True, True), infinities=True), "dtype": "float16"},
    "alibi": {"alibi": 2},
    "sinks": {"sinks": True, "causal": True},
    "dropout": {"dropout": Dropout(0.3, 2**63 + 9, 2**64 - 1), "hdim": 64},
    "dropout_on_device": {"dropout": Dropout(0.3, 2**63 + 9, 5, on_device=True), "hdim": 64},
    "scale": {"scale": 0.3},
    "shared_kv": {"broadcast_kv": (True, True)},
    "varlen": {"varlen": Varlen((120, 0, 30), (100, 143, 7)), "batch": 3, "causal": True},
    "seqused": {"varlen": Varlen((60, 1), (70, 50), (3, 4), (5, 6)), "seqlen_q": 70, "seqlen_k": 80},
}
DRAWN = {
    "dtypes": ("float16", "bfloat16"),
    "variants": ("none", "bias", "alibi", "softcap"),
    "varlen": (False, True),
    "dropout": (False, True),
    "sinks": (False, True),
    "max_tiles": 8,
}


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("change", FEATURES.values(), ids=FEATURES)
def test_features(change: dict[str, object], watched: bool) -> None:
    """With memory that is registered for the call, then with memory that the device watches."""
    case = replace(BASE, **change)  # type: ignore[arg-type]
    run_or_refused(case, own_out=not watched, watched=watched)


@settings(max_examples=300)
@given(case=cases(**DRAWN), own_out=st.booleans(), watched=st.booleans())  # type: ignore[arg-type]
def test_random(case: Case, own_out: bool, watched: bool) -> None:
    run_or_refused(case, own_out=own_out, watched=watched)


@settings(max_examples=60)
@given(
    case=cases(dtypes=("float32", "float8_e4m3fnuz"), hdims=(64, 128), max_tiles=8),
    own_out=st.booleans(),
    watched=st.booleans(),
)
def test_random_other_dtypes(case: Case, own_out: bool, watched: bool) -> None:
    run_or_refused(case, own_out=own_out, watched=watched)


def test_every_feature_ran() -> None:
    """In the kernels there are, so that no feature above is only ever refused."""
    refused = [name for name, change in FEATURES.items() if not candidates(replace(BASE, **change))]  # type: ignore[arg-type]
    assert refused == []
