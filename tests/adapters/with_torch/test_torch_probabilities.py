# SPDX-License-Identifier: MIT OR Apache-2.0
"""`return_attn_probs`, computed where the tensors are: as the plain functions have it, on the host.

Float32 makes of a score of d terms an error of (d + 8) half ulps of the sum of their sizes, what is added to
it included; and of a probability that error, relatively, and some roundings more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from cases_types import Array

from pyfa_rocm import FwdParams, Strided
from pyfa_rocm._call.probabilities import _sequences, _signed_probabilities
from pyfa_rocm.torch._probabilities import signed_probabilities

BATCH, ROWS, KEYS, HEADS, KEY_HEADS, HDIM = 2, 13, 11, 4, 2, 64
HALF_ULP = 2.0**-24
ANY = Strided(1, 0, 0, 0)
MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "causal": {"mask": "causal"},
    "causal, top-left": {"mask": "causal_top_left"},
    "window": {"mask": "window", "window_left": 3, "window_right": 2},
    "window, top-left, of one side": {"mask": "window_top_left", "window_left": 20, "window_right": 1},
}
FEATURES: dict[str, dict[str, Any]] = {
    "plain": {},
    "softcap": {"softcap": 2.0},
    "alibi": {"slopes": (HEADS,)},
    "alibi of each batch": {"slopes": (BATCH, HEADS)},
    "bias": {"bias": (BATCH, HEADS, ROWS, KEYS)},
    "bias of all": {"bias": (1, 1, 1, KEYS)},
    "dropout": {"p_drop": 0.3},
    "scales": {"q_descale": 0.5},
}
LENGTHS = {"one length": None, "packed": None, "in use": ([5, 4], [0, 9])}


def drawn(*shape: int, seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def tensors(packed: bool, used: Any, features: dict[str, Any]) -> dict[str, Array]:
    """Return random inputs and results of a call."""
    q, k = drawn(BATCH, ROWS, HEADS, HDIM, seed=1), drawn(BATCH, KEYS, KEY_HEADS, HDIM, seed=2)
    found: dict[str, Array] = {"q": q, "k": k, "lse": 4 + drawn(BATCH, HEADS, ROWS, seed=3)}
    found["lse"][1, 2, 4] = -np.inf
    if "slopes" in features:
        found["alibi_slopes"] = np.abs(drawn(*features["slopes"], seed=4))
    if "bias" in features:
        found["bias"] = drawn(*features["bias"], seed=5)
    if "p_drop" in features:
        shape = (BATCH, HEADS, ROWS, KEYS)
        found["randval"] = np.random.default_rng(6).integers(0, 256, shape, np.uint8)
    if packed:
        found |= {name: found[name].reshape(-1, *found[name].shape[2:]) for name in ("q", "k")}
        for name in ("lse", "randval", "bias"):
            if name in found:
                whole = np.moveaxis(found[name], 0, 1)
                found[name] = whole.reshape(len(whole), -1, *whole.shape[3:])
        cu_q, cu_k = (np.arange(BATCH + 1, dtype=np.int32) * n for n in (ROWS, KEYS))
        found |= {"cu_seqlens_q": cu_q, "cu_seqlens_k": cu_k}
        if used is not None:
            found |= {f"seqused_{x}": np.array(n, np.int32) for x, n in zip("qk", used, strict=True)}
    return found


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("features", FEATURES.values(), ids=FEATURES)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_as_on_the_host(mask: dict[str, Any], features: dict[str, Any], lengths: str) -> None:
    host = tensors(lengths != "one length", LENGTHS[lengths], features)
    numbers = {name: x for name, x in features.items() if name not in ("slopes", "bias")}
    p = FwdParams(
        dtype="float32", batch=BATCH, seqlen_q=ROWS, seqlen_k=KEYS, nhead_q=HEADS, nhead_k=KEY_HEADS,
        hdim_q=HDIM, hdim_v=HDIM, softmax_scale=0.125, q=ANY, k=ANY, v=ANY, o=ANY,
        cu_seqlens_q=int("cu_seqlens_q" in host), **mask, **numbers,
    )  # fmt: skip
    shape = (BATCH, HEADS, ROWS, KEYS)
    got = signed_probabilities(p, shape, {name: torch.from_numpy(x) for name, x in host.items()}).numpy()
    want, sizes = np.zeros(shape), np.zeros(shape)
    for b, part in enumerate(_sequences(p, host)):
        rows, columns = part["q"].shape[0], part["k"].shape[0]
        for head in range(HEADS):
            want[b, head, :rows, :columns] = _signed_probabilities(p, part, head)
            terms = np.abs(part["q"][:, head]) @ np.abs(part["k"][:, head // 2]).T
            sizes[b, head, :rows, :columns] = 0.125 * terms
    # Biases, slopes times distances, and the log-sum-exp.
    added = sum(float(np.abs(host[name]).max()) for name in ("bias", "alibi_slopes") if name in host)
    limit = (HDIM + 8) * HALF_ULP * (sizes + added * max(ROWS, KEYS) + 8)
    assert (np.abs(got - want) <= np.expm1(limit) * np.abs(want)).all()
    assert (np.signbit(got) == np.signbit(want)).all()
    assert want.any()
