# SPDX-License-Identifier: MIT OR Apache-2.0
"""Matrix products, top-k of a softmax, and layer normalisation, against float64."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest
from clients.objects import wheel
from clients.objects.attention import EPS32, ROUNDING
from clients.objects.launch import Launch, Memory, environment, prove, read, slots

BF16 = ml_dtypes.bfloat16


def tile(name: str) -> tuple[int, ...]:
    """The numbers in an object's name: 64x64, 12x256x6."""
    match = re.search(r"_(\d+(?:x\d+)+)", name)
    assert match
    return tuple(map(int, match[1].split("x")))


@pytest.mark.parametrize("split", [1, 2])
@pytest.mark.parametrize("rows", [70, 192])
@pytest.mark.parametrize("name", wheel.matching(r"bf16gemm/.*"))
def test_matmul(name: str, rows: int, split: int, memory: Memory) -> None:
    """A B^T of bf16 in float32: products are exact, sums round once a term, in any order."""
    cols, depth = 128, 512
    rng = np.random.default_rng(rows)
    a, b = (rng.standard_normal((n, depth)).astype(BF16) for n in (rows, cols))
    # The parts of a split product are added to what is there.
    before = 0.0 if split > 1 else np.nan
    out = memory.of(np.full((rows, cols), before, np.float32))
    # D, C, A, B, alpha, beta, then strides in bytes, each of which the second is unused
    strides = (cols * 4, 0, cols * 4, 0, depth * 2, 0, depth * 2, 0)
    args = slots(out, None, memory.of(a), memory.of(b), 1.0, 0.0, *strides, rows, cols, depth, split)
    tile_m, tile_n = tile(name)

    def judge() -> None:
        af, bf = a.astype(np.float64), b.astype(np.float64)
        error = np.abs(read(out, np.float32, (rows, cols)) - af @ bf.T)
        assert (error <= depth * EPS32 * (np.abs(af) @ np.abs(bf).T)).all()

    prove(Launch(name, args, (-(-cols // tile_n), -(-rows // tile_m), split)), judge)


@pytest.mark.parametrize("name", wheel.matching(r"topksoftmax/.*"))
def test_top_k(name: str, memory: Memory) -> None:
    """The largest k of a row's softmax, in their order, scaled to a sum of 1."""
    step, experts, k = tile(name)
    tokens = 3 * step + 1
    x = np.random.default_rng(k).standard_normal((tokens, experts)).astype(np.float32)
    index, weight = memory.of(np.full(tokens * k, -1, np.int32)), memory.poisoned(tokens * k, np.float32)
    args = slots(index, weight, memory.of(x), tokens, experts, k, 1, k * 4)

    def judge() -> None:
        p = np.exp(x.astype(np.float64))
        want = np.argsort(-p, 1)[:, :k]
        assert (read(index, np.int32, (tokens, k)) == want).all()
        top = np.take_along_axis(p, want, 1)
        # exp2 of an argument of at most 8 (its rounding counts eightfold) and two sums, of all and of k
        bound = (experts + k + 16) * EPS32
        got = read(weight, np.float32, (tokens, k))
        assert np.abs(got / (top / top.sum(1, keepdims=True)) - 1).max() <= bound

    prove(Launch(name, args, (-(-tokens // step), 1, 1)), judge)


LAYER_NORM = {"layer_norm.co": False, "layer_norm_qnt.co": True}  # quantised?


@pytest.mark.parametrize("name", LAYER_NORM)
def test_layer_norm(name: str, memory: Memory) -> None:
    """The norm of x + residual, a sum that is written too; the norm depends on the order of the waves.

    So only the sum is judged, the race must be found, and another order must give another result: that makes
    the finding a true one.
    """
    rows, cols, epsilon = 4, 8192, 1e-5
    rng = np.random.default_rng(0)
    shapes = ((rows, cols), (rows, cols), (cols,), (cols,))
    x, residual, weight, bias = (rng.standard_normal(shape).astype(BF16) for shape in shapes)
    out, out_sum = memory.poisoned(rows * cols, BF16), memory.poisoned(rows * cols, BF16)
    scale = memory.poisoned(rows, np.float32)
    inputs = [memory.of(a) for a in (x, weight, bias)]
    x_scale = memory.of(np.ones(cols, np.float32))
    args = slots(out, *inputs, epsilon, rows, cols, out_sum, memory.of(residual), scale, x_scale)
    launch = Launch(name, args, (rows // 2, 1, 1))
    total = x.astype(np.float64) + residual.astype(np.float64)

    def judge() -> None:
        got = read(out_sum, BF16, (rows, cols))
        assert (np.abs(got - total) <= ROUNDING["rtz"] * np.abs(total)).all()

    prove(launch, judge)
    written = []
    for schedule in ("round", "random:1"):
        with environment("FMHA_EMU_SCHEDULE", schedule):
            launch.run("none")
        written.append(out.read(np.uint8))
    assert (written[0] != written[1]).any(), "the race is found, and changes nothing any more"
    if not LAYER_NORM[name]:
        return
    # In the second order each read comes before the write that races with it: a row's largest number is 127.
    spread = (total - total.mean(1, keepdims=True)) / np.sqrt(total.var(1, keepdims=True) + epsilon)
    largest = np.abs(spread * weight.astype(np.float64) + bias.astype(np.float64)).max(1)
    assert np.abs(read(scale, np.float32, (rows,)) * 127 / largest - 1).max() <= ROUNDING["rtz"]
