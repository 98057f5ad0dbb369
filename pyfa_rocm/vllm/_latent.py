# SPDX-License-Identifier: MIT OR Apache-2.0
"""Latent attention (DeepSeek's MLA) in vLLM: a row of the cache for each token, which begins with the value.

A sequence can decode: vLLM multiplies its queries and outputs by what it has absorbed of the projections,
and `LatentImpl` attends to the rows of the cache. Or it can prefill: vLLM makes keys and values of heads out
of the rows, and `Prefill` attends to those. That takes less than a third of the operations, and a forward
kernel for these head dims. Without one, whole prompts decode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.torch import flash_attn_kv_append, flash_attn_varlen_func, flash_attn_with_kvcache
from pyfa_rocm.torch._serving import of_heads, refusal
from pyfa_rocm.vllm import _kernels
from pyfa_rocm.vllm._backend import BLOCK_SIZES, CACHE_DTYPES

# isort: split
from vllm.model_executor.layers.attention.mla_attention import (
    MLACommonBackend,
    MLACommonDecodeMetadata,
    MLACommonImpl,
    MLACommonMetadata,
    MLACommonMetadataBuilder,
    QueryLenSupport,
)
from vllm.v1.attention.backend import AttentionCGSupport, MultipleOf
from vllm.v1.attention.backends.mla.prefill.base import MLAPrefillBackend

__all__ = ["LatentBackend", "LatentBuilder", "LatentImpl", "Prefill"]

# DeepSeek's: the first elements of a row that are the value.
_VALUES = 512


class LatentBackend(MLACommonBackend):
    """The answers to vLLM about latent attention; its name is that of vLLM's own, TRITON_MLA."""

    supported_dtypes: ClassVar[list[torch.dtype]] = [torch.float16, torch.bfloat16]
    supported_kv_cache_dtypes: ClassVar[list[str]] = CACHE_DTYPES

    @staticmethod
    def get_impl_cls() -> type[LatentImpl]:
        """Return the class of a layer's attention."""
        return LatentImpl

    @staticmethod
    def get_builder_cls() -> type[LatentBuilder]:
        """Return the class that describes a step."""
        return LatentBuilder

    @classmethod
    def get_supported_head_sizes(cls) -> list[int]:
        """Return the elements of a row of the cache, values and rotated part."""
        return [576]

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[int | MultipleOf]:
        """Return the tokens that a page may have."""
        return BLOCK_SIZES

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
        if not use_mla:
            return "layers without latent attention need --attention-backend CUSTOM"
        try:
            held = _kernels.cache_dtype(kv_cache_dtype, dtype)
        except ValueError as error:
            return str(error)
        return refusal(head_size, _VALUES, dtype, held) or None


@dataclass
class LatentDecode(MLACommonDecodeMetadata):
    """The sequences of a step that decode.

    Attributes
    ----------
    query_start_loc : torch.Tensor, int32 (batch + 1)
        First query of each.
    max_query_len, max_seq_len : int
        Upper bounds of queries and tokens of a sequence.
    """

    query_start_loc: torch.Tensor
    max_query_len: int
    max_seq_len: int


class LatentBuilder(MLACommonMetadataBuilder[MLACommonMetadata[LatentDecode]]):
    """Describes a step.

    Attributes
    ----------
    reorder_batch_threshold : int
        The most new tokens of a sequence that decodes; more is prefill.
    """

    _prefill_backend: Any

    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.UNIFORM_BATCH
    query_len_support: ClassVar[QueryLenSupport] = QueryLenSupport.VARLEN

    def __init__(
        self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        chosen = self._prefill_backend
        self._prefill_backend = Prefill(
            num_heads=chosen.num_heads,
            scale=chosen.scale,
            kv_lora_rank=chosen.kv_lora_rank,
            qk_nope_head_dim=chosen.qk_nope_head_dim,
            qk_rope_head_dim=chosen.qk_rope_head_dim,
            v_head_dim=chosen.v_head_dim,
            vllm_config=vllm_config,
        )
        if not self._prefill_backend.has_kernel(device):
            self.reorder_batch_threshold = vllm_config.scheduler_config.max_num_batched_tokens

    def _build_decode(
        self,
        block_table_tensor: torch.Tensor,
        seq_lens_device: torch.Tensor,
        max_seq_len: int,
        query_start_loc_cpu: torch.Tensor,
        query_start_loc_device: torch.Tensor,
        num_decode_tokens: int,
        dcp_tot_seq_lens_device: torch.Tensor | None,
        max_query_len: int | None = None,
    ) -> LatentDecode:
        if max_query_len is None:  # vLLM 0.29 and 0.30 do not tell it
            max_query_len = int(query_start_loc_cpu.diff().max())
        return LatentDecode(
            block_table=block_table_tensor,
            seq_lens=seq_lens_device,
            dcp_tot_seq_lens=dcp_tot_seq_lens_device,
            query_start_loc=query_start_loc_device,
            max_query_len=max_query_len,
            max_seq_len=max_seq_len,
        )


class LatentImpl(MLACommonImpl[MLACommonMetadata[LatentDecode]]):
    """Latent attention of one layer; the arguments are vLLM's.

    Raises
    ------
    UnsupportedError
        No kernel does the layer. vLLM asks `LatentBackend` before, except on its CPU platform.
    """

    supports_pcp = False

    def __init__(self, num_heads: int, head_size: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(num_heads, head_size, *args, **kwargs)
        self.supports_quant_query_input = False
        dtype = torch.get_default_dtype()
        try:
            self.cache_dtype = _kernels.cache_dtype(self.kv_cache_dtype, dtype)
        except ValueError as error:
            raise self._refused(str(error)) from error
        if kwargs.get("sliding_window") is not None:
            raise self._refused("a window of latent attention has no kernel")
        if reason := refusal(head_size, self.kv_lora_rank, dtype, self.cache_dtype):
            raise self._refused(reason)
        self.held_scale: torch.Tensor | None = None

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        """Forget the scale, which may have been loaded too."""
        super().process_weights_after_loading(act_dtype)
        self.held_scale = None

    def _refused(self, reason: str) -> UnsupportedError:
        return UnsupportedError(
            f"a layer of latent attention with {self.num_heads} heads, rows of {self.head_size}, values of "
            f"{self.kv_lora_rank} and a cache of {self.kv_cache_dtype}: {reason}; leave out "
            "PYFA_ROCM_VLLM_MLA (on the CPU, PYFA_ROCM_VLLM_CPU), or choose another backend"
        )

    def rows(self, kv_cache: torch.Tensor) -> torch.Tensor:
        """Return the cache, (blocks, block_size, rank + rope), as the one head that it is."""
        if kv_cache.dtype != self.cache_dtype:
            kv_cache = kv_cache.view(self.cache_dtype)  # of bytes
        return kv_cache.unsqueeze(2)

    def scales(self, scale: torch.Tensor, batch: int) -> dict[str, torch.Tensor]:
        """Return the factor on the elements of an 8-bit cache, which keys and values share."""
        if self.cache_dtype.itemsize > 1:
            return {}
        if self.held_scale is None:  # in the first step after the weights were loaded
            self.held_scale = of_heads(scale, 1)
        return dict.fromkeys(("k_scale", "v_scale"), self.held_scale.expand(batch, 1))

    def do_kv_cache_update(
        self,
        kv_c_normed: torch.Tensor,
        k_pe: torch.Tensor,
        kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
        kv_cache_dtype: str,
        k_scale: torch.Tensor,
    ) -> None:
        """Store the two parts of a step's rows, as if they were keys and values."""
        slots = slot_mapping.flatten()
        count = slots.shape[0]
        if not kv_cache.numel() or not count:
            return
        first, rest = self.rows(kv_cache).split([self.kv_lora_rank, k_pe.shape[-1]], dim=-1)
        flash_attn_kv_append(
            first,
            rest,
            kv_c_normed[:count, None],
            k_pe[:count].reshape(count, 1, -1),
            slots=slots,
            **self.scales(k_scale, 1),
        )

    def forward_mqa(
        self,
        q: torch.Tensor | tuple[torch.Tensor, torch.Tensor],
        kv_c_and_k_pe_cache: torch.Tensor,
        attn_metadata: MLACommonMetadata[LatentDecode],
        layer: Any,
    ) -> tuple[torch.Tensor, None]:
        """Return the attention of the sequences that decode, (tokens, nhead_q, rank)."""
        step = attn_metadata.decode
        assert step is not None
        q = torch.cat(q, dim=-1) if isinstance(q, tuple) else q
        keys = self.rows(kv_c_and_k_pe_cache)
        out = flash_attn_with_kvcache(
            q, keys, keys[..., : self.kv_lora_rank], cache_seqlens=step.seq_lens,
            block_table=step.block_table, cu_seqlens_q=step.query_start_loc,
            max_seqlen_q=step.max_query_len, max_seqlen_k=step.max_seq_len,
            softmax_scale=self.scale, causal=attn_metadata.causal,
            **self.scales(layer._k_scale, step.seq_lens.shape[0]),
        )  # fmt: skip
        return out, None


class Prefill(MLAPrefillBackend):
    """Attention of parts of prompts, with keys and values of heads."""

    @staticmethod
    def get_name() -> str:
        """Return the name by which a user asks for it."""
        return "CUSTOM"

    def has_kernel(self, device: torch.device) -> bool:
        """Return whether there is a forward kernel for these head dims, by one call of a token."""
        qk = self.qk_nope_head_dim + self.qk_rope_head_dim
        q, v = (
            torch.zeros(1, 1, hdim, dtype=self.vllm_config.model_config.dtype, device=device)
            for hdim in (qk, self.v_head_dim)
        )
        starts = torch.tensor([0, 1], dtype=torch.int32, device=device)
        try:
            self._attend(q, q, v, (starts, starts), (1, 1), True, True, None)
        except UnsupportedError:
            return False
        return True

    def run_prefill_new_tokens(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        return_softmax_lse: bool,
        out: torch.Tensor | None = None,
        output_scale: torch.Tensor | None = None,
    ) -> Any:
        """Return the attention among the step's own tokens, and the log-sum-exp if it is asked for."""
        if output_scale is not None:
            raise UnsupportedError("got a scale of the output, expected None: supports_quant_output says so")
        step = self._prefill_metadata
        starts, longest = step.query_start_loc, step.max_query_len
        return self._attend(q, k, v, (starts, starts), (longest, longest), return_softmax_lse, True, out)

    def run_prefill_context_chunk(
        self, chunk: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None = None
    ) -> Any:
        """Return the attention to a part of what is in the cache, and the log-sum-exp."""
        starts = chunk.query_start_loc, chunk.cu_seq_lens
        longest = chunk.max_query_len, chunk.max_seq_len
        return self._attend(q, k, v, starts, longest, True, False, out)

    def supports_out(self) -> bool:
        """Return whether results may go to a given tensor."""
        return True

    def _attend(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        starts: tuple[torch.Tensor, torch.Tensor],
        longest: tuple[int, int],
        return_lse: bool,
        causal: bool,
        out: torch.Tensor | None,
    ) -> Any:
        return flash_attn_varlen_func(
            q, k, v, *starts, *longest, softmax_scale=self.scale, causal=causal, return_lse=return_lse,
            out=out,
        )  # fmt: skip
