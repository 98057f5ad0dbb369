# SPDX-License-Identifier: MIT OR Apache-2.0
"""The same problems by other packages' context parallel attention, unmodified, on these kernels."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from contextlib import ExitStack

import torch
from engines.with_parallel.work import Problem
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional

from pyfa_rocm import emulator
from pyfa_rocm.torch.context_parallel import local_rows, shard

_entered = ExitStack()  # for the life of this process, which does nothing else
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def by(problem: Problem, make: Callable[[Problem], Attend]) -> tuple[torch.Tensor, ...]:
    """Return this rank's rows, O, an empty log-sum-exp, and the gradients, of one sequence."""
    where = {"ring": distributed.group.WORLD, "zigzag": problem.zigzag}
    rows = local_rows(problem.starts, **where)
    q, k, v, dout = (shard(x, problem.starts, dim=0, **where)[None] for x in problem.tensors())
    inputs = [x.requires_grad_() for x in (q, k, v)]
    out = make(problem)(*inputs)
    gradients = torch.autograd.grad(out, inputs, dout)
    return rows, *(x.detach()[0] for x in (out, *gradients))


def ring_flash_attn(problem: Problem) -> Attend:
    """ring-flash-attention 0.1.8."""
    import pyfa_rocm.flash_attn

    pyfa_rocm.flash_attn.install()
    # Its adapter of transformers, which is no attention, needs a name that transformers 5 does not have.
    adapters = types.ModuleType("ring_flash_attn.adapters")
    adapters.substitute_hf_flash_attn = adapters.update_ring_flash_attn_params = None  # type: ignore[attr-defined]
    sys.modules[adapters.__name__] = adapters
    package = importlib.import_module("ring_flash_attn")

    name = "zigzag_ring_flash_attn_func" if problem.zigzag else "ring_flash_attn_func"
    return lambda q, k, v: getattr(package, name)(q, k, v, causal=problem.causal)


def yunchang(problem: Problem) -> Attend:
    """yunchang 0.6.4, Ulysses and ring together."""
    import pyfa_rocm.flash_attn

    pyfa_rocm.flash_attn.install()
    package, kernels = (importlib.import_module(x) for x in ("yunchang", "yunchang.kernels"))

    size = distributed.get_world_size()
    package.set_seq_parallel_pg(2, size // 2, distributed.get_rank(), size)
    layer = package.LongContextAttention(ring_impl_type="basic", attn_type=kernels.AttnType.FA)
    return lambda q, k, v: layer(q, k, v, causal=problem.causal)


def torch_templates(problem: Problem) -> Attend:
    """torch's context_parallel: DTensors whose flash attention its handler takes."""
    from torch.distributed.tensor import DTensor, Shard
    from torch.distributed.tensor.experimental._context_parallel import _attention

    from pyfa_rocm.torch.context_parallel.templates import use_in_context_parallel

    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    _attention._cp_options.enable_load_balance = problem.zigzag

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        group = problem.nhead_q // problem.nhead_k
        k, v = (x.repeat_interleave(group, 2) for x in (k, v))
        tensors = [DTensor.from_local(x.transpose(1, 2), mesh, [Shard(2)]) for x in (q, k, v)]
        out = torch.ops.aten._scaled_dot_product_flash_attention(*tensors, 0.0, problem.causal)[0]
        return out.to_local().transpose(1, 2)

    _attention._enable_context_parallel_dispatcher_impl(2, mesh)
    _entered.enter_context(use_in_context_parallel())
    return attend


def whole(problem: Problem) -> list[torch.Tensor]:
    """Return O and the gradients in float64, and in the problem's type, by torch's formula."""
    results = []
    for dtype in (torch.float64, getattr(torch, problem.dtype)):
        q, k, v, dout = (x.to(dtype).transpose(0, 1)[None] for x in problem.tensors())
        inputs = [x.requires_grad_() for x in (q, k, v)]
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            out = functional.scaled_dot_product_attention(*inputs, is_causal=problem.causal, enable_gqa=True)
        gradients = torch.autograd.grad(out, inputs, dout)
        results.append([x.detach()[0].transpose(0, 1) for x in (out, *gradients)])
    return results


def run(problem: Problem, name: str) -> tuple[tuple[torch.Tensor, ...], list[str]]:
    """Return what a rank has of the whole, and the kernels that ran."""
    make = {"ring-flash-attn": ring_flash_attn, "yunchang": yunchang, "torch": torch_templates}[name]
    with emulator.profile() as profile:
        results = by(problem, make)
    return results, sorted({launch.kernel for launch in profile.launches})
