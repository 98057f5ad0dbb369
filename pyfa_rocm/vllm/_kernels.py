# SPDX-License-Identifier: MIT OR Apache-2.0
"""Asks the C library which layers have kernels on the current device, without a launch."""

from __future__ import annotations

import functools

import torch

from pyfa_rocm._call.cached import CachedOptions, cached_call
from pyfa_rocm._call.params import Options
from pyfa_rocm._runtime.tensor import contiguous
from pyfa_rocm.array import DeviceArray
from pyfa_rocm.device import current_device
from pyfa_rocm.errors import FmhaError
from pyfa_rocm.fmha import fmha_decode_supported
from pyfa_rocm.torch._tensors import dtype_name

__all__ = ["cache_dtype", "fp8_dtype", "refusal"]

# vLLM's names of a cache of 8-bit floats.
_FP8 = ("fp8", "fp8_e4m3")


@functools.cache
def fp8_dtype() -> torch.dtype | None:
    """Return the device's 8-bit float; None: it has none in caches."""
    for dtype in (torch.float8_e4m3fnuz, torch.float8_e4m3fn):
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


@functools.cache
def refusal(hdim: int, hdim_v: int, dtype: torch.dtype, cache: torch.dtype, block_size: int = 16) -> str:
    """Return why no kernel attends over such a cache, with what there is; "" if one does."""
    device = current_device()
    q, held = dtype_name(dtype), dtype_name(cache)
    layouts = {
        "out": contiguous((1, 1, hdim_v), q, device),
        "q": contiguous((1, 1, hdim), q, device),
        "k_cache": contiguous((1, block_size, 1, hdim), held, device),
        "v_cache": contiguous((1, block_size, 1, hdim_v), held, device),
    }
    layouts |= {
        name: contiguous(shape, "int32", device)
        for name, shape in (("block_table", (1, 1)), ("cache_seqlens", (1,)), ("cu_seqlens_q", (2,)))
    }
    try:
        arrays = {name: DeviceArray.empty(x.shape, x.dtype, device=device) for name, x in layouts.items()}
        call = cached_call(layouts, Options(causal=True), CachedOptions(max_seqlen_q=1), layouts.pop("out"))
        fmha_decode_supported(call.at({name: x.data for name, x in arrays.items()}))
    except FmhaError as error:
        return str(error)
    return ""
