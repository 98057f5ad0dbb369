# SPDX-License-Identifier: MIT OR Apache-2.0
"""The sequences of a batch: which of its rows they have, as the kernels for packed sequences take them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pyfa_rocm.transformers._mask import Pattern

__all__ = ["Rows", "once", "rows_of_mask", "sequences"]

_KEPT = "_pyfa_rocm_rows"


@dataclass(frozen=True)
class Rows:
    """The sequences of a batch, padding left out.

    Attributes
    ----------
    index : (torch.Tensor, torch.Tensor) or None
        Batch and position of each token; None: of all.
    starts : torch.Tensor, int32 (number of sequences + 1)
        Where each sequence starts, and the end.
    longest : int
        Length of the longest.
    """

    index: tuple[torch.Tensor, torch.Tensor] | None
    starts: torch.Tensor
    longest: int

    def pack(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, seqlen, nhead, hdim) -> (total, nhead, hdim)."""
        return x.flatten(0, 1) if self.index is None else x[self.index]

    def unpack(self, x: torch.Tensor, batch: int, seqlen: int) -> torch.Tensor:
        """Undo `pack`; padding is 0."""
        if self.index is None:
            return x.unflatten(0, (batch, seqlen))
        result = x.new_zeros(batch, seqlen, *x.shape[1:])
        result[self.index] = x
        return result


def _tokens_alone(tokens: torch.Tensor) -> Rows:
    """Return the tokens of a padded batch, a sequence each row."""
    lengths = tokens.sum(1, dtype=torch.int32)
    starts = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return Rows(tokens.nonzero(as_tuple=True), starts, int(lengths.max()))


def _all_rows(batch: int, seqlen: int, device: torch.device) -> Rows:
    starts = torch.arange(0, (batch + 1) * seqlen, seqlen, dtype=torch.int32, device=device)
    return Rows(None, starts, seqlen)


def sequences(numbers: torch.Tensor) -> Rows:
    """Return the sequences of a packed batch, by the number of each token's."""
    begins = torch.ones_like(numbers, dtype=torch.bool)
    begins[:, 1:] = numbers[:, 1:] != numbers[:, :-1]
    starts = torch.nn.functional.pad(begins.flatten().nonzero().flatten(), (0, 1), value=numbers.numel())
    return Rows(None, starts.to(torch.int32), int(starts.diff().max()))


def rows_of_mask(mask: torch.Tensor, q_length: int, pattern: Pattern) -> tuple[Rows, Rows] | None:
    """Return the sequences of queries and of keys; None: a batch without padding."""
    if mask.dtype != torch.bool:
        both = sequences(mask)
        return both, both
    if mask.all():
        return None
    keys = _tokens_alone(mask)
    if pattern.causal or pattern.window_size != (-1, -1):
        return _tokens_alone(mask[:, -q_length:]), keys
    return _all_rows(mask.shape[0], q_length, mask.device), keys


def once(x: torch.Tensor, what: tuple[Any, ...], make: Callable[[], Any]) -> Any:
    """Return what was worked out of a tensor for the layer before, or else now: it waits for the device.

    A tensor that was written since is another.
    """
    if x.is_inference():  # such a tensor does not count how often it was written
        return make()
    kept: dict[Any, Any] = getattr(x, _KEPT, {})
    key = x._version, what
    if key not in kept:
        setattr(x, _KEPT, {k: made for k, made in kept.items() if k[0] == x._version} | {key: make()})
    return getattr(x, _KEPT)[key]
