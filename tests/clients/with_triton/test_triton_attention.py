# SPDX-License-Identifier: MIT OR Apache-2.0
"""A flash attention in Triton against float64, and against this project's kernels in the same process."""

from __future__ import annotations

import itertools
import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import triton
import triton.language as tl
from clients.rounding import U32, draw, eps, smallest_normal, sum_bound, ulp_bound
from clients.with_triton import triton_driver
from clients.with_triton.triton_driver import Array

triton_driver.use()

LOG2_E = math.log2(math.e)
DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@triton.jit
def attention(
    q,
    k,
    v,
    out,
    seqlen_q,
    seqlen_k,
    scale_log2,
    HDIM: tl.constexpr,
    TILE_Q: tl.constexpr,
    TILE_K: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """One tile of queries of one head; (head, seqlen, hdim), the mask aligned bottom-right."""
    head = tl.program_id(1)
    rows, columns = tl.program_id(0) * TILE_Q + tl.arange(0, TILE_Q), tl.arange(0, HDIM)
    q_at = head * seqlen_q * HDIM + rows[:, None] * HDIM + columns[None, :]
    tile_q = tl.load(q + q_at, rows[:, None] < seqlen_q, 0.0)
    last = rows + seqlen_k - seqlen_q if CAUSAL else rows * 0 + seqlen_k - 1
    most, total = tl.full((TILE_Q,), -1e30, tl.float32), tl.zeros((TILE_Q,), tl.float32)
    result = tl.zeros((TILE_Q, HDIM), tl.float32)
    end = tl.minimum(seqlen_k, tl.max(last, 0) + 1)
    for start in range(0, end, TILE_K):
        keys = start + tl.arange(0, TILE_K)
        kv_at = head * seqlen_k * HDIM + keys[:, None] * HDIM + columns[None, :]
        tile_k = tl.load(k + kv_at, keys[:, None] < seqlen_k, 0.0)
        seen = (keys[None, :] <= last[:, None]) & (keys[None, :] < seqlen_k)
        scores = tl.where(seen, tl.dot(tile_q, tl.trans(tile_k)) * scale_log2, -float("inf"))
        new_most = tl.maximum(most, tl.max(scores, 1))
        powers, kept = tl.exp2(scores - new_most[:, None]), tl.exp2(most - new_most)
        total = total * kept + tl.sum(powers, 1)
        tile_v = tl.load(v + kv_at, keys[:, None] < seqlen_k, 0.0)
        result = tl.dot(powers.to(tile_v.dtype), tile_v, result * kept[:, None])
        most = new_most
    result = result / tl.where(total > 0, total, 1.0)[:, None]  # 0 where a query sees nothing
    tl.store(out + q_at, result.to(out.dtype.element_ty), rows[:, None] < seqlen_q)


def run(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool, **options: int) -> np.ndarray:
    heads, seqlen_q, hdim = q.shape
    out = Array(np.full_like(q, np.nan))
    grid = (triton.cdiv(seqlen_q, options["TILE_Q"]), heads)
    scale_log2 = LOG2_E / math.sqrt(hdim)
    attention[grid](
        Array(q), Array(k), Array(v), out, seqlen_q, k.shape[1], scale_log2,
        HDIM=hdim, CAUSAL=causal, **options,
    )  # fmt: skip
    return out.numpy()


def expected(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool, tile_k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The exact result, and how far the kernel's rounding may take it from that."""
    dtype, (seqlen_q, hdim), seqlen_k = q.dtype, q.shape[1:], k.shape[1]
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ k.swapaxes(1, 2) / math.sqrt(hdim)
    if causal:
        hidden = np.triu(np.ones((seqlen_q, seqlen_k), bool), 1 + seqlen_k - seqlen_q)
        scores = np.where(hidden, -np.inf, scores)
    most = scores.max(2, keepdims=True)
    most = np.where(np.isfinite(most), most, 0)
    powers = np.exp(scores - most)
    total = np.maximum(powers.sum(2, keepdims=True), 1)
    want = powers @ v / total
    # A score: a sum of hdim products, times the scale, minus the maximum, which are rounded once each.
    sizes = (np.abs(q) @ np.abs(k).swapaxes(1, 2)).max(2, keepdims=True) / math.sqrt(hdim)
    score = (sum_bound(hdim) + 4 * U32) * sizes
    # A power has the error of its score and of the maximum's, relative, and 2 ulp of exp2; each later tile
    # rescales it, which are 3 more. The sums of powers and of products are of seqlen_k. All this is in the
    # numerator and in the denominator.
    tiles = math.ceil(seqlen_k / tile_k)
    relative = 2 * (2 * score + (2 + 3 * tiles) * U32 + sum_bound(seqlen_k + tile_k))
    # For the second product a power is rounded to the type of v, or flushed to 0 below its normal numbers.
    relative = relative + eps(dtype) / 2
    flushed = smallest_normal(dtype) * np.abs(v).sum(1, keepdims=True) / total
    bound = relative * (powers @ np.abs(v)) / total + flushed
    return want, bound + ulp_bound(np.abs(want) + bound, dtype)


SHAPES = [(64, 64, 64), (100, 333, 64), (130, 40, 128), (1, 200, 128), (77, 77, 32)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("dtype", "shape"), list(itertools.product(DTYPES, SHAPES)))
def test_attention(dtype: str, shape: tuple[int, int, int], causal: bool) -> None:
    seqlen_q, seqlen_k, hdim = shape
    rng = np.random.default_rng(seqlen_q + seqlen_k)
    q, k, v = (draw(rng, (2, n, hdim), DTYPES[dtype]) for n in (seqlen_q, seqlen_k, seqlen_k))
    for tile_q, tile_k, warps in ((64, 32, 4), (32, 64, 2)):
        options = {"TILE_Q": tile_q, "TILE_K": tile_k, "num_warps": warps}
        got = run(q, k, v, causal, **options).astype(np.float64)
        want, bound = expected(q, k, v, causal, tile_k)
        assert np.all(np.abs(got - want) <= bound), np.max(np.abs(got - want) / bound)


@pytest.mark.parametrize("causal", [False, True])
def test_agrees_with_this_projects_kernels(causal: bool) -> None:
    """Both run on one device in one process, and lie as near to the exact result as each may."""
    import pyfa_rocm

    rng = np.random.default_rng(8)
    q, k, v = (draw(rng, (2, n, 128), np.float16) for n in (150, 190, 190))
    triton_out = run(q, k, v, causal, TILE_Q=64, TILE_K=32)
    arrays = [pyfa_rocm.DeviceArray.from_numpy(x.swapaxes(0, 1)[None]) for x in (q, k, v)]
    ours: Any = pyfa_rocm.flash_attn_func(arrays[0], arrays[1], arrays[2], causal=causal)
    want, bound = expected(q, k, v, causal, 32)
    for got in (triton_out, ours.to_numpy()[0].swapaxes(0, 1)):
        assert np.all(np.abs(got - want) <= bound)
