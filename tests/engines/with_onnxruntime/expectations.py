# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results are compared with float64, and with ONNX Runtime's own provider."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import reference

Array = npt.NDArray[Any]

SIZES = (1, 2, 3, 7, 16, 17, 31, 64, 67, 97, 128)  # one, primes, and sizes of tiles
# ONNX Runtime computes in float32 with its own order of sums, and its exp is off by a few ulp.
CPU_ERROR = 2.0**-17


def randoms(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Normally distributed numbers."""
    return rng.standard_normal(shape, np.float32).astype(dtype)


def pick(rng: np.random.Generator, *values: Any) -> Any:
    """One of the values."""
    return values[int(rng.integers(len(values)))]


def split_heads(x: Array, heads: int) -> Array:
    """(B, S, N H) as (B, S, N, H)."""
    return x.reshape(*x.shape[:2], heads, -1)


def heads_first(x: Array) -> Array:
    """(B, S, N, H) as (B, N, S, H), or back."""
    return np.ascontiguousarray(x.transpose(0, 2, 1, 3))


def judge(got: Array, want: reference.Expected, cpu: Array | None = None) -> None:
    """`got` is (batch, seqlen, nhead, hdim)."""
    assert got.shape == want.o.shape
    off = np.abs(got.astype(np.float64) - want.o)
    worst = np.unravel_index(np.argmax(off - want.o_tolerance), off.shape)
    assert (off <= want.o_tolerance).all(), f"{worst}: {got[worst]}, expected {want.o[worst]}"
    if cpu is not None:
        cpu = cpu.reshape(got.shape)
        off = np.abs(got.astype(np.float64) - cpu)
        bound = want.o_tolerance + CPU_ERROR * (1 + np.abs(want.o))
        worst = np.unravel_index(np.argmax(off - bound), off.shape)
        assert (off <= bound).all(), f"{worst}: {got[worst]}, ONNX Runtime has {cpu[worst]}"
