# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sequences cut among ranks: calls see each pair of query and key once, and only those that attend."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import visible

from pyfa_rocm._shards import Shards, calls, needed
from pyfa_rocm.errors import InvalidArgumentError

LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=3).map(tuple)
SIDE = st.sampled_from([-1, 0, 1, 3, 7, 11, 30, 40])


@settings(max_examples=300)
@given(LENGTHS, st.sampled_from([1, 2, 3, 4, 8]), st.booleans(), st.booleans(), st.tuples(SIDE, SIDE))
def test_each_pair_once(
    lengths: tuple[int, ...], rings: int, zigzag: bool, causal: bool, window_size: tuple[int, int]
) -> None:
    shards, total = Shards(lengths, rings, 1, zigzag), sum(lengths)
    seen, want = np.zeros((total, total), int), np.zeros((total, total), int)
    for ring in range(rings):
        for other in range(rings):
            rows, keys = shards.ring_rows(ring), shards.ring_rows(other)
            found = calls(shards, ring, other, causal, window_size)
            first, last = needed(found)
            for call in found:
                longest = max(b - a for a, b in call.k)
                for (a, b), (c, d) in zip(call.q, call.k, strict=True):
                    assert first <= c < d <= last
                    assert a < b
                    mask = visible(b - a, d - c, window_size=call.window_size, max_seqlen_k=longest)
                    seen[np.ix_(rows[a:b], keys[c:d])] += mask
                for ranges in (call.q, call.k):
                    assert all(x[1] <= y[0] for x, y in pairwise(ranges))
    start = 0
    for n in lengths:
        own = slice(start, start + n)
        want[own, own] = visible(n, n, causal=causal, window_size=window_size)
        start += n
    assert (seen == want).all()


@given(LENGTHS, st.integers(1, 4), st.integers(1, 4), st.booleans())
def test_each_row_once(lengths: tuple[int, ...], rings: int, heads: int, zigzag: bool) -> None:
    shards = Shards(lengths, rings, heads, zigzag)
    rows = np.concatenate([shards.gathered(ring) for ring in range(rings)])
    assert sorted(rows) == list(range(sum(lengths)))
    for ring in range(rings):
        assert sorted(shards.gathered(ring)) == shards.ring_rows(ring).tolist()


def test_zigzag_is_balanced() -> None:
    """Under a causal mask each of eight ranks has a call a step, of as many pairs as any other."""
    shards = Shards((256,), 8)
    work = [
        [len(x) for x in (calls(shards, i, (i - step) % 8, True, (-1, -1)) for step in range(8))]
        for i in range(8)
    ]
    assert work == [[1] * 8] * 8
    pairs = [
        sum(
            int(visible(b - a, d - c, window_size=call.window_size).sum())
            for other in range(8)
            for call in calls(shards, i, other, True, (-1, -1))
            for (a, b), (c, d) in zip(call.q, call.k, strict=True)
        )
        for i in range(8)
    ]
    assert len(set(pairs)) == 1


def test_windows_skip_ranks() -> None:
    """A rank needs the keys of itself and of the one before, when a window is no longer than its rows."""
    shards = Shards((256,), 8, zigzag=False)
    for i in range(8):
        sending = [other for other in range(8) if calls(shards, i, other, True, (20, 0))]
        assert sending == [x for x in (i - 1, i) if x >= 0]
    assert needed(calls(shards, 3, 2, True, (20, 0))) == (12, 32)


def test_lengths_below_0() -> None:
    with pytest.raises(InvalidArgumentError, match=r"cu_seqlens: got lengths \(3, -1\), expected none below"):
        Shards((3, -1), 2)
