# SPDX-License-Identifier: MIT OR Apache-2.0
"""The places of a step's sequences in the batch and in the cache, which its layers share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from vllm.v1.attention.backend import AttentionCGSupport, AttentionMetadata, AttentionMetadataBuilder

from pyfa_rocm.errors import UnsupportedError

__all__ = ["Builder", "Metadata"]


@dataclass
class Metadata(AttentionMetadata):
    """A step, by vLLM's names.

    Attributes
    ----------
    num_actual_tokens : int
        Rows of queries that belong to sequences.
    max_query_len, max_seq_len : int
        Upper bounds of the new tokens of a sequence, and of all its tokens.
    query_start_loc : torch.Tensor, int32 (batch + 1)
        First query of each sequence.
    seq_lens : torch.Tensor, int32 (batch)
        Tokens of each sequence in the cache, with the new ones.
    block_table : torch.Tensor, int32 (batch, max_blocks)
        Blocks of each sequence.
    slot_mapping : torch.Tensor, int64 (tokens)
        Where each new token goes; below 0: nowhere.
    causal : bool
        A token sees only those before it.
    begins : bool
        All sequences begin in this step, so their keys are those that the step computes.
    """

    num_actual_tokens: int
    max_query_len: int
    max_seq_len: int
    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor
    causal: bool
    begins: bool


class Builder(AttentionMetadataBuilder[Metadata]):
    """Makes a step's `Metadata` of vLLM's; it copies nothing, and waits for nothing."""

    # A captured launch is as large as the longest query of its capture. Sequences that decode one token, or
    # verify as many drafts, share that.
    _cudagraph_support: ClassVar[AttentionCGSupport] = AttentionCGSupport.UNIFORM_BATCH
    supports_update_block_table = True

    def __init__(
        self, kv_cache_spec: Any, layer_names: list[str], vllm_config: Any, device: torch.device
    ) -> None:
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(self, common_prefix_len: int, common_attn_metadata: Any, fast_build: bool = False) -> Metadata:
        """Return the step that vLLM describes."""
        m = common_attn_metadata
        if isinstance(m.causal, torch.Tensor):
            raise UnsupportedError(
                f"layers {', '.join(self.layer_names)}: got causal and other sequences in one step, expected "
                "all of one kind: --attention-backend TRITON_ATTN"
            )
        return Metadata(
            num_actual_tokens=m.num_actual_tokens,
            max_query_len=m.max_query_len,
            max_seq_len=m.max_seq_len,
            query_start_loc=m.query_start_loc,
            seq_lens=m.seq_lens,
            block_table=m.block_table_tensor,
            slot_mapping=m.slot_mapping,
            causal=m.causal,
            begins=_begins(m),
        )

    def build_for_cudagraph_capture(self, common_attn_metadata: Any) -> Metadata:
        """Return a step to capture, which later replays with sequences of any length."""
        step = self.build(0, common_attn_metadata)
        return replace(step, begins=False, max_seq_len=self.vllm_config.model_config.max_model_len)

    def update_block_table(
        self, metadata: Metadata, blk_table: torch.Tensor, slot_mapping: torch.Tensor
    ) -> Metadata:
        """Return the step for another group of layers, which has its own blocks."""
        return replace(metadata, block_table=blk_table, slot_mapping=slot_mapping)


def _begins(m: Any) -> bool:
    """Return whether no sequence has a token in the cache, as far as the host knows."""
    lengths = m.seq_lens_cpu_upper_bound
    if m.max_query_len == 1 or lengths is None:
        return False
    return bool((lengths[: m.num_reqs] == m.query_start_loc_cpu.diff()[: m.num_reqs]).all())
