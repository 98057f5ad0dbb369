# SPDX-License-Identifier: MIT OR Apache-2.0
"""The types of caches by vLLM's names."""

from __future__ import annotations

import functools

import torch

from pyfa_rocm._call.params import FP8
from pyfa_rocm.torch._serving import refusal

__all__ = ["cache_dtype", "fp8_dtype"]

# vLLM's names of a cache of 8-bit floats.
_FP8 = ("fp8", "fp8_e4m3")


@functools.cache
def fp8_dtype() -> torch.dtype | None:
    """Return the device's 8-bit float; None: it has none in caches."""
    for dtype in (getattr(torch, name) for name in FP8):
        if not refusal(128, 128, torch.bfloat16, dtype):
            return dtype
    return None


def cache_dtype(name: str | None, dtype: torch.dtype) -> torch.dtype:
    """Return the type of a cache that vLLM calls by this name, in a model of this type.

    Raises
    ------
    ValueError
        There is no such cache here; the message says which there are.
    """
    if name in (None, "auto") or getattr(torch, str(name), None) is dtype:
        return dtype
    fp8 = fp8_dtype()
    if name in _FP8 and fp8 is not None:
        return fp8
    there = ["auto", str(dtype).removeprefix("torch."), *(_FP8 if fp8 else ())]
    raise ValueError(f"kv_cache_dtype: got {name!r}, expected one of {', '.join(there)} on this device")
