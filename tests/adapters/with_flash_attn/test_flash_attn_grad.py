# SPDX-License-Identifier: MIT OR Apache-2.0
"""Gradients through the public functions of the drop-in for flash-attn, against float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from adapters.with_flash_attn.flash_attn_cases import LENGTHS, draw, judge_gradients, judge_packed, starts

import pyfa_rocm
from pyfa_rocm import flash_attn
from pyfa_rocm.flash_attn import bert_padding

SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])
# Each feature, with a type and a head dim for which the kernel set `ci` has it, backward too.
OPTIONS: list[tuple[dict[str, Any], torch.dtype, int]] = [
    ({}, torch.float16, 64),
    ({"causal": True, "softmax_scale": 0.2}, torch.float16, 128),
    ({"window_size": (20, 5)}, torch.bfloat16, 64),
    ({"causal": True, "alibi_slopes": SLOPES}, torch.bfloat16, 64),
]


def leaves(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [x.clone().requires_grad_() for x in tensors]


@pytest.mark.parametrize(("options", "dtype", "hdim"), OPTIONS, ids=str)
def test_flash_attn_func(options: dict[str, Any], dtype: torch.dtype, hdim: int) -> None:
    shapes = ((45, 4), (70, 2), (70, 2))
    q, k, v = leaves(*(draw(2, n, h, hdim, seed=i, dtype=dtype) for i, (n, h) in enumerate(shapes)))
    out, lse, _ = flash_attn.flash_attn_func(q, k, v, return_attn_probs=True, **options)
    lse = lse.detach()
    dout = draw(*out.shape, seed=3, dtype=dtype)
    got = torch.autograd.grad(out, (q, k, v), dout)
    if "alibi_slopes" in options:
        options = options | {"alibi_slopes": SLOPES.expand(2, 4).numpy()}
    judge_gradients(got, q, k, v, out, lse, dout, **options)


def test_head_dims_that_are_no_multiple_of_8() -> None:
    """Padded with zeros: gradients are of the true head dim."""
    q, k, v = leaves(*(draw(1, 50, 2, 60, seed=i) for i in range(3)))
    out, lse, _ = flash_attn.flash_attn_func(q, k, v, causal=True, return_attn_probs=True)
    dout = draw(*out.shape, seed=3)
    got = torch.autograd.grad(out, (q, k, v), dout)
    assert all(x.shape == q.shape for x in got)
    judge_gradients(got, q, k, v, out, lse, dout, causal=True, softmax_scale=60**-0.5)


def test_deterministic() -> None:
    """The same bits as those of the operator that is told so, and again."""
    q, k, v = leaves(*(draw(1, 200, 2, 64, seed=i) for i in range(3)))
    dout = draw(1, 200, 2, 64, seed=3)
    out, lse, _ = flash_attn.flash_attn_func(q, k, v, deterministic=True, return_attn_probs=True)
    got = torch.autograd.grad(out, (q, k, v), dout)
    want = torch.ops.pyfa_rocm.fmha_bwd(
        dout, *(x.detach() for x in (q, k, v, out)), lse, softmax_scale=0.125, deterministic=True
    )
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=False))


def test_packed_forms() -> None:
    """Each has one gradient, of its own shape."""
    (qkv,) = leaves(draw(2, 50, 3, 2, 64))
    q, k, v = qkv.unbind(2)
    out, lse, _ = flash_attn.flash_attn_qkvpacked_func(qkv, causal=True, return_attn_probs=True)
    dout = draw(*out.shape, seed=3)
    (dqkv,) = torch.autograd.grad(out, qkv, dout, retain_graph=True)
    assert dqkv.shape == qkv.shape
    judge_gradients(dqkv.unbind(2), q, k, v, out, lse, dout, causal=True)
    lone, kv = leaves(q, qkv[:, :, 1:])
    out = flash_attn.flash_attn_kvpacked_func(lone, kv, causal=True)
    dq, dkv = torch.autograd.grad(out, (lone, kv), dout)
    assert dkv.shape == kv.shape
    judge_gradients((dq, *dkv.unbind(2)), q, k, v, out, lse, dout, causal=True)


def test_varlen_forms() -> None:
    (qkv,), cu = leaves(draw(sum(LENGTHS), 3, 2, 64)), starts(LENGTHS)
    q, k, v = (x.detach() for x in qkv.unbind(1))
    dout = draw(100, 2, 64, seed=3)
    separate = a, b, c = leaves(q, k, v)
    out, lse, _ = flash_attn.flash_attn_varlen_func(
        a, b, c, cu, cu, 70, 70, causal=True, return_attn_probs=True
    )
    results = [torch.autograd.grad(out, separate, dout)]
    packed = flash_attn.flash_attn_varlen_qkvpacked_func(qkv, cu, 70, causal=True)
    results.append(torch.autograd.grad(packed, qkv, dout)[0].unbind(1))
    lone, kv = leaves(q, qkv[:, 1:])
    packed = flash_attn.flash_attn_varlen_kvpacked_func(lone, kv, cu, cu, 70, 70, causal=True)
    dq, dkv = torch.autograd.grad(packed, (lone, kv), dout)
    results.append((dq, *dkv.unbind(1)))
    for got in results:
        judge_packed(got, q, k, v, out, lse, dout, cu, cu, causal=True)


def test_dropout_with_probabilities() -> None:
    """They say what this very call dropped."""
    cu = starts((60,))
    q, k, v = leaves(*(draw(60, 2, 128, seed=i) for i in range(3)))
    out, lse, s_dmask = flash_attn.flash_attn_varlen_func(
        q, k, v, cu, cu, 60, 60, 0.25, return_attn_probs=True
    )
    assert not s_dmask.requires_grad
    dout = draw(60, 2, 128, seed=3)
    got = torch.autograd.grad(out, (q, k, v), dout)
    keep = (s_dmask[:, :, :60, :60] > 0).numpy()
    judge_packed(got, q, k, v, out, lse, dout, cu, cu, keep=keep, keep_scale=1 / 0.75)


def test_through_padding() -> None:
    """unpad_input, attention, pad_input: padding has gradient 0, and tokens those of each sequence."""
    mask = torch.arange(40) < torch.tensor([[40], [17]])
    (x,) = leaves(draw(2, 40, 3, 2, 64))
    tokens, indices, cu, longest, _ = bert_padding.unpad_input(x, mask)
    out = flash_attn.flash_attn_varlen_qkvpacked_func(tokens, cu, longest, causal=True)
    padded = bert_padding.pad_input(out, indices, 2, 40)
    dout = draw(2, 40, 2, 64, seed=3)
    (got,) = torch.autograd.grad(padded, x, dout)
    assert not got[1, 17:].any()
    (want,) = torch.autograd.grad(
        flash_attn.flash_attn_varlen_qkvpacked_func(tokens, cu, longest, causal=True), tokens, dout[mask]
    )
    assert torch.equal(got[mask], want)


def test_autocast() -> None:
    q, k, v = leaves(*(draw(1, 40, 2, 64, seed=i, dtype=torch.float32) for i in range(3)))
    with torch.autocast("cpu", dtype=torch.float16):
        out, lse, _ = flash_attn.flash_attn_func(q, k, v, return_attn_probs=True)
    assert out.dtype == torch.float16
    dout = draw(*out.shape, seed=3)
    got = torch.autograd.grad(out, (q, k, v), dout)
    assert all(x.dtype == torch.float32 for x in got)
    of_q, of_k, of_v = (x.half() for x in (q, k, v))
    judge_gradients([x.half() for x in got], of_q, of_k, of_v, out, lse, dout)


def test_what_has_no_gradient_says_so() -> None:
    """The call refuses it, not backward."""
    (q,) = leaves(draw(1, 40, 2, 64))
    slopes = torch.tensor([0.5, 0.25], requires_grad=True)
    with pytest.raises(
        pyfa_rocm.UnsupportedError, match="alibi_slopes: got a tensor with requires_grad=True"
    ):
        flash_attn.flash_attn_func(q.bfloat16(), q.bfloat16(), q.bfloat16(), alibi_slopes=slopes)
