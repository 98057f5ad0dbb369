# SPDX-License-Identifier: MIT OR Apache-2.0
"""A small problem over a KV cache: pages out of order, ALiBi, softcap, and 8 bits where a device has them."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyfa_rocm.device import current_device, describe
from pyfa_rocm.kvcache import flash_attn_with_kvcache
from pyfa_rocm.oracle.paged import Pool
from pyfa_rocm.oracle.params import options_on_device, put
from pyfa_rocm.oracle.problem import Problem
from pyfa_rocm.oracle.reference import attention
from pyfa_rocm.oracle.rounding import fp8_of, numerics_of
from pyfa_rocm.oracle.shares import raise_shares

LENGTHS = (150, 37)  # of the sequences, their queries included
PROBLEM = Problem(
    2, 4, 2, 3, 128, True, "float16", 11, max(LENGTHS), softcap=20.0, alibi_slopes=(0.5, 0.25, 0.125, 0.0625)
)


def cache_dtype() -> str:
    """The type of the cache: this device's 8-bit float, or float16."""
    return fp8_of(describe(current_device()).arch) or PROBLEM.dtype


def errors() -> tuple[float, float]:
    """Run it: the largest distances of O and LSE from float64, as fractions of the element's tolerance.

    Raises
    ------
    UnsupportedError
        The library has no kernel for it; nothing was run.
    """
    rng = np.random.default_rng(PROBLEM.seed)
    pool = Pool(rng, LENGTHS, PROBLEM.nhead_k, (PROBLEM.hdim, PROBLEM.hdim), cache_dtype())
    k, v, table, *scales = pool.held
    scale_options: dict[str, Any] = (
        dict(zip(("k_scale", "v_scale"), scales, strict=True)) if pool.scaled else {}
    )
    q = PROBLEM.inputs()[0]
    out, lse = flash_attn_with_kvcache(
        put(q), k, v, cache_seqlens=put(np.array(LENGTHS, np.int32)), block_table=table,
        return_softmax_lse=True, **scale_options, **options_on_device(PROBLEM),
    )  # fmt: skip
    numerics = numerics_of(PROBLEM.dtype, None, 128, describe(current_device()).arch)
    shares = {"o": 0.0, "lse": 0.0}
    for b, length in enumerate(LENGTHS):
        keys, values = (pool.sequence(which, b, length) for which in (0, 1))
        want = attention(q[b : b + 1], keys, values, numerics=numerics, **PROBLEM.options())
        raise_shares(shares, "o", out.to_numpy()[b : b + 1], want.o, want.o_tolerance)
        raise_shares(shares, "lse", lse.to_numpy()[b : b + 1], want.lse, want.lse_tolerance)
    return shares["o"], shares["lse"]
