# SPDX-License-Identifier: MIT OR Apache-2.0
"""The sequences of a batch, from the arguments beside the mask that say which tokens belong together.

Data collators that pack hand on ``cu_seq_lens_q`` and its kin, ``seq_idx``, or only positions that start
again. A model passes all of them to its attention. Any that is not obeyed here is refused: tokens would
attend to other sequences, and nobody would see it.
"""

from __future__ import annotations

from typing import Any

import torch

from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError
from pyfa_rocm.torch._mask import can_look
from pyfa_rocm.transformers._mask import is_range, tagged_pattern, tokens_of
from pyfa_rocm.transformers._pattern import Pattern
from pyfa_rocm.transformers._rows import (
    Rows,
    kept_rows,
    numbers_of,
    once,
    rows_of_numbers,
    rows_of_tokens,
    sequences,
)

__all__ = ["in_use", "packed_rows", "traced_rows", "within_sequences"]

_STARTS = ("cu_seq_lens_q", "cu_seq_lens_k")
_LONGEST = ("max_length_q", "max_length_k")
_INTEGERS = (torch.int32, torch.int64)


def packed_rows(
    kwargs: dict[str, Any], mask: torch.Tensor | None, pattern: Pattern, q: torch.Tensor, k: torch.Tensor
) -> tuple[Rows, Rows] | None:
    """Return the sequences of queries and of keys; None: no argument beside the mask tells of several.

    Parameters
    ----------
    kwargs : dict
        Arguments that a model gave its attention.
    mask : torch.Tensor, optional
        From `attention_mask`, not one of every query and key.
    pattern : Pattern
        The keys that a query sees of its own sequence.
    q, k : torch.Tensor, (batch, seqlen, nhead, hdim)
        k has all keys, those of a cache too.

    Raises
    ------
    InvalidArgumentError
        An argument does not fit, or the mask says something else.
    UnsupportedError
        Positions start again in tokens that follow those of a cache.
    """
    rows = _rows_by_starts(kwargs, q, k)
    if rows is not None:
        _require_no_padding(mask, "cu_seq_lens_q")
        return rows
    numbers = None if torch.compiler.is_compiling() else kwargs.get("seq_idx")
    if numbers is not None:
        rows = _rows_by_numbers(numbers, q, k)
        if rows is not None:
            _require_no_padding(mask, "seq_idx")
        return rows
    return _rows_by_positions(kwargs.get("position_ids"), mask, pattern, q, k)


def traced_rows(
    kwargs: dict[str, Any], mask: torch.Tensor | None, pattern: Pattern, q: torch.Tensor, k: torch.Tensor
) -> tuple[Rows, Rows] | None:
    """Return in a graph the sequences of queries and of keys; None: all tokens of a row are one.

    `attention_mask` has found them once for all layers. Only what it is not told of is left to each layer:
    seq_idx, and the positions of models that make masks without them.
    """
    q_length, numbers = q.shape[1], kwargs.get("seq_idx")
    if mask is not None and (is_range(mask) or pattern.padded):
        if mask.dtype == torch.bool and numbers is not None and q_length > 1:
            _require_no_padding(mask, "seq_idx")
        return kept_rows(mask) or _rows_in_graph(mask, pattern, q_length, k.shape[1])
    if mask is not None and (rows := kept_rows(mask)) is not None:
        return rows
    if numbers is None:
        positions = kwargs.get("position_ids")
        if isinstance(positions, torch.Tensor) and positions.dim() == 2 and positions.shape[1] == q_length:
            numbers = numbers_of(positions)
    if numbers is None or q_length == 1 or k.shape[1] != q_length:
        return None
    return rows_of_numbers(numbers.expand(q.shape[0], -1).to(torch.int64))


def _rows_in_graph(mask: torch.Tensor, pattern: Pattern, q_length: int, k_length: int) -> tuple[Rows, Rows]:
    """Return the sequences of a mask that was made outside of the graph, or says where keys begin and end."""
    if not is_range(mask):
        if mask.dtype == torch.int64:
            return rows_of_numbers(mask)
        return rows_of_tokens(mask, lambda: mask[:, -q_length:], q_length, pattern)
    begins, ends = mask[:, 0, 0, :, None]
    places = torch.arange(k_length, device=mask.device)
    keys = (places >= begins) & (places < ends)
    return rows_of_tokens(keys, lambda: ends - q_length + places[:q_length] >= begins, q_length, pattern)


def within_sequences(mask: torch.Tensor, kwargs: dict[str, Any], q: torch.Tensor, k: torch.Tensor) -> Any:
    """Return a mask of every query and key in which, besides, none sees another sequence.

    Positions do not count: transformers has looked at them when it made the mask.
    """
    mask, rows, numbers = mask[..., : k.shape[1]], _rows_by_starts(kwargs, q, k), kwargs.get("seq_idx")
    if rows is not None:
        if q.shape[0] != 1:
            raise UnsupportedError(
                f"attention_mask: got one of shape {tuple(mask.shape)} beside sequences packed in "
                f"{q.shape[0]} rows, expected None or a single row"
            )
        own, others = (_numbers(of, x.shape[1], mask.device) for of, x in zip(rows, (q, k), strict=True))
        same = own[:, None] == others
    elif numbers is not None and q.shape[1] > 1:
        expected = q.shape[0], k.shape[1]
        if numbers.shape != expected:
            raise InvalidArgumentError(f"seq_idx: got shape {tuple(numbers.shape)}, expected {expected}")
        same = numbers[:, None, -q.shape[1] :, None] == numbers[:, None, None]
    else:
        return mask
    return mask & same if mask.dtype == torch.bool else mask.masked_fill(~same, torch.finfo(mask.dtype).min)


def _numbers(rows: Rows, count: int, device: torch.device) -> torch.Tensor:
    """Return the number of the sequence of each token, of the queries or the keys of one row."""
    tokens = torch.arange(count, dtype=torch.int32, device=device)
    return torch.searchsorted(rows.starts, tokens, right=True)


def _rows_by_starts(kwargs: dict[str, Any], q: torch.Tensor, k: torch.Tensor) -> tuple[Rows, Rows] | None:
    starts: list[Any] = [kwargs.get(name) for name in _STARTS]
    if all(x is None for x in starts):
        return None
    shapes = []
    for name, x in zip(_STARTS, starts, strict=True):
        if not isinstance(x, torch.Tensor) or x.dim() != 1 or x.dtype not in _INTEGERS or not x.shape[0]:
            got = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, torch.Tensor) else type(x).__name__
            raise InvalidArgumentError(f"{name}: got {got}, expected int32 (sequences + 1,)")
        shapes.append(x.shape[0])
    if shapes[0] != shapes[1]:
        raise InvalidArgumentError(
            f"cu_seq_lens_k: got shape ({shapes[1]},), expected ({shapes[0]},) as cu_seq_lens_q"
        )
    of_q, of_k = (
        Rows(None, x.to(q.device, torch.int32), _longest(kwargs.get(name), of.shape[0] * of.shape[1]))
        for x, name, of in zip(starts, _LONGEST, (q, k), strict=True)
    )
    return of_q, of_k


def _longest(given: Any, most: int) -> int:
    """Return a bound of the lengths: the given one, or that of all tokens."""
    if given is None:
        return most
    number: int = given.item() if isinstance(given, torch.Tensor) else given
    return number


def _rows_by_numbers(numbers: torch.Tensor, q: torch.Tensor, k: torch.Tensor) -> tuple[Rows, Rows] | None:
    """Return sequences by the number of each token's; None: there is but one in a row."""
    if numbers.shape[-1] == 1:
        return None
    expected = q.shape[0], q.shape[1]
    if numbers.shape != expected:
        raise InvalidArgumentError(f"seq_idx: got shape {tuple(numbers.shape)}, expected {expected}")
    found: Rows | None = once(numbers, ("numbers",), lambda: _several(numbers))
    if found is not None and k.shape[1] != q.shape[1]:
        raise UnsupportedError(
            f"seq_idx: got several sequences in {q.shape[1]} tokens after those of a cache, expected one"
        )
    return None if found is None else (found, found)


def _several(numbers: torch.Tensor) -> Rows | None:
    """Return the sequences if a row has more than one."""
    if (numbers[:, 1:] == numbers[:, :-1]).all():
        return None
    return sequences(numbers)


def _rows_by_positions(
    positions: Any, mask: torch.Tensor | None, pattern: Pattern, q: torch.Tensor, k: torch.Tensor
) -> tuple[Rows, Rows] | None:
    """Return the sequences that begin where positions start again, as flash_attention_2 counts them.

    transformers tells of them by the mask only if there is no cache, which models make by default.
    """
    batch, q_length = q.shape[:2]
    if not isinstance(positions, torch.Tensor) or positions.dim() != 2 or positions.shape[1] != q_length:
        return None  # those of images have more dimensions, and say nothing of sequences
    if q_length == 1 or positions.shape[0] not in (1, batch) or not can_look(positions):
        return None
    if mask is not None and mask.dtype == torch.int64:
        return None  # it has their numbers
    found: Rows | None = once(positions, ("restarts", batch), lambda: _restarting(positions, batch))
    if found is None or _has_padding(mask):
        return None
    if in_use(mask, k) == q_length:
        return found, found
    if not pattern.causal:
        return None  # the keys are of an encoder
    raise UnsupportedError(
        f"position_ids: got several sequences in {q_length} tokens after those of a cache, expected one: "
        "pass use_cache=False, or cu_seq_lens_q, cu_seq_lens_k, max_length_q and max_length_k"
    )


def _restarting(positions: torch.Tensor, batch: int) -> Rows | None:
    numbers = numbers_of(positions)
    if not (numbers[:, -1] > 1).any():
        return None
    return sequences(numbers.expand(batch, -1))


def _tokens(mask: torch.Tensor) -> torch.Tensor:
    if not is_range(mask):
        return mask
    made: torch.Tensor = once(mask, ("tokens",), lambda: tokens_of(mask))
    return made


def in_use(mask: torch.Tensor | None, k: torch.Tensor) -> int:
    """Return how many keys of a cache are in use."""
    count: int = (k if mask is None else _tokens(mask)).shape[1]
    return count


def _has_padding(mask: torch.Tensor | None) -> bool:
    if mask is None or mask.dtype == torch.int64:
        return False
    tokens = _tokens(mask)
    result: bool = once(tokens, ("padding",), lambda: not bool(tokens.all()))
    return result


def _require_no_padding(mask: torch.Tensor | None, name: str) -> None:
    if mask is None or mask.dtype == torch.int64:
        return
    pattern = tagged_pattern(mask)
    may_have = pattern is None or pattern.padded
    if _has_padding(mask) if can_look(mask) else may_have:
        raise InvalidArgumentError(
            f"attention_mask: got one with padding beside {name}, expected None: the sequences have none"
        )
