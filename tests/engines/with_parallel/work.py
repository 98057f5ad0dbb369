# SPDX-License-Identifier: MIT OR Apache-2.0
"""The work of each rank: it cuts its rows out of the whole problem, attends, and returns what it has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import distributed
from torch.distributed.device_mesh import DeviceMesh

from pyfa_rocm.torch.context_parallel import (
    context_parallel_attn_func,
    context_parallel_attn_varlen_func,
    local_rows,
    shard,
)

NAMES = ("out", "lse", "dq", "dk", "dv")


@dataclass(frozen=True)
class Problem:
    """Packed sequences, cut among a grid of `rings` times `heads` ranks."""

    lengths: tuple[int, ...]
    rings: int = 1
    heads: int = 1
    nhead_q: int = 4
    nhead_k: int = 2
    hdim: int = 64
    dtype: str = "float16"
    causal: bool = True
    window_size: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    zigzag: bool = True
    seed: int = 0

    @property
    def starts(self) -> list[int]:
        return [0, *np.cumsum(self.lengths).tolist()]

    @property
    def options(self) -> dict[str, Any]:
        return {"causal": self.causal, "window_size": self.window_size, "softcap": self.softcap}

    def tensors(self) -> list[torch.Tensor]:
        """Return all rows of q, k, v and the gradient of O."""
        generator = torch.Generator().manual_seed(self.seed)
        heads = (self.nhead_q, self.nhead_k, self.nhead_k, self.nhead_q)
        shapes = [(sum(self.lengths), n, self.hdim) for n in heads]
        return [torch.randn(x, generator=generator).to(getattr(torch, self.dtype)) for x in shapes]


@cache
def mesh(rings: int, heads: int) -> DeviceMesh:
    return DeviceMesh(
        "cpu", torch.arange(rings * heads).view(rings, heads), mesh_dim_names=("ring", "ulysses")
    )


def groups(problem: Problem) -> dict[str, Any]:
    """Return the arguments that say who takes part: a mesh for a grid, else the whole group."""
    if problem.rings > 1 and problem.heads > 1:
        both = mesh(problem.rings, problem.heads)
        return {"ring": both["ring"], "ulysses": both["ulysses"]}
    return {"ring" if problem.heads == 1 else "ulysses": distributed.group.WORLD}


def attend(problem: Problem, dense: bool = False, compiled: bool = False) -> tuple[torch.Tensor, ...]:
    """Return this rank's rows among all, and of O, the log-sum-exp and the gradients of q, k and v."""
    where = groups(problem) | {"zigzag": problem.zigzag}
    rows = local_rows(problem.starts, **where)
    q, k, v, dout = (shard(x, problem.starts, dim=0, **where) for x in problem.tensors())
    inputs = [x.requires_grad_() for x in (q, k, v)]
    batch, starts = len(problem.lengths), problem.starts

    def packed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        if not dense:
            return context_parallel_attn_varlen_func(
                q, k, v, starts, **problem.options, **where, return_lse=True
            )
        q, k, v = (x.unflatten(0, (batch, -1)) for x in (q, k, v))
        out, lse = context_parallel_attn_func(q, k, v, **problem.options, **where, return_lse=True)
        return out.flatten(0, 1), lse.transpose(0, 1).flatten(1, 2)

    function = torch.compile(packed, fullgraph=True, backend="aot_eager") if compiled else packed
    out, lse = function(*inputs)
    # No kernel of this build has softcap's gradient.
    gradients = () if problem.softcap else torch.autograd.grad(out, inputs, dout)
    return rows, out.detach(), lse.detach(), *gradients
