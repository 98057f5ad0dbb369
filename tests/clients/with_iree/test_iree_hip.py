# SPDX-License-Identifier: MIT OR Apache-2.0
"""IREE's compiler for AMD GPUs and its HIP driver: kernels in streams and graphs, against NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from clients.rounding import U32, draw, eps, sum_bound
from clients.with_iree import iree_program
from numpy.typing import NDArray

Array = NDArray[Any]
# MLIR's name of an operand's type: that of the sums, and NumPy's.
TYPES: dict[str, tuple[str, Any]] = {
    "i8": ("i32", np.int8),
    "f64": ("f64", np.float64),
    "f32": ("f32", np.float32),
    "f16": ("f32", np.float16),
    "bf16": ("f32", ml_dtypes.bfloat16),
}
# m, n and k; those of the second are known only when it runs.
SIZES = {"even": (128, 64, 96), "odd": (57, 33, 41)}
# Functions of a float32, with their error in ulp: OpenCL's, which ROCm's device libraries keep.
FUNCTIONS = {"exp": 3, "log": 3, "sin": 4, "cos": 4, "sqrt": 3, "rsqrt": 2, "tanh": 5, "atan": 5}


def matmul(kind: str, size: str) -> str:
    """A function that multiplies two matrices."""
    m, n, k = SIZES[size] if size == "even" else "???"
    total = TYPES[kind][0]
    a, b, c = f"tensor<{m}x{k}x{kind}>", f"tensor<{k}x{n}x{kind}>", f"tensor<{m}x{n}x{total}>"
    return f"""
func.func @matmul_{kind}_{size}(%a: {a}, %b: {b}) -> {c} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %a, %c0 : {a}
  %n = tensor.dim %b, %c1 : {b}
  %zero = arith.constant {"0" if total == "i32" else "0.0"} : {total}
  %empty = tensor.empty({"%m, %n" if m == "?" else ""}) : {c}
  %init = linalg.fill ins(%zero : {total}) outs(%empty : {c}) -> {c}
  %out = linalg.matmul ins(%a, %b : {a}, {b}) outs(%init : {c}) -> {c}
  return %out : {c}
}}"""


def functions() -> str:
    """A function that applies all FUNCTIONS to each number of an array."""
    count, array = len(FUNCTIONS), "tensor<?xf32>"
    arrays, same = ", ".join([array] * count), ", ".join(["affine_map<(d0) -> (d0)>"] * (count + 1))
    lines = "\n".join(f"  %{name} = math.{name} %a : f32" for name in FUNCTIONS)
    return f"""
func.func @functions(%x: {array}) -> ({arrays}) {{
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : {array}
  %empty = tensor.empty(%n) : {array}
  %out:{count} = linalg.generic {{indexing_maps = [{same}], iterator_types = ["parallel"]}}
    ins(%x : {array}) outs({", ".join(["%empty"] * count)} : {arrays}) {{
  ^bb0(%a: f32, {", ".join(f"%old{i}: f32" for i in range(count))}):
{lines}
    linalg.yield {", ".join(f"%{name}" for name in FUNCTIONS)} : {", ".join(["f32"] * count)}
  }} -> ({arrays})
  return {", ".join(f"%out#{i}" for i in range(count))} : {arrays}
}}"""


@pytest.fixture(scope="module")
def code() -> bytes:
    fixed = Path(__file__).with_name("programs.mlir").read_text()
    made = [matmul(kind, size) for kind in TYPES for size in SIZES]
    return iree_program.compiled("\n".join([fixed, *made, functions()]))


@pytest.fixture(scope="module", params=iree_program.MODES)
def program(code: bytes, request: pytest.FixtureRequest) -> Any:
    """All programs, loaded on a device that hands kernels to HIP in one of its ways."""
    return iree_program.loaded(code, request.param)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", TYPES)
def test_matmul(kind: str, size: str, program: Any) -> None:
    m, n, k = SIZES[size]
    rng = np.random.default_rng(m)
    dtype = TYPES[kind][1]
    shapes = (m, k), (k, n)
    if kind == "i8":
        a, b = (rng.integers(-128, 128, shape).astype(dtype) for shape in shapes)
    else:
        a, b = (draw(rng, shape, dtype) for shape in shapes)
    got = program[f"matmul_{kind}_{size}"](a, b).to_host()
    wide = np.int64 if kind == "i8" else np.float64
    exact, sizes = a.astype(wide) @ b.astype(wide), np.abs(a.astype(wide)) @ np.abs(b.astype(wide))
    unit = {"i8": 0.0, "f64": 2 * k * 2.0**-53}.get(kind, sum_bound(k))
    assert np.all(np.abs(got - exact) <= unit * sizes)


def test_functions(program: Any) -> None:
    x = np.random.default_rng(1).uniform(0.01, 20, 999).astype(np.float32)
    results = [result.to_host() for result in program.functions(x)]
    for (name, ulp), got in zip(FUNCTIONS.items(), results, strict=True):
        wide = x.astype(np.float64)
        exact = 1 / np.sqrt(wide) if name == "rsqrt" else getattr(np, name)(wide)
        np.testing.assert_array_less(
            np.abs(got - exact), ulp * np.spacing(np.abs(exact).astype(np.float32)), name
        )


def test_convolution(program: Any) -> None:
    rng = np.random.default_rng(2)
    x, w = draw(rng, (2, 18, 18, 16), np.float16), draw(rng, (3, 3, 16, 32), np.float16)

    def convolved(x: Array, w: Array) -> Array:
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (1, 2))
        out: Array = np.einsum("nhwcij,ijcf->nhwf", windows, w)
        return out

    wide = x.astype(np.float64), w.astype(np.float64)
    error = sum_bound(3 * 3 * 16) * convolved(*map(np.abs, wide))
    assert np.all(np.abs(program.convolution(x, w).to_host() - convolved(*wide)) <= error)


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    out: Array = powers / powers.sum(-1, keepdims=True)
    return out


def test_softmax(program: Any) -> None:
    x = (4 * np.random.default_rng(3).standard_normal((7, 300))).astype(np.float32)
    exact = softmax(x.astype(np.float64))
    # The difference to the maximum is rounded, then come the power, the sum and the quotient.
    error = np.abs(x.max(1, keepdims=True) - x).max() * U32 + 2 * 3 * U32 + sum_bound(300) + 3 * U32
    assert np.all(np.abs(program.softmax(x).to_host() - exact) <= 2 * error * exact)


def test_attention(program: Any) -> None:
    rng = np.random.default_rng(4)
    q, k, v = (draw(rng, (2, rows, 64), np.float16) for rows in (64, 96, 96))
    mask = rng.random((2, 64, 96)) < 0.7
    got = program.attention(q, k, v, mask).to_host()
    wide_q, wide_k, wide_v = (x.astype(np.float64) for x in (q, k, v))
    scores = wide_q @ wide_k.swapaxes(1, 2) / 8
    sizes = (np.abs(wide_q) @ np.abs(wide_k).swapaxes(1, 2)).max() / 8
    weights = softmax(np.where(mask, scores, -np.inf))
    # It rounds the scale times log2 e to float16, q times that, the weights, and the output.
    half = eps(np.float16) / 2
    error = 2 * (2 * half + 2 * sum_bound(64)) * sizes + 2 * half + 2 * sum_bound(96)
    assert np.all(np.abs(got - weights @ wide_v) <= error * (weights @ np.abs(wide_v)))


def test_integers(program: Any) -> None:
    """A sort, sums so far, and rows that are added to others."""
    rng = np.random.default_rng(5)
    x, rows = (rng.integers(-1000, 1000, shape).astype(np.int32) for shape in ((5, 60), (20, 32)))
    np.testing.assert_array_equal(program.sort(x).to_host(), np.sort(x, 1))
    np.testing.assert_array_equal(program.scan(x).to_host(), np.cumsum(x, 1))
    at = rng.integers(0, 8, (20, 1)).astype(np.int32)
    exact = np.ones((8, 32), np.int32)
    got = program.scatter(exact, rows, at).to_host()
    np.add.at(exact, at[:, 0], rows)
    np.testing.assert_array_equal(got, exact)


def test_a_loop_that_reads_the_device(program: Any) -> None:
    """27 takes 111 steps."""
    assert program.steps(np.array(27, np.int32)).to_host() == 111
