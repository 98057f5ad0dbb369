# SPDX-License-Identifier: MIT OR Apache-2.0
"""Results are compared with float64, and with ONNX Runtime's own provider."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
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


def rotated(x: Array, first: int, cos: Array, sin: Array, interleaved: bool) -> Array:
    """The tokens of (seqlen, nhead, hdim) turned, the first one at position `first`; rounded to x's type."""
    half = cos.shape[1]
    at = slice(first, first + x.shape[0])
    c, s = (table[at, None].astype(np.float64) for table in (cos, sin))
    wide = x.astype(np.float64)
    if interleaved:
        low, high = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    else:
        low, high = slice(0, half), slice(half, 2 * half)
    a, b = wide[..., low], wide[..., high]
    result = wide.copy()
    result[..., low], result[..., high] = a * c - b * s, b * c + a * s
    return np.asarray(result, x.dtype)


def assert_within_ulp(got: Array, want: Array) -> None:
    """A rotation in float32 rounds to the nearest number or, rarely, to its neighbour."""
    off = np.abs(got.astype(np.float64) - want)
    # A difference that nearly cancels keeps the error of its float32 terms.
    assert (off <= reference.ulp(want, got.dtype.name) + 8 * 2.0**-24).all(), float(off.max())


def window_of(size: int) -> tuple[int, int]:
    """The window of `local_window_size`. From ONNX Runtime 1.24 on it counts the query's own key."""
    own = 1 if tuple(map(int, ort.__version__.split(".")[:2])) >= (1, 24) else 0
    return (size - own, 0) if size > 0 else (-1, -1)


def with_sinks(want: reference.Expected, sinks: Array) -> reference.Expected:
    """Attention whose softmax has one more logit a head, which weighs nothing."""
    weight = 1 / (1 + np.exp(sinks.astype(np.float64)[None, :, None] - want.lse))
    return replace(want, o=want.o * weight.transpose(0, 2, 1)[..., None])
