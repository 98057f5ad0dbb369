# SPDX-License-Identifier: MIT OR Apache-2.0
"""`fallback="math"`: what no kernel does is computed by the formula, with a warning; else it raises."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from pyfa_rocm import InvalidArgumentError, UnsupportedError
from pyfa_rocm.torch import FlashAttention, _math, sdpa

torch_sdpa = torch.nn.functional.scaled_dot_product_attention
WIDE = 1024  # beyond all kernels
ROWS, KEYS = 7, 9


@pytest.fixture(autouse=True)
def nothing_was_said() -> Iterator[None]:
    torch._dynamo.reset()
    _math._warned.clear()
    yield
    _math._warned.clear()


def qkv(hdim: int = WIDE, heads: int = 2, dtype: torch.dtype = torch.float16) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = ((2, 4, ROWS, hdim), (2, heads, KEYS, hdim), (2, heads, KEYS, hdim))
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


SEEN = torch.rand(2, 1, ROWS, KEYS, generator=torch.Generator().manual_seed(1)) > 0.3
CALLS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.01},
    "scale below 0": {"scale": -0.01},
    "boolean": {"attn_mask": SEEN},
    "added": {"attn_mask": torch.randn(ROWS, KEYS)},
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_as_pytorch_has_it(call: dict[str, Any], compiled: bool, dtype: torch.dtype) -> None:
    """The result and the gradients are float32's, up to their rounding."""
    inputs = qkv(dtype=dtype)
    call = {n: x.to(dtype) if n == "attn_mask" and x.dtype != torch.bool else x for n, x in call.items()}

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return sdpa(q, k, v, **call, enable_gqa=True, fallback="math")

    with pytest.warns(UserWarning, match=r'fallback="math": by the formula, in plain torch, since .*1024'):
        out = (torch.compile(attend, fullgraph=True, backend="aot_eager") if compiled else attend)(*inputs)
    exact = [x.detach().double().requires_grad_() for x in inputs]
    double = {n: x.double() if n == "attn_mask" and x.dtype != torch.bool else x for n, x in call.items()}
    want = torch_sdpa(*exact, **double, enable_gqa=True)
    assert out.dtype == dtype
    dout = torch.randn(want.shape, generator=torch.Generator().manual_seed(4)).to(dtype)
    got = torch.autograd.grad(out, inputs, dout)
    wanted = torch.autograd.grad(want, exact, dout.double())
    # float32's sums of a thousand terms, some of them one after the other.
    u = torch.finfo(dtype).eps / 2 + 1e-5
    for a, b in zip((out, *got), (want, *wanted), strict=True):
        assert ((a.double() - b).abs() <= 2 * u * b.abs().amax()).all()


def test_warns_once_for_each_reason() -> None:
    q, k, v = (x.detach() for x in qkv())
    with pytest.warns(UserWarning, match="fallback"):
        sdpa(q, k, v, enable_gqa=True, fallback="math")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sdpa(q, k, v, enable_gqa=True, fallback="math")


def test_kernels_come_first() -> None:
    """Where there is one, the result has its bits, and nobody is warned."""
    q, k, v = (x.detach() for x in qkv(64))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = sdpa(q, k, v, enable_gqa=True, fallback="math")
    assert torch.equal(got, sdpa(q, k, v, enable_gqa=True))


def test_never_without_being_asked() -> None:
    q, k, v = qkv()
    with pytest.raises(UnsupportedError, match="1024"):
        sdpa(q, k, v, enable_gqa=True)
    with pytest.raises(UnsupportedError, match="1024"):
        FlashAttention()(*(x.transpose(1, 2) for x in (q, k, v)))
    for call in (lambda: sdpa(q, k, v, fallback="eager"), lambda: FlashAttention(fallback="eager")):
        with pytest.raises(InvalidArgumentError, match="fallback: got 'eager', expected None or 'math'"):
            call()


def test_rows_without_keys_and_dropout() -> None:
    q, k, v = (x.detach() for x in qkv(dtype=torch.float32))
    mask = torch.ones(ROWS, KEYS).bool()
    mask[2] = False
    with pytest.warns(UserWarning, match="fallback"):
        out = sdpa(q, k, v, attn_mask=mask, enable_gqa=True, fallback="math")
    assert not out[:, :, 2].any()
    assert out.isfinite().all()
    ones = torch.ones_like(v)
    torch.manual_seed(0)
    with pytest.warns(UserWarning, match="fallback"):
        dropped = sdpa(q * 0, k, ones, dropout_p=0.5, enable_gqa=True, fallback="math")
    # All probabilities are equal; those kept are doubled, so their sum counts them.
    assert (dropped * KEYS / 2 - (dropped * KEYS / 2).round()).abs().max() < 1e-4
    assert 0.5 < dropped.mean() < 1.5


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", [None, "padding", "any"])
def test_module(mask: str | None, causal: bool) -> None:
    q, k, v = (x.detach().transpose(1, 2) for x in qkv(dtype=torch.float32))
    seen = {None: None, "padding": torch.arange(KEYS) < torch.tensor([[KEYS], [4]]), "any": SEEN[:, 0]}[mask]
    attention = FlashAttention(causal=causal, fallback="math").eval()
    with pytest.warns(UserWarning, match="fallback"):
        out = attention(q, k, v, seen)
    assert attention.path == "math"
    assert "fallback='math'" in repr(attention)
    added = torch.zeros(2, 1, ROWS, KEYS, dtype=torch.float64)
    if seen is not None:
        added = added.masked_fill(~(seen if seen.dim() == 3 else seen[:, None])[:, None], -math.inf)
    if causal:
        added = added.masked_fill(~torch.ones(ROWS, KEYS).tril(KEYS - ROWS).bool(), -math.inf)
    three = (x.transpose(1, 2).double() for x in (q, k, v))
    want = torch_sdpa(*three, attn_mask=added, enable_gqa=True).nan_to_num().transpose(1, 2)
    torch.testing.assert_close(out.double(), want, rtol=1e-4, atol=1e-4)
    narrow = FlashAttention(fallback="math").eval()
    q, k, v = (x.detach().transpose(1, 2) for x in qkv(64, heads=4))
    narrow(q, k, v)
    assert narrow.path == "plain"
