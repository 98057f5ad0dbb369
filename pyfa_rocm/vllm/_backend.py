# SPDX-License-Identifier: MIT OR Apache-2.0
"""The backend's answers to vLLM: which layers it can do, and which classes do them."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.torch._serving import refusal
from pyfa_rocm.vllm import _kernels, _versions

# UnsupportedError, since vLLM keeps the text of an ImportError to itself.
if _refused := _versions.refusal():
    raise UnsupportedError(_refused)

from vllm.v1.attention.backend import AttentionBackend, AttentionType, MultipleOf

from pyfa_rocm.vllm._impl import Impl
from pyfa_rocm.vllm._metadata import Builder

__all__ = ["BLOCK_SIZES", "CACHE_DTYPES", "Backend"]

# A page has a power of two of tokens. vLLM splits blocks of another size into pages.
BLOCK_SIZES: list[int | MultipleOf] = [16, 32, 64, 128, 256, MultipleOf(512)]
CACHE_DTYPES = ["auto", "float16", "bfloat16", "fp8", "fp8_e4m3"]


class Backend(AttentionBackend):
    """Attention with keys and values of heads; `_latent.LatentBackend` is that of latent attention.

    It has no cascade attention, as vLLM's newest versions have none: their common prefix is always 0.
    """

    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16]
    supported_kv_cache_dtypes: ClassVar[list[str]] = CACHE_DTYPES
    forward_includes_kv_cache_update = False

    @staticmethod
    def get_name() -> str:
        """Return the name by which a user asks for it."""
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[Impl]:
        """Return the class of a layer's attention."""
        return Impl

    @staticmethod
    def get_builder_cls() -> type[Builder]:
        """Return the class that describes a step."""
        return Builder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[int | MultipleOf]:
        """Return the tokens that a page may have."""
        return BLOCK_SIZES

    @classmethod
    def supported_kv_cache_layouts(cls) -> None:
        """Return None: kernels take strides, so any layout is read and written where it lies."""
        return

    @classmethod
    def supports_attn_type(cls, attn_type: str) -> bool:
        """Return whether it has decoders, encoders and cross attention; it has them all."""
        return attn_type in tuple(AttentionType)

    @classmethod
    def supports_sink(cls) -> bool:
        """Return whether heads may have sinks."""
        return True

    @classmethod
    def supports_sliding_window(cls) -> bool:
        """Return whether layers may have windows."""
        return True

    @classmethod
    def supports_non_causal(cls) -> bool:
        """Return whether a decoder may see what follows."""
        return True

    @classmethod
    def supports_per_head_quant_scales(cls) -> bool:
        """Return whether each head of an 8-bit cache may have its own scales."""
        return True

    @classmethod
    def supports_combination(
        cls,
        head_size: int,
        dtype: torch.dtype,
        kv_cache_dtype: str | None,
        block_size: int | None,
        use_mla: bool,
        has_sink: bool,
        use_sparse: bool,
        use_mm_prefix: bool,
        device_capability: Any,
    ) -> str | None:
        """Return why no kernel of this device does a layer, or None."""
        if use_mla:
            return "layers of latent attention need PYFA_ROCM_VLLM_MLA=1 and --attention-backend TRITON_MLA"
        try:
            held = _kernels.cache_dtype(kv_cache_dtype, dtype)
        except ValueError as error:
            return str(error)
        return refusal(head_size, head_size, dtype, held) or None
