# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention of sequences that are cut among the ranks of process groups, and the cut itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from pyfa_rocm._shards import Shards
from pyfa_rocm.errors import InvalidArgumentError
from pyfa_rocm.torch._arguments import window
from pyfa_rocm.torch._tensors import autocast, real, require_tensors
from pyfa_rocm.torch.context_parallel._heads import copies_of_heads, heads_to_rows, rows_to_heads
from pyfa_rocm.torch.context_parallel._messages import exchange_rows, group_of, peers_of
from pyfa_rocm.torch.context_parallel._ring import ring_attention

__all__ = [
    "context_parallel_attn_func",
    "context_parallel_attn_varlen_func",
    "local_rows",
    "shard",
    "unshard",
]


def context_parallel_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    *,
    ring: Any = None,
    ulysses: Any = None,
    zigzag: bool = True,
    return_lse: bool = False,
) -> Any:
    """Attention of sequences of one length, of which each rank has a part of the rows.

    Parameters
    ----------
    q : torch.Tensor, (batch, seqlen_local, nhead_q, hdim)
        This rank's rows of q, as `shard` cuts them: seqlen_local times the ranks is the sequences' length. A
        multiple of twice the ring's ranks with `zigzag`.
    k, v : torch.Tensor, (batch, seqlen_local, nhead_k, hdim) and (batch, seqlen_local, nhead_k, hdim_v)
        The same rows of k and v.
    softmax_scale, causal, window_size, softcap
        As in `pyfa_rocm.torch.flash_attn_func`, of whole sequences.
    ring, ulysses : ProcessGroup or DeviceMesh of one dimension, optional
        Ranks between which keys and values travel, and ranks that exchange rows for heads. With both, the
        ranks are a grid: those of `ulysses` share the rows of one of `ring`.
    zigzag : bool
        True: a ring's rank has a piece from the front of each sequence and its counterpart from the back, of
        equal work under a causal mask. False: it has one piece. All ranks say the same.
    return_lse : bool
        Also return the log-sum-exp, which has no gradient.

    Returns
    -------
    out : torch.Tensor, (batch, seqlen_local, nhead_q, hdim_v)
        This rank's rows.
    lse : torch.Tensor, float32 (batch, nhead_q, seqlen_local)
        Only with `return_lse`.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `pyfa_rocm.torch.flash_attn_func`.
    RuntimeError
        Another rank died, or was slower than the group's timeout: the message says which.

    Notes
    -----
    The operators are ``torch.ops.pyfa_rocm.ring_fwd`` and ``ring_bwd``, and ``rows_to_heads`` and
    ``heads_to_rows``. They have fake kernels: ``torch.compile(fullgraph=True)`` keeps them whole. Partial
    results are merged in float32 in an order that is fixed, and so are sums of gradients: both have the same
    bits from run to run.

    Examples
    --------
    >>> import torch
    >>> from torch import distributed
    >>> from pyfa_rocm.torch.context_parallel import context_parallel_attn_func
    >>> distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    >>> q, k, v = torch.ones(3, 1, 64, 2, 128, dtype=torch.float16)
    >>> context_parallel_attn_func(q, k, v, causal=True, ring=distributed.group.WORLD).shape
    torch.Size([1, 64, 2, 128])
    >>> distributed.destroy_process_group()
    """
    require_tensors(q=q, k=k, v=v)
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim != 4 or x.shape[:2] != q.shape[:2]:
            raise InvalidArgumentError(
                f"{name}: got shape {tuple(x.shape)}, expected (batch, seqlen_local, nhead, hdim) with q's "
                f"batch and seqlen_local, {tuple(q.shape[:2])}"
            )
    place = _place(ring, ulysses, zigzag)
    batch, rows = q.shape[:2]
    if zigzag and place.rings > 1 and rows * place.heads % 2:
        raise InvalidArgumentError(
            f"q: got {rows} rows, expected an even number with zigzag; pad them, or call "
            "context_parallel_attn_varlen_func, which takes any length"
        )
    lengths = [rows * place.rings * place.heads] * batch
    out, lse = _attend(
        place,
        lengths,
        (q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1)),
        softmax_scale,
        causal,
        window_size,
        softcap,
    )
    out = out.view(batch, rows, *out.shape[1:])
    return (out, lse.view(-1, batch, rows).transpose(0, 1).contiguous()) if return_lse else out


def context_parallel_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens: Sequence[int] | torch.Tensor,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    *,
    ring: Any = None,
    ulysses: Any = None,
    zigzag: bool = True,
    return_lse: bool = False,
) -> Any:
    """Like `context_parallel_attn_func`, but of packed sequences of any lengths.

    Arguments that are not listed are as there.

    Parameters
    ----------
    q : torch.Tensor, (total_local, nhead_q, hdim)
        This rank's rows: `shard` cuts each sequence by itself, and ranks may have different totals.
    k, v : torch.Tensor, (total_local, nhead_k, hdim) and (total_local, nhead_k, hdim_v)
        The same rows of k and v.
    cu_seqlens : sequence of int, or torch.Tensor on the CPU
        Where each whole sequence starts, and the end: the same on all ranks. A tensor breaks a compiled
        graph, since the host has to read it.

    Returns
    -------
    out : torch.Tensor, (total_local, nhead_q, hdim_v)
        This rank's rows.
    lse : torch.Tensor, float32 (nhead_q, total_local)
        Only with `return_lse`.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError, RuntimeError
        As in `context_parallel_attn_func`.

    Examples
    --------
    >>> import torch
    >>> from torch import distributed
    >>> from pyfa_rocm.torch.context_parallel import context_parallel_attn_varlen_func
    >>> distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    >>> q, k, v = torch.ones(3, 100, 2, 128, dtype=torch.bfloat16)
    >>> context_parallel_attn_varlen_func(q, k, v, [0, 30, 100], ring=distributed.group.WORLD).shape
    torch.Size([100, 2, 128])
    >>> distributed.destroy_process_group()
    """
    require_tensors(q=q, k=k, v=v)
    place, lengths = _place(ring, ulysses, zigzag), _lengths(cu_seqlens)
    # torch.compile cannot trace how rows are counted.
    rows = q.shape[0] if torch.compiler.is_compiling() else place.rows(lengths).size
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim != 3 or x.shape[0] != rows:
            raise InvalidArgumentError(
                f"{name}: got shape {tuple(x.shape)}, expected ({rows}, nhead, hdim): this rank's rows of "
                f"sequences of lengths {lengths}"
            )
    out, lse = _attend(place, lengths, (q, k, v), softmax_scale, causal, window_size, softcap)
    return (out, lse) if return_lse else out


def local_rows(
    cu_seqlens: Sequence[int] | torch.Tensor, *, ring: Any = None, ulysses: Any = None, zigzag: bool = True
) -> torch.Tensor:
    """Return the places of this rank's rows among all packed rows, int64, in their order.

    A rotary embedding takes a row's place in its sequence from it. Arguments are those of
    `context_parallel_attn_varlen_func`.
    """
    return torch.from_numpy(_place(ring, ulysses, zigzag).rows(_lengths(cu_seqlens)))


def shard(
    x: torch.Tensor,
    cu_seqlens: Sequence[int] | torch.Tensor | None = None,
    *,
    dim: int = 1,
    ring: Any = None,
    ulysses: Any = None,
    zigzag: bool = True,
) -> torch.Tensor:
    """Return this rank's rows of a tensor that has all of them, along a dimension.

    Parameters
    ----------
    x : torch.Tensor
        The same on all ranks: tokens, labels, positions, or q, k and v.
    cu_seqlens : sequence of int, or torch.Tensor on the CPU, optional
        Where packed sequences start, and the end. None: `dim` is that of sequences of one length.
    dim : int
        The rows' dimension.
    ring, ulysses, zigzag
        As in `context_parallel_attn_func`.
    """
    at = [0, x.shape[dim]] if cu_seqlens is None else cu_seqlens
    return x.index_select(dim, local_rows(at, ring=ring, ulysses=ulysses, zigzag=zigzag).to(x.device))


def unshard(
    x: torch.Tensor,
    cu_seqlens: Sequence[int] | torch.Tensor | None = None,
    *,
    dim: int = 1,
    ring: Any = None,
    ulysses: Any = None,
    zigzag: bool = True,
) -> torch.Tensor:
    """Return all ranks' rows in their order, on each rank: the inverse of `shard`. It has no gradient."""
    place = _place(ring, ulysses, zigzag)
    lengths = [x.shape[dim] * place.rings * place.heads] if cu_seqlens is None else _lengths(cu_seqlens)
    shards = place.shards(lengths)
    rows = x.detach().movedim(dim, 0)
    counts = [shards.rows(place.ring, head).size for head in range(place.heads)]
    rows = _gathered(rows, counts, place.ulysses_name)
    rows = _gathered(rows, [shards.ring_rows(i).size for i in range(place.rings)], place.ring_name)
    places = torch.cat([torch.from_numpy(shards.gathered(i)) for i in range(place.rings)])
    return rows.index_select(0, places.argsort().to(rows.device)).movedim(0, dim)


def _gathered(rows: torch.Tensor, counts: list[int], group_name: str) -> torch.Tensor:
    """Return the rows of all ranks of a group, one rank after the other."""
    if not group_name:
        return rows
    everywhere = rows.expand(len(counts), *rows.shape).flatten(0, 1)
    return exchange_rows(peers_of(group_name), everywhere, counts, [rows.shape[0]] * len(counts))


@dataclass(frozen=True)
class _Place:
    """A rank's place in a ring and among those that exchange heads. A group without a name is of one."""

    ring: int
    rings: int
    head: int
    heads: int
    ring_name: str
    ulysses_name: str
    zigzag: bool

    def shards(self, lengths: Sequence[int]) -> Shards:
        return Shards(tuple(int(n) for n in lengths), self.rings, self.heads, self.zigzag)

    def rows(self, lengths: Sequence[int]) -> Any:
        return self.shards(lengths).rows(self.ring, self.head)


def _place(ring: Any, ulysses: Any, zigzag: bool) -> _Place:
    groups = group_of("ring", ring), group_of("ulysses", ulysses)
    if groups == (None, None):
        raise InvalidArgumentError(
            "ring, ulysses: got None, expected a process group for one of them or both"
        )
    (ring_index, rings, ring_name), (head, heads, ulysses_name) = (_known(x) for x in groups)
    return _Place(ring_index, rings, head, heads, ring_name, ulysses_name, bool(zigzag))


def _known(group: Any) -> tuple[int, int, str]:
    """Return a rank, its group's size, and the group's name, by calls that torch.compile can trace."""
    return (0, 1, "") if group is None else (group.rank(), group.size(), group.group_name)


def _lengths(cu_seqlens: Sequence[int] | torch.Tensor) -> list[int]:
    starts = cu_seqlens.tolist() if isinstance(cu_seqlens, torch.Tensor) else list(cu_seqlens)
    if not starts or starts[0]:
        raise InvalidArgumentError(f"cu_seqlens: got {starts}, expected first rows from 0 on, and the end")
    return [stop - start for start, stop in pairwise(starts)]


def _attend(
    place: _Place,
    lengths: list[int],
    tensors: tuple[torch.Tensor, ...],
    softmax_scale: float | None,
    causal: bool,
    window_size: tuple[int, int],
    softcap: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return O (rows, nhead, hdim_v) and the log-sum-exp (nhead, rows) of this rank's packed rows."""
    q, k, v = autocast(*tensors)
    exchanged = (lengths, place.rings, place.ring, place.zigzag, place.ulysses_name)
    if place.heads > 1:
        copies = copies_of_heads(q.shape[1], k.shape[1], place.heads)
        k, v = (x.repeat_interleave(copies, 1) if copies > 1 else x for x in (k, v))
        q, k, v = (rows_to_heads(x.contiguous(), *exchanged) for x in (q, k, v))
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else real("softmax_scale", softmax_scale)
    out, lse = ring_attention(
        q, k, v, lengths, place.zigzag, place.ring_name, bool(causal), *window(window_size), scale,
        real("softcap", softcap),
    )  # fmt: skip
    if place.heads > 1:
        out = heads_to_rows(out, *exchanged)
        lse = heads_to_rows(lse.detach().mT.unsqueeze(-1).contiguous(), *exchanged).squeeze(-1).mT
    return out, lse
