# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention with NumPy and nothing else: arrays go to the device and back as `DeviceArray`."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from check import Array, finish, is_right, say_what_runs

import pyfa_rocm as fa

rng = np.random.default_rng(1)


def random(*shape: int) -> Array:
    """Normal numbers in bfloat16, which is a NumPy type here (ml_dtypes)."""
    return rng.standard_normal(shape, np.float32).astype(fa.bfloat16)


def batch() -> bool:
    """(batch, seqlen, nhead, hdim): 4 query heads on 2 key heads, causal, then in a window."""
    q, k, v = random(2, 60, 4, 128), random(2, 90, 2, 128), random(2, 90, 2, 128)
    dq, dk, dv = (fa.DeviceArray.from_numpy(x) for x in (q, k, v))
    right = True
    for what, window in (("causal", (-1, 0)), ("window", (20, 0))):
        o, lse = fa.flash_attn_func(dq, dk, dv, window_size=window, return_lse=True)
        # to_numpy waits for the kernel.
        right &= is_right(what, q, k, v, o.to_numpy(), lse.to_numpy(), window)
    return right


def packed() -> bool:
    """Sequences of different lengths, one after the other, in one call."""
    lengths = (40, 7, 65)
    starts = np.cumsum((0, *lengths), dtype=np.int32)
    q, k, v = (random(sum(lengths), heads, 128) for heads in (4, 2, 2))
    cu_seqlens = fa.DeviceArray.from_numpy(starts)
    dq, dk, dv = (fa.DeviceArray.from_numpy(x) for x in (q, k, v))
    o, lse = fa.flash_attn_varlen_func(
        dq, dk, dv, cu_seqlens, cu_seqlens, max(lengths), max(lengths), causal=True, return_lse=True
    )
    o_host, lse_host = o.to_numpy(), lse.to_numpy()  # (total, nhead, hdim) and (nhead, total)
    right = True
    for first, end in pairwise(starts.tolist()):
        q1, k1, v1, o1 = (x[None, first:end] for x in (q, k, v, o_host))
        right &= is_right(f"packed, {end - first}", q1, k1, v1, o1, lse_host[None, :, first:end], (-1, 0))
    return right


if __name__ == "__main__":
    say_what_runs()
    finish(batch() & packed())
