# SPDX-License-Identifier: MIT OR Apache-2.0
"""Latent attention (DeepSeek's MLA) in SGLang: a row of the pool for each token, which begins with the value.

SGLang has two ways through such a layer. It multiplies queries and outputs by what it has absorbed of the
projections, and the layer attends to the rows of the pool. Or, for prompts that begin, it makes keys and
values of heads out of the rows, stores the rows itself, and the layer attends to those. That takes less than
a third of the operations, and a forward kernel for these head dims; without one, prompts read the rows too.
"""

from __future__ import annotations

import importlib
import logging
from typing import Any

import torch

from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.sglang._backend import Backend, refused
from pyfa_rocm.sglang._versions import NAME
from pyfa_rocm.torch import flash_attn_kv_append, flash_attn_varlen_func
from pyfa_rocm.torch._serving import of_heads, refusal

# isort: split
from sglang.srt.mem_cache.memory_pool import MLATokenToKVPool

__all__ = ["LatentBackend"]

_MODELS = "sglang.srt.models.deepseek_common"
_logger = logging.getLogger(__name__)


class LatentBackend(Backend):
    """Attention of all layers of a model with latent attention.

    Raises
    ------
    UnsupportedError
        The model or its pool has no kernels; the message says what works.
    """

    # A row is longer than any forward kernel takes.
    begins_forward = False

    def __init__(self, model_runner: Any) -> None:
        super().__init__(model_runner)
        pool, dtype = self.token_to_kv_pool, model_runner.dtype
        reason = refusal(pool.kv_cache_dim, pool.kv_lora_rank, dtype, pool.dtype, self.page_size)
        if reason:
            raise refused(
                f"rows of {pool.kv_cache_dim}, values of {pool.kv_lora_rank} and a pool of {pool.dtype}: "
                f"{reason}; --attention-backend triton works"
            )
        self.dtype = dtype
        self.has_forward: dict[tuple[int, int], bool] = {}
        _choose_ways(self)

    def _require_pool(self) -> None:
        pool = self.token_to_kv_pool
        # Its subclasses have other rows: of 4 bits, or with an index.
        if type(pool) is not MLATokenToKVPool or pool.use_dsa:
            raise refused(
                f"latent attention over a {type(pool).__name__}: expected an MLATokenToKVPool of the model's "
                "type or fp8, without sparse attention; --attention-backend triton, or another "
                "--kv-cache-dtype, works"
            )

    def attends_to_heads(self, attn: Any, forward_batch: Any) -> bool:
        """Return whether SGLang is to make keys of heads for a step of a layer of DeepSeek's.

        It then stores the rows itself, which it does not divide by the layer's scale.
        """
        if self.token_to_kv_pool.dtype.itemsize == 1 and attn.attn_mqa.k_scale is not None:
            return False
        begins = forward_batch.forward_mode.is_extend_without_speculative() and not any(
            forward_batch.extend_prefix_lens_cpu
        )
        return begins and self._has_forward(attn.qk_nope_head_dim + attn.qk_rope_head_dim, attn.v_head_dim)

    def _has_forward(self, hdim: int, hdim_v: int) -> bool:
        """Return whether a forward kernel takes these head dims, by one call of a token."""
        if (hdim, hdim_v) not in self.has_forward:
            device = self.req_to_token.device
            q, v = (torch.zeros(1, 1, x, dtype=self.dtype, device=device) for x in (hdim, hdim_v))
            starts = torch.tensor([0, 1], dtype=torch.int32, device=device)
            try:
                flash_attn_varlen_func(q, q, v, starts, starts, 1, 1, causal=True)
                self.has_forward[hdim, hdim_v] = True
            except UnsupportedError:
                self.has_forward[hdim, hdim_v] = False
        return self.has_forward[hdim, hdim_v]

    def _forward(
        self, q: torch.Tensor, k: torch.Tensor | None, v: torch.Tensor | None, layer: Any, save: bool,
        sinks: torch.Tensor | None, others: dict[str, Any],
    ) -> torch.Tensor:  # fmt: skip
        if layer.qk_head_dim == self.token_to_kv_pool.kv_cache_dim:
            return super()._forward(q, k, v, layer, save, sinks, others)
        step = self.forward_metadata
        assert step is not None
        self._require_options(layer, others)
        if save or k is None or v is None or not step.begins:
            raise self._refused_layer(layer, "got keys of heads, which only prompts that begin have here")
        q = q.reshape(-1, layer.tp_q_head_num, layer.qk_head_dim)
        k = k.reshape(-1, layer.tp_k_head_num, layer.qk_head_dim)
        v = v.reshape(-1, layer.tp_v_head_num, layer.v_head_dim)
        return self._begin(step, q, k, v, self._options(layer, q, sinks))

    def _store(
        self, layer: Any, keys: torch.Tensor, values: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
        slots: torch.Tensor,
    ) -> None:  # fmt: skip
        """Put a step's rows into the pool, as if their two parts were keys and values."""
        sizes = [layer.v_head_dim, layer.qk_head_dim - layer.v_head_dim]
        flash_attn_kv_append(
            *keys.split(sizes, -1), *k.split(sizes, -1), slots=slots, **self._scales(layer, keys, 1)
        )

    def _scales(self, layer: Any, keys: torch.Tensor, batch: int) -> dict[str, torch.Tensor]:
        """Return the factor on the elements of an 8-bit pool, which keys and values share."""
        if keys.dtype.itemsize > 1 or layer.k_scale is None:
            return {}
        if layer.layer_id not in self.held_scales:  # in the first step, which is not captured
            self.held_scales[layer.layer_id] = {"k_scale": of_heads(layer.k_scale, 1)}
        scale = self.held_scales[layer.layer_id]["k_scale"].expand(batch, -1)
        return {"k_scale": scale, "v_scale": scale}


def _choose_ways(backend: LatentBackend) -> None:
    """Tell the models which way a step takes; they ask by the name of the backend."""
    try:
        handlers = importlib.import_module(f"{_MODELS}.attention_backend_handler")
        methods = importlib.import_module(f"{_MODELS}.attention_forward_methods.forward_methods")
    except ImportError as error:
        # A program without SGLang's server, whose layers call the backend themselves
        _logger.warning("pyfa_rocm.sglang: SGLang's models do not know this backend's ways: %s", error)
        return

    def way(attn: Any, forward_batch: Any) -> Any:
        of_heads = backend.attends_to_heads(attn, forward_batch)
        return methods.AttnForwardMethod.MHA if of_heads else methods.AttnForwardMethod.MLA

    handlers.AttentionBackendRegistry.register(NAME, way)
