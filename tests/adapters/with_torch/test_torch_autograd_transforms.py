# SPDX-License-Identifier: MIT OR Apache-2.0
"""Gradients of pyfa_rocm.torch under torch.compile, checkpointing and torch.func: those of eager mode."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from adapters.with_torch.torch_gradients import Tensors, dropping, like, of, qkv
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch.utils.checkpoint import checkpoint

from pyfa_rocm import UnsupportedError
from pyfa_rocm.torch import FlashAttention, flash_attn_func, flash_attn_varlen_func, sdpa

BACKENDS = ["aot_eager", *(["inductor"] if shutil.which("gcc") else [])]


def layer(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return flash_attn_func(q * 0.5, k, v, causal=True) * 2


def close(got: Any, want: Any) -> None:
    """Equal but for the order in which dQ is added up."""
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-3)


def detached(inputs: Tensors) -> Tensors:
    return tuple(x.detach() for x in inputs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled(backend: str) -> None:
    """In one graph each way, one for all sizes, and without calls of Python in between."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(layer, backend=backend, fullgraph=True, dynamic=True)
    for batch, seqlen in ((3, 24), (5, 40)):
        inputs = qkv((batch, seqlen, 2, 64))
        dout = like(inputs[0])
        close(of(compiled, inputs, dout), of(layer, inputs, dout))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_backward_graph_is_compiled() -> None:
    """It has the operator, and what is between the graphs is what backward reads."""
    torch._dynamo.reset()
    graphs: dict[str, list[str]] = {}

    def keep(name: str) -> Callable[..., Any]:
        def compiler(graph: torch.fx.GraphModule, _: Any) -> Any:
            graphs[name] = [str(node.target) for node in graph.graph.nodes]
            return make_boxed_func(graph.forward)

        return compiler

    backend = aot_autograd(fw_compiler=keep("forward"), bw_compiler=keep("backward"))
    inputs = qkv()
    of(torch.compile(layer, backend=backend, fullgraph=True), inputs, like(inputs[0]))
    assert graphs["forward"].count("pyfa_rocm.fmha_fwd.default") == 1
    assert graphs["backward"].count("pyfa_rocm.fmha_bwd.default") == 1
    assert "pyfa_rocm.fmha_fwd.default" not in graphs["backward"]


def test_compiled_packed_sequences_and_module() -> None:
    torch._dynamo.reset()
    at = torch.tensor([0, 7, 24], dtype=torch.int32)
    attention = FlashAttention()
    mask = torch.arange(24) < torch.tensor([[20]])

    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        packed = flash_attn_varlen_func(q[0], k[0], v[0], at, at, 17, 17, causal=True)
        heads = sdpa(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        return packed + heads[0].transpose(0, 1) + attention(q, k, v, mask, suffix=True)[0]

    inputs = qkv()
    dout = like(inputs[0][0])
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    close(of(compiled, inputs, dout), of(function, inputs, dout))


def test_refused_when_compiled() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(flash_attn_func, backend="aot_eager", fullgraph=True)
    fp8 = [x.detach().to(torch.float8_e4m3fnuz).requires_grad_() for x in qkv()]
    with pytest.raises(torch._dynamo.exc.TorchRuntimeError, match="requires a gradient"):
        compiled(*fp8)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint(use_reentrant: bool) -> None:
    """Recomputed with the same random numbers."""
    inputs = tuple(x.detach()[0].requires_grad_() for x in qkv((1, 20, 2, 128)))
    dout = like(inputs[0])
    torch.manual_seed(3)
    want_out = dropping(*inputs)
    want = torch.autograd.grad(want_out, inputs, dout)
    torch.manual_seed(3)
    out = checkpoint(dropping, *inputs, use_reentrant=use_reentrant)
    torch.manual_seed(4)
    assert torch.equal(out, want_out)
    out.backward(dout)
    close([x.grad for x in inputs], want)


def test_func_grad_and_vjp() -> None:
    inputs = qkv()
    dout = like(inputs[0])
    want = of(layer, inputs, dout)
    got = torch.func.vjp(layer, *detached(inputs))[1](dout)
    close(got, want)
    grad = torch.func.grad(lambda *x: (layer(*x) * dout).float().sum(), argnums=(0, 1, 2))
    close(grad(*detached(inputs)), want)


def test_vmap_of_backward() -> None:
    """Several gradients of one O can be mapped, as jacrev does, in any dimension."""
    inputs = qkv((1, 5, 1, 32), dtype=torch.bfloat16)
    out, vjp = torch.func.vjp(layer, *detached(inputs))
    douts = torch.stack([like(out, seed) for seed in range(3)])
    want = [torch.stack(x) for x in zip(*(vjp(x) for x in douts), strict=True)]
    close(torch.vmap(vjp)(douts), want)
    close(torch.vmap(vjp, in_dims=4)(douts.movedim(0, 4)), want)
    rows = torch.func.jacrev(lambda q: layer(q, *detached(inputs[1:]))[0, 2, 0, :4])(inputs[0].detach())
    one = torch.zeros_like(out)
    one[0, 2, 0, 3] = 1
    close([rows[3]], [vjp(one)[0]])


@pytest.mark.parametrize("batch", [1, 2])
def test_per_sample_gradients(batch: int) -> None:
    inputs = qkv((3 * batch, 12, 2, 64))
    samples = tuple(x.detach().unflatten(0, (3, batch)) for x in inputs)
    grad = torch.func.grad(lambda *x: layer(*x).float().pow(2).sum(), argnums=(0, 1, 2))
    want = [torch.stack(x) for x in zip(*(grad(*(x[i] for x in samples)) for i in range(3)), strict=True)]
    close(torch.vmap(grad)(*samples), want)
    shared = torch.vmap(grad, in_dims=(0, None, None))(samples[0], samples[1][0], samples[2][0])
    close([shared[0][0]], [want[0][0]])
    summed = torch.func.grad(lambda *x: torch.vmap(layer)(*x).float().pow(2).sum(), argnums=(0, 1, 2))
    close(summed(*samples), want)


def test_vmap_of_packed_sequences_and_written_gradients() -> None:
    at = torch.tensor([0, 5, 12], dtype=torch.int32)
    q, k, v = detached(qkv((2, 12, 2, 64)))
    dout = like(q)
    calls = []
    for i in range(2):
        out, lse = flash_attn_varlen_func(q[i], k[i], v[i], at, at, 7, 7, return_lse=True)
        calls.append((out, lse))
    outs, lses = (torch.stack(x) for x in zip(*calls, strict=True))
    lengths = (at, at, None, None, 7, 7)

    def new(*x: torch.Tensor) -> Any:
        return torch.ops.pyfa_rocm.fmha_varlen_bwd(*x, *lengths)[:3]

    def written(*x: torch.Tensor) -> Any:
        torch.ops.pyfa_rocm.fmha_varlen_bwd_out(*x, *lengths)
        return x[6:]

    arguments = (dout, q, k, v, outs, lses)
    want = [torch.stack(x) for x in zip(*(new(*(x[i] for x in arguments)) for i in range(2)), strict=True)]
    close(torch.vmap(new)(*arguments), want)
    close(torch.vmap(written)(*arguments, *(torch.zeros_like(q) for _ in range(3))), want)


SECOND: dict[str, Callable[[Callable[..., Any], torch.Tensor], Any]] = {
    "create_graph": lambda f, x: torch.autograd.grad(
        torch.autograd.grad(f(y := x.clone().requires_grad_()), y, create_graph=True)[0].float().sum(), y
    ),
    "grad_of_grad": lambda f, x: torch.func.grad(lambda y: torch.func.grad(f)(y).float().sum())(x),
    "jacrev_of_jacrev": lambda f, x: torch.func.jacrev(torch.func.jacrev(f))(x),
    "compiled": lambda f, x: torch.compile(
        torch.func.grad(lambda y: torch.func.grad(f)(y).float().sum()), backend="aot_eager", fullgraph=True
    )(x),
}


@pytest.mark.parametrize("second", SECOND.values(), ids=SECOND)
def test_second_derivatives_are_refused(second: Callable[..., Any]) -> None:
    _, k, v = detached(qkv((1, 4, 1, 64)))
    with pytest.raises(Exception, match=r"double backward.*no second derivatives"):
        second(lambda x: flash_attn_func(x, k, v).float().pow(2).sum(), like(k))


@pytest.mark.parametrize("transform", [torch.func.jacfwd, torch.func.hessian])
def test_forward_mode_is_refused(transform: Callable[..., Any]) -> None:
    q, k, v = detached(qkv((1, 4, 1, 64)))
    function = transform(lambda x: flash_attn_func(x, k, v).float().sum())
    with pytest.raises(UnsupportedError, match=r"q: got a tensor with a tangent.*detach\(\)"):
        function(q)
