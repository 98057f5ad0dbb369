# SPDX-License-Identifier: MIT OR Apache-2.0
"""flash_attn_with_kvcache: what is stored, where queries stand, which keys they see, and what is refused.

O is judged against float64 over the tokens that the caches then hold; that an append stores and rotates
rightly test_kv_append.py shows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from built import this_arch
from cases_judge import judge
from cases_types import Array
from reference import attention, numerics_of

from pyfa_rocm import (
    DeviceArray,
    InvalidArgumentError,
    UnsupportedError,
    flash_attn_kv_append,
    flash_attn_with_kvcache,
)
from pyfa_rocm._runtime.tensor import Tensor, layout_of

_BATCH, _NHEAD_Q, _NHEAD_K, _HDIM, _CAPACITY, _PAGE = 3, 4, 2, 64, 96, 16
_LENGTHS = np.array([0, 37, 80], np.int32)


class Serving:
    """Caches of three sequences, with pages or without, in float16."""

    def __init__(self, paged: bool) -> None:
        self.rng = np.random.default_rng(5)
        self.paged = paged
        pages = _BATCH * _CAPACITY // _PAGE
        shape = (pages, _PAGE) if paged else (_BATCH, _CAPACITY)
        self.table = self.rng.permutation(pages).reshape(_BATCH, -1).astype(np.int32)
        self.caches = (self.put(self.normal(*shape, _NHEAD_K)), self.put(self.normal(*shape, _NHEAD_K)))
        self.where: dict[str, Any] = {"block_table": self.put(self.table)} if paged else {}
        self.lengths = self.put(_LENGTHS)

    def normal(self, *shape: int) -> Array:
        return self.rng.standard_normal((*shape, _HDIM), np.float32).astype(np.float16)

    def put(self, host: Array) -> DeviceArray:
        return DeviceArray.from_numpy(host)

    def tokens(self, cache: DeviceArray, b: int) -> Array:
        """All tokens that a sequence has room for."""
        host = cache.to_numpy()
        tokens: Array = host[self.table[b]].reshape(_CAPACITY, _NHEAD_K, _HDIM) if self.paged else host[b]
        return tokens

    def judge(self, q: Array, out: Any, lengths: Array, **options: Any) -> None:
        o, lse = (x.to_numpy() for x in out)
        for b, length in enumerate(lengths):
            k, v = (self.tokens(cache, b)[None, :length] for cache in self.caches)
            expected = attention(
                q[b : b + 1],
                k,
                v,
                max_seqlen_k=_CAPACITY,
                numerics=numerics_of("float16", None, 128, this_arch()),
                **options,
            )
            judge(expected, o[b : b + 1], lse[b : b + 1])


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize("num_splits", [0, 3])
def test_attends(paged: bool, num_splits: int) -> None:
    serving = Serving(paged)
    q = serving.normal(_BATCH, 2, _NHEAD_Q)
    out = flash_attn_with_kvcache(
        serving.put(q),
        *serving.caches,
        cache_seqlens=serving.lengths,
        causal=True,
        num_splits=num_splits,
        return_softmax_lse=True,
        **serving.where,
    )
    serving.judge(q, out, _LENGTHS, causal=True)


@pytest.mark.parametrize("cache_seqlens", [None, 0, 17, _CAPACITY])
def test_one_length_for_all(cache_seqlens: int | None) -> None:
    serving = Serving(paged=False)
    q = serving.normal(_BATCH, 1, _NHEAD_Q)
    out = flash_attn_with_kvcache(
        serving.put(q), *serving.caches, cache_seqlens=cache_seqlens, return_softmax_lse=True
    )
    length = _CAPACITY if cache_seqlens is None else cache_seqlens
    serving.judge(q, out, np.full(_BATCH, length))


@pytest.mark.parametrize("paged", [False, True])
@pytest.mark.parametrize(("seqlen_q", "seqlen_new"), [(1, 1), (3, 3), (2, 5)])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window_size": (20, 0)}], ids=str)
@pytest.mark.parametrize("interleaved", [False, True])
def test_appends_and_rotates(
    paged: bool, seqlen_q: int, seqlen_new: int, options: dict[str, Any], interleaved: bool
) -> None:
    """New keys are rotated by their places; queries by theirs, or, unmasked, by that of the first new key."""
    serving, before = Serving(paged), Serving(paged)
    q = serving.normal(_BATCH, seqlen_q, _NHEAD_Q)
    k = serving.put(serving.normal(_BATCH, seqlen_new, _NHEAD_K))
    v = serving.put(serving.normal(_BATCH, seqlen_new, _NHEAD_K))
    angles = serving.rng.uniform(0, 6, (_CAPACITY, 16))
    rotary: dict[str, Any] = {
        "rotary_cos": serving.put(np.cos(angles).astype(np.float32)),
        "rotary_sin": serving.put(np.sin(angles).astype(np.float32)),
        "rotary_interleaved": interleaved,
    }
    given = serving.put(q)
    out = flash_attn_with_kvcache(
        given, serving.caches[0], serving.caches[1], k, v, cache_seqlens=serving.lengths,
        return_softmax_lse=True, **serving.where, **rotary, **options,
    )  # fmt: skip
    assert (given.to_numpy() == q).all()
    assert (serving.lengths.to_numpy() == _LENGTHS).all()
    flash_attn_kv_append(before.caches[0], before.caches[1], k, v, before.lengths, **before.where, **rotary)
    for cache, expected in zip(serving.caches, before.caches, strict=True):
        assert (cache.to_numpy() == expected.to_numpy()).all()
    positions = _LENGTHS[:, None] + (np.arange(seqlen_q) if options else np.zeros(seqlen_q, int))
    rotated = serving.put(np.zeros_like(q))
    flash_attn_kv_append(
        None, None, None, None, q=given, q_out=rotated, positions=serving.put(positions.astype(np.int32)),
        **rotary,
    )  # fmt: skip
    serving.judge(rotated.to_numpy(), out, _LENGTHS + seqlen_new, **options)


def test_rotates_strided_queries() -> None:
    """Queries with heads before tokens are rotated like contiguous ones."""
    serving = Serving(paged=True)
    q, new = serving.normal(_BATCH, 3, _NHEAD_Q), serving.put(serving.normal(_BATCH, 3, _NHEAD_K))
    table = serving.put(serving.rng.uniform(-1, 1, (_CAPACITY, 16)).astype(np.float32))
    heads_first = serving.put(np.ascontiguousarray(q.transpose(0, 2, 1, 3)))
    shape, (batch, head, token) = q.shape, heads_first.strides[:3]
    layout = layout_of(shape, (batch, token, head, 1), "float16", 0)
    strided = Tensor(heads_first.data, layout, False, heads_first)
    outs = [
        flash_attn_with_kvcache(
            x, *serving.caches, new, new, table, table, serving.lengths, causal=True, **serving.where
        ).to_numpy()
        for x in (serving.put(q), strided)
    ]
    assert (outs[0] == outs[1]).all()


def test_packed_queries() -> None:
    serving = Serving(paged=True)
    q, starts = serving.normal(7, _NHEAD_Q), np.array([0, 0, 1, 7], np.int32)
    out, lse = flash_attn_with_kvcache(
        serving.put(q), *serving.caches, cache_seqlens=serving.lengths, causal=True, return_softmax_lse=True,
        cu_seqlens_q=serving.put(starts), max_seqlen_q=6, **serving.where,
    )  # fmt: skip
    o, log = out.to_numpy(), lse.to_numpy()
    for b in (1, 2):
        rows = slice(starts[b], starts[b + 1])
        k, v = (serving.tokens(cache, b)[None, : _LENGTHS[b]] for cache in serving.caches)
        numerics = numerics_of("float16", None, 128, this_arch())
        judge(
            attention(q[None, rows], k, v, causal=True, numerics=numerics), o[None, rows], log[None, :, rows]
        )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"k": "new"}, "v: got None, expected both k and v, or neither"),
        ({"k": "new", "v": "new", "cache_seqlens": None}, "cache_seqlens: got None, expected lengths with k"),
        ({"rotary_cos": "new"}, "rotary_cos: got an array, expected None without k"),
        ({"cache_seqlens": -1}, "cache_seqlens: got -1, expected 0 or more"),
        ({"max_seqlen_q": 3}, "max_seqlen_q: got 3, expected None without cu_seqlens_q"),
        ({"cache_batch_idx": "lengths"}, "cache_batch_idx: got an array, expected None with block_table"),
        ({"kv_indptr": "lengths"}, "kv_indices: got None, expected both kv_indptr and kv_indices"),
        ({"block_table": "lengths"}, "block_table: got shape (3,), expected (3, 0)"),
        ({"sinks": "lengths"}, "sinks: got dtype int32, expected float32"),
    ],
    ids=str,
)
def test_refusals(change: dict[str, Any], said: str) -> None:
    refuse(Serving(paged=True), change, said)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"softcap": -1.0}, "softcap"),
        ({"num_splits": 129}, "num_splits = 129"),
        ({"num_splits": 1.5}, "num_splits: got"),
        ({"kernel": 99}, "kernel = 99"),
        ({"sinks": "lengths"}, "sinks: got dtype int32, expected float32"),
        ({"alibi_slopes": "lengths"}, "alibi_slopes: got dtype int32, expected float32"),
        ({"out": "new"}, "out: got shape (3, 1, 2, 64), expected (3, 1, 4, 64)"),
        ({"max_seqlen_q": 3}, "max_seqlen_q: got 3, expected None without cu_seqlens_q"),
        ({"rotary_cos": "table", "rotary_sin": "table", "kernel": 99}, "kernel = 99"),
        ({"rotary_cos": "table", "rotary_sin": "new"}, "rotary_sin: got shape"),
        ({"rotary_cos": "table"}, "rotary_sin: got None, expected an array as rotary_cos"),
    ],
    ids=str,
)
@pytest.mark.parametrize("causal", [False, True])
def test_a_refused_call_stores_nothing(change: dict[str, Any], said: str, causal: bool) -> None:
    serving = Serving(paged=True)
    refuse(serving, {"k": "two", "v": "two", "causal": causal, **change}, said)
    refuse(serving, {"k": "new", "v": "new", "causal": causal, **change}, said)


def refuse(serving: Serving, change: dict[str, Any], said: str) -> None:
    """Check that a call raises and that the caches are as they were; arrays are those of these names."""
    arrays = {
        "new": serving.put(serving.normal(_BATCH, 1, _NHEAD_K)),
        "lengths": serving.lengths,
        "two": serving.put(serving.normal(_BATCH, 2, _NHEAD_K)),
        "table": serving.put(np.ones((_CAPACITY, 16), np.float16)),
    }
    options: dict[str, Any] = {"cache_seqlens": serving.lengths, **serving.where}
    options |= {name: arrays.get(x, x) if isinstance(x, str) else x for name, x in change.items()}
    before = [cache.to_numpy() for cache in serving.caches]
    with pytest.raises((InvalidArgumentError, UnsupportedError, TypeError)) as caught:
        flash_attn_with_kvcache(serving.put(serving.normal(_BATCH, 1, _NHEAD_Q)), *serving.caches, **options)
    assert said in str(caught.value)
    assert all((x == cache.to_numpy()).all() for x, cache in zip(before, serving.caches, strict=True))


@pytest.mark.parametrize("causal", [False, True])
def test_a_length_that_leads_beyond_the_tables_of_rotary(causal: bool) -> None:
    """An integer is compared with them; queries at their own places count too."""
    new, q, table = (
        DeviceArray.from_numpy(np.ones(shape, np.float16))
        for shape in ((2, 1, 2, 64), (2, 3, 4, 64), (20, 16))
    )
    k_cache, v_cache = (DeviceArray.from_numpy(np.zeros((2, 32, 2, 64), np.float16)) for _ in range(2))
    rotary: dict[str, Any] = {"rotary_cos": table, "rotary_sin": table, "causal": causal}
    last = 17 if causal else 19
    flash_attn_with_kvcache(q, k_cache, v_cache, new, new, cache_seqlens=last, **rotary)
    assert k_cache.to_numpy()[:, last].any()
    with pytest.raises(InvalidArgumentError, match="rotary_cos: got 20 positions, expected 21 or more"):
        flash_attn_with_kvcache(q, k_cache, v_cache, new, new, cache_seqlens=last + 1, **rotary)
    assert not k_cache.to_numpy()[:, last + 1].any()


_NO_ROOM_FOR_AN_INTEGER: list[Any] = [
    (False, 95, 2, {}, "got 95, expected at most 94: the cache has room for 96 tokens of a sequence, and 2"),
    (True, 96, 1, {}, "got 96, expected at most 95: the cache has room for 96 tokens of a sequence, and 1"),
    (False, 97, 0, {}, "got 97, expected at most 96: the cache has room for 96 tokens of a sequence, and 0"),
    (False, 40, 1, {"max_seqlen_k": 40}, "got 40, expected at most 39: max_seqlen_k says that there are at"),
]


@pytest.mark.parametrize(("paged", "length", "new", "more", "said"), _NO_ROOM_FOR_AN_INTEGER, ids=str)
def test_no_room_for_an_integer(paged: bool, length: int, new: int, more: dict[str, Any], said: str) -> None:
    """A length that the host knows is refused with the capacity, and nothing is written."""
    serving = Serving(paged)
    caches, more = serving.caches, more | serving.where
    before = [x.to_numpy() for x in caches]
    q = serving.put(serving.normal(_BATCH, 1, _NHEAD_Q))
    k, v = (serving.put(serving.normal(_BATCH, new, _NHEAD_K)) if new else None for _ in range(2))
    with pytest.raises(InvalidArgumentError) as caught:
        flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=length, **more)
    assert said in str(caught.value)
    for cache, was in zip(caches, before, strict=True):
        assert np.array_equal(cache.to_numpy(), was)
    flash_attn_with_kvcache(q, *caches, k, v, cache_seqlens=length - max(new, 1), **more)
