# SPDX-License-Identifier: MIT OR Apache-2.0
"""Problems over caches of 8 bits with scales, and over vectorised ones; `decoding` has the others."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from built import fp8, reads_fp8_caches, this_arch
from cases_types import DTYPES, Array
from decoding import Decoding, Problem, run_judged
from reference import Expected, attention, numerics_of

from pyfa_rocm import Cache, CacheScale, CacheTensor
from pyfa_rocm.oracle.rounding import P_SCALES


@dataclass(frozen=True)
class Stored(Problem):
    """`scales`: of the "tensor", by "sequence" or by "page"; `v_vector`: tokens, 0: rows of head dims."""

    cache_dtype: str = ""
    scales: str = ""
    v_vector: int = 0

    @property
    def stored(self) -> str:
        return self.cache_dtype or self.dtype


class Storing(Decoding):
    """A described cache on the device. Keys and values become what it stands for."""

    p: Stored

    def __init__(self, p: Stored) -> None:
        super().__init__(p)
        # Rows whose largest P is of the same page round it alike.
        self.averages = not (p.latent and p.scales == "page")
        self.held: dict[tuple[str, int, int], Array] = {}

    def _cache(self) -> Cache:
        p, size = self.p, self.p.page_size
        counts = [math.ceil(n / size) for n in p.lengths]
        pages = sum(counts) + 3
        order = self.rng.permutation(pages)
        self.lists = np.split(order[: sum(counts)], np.cumsum(counts)[:-1])
        self.scale = {name: self._scales(pages) for name in "kv"}
        table = np.full((self.batch, max(*counts, 1) + 1), -1, np.int32)
        for b, pages_of in enumerate(self.lists):
            table[b, : len(pages_of)] = pages_of
        fields: dict[str, Any] = {}
        for name, hdim in (("k", p.hdim), ("v", self.hdim_v)):
            rows = self._rows(name, pages, hdim)
            if name == "k" or not p.latent:
                host = self._laid_out(name, rows)
                strides = [n // host.itemsize for n in host.strides]
                places = (strides[0], 0, strides[1]) if p.v_vector else (strides[0], strides[1], strides[2])
                held = CacheTensor(self.put(host), *places)
            fields[name] = held
            if p.scales:
                step = 0 if p.scales == "tensor" else 1
                at = self.put(self.scale[name])
                fields[f"{name}_scale"] = CacheScale(at, step * p.nhead_k, step)
        if p.v_vector:
            fields |= {"k_vector": 16 // DTYPES[p.stored].itemsize, "v_vector": p.v_vector}
        return Cache(
            p.stored, pages, size, block_table=self.put(table), stride_block_table=table.shape[1],
            max_pages=table.shape[1], scale_per_page=p.scales == "page", **fields,
        )  # fmt: skip

    def _scales(self, pages: int) -> Array:
        p = self.p
        shape = {"page": (pages, p.nhead_k), "sequence": (self.batch, p.nhead_k)}.get(p.scales, (1, 1))
        return self.rng.uniform(0.01, 0.04, shape).astype(np.float32)

    def _rows(self, name: str, pages: int, hdim: int) -> Array:
        """(pages, page_size, nhead_k, hdim), and what it stands for as this problem's keys or values.

        The values of a latent cache are what its keys hold, with a scale of their own.
        """
        p, sequences = self.p, getattr(self, name)
        rows = np.full((pages, p.page_size, p.nhead_k, hdim), np.nan, DTYPES[p.stored])
        for b, tokens in enumerate(sequences):
            exact = np.empty(tokens.shape, np.float64)
            for t, token in enumerate(tokens):
                page = self.lists[b][t // p.page_size]
                at = {"page": page, "sequence": b}.get(p.scales, 0)
                one = self.scale[name][at][:, None] if p.scales else 1.0
                if name == "k" or not p.latent:
                    most = P_SCALES.get(p.stored, math.inf)
                    stored = np.clip(token.astype(np.float32) / one, -most, most).astype(DTYPES[p.stored])
                    self.held[name, b, t] = stored
                else:
                    stored = self.held["k", b, t][..., :hdim]
                exact[t] = stored.astype(np.float64) * one
                if not p.leftpad or t >= p.leftpad[b]:
                    rows[page, t % p.page_size] = stored
            sequences[b] = exact
        return rows

    def _laid_out(self, name: str, rows: Array) -> Array:
        p = self.p
        if not p.v_vector:
            return rows
        pages, size, nhead, hdim = rows.shape
        if name == "k":
            vector = 16 // rows.itemsize
            parts, order = (pages, size, nhead, hdim // vector, vector), (0, 2, 3, 1, 4)
        else:
            parts, order = (pages, size // p.v_vector, p.v_vector, nhead, hdim), (0, 3, 1, 4, 2)
        return np.ascontiguousarray(rows.reshape(parts).transpose(order))

    def expected(self, b: int) -> Expected:
        p, numerics = self.p, numerics_of(self.p.dtype, None, 128, this_arch())
        if p.scales == "page" and len(self.lists[b]):
            # P is rounded as a fraction of the power of two above the largest scale.
            scales = self.scale["v"][self.lists[b]]
            numerics = replace(numerics, p_scale=float(scales.min() / scales.max() / 2))
        first = p.leftpad[b] if p.leftpad else 0
        return attention(
            self.q[b][None].astype(np.float64), self.k[b][None, first:].astype(np.float64),
            self.v[b][None, first:].astype(np.float64), causal=p.causal, window_size=p.window,
            max_seqlen_k=max(*p.lengths, 0), softcap=p.softcap, alibi_slopes=self.slopes, numerics=numerics,
        )  # fmt: skip


def run_stored(p: Stored) -> list[tuple[Array, Array]]:
    """Run a problem and judge it."""
    if p.stored == fp8() and not reads_fp8_caches():
        pytest.skip(f"{this_arch()} reads no caches of 8 bits")
    return run_judged(Storing(p))
