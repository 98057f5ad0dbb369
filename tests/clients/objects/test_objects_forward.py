# SPDX-License-Identifier: MIT OR Apache-2.0
"""The forward attention of 32 objects: lengths that fill no tile, grouped heads, packed sequences."""

from __future__ import annotations

import re
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
from clients.objects import wheel
from clients.objects.attention import ROUNDING, Forward, causal
from clients.objects.findings import WRONG
from clients.objects.launch import Launch, Memory, prove, read, slots

BF16 = ml_dtypes.bfloat16
DIM, TILE_ROWS = 128, 256


@dataclass
class Shape:
    """One batch: `rows` and `keys` of each sequence, heads of Q and of K."""

    rows: int
    keys: int
    heads: int = 4
    heads_k: int = 2
    batch: int = 2


SHAPES = (Shape(100, 132), Shape(300, 300, heads=2), Shape(256, 96, heads=2, heads_k=1), Shape(130, 33))


def strides(rows: int, heads: int, grouped: bool) -> tuple[int, int, int]:
    """Bytes between rows, heads and batches; packed sequences have no batches."""
    return heads * DIM * 2, DIM * 2, 0 if grouped else rows * heads * DIM * 2


@dataclass
class Run:
    """An object, what it is to do, and the memory for it."""

    name: str
    shape: Shape
    memory: Memory

    def __post_init__(self) -> None:
        self.causal, self.grouped = "causal" in self.name, "group" in self.name
        s, rng = self.shape, np.random.default_rng(7)
        self.q = rng.standard_normal((s.batch, s.rows, s.heads, DIM)).astype(BF16)
        self.k, self.v = (rng.standard_normal((s.batch, s.keys, s.heads_k, DIM)).astype(BF16) for _ in "kv")
        self.o = self.memory.poisoned(self.q.size, BF16)
        self.lse = self.memory.poisoned(s.batch * s.heads * s.rows, np.float32)

    def launch(self) -> Launch:
        """As AITER's host code fills the block, field by field in the order of its struct."""
        s, of = self.shape, self.memory.of
        starts = [
            of((np.arange(s.batch + 1) * n).astype(np.int32)) if self.grouped else None
            for n in (s.rows, s.keys)
        ]
        q, k = strides(s.rows, s.heads, self.grouped), strides(s.keys, s.heads_k, self.grouped)
        tuning = 5 if not self.causal or s.heads % 8 == 0 else 3
        lse_head = (s.batch if self.grouped else 1) * s.rows * 4
        args = slots(
            *(self.o, of(self.q), of(self.k), of(self.v), self.lse),
            *(DIM**-0.5, s.rows, q[0], TILE_ROWS * q[0], *q[1:], s.heads // s.heads_k, *k),
            *(tuning, 1, s.keys, DIM, DIM, s.heads, *k, *q, *starts, lse_head, *starts),
        )
        blocks = -(-s.rows // TILE_ROWS)
        blocks = -(-blocks // 2) if self.causal else blocks
        by_head = self.grouped and not OLDER.search(self.name)
        order = (s.heads, s.batch, blocks) if by_head else (blocks, s.heads, s.batch)
        return Launch(self.name, args, order, block=512)

    def judge(self) -> None:
        """O and LSE, each element within what rounding may do."""
        s, r = self.shape, self.reference()
        unit = ROUNDING[rounding(self.name)]
        o = read(self.o, BF16, (s.batch, s.rows, s.heads, DIM))
        lse_shape = (s.heads, s.batch, s.rows) if self.grouped else (s.batch, s.heads, s.rows)
        lse = self.lse.read(np.float32).reshape(lse_shape).astype(np.float64)
        lse = lse.swapaxes(0, 1) if self.grouped else lse
        seen = ~r.empty
        off = (np.abs(o - r.o)[:, seen] / r.o_error(unit)[:, seen]).max()
        assert off <= 1, f"O is off {off:.2f} times what rounding may do"
        assert (np.abs(lse[..., seen] - r.lse[..., seen]) <= r.lse_error()[..., seen]).all()
        assert (o[:, r.empty] == 0).all(), "rows that see nothing"

    def reference(self) -> Forward:
        """In float64."""
        s = self.shape
        mask = causal(s.rows, s.keys, bottom_right=True) if self.causal else np.ones((s.rows, s.keys), bool)
        return Forward(self.q, self.k, self.v, DIM**-0.5, mask)


OLDER = re.compile(r"bf16(_causal)?(_group)?\.co$")  # of before the way of rounding was in the name


def rounding(name: str) -> str:
    """How an object rounds to bf16, by its name; the older ones, which do not say, truncate."""
    match = re.search("rtne|rtna|rtz", name)
    return match[0] if match else "rtz"


@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s.rows}x{s.keys}")
@pytest.mark.parametrize("name", wheel.matching(r"fmha_v3_fwd/.*"))
def test_forward(name: str, shape: Shape, memory: Memory) -> None:
    """Right, or as wrong as is known."""
    run = Run(name, shape, memory)
    # The mistake shows where a block has more rows than keys before it, and keys that fill no tile of 32.
    if name in WRONG and shape.rows == shape.keys:
        with pytest.raises(AssertionError, match="O is off"):
            prove(run.launch(), run.judge)
        return
    prove(run.launch(), run.judge)
