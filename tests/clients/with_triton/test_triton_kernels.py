# SPDX-License-Identifier: MIT OR Apache-2.0
"""Softmax, reductions, scans, sort and atomics in Triton, against NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import triton
import triton.language as tl
from clients.rounding import U32, sum_bound
from clients.with_triton import triton_driver
from clients.with_triton.triton_driver import Array

triton_driver.use()


@triton.jit
def softmax(x, out, columns, TILE: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, TILE)
    values = tl.load(x + row * columns + column, column < columns, -float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + column, powers / tl.sum(powers, 0), column < columns)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 64), (7, 781), (3, 4096)])
@pytest.mark.parametrize("warps", [1, 4])
def test_softmax(rows: int, columns: int, warps: int) -> None:
    x = np.random.default_rng(columns).normal(0, 4, (rows, columns)).astype(np.float32)
    out = Array(np.full_like(x, np.nan))
    softmax[rows,](Array(x), out, columns, TILE=max(triton.next_power_of_2(columns), 64), num_warps=warps)
    below = x.astype(np.float64) - x.max(1, keepdims=True)
    want = np.exp(below) / np.exp(below).sum(1, keepdims=True)
    # exp(x) is exp2 of x by log2(e): the difference, the constant and the product are rounded, which moves
    # the result by |x| each. exp2 and the quotient add an ulp or two. Subnormal numbers are 0.
    error = (3 * np.abs(below).max() + sum_bound(columns) / U32 + 8) * U32
    got = out.numpy()
    assert np.all(np.abs(got - want) <= error * want + np.finfo(np.float32).tiny)


@triton.jit
def reductions(x, sums, most, where, least, bits, columns, TILE: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, TILE)
    inside = column < columns
    at = x + row * columns + column
    tl.store(sums + row, tl.sum(tl.load(at, inside, 0), 0))
    tl.store(least + row, tl.min(tl.load(at, inside, 2**31 - 1), 0))
    values = tl.load(at, inside, -(2**31))
    tl.store(most + row, tl.max(values, 0))
    tl.store(where + row, tl.argmax(values, 0))
    tl.store(bits + row, tl.xor_sum(tl.load(at, inside, 0), 0))


@pytest.mark.parametrize("columns", [33, 1000])
@pytest.mark.parametrize("warps", [1, 8])
def test_reductions(columns: int, warps: int) -> None:
    x = np.random.default_rng(1).integers(-(2**20), 2**20, (6, columns)).astype(np.int32)
    x[:, columns // 2 :] = x[:, : columns - columns // 2]  # twice the same: argmax takes the first
    results = [Array(np.zeros(6, np.int32)) for _ in range(5)]
    reductions[6,](Array(x), *results, columns, TILE=triton.next_power_of_2(columns), num_warps=warps)
    wants = (x.sum(1), x.max(1), x.argmax(1), x.min(1), np.bitwise_xor.reduce(x, 1))
    for got, want in zip(results, wants, strict=True):
        np.testing.assert_array_equal(got.numpy(), want)


@triton.jit
def float_sum(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, AXIS: tl.constexpr):
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    values = tl.load(x + rows[:, None] * COLUMNS + columns[None, :])
    tl.store(out + (columns if AXIS == 0 else rows), tl.sum(values, AXIS))


@pytest.mark.parametrize("axis", [0, 1])
def test_sum_of_floats(axis: int) -> None:
    x = np.random.default_rng(2).standard_normal((64, 128)).astype(np.float32)
    out = Array(np.zeros(x.shape[1 - axis], np.float32))
    float_sum[1,](Array(x), out, ROWS=64, COLUMNS=128, AXIS=axis)
    exact = x.astype(np.float64)
    error = np.abs(out.numpy() - exact.sum(axis))
    assert np.all(error <= sum_bound(x.shape[axis]) * np.abs(exact).sum(axis))


@triton.jit
def order(x, ascending, descending, running, counts, TILE: tl.constexpr, BINS: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    values = tl.load(x + at)
    tl.store(ascending + at, tl.sort(values))
    tl.store(descending + at, tl.sort(values, descending=True))
    tl.store(running + at, tl.cumsum(values, 0))
    bins = tl.arange(0, BINS)
    tl.store(counts + tl.program_id(0) * BINS + bins, tl.histogram(values & (BINS - 1), BINS))


@pytest.mark.parametrize("size", [64, 512])
@pytest.mark.parametrize("warps", [1, 4])
def test_sort_scan_and_histogram(size: int, warps: int) -> None:
    x = np.random.default_rng(size).integers(-1000, 1000, (3, size)).astype(np.int32)
    ascending, descending, running = (Array(np.zeros_like(x)) for _ in range(3))
    counts = Array(np.zeros((3, 32), np.int32))
    order[3,](Array(x), ascending, descending, running, counts, TILE=size, BINS=32, num_warps=warps)
    np.testing.assert_array_equal(ascending.numpy(), np.sort(x, 1))
    np.testing.assert_array_equal(descending.numpy(), np.sort(x, 1)[:, ::-1])
    np.testing.assert_array_equal(running.numpy(), np.cumsum(x, 1))
    np.testing.assert_array_equal(counts.numpy(), [np.bincount(row & 31, minlength=32) for row in x])


@triton.jit
def atomics(x, total, most, least, float_total, taken, lock, guarded, n, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    values = tl.load(x + at, at < n, 0)
    slot = at % 4
    tl.atomic_add(total + slot, values, at < n)
    tl.atomic_max(most + slot, values, at < n)
    tl.atomic_min(least + slot, values, at < n)
    tl.atomic_add(float_total + slot, values.to(tl.float32), at < n)
    # A ticket for each workgroup, and a lock around something that is no atomic.
    tl.store(taken + tl.atomic_add(lock + 1, 1), tl.program_id(0))
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(guarded, tl.load(guarded, volatile=True) + 1)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


def test_atomics() -> None:
    tile, n = 128, 1000
    groups = math.ceil(n / tile)
    x = np.random.default_rng(4).integers(-(2**10), 2**10, n).astype(np.int32)
    total, most, least = (Array(np.full(4, start, np.int32)) for start in (0, -(2**31), 2**31 - 1))
    float_total, taken = Array(np.zeros(4, np.float32)), Array(np.full(groups, -1, np.int32))
    lock, guarded = Array(np.zeros(2, np.int32)), Array(np.zeros(1, np.int32))
    atomics[groups,](Array(x), total, most, least, float_total, taken, lock, guarded, n, TILE=tile)
    slots = x.reshape(-1, 4)
    np.testing.assert_array_equal(total.numpy(), slots.sum(0))
    np.testing.assert_array_equal(most.numpy(), slots.max(0))
    np.testing.assert_array_equal(least.numpy(), slots.min(0))
    np.testing.assert_array_equal(float_total.numpy(), slots.sum(0))  # below 2^24: exact in any order
    np.testing.assert_array_equal(np.sort(taken.numpy()), np.arange(groups))
    np.testing.assert_array_equal(lock.numpy(), [0, groups])
    assert guarded.numpy()[0] == groups
