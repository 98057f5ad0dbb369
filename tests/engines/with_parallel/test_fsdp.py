# SPDX-License-Identifier: MIT OR Apache-2.0
"""A layer whose parameters FSDP cuts, with attention of rows that the same ranks share, compiled and not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from engines.with_parallel.ranks import Ranks
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

from pyfa_rocm.torch.context_parallel import context_parallel_attn_func, shard

ROWS, HEADS, HDIM = 64, 4, 64
WIDTH = HEADS * HDIM


class Layer(nn.Module):
    """Attention between two products, of whole sequences if no group is given."""

    def __init__(self, where: dict[str, Any] | None) -> None:
        super().__init__()
        self.qkv, self.out, self.where = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), where

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, HDIM)).unbind(-3)
        if self.where is None:
            q, k, v = (y.transpose(1, 2) for y in (q, k, v))
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        else:
            y = context_parallel_attn_func(q.half(), k.half(), v.half(), causal=True, **self.where).float()
        return self.out(y.flatten(2))


def _made(where: dict[str, Any] | None) -> tuple[Layer, torch.Tensor]:
    torch.manual_seed(3)
    return Layer(where), torch.randn(1, ROWS, WIDTH)


def _train(compiled: bool) -> dict[str, torch.Tensor]:
    """Return the gradients of all parameters, whole."""
    world = distributed.group.WORLD
    layer, x = _made({"ring": world})
    fully_shard(layer, mesh=distributed.init_device_mesh("cpu", (world.size(),)))
    run = torch.compile(layer, backend="aot_eager") if compiled else layer
    # FSDP takes the mean over ranks, of which each has a part of the rows.
    (run(shard(x, ring=world)).square().sum() * world.size()).backward()
    return {name: p.grad.full_tensor() for name, p in layer.named_parameters()}


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients(ranks: Callable[[int], Ranks], compiled: bool) -> None:
    """As of the layer on one device, in float32, but for eight roundings of half an ulp of float16, 2^-11.

    q, k, v, O, dO and the gradients of q, k and v are rounded. That makes sqrt(8) 2^-11, below 2^-9.
    """
    layer, x = _made(None)
    layer(x).square().sum().backward()
    for found in ranks(2).all(_train, compiled):
        for name, p in layer.named_parameters():
            assert p.grad is not None
            error = (found[name] - p.grad).norm() / p.grad.norm()
            assert error < 2**-9, name
