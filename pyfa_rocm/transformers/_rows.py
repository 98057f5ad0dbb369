# SPDX-License-Identifier: MIT OR Apache-2.0
"""The sequences of a batch: which of its rows they have, as the kernels for packed sequences take them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pyfa_rocm.transformers._look import starts_of
from pyfa_rocm.transformers._pattern import Pattern

__all__ = [
    "Rows",
    "keep_rows",
    "kept_rows",
    "numbers_of",
    "once",
    "rows_of_mask",
    "rows_of_numbers",
    "rows_of_tokens",
    "sequences",
]

_KEPT = "_pyfa_rocm_rows"
_IN_GRAPH = "_pyfa_rocm_rows_in_graph"


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
        Length of the longest, or a bound of it.
    order : (torch.Tensor, torch.Tensor) or None
        In a graph, instead of `index`: the row of each token, then those of padding; and the reverse.
    sizes : torch.Tensor or None, int64 (2), on the host
        In a graph: how many sequences `starts` has, which repeats the end, and the length of the longest.
    """

    index: tuple[torch.Tensor, torch.Tensor] | None
    starts: torch.Tensor
    longest: int
    order: tuple[torch.Tensor, torch.Tensor] | None = None
    sizes: torch.Tensor | None = None

    def pack(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, seqlen, nhead, hdim) -> (total, nhead, hdim)."""
        if self.order is not None:
            order, back = self.order
            return _permuted(x.flatten(0, 1), order, back)
        return x.flatten(0, 1) if self.index is None else x[self.index]

    def unpack(self, x: torch.Tensor, batch: int, seqlen: int) -> torch.Tensor:
        """Undo `pack`; padding is 0."""
        if self.order is not None:
            order, back = self.order
            return _permuted(x, back, order).unflatten(0, (batch, seqlen))
        if self.index is None:
            return x.unflatten(0, (batch, seqlen))
        result = x.new_zeros(batch, seqlen, *x.shape[1:])
        result[self.index] = x
        return result


def _permuted(x: torch.Tensor, order: torch.Tensor, back: torch.Tensor) -> torch.Tensor:
    """Return rows in another order; `back` is the reverse.

    By an operator: torch would add up gradients, as if a row could be in two places.
    """
    result: torch.Tensor = torch.ops.pyfa_rocm.fmha_permuted(x, order, back)
    return result


def _keep_order(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs[1:])


def _permute_back(ctx: Any, gradient: torch.Tensor) -> Any:
    order, back = ctx.saved_tensors
    return _permuted(gradient, back, order), None, None


_operator = torch.library.custom_op(
    "pyfa_rocm::fmha_permuted",
    lambda x, order, back: x[order],
    mutates_args=(),
    schema="(Tensor x, Tensor order, Tensor back) -> Tensor",
)
_operator.register_fake(lambda x, order, back: x.new_empty(x.shape))
_operator.register_autograd(_permute_back, setup_context=_keep_order)


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
    if pattern.counts_places:
        return _tokens_alone(mask[:, -q_length:]), keys
    return _all_rows(mask.shape[0], q_length, mask.device), keys


def rows_of_tokens(
    keys: torch.Tensor, queries: Callable[[], torch.Tensor], q_length: int, pattern: Pattern
) -> tuple[Rows, Rows]:
    """Return in a graph, which cannot count them, the sequences of the tokens of a padded batch."""
    of_k = _tokens_first(keys)
    if pattern.counts_places:
        return _tokens_first(queries()), of_k
    return _all_rows(keys.shape[0], q_length, keys.device), of_k


def _tokens_first(tokens: torch.Tensor) -> Rows:
    """Return the tokens of a padded batch, a sequence each row; those of padding follow, in no sequence."""
    flat = tokens.flatten()
    counts = flat.cumsum(0)
    rows = torch.arange(flat.shape[0], device=flat.device)
    back = torch.where(flat, counts - 1, counts[-1] + rows - counts)
    order = torch.zeros_like(rows).scatter(0, back, rows)
    starts = torch.nn.functional.pad(tokens.sum(1).cumsum(0), (1, 0)).to(torch.int32)
    return Rows(None, starts, tokens.shape[1], order=(order, back))


def numbers_of(positions: torch.Tensor) -> torch.Tensor:
    """Return the number of the sequence of each token, which begins where positions start again."""
    return (positions == positions.amin(1, keepdim=True)).cumsum(1)


def rows_of_numbers(numbers: torch.Tensor) -> tuple[Rows, Rows]:
    """Return in a graph the sequences of a packed batch, by the number of each token's: waits once."""
    starts, sizes = starts_of(numbers)
    both = Rows(None, starts, numbers.shape[1], sizes=sizes)
    return both, both


def keep_rows(mask: torch.Tensor, rows: tuple[Rows, Rows] | None) -> None:
    """Let the sequences go with a mask through a graph."""
    setattr(mask, _IN_GRAPH, rows)


def kept_rows(mask: torch.Tensor) -> tuple[Rows, Rows] | None:
    """Return the sequences that go with a mask."""
    rows: tuple[Rows, Rows] | None = getattr(mask, _IN_GRAPH, None)
    return rows


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
