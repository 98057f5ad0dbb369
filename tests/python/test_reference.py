# SPDX-License-Identifier: MIT OR Apache-2.0
"""The oracle itself, against the definition written out element by element."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cases import DTYPES, Bias, Case, Dropout, Varlen, expected, judge
from hypothesis import given, settings
from hypothesis import strategies as st
from philox import keep_at_most, keep_scale, random_bytes
from reference import attention, numerics_of, ulp, visible

from pyfa_rocm.oracle.rounding import P_SCALES


@settings(max_examples=300)
@given(
    seqlen_q=st.integers(1, 12), seqlen_k=st.integers(1, 12), left=st.integers(-1, 13),
    right=st.integers(-1, 13), causal=st.booleans(), top_left=st.booleans(), more=st.integers(0, 3),
)  # fmt: skip
def test_mask_is_flash_attentions(
    seqlen_q: int, seqlen_k: int, left: int, right: int, causal: bool, top_left: bool, more: int
) -> None:
    """Key j - own column is from -left to right; a side below 0, or of max_seqlen_k or more, is unlimited."""
    mask = visible(
        seqlen_q,
        seqlen_k,
        causal=causal,
        window_size=(left, right),
        top_left=top_left,
        max_seqlen_k=seqlen_k + more,
    )
    left, right = (-1 if side >= seqlen_k + more else side for side in (left, right))
    for i in range(seqlen_q):
        for j in range(seqlen_k):
            away = j - (i if top_left else i + seqlen_k - seqlen_q)
            limit = 0 if causal else right
            assert mask[i, j] == ((left < 0 or away >= -left) and (limit < 0 or away <= limit))


def test_by_hand() -> None:
    """Two keys with scores 0 and ln 3: weights 1/4 and 3/4, LSE ln 4."""
    q = np.array([[[[1.0]]]], np.float16)
    k = np.array([[[[0.0]], [[1.0]]]], np.float16)
    v = np.array([[[[8.0]], [[4.0]]]], np.float16)
    result = attention(q, k, v, softmax_scale=math.log(3))
    assert result.o.item() == pytest.approx(0.25 * 8 + 0.75 * 4, rel=1e-15)
    assert result.lse.item() == pytest.approx(math.log(4), rel=1e-15)


def _row(
    case: Case, q: Any, k: Any, keys: list[int], add: dict[int, float], scale: float, sink: float
) -> tuple[Any, float]:
    """Weights of one query's keys, rows of `k`, and the LSE, by Python's own numbers."""
    scores = {}
    for j in keys:
        score = scale * math.fsum(float(x) * float(y) for x, y in zip(q, k[j], strict=True))
        if case.softcap:
            score = case.softcap * math.tanh(score / case.softcap)
        scores[j] = score + add.get(j, 0.0)
    scores = {j: s for j, s in scores.items() if s > -math.inf}
    if not scores:
        return {}, sink
    total = math.fsum(math.exp(s) for s in (*scores.values(), sink))
    return {j: math.exp(s) / total for j, s in scores.items()}, math.log(total)


BASE = Case(batch=2, seqlen_q=9, seqlen_k=7, nhead_k=2, ratio=2, hdim=8, hdim_v=16, dtype="float16", seed=3)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"causal": True},
        {"causal": True, "top_left": True},
        {"window": (3, 2)},
        {"window": (1, 0), "top_left": True},
        {"softcap": 0.7},
        {"bias": Bias()},
        {"bias": Bias((False, True, False), infinities=True)},
        {"bias": Bias(infinities=True), "causal": True},
        {"alibi": 1},
        {"alibi": 2, "causal": True},
        {"alibi": 2, "causal": True, "top_left": True},
        {"dropout": Dropout(0.4, seed=5)},
        {"dtype": "float8_e4m3fnuz", "o_dtype": "float32", "descale": (0.5, 3.0, 2.0)},
        {"dtype": "float8_e4m3fn", "o_dtype": "float32", "descale": (0.5, 3.0, 2.0)},
        {"varlen": Varlen((4, 0, 9), (7, 3, 0), (1, 2, 0), None), "batch": 3, "window": (3, 1)},
        {"varlen": Varlen((4, 9), (5, 7)), "alibi": 2, "dropout": Dropout(0.3)},
        {"varlen": Varlen((4, 9), (5, 7), None, (2, 1)), "bias": Bias(), "causal": True},
        {"sinks": True},
        {"sinks": True, "causal": True, "softcap": 0.7, "seqlen_k": 4},
        {"sinks": True, "bias": Bias(infinities=True), "dropout": Dropout(0.3)},
        {"sinks": True, "varlen": Varlen((4, 0, 9), (0, 3, 7), (1, 2, 0), None), "batch": 3, "seed": 8},
    ],
    ids=str,
)
def test_definition(change: dict[str, Any]) -> None:
    """Every head and row against the definition, with grouped queries and rows that see nothing."""
    case = replace(BASE, **change)
    q, k, v = case.inputs()
    want = expected(case, [q, k, v])
    scale = case.hdim**-0.5 * case.descale[0] * case.descale[1]
    bias, slopes = case.bias_data() if case.bias else None, case.slopes() if case.alibi else None
    sinks = case.sink_data() if case.sinks else np.full(case.nhead_q, -np.inf)
    done = 0  # rows of earlier sequences, which the oracle's answer lacks the slots' rest of
    for b, slot, rows, keys in case.sequences():
        m, n = rows.stop - rows.start, keys.stop - keys.start
        for h, i in np.ndindex(case.nhead_q, m):
            own = i + (0 if case.top_left else n - m)
            left, right = (n + m if x < 0 or x >= case.seqlen_k else x for x in case.window)
            seen = [j for j in range(n) if own - left <= j <= own + (0 if case.causal else right)]
            add = {}
            if bias is not None:
                at = np.broadcast_to(bias, (case.slots, case.nhead_q, case.total_q, case.seqlen_k))
                add = {j: float(at[slot, h, rows.start + i, j]) for j in seen}
            if slopes is not None:
                add = {j: -float(slopes[b if case.alibi == 2 else 0, h]) * abs(j - own) for j in seen}
            weights, lse = _row(
                case, q[slot, rows.start + i, h], k[slot, keys, h // case.ratio], seen, add, scale,
                float(sinks[h]),
            )  # fmt: skip
            if case.dropout:
                weights = _dropped(case.dropout, weights, case.nhead_q, b, h, i)
            o = sum(
                (
                    w * case.descale[2] * v[slot, keys.start + j, h // case.ratio].astype(float)
                    for j, w in weights.items()
                ),
                np.zeros(16),
            )
            at_o = (0, done + i, h) if case.varlen else (b, i, h)
            np.testing.assert_allclose(want.o[at_o], o, rtol=1e-12, atol=1e-14)
            got = want.lse[at_o[0], h, at_o[1]]
            assert got == lse or got == pytest.approx(lse, rel=1e-12, abs=1e-13)
        done += m


def _dropped(
    dropout: Dropout, weights: dict[int, float], nhead: int, b: int, h: int, i: int
) -> dict[int, float]:
    factor = keep_scale(dropout.p)
    return {
        j: w * factor
        for j, w in weights.items()
        if _byte(dropout.seed, dropout.offset, b * nhead + h, i, j) <= keep_at_most(dropout.p)
    }


def _byte(seed: int, offset: int, head: int, i: int, j: int) -> int:
    """One random byte, by Python's integers."""
    lane = (i // 8 % 2) * 32 + j % 32
    index = (i // 16 % 2) * 8 + i % 8
    low = (offset + head * 64 + lane) % 2**64
    counter = [low % 2**32, low >> 32, i // 32, j // 32]
    key = [seed % 2**32, seed >> 32]
    for _ in range(7):
        x, y = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(y >> 32) ^ counter[1] ^ key[0], y % 2**32, (x >> 32) ^ counter[3] ^ key[1], x % 2**32]
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return counter[index // 4] >> (index % 4 * 8) & 0xFF


@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**64 - 1),
    offset=st.integers(0, 2**64 - 1),
    batch=st.integers(0, 3),
    place=st.tuples(st.integers(0, 2), st.integers(0, 99), st.integers(0, 99)),
)
def test_random_bytes(seed: int, offset: int, batch: int, place: tuple[int, int, int]) -> None:
    h, i, j = place
    assert random_bytes(seed, offset, 3, 100, 100, batch)[place] == _byte(seed, offset, batch * 3 + h, i, j)


def test_random_bytes_are_random() -> None:
    """All bytes as often as chance allows, heads and batches without relation."""
    sample = np.stack([random_bytes(11, 3, 4, 256, 256, b) for b in range(2)]).reshape(8, -1)
    counts = np.bincount(sample.ravel(), minlength=256)
    n = sample.size
    assert ((counts - n / 256) ** 2 / (n / 256)).sum() < 255 + 5 * math.sqrt(2 * 255)
    centred = (sample - sample.mean()) / sample.std()
    correlation = centred @ centred.T / centred.shape[1] - np.eye(8)
    assert np.abs(correlation).max() < 5 / math.sqrt(centred.shape[1])


def test_ulp() -> None:
    values = np.array([1.0, 1.5, 2.0, 0.75, 1e-7, 0.0, -3.0, 200.0])
    for name, dtype in DTYPES.items():
        if name == "bfloat16":
            continue
        rounded = values.astype(dtype).astype(np.float64)
        numbers = (
            np.sort(np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64))
            if "8" in name[5:6]
            else None
        )
        if numbers is None:
            want = np.abs(np.spacing(values.astype(dtype))).astype(float)
        else:
            numbers = numbers[np.isfinite(numbers)]
            below = [x - numbers[numbers < x].max() for x in np.abs(rounded)]
            above = [(numbers[numbers > x].min(initial=np.inf) - x) for x in np.abs(rounded)]
            want = np.array([a if np.isfinite(a) else b for a, b in zip(above, below, strict=True)])
        np.testing.assert_array_equal(ulp(rounded, name), want)
    np.testing.assert_array_equal(ulp(np.array([1.0, 255.0]), "bfloat16"), [2.0**-7, 1.0])


def _round(x: np.ndarray, dtype: np.dtype[Any], toward_zero: bool) -> np.ndarray:
    rounded: np.ndarray = x.astype(dtype)
    if not toward_zero:
        return rounded
    number = np.dtype(f"u{dtype.itemsize}")
    too_large = np.abs(rounded.astype(np.float32)) > np.abs(x)
    return np.asarray((rounded.view(number) - too_large).astype(number).view(dtype))


def _kernel(case: Case, *, toward_zero: bool = False, forget_key: bool = False, p_dtype: str = "") -> Any:
    """A kernel in NumPy: float32, P rounded to its type; or a faulty one."""
    q, k, v = (x.astype(np.float32) for x in case.inputs())
    scores = np.einsum("bihd,bjhd->bhij", q, k) * np.float32(case.hdim**-0.5)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    total = p.sum(-1, keepdims=True)
    factor = np.float32(P_SCALES.get(case.dtype, 1))
    rounded = _round(p * factor, DTYPES[p_dtype or case.dtype], toward_zero).astype(np.float32) / factor
    if forget_key:
        rounded[..., -1] = 0
    o = np.einsum("bhij,bjhd->bihd", rounded, v) / total.transpose(0, 2, 1, 3)
    return np.asarray(o.astype(DTYPES[case.out_dtype]))


@pytest.mark.parametrize(
    ("dtype", "o_dtype"),
    [
        ("bfloat16", ""),
        ("float16", ""),
        ("float32", ""),
        ("float8_e4m3fnuz", "bfloat16"),
        ("float8_e4m3fn", "bfloat16"),
    ],
)
@pytest.mark.parametrize("seqlen_k", [17, 300])
def test_tolerance_takes_a_right_kernel_and_no_other(dtype: str, o_dtype: str, seqlen_k: int) -> None:
    """A kernel fails that rounds P toward zero, loses a key, or has fewer bits."""
    case = Case(
        batch=1, seqlen_q=256, seqlen_k=seqlen_k, nhead_k=2, ratio=1, hdim=64, dtype=dtype, o_dtype=o_dtype
    )
    numerics = numerics_of(dtype, case.out_dtype)
    want = expected(case, case.inputs(), numerics)
    judge(want, _kernel(case), None)
    with pytest.raises(AssertionError, match=r"off|bias|RMS"):
        judge(want, _kernel(case, forget_key=True), None)
    if dtype == "float32":
        with pytest.raises(AssertionError, match=r"off|RMS"):
            judge(want, _kernel(case, p_dtype="float16"), None)
    else:
        with pytest.raises(AssertionError, match=r"off|bias|RMS"):
            judge(want, _kernel(case, toward_zero=True), None)
