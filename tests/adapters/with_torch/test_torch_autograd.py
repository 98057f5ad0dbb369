# SPDX-License-Identifier: MIT OR Apache-2.0
"""Gradients of pyfa_rocm.torch in eager mode: right, for all forms of input and output; what is saved."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from adapters.with_torch.torch_gradients import (
    allocations,
    as_good_as_plain,
    dropping,
    judge,
    like,
    of,
    plain,
    qkv,
)
from backward import NAMES
from built import rows
from torch.utils.flop_counter import FlopCounterMode

import pyfa_rocm
from pyfa_rocm import UnsupportedError
from pyfa_rocm.torch import _backward, _operators, flash_attn_func, flash_attn_varlen_func

CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "causal": ({"shape": (2, 40, 4, 64), "nhead_k": 2}, {"causal": True}),
    "window": ({"shape": (1, 33, 2, 128), "seqlen_k": 50}, {"window_size": (10, 3)}),
    "top_left": (
        {"shape": (1, 30, 2, 32), "seqlen_k": 41, "dtype": torch.bfloat16},
        {"causal": True, "top_left": True},
    ),
    "hdim_v": ({"shape": (1, 17, 3, 40), "hdim_v": 56}, {"softmax_scale": 0.3}),
}


@pytest.mark.parametrize(("tensors", "options"), CASES.values(), ids=CASES)
def test_gradients(tensors: dict[str, Any], options: dict[str, Any]) -> None:
    q, k, v = inputs = qkv(**tensors)
    out, lse = flash_attn_func(q, k, v, **options, return_lse=True)
    dout = like(out)
    judge(inputs, dout, out, lse, torch.autograd.grad(out, inputs, dout), **options)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_flash_attentions_criterion(dtype: torch.dtype) -> None:
    hdim = 64 if dtype == torch.float16 else 96
    inputs = qkv((1, 61, 2, hdim), nhead_k=1, seqlen_k=75, dtype=dtype)
    out = flash_attn_func(inputs[0], inputs[1], inputs[2], causal=True)
    dout = like(out)
    got = torch.autograd.grad(out, inputs, dout)
    as_good_as_plain(got, lambda q, k, v: plain(q, k, v, causal=True), inputs, dout)


def test_packed_sequences() -> None:
    """Each sequence has the gradients that it has alone; rows beyond the lengths in use have 0."""
    q, k, v = (x.detach()[0].requires_grad_() for x in qkv((1, 50, 2, 64), seed=3))
    at, used = torch.tensor([0, 20, 50], dtype=torch.int32), torch.tensor([20, 13], dtype=torch.int32)
    out, lse = flash_attn_varlen_func(
        q, k, v, at, at, 30, 30, causal=True, seqused_q=used, seqused_k=used, return_lse=True
    )
    dout = like(out)
    got = torch.autograd.grad(out, (q, k, v), dout)
    for start, length in ((0, 20), (20, 13)):
        rows = slice(start, start + length)
        alone = [x[None, rows] for x in (q, k, v)]
        judge(
            tuple(alone),
            dout[None, rows],
            out[None, rows],
            lse[None, :, rows],
            tuple(x[None, rows] for x in got),
            causal=True,
        )
    assert not any(x[33:].any() for x in got)


def test_dropout_has_the_same_random_numbers() -> None:
    """P's signs say what was dropped: the gradient of v is that of the formula with these zeros."""
    inputs = tuple(x.detach()[0].requires_grad_() for x in qkv((1, 20, 2, 128)))
    v = inputs[2]
    torch.manual_seed(5)
    out, _, s_dmask = dropping(*inputs, return_attn_probs=True)
    dout = like(out)
    (dv,) = torch.autograd.grad(out, v, dout)
    kept = torch.where(s_dmask[0] >= 0, s_dmask[0], 0.0).double() / 0.7
    want = torch.einsum("hqk,qhd->khd", kept, dout.double())
    assert (dv - want).abs().max() < 0.01
    assert (s_dmask < 0).any()
    torch.manual_seed(5)
    again = dropping(*inputs)
    assert torch.equal(again, out)
    torch.testing.assert_close(torch.autograd.grad(again, v, dout)[0], dv)
    first, second = (of(lambda *x: dropping(*x, philox=(7, 2**63 + 5)), inputs, dout) for _ in range(2))
    assert torch.equal(first[2], second[2])


def test_gradient_of_the_log_sum_exp() -> None:
    """It equals the formula's in float64, within 16 bits, also without dO; rows without keys have none."""
    q, k, v = qkv((2, 24, 2, 64), nhead_k=1, seqlen_k=20)

    def formula(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k.expand(-1, -1, 2, -1)) / 8
        scores = scores.masked_fill(~torch.ones(24, 20, dtype=torch.bool).tril(-4), -1e30)
        return scores.logsumexp(-1)[..., 4:]

    out, lse = flash_attn_func(q, k, v, causal=True, return_lse=True)
    dout, dlse = like(out), like(lse)
    exact = tuple(x.detach().double().requires_grad_() for x in (q, k))
    want = torch.autograd.grad(formula(*exact), exact, dlse[..., 4:].double())
    got = torch.autograd.grad(lse, (q, k, v), dlse, retain_graph=True)
    for a, b in zip(got, want, strict=False):
        assert (a - b).abs().max() < 2**-9 * b.abs().max()
    assert not got[2].any()
    both = torch.autograd.grad((out, lse), (q, k, v), (dout, dlse), retain_graph=True)
    alone = torch.autograd.grad(out, (q, k, v), dout)
    for a, b, c in zip(both, alone, (*want, 0), strict=True):
        assert (a - b - c).abs().max() < 2**-8 * a.abs().max()


@pytest.mark.parametrize("hdim", [256, 512])
def test_no_kernel_for_a_gradient_of_lse(hdim: int) -> None:
    """It makes v wider than kernels take; the message says what works."""
    if hdim == 512:
        q, k, v = qkv((1, 20, 2, hdim), dtype=torch.bfloat16)
        _, lse = flash_attn_func(q, k, v, return_lse=True)
    else:
        if any(row["name"] == "fmha_bwd_fp16_d512_halves" for row in rows("bwd")):
            pytest.skip("this library has a kernel for 264")
        q, k, v = (x.detach()[0].requires_grad_() for x in qkv((1, 20, 2, hdim)))
        at = torch.tensor([0, 20], dtype=torch.int32)
        _, lse = flash_attn_varlen_func(q, k, v, at, at, 20, 20, return_lse=True)
    with pytest.raises(UnsupportedError, match=r"call lse\.detach\(\)"):
        torch.autograd.grad(lse, (q, k, v), like(lse))


BIASES = {"full": (2, 20, 20), "of_all_heads": (1, 20, 20), "of_all_rows": (2, 1, 20)}


def packed_bias(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """One packed float32 sequence with a bias."""
    at = torch.tensor([0, 20], dtype=torch.int32)
    out: torch.Tensor = flash_attn_varlen_func(q, k, v, at, at, 20, 20, bias=bias)
    return out


@pytest.mark.parametrize("shape", BIASES.values(), ids=BIASES)
def test_gradient_of_a_bias(shape: tuple[int, ...]) -> None:
    """Summed where the bias is broadcast; alone too; mapped, of each element; compiled."""
    q, k, v = (x.detach()[0].requires_grad_() for x in qkv((1, 20, 2, 32), dtype=torch.float32))
    bias = torch.randn(shape, generator=torch.Generator().manual_seed(4)).requires_grad_()
    dout = like(q)
    got = of(packed_bias, (q, k, v, bias), dout)

    def formula(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        return (torch.softmax(q @ k.mT / 32**0.5 + bias, -1) @ v).transpose(0, 1)

    as_good_as_plain(got, formula, (q, k, v, bias), dout)
    fixed = [x.detach() for x in (q, k, v)]
    (alone,) = of(lambda x: packed_bias(fixed[0], fixed[1], fixed[2], x), (bias,), dout)
    torch.testing.assert_close(alone, got[3])
    expanded = of(lambda x: packed_bias(fixed[0], fixed[1], fixed[2], x.expand(2, 20, 20)), (bias,), dout)
    torch.testing.assert_close(expanded[0], alone)
    grad = torch.func.grad(lambda x: (packed_bias(fixed[0], fixed[1], fixed[2], x) * dout).sum())
    both = torch.stack((bias.detach(), -bias.detach()))
    mapped = torch.vmap(grad)(both)
    torch.testing.assert_close(mapped[0], alone)
    torch.testing.assert_close(mapped[1], grad(both[1]))


def test_gradient_of_a_bias_when_compiled() -> None:
    torch._dynamo.reset()
    inputs = [x.detach()[0].requires_grad_() for x in qkv((1, 20, 2, 32), dtype=torch.float32)]
    leaves = (*inputs, torch.zeros(1, 20, 20, requires_grad=True))
    compiled = torch.compile(packed_bias, backend="aot_eager", fullgraph=True)
    dout = like(inputs[0])
    for a, b in zip(of(compiled, leaves, dout), of(packed_bias, leaves, dout), strict=True):
        torch.testing.assert_close(a, b)


def test_gradients_of_o_in_any_layout() -> None:
    """Expanded, transposed, of every second element; undefined for what nobody uses."""
    inputs = qkv()
    out, lse = flash_attn_func(*inputs, return_lse=True)
    wide = torch.randn(1, 2, 24, 128, generator=torch.Generator().manual_seed(1)).half()
    for dout in (
        torch.ones((), dtype=torch.float16).expand_as(out),
        wide[..., :64].transpose(1, 2),
        wide[..., ::2].transpose(1, 2),
        wide[:, :, :, 3:67].transpose(1, 2),
    ):
        judge(inputs, dout, out, lse, torch.autograd.grad(out, inputs, dout, retain_graph=True))
    out.sum().backward()
    assert torch.autograd.grad(torch.zeros(()).requires_grad_(), inputs, allow_unused=True) == (None,) * 3


@pytest.mark.parametrize("one", range(3), ids="qkv")
def test_only_one_input_requires_a_gradient(one: int) -> None:
    inputs = qkv()
    dout = like(inputs[0])
    want = of(flash_attn_func, inputs, dout)[one]
    mixed = [x if i == one else x.detach() for i, x in enumerate(inputs)]
    flash_attn_func(*mixed).backward(dout)
    assert all((x.grad is None) == (i != one) for i, x in enumerate(mixed))
    torch.testing.assert_close(mixed[one].grad, want)


def test_expanded_keys_get_the_sum() -> None:
    q, _, _ = qkv((3, 16, 2, 64))
    _, k, v = qkv((1, 16, 1, 64), seed=2)
    out = flash_attn_func(q, *(x.expand(3, 16, 2, 64) for x in (k, v)))
    dout = like(out)
    got = torch.autograd.grad(out, (q, k, v), dout)
    full = tuple(x.detach().expand(3, 16, 2, 64).clone().requires_grad_() for x in (k, v))
    want = of(flash_attn_func, (q, *full), dout)
    for a, b in zip(got[1:], want[1:], strict=True):
        torch.testing.assert_close(a, b.float().sum((0, 2), keepdim=True).half(), rtol=4e-3, atol=4e-3)


def test_autocast() -> None:
    """Gradients come back in the inputs' own types."""
    q, k, v = qkv(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        out = flash_attn_func(q, k, v.bfloat16())
    assert out.dtype == torch.bfloat16
    dout = like(out)
    got = torch.autograd.grad(out, (q, k, v), dout)
    assert {x.dtype for x in got} == {torch.float32}
    want = of(flash_attn_func, tuple(x.detach().bfloat16().requires_grad_() for x in (q, k, v)), dout)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b.float(), rtol=2**-7, atol=2**-7)


def test_deterministic() -> None:
    """Asked for by the call, or by torch for all."""
    inputs = qkv((1, 300, 1, 64))
    dout = like(inputs[0])
    want = of(lambda q, k, v: flash_attn_func(q, k, v, deterministic=True), inputs, dout)
    torch.use_deterministic_algorithms(True)
    try:
        got = of(flash_attn_func, inputs, dout)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_what_is_saved() -> None:
    """q, k, v, O and the log-sum-exp, and nothing without gradients: a training step takes O(seqlen)."""

    def step(seqlen: int) -> tuple[int, int]:
        inputs, saved = qkv((1, seqlen, 1, 64)), []

        def pack(x: torch.Tensor) -> torch.Tensor:
            saved.append(x.untyped_storage().nbytes())
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x), allocations() as found:
            flash_attn_func(inputs[0], inputs[1], inputs[2], causal=True).sum().backward()
        assert max(found) <= max(x.untyped_storage().nbytes() for x in inputs)
        return sum(saved), sum(found)

    short, long = step(64), step(256)
    assert short[0] == 64 * (4 * 64 * 2 + 4)
    assert long[0] == 4 * short[0]
    assert long[1] <= 4 * short[1]
    inputs = qkv()
    with torch.no_grad(), torch.autograd.graph.saved_tensors_hooks(lambda _: pytest.fail("saved"), id):
        assert flash_attn_func(*inputs).grad_fn is None


def test_workspace_grows_with_seqlen(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    allocate = _operators.allocate_workspace

    def noting(layout: Any, like: torch.Tensor) -> Any:
        sizes.append(layout.shape[0])
        return allocate(layout, like)

    monkeypatch.setattr(_backward, "allocate_workspace", noting)
    for seqlen in (128, 512):
        flash_attn_func(*qkv((1, seqlen, 1, 64))).sum().backward()
    assert sizes[1] <= 4 * sizes[0]


def test_flops() -> None:
    inputs = qkv((2, 16, 4, 64), nhead_k=2, seqlen_k=20, hdim_v=32)
    with FlopCounterMode(display=False) as counted:
        out = flash_attn_func(*inputs)
    forward = counted.get_total_flops()
    assert forward == 2 * 2 * 4 * 16 * 20 * (64 + 32)
    with FlopCounterMode(display=False) as counted:
        out.sum().backward()
    assert counted.get_total_flops() == 2 * 2 * 4 * 16 * 20 * (3 * 64 + 2 * 32)


def test_operators() -> None:
    """Gradients in place, new, added up and in float32 are those of the plain functions."""
    q, k, v = inputs = tuple(x.detach() for x in qkv((2, 20, 2, 64)))
    out, lse = flash_attn_func(q, k, v, causal=True, return_lse=True)
    dout = like(out)
    arguments = (dout, q, k, v, out, lse)
    dq, dk, dv, dbias = torch.ops.pyfa_rocm.fmha_bwd(*arguments, causal=True, grad_dtype=torch.float32)
    assert dbias.numel() == 0
    judge(inputs, dout, out, lse, tuple(x.half() for x in (dq, dk, dv)), causal=True)
    given = [torch.full((2, 2, 20, 64), 1.0).transpose(1, 2) for _ in NAMES]
    for accumulate in (False, True):
        torch.ops.pyfa_rocm.fmha_bwd_out(*arguments, *given, causal=True, accumulate=accumulate)
    for a, b in zip(given, (dq, dk, dv), strict=True):
        torch.testing.assert_close(a, 2 * b)
    for operator, more in (("fmha_bwd", ()), ("fmha_bwd_out", tuple(map(torch.zeros_like, inputs)))):
        torch.library.opcheck(getattr(torch.ops.pyfa_rocm, operator).default, (*arguments, *more))
    with pytest.raises(pyfa_rocm.InvalidArgumentError, match=r"dout: got shape .* expected"):
        torch.ops.pyfa_rocm.fmha_bwd(dout[:, :9], q, k, v, out, lse)
    with pytest.raises(pyfa_rocm.InvalidArgumentError, match=r"dq: got dtype int32, expected float16 or"):
        torch.ops.pyfa_rocm.fmha_bwd_out(*arguments, *(x.int() for x in inputs))


def test_varlen_operators() -> None:
    at = torch.tensor([0, 5, 16], dtype=torch.int32)
    q, k, v = (x.detach()[0] for x in qkv((1, 16, 2, 64)))
    out, lse = flash_attn_varlen_func(q, k, v, at, at, 11, 11, return_lse=True)
    arguments = (like(out), q, k, v, out, lse)
    lengths = (at, at, None, None, 11, 11)
    *want, _ = torch.ops.pyfa_rocm.fmha_varlen_bwd(*arguments, *lengths)
    given = [torch.empty_like(x) for x in (q, k, v)]
    torch.ops.pyfa_rocm.fmha_varlen_bwd_out(*arguments, *given, *lengths)
    for a, b in zip(given, want, strict=True):
        torch.testing.assert_close(a, b)
    torch.library.opcheck(torch.ops.pyfa_rocm.fmha_varlen_bwd.default, (*arguments, *lengths))


def test_nothing_to_do() -> None:
    """Calls have no rows, no keys, or no sequences."""
    for shape, seqlen_k in (((1, 0, 2, 64), 5), ((1, 5, 2, 64), 5), ((0, 5, 2, 64), 5)):
        inputs = qkv(shape, seqlen_k=seqlen_k)
        got = of(flash_attn_func, inputs, like(inputs[0]))
        assert [x.shape for x in got] == [x.shape for x in inputs]
        assert all(x.isfinite().all() for x in got)
    q, k, v = qkv((1, 5, 2, 64))
    out = flash_attn_func(q, k[:, :0], v[:, :0])
    assert all(not x.any() for x in torch.autograd.grad(out.sum(), (q, k, v)))


def test_sinks() -> None:
    """q, k and v, and the log-sum-exp, have the gradients of a key without a value beside the others."""
    q, k, v = inputs = qkv((1, 40, 2, 64), nhead_k=1, seqlen_k=50)
    sinks = torch.tensor([0.5, 3.0])

    def as_plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scores = torch.einsum("bihd,bjd->bhij", q, k[:, :, 0]) * 64**-0.5
        scores = torch.cat([scores, sinks.to(scores)[:, None, None].expand(1, 2, 40, 1)], -1)
        return torch.einsum("bhij,bjd->bihd", scores.softmax(-1)[..., :-1], v[:, :, 0]), scores.logsumexp(-1)

    out, lse = flash_attn_func(q, k, v, sinks=sinks, return_lse=True)
    dout, dlse = like(out), like(lse)
    got = torch.autograd.grad((out, lse), inputs, (dout, dlse))
    exact = [x.detach().double().requires_grad_() for x in inputs]
    want = torch.autograd.grad(as_plain(*exact), exact, (dout.double(), dlse.double()))
    for x, y in zip(got, want, strict=True):
        assert (x.double() - y).abs().max() <= 2**-8 * y.abs().max()


def test_refused_at_the_forward_call() -> None:
    """A feature without a backward kernel is refused by name, with advice; not with gradients off."""
    q, k, v = qkv()
    with pytest.raises(UnsupportedError, match=r"dtype = fp8.*requires a gradient: call under torch"):
        flash_attn_func(*(x.to(torch.float8_e4m3fnuz) for x in (q, k, v)))
    with pytest.raises(UnsupportedError, match=r"alibi_slopes: got a tensor with requires_grad=True"):
        flash_attn_func(q, k, v, alibi_slopes=torch.ones(2).requires_grad_())
    with pytest.raises(UnsupportedError, match=r"out_dtype: got torch\.float32 .* cast the result"):
        flash_attn_func(q, k, v, out_dtype=torch.float32)
    with pytest.raises(UnsupportedError, match=r"q: got a tensor with requires_grad=True.* without out"):
        flash_attn_func(q, k, v, out=torch.empty_like(q))
    with torch.no_grad():
        out = torch.empty_like(q)
        assert flash_attn_func(q, k, v, out=out) is out


def test_changed_inputs_are_noticed() -> None:
    q, k, v = qkv()
    k2 = k * 1
    out = flash_attn_func(q, k2, v)
    k2.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
