# SPDX-License-Identifier: MIT OR Apache-2.0
"""Padded batches to packed sequences and back, as in ``flash_attn.bert_padding``. Plain torch, any device.

All of it is differentiable.
"""

from __future__ import annotations

import torch

__all__ = [
    "index_first_axis",
    "index_first_axis_residual",
    "index_put_first_axis",
    "pad_input",
    "unpad_input",
    "unpad_input_for_concatenated_sequences",
]


def index_first_axis(input: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """Return these rows of a tensor.

    Parameters
    ----------
    input : torch.Tensor, (n, ...)
        At least two dimensions.
    indices : torch.Tensor, int64 (m)
        Which.

    Returns
    -------
    torch.Tensor, (m, ...)
    """
    return input[indices]


def index_first_axis_residual(
    input: torch.Tensor,  # noqa: A002
    indices: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return these rows, and the whole tensor; their gradients are added up."""
    return input[indices], input.view_as(input)


def index_put_first_axis(values: torch.Tensor, indices: torch.Tensor, first_axis_dim: int) -> torch.Tensor:
    """Return a tensor of `first_axis_dim` rows with `values` at `indices`, 0 elsewhere."""
    zeros = values.new_zeros(first_axis_dim, *values.shape[1:])
    return zeros.index_put((indices,), values)


def unpad_input(
    hidden_states: torch.Tensor, attention_mask: torch.Tensor, unused_mask: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int, torch.Tensor]:
    """Pack the tokens of a padded batch one after the other. Waits for the device.

    Parameters
    ----------
    hidden_states : torch.Tensor, (batch, seqlen, ...)
        The padded batch.
    attention_mask : torch.Tensor, bool or int (batch, seqlen)
        1: a token. 0: padding.
    unused_mask : torch.Tensor, optional, bool or int (batch, seqlen)
        1: padding that keeps its place in the packed sequence, allocated but not in use.

    Returns
    -------
    hidden_states : torch.Tensor, (total, ...)
        The tokens.
    indices : torch.Tensor, int64 (total)
        Which rows of the flattened batch they were, for `pad_input`.
    cu_seqlens : torch.Tensor, int32 (batch + 1)
        Where each sequence starts, and the end.
    max_seqlen : int
        The longest sequence.
    seqused : torch.Tensor, int32 (batch)
        Tokens of each sequence, without unused ones.
    """
    allocated = attention_mask if unused_mask is None else attention_mask + unused_mask
    lengths = allocated.sum(dim=-1, dtype=torch.int32)
    indices = torch.nonzero(allocated.flatten(), as_tuple=False).flatten()
    return (
        index_first_axis(hidden_states.flatten(0, 1), indices),
        indices,
        _starts(lengths),
        int(lengths.max()),
        attention_mask.sum(dim=-1, dtype=torch.int32),
    )


def unpad_input_for_concatenated_sequences(
    hidden_states: torch.Tensor, attention_mask_in_length: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """Pack the tokens of a padded batch whose rows hold several sequences each. Waits for the device.

    Parameters
    ----------
    hidden_states : torch.Tensor, (batch, seqlen, ...)
        The padded batch: in each row its sequences one after the other, then padding.
    attention_mask_in_length : torch.Tensor, int (batch, seqlen)
        In each row the lengths of its sequences, in their order, then zeros.

    Returns
    -------
    hidden_states : torch.Tensor, (total, ...)
        The tokens.
    indices : torch.Tensor, int64 (total)
        Which rows of the flattened batch they were, for `pad_input`.
    cu_seqlens : torch.Tensor, int32 (number of sequences + 1)
        Where each sequence starts, and the end.
    max_seqlen : int
        The longest sequence.
    """
    in_use = attention_mask_in_length.sum(dim=-1, keepdim=True)
    columns = torch.arange(attention_mask_in_length.shape[-1], device=in_use.device)
    indices = torch.nonzero((columns < in_use).flatten(), as_tuple=False).flatten()
    lengths = attention_mask_in_length[attention_mask_in_length != 0]
    return (
        index_first_axis(hidden_states.flatten(0, 1), indices),
        indices,
        _starts(lengths),
        int(lengths.max()),
    )


def pad_input(hidden_states: torch.Tensor, indices: torch.Tensor, batch: int, seqlen: int) -> torch.Tensor:
    """Put packed tokens back where `unpad_input` had them from; padding is 0.

    Parameters
    ----------
    hidden_states : torch.Tensor, (total, ...)
        The tokens.
    indices : torch.Tensor, int64 (total)
        As `unpad_input` returned them.
    batch, seqlen : int
        Of the padded batch.

    Returns
    -------
    torch.Tensor, (batch, seqlen, ...)
    """
    return index_put_first_axis(hidden_states, indices, batch * seqlen).unflatten(0, (batch, seqlen))


def _starts(lengths: torch.Tensor) -> torch.Tensor:
    """Return where sequences of these lengths start, and the end."""
    return torch.nn.functional.pad(torch.cumsum(lengths, dim=0, dtype=torch.int32), (1, 0))
