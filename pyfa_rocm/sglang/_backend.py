# SPDX-License-Identifier: MIT OR Apache-2.0
"""SGLang's attention backend: the new tokens go into the pool, and one call serves all sequences of a step.

Keys and values stay where SGLang's pool has them: a slot of it is a token of a page. Prompts, their chunks
and single tokens are packed rows of one `flash_attn_with_kvcache`. A step in which all sequences begin goes
to the forward kernels instead: its keys are those that it has just computed.

A captured step reads lengths, pages and slots from buffers that were made before the capture. Workspace and
output come from torch's caching allocator, so that they stay in the graph's pool. Nothing waits.
"""

from __future__ import annotations

from typing import Any

import torch

from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.sglang import _versions

# UnsupportedError, since nobody has asked for this package's imports.
if _refused := _versions.refusal():
    raise UnsupportedError(_refused)

from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.runtime_context import get_parallel

from pyfa_rocm.sglang._step import Pages, Step, described
from pyfa_rocm.torch import flash_attn_kv_append, flash_attn_varlen_func, flash_attn_with_kvcache
from pyfa_rocm.torch._serving import of_heads, refusal

__all__ = ["Backend", "refused"]


class Backend(AttentionBackend):
    """Attention of all layers of a model; the runner is SGLang's.

    Raises
    ------
    UnsupportedError
        The model or its pool has no kernels; the message says what works.
    """

    # If all sequences begin in a step, forward kernels may take its keys.
    begins_forward = True

    def __init__(self, model_runner: Any) -> None:
        super().__init__()
        _require_whole_sequences()
        self.token_to_kv_pool = model_runner.token_to_kv_pool
        self._require_pool()
        self.req_to_token_pool = model_runner.req_to_token_pool
        self.req_to_token = self.req_to_token_pool.req_to_token
        size = self.token_to_kv_pool.page_size
        self.page_size = size if size & (size - 1) == 0 else 1  # pages of the kernels: any parts of a page
        self.forward_metadata: Step | None = None
        self.graph_step: Step | None = None
        self.asked: dict[Any, str] = {}
        self.held_scales: dict[int, dict[str, torch.Tensor]] = {}

    def _require_pool(self) -> None:
        """Raise for a pool that no kernel reads."""
        whole = self.token_to_kv_pool
        for pool in (whole.full_kv_pool, whole.swa_kv_pool) if self._has_windows() else (whole,):
            layout = pool.kv_cache_layout
            if layout != "nhd" or pool.is_quantized_kv_cache:
                raise refused(
                    f"got a pool of {layout} in {pool.store_dtype}, expected 'nhd' in the model's type or "
                    "fp8: unset SGLANG_USE_HND_KVCACHE and SGLANG_AITER_KV_CACHE_LAYOUT, or choose another "
                    "--kv-cache-dtype"
                )

    def support_triton(self) -> bool:
        """Return that the rest of SGLang may use Triton."""
        return True

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        """Return the length of a sequence that pads a captured batch."""
        return 1

    # Steps

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """Take a step that is not captured."""
        step = described(forward_batch, self.req_to_token.shape[1])
        whole = self._table(forward_batch, step.max_seq_len)
        slots = forward_batch.out_cache_loc
        pages = Pages(self._paged(whole), slots)
        window = pages
        if self._has_windows():
            window = Pages(self._paged(self._in_window(whole)), self._in_window(slots))
        self.forward_metadata = Step(**vars(step), whole=pages, window=window)

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        """Make the buffers that captured steps read."""
        device, longest = self.req_to_token.device, self.req_to_token.shape[1]

        def ints(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        def pages() -> Pages:
            slots = torch.zeros(max_num_tokens, dtype=torch.int64, device=device)
            return Pages(ints(max_bs, -(-longest // self.page_size)), slots)

        whole = pages()
        starts = torch.arange(max_bs + 1, dtype=torch.int32, device=device)
        window = pages() if self._has_windows() else whole
        self.graph_step = Step(starts, ints(max_bs), 1, longest, False, whole, window)

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        """Take a step that is captured or replayed: one new token of each sequence."""
        held, count = self.graph_step, forward_batch.batch_size
        if held is None or not forward_batch.forward_mode.is_decode_or_idle():
            raise refused(f"a graph of {forward_batch.forward_mode.name}: only DECODE is captured")
        step = described(forward_batch, held.max_seq_len)
        held.seq_lens[:count].copy_(step.seq_lens)
        whole, slots = self._table(forward_batch, step.max_seq_len), forward_batch.out_cache_loc
        _fill(held.whole, self._paged(whole), slots)
        if held.window is not held.whole:
            _fill(held.window, self._paged(self._in_window(whole)), self._in_window(slots))
        self.forward_metadata = Step(
            held.query_start_loc[: count + 1], held.seq_lens[:count], 1, held.max_seq_len, False,
            _first(held.whole, count), _first(held.window, count),
        )  # fmt: skip

    def _has_windows(self) -> bool:
        return isinstance(self.token_to_kv_pool, SWAKVPool)

    def _table(self, batch: Any, longest: int) -> torch.Tensor:
        """Return the slot of the first token of each page, (batch, pages)."""
        return self.req_to_token[:, : longest : self.page_size].index_select(0, batch.req_pool_indices)

    def _paged(self, slots: torch.Tensor) -> torch.Tensor:
        return slots if self.page_size == 1 else slots >> (self.page_size.bit_length() - 1)

    def _in_window(self, slots: torch.Tensor) -> torch.Tensor:
        return self.token_to_kv_pool.translate_loc_from_full_to_swa(slots).to(slots.dtype)

    # Layers

    def forward_decode(
        self, q: torch.Tensor, k: torch.Tensor | None, v: torch.Tensor | None, layer: Any,
        forward_batch: Any, save_kv_cache: bool = True, sinks: torch.Tensor | None = None, **others: Any,
    ) -> torch.Tensor:  # fmt: skip
        """Return a layer's attention of single tokens, (tokens, nhead_q * hdim_v)."""
        return self._forward(q, k, v, layer, save_kv_cache, sinks, others)

    def forward_extend(
        self, q: torch.Tensor, k: torch.Tensor | None, v: torch.Tensor | None, layer: Any,
        forward_batch: Any, save_kv_cache: bool = True, sinks: torch.Tensor | None = None, **others: Any,
    ) -> torch.Tensor:  # fmt: skip
        """Return a layer's attention of prompts, their chunks and single tokens, as `forward_decode`."""
        return self._forward(q, k, v, layer, save_kv_cache, sinks, others)

    def _forward(
        self, q: torch.Tensor, k: torch.Tensor | None, v: torch.Tensor | None, layer: Any, save: bool,
        sinks: torch.Tensor | None, others: dict[str, Any],
    ) -> torch.Tensor:  # fmt: skip
        step = self.forward_metadata
        assert step is not None
        windowed = self._has_windows() and self.token_to_kv_pool.layers_mapping[layer.layer_id][1]
        pages = step.window if windowed else step.whole
        keys, values = self._caches(layer)
        self._require(layer, q.dtype, keys.dtype, others)
        q = q.reshape(-1, layer.tp_q_head_num, layer.qk_head_dim)
        if k is not None and v is not None:
            k = k.reshape(-1, layer.tp_k_head_num, layer.qk_head_dim)
            v = v.reshape(-1, layer.tp_v_head_num, layer.v_head_dim)
            if save:
                self._store(layer, keys, values, k, v, pages.slots[: k.shape[0]])
        options = self._options(layer, q, sinks)
        # Forward kernels see keys that are not yet rounded to 8 bits.
        if self.begins_forward and step.begins and k is not None and v is not None and keys.dtype == q.dtype:
            try:
                return self._begin(step, q, k, v, options)
            except UnsupportedError:  # the set of kernels lacks one, which a cache does not need
                pass
        flash_attn_with_kvcache(
            q, keys, values, cache_seqlens=step.seq_lens, block_table=pages.table,
            cu_seqlens_q=step.query_start_loc, max_seqlen_q=step.max_query_len, max_seqlen_k=step.max_seq_len,
            **options, **self._scales(layer, keys, step.seq_lens.shape[0]),
        )  # fmt: skip
        return options["out"].reshape(q.shape[0], -1)

    def _store(
        self, layer: Any, keys: torch.Tensor, values: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
        slots: torch.Tensor,
    ) -> None:  # fmt: skip
        """Put a step's keys and values into the pool."""
        flash_attn_kv_append(keys, values, k, v, slots=slots, **self._scales(layer, keys, 1))

    def _options(self, layer: Any, q: torch.Tensor, sinks: torch.Tensor | None) -> dict[str, Any]:
        """Return what a layer asks of every kernel, and where the output goes."""
        causal = layer.attn_type == AttentionType.DECODER
        window = layer.sliding_window_size if layer.sliding_window_size > -1 else -1
        return {
            "softmax_scale": layer.scaling, "causal": causal, "softcap": layer.logit_cap,
            "window_size": (window, 0 if causal else window) if window >= 0 else (-1, -1),
            "sinks": None if sinks is None else sinks.float(),
            "out": torch.empty((*q.shape[:2], layer.v_head_dim), dtype=q.dtype, device=q.device),
        }  # fmt: skip

    def _begin(
        self, step: Step, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: dict[str, Any]
    ) -> torch.Tensor:
        """Return the attention of whole prompts, by forward kernels."""
        starts, longest = step.query_start_loc, step.max_query_len
        flash_attn_varlen_func(q, k, v, starts, starts, longest, longest, **options)
        out: torch.Tensor = options["out"]
        return out.reshape(q.shape[0], -1)

    def _caches(self, layer: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values, (pages, page_size, nhead_k, hdim), as views."""
        size = self.page_size

        def paged(x: torch.Tensor) -> torch.Tensor:
            return x[: x.shape[0] // size * size].view(-1, size, *x.shape[1:])

        number = layer.layer_id
        return paged(self.token_to_kv_pool.get_key_buffer(number)), paged(
            self.token_to_kv_pool.get_value_buffer(number)
        )

    def _scales(self, layer: Any, keys: torch.Tensor, batch: int) -> dict[str, torch.Tensor]:
        """Return the factors on the elements of an 8-bit cache, for each sequence and head."""
        if keys.dtype.itemsize > 1 or layer.k_scale is None:
            return {}
        if layer.layer_id not in self.held_scales:  # in the first step, which is not captured
            given = {"k_scale": layer.k_scale, "v_scale": layer.v_scale}
            heads = layer.tp_k_head_num
            self.held_scales[layer.layer_id] = {name: of_heads(x, heads) for name, x in given.items()}
        return {name: x.expand(batch, -1) for name, x in self.held_scales[layer.layer_id].items()}

    def _require(self, layer: Any, dtype: torch.dtype, held: torch.dtype, others: dict[str, Any]) -> None:
        """Raise if no kernel does the layer; the library is asked once."""
        self._require_options(layer, others)
        asked = layer.qk_head_dim, layer.v_head_dim, dtype, held, self.page_size
        if asked not in self.asked:
            self.asked[asked] = refusal(*asked)
        if reason := self.asked[asked]:
            raise self._refused_layer(layer, reason)

    def _require_options(self, layer: Any, others: dict[str, Any]) -> None:
        """Raise for what no kernel does of a layer of any size."""
        unknown = sorted(name for name, x in others.items() if x is not None)
        reason = ""
        if unknown:
            reason = f"got {', '.join(unknown)}, expected no arguments besides sinks"
        elif layer.is_cross_attention:
            reason = "cross attention is not written"
        elif layer.logit_cap and layer.logit_capping_method != "tanh":
            reason = f"logit_capping_method: got {layer.logit_capping_method!r}, expected 'tanh'"
        elif layer.xai_temperature_len > 0:
            reason = "a temperature by position has no kernel"
        if reason:
            raise self._refused_layer(layer, reason)

    def _refused_layer(self, layer: Any, reason: str) -> UnsupportedError:
        return refused(
            f"layer {layer.layer_id}, of {layer.tp_q_head_num} heads of {layer.qk_head_dim} and "
            f"{layer.tp_k_head_num} of keys: {reason}; --attention-backend triton works"
        )


def _require_whole_sequences() -> None:
    """Raise if ranks share the tokens of a sequence, in the pool or in prompts."""
    parallel = get_parallel()
    for option, ranks in (("--dcp-size", parallel.dcp_size), ("--attn-cp-size", parallel.attn_cp_size)):
        if ranks > 1:
            raise refused(
                f"got {option} {ranks}, expected 1: sequences that ranks share are not written; leave it "
                "out, or for --dcp-size choose --attention-backend triton"
            )


def refused(reason: str) -> UnsupportedError:
    """Return the error of what this backend does not do."""
    return UnsupportedError(f"--attention-backend pyfa_rocm: {reason}")


def _fill(pages: Pages, table: torch.Tensor, slots: torch.Tensor) -> None:
    """Write a step's pages into the buffers of captured ones. Kernels look up nothing behind them."""
    pages.table[: table.shape[0], : table.shape[1]].copy_(table)
    pages.slots[: slots.shape[0]].copy_(slots)


def _first(pages: Pages, count: int) -> Pages:
    return Pages(pages.table[:count], pages.slots[:count])
