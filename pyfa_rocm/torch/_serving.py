# SPDX-License-Identifier: MIT OR Apache-2.0
"""Serving engines ask here whether a kernel attends over a layer's cache, and for the cache's scales."""

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

__all__ = ["of_heads", "refusal"]


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


def of_heads(scale: torch.Tensor, nhead_k: int) -> torch.Tensor:
    """Return one scale, or one a head, as (1, nhead_k)."""
    return scale.detach().float().reshape(1, -1).expand(1, nhead_k).contiguous()
