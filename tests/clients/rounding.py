# SPDX-License-Identifier: MIT OR Apache-2.0
"""Bounds of rounding errors, from which the tests' tolerances are made."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

U32 = 2.0**-24  # half an ulp of float32, relative


def sum_bound(count: int) -> float:
    """Error of a sum of `count` products, relative to the sum of their sizes: any order, float32."""
    return count * U32 / (1 - count * U32)


def ulp_bound(values: np.ndarray, dtype: Any) -> np.ndarray:
    """Error of rounding numbers of these sizes to nearest in `dtype`; none for what float32 holds already."""
    if np.dtype(dtype) == np.float32:
        return np.zeros_like(values)
    info = ml_dtypes.finfo(dtype)
    # What the device flushes to 0 is smaller than the smallest normal number.
    return np.maximum(values * float(info.eps) / 2, float(info.smallest_normal))
