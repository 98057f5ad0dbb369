# SPDX-License-Identifier: MIT OR Apache-2.0
"""The places of a step's sequences in the batch and in SGLang's pools, which its layers share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from pyfa_rocm.errors import UnsupportedError

__all__ = ["Pages", "Step", "described"]

_MODES = ("EXTEND", "DECODE", "MIXED", "SPLIT_PREFILL", "IDLE")


@dataclass
class Pages:
    """The pages of a step's sequences in one pool.

    Attributes
    ----------
    table : torch.Tensor, int32 (batch, max_pages)
        Pages of each sequence, in order.
    slots : torch.Tensor (tokens)
        Where each new token goes.
    """

    table: torch.Tensor
    slots: torch.Tensor


@dataclass
class Step:
    """A step of the server.

    Attributes
    ----------
    query_start_loc : torch.Tensor, int32 (batch + 1)
        First query of each sequence.
    seq_lens : torch.Tensor, int32 (batch)
        Tokens of each sequence in the pool, with the new ones.
    max_query_len, max_seq_len : int
        Upper bounds of the new tokens of a sequence, and of all its tokens.
    begins : bool
        All sequences begin in this step, so their keys are those that the step computes.
    whole, window : Pages
        Pages of layers that use the common pool, and of those that use the pool for windows. A model without
        that pool has the same in both.
    """

    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    max_query_len: int
    max_seq_len: int
    begins: bool
    whole: Pages
    window: Pages


@dataclass
class Described:
    """A step as its batch says it, without its pages."""

    query_start_loc: torch.Tensor
    seq_lens: torch.Tensor
    max_query_len: int
    max_seq_len: int
    begins: bool


def described(batch: Any, most: int) -> Described:
    """Return what SGLang's batch says. Only its lists on the host are read, so nothing waits for the device.

    Raises
    ------
    UnsupportedError
        The mode of the batch has no kernel here.
    """
    mode = batch.forward_mode
    if mode.name not in _MODES:
        raise UnsupportedError(
            f"forward_mode: got {mode.name}, expected one of {', '.join(_MODES)}: speculative decoding and "
            "diffusion models need --attention-backend triton"
        )
    lengths, device = batch.seq_lens.to(torch.int32), batch.seq_lens.device
    known = batch.seq_lens_cpu
    longest = int(known.max()) if known is not None and len(known) else most
    if mode.is_decode_or_idle():
        starts = torch.arange(len(lengths) + 1, dtype=torch.int32, device=device)
        return Described(starts, lengths, 1, longest, False)
    starts = torch.zeros(len(lengths) + 1, dtype=torch.int32, device=device)
    torch.cumsum(batch.extend_seq_lens, 0, dtype=torch.int32, out=starts[1:])
    begins = not any(batch.extend_prefix_lens_cpu)
    return Described(starts, lengths, max(batch.extend_seq_lens_cpu), longest, begins)
