# SPDX-License-Identifier: MIT OR Apache-2.0
"""A small problem over a KV cache: pages out of order, ALiBi, softcap, and 8 bits where a device has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pyfa_rocm.array import DeviceArray, dtype_of
from pyfa_rocm.device import current_device, describe
from pyfa_rocm.kvcache import flash_attn_with_kvcache
from pyfa_rocm.oracle.reference import attention, largest_share
from pyfa_rocm.oracle.rounding import fp8_of, numerics_of

Array = npt.NDArray[Any]
HDIM, NHEAD_Q, NHEAD_K, PAGE_SIZE = 128, 4, 2, 16
SEQLEN_Q = 3
LENGTHS = (150, 37)  # of the sequences, their queries included
_DTYPE = "float16"
_SCALES = (0.5, 2.0)  # of keys and values in 8 bits
_SOFTCAP = 20.0
_SLOPES = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)


def cache_dtype() -> str:
    """The type of the cache: this device's 8-bit float, or float16."""
    return fp8_of(describe(current_device()).arch) or _DTYPE


def _pages(rng: np.random.Generator, dtype: str) -> tuple[Array, Array, Array]:
    """Return K's and V's pages, all of them written, and the block table."""
    counts = [-(-length // PAGE_SIZE) for length in LENGTHS]
    shape = (sum(counts), PAGE_SIZE, NHEAD_K, HDIM)
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
    dtype, rng = cache_dtype(), np.random.default_rng(11)
    k, v, table = _pages(rng, dtype)
    q = rng.standard_normal((len(LENGTHS), SEQLEN_Q, NHEAD_Q, HDIM), np.float32).astype(dtype_of(_DTYPE))
    scales = (1.0, 1.0) if dtype == _DTYPE else _SCALES
    options: dict[str, Any] = {"causal": True, "softcap": _SOFTCAP}
    put = DeviceArray.from_numpy
    scale_options: dict[str, Any] = {}
    if dtype != _DTYPE:
        scale_options = {
            name: put(np.full((len(LENGTHS), NHEAD_K), scale, np.float32))
            for name, scale in zip(("k_scale", "v_scale"), scales, strict=True)
        }
    out, lse = flash_attn_with_kvcache(
        put(q), put(k), put(v), cache_seqlens=put(np.array(LENGTHS, np.int32)), block_table=put(table),
        alibi_slopes=put(_SLOPES), return_softmax_lse=True, **scale_options, **options,
    )  # fmt: skip
    got, got_lse = out.to_numpy(), lse.to_numpy()
    numerics = numerics_of(_DTYPE, None, 128, describe(current_device()).arch)
    worst = [0.0, 0.0]
    for b, length in enumerate(LENGTHS):
        keys, values = (
            x[table[b]].reshape(-1, NHEAD_K, HDIM)[None, :length].astype(np.float64) * scale
            for x, scale in zip((k, v), scales, strict=True)
        )
        want = attention(q[b : b + 1], keys, values, alibi_slopes=_SLOPES, numerics=numerics, **options)
        shares = (
            largest_share(got[b : b + 1], want.o, want.o_tolerance),
            largest_share(got_lse[b : b + 1], want.lse, want.lse_tolerance),
        )
        worst = [float(np.maximum(old, share)) for old, share in zip(worst, shares, strict=True)]
    return worst[0], worst[1]
