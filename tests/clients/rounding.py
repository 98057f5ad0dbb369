# SPDX-License-Identifier: MIT OR Apache-2.0
"""Bounds of rounding errors, from which the tests' tolerances are made."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

_FINFO: Any = ml_dtypes.finfo
U32 = 2.0**-24  # half an ulp of float32, relative


def eps(dtype: Any) -> float:
    """Distance from 1 to the next number."""
    return float(_FINFO(dtype).eps)


def smallest_normal(dtype: Any) -> float:
    """Return the smallest normal number: a device that flushes to 0 flushes only smaller ones."""
    return float(_FINFO(dtype).smallest_normal)


def draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Normal numbers without subnormal ones, which gfx90a's matrix unit takes for 0."""
    values = rng.standard_normal(shape).astype(dtype)
    values[np.abs(values.astype(np.float64)) < smallest_normal(dtype)] = 0
    return values


def sum_bound(count: int) -> float:
    """Error of a sum of `count` products, relative to the sum of their sizes: any order, float32."""
    return count * U32 / (1 - count * U32)


def ulp_bound(values: np.ndarray, dtype: Any) -> np.ndarray:
    """Error of rounding numbers of these sizes to nearest in `dtype`; none for what float32 holds already."""
    if np.dtype(dtype) == np.float32:
        return np.zeros_like(values)
    return np.maximum(values * eps(dtype) / 2, smallest_normal(dtype))
