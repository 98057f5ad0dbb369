# SPDX-License-Identifier: MIT OR Apache-2.0
"""A small problem over a KV cache: pages out of order, ALiBi, softcap, and 8 bits where a device has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pyfa_rocm.array import DeviceArray, dtype_of
from pyfa_rocm.device import current_device, describe
from pyfa_rocm.kvcache import flash_attn_with_kvcache
from pyfa_rocm.oracle.params import options_on_device
from pyfa_rocm.oracle.problem import Problem
from pyfa_rocm.oracle.reference import attention, largest_share
from pyfa_rocm.oracle.rounding import fp8_of, numerics_of

Array = npt.NDArray[Any]
LENGTHS = (150, 37)  # of the sequences, their queries included
PROBLEM = Problem(
    2, 4, 2, 3, 128, True, "float16", 11, max(LENGTHS), softcap=20.0, alibi_slopes=(0.5, 0.25, 0.125, 0.0625)
)
PAGE_SIZE = 16
_SCALES = (0.5, 2.0)  # of keys and values in 8 bits


def cache_dtype() -> str:
    """The type of the cache: this device's 8-bit float, or float16."""
    return fp8_of(describe(current_device()).arch) or PROBLEM.dtype


def _pages(rng: np.random.Generator, dtype: str) -> tuple[Array, Array, Array]:
    """Return K's and V's pages, all of them written, and the block table."""
    counts = [-(-length // PAGE_SIZE) for length in LENGTHS]
    shape = (sum(counts), PAGE_SIZE, PROBLEM.nhead_k, PROBLEM.hdim)
    k, v = (rng.standard_normal(shape, np.float32).astype(dtype_of(dtype)) for _ in range(2))
    order = rng.permutation(shape[0]).astype(np.int32)
    table = np.zeros((len(LENGTHS), max(counts)), np.int32)
    for row, first, count in zip(table, np.cumsum([0, *counts[:-1]]), counts, strict=True):
        row[:count] = order[first : first + count]
    return k, v, table


def errors() -> tuple[float, float]:
    """Run it: the largest distances of O and LSE from float64, as fractions of the element's tolerance.

    Raises
    ------
    UnsupportedError
        The library has no kernel for it; nothing was run.
    """
    dtype, rng = cache_dtype(), np.random.default_rng(PROBLEM.seed)
    k, v, table = _pages(rng, dtype)
    q = rng.standard_normal(PROBLEM.q_shape, np.float32).astype(dtype_of(PROBLEM.dtype))
    scales = (1.0, 1.0) if dtype == PROBLEM.dtype else _SCALES
    put = DeviceArray.from_numpy
    scale_options: dict[str, Any] = {}
    if dtype != PROBLEM.dtype:
        scale_options = {
            name: put(np.full((PROBLEM.batch, PROBLEM.nhead_k), scale, np.float32))
            for name, scale in zip(("k_scale", "v_scale"), scales, strict=True)
        }
    out, lse = flash_attn_with_kvcache(
        put(q), put(k), put(v), cache_seqlens=put(np.array(LENGTHS, np.int32)), block_table=put(table),
        return_softmax_lse=True, **scale_options, **options_on_device(PROBLEM),
    )  # fmt: skip
    got, got_lse = out.to_numpy(), lse.to_numpy()
    numerics = numerics_of(PROBLEM.dtype, None, 128, describe(current_device()).arch)
    worst = [0.0, 0.0]
    for b, length in enumerate(LENGTHS):
        keys, values = (
            x[table[b]].reshape(-1, *x.shape[2:])[None, :length].astype(np.float64) * scale
            for x, scale in zip((k, v), scales, strict=True)
        )
        want = attention(q[b : b + 1], keys, values, numerics=numerics, **PROBLEM.options())
        shares = (
            largest_share(got[b : b + 1], want.o, want.o_tolerance),
            largest_share(got_lse[b : b + 1], want.lse, want.lse_tolerance),
        )
        worst = [float(np.maximum(old, share)) for old, share in zip(worst, shares, strict=True)]
    return worst[0], worst[1]
