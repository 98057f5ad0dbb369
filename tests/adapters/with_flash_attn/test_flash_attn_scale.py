# SPDX-License-Identifier: MIT OR Apache-2.0
"""Factors on the scores that are 0 or below, which flash-attn takes, and names that programs import beside.

Judged by flash-attention's own criterion: at most twice the error of the formula in the same type.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from adapters.with_torch.torch_gradients import as_good_as_plain, like, qkv

from pyfa_rocm import flash_attn
from pyfa_rocm.flash_attn import flash_attn_2_cuda, flash_attn_interface

SHAPE = (1, 30, 2, 64)
scales = pytest.mark.parametrize("scale", [-0.25, 0.0, -0.0])


def formula(scale: float) -> Any:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return (torch.softmax((q @ k.mT) * scale, -1) @ v).transpose(1, 2)

    return attend


@scales
def test_functions(scale: float) -> None:
    """The public ones and their gradients: of one length, packed, and of parts of one tensor."""
    inputs = qkv(SHAPE)
    q, k, v = inputs
    dout, at = like(inputs[0]), torch.tensor([0, 30], dtype=torch.int32)
    out = flash_attn.flash_attn_func(q, k, v, softmax_scale=scale)
    as_good_as_plain(torch.autograd.grad(out, inputs, dout), formula(scale), inputs, dout)
    packed = flash_attn.flash_attn_varlen_func(q[0], k[0], v[0], at, at, 30, 30, softmax_scale=scale)
    as_good_as_plain(torch.autograd.grad(packed, inputs, dout[0]), formula(scale), inputs, dout)
    together = torch.stack(inputs, 2).detach().requires_grad_()
    one = flash_attn.flash_attn_qkvpacked_func(together, softmax_scale=scale)
    (gradient,) = torch.autograd.grad(one, together, dout)
    as_good_as_plain(gradient.unbind(2), formula(scale), inputs, dout)
    for result in (packed[None], one):
        torch.testing.assert_close(result, out, rtol=0, atol=2**-9)


@scales
@pytest.mark.parametrize("in_one", [False, True])
def test_extension(scale: float, in_one: bool) -> None:
    """Gradients are written to given tensors, parts of one among them."""
    inputs = qkv(SHAPE)
    q, k, v = (x.detach() for x in inputs)
    dout = like(q)
    options = (scale, False, -1, -1, 0.0)
    out, lse, *_ = flash_attn_2_cuda.fwd(q, k, v, None, None, 0.0, *options, False)
    given = (
        torch.empty(1, 30, 3, 2, 64).half().unbind(2) if in_one else [torch.empty_like(x) for x in (q, k, v)]
    )
    dq, dk, dv, softmax_d = flash_attn_2_cuda.bwd(dout, q, k, v, out, lse, *given, None, 0.0, *options, False)
    assert all(a is b for a, b in zip((dq, dk, dv), given, strict=True))
    as_good_as_plain((dq, dk, dv), formula(scale), inputs, dout)
    torch.testing.assert_close(
        softmax_d,
        (dout.double() * out.double()).sum(-1).transpose(1, 2),
        check_dtype=False,
        rtol=0,
        atol=1e-5,
    )


@scales
def test_caches(scale: float) -> None:
    q, k, v = (x.detach() for x in qkv((2, 1, 4, 64), nhead_k=2, seqlen_k=16))
    out, lse = flash_attn.flash_attn_with_kvcache(q, k, v, softmax_scale=scale, return_softmax_lse=True)
    exact = formula(scale)(q.double(), *(x.double().repeat_interleave(2, 2) for x in (k, v)))
    # Probabilities and O are rounded to float16, by half an ulp.
    assert ((out.double() - exact).abs() <= 2**-11 * (v.double().abs().amax() + exact.abs())).all()
    assert lse.isfinite().all()


def test_names_beside_the_public_ones() -> None:
    assert flash_attn_interface._get_block_size_n(torch.device("cpu"), 128, False, True) == 128
    assert flash_attn_interface.USE_TRITON_ROCM is False
    assert [flash_attn_interface.round_multiple(n, 128) for n in (0, 1, 128, 129)] == [0, 128, 128, 256]
    x = torch.zeros(4, 8)
    assert flash_attn_interface.maybe_contiguous(x) is x
    assert flash_attn_interface.maybe_contiguous(x.T).stride() == (4, 1)  # type: ignore[union-attr]
    assert flash_attn_interface.maybe_contiguous(None) is None
