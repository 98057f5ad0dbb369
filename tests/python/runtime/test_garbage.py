# SPDX-License-Identifier: MIT OR Apache-2.0
"""Numbers out of range in the device's arrays of appends and of attention over a cache.

The table in fmha_rocm.h says how each is read. An append is compared, byte for byte, with a NumPy form of
that table, in pools with room around the cache; attention with the same call on the numbers that the table
puts in place of those out of range.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from built import rows, this_arch
from cases_place import bits
from strict import forgiven

import pyfa_rocm
from pyfa_rocm import (
    Cache,
    CacheTensor,
    DecodeParams,
    DeviceArray,
    FwdParams,
    KvAppendParams,
    Lse,
    Rotary,
    Strided,
)

GARBAGE = (-1, -(2**31), 2**31 - 1, 10**6)
BATCH, PAGE, PAGES, WIDTH, HDIM, NHEAD_K, NHEAD_Q = 2, 16, 12, 6, 64, 2, 4
LATENT = 576, 512  # head dims of a cache whose values are the first dims of its keys
LATENT_HEADS = 64  # with three queries, so many rows that its kernel for many is chosen
GUARD = 3  # pages, or rows, before and after what the call is told of
Arrays = dict[str, Any]


def _pool(rng: np.random.Generator, count: int, *shape: int) -> Any:
    """Random numbers with a guard before and after `count` of them."""
    return rng.standard_normal((count + 2 * GUARD, *shape), np.float32).astype(np.float16)


def _lists(kind: str, longest: int) -> Arrays:
    """Where two sequences are: pages in no order, or batch elements of the cache."""
    if kind == "table":
        return {"block_table": np.array([[3, 0, 5, 1, 8, 2], [4, 7, 6, 9, 11, 10]], np.int32)}
    if kind == "list":
        starts = np.array([0, -(-longest // PAGE), 2 * -(-longest // PAGE)], np.int32)
        return {"kv_indptr": starts, "kv_indices": np.array([3, 0, 5, 1, 8, 2, 4, 7, 6, 9, 11, 10], np.int32)}
    return {"cache_batch_idx": np.array([2, 0], np.int32)} if kind == "batch" else {}


@dataclass
class Sized:
    """A cache's sizes, its memory, and what says where sequences are, which a test spoils."""

    kind: str
    pages: int
    page_size: int
    k: Any
    v: Any
    arrays: Arrays
    latent: bool = False
    held: list[DeviceArray] = field(default_factory=list)

    def put(self, host: Any) -> int:
        self.held.append(DeviceArray.from_numpy(np.ascontiguousarray(host)))
        return int(self.held[-1].data)

    def cache(self, **more: Any) -> Cache:
        page, token = self.k[0].size, self.k[0, 0].size
        tensors = [
            CacheTensor(self.put(x) + 2 * GUARD * page, page, token, self.k.shape[-1])
            for x in (self.k, self.v)[: 1 if self.latent else 2]
        ]
        names = ("block_table", "kv_indptr", "kv_indices", "cache_batch_idx")
        lists: Arrays = {name: self.put(self.arrays[name]) for name in names if name in self.arrays}
        if "block_table" in lists:
            lists |= {"stride_block_table": WIDTH, "max_pages": WIDTH}
        elif "kv_indices" in lists:
            lists["indices"] = len(self.arrays["kv_indices"])
        return Cache("float16", self.pages, self.page_size, k=tensors[0], v=tensors[-1], **lists, **more)


def _sized(kind: str, seed: int, longest: int, latent: bool = False) -> Sized:
    rng = np.random.default_rng(seed)
    pages, size = (4, 6 * PAGE) if kind == "batch" else (PAGES, PAGE)
    heads = (1, LATENT[0]) if latent else (NHEAD_K, HDIM)
    k, v = (_pool(rng, pages, size, *heads) for _ in range(2))
    return Sized(kind, pages, size, k, v, _lists(kind, longest), latent)


# ---- Appends.

NEW, POSITIONS = 3, 90


class Append:
    """New keys and values and queries, rotated by nothing (cos = 1, sin = 0), on the device and in NumPy."""

    def __init__(self, kind: str, packed: bool) -> None:
        rng = np.random.default_rng(3)
        self.at, self.packed = _sized(kind, 4, 90), packed
        self.total = BATCH * NEW + packed  # one row that no sequence has
        self.q, self.q_out = (_pool(rng, self.total, NHEAD_Q, HDIM) for _ in range(2))
        self.k, self.v = (_pool(rng, self.total, NHEAD_K, HDIM) for _ in range(2))
        arrays = self.at.arrays
        arrays["seqused_k"] = np.array([30, 87], np.int32)
        arrays["positions"] = rng.integers(0, POSITIONS, self.total).astype(np.int32)
        if packed:
            arrays["cu_seqlens"] = np.array([0, 2, 2 + NEW], np.int32)
        if kind == "slots":
            arrays["slots"] = (rng.permutation(PAGES * PAGE)[: self.total]).astype(np.int32)

    def run(self) -> tuple[Any, Any, Any]:
        """The pools of the cache's keys and values and of q_out, as the library leaves them."""
        at, arrays = self.at, self.at.arrays
        cache = at.cache()
        pools = at.held[:2]

        def rows(host: Any) -> Strided:
            heads = host.shape[1] * HDIM
            return Strided(at.put(host) + 2 * GUARD * heads, NEW * heads, heads, HDIM)

        half = HDIM // 2
        cos, sin = (at.put(np.full((POSITIONS, half), x, np.float32)) for x in (1, 0))
        q, k, v, q_out = (rows(x) for x in (self.q, self.k, self.v, self.q_out))
        pools.append(at.held[-1])
        names = ("seqused_k", "positions", "cu_seqlens", "slots")
        given: Arrays = {name: at.put(arrays[name]) for name in names if name in arrays}
        params = KvAppendParams(
            "float16", BATCH, NEW, NHEAD_K, HDIM, HDIM, NHEAD_Q, cache, q=q, q_out=q_out, k=k, v=v,
            total=self.total if self.packed else 0,
            rotary=Rotary(cos, sin, POSITIONS, half, HDIM, "float32"),
            **given,
        )  # fmt: skip
        with forgiven():
            pyfa_rocm.fmha_kv_append(params)
            pyfa_rocm.synchronize()
        return pools[0].to_numpy(), pools[1].to_numpy(), pools[2].to_numpy()

    def expected(self) -> tuple[Any, Any, Any]:
        k, v, q_out = self.at.k.copy(), self.at.v.copy(), self.q_out.copy()
        arrays = self.at.arrays
        for b in range(BATCH):
            for i in range(NEW):
                row = b * NEW + i
                if self.packed:
                    first, end = (int(x) for x in arrays["cu_seqlens"][b : b + 2])
                    row = first + i
                    if row >= end or not 0 <= row < self.total:
                        continue
                if not 0 <= arrays["positions"][row] < POSITIONS:
                    continue
                q_out[GUARD + row] = self.q[GUARD + row]
                place = self._place(b, row, int(arrays["seqused_k"][b]) + i)
                if place is not None:
                    k[place], v[place] = self.k[GUARD + row], self.v[GUARD + row]
        return k, v, q_out

    def _place(self, b: int, row: int, in_sequence: int) -> tuple[int, int] | None:
        """Page, in its pool, and token of the page; None: nowhere."""
        at, arrays = self.at, self.at.arrays
        number, token = divmod(in_sequence, at.page_size)
        if at.kind == "slots":
            page, token = divmod(int(arrays["slots"][row]), at.page_size)
        elif at.kind == "batch":
            page = int(arrays["cache_batch_idx"][b]) if number == 0 else -1
        elif number < 0:
            return None
        elif at.kind == "table":
            page = int(arrays["block_table"][b, number]) if number < WIDTH else -1
        else:
            entry = int(arrays["kv_indptr"][b]) + number
            there = entry < arrays["kv_indptr"][b + 1] and 0 <= entry < len(arrays["kv_indices"])
            page = int(arrays["kv_indices"][entry]) if there else -1
        return (GUARD + page, token) if 0 <= page < at.pages else None


# An array's entry, and numbers that are just out of its range.
APPENDS = [
    ("table", "seqused_k", 0, (94, 96)),
    ("table", "seqused_k", 1, (-2,)),
    ("table", "block_table", 1, (12,)),
    ("table", "positions", 1, (90,)),
    ("list", "kv_indptr", 0, (-2,)),
    ("list", "kv_indptr", 1, (1, 12)),
    ("list", "kv_indptr", 2, (11, 13)),
    ("list", "kv_indices", 1, (12,)),
    ("list", "seqused_k", 0, (94,)),
    ("batch", "cache_batch_idx", 1, (4,)),
    ("batch", "seqused_k", 0, (94, 96, -2)),
    ("slots", "slots", 1, (192,)),
    ("slots", "positions", 2, (90,)),
    ("table", "cu_seqlens", 0, (-1, 3)),
    ("table", "cu_seqlens", 1, (-1, 1, 6)),
    ("slots", "cu_seqlens", 2, (1, 3, 8)),
]


@pytest.mark.parametrize(("kind", "name", "entry", "near"), APPENDS)
def test_appends(kind: str, name: str, entry: int, near: tuple[int, ...]) -> None:
    changed = False
    for value in (*near, *GARBAGE):
        append = Append(kind, packed=name == "cu_seqlens")
        clean = append.expected()
        append.at.arrays[name].reshape(-1)[entry] = value
        expected = append.expected()
        changed |= any(not np.array_equal(bits(x), bits(y)) for x, y in zip(clean, expected, strict=True))
        for got, want in zip(append.run(), expected, strict=True):
            assert np.array_equal(bits(got), bits(want)), f"{name}[{entry}] = {value}"
    assert changed


@pytest.mark.parametrize("kind", ["table", "list", "batch", "slots"])
@pytest.mark.parametrize("packed", [False, True])
def test_appends_in_range(kind: str, packed: bool) -> None:
    append = Append(kind, packed)
    for got, want in zip(append.run(), append.expected(), strict=True):
        assert np.array_equal(bits(got), bits(want))


def test_a_full_page_is_not_followed_by_another_sequences() -> None:
    """Lengths that fill one sequence's page: its token is not stored, and the other's is."""
    k_cache, v_cache = (DeviceArray.from_numpy(np.zeros((4, 256, 1, 64), np.float16)) for _ in range(2))
    table = DeviceArray.from_numpy(np.array([[2], [3]], np.int32))
    new = DeviceArray.from_numpy(np.ones((2, 1, 1, 64), np.float16))
    lengths = DeviceArray.from_numpy(np.array([256, 10], np.int32))
    pyfa_rocm.flash_attn_kv_append(k_cache, v_cache, new, new, lengths, block_table=table)
    for cache in (k_cache, v_cache):
        assert np.argwhere(cache.to_numpy()[..., 0, 0]).tolist() == [[3, 10]]


# ---- Attention.

LONGEST, TOTAL_Q = 6 * PAGE, 6


class Decode:
    """Packed queries of two sequences, with rows that no sequence has."""

    def __init__(self, kind: str, splits: int, latent: bool = False) -> None:
        rng = np.random.default_rng(5)
        self.at, self.splits = _sized(kind, 6, LONGEST, latent), splits
        self.hdim = LATENT if latent else (HDIM, HDIM)
        self.nhead_q = LATENT_HEADS if latent else NHEAD_Q
        self.q, self.o = (_pool(rng, TOTAL_Q, self.nhead_q, d) for d in self.hdim)
        self.lse = rng.standard_normal((self.nhead_q, TOTAL_Q), np.float32)
        self.at.arrays |= {
            "seqused_k": np.array([40, 80], np.int32),
            "cu_seqlens_q": np.array([0, 2, 5], np.int32),
            "leftpad_k": np.array([3, 1], np.int32),
            "cu_seqlens_k": np.array([0, 40, 120], np.int32),
        }

    def run(self, lengths: str = "seqused_k") -> tuple[Any, Any]:
        """The pool of O and the LSE."""
        at, arrays, hdim = self.at, self.at.arrays, self.hdim
        cache = at.cache()
        row_q, row_o = (self.nhead_q * d for d in hdim)
        at_q, at_o = at.put(self.q) + 2 * GUARD * row_q, at.put(self.o) + 2 * GUARD * row_o
        o = at.held[-1]
        at_lse = at.put(self.lse)
        lse = at.held[-1]
        none, used = Strided(0, 0, 0, 0), at.put(arrays[lengths])
        given: Arrays = {lengths: used}
        fwd = FwdParams(
            "float16", BATCH, 3, LONGEST, self.nhead_q, at.k.shape[2], *hdim, 0.125,
            Strided(at_q, 0, row_q, hdim[0]), none, none, Strided(at_o, 0, row_o, hdim[1]),
            lse=Lse(at_lse, 0, TOTAL_Q), mask="causal",
            cu_seqlens_q=at.put(arrays["cu_seqlens_q"]), total_q=TOTAL_Q,
            **given,
        )  # fmt: skip
        params = DecodeParams(
            fwd, cache, leftpad_k=at.put(arrays["leftpad_k"]), num_splits=self.splits, seqlen_new=2
        )
        if nbytes := pyfa_rocm.fmha_decode_workspace_bytes(params):
            params.workspace, params.workspace_bytes = at.put(np.zeros(nbytes, np.uint8)), nbytes
        self.kernel = pyfa_rocm.fmha_decode_kernel(params).name
        with forgiven():
            pyfa_rocm.fmha_decode(params)
            pyfa_rocm.synchronize()
        return o.to_numpy(), lse.to_numpy()

    def bound(self, name: str, entry: int, value: int) -> int:
        """Return the number that fmha_rocm.h puts in place of this one."""
        arrays = self.at.arrays
        if name == "seqused_k":
            return min(max(value, -2), LONGEST - 2)  # two are new
        if name == "leftpad_k":
            return min(max(value, 0), int(arrays["seqused_k"][entry]) + 2)
        if name in ("block_table", "kv_indices", "cache_batch_idx"):
            return min(value % 2**32, self.at.pages - 1)
        total = TOTAL_Q if name == "cu_seqlens_q" else len(arrays["kv_indices"])
        least = int(arrays[name].reshape(-1)[entry - 1]) if entry else 0
        return min(max(value, least), total)


DECODES = [
    ("table", "seqused_k", 0),
    ("table", "seqused_k", 1),
    ("table", "leftpad_k", 0),
    ("table", "block_table", 1),
    ("table", "cu_seqlens_q", 0),
    ("table", "cu_seqlens_q", 2),
    ("list", "kv_indptr", 0),
    ("list", "kv_indptr", 2),
    ("list", "kv_indices", 2),
    ("batch", "cache_batch_idx", 1),
    ("batch", "seqused_k", 1),
]


def judge(kind: str, name: str, entry: int, splits: int, values: tuple[int, ...], latent: bool) -> Decode:
    """Each number does what the one does that the table puts in its place."""
    for value in values:
        results = []
        for given in (value, Decode(kind, splits).bound(name, entry, value)):
            decode = Decode(kind, splits, latent)
            decode.at.arrays[name].reshape(-1)[entry] = given
            results.append(decode.run())
        for got, want in zip(*results, strict=True):
            assert np.array_equal(bits(got), bits(want)), f"{name}[{entry}] = {value}"
    return decode


@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize(("kind", "name", "entry"), DECODES)
def test_attention(kind: str, name: str, entry: int, splits: int) -> None:
    judge(kind, name, entry, splits, (*GARBAGE, 13, 97), latent=False)


@pytest.mark.parametrize(("kind", "name", "entry"), DECODES)
def test_latent_attention(kind: str, name: str, entry: int) -> None:
    """The kernel for many rows, where there is one, looks up pages and lengths by itself."""
    decode = judge(kind, name, entry, 2, (-1, 2**31 - 1, 13), latent=True)
    has_it = any(row["latent"] and row["arch"] == this_arch() for row in rows("decode"))
    assert decode.kernel.endswith("_m128") == has_it


@pytest.mark.parametrize("value", GARBAGE)
def test_differences_of_starts(value: int) -> None:
    """cu_seqlens_k's difference, in 32 bits, is a length like one of seqused_k."""
    difference = int(np.array([value], np.int32).astype(np.int64)[0]) - 40
    length = (difference + 2**31) % 2**32 - 2**31
    by_starts, by_length = Decode("table", 1), Decode("table", 1)
    by_starts.at.arrays["cu_seqlens_k"][2] = value
    by_length.at.arrays["seqused_k"][1] = length
    for got, want in zip(by_starts.run("cu_seqlens_k"), by_length.run(), strict=True):
        assert np.array_equal(bits(got), bits(want))


def test_a_list_shorter_than_a_length() -> None:
    """A sequence ends with its pages, and does not go on in those of the next."""
    short, whole = Decode("list", 1), Decode("list", 1)
    for decode in (short, whole):
        decode.at.arrays["kv_indptr"] = np.array([0, 2, 8], np.int32)
    whole.at.arrays["seqused_k"][0] = 2 * PAGE - 2
    for got, want in zip(short.run(), whole.run(), strict=True):
        assert np.array_equal(bits(got), bits(want))
