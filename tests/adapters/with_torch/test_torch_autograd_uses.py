# SPDX-License-Identifier: MIT OR Apache-2.0
"""Gradients as programs ask for them: a graph that is kept, an input or a layer used twice, threads."""

from __future__ import annotations

import copy
import threading
from collections import Counter
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import pytest
import torch
from adapters.with_torch.torch_gradients import as_good_as_plain, like, of, plain, qkv
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from pyfa_rocm.torch import flash_attn_func, flash_attn_varlen_func

LENGTHS = {  # of queries and of keys
    "some have no queries, some no keys": ([0, 10, 5, 0], [7, 0, 9, 0]),
    "no queries at all": ([0, 0], [7, 3]),
    "no keys at all": ([4, 5], [0, 0]),
    "neither": ([0, 0], [0, 0]),
    "no sequences": ([], []),
}


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention."""
    return flash_attn_func(q, k, v, causal=True)


causal = partial(plain, causal=True)


def test_a_graph_that_is_kept() -> None:
    """`retain_graph`: the same gradients again, which add up; without it, once."""
    inputs = qkv((1, 40, 4, 64), nhead_k=2, seqlen_k=50)
    out = attend(*inputs)
    dout = like(out)
    first = torch.autograd.grad(out, inputs, dout, retain_graph=True)
    out.backward(dout, retain_graph=True)
    out.backward(dout)
    as_good_as_plain(first, causal, inputs, dout)
    for x, gradient in zip(inputs, first, strict=True):
        # dQ is added up in any order: of the last bits no two passes need agree.
        torch.testing.assert_close(x.grad, 2 * gradient)
    with pytest.raises(RuntimeError, match="second time"):
        out.backward(dout)


def test_one_tensor_three_times() -> None:
    """Q, K and V are the same tensor: its gradient is the sum."""
    x = (qkv()[0],)
    dout = like(x[0])
    got = of(lambda x: attend(x, x, x), x, dout)
    as_good_as_plain(got, lambda x: causal(x, x, x), x, dout)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("masked", [False, True])
def test_packed_sequences_without_rows(lengths: tuple[list[int], list[int]], masked: bool) -> None:
    """Lengths and largest lengths of 0: a gradient for each input, 0 of what meets nothing."""
    rows, keys = lengths
    starts_q, starts_k = (torch.tensor([0, *accumulate(n)], dtype=torch.int32) for n in lengths)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn((total, heads, 64), generator=generator).half().requires_grad_()
        for total, heads in ((sum(rows), 4), (sum(keys), 2), (sum(keys), 2))
    )
    most = (max(rows, default=0), max(keys, default=0))
    out = flash_attn_varlen_func(q, k, v, starts_q, starts_k, *most, causal=masked)
    dout = like(out)
    got = torch.autograd.grad(out, (q, k, v), dout)
    seen = torch.zeros(sum(rows), dtype=torch.bool), torch.zeros(sum(keys), dtype=torch.bool)
    for i in range(len(rows)):
        m, n = slice(starts_q[i], starts_q[i + 1]), slice(starts_k[i], starts_k[i + 1])
        if not rows[i] or not keys[i]:
            continue
        seen[0][m], seen[1][n] = True, True
        one = tuple(x.detach()[None].requires_grad_() for x in (q[m], k[n], v[n]))
        mine = tuple(x[s][None] for x, s in zip(got, (m, n, n), strict=True))
        as_good_as_plain(mine, partial(plain, causal=masked), one, dout[m][None])
    for gradient, met in zip(got, (seen[0], seen[1], seen[1]), strict=True):
        assert not gradient[~met].any()


def test_one_compiled_graph_for_all_packed_lengths() -> None:
    """Sizes are symbols in the backward graph too; the lengths are data."""

    @partial(torch.compile, fullgraph=True, dynamic=True, backend="aot_eager")
    def packed(x: torch.Tensor, starts: torch.Tensor, most: int) -> torch.Tensor:
        return flash_attn_varlen_func(x, x, x, starts, starts, most, most, causal=True)

    for lengths in ([10, 0, 20], [5, 5], [0, 0, 7, 30]):
        starts = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)
        x = qkv((1, sum(lengths), 2, 64))[0][0].detach().requires_grad_()
        out = packed(x, starts, max(lengths))
        dout = like(out)
        (got,) = torch.autograd.grad(out, x, dout)
        for begin, end in pairwise(starts.tolist()):
            if begin < end:
                one = (x.detach()[None, begin:end].requires_grad_(),)
                as_good_as_plain(
                    (got[None, begin:end],), lambda x: causal(x, x, x), one, dout[None, begin:end]
                )


def test_saved_tensors_are_packed_and_unpacked() -> None:
    """Tensors that the forward pass saves go through the hooks that offload them."""
    inputs = qkv()
    dout = like(inputs[0])
    packed: list[torch.Size] = []

    def pack(x: torch.Tensor) -> torch.Tensor:
        packed.append(x.shape)
        return x.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, torch.clone):
        out = attend(*inputs)
    assert len(packed) >= 5  # q, k, v, O and the log-sum-exp
    as_good_as_plain(torch.autograd.grad(out, inputs, dout), causal, inputs, dout)


class Counting(TorchDispatchMode):
    """How often each operator of ours ran."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "pyfa_rocm":
            self.ran[func.name().partition("::")[2]] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("saved", "calls"), [(True, 1), (False, 2)])
def test_selective_checkpoint(saved: bool, calls: int) -> None:
    """A policy that saves attention's results and computes the rest again: no second forward pass."""

    def policy(_: Any, operator: Any, *__: Any, **___: Any) -> CheckpointPolicy:
        ours = saved and operator.namespace == "pyfa_rocm"
        return CheckpointPolicy.MUST_SAVE if ours else CheckpointPolicy.PREFER_RECOMPUTE

    inputs = qkv()
    dout = like(inputs[0])
    contexts = partial(create_selective_checkpoint_contexts, policy)
    with Counting() as counting:
        out = checkpoint(
            lambda q, k, v: attend(q * 1, k, v), *inputs, use_reentrant=False, context_fn=contexts
        )
        got = torch.autograd.grad(out, inputs, dout)
    as_good_as_plain(got, causal, inputs, dout)
    forward, backward = sorted(counting.ran, key=lambda name: "backward" in name or "bwd" in name)
    assert (counting.ran[forward], counting.ran[backward]) == (calls, 1)


def test_threads() -> None:
    """Each thread differentiates its own call."""
    failures: list[BaseException] = []

    def work(rows: int) -> None:
        try:
            inputs = qkv((1, rows, 2, 64), seed=rows)
            dout = like(inputs[0])
            as_good_as_plain(of(attend, inputs, dout), causal, inputs, dout)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(20 + i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


class Layer(torch.nn.Module):
    """Attention over a projection of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(64, 192, bias=False, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, rows, 64)."""
        return attend(*self.qkv(x).unflatten(-1, (3, 1, 64)).unbind(2)).flatten(-2).clone()


@pytest.mark.usefixtures("one_process")
def test_sharded_layers_of_which_one_runs_twice() -> None:
    """`fully_shard` gathers a layer's weights for the pass and scatters their gradients."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    first, second = Layer(), Layer()
    model = torch.nn.Sequential(first, second, first)
    alone = copy.deepcopy(model)
    mesh = init_device_mesh("cpu", (1,))
    for part in (first, second, model):
        fully_shard(part, mesh=mesh)
    x = torch.randn(2, 12, 64, generator=torch.Generator().manual_seed(2)).bfloat16()
    for module in (alone, model):
        module(x).float().pow(2).sum().backward()
    for a, b in zip(alone.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(b.grad.full_tensor(), a.grad)
