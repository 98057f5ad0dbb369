# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rows of packed arrays that belong to no sequence: what the functions allocate is 0 there, or -inf.

New memory is full of NaN here, as that of a card in use may be, and so is the gradient of O in such rows.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from cases_types import Array, Bools
from strict import forgiven

from pyfa_rocm import (
    DeviceArray,
    flash_attn_kv_append,
    flash_attn_varlen_bwd,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)
from pyfa_rocm._runtime import hip

TOTAL, HEADS, HDIM = 24, 2, 64
# First rows, lengths in use (None: all), and the largest length; rows from 20 on are behind all sequences.
SEQUENCES = {
    "behind the last": ([0, 12, 20], None, 12),
    "beyond the length in use": ([0, 12, 20], [7, 0], 12),
    "all": ([0, 0, 0], None, 0),
}
every_kind = pytest.mark.parametrize(("starts", "used", "most"), SEQUENCES.values(), ids=SEQUENCES)


@pytest.fixture(autouse=True)
def new_memory_is_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what a call allocates begin as NaN, in every type."""
    allocate = DeviceArray.allocate.__func__  # type: ignore[attr-defined]

    def poisoned(cls: Any, layout: Any, stream: int | None) -> DeviceArray:
        array: DeviceArray = allocate(cls, layout, stream)
        if array.nbytes:
            hip.call("hipMemset", array.address, 0xFF, array.nbytes)
        return array

    monkeypatch.setattr(DeviceArray, "allocate", classmethod(poisoned))


def device(x: Any) -> DeviceArray:
    return DeviceArray.from_numpy(np.asarray(x))


def integers(x: Any) -> DeviceArray:
    return device(np.array(x, np.int32))


def random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def in_use(starts: list[int], used: list[int] | None, most: int) -> Bools:
    """Return a mask of the rows that belong to a sequence."""
    rows = np.zeros(TOTAL, np.bool_)
    for i, (begin, end) in enumerate(pairwise(starts)):
        rows[begin : begin + min(most, end - begin if used is None else used[i])] = True
    return rows


def cleared(rows: Bools, out: Any, lse: Any) -> None:
    """Assert what results have in rows of no sequence, and that the others were computed."""
    o, log = out.to_numpy(), lse.to_numpy()
    assert not o[~rows].any()
    assert np.isneginf(log[:, ~rows]).all()
    assert np.isfinite(o[rows]).all()
    assert np.isfinite(log[:, rows]).all()


@every_kind
@pytest.mark.parametrize("probabilities", [False, True])
def test_output(starts: list[int], used: list[int] | None, most: int, probabilities: bool) -> None:
    q, k, v = (device(random(TOTAL, HEADS, HDIM, seed=i)) for i in range(3))
    cu, lengths = integers(starts), None if used is None else integers(used)
    with forgiven():
        out, lse, *_ = flash_attn_varlen_func(
            q, k, v, cu, cu, most, 12, seqused_q=lengths, return_lse=True, return_attn_probs=probabilities
        )
    cleared(in_use(starts, used, most), out, lse)


def test_parts_of_one_array() -> None:
    starts = [0, 12, 20]
    cu, rows = integers(starts), in_use(starts, None, 12)
    packed = random(TOTAL, 3, HEADS, HDIM)
    with forgiven():
        cleared(rows, *flash_attn_varlen_qkvpacked_func(device(packed), cu, 12, return_lse=True))
        q, kv = device(packed[:, 0]), device(packed[:, 1:])
        cleared(rows, *flash_attn_varlen_kvpacked_func(q, kv, cu, cu, 12, 12, return_lse=True))


def test_a_given_output_keeps_them() -> None:
    q, k, v = (device(random(TOTAL, HEADS, HDIM, seed=i)) for i in range(3))
    cu, out = integers([0, 12, 20]), device(np.full((TOTAL, HEADS, HDIM), 3, np.float16))
    with forgiven():
        _, lse = flash_attn_varlen_func(q, k, v, cu, cu, 12, 12, out=out, return_lse=True)
    assert (out.to_numpy()[20:] == 3).all()
    assert np.isneginf(lse.to_numpy()[:, 20:]).all()


@every_kind
def test_gradients(starts: list[int], used: list[int] | None, most: int) -> None:
    rows = in_use(starts, used, most)
    q, k, v = (device(random(TOTAL, HEADS, HDIM, seed=i)) for i in range(3))
    dout = random(TOTAL, HEADS, HDIM, seed=3)
    dout[~rows] = np.nan
    cu, lengths = integers(starts), None if used is None else integers(used)
    with forgiven():
        sequences: dict[str, Any] = {"seqused_q": lengths, "seqused_k": lengths}
        out, lse = flash_attn_varlen_func(q, k, v, cu, cu, most, most, **sequences, return_lse=True)
        gradients = flash_attn_varlen_bwd(device(dout), q, k, v, out, lse, cu, cu, most, most, **sequences)
    for gradient in gradients:
        g = gradient.to_numpy()
        assert not g[~rows].any()
        assert np.isfinite(g[rows]).all()
        assert g.any() == rows.any()


@pytest.mark.parametrize("by_table", [True, False])
def test_packed_queries_over_a_cache(by_table: bool) -> None:
    """`flash_attn_varlen_func` with a block table and `flash_attn_with_kvcache` do it alike."""
    starts = [0, 3, 5]
    q, new = device(random(TOTAL, HEADS, HDIM)), device(random(2, 16, HEADS, HDIM, seed=1))
    k_cache, v_cache = (device(np.zeros((2, 16, HEADS, HDIM), np.float16)) for _ in range(2))
    flash_attn_kv_append(k_cache, v_cache, new, new, integers([0, 0]))
    table, lengths, cu = (integers(x) for x in ([[1], [0]], [16, 9], starts))
    with forgiven():
        if by_table:
            results = flash_attn_varlen_func(
                q, k_cache, v_cache, cu, None, 3, 16, block_table=table, seqused_k=lengths, return_lse=True
            )
        else:
            results = flash_attn_with_kvcache(
                q, k_cache, v_cache, cache_seqlens=lengths, block_table=table, cu_seqlens_q=cu,
                max_seqlen_q=3, return_softmax_lse=True,
            )  # fmt: skip
    cleared(np.arange(TOTAL) < 5, *results)
