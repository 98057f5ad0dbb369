# SPDX-License-Identifier: MIT OR Apache-2.0
"""SGLang's own pools, layers and batches on the CPU, without its server."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, MLATokenToKVPool, ReqToTokenPool
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.model_executor.forward_batch_info import ForwardBatch, ForwardMode
from sglang.srt.model_executor.forward_context import ForwardContext, forward_context

SLOTS, MOST = 512, 128  # tokens of a pool, and of a sequence
HEADS, KEYS, HDIM = 4, 2, 64
ROW, RANK = 576, 512  # DeepSeek's: a row of the pool, and its first elements that are the value


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16()


def pool(page_size: int = 16, dtype: torch.dtype = torch.bfloat16, windows: bool = False) -> Any:
    """A pool of two layers; with `windows` the second has a pool of its own, half as large."""
    shape = {"head_num": KEYS, "head_dim": HDIM, "device": "cpu", "enable_memory_saver": False}
    if not windows:
        return MHATokenToKVPool(SLOTS, page_size, dtype, layer_num=2, **shape)
    made = SWAKVPool(
        SLOTS,
        SLOTS // 2,
        page_size,
        dtype,
        swa_attention_layer_ids=[1],
        full_attention_layer_ids=[0],
        **shape,
    )
    slots = torch.arange(SLOTS + page_size + 1)
    # Page p of the whole pool is page p / 2 of the window's: only every other page of a sequence is there.
    made.register_mapping((slots // page_size // 2) * page_size + slots % page_size)
    return made


def latent_pool(page_size: int = 16, dtype: torch.dtype = torch.bfloat16) -> Any:
    """A pool of two layers of latent attention."""
    return MLATokenToKVPool(
        SLOTS, page_size, dtype, kv_lora_rank=RANK, qk_rope_head_dim=ROW - RANK, layer_num=2, device="cpu",
        enable_memory_saver=False,
    )  # fmt: skip


def runner(held: Any, latent: bool = False) -> Any:
    """A model's runner, as far as a backend asks it."""
    requests = ReqToTokenPool(8, MOST, "cpu", False)
    return SimpleNamespace(
        use_mla_backend=latent, token_to_kv_pool=held, req_to_token_pool=requests, dtype=torch.bfloat16,
        device="cpu",
    )  # fmt: skip


def layer(number: int = 0, **changes: Any) -> RadixAttention:
    arguments: dict[str, Any] = {
        "num_heads": HEADS, "head_dim": HDIM, "scaling": HDIM**-0.5, "num_kv_heads": KEYS, "layer_id": number,
    }  # fmt: skip
    return RadixAttention(**arguments | changes)


def latent_layer(heads: int, number: int = 0) -> RadixAttention:
    """A layer that attends to rows, as DeepSeek's model makes it."""
    return RadixAttention(heads, ROW, 192**-0.5, num_kv_heads=1, layer_id=number, v_head_dim=RANK)


def place(made: Any, lengths: Sequence[int], seed: int = 0) -> None:
    """Give each sequence pages in random order; requests 1, 2 ... have them."""
    size = made.token_to_kv_pool.page_size
    order = torch.randperm(SLOTS // size - 1, generator=torch.Generator().manual_seed(seed)) + 1
    if hasattr(made.token_to_kv_pool, "swa_kv_pool"):
        order = order[order % 2 == 0]  # no two of these share a page of the window's pool
    table = made.req_to_token_pool.req_to_token
    for number, length in enumerate(lengths):
        count = -(-length // size)
        pages, order = order[:count], order[count:]
        assert len(pages) == count
        slots = (pages[:, None] * size + torch.arange(size)).flatten()[:length]
        table[number + 1, :length] = slots.int()


def batch(
    made: Any, lengths: Sequence[int], new: Sequence[int] | None = None, mode: Any = None
) -> ForwardBatch:
    """A step; without `new` each sequence has one token."""
    extends = new is not None
    added = list(new or [1] * len(lengths))
    mode = mode or (ForwardMode.EXTEND if extends else ForwardMode.DECODE)
    table = made.req_to_token_pool.req_to_token
    slots = [table[i + 1, total - n : total] for i, (total, n) in enumerate(zip(lengths, added, strict=True))]
    before = [total - n for total, n in zip(lengths, added, strict=True)]
    return ForwardBatch(
        forward_mode=mode, batch_size=len(lengths), input_ids=torch.zeros(sum(added), dtype=torch.int64),
        req_pool_indices=torch.arange(1, len(lengths) + 1), seq_lens=torch.tensor(lengths),
        seq_lens_cpu=torch.tensor(lengths), seq_lens_sum=sum(lengths), out_cache_loc=torch.cat(slots).long(),
        extend_seq_lens=torch.tensor(added) if extends else None,
        extend_prefix_lens=torch.tensor(before) if extends else None,
        extend_seq_lens_cpu=added if extends else None, extend_prefix_lens_cpu=before if extends else None,
    )  # fmt: skip


def attend(
    backend: Any, layer: Any, q: Any, k: Any, v: Any, step: ForwardBatch, **others: Any
) -> torch.Tensor:
    """A layer's attention in a step, by the way that SGLang's models take."""
    with forward_context(ForwardContext(attn_backend=backend)):
        result: torch.Tensor = layer(q.flatten(1), k.flatten(1), v.flatten(1), step, **others)
    return result
