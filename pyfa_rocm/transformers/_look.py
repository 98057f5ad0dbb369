# SPDX-License-Identifier: MIT OR Apache-2.0
"""Looks at masks while a compiled graph runs, each of which waits for the device.

A graph has no branches by what tensors hold, so operators look, once for each mask of a forward pass. Layers
take what they found.
"""

from __future__ import annotations

from typing import Any

import torch

from pyfa_rocm.errors import UnsupportedError

__all__ = ["TAGS", "has_gaps", "starts_of", "without_gaps"]

# They wait for the device, which a captured graph may not. Older versions of torch cannot be told.
TAGS: dict[str, Any] = (
    {"tags": (torch.Tag.cudagraph_unsafe,)} if hasattr(torch.Tag, "cudagraph_unsafe") else {}
)
_ops: Any = torch.ops.pyfa_rocm


def has_gaps(tokens: torch.Tensor) -> bool:
    """Return whether padding lies in between: it brings tokens nearer together than positions say."""
    begins = tokens[:, 1:] & ~tokens[:, :-1]
    return bool((begins.sum(1) + tokens[:, :1].sum(1) > 1).any())


def without_gaps(tokens: torch.Tensor) -> torch.Tensor:
    """Return a copy of a mask, bool (batch, seqlen), that has no padding between tokens; else raise."""
    result: torch.Tensor = _ops.fmha_without_gaps(tokens)
    return result


def starts_of(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sequences of a packed batch, by the number of each token's, int64 (batch, seqlen).

    Returns
    -------
    starts : torch.Tensor, int32 (batch * seqlen + 1)
        Where each begins; all others are the end.
    sizes : torch.Tensor, int64 (2), on the host
        How many there are, and the length of the longest.
    """
    starts, sizes = _ops.fmha_starts(numbers)
    return starts, sizes


def _without_gaps(tokens: torch.Tensor) -> torch.Tensor:
    if has_gaps(tokens):
        raise UnsupportedError(
            "attention_mask: got padding between tokens of a layer with a window in a compiled graph, "
            "expected it at one end: call the model without torch.compile"
        )
    return tokens.clone()


def _starts(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    begins = torch.ones_like(numbers, dtype=torch.bool)
    begins[:, 1:] = numbers[:, 1:] != numbers[:, :-1]
    total = numbers.numel()
    rows = torch.arange(total, device=numbers.device)
    starts = torch.where(begins.flatten(), rows, total).sort().values
    starts = torch.nn.functional.pad(starts, (0, 1), value=total)
    return starts.to(torch.int32), torch.stack((begins.sum(), starts.diff().max())).cpu()


def _trace_starts(numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    starts = numbers.new_empty((numbers.shape[0] * numbers.shape[1] + 1,), dtype=torch.int32)
    return starts, torch.empty(2, dtype=torch.int64)


torch.library.custom_op(
    "pyfa_rocm::fmha_without_gaps", _without_gaps, mutates_args=(), **TAGS, schema="(Tensor tokens) -> Tensor"
).register_fake(torch.empty_like)
torch.library.custom_op(
    "pyfa_rocm::fmha_starts", _starts, mutates_args=(), **TAGS, schema="(Tensor numbers) -> (Tensor, Tensor)"
).register_fake(_trace_starts)
