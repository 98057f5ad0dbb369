# SPDX-License-Identifier: MIT OR Apache-2.0
"""Ulysses: ranks exchange rows for heads, so that each has all rows of some of the heads.

The two operators are each other's inverse, and so each other's gradient.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from pyfa_rocm._shards import Shards
from pyfa_rocm.errors import InvalidArgumentError
from pyfa_rocm.torch.context_parallel._messages import exchange_rows, peers_of

__all__ = ["copies_of_heads", "heads_to_rows", "rows_to_heads"]


def copies_of_heads(nhead_q: int, nhead_k: int, ranks: int) -> int:
    """Return how many ranks share a head of k, or raise if heads cannot be shared out."""
    if nhead_q % ranks:
        raise InvalidArgumentError(
            f"ulysses: got {ranks} ranks for {nhead_q} heads of q, expected a number that divides them; let "
            "more of the ranks be the ring's"
        )
    if nhead_k % ranks and ranks % nhead_k:
        raise InvalidArgumentError(
            f"ulysses: got {ranks} ranks for {nhead_k} heads of k, expected a multiple or a divisor of them; "
            "let more of the ranks be the ring's"
        )
    return max(1, ranks // nhead_k)


@functools.lru_cache(maxsize=64)
def _order(shards: Shards, ring: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return which of the gathered rows come in their order, and the inverse; None: they are in order."""
    order = np.argsort(shards.gathered(ring))
    if (order == np.arange(order.size)).all():
        return None
    return torch.from_numpy(order).to(device), torch.from_numpy(np.argsort(order)).to(device)


@torch.library.custom_op("pyfa_rocm::rows_to_heads", mutates_args=())
def rows_to_heads(
    x: torch.Tensor, lengths: Sequence[int], rings: int, ring: int, zigzag: bool, group_name: str
) -> torch.Tensor:
    """Give this rank's rows of all heads (rows, heads, width); return all ranks' rows of its heads."""
    peers = peers_of(group_name)
    shards = _shards(lengths, rings, peers.size, zigzag)
    rows, heads, width = x.shape
    apart = x.view(rows, peers.size, heads // peers.size, width).transpose(0, 1).flatten(0, 1)
    gathered = exchange_rows(peers, apart, _counts(shards, ring), [rows] * peers.size)
    order = _order(shards, ring, x.device)
    return gathered if order is None else gathered.index_select(0, order[0])


@torch.library.custom_op("pyfa_rocm::heads_to_rows", mutates_args=())
def heads_to_rows(
    x: torch.Tensor, lengths: Sequence[int], rings: int, ring: int, zigzag: bool, group_name: str
) -> torch.Tensor:
    """Give all ranks' rows of this rank's heads; return this rank's rows of all heads."""
    peers = peers_of(group_name)
    shards = _shards(lengths, rings, peers.size, zigzag)
    order = _order(shards, ring, x.device)
    x = x if order is None else x.index_select(0, order[1])
    counts = _counts(shards, ring)
    rows = counts[peers.rank]
    apart = exchange_rows(peers, x, [rows] * peers.size, counts)
    return apart.view(peers.size, rows, *x.shape[1:]).transpose(0, 1).flatten(1, 2)


def _shards(lengths: Sequence[int], rings: int, heads: int, zigzag: bool) -> Shards:
    return Shards(tuple(int(n) for n in lengths), rings, heads, zigzag)


def _counts(shards: Shards, ring: int) -> list[int]:
    """Return how many rows each of the ranks has that exchange heads."""
    return [shards.rows(ring, i).size for i in range(shards.heads)]


@rows_to_heads.register_fake
def _(x: Any, lengths: Any, rings: int, ring: int, zigzag: bool, group_name: str) -> torch.Tensor:
    size = peers_of(group_name).size
    total = sum(_counts(_shards(lengths, rings, size, zigzag), ring))
    return x.new_empty(total, x.shape[1] // size, x.shape[2])


@heads_to_rows.register_fake
def _(x: Any, lengths: Any, rings: int, ring: int, zigzag: bool, group_name: str) -> torch.Tensor:
    peers = peers_of(group_name)
    shards = _shards(lengths, rings, peers.size, zigzag)
    return x.new_empty(shards.rows(ring, peers.rank).size, x.shape[1] * peers.size, x.shape[2])


def _save(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    _, *ctx.rest = inputs


def _backward_of_rows(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    return heads_to_rows(gradient, *ctx.rest), *(None for _ in ctx.rest)


def _backward_of_heads(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
    return rows_to_heads(gradient.contiguous(), *ctx.rest), *(None for _ in ctx.rest)


rows_to_heads.register_autograd(_backward_of_rows, setup_context=_save)
heads_to_rows.register_autograd(_backward_of_heads, setup_context=_save)
