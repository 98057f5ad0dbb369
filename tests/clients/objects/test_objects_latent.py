# SPDX-License-Identifier: MIT OR Apache-2.0
"""Latent attention: all heads share one key of 576 numbers, of which the first 512 are its value.

Pages hold one key. Decoding kernels do a few rows of each sequence and one part of its keys a workgroup;
those called `ps` do what lists tell each workgroup; those called `pfl` write O as bfloat16.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from clients.objects.attention import ROUNDING, Array, Forward, causal
from clients.objects.launch import Launch, Memory, prove, read, slots
from emulator.support import hip
from emulator.support import rows as device_rows

CONTEXT = (37, 300)  # keys of each sequence
WIDE, LATENT = 576, 512
SCALE = 192**-0.5
EPS_OUT = 2.0**-22  # the parts stay in float32
TILE = 128  # rows of all heads that a workgroup does, but for one object
KV_SCALE = 0.5  # of a cache in fp8
FP8 = {"gfx942": ml_dtypes.float8_e4m3fnuz, "gfx950": ml_dtypes.float8_e4m3fn}


@dataclass
class Problem:
    """Sequences of `rows` rows each; the last of a text, so that a row sees no key after its own."""

    heads: int
    rows: int
    cache_type: Any = ml_dtypes.bfloat16

    def __post_init__(self) -> None:
        total = sum(CONTEXT)
        rng = np.random.default_rng(self.heads + self.rows)
        shape = (len(CONTEXT) * self.rows, self.heads, WIDE)
        self.q = rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
        self.cache = rng.standard_normal((total + 5, WIDE)).astype(self.cache_type)
        self.used = rng.permutation(total + 5).astype(np.int32)[:total]
        self.starts = np.concatenate([[0], np.cumsum(CONTEXT)]).astype(np.int32)
        self.factor = KV_SCALE if self.cache.itemsize == 1 else 1.0

    @cached_property
    def results(self) -> list[Forward]:
        """Return the output of each sequence; only O's first numbers count."""
        found = []
        for i, keys in enumerate(CONTEXT):
            used = self.used[self.starts[i] : self.starts[i + 1]]
            rows = self.cache[used][:, None].astype(np.float64) * self.factor
            q = self.q[i * self.rows : (i + 1) * self.rows]
            found.append(Forward(q[None], rows[None], rows[None], SCALE, causal(self.rows, keys, True)))
        return found

    def inputs(self, memory: Memory) -> list[hip.Buffer]:
        """Q, the cache, and its pages: where each sequence starts, which ones, and keys in the last."""
        ones = np.ones(len(CONTEXT), np.int32)
        return [memory.of(x) for x in (self.q, self.cache, self.starts, self.used, ones)]

    def sizes(self, parts: int) -> tuple[float, int, int, int, int, int]:
        """Scale, rows of all heads, parts, bytes of a sequence's Q and of a page, log2 of its keys."""
        wide = self.heads * self.rows
        return SCALE, wide, parts, wide * WIDE * 2, WIDE * self.cache.itemsize, 0

    def row_starts(self, memory: Memory) -> hip.Buffer:
        """Where the rows of each sequence start."""
        return memory.of(np.arange(len(CONTEXT) + 1, dtype=np.int32) * self.rows)

    def scales(self, memory: Memory) -> hip.Buffer | None:
        """The factor on a cache in fp8."""
        return memory.of(np.array([KV_SCALE], np.float32)) if self.factor != 1 else None

    def check(self, sequence: int, o: Array, lse: Array | None, out_unit: float) -> None:
        """O (rows, heads, LATENT) and LSE (rows, heads) of a sequence."""
        r = self.results[sequence]
        bound = r.o_error(ROUNDING["rtne"], out_unit)[0, :, :, :LATENT]
        assert (np.abs(o - r.o[0, :, :, :LATENT]) <= bound).all()
        if lse is not None:
            assert (np.abs(lse - r.lse[0].T) <= r.lse_error()[0].T).all()


def merged(parts: Array, lse: Array) -> tuple[Array, Array]:
    """The parts of each row, (parts, rows, heads, dim), by their LSE; and that of the whole."""
    highest = lse.max(0)
    weight = np.exp(lse - highest)
    total = weight.sum(0)
    return (weight[..., None] * parts).sum(0) / total[..., None], highest + np.log(total)


# Object, heads, rows of a sequence, rows of all heads that a workgroup does, least keys of a part, parts.
# With one part most write another type, as AITER's host code wants it.
DECODE = [
    ("mla_dec_stage1_bf16_a16w16_subQ16_mqa16", 16, 1, 16, 64, (1, 2, 3)),
    ("mla_dec_stage1_bf16_a16w16_subQ128_mqa128", 128, 1, TILE, 16, (2, 3)),
    ("mla_a16w16_qh16_m16x4_n16x1_coex0_mask1", 16, 2, TILE, 16, (3,)),
    ("mla_a16w16_qh16_m32x4_n16x1_coex0_mask1", 16, 6, TILE, 16, (3,)),
]
CASES = [(*case, parts) for *case, counts in DECODE for parts in counts]


@pytest.mark.parametrize(("name", "heads", "rows", "tile", "least", "parts"), CASES)
def test_decode(name: str, heads: int, rows: int, tile: int, least: int, parts: int, memory: Memory) -> None:
    """Each workgroup leaves O and LSE of a part in float32."""
    problem, batch = Problem(heads, rows), len(CONTEXT)
    count = batch * rows * parts * heads
    out, lse = memory.poisoned(count * LATENT, np.float32), memory.poisoned(count, np.float32)
    lists = (problem.row_starts(memory), memory.of(np.arange(batch + 1, dtype=np.int32) * parts))
    whole = memory.poisoned(batch * rows * heads * LATENT, np.float32)
    args = slots(out, lse, *problem.inputs(memory), *problem.sizes(parts), *lists, whole, None, None, parts)

    def judge() -> None:
        o = out.read(np.float32).reshape(batch, rows, parts, heads, LATENT).astype(np.float64)
        sums = lse.read(np.float32).reshape(batch, rows, parts, heads).astype(np.float64)
        for i, keys in enumerate(CONTEXT):
            n = min(parts, -(-keys // least))
            problem.check(i, *merged(o[i].swapaxes(0, 1)[:n], sums[i].swapaxes(0, 1)[:n]), EPS_OUT)

    prove(Launch(f"mla/{name}.co", args, (-(-heads * rows // tile), batch, parts)), judge)


@pytest.mark.parametrize(("heads", "rows"), [(16, 9), (128, 2)])
def test_prefill(heads: int, rows: int, memory: Memory) -> None:
    """Rows under a causal mask, all keys by one workgroup."""
    problem, batch = Problem(heads, rows), len(CONTEXT)
    shape = (batch * rows, heads, LATENT)
    out = memory.poisoned(int(np.prod(shape)), ml_dtypes.bfloat16)
    lse = memory.poisoned(batch * rows * heads, np.float32)
    sizes = (SCALE, heads, 1, heads * WIDE * 2, WIDE * 2, 0)
    starts = problem.row_starts(memory)
    args = slots(out, lse, *problem.inputs(memory), *sizes, starts, None, None, None, None, 0)

    def judge() -> None:
        o = read(out, ml_dtypes.bfloat16, shape).reshape(batch, rows, heads, LATENT)
        for i in range(batch):
            problem.check(i, o[i], None, ROUNDING["rtne"])

    name = f"mla/mla_pfl_bf16_a16w16_causal_subQ{heads}_mqa{heads}.co"
    prove(Launch(name, args, (-(-heads * rows // TILE), batch, 1)), judge)


@dataclass
class Work:
    """The split of the work: each workgroup has a part of a sequence's keys, in multiples of 16."""

    rows: int
    parts: int

    def __post_init__(self) -> None:
        self.items: list[list[int]] = []  # sequence, first row of its part, rows, keys, keys after them, 0
        self.of: list[list[int]] = []  # each sequence's rows among the parts'; none: it is not divided
        end = 0
        for i, keys in enumerate(CONTEXT):
            step = keys if self.parts == 1 else -(-keys // self.parts // 16) * 16
            start, firsts = sum(CONTEXT[:i]), []
            for begin in range(0, keys, step):
                stop = min(begin + step, keys)
                place = -1 if self.parts == 1 else end
                row = i * self.rows
                self.items.append(
                    [i, place, row, row + self.rows, start + begin, start + stop, keys - stop, 0]
                )
                if place >= 0:
                    firsts.append(place)
                    end += self.rows
            self.of.append(firsts)
        self.rows_of_parts = max(end, self.rows)

    def buffer(self, memory: Memory) -> hip.Buffer:
        """The addresses of both lists: the items of each workgroup, and the items."""
        lists = (np.arange(len(self.items) + 1, dtype=np.int32), np.array(self.items, np.int32))
        return memory.of(np.array([memory.of(x).address for x in lists] + [0] * 8, np.uint64))


@pytest.mark.parametrize(("rows", "parts"), [(1, 1), (3, 3)])
@pytest.mark.parametrize("cache", ["16", "8"])
def test_lists(cache: str, rows: int, parts: int, memory: Memory) -> None:
    """A workgroup's items come from lists; an undivided sequence goes to O at once, as bfloat16."""
    problem = Problem(16, rows, FP8[device_rows.arch()] if cache == "8" else ml_dtypes.bfloat16)
    heads, batch, work = problem.heads, len(CONTEXT), Work(rows, parts)
    shape = (batch, rows, heads, LATENT)
    out = memory.poisoned(int(np.prod(shape)), ml_dtypes.bfloat16)
    count = work.rows_of_parts * heads
    left, lse = memory.poisoned(count * LATENT, np.float32), memory.poisoned(count, np.float32)
    lists = (problem.row_starts(memory), work.buffer(memory))
    args = slots(
        left, lse, *problem.inputs(memory), *problem.sizes(1), *lists, out, None, problem.scales(memory), 1
    )

    def judge() -> None:
        for i, firsts in enumerate(work.of):
            if not firsts:
                problem.check(i, read(out, ml_dtypes.bfloat16, shape)[i], None, ROUNDING["rtne"])
                continue
            o = left.read(np.float32).reshape(-1, heads, LATENT).astype(np.float64)
            sums = lse.read(np.float32).reshape(-1, heads).astype(np.float64)
            rows_of = [slice(first, first + rows) for first in firsts]
            of_parts = (np.stack([x[at] for at in rows_of]) for x in (o, sums))
            problem.check(i, *merged(*of_parts), EPS_OUT)

    name = f"mla/mla_a16w{cache}_qh16_m16x4_n16x1_coex0_mask1_ps.co"
    prove(Launch(name, args, (len(work.items), 1, 1)), judge)
