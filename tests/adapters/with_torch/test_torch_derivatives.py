# SPDX-License-Identifier: MIT OR Apache-2.0
"""Derivatives that pyfa_rocm.torch lacks are refused in every way that torch has to ask for them."""

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
}
TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "jvp": lambda f: torch.func.jvp(f, (X,), (X,)),
    "jacfwd": lambda f: torch.func.jacfwd(f)(X),
    "linearize": lambda f: torch.func.linearize(f, X),
}


def _dual(f: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    with forward_ad.dual_level():
        return f(forward_ad.make_dual(X, X))


TRANSFORMS["dual"] = _dual
REVERSE: dict[str, Callable[[Any], Any]] = {
    "leaf": lambda f: f(X.clone().requires_grad_()),
    "grad": lambda f: torch.func.grad(lambda x: f(x).float().sum())(X),
    "jacrev": lambda f: torch.func.jacrev(lambda x: f(x).sum())(X),
    "grad_of_vmap": lambda f: torch.func.grad(lambda x: torch.vmap(f)(x[None]).float().sum())(X),
    "vmap_of_grad": lambda f: torch.vmap(torch.func.grad(lambda x: f(x).float().sum()))(X[None]),
    "functional": lambda f: torch.autograd.functional.vjp(f, X, X),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
@pytest.mark.parametrize("function", ["q", "v", "varlen", "sdpa"])
def test_no_forward_mode_at_all(function: str, transform: Callable[[Any], Any]) -> None:
    with pytest.raises(UnsupportedError, match=r"pyfa_rocm has no .*scaled_dot_product_attention"):
        transform(FUNCTIONS[function])


@pytest.mark.parametrize("transform", ["jvp", "dual"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_no_forward_mode(function: str, transform: str) -> None:
    with pytest.raises(UnsupportedError, match=r"pyfa_rocm has no .*tensor\.detach\(\)"):
        TRANSFORMS[transform](FUNCTIONS[function])


@pytest.mark.parametrize("transform", [*TRANSFORMS.values(), *REVERSE.values()])
def test_no_probabilities_in_a_transform(transform: Callable[[Any], Any]) -> None:
    """With gradients outside of one they are: see test_torch_autograd.py."""
    if transform in (REVERSE["leaf"], REVERSE["functional"]):
        assert transform(lambda x: p.flash_attn_func(x, X, X, return_attn_probs=True)[0]) is not None
        return
    outside = transform in (TRANSFORMS["dual"], TRANSFORMS["linearize"])
    message = "pyfa_rocm has no" if outside else "return_attn_probs: got True inside a"
    with pytest.raises(UnsupportedError, match=message):
        transform(lambda x: p.flash_attn_func(x, X, X, return_attn_probs=True)[0])


@pytest.mark.parametrize("transform", REVERSE.values(), ids=REVERSE)
def test_nothing_flows_through_what_is_written(transform: Callable[[Any], Any]) -> None:
    with pytest.raises(UnsupportedError, match=r"q: got a tensor with requires_grad=True.* without out"):
        transform(lambda x: p.flash_attn_func(x, X, X, out=x.clone().detach(), return_lse=True)[1])


@pytest.mark.parametrize("transform", REVERSE.values(), ids=REVERSE)
def test_no_gradients_of_slopes(transform: Callable[[Any], Any]) -> None:
    with pytest.raises(UnsupportedError, match=r"alibi_slopes: got a tensor with requires_grad=True"):
        transform(lambda x: p.flash_attn_func(X, X, X, alibi_slopes=x.float().sum((0, 1, 3))))


@pytest.mark.parametrize("transform", REVERSE.values(), ids=REVERSE)
def test_no_gradients_of_sinks(transform: Callable[[Any], Any]) -> None:
    with pytest.raises(UnsupportedError, match=r"sinks: got a tensor with requires_grad=True"):
        transform(lambda x: p.flash_attn_func(X, X, X, sinks=x.float().sum((0, 1, 3))))


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
