# SPDX-License-Identifier: MIT OR Apache-2.0
"""The oracle itself, against the definition written out element by element."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases import DTYPES, Case, expected, judge
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import attention, ulp, visible


@settings(max_examples=200)
@given(
    seqlen_q=st.integers(1, 12), seqlen_k=st.integers(1, 12), left=st.integers(-1, 13),
    right=st.integers(-1, 13), causal=st.booleans(),
)  # fmt: skip
def test_mask_is_flash_attentions(seqlen_q: int, seqlen_k: int, left: int, right: int, causal: bool) -> None:
    """Key j - (i + sk - sq) is from -left to right; a side below 0, or of seqlen_k or more, is unlimited."""
    mask = visible(seqlen_q, seqlen_k, causal=causal, window_size=(left, right))
    for i in range(seqlen_q):
        for j in range(seqlen_k):
            distance = j - (i + seqlen_k - seqlen_q)
            limit = 0 if causal else -1 if right >= seqlen_k else right
            assert mask[i, j] == ((left < 0 or distance >= -left) and (limit < 0 or distance <= limit))


def test_by_hand() -> None:
    """Two keys with scores 0 and ln 3: weights 1/4 and 3/4, LSE ln 4."""
    q = np.array([[[[1.0]]]], np.float16)
    k = np.array([[[[0.0]], [[1.0]]]], np.float16)
    v = np.array([[[[8.0]], [[4.0]]]], np.float16)
    result = attention(q, k, v, softmax_scale=math.log(3))
    assert result.o.item() == pytest.approx(0.25 * 8 + 0.75 * 4, rel=1e-15)
    assert result.lse.item() == pytest.approx(math.log(4), rel=1e-15)


def test_heads_and_batches() -> None:
    """Every head against the definition, with grouped queries and rows that see nothing."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(s).astype(np.float16) for s in ((2, 9, 4, 8), (2, 5, 2, 8), (2, 5, 2, 8)))
    result = attention(q, k, v, causal=True)
    for b, h, i in np.ndindex(2, 4, 9):
        scores = [float(np.dot(q[b, i, h].astype(float), k[b, j, h // 2])) / math.sqrt(8) for j in range(5)]
        weights = [math.exp(s) if j <= i - 4 else 0.0 for j, s in enumerate(scores)]
        total = sum(weights)
        if total == 0:
            assert (result.o[b, i, h] == 0).all()
            assert result.lse[b, h, i] == -np.inf
            continue
        o = sum(w / total * v[b, j, h // 2].astype(float) for j, w in enumerate(weights))
        np.testing.assert_allclose(result.o[b, i, h], o, rtol=1e-13)
        assert result.lse[b, h, i] == pytest.approx(math.log(total), rel=1e-13)


def test_ulp() -> None:
    values = np.array([1.0, 1.5, 2.0, 0.75, 1e-9, 0.0, -3.0])
    for dtype in (np.float16, np.float32):
        if dtype is np.float16:
            want = np.abs(np.spacing(values.astype(np.float16))).astype(float)
            np.testing.assert_array_equal(ulp(values.astype(np.float16).astype(float), "float16"), want)
    np.testing.assert_array_equal(ulp(np.array([1.0, 255.0]), "bfloat16"), [2.0**-7, 1.0])


def _kernel(case: Case, *, toward_zero: bool, forget_key: bool = False) -> np.ndarray:
    """A kernel in NumPy: float32, P rounded to the 16-bit type; or a faulty one."""
    q, k, v = (x.astype(np.float32) for x in case.inputs())
    scores = np.einsum("bihd,bjhd->bhij", q, k) * np.float32(case.hdim**-0.5)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    total = p.sum(-1, keepdims=True)
    dtype = DTYPES[case.dtype]
    p16 = p.astype(dtype)
    if toward_zero:
        too_large = p16.astype(np.float32) > p
        p16 = (p16.view(np.uint16) - too_large).astype(np.uint16).view(dtype)
    if forget_key:
        p16[..., -1] = 0
    o = np.einsum("bhij,bjhd->bihd", p16.astype(np.float32), v) / total.transpose(0, 2, 1, 3)
    return np.asarray(o.astype(dtype))


@pytest.mark.parametrize(("dtype", "toward_zero"), [("bfloat16", False), ("float16", True)])
@pytest.mark.parametrize("seqlen_k", [17, 300])
def test_tolerance_takes_a_right_kernel_and_no_other(dtype: str, toward_zero: bool, seqlen_k: int) -> None:
    """Not one that rounds P the other way, nor one that loses a key."""
    case = Case(batch=1, seqlen_q=256, seqlen_k=seqlen_k, nhead_k=2, ratio=1, hdim=64, dtype=dtype)
    want = expected(case, case.inputs())
    judge(want, _kernel(case, toward_zero=toward_zero), None)
    with pytest.raises(AssertionError, match="off"):
        judge(want, _kernel(case, toward_zero=toward_zero, forget_key=True), None)
    with pytest.raises(AssertionError, match=r"bias|RMS"):
        judge(want, _kernel(case, toward_zero=not toward_zero), None)
