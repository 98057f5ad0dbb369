# SPDX-License-Identifier: MIT OR Apache-2.0
"""The forward kernels, with attention sinks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pyfa_rocm import flash_attn
from pyfa_rocm import torch as ours
from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.torch._autograd import is_differentiated
from pyfa_rocm.transformers._decode import Scores

__all__ = ["forward", "varlen_forward", "with_sinks"]


def with_sinks(out: torch.Tensor, lse: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
    """Let a logit without a value take part in the softmax of each head.

    It makes the sum exp(lse) of a row larger by exp(sink), and so the output smaller by
    exp(lse) / (exp(lse) + exp(sink)).

    Parameters
    ----------
    out : torch.Tensor, (..., rows, nhead, hdim)
    lse : torch.Tensor, float32 (..., nhead, rows)
    sinks : torch.Tensor, (nhead)
    """
    share = torch.sigmoid(lse.transpose(-1, -2) - sinks.float())
    return (out * share[..., None]).to(out.dtype)


def _options(scores: Scores, dropout: float) -> dict[str, Any]:
    return {
        "dropout_p": dropout,
        "softmax_scale": scores.scale,
        "causal": scores.causal,
        "window_size": scores.window_size,
        "softcap": scores.softcap,
    }


def _attend(
    function: Callable[..., Any], given: tuple[Any, ...], sinks: torch.Tensor, options: dict[str, Any]
) -> torch.Tensor:
    """Return attention with sinks: by kernels that count them, or by the log-sum-exp.

    The latter has gradients of the sinks, and does what no such kernel may do: dropout, and float32.
    """
    plain = not options["dropout_p"] and given[0].dtype in (torch.float16, torch.bfloat16)
    if plain and not is_differentiated(sinks):
        try:
            result: torch.Tensor = function(*given, sinks=sinks.detach().float().contiguous(), **options)
        except UnsupportedError:  # this set of kernels, or this card, has none of these head dims
            pass
        else:
            return result
    out, lse = function(*given, return_lse=True, **options)
    return with_sinks(out, lse, sinks)


def forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scores: Scores, dropout: float
) -> torch.Tensor:
    """Return attention of (batch, seqlen, nhead, hdim)."""
    options = _options(scores, dropout)
    if scores.sinks is None:
        return flash_attn.flash_attn_func(q, k, v, **options)
    return _attend(ours.flash_attn_func, (q, k, v), scores.sinks, options)


def varlen_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    starts_q: torch.Tensor,
    starts_k: torch.Tensor,
    longest_q: int,
    longest_k: int,
    scores: Scores,
    dropout: float,
) -> torch.Tensor:
    """Return attention of packed sequences, (total, nhead, hdim)."""
    given = q, k, v, starts_q, starts_k, longest_q, longest_k
    options = _options(scores, dropout)
    if scores.sinks is None:
        return flash_attn.flash_attn_varlen_func(*given, **options)
    return _attend(ours.flash_attn_varlen_func, given, scores.sinks, options)
