# SPDX-License-Identifier: MIT OR Apache-2.0
"""bitsandbytes' kernels for ROCm: 8-bit and 4-bit types, products with 4-bit weights, and int8."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from clients.rounding import U32, draw, eps, sum_bound, ulp_bound
from clients.with_bitsandbytes.bitsandbytes_library import (
    DTYPES,
    FOUR_BIT,
    Array,
    call,
    dynamic_map,
    empty,
    on_device,
    packed,
    unpacked,
)

NAMES = tuple(DTYPES)
BLOCKS = [64, 128, 256, 512, 1024, 2048, 4096]


def check_codes(codes: Array, values: Array, book: Array) -> None:
    """Each code is that of the nearest value, or of one as near."""
    got = np.abs(book.astype(np.float64)[codes] - values)
    assert np.all(got <= np.abs(book.astype(np.float64) - values[:, None]).min(1) + 4 * U32)


def blocks_of(x: Array, size: int) -> Array:
    """Blocks of this size, the last one filled with zeros."""
    return np.pad(x.astype(np.float64), (0, -len(x) % size)).reshape(-1, size)


@pytest.mark.parametrize("size", BLOCKS)
@pytest.mark.parametrize("name", NAMES)
def test_quantize_8_bit(name: str, size: int) -> None:
    x = draw(np.random.default_rng(size), (2 * size + 37,), DTYPES[name])
    book, absmax, out = dynamic_map(signed=True), empty((3,), np.float32), empty(x.shape, np.uint8)
    call(f"cquantize_blockwise_{name}", on_device(book), on_device(x), absmax, out, size, len(x))
    blocks = blocks_of(x, size)
    np.testing.assert_array_equal(absmax.to_numpy(), np.abs(blocks).max(1))
    scaled = (blocks / np.abs(blocks).max(1, keepdims=True)).ravel()[: len(x)]
    check_codes(out.to_numpy(), scaled, book)


@pytest.mark.parametrize("size", [32, *BLOCKS])
@pytest.mark.parametrize("book", FOUR_BIT)
@pytest.mark.parametrize("name", NAMES)
def test_quantize_4_bit(name: str, book: str, size: int) -> None:
    """The number of elements is odd: half a byte is filled up."""
    x = draw(np.random.default_rng(size), (2 * size + 21,), DTYPES[name])
    absmax, out = empty((3,), np.float32), empty(((len(x) + 1) // 2,), np.uint8)
    call(f"cquantize_blockwise_{name}_{book}", None, on_device(x), absmax, out, size, len(x))
    blocks = blocks_of(x, size)
    np.testing.assert_array_equal(absmax.to_numpy(), np.abs(blocks).max(1))
    scaled = (blocks / np.abs(blocks).max(1, keepdims=True)).ravel()[: len(x) + 1]
    check_codes(unpacked(out.to_numpy()), scaled, FOUR_BIT[book])


@pytest.mark.parametrize("size", [64, 4096])
@pytest.mark.parametrize("book", ["dynamic", *FOUR_BIT])
@pytest.mark.parametrize("name", NAMES)
def test_dequantize(name: str, book: str, size: int) -> None:
    """The product of a code's value and its block's, rounded once to float32 and then to the type."""
    rng, count = np.random.default_rng(size), 4096 + 514
    values = dynamic_map(signed=True) if book == "dynamic" else FOUR_BIT[book]
    codes = rng.integers(0, len(values), count)
    absmax = rng.uniform(0.1, 10, -(count // -size)).astype(np.float32)
    out = empty((count,), DTYPES[name])
    data, suffix = (codes.astype(np.uint8), "") if book == "dynamic" else (packed(codes), f"_{book}")
    given = on_device(values) if book == "dynamic" else None
    call(
        f"cdequantize_blockwise_{name}{suffix}",
        given,
        on_device(data),
        on_device(absmax),
        out,
        size,
        count,
        None,
    )
    products = values[codes] * np.repeat(absmax, size)[:count]
    np.testing.assert_array_equal(out.to_numpy(), products.astype(DTYPES[name]))


def product_error(name: str, depth: int) -> float:
    """Bound the error of a product of `depth` elements, relative to the sum of their sizes.

    float32 sums. In the other types a weight's value, its scale, their product, that with the activation and
    sums of four may be rounded, and are on some arch.
    """
    return sum_bound(depth + 3) + (0 if name == "fp32" else 7 * eps(DTYPES[name]) / 2)


def check_product(out: Array, x: Array, weights: Array, bias: Array | float, name: str) -> None:
    exact, depth = x.astype(np.float64) @ weights.T + bias, x.shape[1]
    sizes = np.abs(x.astype(np.float64)) @ np.abs(weights).T
    error = product_error(name, depth) * sizes + 2 * U32 * np.abs(exact)
    assert np.all(np.abs(out - exact) <= error + ulp_bound(np.abs(exact) + error, DTYPES[name]))


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("book", FOUR_BIT)
@pytest.mark.parametrize("name", NAMES)
def test_product_with_4_bit_weights(name: str, book: str, rows: int, nested: bool) -> None:
    """Nested: the blocks' scales are 8-bit themselves, in blocks of 256, and have an offset."""
    rng, size, wide, depth = np.random.default_rng(rows), 64, 37, 1216
    x, bias = draw(rng, (rows, depth), DTYPES[name]), draw(rng, (wide,), DTYPES[name])
    codes = rng.integers(0, 16, (wide, depth))
    count, scales = wide * depth // size, dynamic_map(signed=False)
    absmax = rng.uniform(0.5, 2, count).astype(np.float32)
    given: list[Any] = [on_device(absmax), None, None, None]
    if nested:
        outer, inner = rng.uniform(0.5, 2, -(count // -256)).astype(np.float32), rng.integers(128, 256, count)
        offset = np.array([1.5], np.float32)
        absmax = scales[inner] * np.repeat(outer, 256)[:count] + offset
        given = [on_device(a) for a in (outer, inner.astype(np.uint8), scales, offset)]
    out = empty((rows, wide), DTYPES[name])
    arguments = [on_device(x), on_device(packed(codes)), *given, out, on_device(bias)]
    call(f"cgemm_4bit_{name}", *arguments, rows, wide, depth, size, list(FOUR_BIT).index(book) + 1, None)
    weights = FOUR_BIT[book].astype(np.float64)[codes] * np.repeat(absmax, size).reshape(wide, depth)
    check_product(out.to_numpy().astype(np.float64), x, weights, bias.astype(np.float64), name)


@pytest.mark.parametrize("name", NAMES)
def test_vector_with_4_bit_weights(name: str) -> None:
    rng, size, wide, depth = np.random.default_rng(3), 128, 37, 1152
    x, codes = draw(rng, (1, depth), DTYPES[name]), rng.integers(0, 16, (wide, depth))
    absmax = rng.uniform(0.5, 2, wide * depth // size).astype(np.float32)
    out = empty((1, wide), DTYPES[name])
    arrays = [x, packed(codes), absmax, FOUR_BIT["nf4"]]
    strides = (wide, depth // 2, wide)
    call(
        f"cgemm_4bit_inference_naive_{name}",
        wide,
        1,
        depth,
        *map(on_device, arrays),
        out,
        *strides,
        size,
        None,
    )
    weights = FOUR_BIT["nf4"].astype(np.float64)[codes] * np.repeat(absmax, size).reshape(wide, depth)
    check_product(out.to_numpy().astype(np.float64), x, weights, 0.0, name)


@pytest.mark.parametrize("threshold", [0.0, 2.0])
def test_int8_rows(threshold: float) -> None:
    """Elements that reach the threshold are 0, and do not count."""
    x = draw(np.random.default_rng(4), (3, 1500), np.float16)
    out, stats = empty(x.shape, np.int8), empty((3,), np.float32)
    call("cint8_vector_quant", on_device(x), out, stats, threshold, *x.shape, None)
    kept = np.where((np.abs(x) < threshold) | (threshold == 0), x, 0).astype(np.float64)
    largest = np.abs(kept).max(1)
    np.testing.assert_array_equal(stats.to_numpy(), largest)
    assert np.all(np.abs(out.to_numpy() - kept * 127 / largest[:, None]) <= 0.5 + 127 * 4 * U32)


@pytest.mark.parametrize("with_bias", [False, True])
def test_int32_to_fp16(with_bias: bool) -> None:
    rng, shape = np.random.default_rng(5), (7, 301)
    x = rng.integers(-100000, 100000, shape).astype(np.int32)
    rows, columns = (rng.uniform(0.1, 2, n).astype(np.float32) for n in shape)
    bias, out = draw(rng, shape[1:], np.float16), empty(shape, np.float16)
    given = on_device(bias) if with_bias else None
    arrays = [on_device(a) for a in (x, rows, columns)]
    call("cdequant_mm_int32_fp16", *arrays, out, given, *shape, None)
    scaled = x * rows.astype(np.float64)[:, None] * columns * np.float64(np.float32(6.200012e-05))
    exact = scaled + (bias.astype(np.float64) if with_bias else 0)
    error = 4 * U32 * np.abs(scaled) + U32 * np.abs(exact)
    assert np.all(np.abs(out.to_numpy() - exact) <= error + ulp_bound(np.abs(exact) + error, np.float16))
