# SPDX-License-Identifier: MIT OR Apache-2.0
"""pyfa_rocm.torch.FlashAttention: masks, whichever way they go."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from adapters.with_torch.torch_cases import kernels_that_run, numerics_like, to_numpy
from cases import judge
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import attention

from pyfa_rocm import InvalidArgumentError, UnsupportedError
from pyfa_rocm.torch import FlashAttention, flash_attn_func

BATCH, HDIM = 3, 128


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch.manual_seed(0)


def inputs(
    seqlen_q: int, seqlen_k: int, dtype: torch.dtype = torch.float16
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    q, k, v = (torch.randn(BATCH, n, h, HDIM) for n, h in ((seqlen_q, 4), (seqlen_k, 2), (seqlen_k, 2)))
    return q.to(dtype), k.to(dtype), v.to(dtype)


def padding(seqlen: int, *lengths: int) -> torch.Tensor:
    return torch.arange(seqlen) < torch.tensor(lengths)[:, None]


def check(
    module: FlashAttention,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor,
    **named: Any,
) -> None:
    """Judge a module's output against attention with the mask as a bias, in float64."""
    with kernels_that_run() as kernels:
        got = module(q, k, v, mask, **named)
    seen = mask[:, None, None] if mask.dim() == 2 else mask[:, None]
    seen = seen.expand(BATCH, 1, q.shape[1], k.shape[1])
    want = attention(
        *(to_numpy(x) for x in (q, k, v)),
        causal=module.causal,
        bias=np.where(seen.numpy(), 0.0, -np.inf).astype(np.float32),
        numerics=numerics_like(kernels[0], q.dtype),
    )
    judge(want, to_numpy(got), None)


MASKS = {
    "suffix": (padding(90, 90, 31, 0), "lengths"),
    "all": (padding(90, 90, 90, 90), "lengths"),
    "prefix": (padding(90, 90, 31, 5).flip(1), "bias"),
    "hole": (padding(90, 90, 31, 5) & (torch.arange(90) != 3), "bias"),
    "outer": (padding(70, 70, 20, 0)[:, :, None] & padding(90, 90, 31, 0)[:, None], "lengths"),
    "outer_with_a_hole": (padding(70, 70, 20, 9)[:, :, None] & (torch.arange(90) != 3)[None, None], "bias"),
    "triangle": (torch.ones(3, 70, 90, dtype=torch.bool).tril(5), "bias"),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("mask", "path"), MASKS.values(), ids=MASKS)
def test_masks(mask: torch.Tensor, path: str, causal: bool) -> None:
    """Causal rows see the same keys on both paths, however long a sequence is."""
    module = FlashAttention(causal=causal)
    assert module.path is None
    q, k, v = inputs(70, 90)
    check(module, q, k, v, mask)
    assert module.path == path
    check(module, q, k, v, mask, suffix=False)
    assert module.path == "bias"
    if path == "lengths":
        check(module, q, k, v, mask, suffix=True)
        assert module.path == "lengths"


def test_causal_with_fewer_keys_than_queries() -> None:
    """Where a query stands cannot be said of lengths then."""
    module = FlashAttention(causal=True)
    check(module, *inputs(90, 70), padding(70, 70, 31, 0), suffix=True)
    assert module.path == "bias"
    check(FlashAttention(), *inputs(90, 70), padding(70, 70, 31, 0), suffix=True)


def test_without_a_mask() -> None:
    module = FlashAttention(causal=True)
    q, k, v = inputs(70, 90)
    assert torch.equal(module(q, k, v), flash_attn_func(q, k, v, causal=True))
    assert module.path == "plain"


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(0, 100), min_size=BATCH, max_size=BATCH),
    rows=st.lists(st.integers(0, 60), min_size=BATCH, max_size=BATCH) | st.none(),
    causal=st.booleans(),
    flipped=st.integers(0, 3),
)
def test_random(lengths: list[int], rows: list[int] | None, causal: bool, flipped: int) -> None:
    """Padding, and padding with so many elements turned over."""
    mask = padding(100, *lengths)
    if rows is not None:
        mask = mask[:, None] & padding(60, *rows)[:, :, None]
    at = torch.randint(mask.numel(), (flipped,))
    mask.view(-1)[at] ^= True
    check(FlashAttention(causal=causal), *inputs(60, 100), mask)


def test_views() -> None:
    """Slices of a packed projection, and (b, h, s, d) in memory, whose rows are not one dimension."""
    packed = torch.randn(BATCH, 70, 3, 2, HDIM).half()
    q, k, v = packed.unbind(2)
    check(FlashAttention(), q, k, v, padding(70, 70, 31, 0))
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    check(FlashAttention(), q, k, v, padding(70, 70, 31, 0))


def test_fp8_has_no_infinity_to_hide_keys_with() -> None:
    q, k, v = (x.to(torch.float8_e4m3fnuz) for x in inputs(64, 64, torch.float32))
    with pytest.raises(
        UnsupportedError, match=r"q: got dtype torch\.float8_e4m3fnuz, expected torch\.float16"
    ):
        FlashAttention()(q, k, v, padding(64, 64, 20, 0).flip(1))


def test_dropout_in_training_alone() -> None:
    module = FlashAttention(dropout=0.5)
    q, k, v = (x[..., :64] for x in inputs(40, 50, torch.bfloat16))
    assert not torch.equal(module(q, k, v), module(q, k, v))
    module.eval()
    assert torch.equal(module(q, k, v), module(q, k, v))


@pytest.mark.parametrize("suffix", [None, True])
def test_compiled(suffix: bool | None) -> None:
    """In a graph nobody looks at the mask: a bias, or what was promised; and it can be asked which."""
    torch._dynamo.reset()
    module, eager = FlashAttention(causal=True), FlashAttention(causal=True)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    mask = padding(90, 90, 31, 0)
    q, k, v = inputs(70, 90)
    want = eager(q, k, v, mask, suffix=bool(suffix))
    assert torch.equal(compiled(q, k, v, mask, suffix=suffix), want)
    assert module.path == eager.path == ("lengths" if suffix else "bias")


Q, K, V = torch.zeros(1, 4, 1, 128), torch.zeros(1, 6, 1, 128), torch.zeros(1, 6, 1, 128)
BAD = {
    "dtype": (torch.zeros(1, 6), r"mask: got dtype torch\.float32, expected torch\.bool"),
    "shape": (torch.ones(1, 5).bool(), r"mask: got shape \(1, 5\), expected \(1, 6\) or \(1, 4, 6\)"),
    "device": (torch.ones(1, 6, device="meta").bool(), "mask: got a tensor on meta, expected cpu as q"),
}


@pytest.mark.parametrize(("mask", "message"), BAD.values(), ids=BAD)
def test_bad_mask(mask: torch.Tensor, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        FlashAttention()(Q, K, V, mask)


def test_bad_dropout() -> None:
    with pytest.raises(InvalidArgumentError, match=r"dropout: got 1\.0, expected from 0 to below 1"):
        FlashAttention(dropout=1.0)


def test_printed() -> None:
    assert repr(FlashAttention(0.1, causal=True)) == "FlashAttention(dropout=0.1, causal=True)"
