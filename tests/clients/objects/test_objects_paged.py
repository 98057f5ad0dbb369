# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention of a few rows over a cache of pages."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from clients.objects import wheel
from clients.objects.attention import ROUNDING, Array, Forward, causal
from clients.objects.launch import Launch, Memory, prove, read, slots

LOG2E = math.log2(math.e)
CONTEXT = (37, 300)  # keys of each sequence
PAGE, DIM = 16, 128


def reference(q: Array, k: Array, v: Array, scale: float, masked: bool = False) -> Forward:
    """One sequence: q (rows, heads, dim), k and v (keys, heads, dim)."""
    rows, keys = q.shape[0], k.shape[0]
    mask = causal(rows, keys, bottom_right=True) if masked else np.ones((rows, keys), bool)
    return Forward(q[None], k[None], v[None], scale, mask)


def pages_cases() -> list[tuple[str, int]]:
    """Object and rows of each sequence; those called mtp take several, the last of a text."""
    one = [(n, 1) for n in wheel.matching(r"pa/pa_\w+_noquant_gqa\d+_1tg_4w\.co")]
    several = wheel.matching(r"pa/pa_\w+_noquant_gqa8_1tg_4w_mtp_msk[01]\.co")
    return one + [(n, rows) for n in several for rows in (1, 2, 3)]


@pytest.mark.parametrize(("name", "rows"), pages_cases())
def test_pages(name: str, rows: int, memory: Memory) -> None:
    """Pages of 16 keys in any order; of a page, 8 numbers lie together: of a key's dim, and of V's keys."""
    dtype: Any = np.float16 if "fp16" in name else ml_dtypes.bfloat16
    group, heads_k, batch = (16 if "gqa16" in name else 8), 2, len(CONTEXT)
    heads, pages = heads_k * group, [-(-n // PAGE) for n in CONTEXT]
    total, most = sum(pages) + 3, max(pages)
    rng = np.random.default_rng(group)
    q = rng.standard_normal((batch, rows, heads, DIM)).astype(dtype)
    k, v = (rng.standard_normal((total, heads_k, PAGE, DIM)).astype(dtype) for _ in "kv")
    order, table = rng.permutation(total).astype(np.int32), np.zeros((batch, most), np.int32)
    for i, n in enumerate(pages):
        table[i, :n] = order[sum(pages[:i]) :][:n]
    out = memory.poisoned(q.size, dtype)
    cache = [
        memory.of(k.reshape(total, heads_k, PAGE, DIM // 8, 8).swapaxes(2, 3)),
        memory.of(v.reshape(total, heads_k, PAGE // 8, 8, DIM).swapaxes(3, 4)),
    ]
    lists = [memory.of(table), memory.of(np.array(CONTEXT, np.int32))]
    starts = memory.of(np.arange(batch + 1, dtype=np.int32) * rows) if "mtp" in name else None
    page_bytes = (heads_k * PAGE * DIM * 2, PAGE * DIM * 2)
    scale = float(np.float32(LOG2E / math.sqrt(DIM)))
    sizes = (scale, most, heads_k, heads * DIM * 2, *page_bytes, group, starts)
    args = slots(out, memory.of(q), *cache, *lists, None, None, *sizes)

    def judge() -> None:
        got = read(out, dtype, q.shape)
        # fp16 is converted in pairs, which truncates
        unit = ROUNDING["fp16_rtz" if dtype is np.float16 else "rtne"]
        for i, keys in enumerate(CONTEXT):
            used = table[i, : pages[i]]
            keys_i, values_i = (x[used].swapaxes(1, 2).reshape(-1, heads_k, DIM)[:keys] for x in (k, v))
            r = reference(q[i], keys_i, values_i, DIM**-0.5, masked="msk1" in name)
            assert (np.abs(got[i] - r.o[0]) <= r.o_error(unit)[0]).all()

    variant = f" rows={rows}" if "mtp" in name else ""
    prove(Launch(name, args, (heads_k, batch, 1), variant=variant), judge)
