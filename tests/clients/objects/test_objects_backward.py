# SPDX-License-Identifier: MIT OR Apache-2.0
"""The backward attention of 120 objects: each head dim, dtype, mask, rounding and way to add up dQ."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from clients.objects import wheel
from clients.objects.attention import ROUNDING, Array, Forward, causal, relative_rms
from clients.objects.launch import Launch, Memory, prove, read, slots

LOG2E = float(np.float32(math.log2(math.e)))
TILE_KEYS = {64: 192, 128: 192, 192: 64}  # by head dim
WINDOW = 70  # keys to the left that a row of a swa object sees


@dataclass
class Kind:
    """The properties of an object, parsed from its name."""

    name: str

    def __post_init__(self) -> None:
        words = re.split(r"[_.]", self.name.rsplit("/", 1)[1])
        self.dim = int(words[1].removeprefix("hd"))
        self.dtype: Any = np.float16 if "fp16" in words else ml_dtypes.bfloat16
        # fp16 is converted in pairs, which truncates
        self.unit = ROUNDING[next((w for w in words if w in ROUNDING and w != "fp16"), "fp16_rtz")]
        self.float_dq = "a32" in words  # dQ is added up in float32, else in the operands' type
        self.causal, self.bottom_right, self.window = ("causal" in words, "br" in words, "swa" in words)
        self.grouped = "group" in words
        # `pssk`: any length; its block has slots of 8 bytes, and strides for each operand
        self.any_length = any(w.startswith("pssk") for w in words)

    def mask(self, rows: int, keys: int) -> Array:
        """Return the keys that each row sees."""
        if self.window:
            ahead = np.arange(keys)[None, :] - np.arange(rows)[:, None]
            return (ahead <= 0) & (ahead >= -WINDOW)
        return causal(rows, keys, self.bottom_right) if self.causal else np.ones((rows, keys), bool)


@dataclass
class Run:
    """An object, its operands, and what comes out."""

    kind: Kind
    memory: Memory

    def __post_init__(self) -> None:
        kind = self.kind
        self.batch, self.heads = 2, 2
        # The others know one length, which is a multiple of both tiles. Every row sees a key.
        self.rows, self.keys = (200, 230) if kind.any_length else (384, 384)
        if kind.window or (kind.causal and not kind.bottom_right):
            self.rows = self.keys
        # With padding of the head dim, less than the tile of it.
        self.dim = kind.dim - 16 if "ddv" in kind.name else kind.dim
        rng = np.random.default_rng(self.dim)
        self.q, self.do = (self.random(rng, self.rows, self.heads) for _ in range(2))
        self.heads_k = 1 if kind.any_length else self.heads
        self.k, self.v = (self.random(rng, self.keys, self.heads_k) for _ in range(2))
        mask = kind.mask(self.rows, self.keys)
        self.forward = Forward(self.q, self.k, self.v, self.dim**-0.5, mask)
        self.want = self.forward.backward(self.do.astype(np.float64))
        dq_type = np.float32 if kind.float_dq else kind.dtype
        self.dq = memory_of_zeros(self.memory, self.q.size, dq_type)
        per_head = self.batch * self.keys * self.heads * self.dim
        self.dk, self.dv = (self.memory.poisoned(per_head, kind.dtype) for _ in range(2))

    def random(self, rng: np.random.Generator, length: int, heads: int) -> Array:
        """An operand."""
        return rng.standard_normal((self.batch, length, heads, self.dim)).astype(self.kind.dtype)

    def per_row(self, values: Array, padded: bool) -> Array:
        """LSE or D: (batch, heads, rows), or (heads, all rows) of packed sequences."""
        if self.kind.grouped:
            values = values.swapaxes(0, 1)
        flat = values.astype(np.float32).ravel()
        return np.concatenate([flat, np.zeros(flat.size, np.float32)]) if padded else flat

    def launch(self, padded: bool) -> Launch:
        """As AITER's host code fills the block. `padded`: memory goes on behind LSE and D."""
        of, kind = self.memory.of, self.kind
        rows = [of(self.per_row(x, padded)) for x in (self.forward.lse, self.want[0])]
        tensors = [self.dq, self.dk, self.dv, *(of(x) for x in (self.q, self.k, self.v, self.do)), *rows]
        tiles = -(-self.keys // TILE_KEYS[kind.dim])
        pairs = kind.causal and not kind.window  # a workgroup takes one tile from each end
        grid = (-(-tiles // 2) if pairs else tiles, self.heads, self.batch)
        if kind.grouped:
            args = self.grouped_args(tensors)
        else:
            args = self.padded_args(tensors) if kind.any_length else self.plain_args(tensors)
        return Launch(kind.name, args, grid)

    def plain_args(self, tensors: list[Any]) -> bytes:
        """One set of strides for Q and dO, one for K and V."""
        q, k = strides(self.rows, self.heads, self.dim), strides(self.keys, self.heads_k, self.dim)
        tile = TILE_KEYS[self.kind.dim] * k[2]
        numbers = (self.dim**-0.5, LOG2E, self.rows, tile, *q, self.heads // self.heads_k, *k)
        return slots(*tensors, *numbers, self.heads * self.dim * 2, self.dim)

    def padded_args(self, tensors: list[Any]) -> bytes:
        """A set of strides for each of Q, K, V, dO, dK, dV; for a window its two sides."""
        q, k = strides(self.rows, self.heads, self.dim), strides(self.keys, self.heads_k, self.dim)
        dk = strides(self.keys, self.heads, self.dim)
        sides = (1, WINDOW + 1) if self.kind.window else ()
        group = self.heads // self.heads_k
        numbers = (self.dim**-0.5, LOG2E, group, self.rows, self.keys, self.dim, self.heads)
        return slots(*tensors, *numbers, *q, *k, *k, *q, *dk, *dk, *sides, bytes_each=8)

    def grouped_args(self, tensors: list[Any]) -> bytes:
        """Starts of the sequences, and strides without the batch's."""
        starts = [
            self.memory.of((np.arange(self.batch + 1) * n).astype(np.int32)) for n in (self.rows, self.keys)
        ]
        q, k, dk = (strides(0, heads, self.dim)[::2] for heads in (self.heads, self.heads_k, self.heads))
        numbers = (self.dim**-0.5, LOG2E, self.heads // self.heads_k, self.batch * self.rows * 4)
        sizes = (self.batch * self.keys, *q, *k, *k, *q, *dk, *dk, self.dim)
        return slots(*tensors, *starts, *starts, *numbers, *sizes, bytes_each=8)

    def judge(self) -> None:
        """dQ, dK and dV, by their root mean square error.

        Two roundings make it: P's or dS's, and the output's. Each is at most `unit`, and independent of the
        others; a dQ that is added up in 16 bits is rounded once for each tile of keys.
        """
        _, dq, dk, dv = self.want
        b, kind = self.batch, self.kind
        keys_shape = (b, self.keys, self.heads, self.dim)
        adds = 0 if kind.float_dq else -(-self.keys // TILE_KEYS[kind.dim])
        # In float32 heads come before rows: nothing but one more kernel reads it.
        if kind.float_dq and kind.grouped:
            got = read(self.dq, np.float32, (self.heads, b, self.rows, self.dim)).transpose(1, 2, 0, 3)
        elif kind.float_dq:
            got = read(self.dq, np.float32, (b, self.heads, self.rows, self.dim)).swapaxes(1, 2)
        else:
            got = read(self.dq, kind.dtype, (b, self.rows, self.heads, self.dim))
        off = {
            "dQ": relative_rms(got, dq) / (kind.unit * (1 + adds)),
            "dK": relative_rms(read(self.dk, kind.dtype, keys_shape), dk) / (2 * kind.unit),
            "dV": relative_rms(read(self.dv, kind.dtype, keys_shape), dv) / (2 * kind.unit),
        }
        assert max(off.values()) <= 1, f"error as a part of what rounding may do: {off}"


def strides(length: int, heads: int, dim: int) -> tuple[int, int, int]:
    """Bytes between heads, batches and rows."""
    return dim * 2, length * heads * dim * 2, heads * dim * 2


def memory_of_zeros(memory: Memory, count: int, dtype: Any) -> Any:
    """Return zeros for a kernel to add to."""
    return memory.of(np.zeros(count, dtype))


@pytest.mark.parametrize("name", wheel.matching(r"fmha_v3_bwd/.*"))
def test_backward(name: str, memory: Memory) -> None:
    """The gradients, from LSE and D as the forward pass and one more kernel give them."""
    run = Run(Kind(name), memory)
    # The object's own over-read of LSE is shown by memory that ends where LSE ends.
    swa = run.kind.window
    prove(run.launch(padded=swa), run.judge, run.launch(padded=False) if swa else None)
