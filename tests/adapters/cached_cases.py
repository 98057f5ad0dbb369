# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sequences in a KV cache, and what attention over them should give. Tokens that no sequence has are NaN."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from built import this_arch
from cases_judge import judge
from cases_types import DTYPES, Array
from reference import attention, numerics_of


@dataclass(frozen=True)
class Cached:
    """Sequences of these lengths in a cache of so many heads; `pages` is "table", "none" or "batch_idx"."""

    lengths: tuple[int, ...] = (37, 100)
    seqlen_q: int = 1
    dtype: str = "bfloat16"
    nhead_k: int = 2
    ratio: int = 2
    hdim: int = 64
    hdim_v: int = 64
    page_size: int = 16
    pages: str = "table"
    room: int = 0  # more tokens that each sequence may come to have
    alibi: bool = False
    leftpad: tuple[int, ...] = ()
    scales: str = ""  # of a cache of 8 bits, with pages: by "sequence" or by "page"
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def batch(self) -> int:
        return len(self.lengths)

    @property
    def nhead_q(self) -> int:
        return self.nhead_k * self.ratio

    def normal(self, *shape: int, seed: int = 0) -> Array:
        """Random elements."""
        rng = np.random.default_rng((self.seed, seed))
        return rng.standard_normal(shape, np.float32).astype(DTYPES[self.dtype])

    def hosts(self) -> dict[str, Array]:
        """The arrays of a call."""
        rng = np.random.default_rng(self.seed)
        paged = self.pages == "table"
        size = self.page_size if paged else max(*self.lengths, 1) + self.room
        counts = [math.ceil((n + self.room) / size) if paged else 1 for n in self.lengths]
        spare = 2 if self.pages != "none" else 0
        total = sum(counts) + spare
        order = rng.permutation(total) if spare else np.arange(total)
        lists = np.split(order[: sum(counts)], np.cumsum(counts)[:-1])
        arrays: dict[str, Any] = {}
        for which, (name, hdim) in enumerate((("k_cache", self.hdim), ("v_cache", self.hdim_v)), 1):
            stored = "float8_e4m3fnuz" if self.scales else self.dtype
            cache = np.full((total, size, self.nhead_k, hdim), np.nan, DTYPES[stored])
            for b, n in enumerate(self.lengths):
                rows = self.normal(n, self.nhead_k, hdim, seed=1000 * which + b)
                for t in range(self.leftpad[b] if self.leftpad else 0, n):
                    cache[lists[b][t // size], t % size] = rows[t]
            arrays[name] = cache
        if paged:
            table = np.full((self.batch, max(counts) + 1), -1, np.int32)
            for b, pages in enumerate(lists):
                table[b, : len(pages)] = pages
            arrays["block_table"] = table
        elif spare:
            arrays["cache_batch_idx"] = np.array([pages[0] for pages in lists], np.int32)
        arrays["q"] = self.normal(self.batch, self.seqlen_q, self.nhead_q, self.hdim)
        arrays["cache_seqlens"] = np.array(self.lengths, np.int32)
        for name in ("k_scale", "v_scale") if self.scales else ():
            shape = (total if self.scales == "page" else self.batch, self.nhead_k)
            arrays[name] = rng.uniform(0.01, 0.04, shape).astype(np.float32)
        if self.leftpad:
            arrays["cache_leftpad"] = np.array(self.leftpad, np.int32)
        if self.alibi:
            arrays["alibi_slopes"] = rng.random(self.nhead_q, np.float32)
        return arrays

    def tokens(self, b: int, arrays: dict[str, Any], length: int) -> list[Array]:
        """Keys and values of a sequence, (1, tokens, nhead_k, hdim), from a cache."""
        found = []
        for name in ("k_cache", "v_cache"):
            cache = np.asarray(arrays[name])
            if "block_table" in arrays:
                size = cache.shape[1]
                pages = np.asarray(arrays["block_table"])[b, : math.ceil(length / size)]
                rows = cache[pages]
                if self.scales:
                    scale = np.asarray(arrays[f"{name[0]}_scale"])[pages if self.scales == "page" else [b]]
                    rows = rows.astype(np.float64) * scale[:, None, :, None]
                rows = rows.reshape(-1, *cache.shape[2:])
            else:
                rows = cache[int(arrays["cache_batch_idx"][b]) if "cache_batch_idx" in arrays else b]
            found.append(rows[None, self.leftpad[b] if self.leftpad else 0 : length])
        return found

    def judge(self, arrays: dict[str, Any], o: Any, lse: Any, lengths: Any = None) -> None:
        """Judge attention over what is in the cache."""
        slopes = arrays.get("alibi_slopes")
        for b, n in enumerate(self.lengths if lengths is None else lengths):
            numerics = numerics_of(self.dtype, None, 128, this_arch())
            if self.scales == "page":
                # P is rounded as a fraction of the power of two above the largest scale.
                scales = np.asarray(arrays["v_scale"])
                numerics = replace(numerics, p_scale=float(scales.min() / scales.max() / 2))
            causal, window = (self.options.get("causal", False), self.options.get("window_size", (-1, -1)))
            want = attention(
                np.asarray(arrays["q"])[b : b + 1],
                *self.tokens(b, arrays, n),
                causal=causal,
                window_size=window,
                softcap=self.options.get("softcap", 0.0),
                max_seqlen_k=2**20,
                alibi_slopes=None if slopes is None else np.asarray(slopes),
                numerics=numerics,
            )
            judge(want, np.asarray(o)[b : b + 1], None if lse is None else np.asarray(lse)[b : b + 1])
