# SPDX-License-Identifier: MIT OR Apache-2.0
"""pyfa_rocm for PyTorch: attention as torch operators, right under torch.compile, torch.export and capture.

`flash_attn_func`, `flash_attn_varlen_func` and, over KV caches, `flash_attn_with_kvcache` take and return
torch tensors, as do `flash_attn_kv_append` and `flash_attn_merge`; `sdpa` has the arguments of
``torch.nn.functional.scaled_dot_product_attention``, and `FlashAttention` is a module.

Tensors on a ROCm device are used where they are, on the current stream, without a copy or a wait. Without a
card, CPU tensors run on the software device: their memory is registered with it for the length of the call,
and the call waits until its work is done.

A call on a card takes the host some 15 microseconds: 6 in torch's dispatcher, 2 in its allocator. In a
captured graph it takes none.
"""

try:
    import torch as _torch
except ImportError as error:
    raise ImportError(
        "pyfa_rocm.torch needs PyTorch 2.6 or newer: pip install torch (for a card, a build for ROCm)"
    ) from error

from pyfa_rocm.torch._module import FlashAttention
from pyfa_rocm.torch._sdpa import sdpa
from pyfa_rocm.torch.functional import flash_attn_func, flash_attn_varlen_func
from pyfa_rocm.torch.kvcache import flash_attn_kv_append, flash_attn_merge, flash_attn_with_kvcache

del _torch

__all__ = [
    "FlashAttention",
    "flash_attn_func",
    "flash_attn_kv_append",
    "flash_attn_merge",
    "flash_attn_varlen_func",
    "flash_attn_with_kvcache",
    "sdpa",
]
