# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random matrix products in Triton, against float64."""

from __future__ import annotations

import itertools
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import triton
import triton.language as tl
from clients.rounding import draw, sum_bound, ulp_bound
from clients.with_triton import triton_driver
from clients.with_triton.triton_driver import Array

triton_driver.use()

# gfx942's matrix unit has the fp8 types without a negative zero, gfx1201's has the others. Triton converts
# types that a unit lacks.
OPERANDS = {
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float32": np.float32,
    "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}


@triton.jit
def matmul(
    a, b, c, m, n, k,
    a_row, a_column, b_row, b_column,
    TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    columns = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    inner = tl.arange(0, TILE_K)
    total = tl.zeros((TILE_M, TILE_N), tl.float32)
    for start in range(0, k, TILE_K):
        at = start + inner
        x = tl.load(
            a + rows[:, None] * a_row + at[None, :] * a_column,
            (rows[:, None] < m) & (at[None, :] < k),
            0.0,
        )
        y = tl.load(
            b + at[:, None] * b_row + columns[None, :] * b_column,
            (at[:, None] < k) & (columns[None, :] < n),
            0.0,
        )
        total = tl.dot(x, y, total, input_precision=PRECISION)
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * n + columns[None, :], total.to(c.dtype.element_ty), inside)


def check(seed: int, operand: Any, precision: str = "ieee") -> None:
    rng = np.random.default_rng(seed)
    m, n, k = (int(x) for x in rng.integers(1, 150, 3))
    tile_m, tile_n, tile_k = (int(16 << rng.integers(most)) for most in (4, 3, 3))
    # Each stage keeps both tiles in LDS, of which there are 64 KiB.
    most_stages = 65536 // ((tile_m + tile_n) * tile_k * np.dtype(operand).itemsize)
    half = np.float16 if operand == np.float16 else ml_dtypes.bfloat16
    out_dtype = np.float32 if rng.integers(2) else half
    a, b = draw(rng, (m, k), operand), draw(rng, (k, n), operand)
    transposed = bool(rng.integers(2))
    b_memory = np.ascontiguousarray(b.T) if transposed else b
    c = Array(np.full((m, n), np.nan, out_dtype))
    matmul[triton.cdiv(m, tile_m), triton.cdiv(n, tile_n)](
        Array(a), Array(b_memory), c, m, n, k,
        k, 1, *((1, k) if transposed else (n, 1)),
        TILE_M=tile_m, TILE_N=tile_n, TILE_K=tile_k, PRECISION=precision,
        num_warps=int(rng.choice((1, 2, 4, 8))), num_stages=min(int(rng.choice((1, 2, 3))), most_stages),
    )  # fmt: skip
    exact_a, exact_b = a.astype(np.float64), b.astype(np.float64)
    want, size = exact_a @ exact_b, np.abs(exact_a) @ np.abs(exact_b)
    # tf32 keeps 10 bits of each factor, rounded to nearest or cut off.
    factors = 2 * 2.0**-10 if precision == "tf32" else 0
    bound = (sum_bound(k + tile_k) + factors) * size
    bound += ulp_bound(np.abs(want) + bound, out_dtype)
    got = c.numpy().astype(np.float64)
    worst = float(np.max(np.abs(got - want) / np.maximum(bound, np.finfo(float).tiny)))
    assert worst <= 1, f"{m} x {n} x {k}, tiles {tile_m} {tile_n} {tile_k}: {worst} of the bound"


@pytest.mark.parametrize(("operand", "seed"), list(itertools.product(OPERANDS, range(8))))
def test_matmul(operand: str, seed: int) -> None:
    check(seed, OPERANDS[operand])


@pytest.mark.skipif(triton_driver.arch() != "gfx942", reason="only gfx942's matrix unit has xf32")
@pytest.mark.parametrize("seed", range(4))
def test_matmul_of_rounded_factors(seed: int) -> None:
    """The matrix unit's xf32 does it; Triton refuses it elsewhere."""
    check(seed, np.float32, "tf32")


# Triton's instruction for a product of 64 x 64 x 64 by four waves.
INSTRUCTIONS = {
    "gfx942": {
        "float16": "v_mfma_f32_32x32x8_f16",
        "bfloat16": "v_mfma_f32_32x32x8_bf16",
        "float32": "v_mfma_f32_32x32x2_f32",
        "float8_e4m3fnuz": "v_mfma_f32_32x32x16_fp8_fp8",
        "float8_e5m2fnuz": "v_mfma_f32_32x32x16_bf8_bf8",
        "float8_e5m2": "v_mfma_f32_32x32x8_f16",
    },
    "gfx90a": {
        "float16": "v_mfma_f32_32x32x8f16",
        "bfloat16": "v_mfma_f32_32x32x8bf16_1k",
        "float32": "v_mfma_f32_32x32x2f32",
    },
    "gfx1100": {
        "float16": "v_wmma_f32_16x16x16_f16",
        "bfloat16": "v_wmma_f32_16x16x16_bf16",
    },
    "gfx1201": {
        "float16": "v_wmma_f32_16x16x16_f16",
        "bfloat16": "v_wmma_f32_16x16x16_bf16",
        "float8_e4m3fn": "v_wmma_f32_16x16x16_fp8_fp8",
        "float8_e5m2": "v_wmma_f32_16x16x16_bf8_bf8",
    },
}[triton_driver.arch()]


@pytest.mark.parametrize("operand", INSTRUCTIONS)
def test_the_matrix_unit(operand: str) -> None:
    """Products and sums of these numbers are exact, so every element has one right value."""
    a, b = (np.random.default_rng(n).integers(-4, 5, (64, 64)).astype(OPERANDS[operand]) for n in (0, 1))
    c = Array(np.full((64, 64), np.nan, np.float32))
    kernel = matmul[1, 1](
        Array(a), Array(b), c, 64, 64, 64, 64, 1, 64, 1,
        TILE_M=64, TILE_N=64, TILE_K=64, PRECISION="ieee", num_warps=4,
    )  # fmt: skip
    assert set(re.findall(r"v_(?:mfma|wmma)\w+", kernel.asm["amdgcn"])) == {INSTRUCTIONS[operand]}
    np.testing.assert_array_equal(c.numpy(), a.astype(np.float32) @ b.astype(np.float32))
