# SPDX-License-Identifier: MIT OR Apache-2.0
"""A layer's attention in vLLM: the new tokens go into the cache, and one call serves all sequences of a step.

Prompts, their chunks, drafts and single tokens are packed rows of one `flash_attn_with_kvcache`, which reads
the cache where it lies. A step in which all sequences begin goes to the forward kernels instead: its keys are
those that it has just computed. Workspace comes from torch's caching allocator, so that a captured step keeps
it in its graph's pool; nothing waits for the device.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.v1.attention.backend import AttentionImpl, AttentionType

from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.torch import flash_attn_kv_append, flash_attn_varlen_func, flash_attn_with_kvcache
from pyfa_rocm.torch._serving import of_heads, refusal
from pyfa_rocm.vllm import _kernels
from pyfa_rocm.vllm._metadata import Metadata

__all__ = ["Impl"]

_ENCODERS = (AttentionType.ENCODER, AttentionType.ENCODER_ONLY)


class Impl(AttentionImpl[Metadata]):
    """The attention of one layer; the arguments are vLLM's.

    Raises
    ------
    UnsupportedError
        No kernel does the layer. vLLM asks `Backend` before, except on its CPU platform.
    """

    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        sinks: torch.Tensor | None = None,
    ) -> None:
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.kv_cache_dtype, self.attn_type = kv_cache_dtype, attn_type
        self.kv_sharing_target_layer_name = kv_sharing_target_layer_name
        dtype = torch.get_default_dtype()
        try:
            self.cache_dtype = _kernels.cache_dtype(kv_cache_dtype, dtype)
        except ValueError as error:
            raise self._refused(str(error)) from error
        if reason := refusal(head_size, head_size, dtype, self.cache_dtype):
            raise self._refused(reason)
        self.encodes = attn_type in _ENCODERS
        if self.encodes and self.cache_dtype != dtype:
            raise self._refused(
                f"kv_cache_dtype: got {kv_cache_dtype!r}, expected 'auto': encoders have no cache"
            )
        left = -1 if sliding_window is None else sliding_window - 1
        self.attention: dict[str, Any] = {
            "softmax_scale": self.scale,
            "window_size": (left, (left if self.encodes else 0) if sliding_window else -1),
            "softcap": logits_soft_cap or 0.0,
            "alibi_slopes": None if alibi_slopes is None else torch.tensor(alibi_slopes, dtype=torch.float32),
        }
        self.given_sinks = sinks
        self.sinks: torch.Tensor | None = None
        self.held_scales: dict[str, torch.Tensor] = {}
        # Forward kernels may do a step in which all sequences begin. They see keys that are not yet rounded
        # to 8 bits.
        self.may_begin = (
            attn_type == AttentionType.DECODER
            and self.cache_dtype == dtype
            and kv_sharing_target_layer_name is None
        )

    def _refused(self, reason: str) -> UnsupportedError:
        return UnsupportedError(
            f"a layer of {AttentionType(self.attn_type).value} attention with {self.num_heads} heads of "
            f"{self.head_size}, of {self.num_kv_heads} keys, and a cache of {self.kv_cache_dtype}: {reason}; "
            "leave out --attention-backend CUSTOM (on the CPU, PYFA_ROCM_VLLM_CPU), or choose another backend"
        )

    def process_weights_after_loading(self, act_dtype: torch.dtype) -> None:
        """Take the sinks as kernels read them; models hold them in their own type."""
        self.sinks = None if self.given_sinks is None else self.given_sinks.detach().float().contiguous()
        self.held_scales = {}

    def caches(self, kv_cache: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values, (blocks, block_size, nhead_k, hdim), as views.

        vLLM's cache is (blocks, nhead_k, block_size, 2 * hdim) in any order of strides.
        """
        if kv_cache.dtype != self.cache_dtype:
            kv_cache = kv_cache.view(self.cache_dtype)  # of bytes
        k, v = kv_cache.transpose(1, 2).split(self.head_size, dim=-1)
        return k, v

    def do_kv_cache_update(
        self,
        layer: Any,
        key: torch.Tensor,
        value: torch.Tensor,
        kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:
        """Store the new keys and values of a step at their places."""
        count = slot_mapping.shape[0]
        if self.encodes or not count or not kv_cache.numel():
            return
        k_cache, v_cache = self.caches(kv_cache)
        flash_attn_kv_append(
            k_cache, v_cache, key[:count], value[:count], slots=slot_mapping, **self.scales(layer, 1)
        )

    def scales(self, layer: Any, batch: int) -> dict[str, torch.Tensor]:
        """Return the factors on the elements of an 8-bit cache, for each sequence and head."""
        if self.cache_dtype.itemsize > 1:
            return {}
        if not self.held_scales:  # in the first step after the weights were loaded
            given = {"k_scale": layer._k_scale, "v_scale": layer._v_scale}
            self.held_scales = {name: of_heads(x, self.num_kv_heads) for name, x in given.items()}
        return {name: x.expand(batch, -1) for name, x in self.held_scales.items()}

    def forward(
        self,
        layer: Any,
        query: torch.Tensor,
        key: torch.Tensor | None,
        value: torch.Tensor | None,
        kv_cache: torch.Tensor,
        attn_metadata: Metadata | None,
        output: torch.Tensor,
        output_scale: torch.Tensor | None = None,
        output_block_scale: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Write a step's attention to `output`, (tokens, nhead_q, hdim), and return it."""
        if output_scale is not None or output_block_scale is not None:
            raise UnsupportedError(
                f"{layer.layer_name}: got a scale of the output, expected None: disable the pass "
                "fuse_attn_quant of the compilation config"
            )
        if attn_metadata is None:  # vLLM looks how much memory a step takes
            return output.fill_(0)
        step, count = attn_metadata, attn_metadata.num_actual_tokens
        q, out = query[:count], output[:count]
        if self.encodes or (step.begins and self.may_begin and key is not None and value is not None):
            assert key is not None
            assert value is not None
            if self._attend_new(q, key[:count], value[:count], step, out):
                return output
        k_cache, v_cache = self.caches(kv_cache)
        flash_attn_with_kvcache(
            q, k_cache, v_cache, cache_seqlens=step.seq_lens, block_table=step.block_table,
            cu_seqlens_q=step.query_start_loc, max_seqlen_q=step.max_query_len, max_seqlen_k=step.max_seq_len,
            causal=step.causal, sinks=self.sinks, out=out, **self.attention,
            **self.scales(layer, step.seq_lens.shape[0]),
        )  # fmt: skip
        return output

    def _attend_new(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, step: Metadata, out: torch.Tensor
    ) -> bool:
        """Attend to the step's own keys; return whether there is a kernel for it, which a cache need not."""
        starts, longest = step.query_start_loc, step.max_query_len
        causal = step.causal and not self.encodes
        try:
            flash_attn_varlen_func(
                q, k, v, starts, starts, longest, longest, causal=causal, out=out, sinks=self.sinks,
                **self.attention,
            )  # fmt: skip
        except UnsupportedError:
            if self.encodes:
                raise
            self.may_begin = False
            return False
        return True
