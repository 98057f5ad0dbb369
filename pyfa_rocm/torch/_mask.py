# SPDX-License-Identifier: MIT OR Apache-2.0
"""Masks, as what the kernels take: a bias, or lengths of sequences."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.torch._tensors import FLOATS

__all__ = ["Padding", "bias_of", "can_look", "most_bias", "padding_of", "within_range"]


def bias_of(mask: torch.Tensor, dtype: torch.dtype, seqlen_k: int) -> torch.Tensor:
    """Return a mask, boolean (True: seen) or to be added, as a bias that the kernels can read.

    It has q's type, and a last dimension of full size and contiguous; the others may be broadcast. A new
    tensor as large as `mask`, unless that is one already, in float16.
    """
    if dtype not in FLOATS:
        raise UnsupportedError(
            f"q: got dtype {dtype}, expected {', '.join(map(str, FLOATS))}: a mask that lengths do "
            "not say is added to the scores"
        )
    if mask.dtype == torch.bool:
        bias = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, -math.inf)
    else:
        bias = within_range(mask.to(dtype))
    if bias.shape[-1] != seqlen_k:
        bias = bias.expand(*bias.shape[:-1], seqlen_k)
    return bias if bias.stride(-1) == 1 else bias.contiguous()


def most_bias(dtype: torch.dtype) -> float:
    """Return the largest bias that the kernels take for a number, which multiply it by log2(e) in float32."""
    most: float = torch.finfo(dtype).max
    return most if most < torch.finfo(torch.float32).max / 4 else most / 2


def within_range(bias: torch.Tensor) -> torch.Tensor:
    """Return a bias in which only what is infinite counts as that.

    The least finite number of bfloat16 and float32, by which many hide a key, would be -inf to the kernels. A
    row of nothing else has the mean of all values, as in PyTorch. Gradients pass as if nothing was changed.
    """
    most = most_bias(bias.dtype)
    if most == torch.finfo(bias.dtype).max:
        return bias
    excess = torch.where(bias.isinf(), 0.0, bias - bias.clamp(-most, most))
    return bias - excess.detach()


class Padding(NamedTuple):
    """How long sequences are, int32 (batch); None for queries: all rows count."""

    seqlens_q: torch.Tensor | None
    seqlens_k: torch.Tensor


def padding_of(mask: torch.Tensor, suffix: bool | None) -> Padding | None:
    """Return a mask, bool (batch, seqlen_k) or (batch, seqlen_q, seqlen_k), as lengths; None: it is not that.

    `suffix` says whether it is that. None: look, which waits for the mask's device; if the host cannot look,
    it is taken not to be.
    """
    if suffix is None and not can_look(mask):
        suffix = False
    if suffix is False:
        return None
    rows = None if mask.dim() == 2 else mask.any(2)
    keys = mask if mask.dim() == 2 else mask.any(1)
    padding = Padding(None if rows is None else _count(rows), _count(keys))
    if suffix is None and not torch.equal(_from_lengths(padding, mask), mask):
        return None
    return padding


def can_look(mask: torch.Tensor) -> bool:
    """Tell whether the host may read the mask."""
    if torch.compiler.is_compiling() or mask.is_meta:
        return False
    return not (mask.is_cuda and torch.cuda.is_current_stream_capturing())


def _count(seen: torch.Tensor) -> torch.Tensor:
    return seen.sum(-1, dtype=torch.int32)


def _from_lengths(padding: Padding, like: torch.Tensor) -> torch.Tensor:
    """Return the mask that has these lengths."""
    keys = torch.arange(like.shape[-1], device=like.device) < padding.seqlens_k[:, None]
    if padding.seqlens_q is None:
        return keys
    rows = torch.arange(like.shape[1], device=like.device) < padding.seqlens_q[:, None]
    return rows[:, :, None] & keys[:, None]
