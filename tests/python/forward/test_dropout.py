# SPDX-License-Identifier: MIT OR Apache-2.0
"""Dropout: the random bytes and the keep decision are the NumPy model's, exactly."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from built import candidates, nearest
from cases import DTYPES, Bias, Case, Dropout, Placement, cases, run_flash, run_or_refused, run_raw
from hypothesis import given, settings
from philox import keep_at_most, keep_scale, random_bytes
from plugins.hypothesis_profile import EXAMPLES

import pyfa_rocm
from pyfa_rocm import DeviceArray, flash_attn_func

BASE = Case(
    batch=2, seqlen_q=150, seqlen_k=211, nhead_k=2, ratio=2, hdim=128, dtype="bfloat16", seed=13,
    dropout=Dropout(0.3, 2**63 + 9, 2**40 + 3, randval=True),
)  # fmt: skip


@settings(max_examples=EXAMPLES)
@given(case=cases(dropout=(True,), sinks=(False, False, False, True)))
def test_random(case: Case) -> None:
    run_or_refused(case)


@settings(max_examples=EXAMPLES * 3 // 8)
@given(case=cases(dropout=(True,), max_tiles=24))
def test_random_flash(case: Case) -> None:
    run_flash(case)


@pytest.mark.parametrize("p", [0.0039, 0.1, 0.2, 0.25, 0.5, 0.75, 0.9, 0.995, 0.999])
@pytest.mark.parametrize("mask", [{}, {"causal": True}, {"window": (60, 9)}], ids=str)
def test_chances(p: float, mask: dict[str, object]) -> None:
    run_raw(nearest(replace(BASE, dropout=replace(BASE.dropout, p=p), **mask)))  # type: ignore[arg-type, type-var]


@pytest.mark.parametrize("on_device", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**64 - 1])
@pytest.mark.parametrize("offset", [0, 2**32 - 1, 2**64 - 40])
def test_seeds(on_device: bool, seed: int, offset: int) -> None:
    """All 64 bits of both; the offset's sum with the head's wraps."""
    dropout = Dropout(0.5, seed, offset, on_device, randval=True)
    case = nearest(replace(BASE, seqlen_q=40, seqlen_k=70, dropout=dropout))
    run_raw(case)
    run_flash(case)


@pytest.mark.parametrize("change", [{"bias": Bias()}, {"alibi": 2}, {"softcap": 4.0}], ids=str)
def test_with_other_features(change: dict[str, object]) -> None:
    case = nearest(replace(BASE, **change))  # type: ignore[arg-type]
    run_raw(case)
    run_flash(case)


def test_all_kernels_drop_the_same() -> None:
    """A function of seed, offset and place: not of head dim, type, lengths, mask, tile or pipeline."""
    run = set()
    for dtype, hdim, change in product(DTYPES, (32, 64, 128, 256), ({}, {"bias": Bias()}, {"alibi": 1})):
        case = replace(BASE, dtype=dtype, hdim=hdim, **change)
        for number in range(1, len(candidates(case)) + 1):
            run.add(run_raw(replace(case, kernel=number)))  # compares each with the model
    assert run, "no kernel with dropout in this library"


def test_rate_and_scale() -> None:
    """With equal keys and equal values, kept and scaled probabilities give the value back on average."""
    p, n = 0.3, 512
    case = nearest(replace(BASE, lse=False, hdim=64))
    dtype, hdim = DTYPES[case.dtype], case.hdim
    q = DeviceArray.from_numpy(np.zeros((1, 256, 1, hdim), dtype))
    k = DeviceArray.from_numpy(np.zeros((1, n, 1, hdim), dtype))
    v = DeviceArray.from_numpy(np.ones((1, n, 1, hdim), dtype))
    o = flash_attn_func(q, k, v, p, philox=(3, 4)).to_numpy().astype(np.float64)
    kept = (random_bytes(3, 4, 1, 256, n) <= keep_at_most(p))[0].mean(axis=1)
    # The factor and O are each rounded by at most 2^-8.
    np.testing.assert_allclose(o[0, :, 0, 0], kept * keep_scale(p), rtol=2.0**-7)
    chance = (keep_at_most(p) + 1) / 256
    assert abs(kept.mean() - chance) < 5 * np.sqrt(chance * (1 - chance) / (256 * n))


def test_attention_probabilities() -> None:
    """return_attn_probs: the probabilities before dropout, negative where they were dropped."""
    rng = np.random.default_rng(1)
    case = nearest(replace(BASE, hdim=64))
    shape = (2, 70, 2, case.hdim)
    host = [rng.standard_normal(shape, np.float32).astype(DTYPES[case.dtype]) for _ in range(3)]
    q, k, v = (DeviceArray.from_numpy(x) for x in host)
    out, lse, probabilities = flash_attn_func(
        q, k, v, 0.4, causal=True, philox=(8, 1), return_attn_probs=True
    )
    signed = probabilities.to_numpy().astype(np.float64)
    scores = np.einsum("bihd,bjhd->bhij", *(x.astype(np.float64) for x in host[:2]))
    scores *= case.hdim**-0.5
    seen = np.tri(70, dtype=bool)
    scores[..., ~seen] = -np.inf
    want = np.exp(scores - lse.to_numpy().astype(np.float64)[..., None])
    np.testing.assert_allclose(np.abs(signed), want, rtol=1e-5, atol=1e-7)
    kept = np.stack([random_bytes(8, 1, 2, 70, 70, b) for b in range(2)]) <= keep_at_most(0.4)
    np.testing.assert_array_equal(np.signbit(signed)[..., seen], ~kept[..., seen])
    o = np.einsum("bhij,bjhd->bihd", np.where(kept, want, 0) * keep_scale(0.4), host[2].astype(np.float64))
    # P and O in 8 bits, and |v| of up to 4.
    np.testing.assert_allclose(out.to_numpy().astype(np.float64), o, rtol=2.0**-7, atol=2.0**-7)


@pytest.mark.parametrize("p", [-0.1, 1.0, float("nan")])
def test_impossible_chance(p: float) -> None:
    placement = Placement(replace(BASE, dropout=replace(BASE.dropout, p=p)))  # type: ignore[type-var]
    with pytest.raises(pyfa_rocm.InvalidArgumentError, match="p_drop"):
        pyfa_rocm.fmha_fwd(placement.params())
    assert placement.unchanged()
