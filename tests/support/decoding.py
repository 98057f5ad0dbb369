# SPDX-License-Identifier: MIT OR Apache-2.0
"""Problems of attention over a KV cache on the device, run by the raw function, and the oracle's answers.

Tokens that no sequence has, or that no query sees, are NaN in the cache and declared unwritten, and entries
of a block table for pages of only such tokens are -1: a kernel that reads either gives NaN, or is stopped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from built import DTYPE_OF, Row, drawn, this_arch
from cases_judge import judge
from cases_types import DTYPES, Array, mask_fields
from reference import Expected, attention, numerics_of
from strict import forgiven, only_initialized

import pyfa_rocm
from pyfa_rocm import Cache, CacheTensor, DecodeParams, DeviceArray, FwdParams, Lse, Strided
from pyfa_rocm.oracle.params import candidates

_PAD = 8  # elements between the heads and tokens of a cache, and between rows of q


@dataclass(frozen=True)
class Problem:
    """A problem of decode; `lengths` are those of the sequences in the cache, their queries included.

    `shared`: tokens at the beginning that all sequences have in common, whose full pages they share.
    `latent`: values are the first dims of the keys, in their memory.
    """

    lengths: tuple[int, ...] = (37, 200)
    seqlens_q: tuple[int, ...] = (1, 1)
    packed: bool = False
    dtype: str = "bfloat16"
    nhead_k: int = 2
    ratio: int = 4
    hdim: int = 128
    hdim_v: int = 0
    page_size: int = 16
    pages: str = "table"  # "list", "none", "batch_idx"
    heads_first: bool = False
    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    alibi: bool = False
    leftpad: tuple[int, ...] = ()
    shared: int = 0
    latent: bool = False
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)


class Decoding:
    """A problem on the device."""

    averages = True
    """Rounding errors of different rows are independent of one another."""

    def __init__(self, p: Problem) -> None:
        self.p = p
        self.rng = np.random.default_rng(p.seed)
        self.hdim_v = p.hdim_v or p.hdim
        self.batch = len(p.lengths)
        self.kept: list[DeviceArray] = []
        dtype = DTYPES[p.dtype]
        self.k, self.v = (
            [self._normal((n, p.nhead_k, d)).astype(dtype) for n in p.lengths] for d in (p.hdim, self.hdim_v)
        )
        for sequences in (self.k, self.v):
            for x in sequences[1:]:
                x[: p.shared] = sequences[0][: p.shared]
        if p.latent:
            self.v = [x[..., : self.hdim_v] for x in self.k]
        nhead_q = p.nhead_k * p.ratio
        self.q = [self._normal((n, nhead_q, p.hdim)).astype(dtype) for n in p.seqlens_q]
        self.slopes = self.rng.random(nhead_q, np.float32) if p.alibi else None

    def _normal(self, shape: tuple[int, ...]) -> Array:
        return self.rng.standard_normal(shape, np.float32)

    def put(self, host: Array) -> int:
        """Copy to the device; return the address."""
        self.kept.append(DeviceArray.from_numpy(host))
        return self.kept[-1].data

    def _first_seen(self, b: int) -> int:
        """The first token that a query of a sequence sees; its length if there is none."""
        p, length = self.p, self.p.lengths[b]
        if p.seqlens_q[b] == 0:
            return length
        by_window = length - p.seqlens_q[b] - p.window[0] if p.window[0] >= 0 else 0
        return min(length, max(p.leftpad[b] if p.leftpad else 0, by_window))

    def _cache(self) -> Cache:
        p = self.p
        paged = p.pages in ("table", "list")
        size = p.page_size if paged else max(*p.lengths, 1) + 3
        counts = [math.ceil(n / size) if paged else 1 for n in p.lengths]
        pages = sum(counts) + 3
        order = self.rng.permutation(pages)
        lists = np.split(order[: sum(counts)], np.cumsum(counts)[:-1])  # views
        for pages_of in lists[1:] if paged else []:
            pages_of[: p.shared // size] = lists[0][: p.shared // size]
        tensors = []
        for sequences, hdim in ((self.k, p.hdim), (self.v, self.hdim_v))[: 1 if p.latent else 2]:
            shape = (pages, p.nhead_k, size, hdim) if p.heads_first else (pages, size, p.nhead_k, hdim)
            host = np.full((*shape[:-1], hdim + _PAD), np.nan, DTYPES[p.dtype])
            view = host[..., :hdim].swapaxes(1, 2) if p.heads_first else host[..., :hdim]
            for b, rows in enumerate(sequences):
                for t in range(self._first_seen(b), len(rows)):
                    view[lists[b][t // size], t % size] = rows[t]
            strides = [n // host.itemsize for n in view.strides]
            tensors.append(CacheTensor(self.put(host), *strides[:3]))
            held = np.repeat(~np.isnan(host.ravel()), host.itemsize)
            only_initialized(tensors[-1].data, host.nbytes, held)
        for b, pages_of in enumerate(lists if paged else []):
            pages_of[: self._first_seen(b) // size] = -1
        cache = Cache(p.dtype, pages, size, k=tensors[0], v=tensors[-1])
        if p.pages == "table":
            width = max(*counts, 1) + 2
            self.block_table = table = np.full((self.batch, width), -1, np.int32)
            for b, pages_of in enumerate(lists):
                table[b, : len(pages_of)] = pages_of
            cache.block_table, cache.stride_block_table, cache.max_pages = self.put(table), width, width
        elif p.pages == "list":
            listed = max(*counts, 1)  # so many that the longest sequence would fit
            cache.kv_indptr = self.put(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
            cache.kv_indices = self.put(np.append(order[: sum(counts)], [-1] * listed).astype(np.int32))
            cache.indices = sum(counts) + listed
        else:
            cache.cache_batch_idx = self.put(np.array([x[0] for x in lists], np.int32))
        return cache

    def params(self) -> DecodeParams:
        """The raw function's arguments."""
        p = self.p
        nhead_q, rows = p.nhead_k * p.ratio, max(*p.seqlens_q, 0)
        dtype = DTYPES[p.dtype]
        total = sum(p.seqlens_q)
        shape = (1, total) if p.packed else (self.batch, rows)
        q = np.full((*shape, nhead_q, p.hdim + _PAD), np.nan, dtype)
        self.o_host = np.full((*shape, nhead_q, self.hdim_v + _PAD), np.nan, dtype)
        self.starts = np.concatenate([[0], np.cumsum(p.seqlens_q)]).astype(np.int32)
        for b, x in enumerate(self.q):
            at = (0, slice(*self.starts[b : b + 2])) if p.packed else (b,)
            q[at][..., : p.hdim] = x
        self.lse_host = np.full((shape[0], nhead_q, shape[1]), np.nan, np.float32)
        o_address, lse_address = self.put(self.o_host), self.put(self.lse_host)
        self.o, self.lse = self.kept[-2:]
        wide, wide_o = p.hdim + _PAD, self.hdim_v + _PAD
        fwd = FwdParams(
            dtype=p.dtype, batch=self.batch, seqlen_q=rows, seqlen_k=max(*p.lengths, 0), nhead_q=nhead_q,
            nhead_k=p.nhead_k, hdim_q=p.hdim, hdim_v=self.hdim_v, softmax_scale=p.hdim**-0.5,
            q=Strided(self.put(q), shape[1] * nhead_q * wide, nhead_q * wide, wide),
            k=Strided(0, 0, 0, 0), v=Strided(0, 0, 0, 0),
            o=Strided(o_address, shape[1] * nhead_q * wide_o, nhead_q * wide_o, wide_o),
            lse=Lse(lse_address, nhead_q * shape[1], shape[1]), softcap=p.softcap,
            seqused_k=self.put(np.array(p.lengths, np.int32)), **mask_fields(p.causal, p.window),
        )  # fmt: skip
        if p.packed:
            fwd.cu_seqlens_q, fwd.total_q = self.put(self.starts), total
        if self.slopes is not None:
            fwd.alibi_slopes = self.put(self.slopes)
        params = DecodeParams(fwd, self._cache(), **p.options)
        if p.leftpad:
            params.leftpad_k = self.put(np.array(p.leftpad, np.int32))
        return params

    def run(self) -> list[tuple[Array, Array]]:
        """O and the LSE of each sequence, (1, seqlen_q, nhead_q, hdim_v) and (1, nhead_q, seqlen_q)."""
        params = self.params()
        if nbytes := pyfa_rocm.fmha_decode_workspace_bytes(params):
            params.workspace, params.workspace_bytes = self.put(np.full(nbytes, 0xFF, np.uint8)), nbytes
        with forgiven():
            pyfa_rocm.fmha_decode(params)
            pyfa_rocm.synchronize()
        o, lse = self.o.to_numpy(), self.lse.to_numpy()
        assert np.isnan(o[..., self.hdim_v :].astype(np.float32)).all(), "written between the rows of O"
        results = []
        for b in range(self.batch):
            if self.p.packed:
                rows = slice(*self.starts[b : b + 2])
                results.append((o[:, rows, :, : self.hdim_v], lse[:, :, rows]))
            else:
                results.append((o[b : b + 1, ..., : self.hdim_v], lse[b : b + 1]))
        return results

    def expected(self, b: int) -> Expected:
        """The oracle's answer for a sequence."""
        p = self.p
        first = p.leftpad[b] if p.leftpad else 0
        return attention(
            self.q[b][None], self.k[b][None, first:], self.v[b][None, first:], causal=p.causal,
            window_size=p.window, max_seqlen_k=max(*p.lengths, 0), softcap=p.softcap,
            alibi_slopes=self.slopes, numerics=numerics_of(p.dtype, None, 128, this_arch()),
        )  # fmt: skip


def fields_of(row: Row) -> dict[str, Any]:
    """Return a problem for a kernel: with fewer rows than it has in a workgroup, and more."""
    rng = drawn(row)
    return {
        "dtype": DTYPE_OF[row["dtype"]],
        "hdim": row["hdim_q"],
        "hdim_v": row["hdim_v"],
        "nhead_k": 1,
        "ratio": 3,
        "lengths": (300, *map(int, rng.integers(1, 200, 2))),
        "seqlens_q": (45, 1, int(rng.integers(1, 12))),
        "packed": True,
        "causal": True,
        "latent": row["latent"],
    }


def kernels_of(decoding: Decoding) -> list[str]:
    """The kernels that can do a problem, the library's choice first."""
    return [kernel.name for kernel in candidates(decoding.params(), pyfa_rocm.fmha_decode_kernel)]


def number_of(decoding: Decoding, name: str) -> int:
    """Return which candidate for a problem a kernel is."""
    return kernels_of(decoding).index(name) + 1


def run_judged(decoding: Decoding) -> list[tuple[Array, Array]]:
    """Run a problem, judge its results, and return them."""
    results = decoding.run()
    for b, (o, lse) in enumerate(results):
        if o.size:
            judge(decoding.expected(b), o, lse, decoding.averages)
    return results
