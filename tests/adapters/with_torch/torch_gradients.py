# SPDX-License-Identifier: MIT OR Apache-2.0
"""Gradients of pyfa_rocm.torch on torch CPU tensors, and their two judges: the oracle, and torch itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from adapters.with_torch.torch_cases import to_numpy
from backward import NAMES, judge_gradient
from built import this_arch
from reference import gradients, numerics_of
from torch.utils._python_dispatch import TorchDispatchMode

from pyfa_rocm.torch import flash_attn_varlen_func

Tensors = tuple[torch.Tensor, ...]
# An error below this is that of a single rounding of a gradient near 1.
_FLOOR = 1e-5


def qkv(
    shape: tuple[int, int, int, int] = (1, 24, 2, 64),
    *,
    nhead_k: int | None = None,
    seqlen_k: int | None = None,
    hdim_v: int | None = None,
    dtype: torch.dtype = torch.float16,
    seed: int = 0,
    grad: bool = True,
) -> Tensors:
    """Random q, k, v; shape is q's, (batch, seqlen_q, nhead_q, hdim)."""
    batch, seqlen_q, nhead_q, hdim = shape
    generator = torch.Generator().manual_seed(seed)
    rows, heads = seqlen_k or seqlen_q, nhead_k or nhead_q
    shapes = (shape, (batch, rows, heads, hdim), (batch, rows, heads, hdim_v or hdim))
    return tuple(torch.randn(x, generator=generator).to(dtype).requires_grad_(grad) for x in shapes)


def like(x: torch.Tensor, seed: int = 1) -> torch.Tensor:
    """A random tensor of the same shape and type."""
    return torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)).to(x.dtype)


def judge(
    inputs: Tensors, dout: torch.Tensor, out: torch.Tensor, lse: torch.Tensor, got: Tensors, **options: Any
) -> None:
    """Assert that dq, dk and dv are within the oracle's bounds."""
    arrays = [to_numpy(x.detach()) for x in (*inputs, out, lse, dout)]
    dtype = str(inputs[0].dtype).removeprefix("torch.")
    want = gradients(*arrays, numerics=numerics_of(dtype, arch=this_arch()), **options)
    for name, gradient in zip(NAMES, got, strict=True):
        assert gradient.dtype == inputs[0].dtype
        judge_gradient(name, want[name], to_numpy(gradient.detach()), dtype)


def plain(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """Attention of (batch, seqlen, nhead, hdim) tensors by its formula, in their own precision."""
    group = q.shape[2] // k.shape[2]
    q, k, v = q.transpose(1, 2), *(x.repeat_interleave(group, 2).transpose(1, 2) for x in (k, v))
    scores = (q * (scale or 1 / math.sqrt(q.shape[-1]))) @ k.mT
    if causal:
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
        scores = scores.masked_fill(~seen, -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    return (torch.softmax(scores, -1).nan_to_num() @ v).transpose(1, 2)


def of(function: Callable[..., torch.Tensor], inputs: Tensors, dout: torch.Tensor) -> Tensors:
    """The gradients of the inputs."""
    return tuple(torch.autograd.grad(function(*inputs), inputs, dout))


def as_good_as_plain(got: Tensors, formula: Callable[..., torch.Tensor], inputs: Tensors, dout: Any) -> None:
    """Assert flash-attention's own criterion: at most twice the error of the formula in the low precision."""
    exact = of(formula, tuple(x.detach().double().requires_grad_() for x in inputs), dout.double())
    low = of(formula, tuple(x.detach().clone().requires_grad_() for x in inputs), dout)
    for mine, theirs, want in zip(got, low, exact, strict=True):
        error, allowed = ((x.double() - want).abs().max().item() for x in (mine, theirs))
        assert error <= 2 * allowed + _FLOOR


def dropping(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, p: float = 0.3, **options: Any) -> Any:
    """Attention with dropout of one packed sequence, (seqlen, nhead, hdim)."""
    at = torch.tensor([0, q.shape[0]], dtype=torch.int32)
    return flash_attn_varlen_func(q, k, v, at, at, q.shape[0], q.shape[0], p, **options)


@contextmanager
def allocations() -> Iterator[list[int]]:
    """Collect the sizes in bytes of what torch's operators return inside."""

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            for x in result if isinstance(result, (tuple, list)) else (result,):
                if isinstance(x, torch.Tensor):
                    found.append(x.untyped_storage().nbytes())
            return result

    found: list[int] = []
    with Counting():
        yield found
