# SPDX-License-Identifier: MIT OR Apache-2.0
"""com.microsoft GroupQueryAttention in random shapes: prompts, tokens that follow, rotary, windows, sinks."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import reference
from engines.with_onnxruntime.expectations import (
    CPU_ERROR,
    assert_within_ulp,
    heads_first,
    pick,
    randoms,
    rotated,
    window_of,
    with_sinks,
)
from engines.with_onnxruntime.sessions import DTYPES, Case, ours, theirs
from reference import Expected

Array = npt.NDArray[Any]
POSITIONS = 300
LENGTHS = (1, 2, 3, 7, 16, 17, 67, 97, 128)


class Drawn:
    """A batch of sequences whose tokens before the new ones are in a cache."""

    def __init__(self, kind: str, dtype: str, seed: int) -> None:
        rng = np.random.default_rng([("prompt", "token", "tokens").index(kind), ord(dtype[0]), seed])
        self.kind, self.dtype = kind, DTYPES[dtype]
        self.batch = 1 if kind == "tokens" else pick(rng, 1, 2, 3)
        self.heads_k = pick(rng, 1, 2, 3)
        self.heads = self.heads_k * pick(rng, 1, 2, 5)
        self.hdim = pick(rng, 32, 64, 128)
        self.new = 1 if kind == "token" else pick(rng, *LENGTHS[1:])
        # A prompt is padded at its end to the longest of its batch.
        self.before = np.zeros(self.batch, np.int64)
        if kind != "prompt":
            self.before[:] = rng.integers(1, 150, self.batch)
        self.totals = self.before + self.new
        if kind == "prompt":
            self.totals[1:] = rng.integers(1, self.new + 1, self.batch - 1)
        self.total = int(self.totals.max())
        self.capacity = self.total + pick(rng, 0, 5) if kind != "prompt" else 0
        self.packed, self.window = pick(rng, False, True), pick(rng, -1, -1, 1, 13, 64)
        self.softcap = pick(rng, 0.0, 20.0)
        self.sinks = pick(rng, None, None, "smooth", "head") if not self.softcap else None
        self.rotary = pick(rng, None, "halves", "interleaved")
        self.scale = pick(rng, None, 0.3)
        self.q = randoms(rng, (self.batch, self.new, self.heads, self.hdim), self.dtype)
        self.k, self.v = (
            randoms(rng, (self.batch, self.new, self.heads_k, self.hdim), self.dtype) for _ in range(2)
        )
        # Tokens behind those of a sequence, which nothing may read as keys.
        self.past = [
            randoms(rng, (self.batch, self.heads_k, self.capacity, self.hdim), self.dtype) for _ in range(2)
        ]
        self.sink = randoms(rng, (self.heads,), self.dtype)
        angles = np.outer(np.arange(POSITIONS), 1e4 ** -(np.arange(self.hdim // 2) / (self.hdim / 2)))
        self.cos, self.sin = np.cos(angles).astype(self.dtype), np.sin(angles).astype(self.dtype)

    def case(self, *, dynamic: bool = False) -> Case:
        """The node. With `dynamic` the model knows no length."""
        q, k, v = (x.reshape(*x.shape[:2], -1) for x in (self.q, self.k, self.v))
        inputs: dict[str, Array | None] = {"query": q, "key": k, "value": v}
        if self.packed:
            inputs = {"query": np.concatenate([q, k, v], 2), "key": None, "value": None}
        past = self.past if self.capacity else [None, None]
        inputs |= {"past_key": past[0], "past_value": past[1]}
        inputs |= {"seqlens_k": (self.totals - 1).astype(np.int32)}
        inputs |= {"total_sequence_length": np.array(self.total, np.int32)}
        tables = (self.cos, self.sin) if self.rotary else (None, None)
        inputs |= {"cos_cache": tables[0], "sin_cache": tables[1]}
        inputs |= {"position_ids": None, "attention_bias": None}
        inputs |= {"head_sink": self.sink if self.sinks == "head" else None}
        attributes: dict[str, Any] = {
            "num_heads": self.heads,
            "kv_num_heads": self.heads_k,
            "local_window_size": self.window,
            "softcap": self.softcap,
            "do_rotary": int(self.rotary is not None),
            "rotary_interleaved": int(self.rotary == "interleaved"),
            "smooth_softmax": int(self.sinks == "smooth"),
        }
        if self.scale is not None:
            attributes["scale"] = self.scale
        cache = [self.batch, self.heads_k, max(self.capacity, self.total), self.hdim]
        shapes: dict[str, Sequence[Any]] = {"present_key": cache, "present_value": cache}
        for name in ("query", "key", "value") if dynamic else ():
            if (value := inputs[name]) is not None:
                shapes[name] = ["batch", "sequence", value.shape[2]]
        for name in ("key", "value") if dynamic else ():
            shapes[f"present_{name}"] = ["batch", self.heads_k, "total", self.hdim]
            if self.capacity:
                shapes[f"past_{name}"] = ["batch", self.heads_k, "past", self.hdim]
        return Case(
            "GroupQueryAttention",
            inputs,
            ["output", "present_key", "present_value"],
            attributes,
            shapes=shapes,
            constants=["head_sink"] if self.sinks == "head" else [],
        )

    def turned(self) -> Drawn:
        """The same, with new queries and keys rotated beforehand."""
        other = copy.copy(self)
        other.rotary, other.q, other.k = None, self.q.copy(), self.k.copy()
        for b, before in enumerate(map(int, self.before)):
            for x in (other.q, other.k):
                x[b] = rotated(x[b], before, self.cos, self.sin, self.rotary == "interleaved")
        return other

    def sequence(self, b: int) -> tuple[Array, Array, Array]:
        """The new queries of a sequence without its padding, and all its keys and values."""
        before, total = int(self.before[b]), int(self.totals[b])
        valid = total - before
        q, k, v = self.q[b, :valid], self.k[b, :valid], self.v[b, :valid]
        if self.rotary:
            q, k = (rotated(x, before, self.cos, self.sin, self.rotary == "interleaved") for x in (q, k))
        kept = [heads_first(x[b : b + 1, :, :before])[0] for x in self.past]
        return q, np.concatenate([kept[0], k]), np.concatenate([kept[1], v])

    def expected(self, q: Array, k: Array, v: Array) -> Expected:
        """Attention of one sequence, in float64."""
        want = reference.attention(
            q[None],
            k[None],
            v[None],
            softmax_scale=self.scale,
            causal=True,
            window_size=window_of(self.window),
            softcap=self.softcap,
        )
        if self.sinks is None:
            return want
        return with_sinks(want, self.sink if self.sinks == "head" else np.zeros(self.heads))


def check_sequence(drawn: Drawn, b: int, results: list[Array], cpu: Array) -> None:
    """Compare a sequence's output and cache."""
    q, k, v = drawn.sequence(b)
    output, present_k, present_v = results
    got = output.reshape(drawn.batch, drawn.new, drawn.heads, drawn.hdim)[b, : q.shape[0]]
    kept_k, kept_v = (heads_first(x[b : b + 1, :, : k.shape[0]])[0] for x in (present_k, present_v))
    np.testing.assert_array_equal(kept_v, v)
    assert_within_ulp(kept_k, k.astype(np.float64))
    want = drawn.expected(q, kept_k, v)
    off = np.abs(got.astype(np.float64) - want.o[0])
    assert (off <= want.o_tolerance[0]).all(), float((off - want.o_tolerance[0]).max())
    others = cpu.reshape(drawn.batch, drawn.new, drawn.heads, drawn.hdim)[b, : q.shape[0]]
    off = np.abs(got.astype(np.float64) - others)
    bound = want.o_tolerance[0] + CPU_ERROR * (1 + np.abs(want.o[0]))
    assert (off <= bound).all(), float((off - bound).max())


def cpu_output(drawn: Drawn, present_k: Array) -> Array:
    """ONNX Runtime's own output, of rotated tensors: it would not round them to a narrow type."""
    case = drawn.case()
    if drawn.rotary:
        turned = theirs(case)[1]
        for b, total in enumerate(drawn.totals):
            assert_within_ulp(present_k[b, :, :total], turned[b, :, :total])
        case = drawn.turned().case()
    return theirs(case)[0]


@pytest.mark.parametrize("kind", ["prompt", "token", "tokens"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("seed", range(10))
def test_random(kind: str, dtype: str, seed: int) -> None:
    drawn = Drawn(kind, dtype, seed)
    results = ours(drawn.case(dynamic=bool(seed % 2)))
    cpu = cpu_output(drawn, results[1])
    for b in range(drawn.batch):
        check_sequence(drawn, b, results, cpu)
