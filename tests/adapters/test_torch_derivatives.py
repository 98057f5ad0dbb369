# SPDX-License-Identifier: MIT OR Apache-2.0
"""Derivatives of pyfa_rocm.torch, which has none yet: refused in every way that torch has to ask for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

from pyfa_rocm import UnsupportedError
from pyfa_rocm import torch as p

X = torch.randn(1, 16, 2, 64, generator=torch.Generator().manual_seed(0)).half()
AT = torch.tensor([0, 5, 16], dtype=torch.int32)
BIAS = torch.zeros(1, 1, 16, 16, dtype=torch.float16)


def _written(x: torch.Tensor) -> torch.Tensor:
    return p.flash_attn_func(x, X, X, out=torch.empty_like(X), return_lse=True)[1]


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "q": lambda x: p.flash_attn_func(x, X, X),
    "v": lambda x: p.flash_attn_func(X, X, x),
    "bias": lambda x: p.flash_attn_func(X, X, X, bias=BIAS + x.sum()),
    "out": _written,
    "varlen": lambda x: p.flash_attn_varlen_func(X[0], x[0], X[0], AT, AT, 11, 11),
    "sdpa": lambda x: p.sdpa(X.transpose(1, 2), x.transpose(1, 2), X.transpose(1, 2)),
    "module": lambda x: p.FlashAttention()(x, X, X, torch.ones(1, 16, dtype=torch.bool)),
    "probabilities": lambda x: p.flash_attn_func(x, X, X, return_attn_probs=True)[0],
}
TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "grad": lambda f: torch.func.grad(lambda x: f(x).float().sum())(X),
    "vjp": lambda f: torch.func.vjp(f, X),
    "jvp": lambda f: torch.func.jvp(f, (X,), (X,)),
    "jacrev": lambda f: torch.func.jacrev(lambda x: f(x).sum())(X),
    "jacfwd": lambda f: torch.func.jacfwd(f)(X),
    "linearize": lambda f: torch.func.linearize(f, X),
    "grad_of_vmap": lambda f: torch.func.grad(lambda x: torch.vmap(f)(x[None]).float().sum())(X),
    "vmap_of_grad": lambda f: torch.vmap(torch.func.grad(lambda x: f(x).float().sum()))(X[None]),
    "functional": lambda f: torch.autograd.functional.vjp(f, X, X),
}


def _dual(f: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    with forward_ad.dual_level():
        return f(forward_ad.make_dual(X, X))


TRANSFORMS["dual"] = _dual


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
@pytest.mark.parametrize("function", ["q", "v", "varlen", "sdpa"])
def test_refused(function: str, transform: Callable[[Any], Any]) -> None:
    with pytest.raises(UnsupportedError, match=r"pyfa_rocm has no .*scaled_dot_product_attention"):
        transform(FUNCTIONS[function])


@pytest.mark.parametrize("transform", ["grad", "jvp", "dual"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_refused_of_every_function(function: str, transform: str) -> None:
    with pytest.raises(UnsupportedError, match=r"pyfa_rocm has no .*tensor\.detach\(\)"):
        TRANSFORMS[transform](FUNCTIONS[function])


def test_the_operator_itself_refuses() -> None:
    for transform in TRANSFORMS.values():
        with pytest.raises(UnsupportedError, match="q: got a tensor with"):
            transform(lambda x: torch.ops.pyfa_rocm.fmha_fwd(x, X, X)[0])


def test_constants_are_none_of_its_business() -> None:
    """Attention of what is not differentiated is a constant of the function around it."""
    out = p.flash_attn_func(X, X, X)

    def f(x: torch.Tensor) -> torch.Tensor:
        constant = p.flash_attn_func(X, x.detach(), X)
        return (x.float() * constant).sum()

    assert torch.equal(torch.func.grad(f)(X), out)
    assert torch.equal(torch.func.jacrev(f)(X), out)
    assert torch.equal(torch.func.jvp(f, (X,), (X,))[1], (X.float() * out).sum())
    with torch.no_grad():
        assert torch.equal(p.flash_attn_func(X.clone().requires_grad_(), X, X), out)
    x = X.clone().requires_grad_()
    (x.float() * p.flash_attn_func(X, X, X)).sum().backward()
    assert torch.equal(x.grad, out)


def test_compiled() -> None:
    torch._dynamo.reset()
    for transform in (torch.func.grad, lambda f: torch.func.grad(lambda x: torch.vmap(f)(x[None]).sum())):
        compiled = torch.compile(
            transform(lambda x: p.flash_attn_func(x, X, X).float().sum()), backend="eager", fullgraph=True
        )
        with pytest.raises(Exception, match="pyfa_rocm has no backward pass yet"):
            compiled(X)
