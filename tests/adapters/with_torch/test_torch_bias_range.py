# SPDX-License-Identifier: MIT OR Apache-2.0
"""Biases of a type's largest numbers, by which many hide a key: only what is infinite is that.

The kernels multiply a bias by log2(e) in float32, where the largest of bfloat16 and of float32 overflow.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from built import candidates
from cases import Bias, Case

from pyfa_rocm.jax import nn
from pyfa_rocm.torch import sdpa
from pyfa_rocm.torch._mask import bias_of, within_range
from pyfa_rocm.transformers._attention import _additive

torch_sdpa = torch.nn.functional.scaled_dot_product_attention
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LOG2E = np.float32(math.log2(math.e))
# Rows that hide some keys, all but one, all, and, by -inf, again all.
HIDDEN = torch.tensor([[0, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 1]]).bool()


def masks(dtype: torch.dtype, sign: int = -1) -> torch.Tensor:
    largest = sign * torch.finfo(dtype).max
    return torch.zeros(HIDDEN.shape, dtype=dtype).masked_fill(HIDDEN, largest)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("sign", [1, -1])
def test_finite_stays_finite(dtype: torch.dtype, sign: int) -> None:
    """In the kernels' float32 too; what is infinite, NaN or in range stays what it is."""
    biases = (
        bias_of(masks(dtype, sign), dtype, 4),
        within_range(masks(dtype, sign)),
        _additive(~HIDDEN, dtype, 4),
    )
    for bias in (*biases, _additive(masks(dtype), dtype, 4), _additive(masks(torch.float32), dtype, 4)):
        assert bias.dtype == dtype
        with np.errstate(over="raise"):
            scaled = bias.float().numpy() * LOG2E + np.float32(2e30)
        assert np.isfinite(scaled).all()
        assert (bias.abs() > 1e4).eq(HIDDEN).all()
    special = torch.tensor([-math.inf, math.inf, math.nan, 0.0, -1.5, 6e4], dtype=dtype)
    torch.testing.assert_close(within_range(special), special, rtol=0, atol=0, equal_nan=True)


def test_gradient_is_the_given_bias_s() -> None:
    bias = masks(torch.bfloat16).requires_grad_()
    (gradient,) = torch.autograd.grad(within_range(bias), bias, torch.full_like(bias, 3))
    assert (gradient == 3).all()


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32])
def test_jax(dtype: jnp.dtype) -> None:
    special = jnp.array([jnp.finfo(dtype).min, jnp.finfo(dtype).max, -jnp.inf, jnp.inf, 0, -1.5], dtype)
    bias, pull = jax.vjp(lambda x: nn._within_range(x, dtype), special)
    scaled = np.asarray(bias, np.float32) * LOG2E
    assert np.isfinite(scaled).tolist() == np.isfinite(np.asarray(special, np.float32)).tolist()
    assert bias.dtype == dtype
    assert (bias[2:] == special[2:]).all()
    assert (pull(jnp.full_like(bias, 3))[0] == 3).all()


def test_a_row_of_the_least_number_has_the_mean() -> None:
    """As PyTorch's attention, in each type that this library has a kernel with a bias for; -inf gives 0."""
    run = []
    for dtype in DTYPES:
        name = str(dtype).removeprefix("torch.")
        case = Case(
            batch=1, seqlen_q=3, seqlen_k=4, nhead_k=1, ratio=1, hdim=64, dtype=name, bias=Bias(), lse=False
        )
        if not candidates(case):
            continue
        run.append(dtype)
        generator = torch.Generator().manual_seed(1)
        q, k, v = (torch.randn(1, 1, n, 64, generator=generator).to(dtype) for n in (3, 1, 4))
        k = k.expand(-1, -1, 4, -1).contiguous()  # equal scores, whatever a sum with the bias leaves of them
        out = sdpa(q, k, v, attn_mask=masks(dtype))
        want = torch_sdpa(q.double(), k.double(), v.double(), attn_mask=masks(dtype).double().clamp(-1e4))
        # Probabilities and O are rounded to the type, by half an ulp; float32's scores are of some ulps.
        u = max(torch.finfo(dtype).eps / 2, 1e-6)
        assert ((out.double() - want).abs() <= u * (2 * v.double().abs().amax() + want.abs())).all()
        nothing = sdpa(q, k, v, attn_mask=torch.full((3, 4), -math.inf, dtype=dtype))
        assert not nothing.any()
    assert run, "no kernel with a bias in this library"
