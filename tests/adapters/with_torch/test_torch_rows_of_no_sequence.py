# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rows of packed tensors that belong to no sequence: O and gradients are 0 there, the log-sum-exp is -inf.

New memory is full of NaN here, as that of a card in use may be, and so is the gradient of O in such rows.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from adapters.with_torch.torch_gradients import as_good_as_plain, like, plain, qkv

from pyfa_rocm import flash_attn
from pyfa_rocm.flash_attn import flash_attn_2_cuda, flash_attn_interface
from pyfa_rocm.torch import FlashAttention, flash_attn_varlen_func, flash_attn_with_kvcache

TOTAL, HEADS, HDIM = 24, 2, 64
Three = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
# First rows, lengths in use (None: all), and the largest length; rows from 20 on are behind all sequences.
SEQUENCES = {
    "behind the last": ([0, 12, 20], None, 12),
    "beyond the length in use": ([0, 12, 20], [7, 0], 12),
    "all": ([0, 0, 0], None, 0),
}
every_kind = pytest.mark.parametrize(("starts", "used", "most"), SEQUENCES.values(), ids=SEQUENCES)


@pytest.fixture(autouse=True)
def new_memory_is_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what is allocated begin as NaN."""
    empty = torch.empty

    def poisoned(*args: Any, **kwargs: Any) -> torch.Tensor:
        x = empty(*args, **kwargs)
        return x.fill_(math.nan) if x.is_floating_point() and not x.is_meta else x

    monkeypatch.setattr(torch, "empty", poisoned)


def numbers(*x: int) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.int32)


def packed(grad: bool = True) -> Three:
    q, k, v = (x[0].detach().requires_grad_(grad) for x in qkv((1, TOTAL, HEADS, HDIM)))
    return q, k, v


def in_use(starts: list[int], used: list[int] | None, most: int) -> list[slice]:
    """The rows of each sequence."""
    ends = starts[1:] if used is None else [s + n for s, n in zip(starts, used, strict=False)]
    return [slice(s, min(e, s + most)) for s, e in zip(starts, ends, strict=False)]


def none_of(sequences: list[slice]) -> torch.Tensor:
    """Return a mask of the rows that belong to no sequence."""
    rows = torch.ones(TOTAL, dtype=torch.bool)
    for s in sequences:
        rows[s] = False
    return rows


def cleared(rows: torch.Tensor, out: torch.Tensor, lse: torch.Tensor) -> None:
    """Assert what results have in rows of no sequence, and that the others were computed."""
    assert not out[rows].any()
    assert lse[:, rows].isneginf().all()
    assert out[~rows].isfinite().all()
    assert lse[:, ~rows].isfinite().all()


@every_kind
@pytest.mark.parametrize("compiled", [False, True])
def test_gradients(starts: list[int], used: list[int] | None, most: int, compiled: bool) -> None:
    """The results of each sequence by itself, and 0 elsewhere."""
    sequences, inputs = in_use(starts, used, most), packed()
    lengths = None if used is None else numbers(*used)
    attend: Any = partial(flash_attn_varlen_func, seqused_q=lengths, seqused_k=lengths, return_lse=True)
    if compiled:
        torch._dynamo.reset()
        attend = torch.compile(attend, fullgraph=True, backend="aot_eager")
    out, lse = attend(*inputs, numbers(*starts), numbers(*starts), most, most)
    rows = none_of(sequences)
    cleared(rows, out.detach(), lse.detach())
    dout = like(out).masked_fill(rows[:, None, None], math.nan)
    got = torch.autograd.grad(out, inputs, dout)
    assert all(not x[rows].any() for x in got)
    for s in sequences:
        if s.start < s.stop:
            one = tuple(x.detach()[None, s].requires_grad_() for x in inputs)
            as_good_as_plain(tuple(x[None, s] for x in got), plain, one, dout[None, s])


def test_gradient_of_the_log_sum_exp() -> None:
    rows = none_of(in_use([0, 12, 20], None, 12))
    inputs, at = packed(), numbers(0, 12, 20)
    out, lse = flash_attn_varlen_func(*inputs, at, at, 12, 12, return_lse=True)
    dlse = torch.ones_like(lse).masked_fill(rows, math.nan)
    for gradient in torch.autograd.grad((out, lse), inputs, (like(out), dlse)):
        assert not gradient[rows].any()
        assert gradient.isfinite().all()


def test_weights_before_attention() -> None:
    """One NaN in a row of padding would make a weight's whole gradient NaN."""
    x = like(torch.empty(TOTAL, HDIM)).half()
    weight = torch.eye(HDIM).half().requires_grad_()
    q = (x @ weight).view(TOTAL, 1, HDIM)
    at = numbers(0, 12, 20)
    flash_attn_varlen_func(q, q, q, at, at, 12, 12)[:20].float().sum().backward()
    assert weight.grad is not None
    assert weight.grad.isfinite().all()


def test_probabilities() -> None:
    at = numbers(0, 12, 20)
    out, lse, _ = flash_attn_varlen_func(*packed(grad=False), at, at, 12, 12, return_attn_probs=True)
    cleared(none_of(in_use([0, 12, 20], None, 12)), out, lse)


@pytest.mark.parametrize("grad", [False, True])
def test_module(grad: bool) -> None:
    """Rows that a mask hides are 0, and so are their gradients."""
    inputs = qkv((2, 16, 2, 64), grad=grad)
    seen = torch.arange(16) < torch.tensor([[16], [5]])
    mask = seen[:, :, None] & seen[:, None]
    attention = FlashAttention().eval()
    out = attention(*inputs, mask)
    assert attention.path == "lengths"
    assert not out[~seen].any()
    assert out.isfinite().all()
    if grad:
        for gradient in torch.autograd.grad(out, inputs, like(out)):
            assert not gradient[~seen].any()
            assert gradient.isfinite().all()


@pytest.mark.parametrize("by_table", [True, False])
def test_packed_queries_over_a_cache(by_table: bool) -> None:
    """`flash_attn_varlen_func` with a block table and `flash_attn_with_kvcache` do it alike."""
    q, (k, v) = packed(grad=False)[0], (x.detach() for x in qkv((2, 16, HEADS, HDIM), seed=1)[:2])
    table, lengths, at = torch.tensor([[1], [0]], dtype=torch.int32), numbers(16, 9), numbers(0, 3, 5)
    if by_table:
        results = flash_attn_varlen_func(
            q, k, v, at, at, 3, 16, block_table=table, seqused_k=lengths, return_lse=True
        )
    else:
        results = flash_attn_with_kvcache(
            q, k, v, cache_seqlens=lengths, block_table=table, cu_seqlens_q=at, max_seqlen_q=3,
            return_softmax_lse=True,
        )  # fmt: skip
    cleared(torch.arange(TOTAL) >= 5, *results)


@pytest.mark.parametrize("width", [64, 60])
def test_flash_attn(width: int) -> None:
    """The functions of flash-attn's names, of a head dim that is copied too."""
    rows, at = torch.arange(TOTAL) >= 20, numbers(0, 12, 20)
    q, k, v = inputs = [x.detach()[..., :width].requires_grad_() for x in packed()]
    out, lse, _ = flash_attn.flash_attn_varlen_func(q, k, v, at, at, 12, 12, return_attn_probs=True)
    cleared(rows, out.detach(), lse.detach())
    dout = like(out).masked_fill(rows[:, None, None], math.nan)
    assert all(not x[rows].any() for x in torch.autograd.grad(out, inputs, dout))


def test_flash_attn_private() -> None:
    """A given gradient keeps such rows unless `zero_tensors`; what is new has 0."""
    rows, at, inputs = torch.arange(TOTAL) >= 20, numbers(0, 12, 20), packed(grad=False)
    out, lse, *_ = flash_attn_interface._flash_attn_varlen_forward(*inputs, at, at, 12, 12, 0.0, 0.125, False)
    cleared(rows, out, lse)
    dout = like(out).masked_fill(rows[:, None, None], math.nan)
    *gradients, softmax_d = flash_attn_2_cuda.varlen_bwd(
        dout, *inputs, out, lse, None, None, None, at, at, None, 12, 12, 0.0, 0.125, False, False, -1, -1,
        0.0, False,
    )  # fmt: skip
    assert all(not x[rows].any() for x in gradients)
    assert not softmax_d[:, rows].any()
    assert softmax_d.isfinite().all()


@pytest.mark.parametrize("zero_tensors", [False, True])
@pytest.mark.parametrize("width", [64, 60])
def test_a_given_output(zero_tensors: bool, width: int) -> None:
    """Over pages too, where an output of 60 columns is written elsewhere first."""
    at, table = numbers(0, 3, 5), torch.tensor([[1], [0]], dtype=torch.int32)
    q, (k, v) = packed(grad=False)[0], (x.detach() for x in qkv((2, 16, HEADS, HDIM), seed=1)[:2])
    q, k, v = (x[..., :width] for x in (q, k, v))
    out = torch.full_like(q, 3.0)
    flash_attn_2_cuda.varlen_fwd(
        q, k, v, out, at, at, numbers(16, 9), None, table, None, 3, 16, 0.0, 0.125, zero_tensors, False, -1,
        -1, 0.0, False,
    )  # fmt: skip
    assert (out[5:] == (0.0 if zero_tensors else 3.0)).all()
    assert (out[:5] != 3.0).any()
