# SPDX-License-Identifier: MIT OR Apache-2.0
"""Gradients through `sdpa` and `FlashAttention`, and modules that torch stores, copies, casts, shares."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from adapters.with_torch.torch_gradients import as_good_as_plain, like, of, plain, qkv
from adapters.with_torch.two_processes import run_in_two
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from pyfa_rocm.torch import FlashAttention, flash_attn_func, sdpa

HEADS = {
    "plain": ((1, 24, 2, 64), {}, {}),
    "causal": ((2, 24, 2, 64), {}, {"is_causal": True}),
    "gqa": ((1, 20, 4, 64), {"nhead_k": 2}, {"enable_gqa": True}),
    "padded": ((1, 24, 2, 60), {"hdim_v": 50}, {"scale": 0.2}),
    "negative_scale": ((1, 24, 2, 64), {}, {"scale": -0.2}),
}


@pytest.mark.parametrize(("shape", "tensors", "options"), HEADS.values(), ids=HEADS)
def test_sdpa(shape: Any, tensors: dict[str, Any], options: dict[str, Any]) -> None:
    """As good as the formula in the low precision: head dimensions that are padded, and copies, included."""
    inputs = qkv(shape, **tensors)

    def mine(*x: torch.Tensor) -> torch.Tensor:
        return sdpa(*(y.transpose(1, 2) for y in x), **options).transpose(1, 2)

    def formula(*x: torch.Tensor) -> torch.Tensor:
        return plain(*x, causal=options.get("is_causal", False), scale=options.get("scale"))

    dout = like(mine(*inputs).detach())
    as_good_as_plain(of(mine, inputs, dout), formula, inputs, dout)


def test_sdpa_of_views_and_broadcast_dimensions() -> None:
    """Gradients flow through copies, expanded heads and leading dimensions."""
    generator = torch.Generator().manual_seed(0)
    sizes = ((2, 3, 2, 8, 68), (3, 1, 9, 68), (1, 1, 1, 9, 68))
    query, key, value = (torch.randn(x, generator=generator).half().requires_grad_() for x in sizes)

    def function(sdpa: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def of_views(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return sdpa(q[..., 1:65], k[..., 2:66], v[..., ::2])

        return of_views

    mine = function(sdpa)
    dout = like(mine(query, key, value).detach())
    got = of(mine, (query, key, value), dout)

    def formula(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q / 8 @ k.mT, -1) @ v

    as_good_as_plain(got, function(formula), (query, key, value), dout)


@pytest.mark.parametrize("by_row", [False, True])
def test_module_with_padding(by_row: bool) -> None:
    """As the same call without what the mask hides; hidden rows and keys have gradient 0."""
    inputs = qkv((2, 20, 2, 64))
    lengths = torch.tensor([[20], [11]])
    mask = torch.arange(20) < lengths
    if by_row:
        mask = mask[:, None] & mask[:, :, None]
    attention = FlashAttention()
    out = attention(*inputs, mask)
    assert attention.path == "lengths"
    dout = like(out)
    got = torch.autograd.grad(out, inputs, dout)
    short = tuple(x.detach()[1:, :11].requires_grad_() for x in inputs)
    want = of(flash_attn_func, short, dout[1:, :11])
    if by_row:
        assert not out[1, 11:].any()
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a[1:, :11], b, rtol=2e-3, atol=2e-3)
    assert all(not x[1, 11:].any() for x in got[0 if by_row else 1 :])
    with torch.no_grad():
        assert torch.equal(attention(*inputs, mask), out)


def _with_mask(mask: torch.Tensor) -> Callable[..., torch.Tensor]:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return sdpa(q, k, v, attn_mask=mask).transpose(1, 2)

    return function


def test_masks_that_are_a_bias() -> None:
    """A mask of any shape; one that is added, and its gradient, summed over heads."""
    inputs = qkv((1, 16, 2, 64))
    generator = torch.Generator().manual_seed(1)
    seen = torch.rand(16, 16, generator=generator) < 0.7
    out = _with_mask(seen)(*inputs)
    dout = like(out)
    as_good_as_plain(torch.autograd.grad(out, inputs, dout), lambda *x: plain(*x, mask=seen), inputs, dout)

    added = torch.randn(1, 1, 16, 16, generator=generator).half()

    def formula(*x: torch.Tensor) -> torch.Tensor:
        q, k, v = (y.transpose(1, 2) for y in x[:3])
        mask = x[3] if len(x) > 3 else added.to(q.dtype)
        return (torch.softmax(q / 8 @ k.mT + mask, -1) @ v).transpose(1, 2)

    def mine(*x: torch.Tensor) -> torch.Tensor:
        return _with_mask(x[3])(*x[:3])

    as_good_as_plain(of(_with_mask(added), inputs, dout), formula, inputs, dout)
    leaves = (*inputs, added.requires_grad_())
    as_good_as_plain(of(mine, leaves, dout), formula, leaves, dout)


class Block(torch.nn.Module):
    """Projections around attention: what a module is used in."""

    def __init__(self) -> None:
        super().__init__()
        self.project = torch.nn.Linear(64, 3 * 64)
        self.attention = FlashAttention(causal=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).unflatten(-1, (3, 2, 32)).unbind(-3)
        return self.attention(q, k, v).flatten(2)


@pytest.fixture
def block() -> Block:
    torch.manual_seed(0)
    cast: Block = Block().bfloat16()
    return cast


def _saved(block: Block) -> Block:
    file = io.BytesIO()
    torch.save(block, file)
    file.seek(0)
    loaded: Block = torch.load(file, weights_only=False)
    return loaded


def _from_state(block: Block) -> Block:
    fresh: Block = Block().bfloat16()
    file = io.BytesIO()
    torch.save(block.state_dict(), file)
    file.seek(0)
    assert not any("attention" in name for name in block.state_dict())
    fresh.load_state_dict(torch.load(file, weights_only=True))
    return fresh


def _cast(block: Block) -> Block:
    cast: Block = copy.deepcopy(block).float().bfloat16()
    return cast


COPIES: dict[str, Callable[[Block], Block]] = {
    "pickle": lambda block: pickle.loads(pickle.dumps(block)),
    "deepcopy": copy.deepcopy,
    "save": _saved,
    "state_dict": _from_state,
    "cast": _cast,
}


@pytest.mark.parametrize("copied", COPIES.values(), ids=COPIES)
def test_copies_do_the_same(block: Block, copied: Callable[[Block], Block]) -> None:
    """Copies of a module that was called may keep its path; each has its own gradients."""
    x = torch.randn(1, 12, 64, generator=torch.Generator().manual_seed(2)).bfloat16()
    want = block(x)
    want.float().pow(2).sum().backward()
    other = copied(block)
    other.zero_grad()
    out = other(x)
    out.float().pow(2).sum().backward()
    assert torch.equal(out, want)
    for a, b in zip(other.parameters(), block.parameters(), strict=True):
        assert a is not b
        torch.testing.assert_close(a.grad, b.grad)


def test_half() -> None:
    attention = FlashAttention(dropout=0.1, causal=True).half()
    assert (attention.dropout, attention.causal, attention.training) == (0.1, True, True)
    inputs = qkv()
    out = attention.eval()(*inputs)
    assert out.dtype == torch.float16
    assert torch.autograd.grad(out.sum(), inputs[2])[0].any()


@pytest.mark.usefixtures("one_process")
def test_distributed_data_parallel(block: Block) -> None:
    alone = copy.deepcopy(block)
    distributed = torch.nn.parallel.DistributedDataParallel(block)
    x = torch.randn(2, 12, 64, generator=torch.Generator().manual_seed(2)).bfloat16()
    for module in (alone, distributed):
        module(x).float().pow(2).sum().backward()
    for a, b in zip(alone.parameters(), block.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def _half_of_a_batch(rank: int, folder: Path) -> None:
    """One of two processes: gradients of its half alone, by data parallelism, and with sharded weights."""
    torch.manual_seed(0)
    alone: Block = Block().bfloat16()
    replica, sharded = copy.deepcopy(alone), copy.deepcopy(alone)
    fully_shard(sharded, mesh=init_device_mesh("cpu", (2,)))
    half = torch.randn(4, 12, 64, generator=torch.Generator().manual_seed(2)).bfloat16().chunk(2)[rank]
    for module in (alone, torch.nn.parallel.DistributedDataParallel(replica), sharded):
        module(half).float().pow(2).sum().backward()
    of_shards = [x.grad.full_tensor() for x in sharded.parameters()]
    grads = [[x.grad for x in module.parameters()] for module in (alone, replica)]
    torch.save([*grads, of_shards], folder / str(rank))


def test_two_processes(tmp_path: Path) -> None:
    """Both end with the mean of the two halves' gradients."""
    run_in_two(_half_of_a_batch, tmp_path)
    ranks = [torch.load(tmp_path / str(rank)) for rank in range(2)]
    for alone in zip(ranks[0][0], ranks[1][0], strict=True):
        assert not torch.equal(*alone)
    means = [(a.float() + b.float()) / 2 for a, b in zip(ranks[0][0], ranks[1][0], strict=True)]
    for _, *parallel in ranks:
        for grads in parallel:
            for got, mean in zip(grads, means, strict=True):
                torch.testing.assert_close(got, mean.to(got.dtype), rtol=2**-8, atol=0)


def test_training_reduces_the_loss(block: Block) -> None:
    x = torch.randn(2, 16, 64, generator=torch.Generator().manual_seed(2)).bfloat16()
    optimizer = torch.optim.SGD(block.parameters(), lr=0.5)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = (block(x).float() - 0.2).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
