# SPDX-License-Identifier: MIT OR Apache-2.0
"""flash-attn's rotary embeddings: pairs of dimensions are complex numbers in float64, turned by an angle."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pyfa_rocm import InvalidArgumentError
from pyfa_rocm.flash_attn.layers import rotary
from pyfa_rocm.flash_attn.ops.triton.rotary import apply_rotary

ANGLES = torch.outer(torch.arange(24.0), 0.7 ** torch.arange(6.0))
COS, SIN = ANGLES.cos(), ANGLES.sin()
CU = torch.tensor([0, 5, 5, 12], dtype=torch.int32)


def draw(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3), dtype=torch.float64).to(dtype)


def turned(
    x: torch.Tensor, position: int, interleaved: bool, cos: torch.Tensor = COS, sin: torch.Tensor = SIN
) -> torch.Tensor:
    """One token, (nhead, hdim), turned as complex numbers; not at all beyond the table."""
    if position >= len(cos):
        return x.double()
    half = cos.shape[1]
    x, turn = x.double().clone(), torch.complex(cos[position].double(), sin[position].double())
    pairs = [(2 * i, 2 * i + 1) if interleaved else (i, i + half) for i in range(half)]
    for i, (a, b) in enumerate(pairs):
        z = torch.complex(x[:, a], x[:, b]) * turn[i]
        x[:, a], x[:, b] = z.real, z.imag
    return x


def want(x: torch.Tensor, positions: Any, interleaved: bool, **tables: torch.Tensor) -> torch.Tensor:
    """All tokens, (tokens, nhead, hdim), each at its position."""
    return torch.stack([turned(t, int(p), interleaved, **tables) for t, p in zip(x, positions, strict=True)])


OFFSETS: list[Any] = [0, 7, torch.tensor([3, 20])]


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("offsets", OFFSETS, ids=["0", "7", "tensor"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_batches(dtype: torch.dtype, offsets: Any, interleaved: bool) -> None:
    """12 of 16 dimensions; the second tensor offset goes beyond the table."""
    x = draw(2, 9, 3, 16, dtype=dtype)
    got = rotary.apply_rotary_emb(x, COS, SIN, interleaved, seqlen_offsets=offsets)
    assert got.dtype == dtype
    for b in range(2):
        first = offsets[b] if isinstance(offsets, torch.Tensor) else offsets
        exact = want(x[b], torch.arange(9) + first, interleaved)
        # Two products, their sum, and what is stored; computed in float32 at least.
        unit = torch.finfo(torch.promote_types(dtype, torch.float32)).eps
        size = x[b].double().abs().amax(-1, keepdim=True)
        bound = 3 * unit * 2 * size + (torch.finfo(dtype).eps * exact.abs() if dtype == torch.bfloat16 else 0)
        assert ((got[b].double() - exact).abs() <= bound).all()
        assert torch.equal(got[b, ..., 12:], x[b, ..., 12:])


@pytest.mark.parametrize("offsets", [0, torch.tensor([3, 1, 4])], ids=["0", "tensor"])
def test_packed_sequences(offsets: Any) -> None:
    x = draw(12, 2, 12)
    got = rotary.apply_rotary_emb(x, COS, SIN, seqlen_offsets=offsets, cu_seqlens=CU, max_seqlen=7)
    first = offsets if isinstance(offsets, torch.Tensor) else torch.zeros(3, dtype=torch.int64)
    positions = torch.cat([torch.arange(5) + first[0], torch.arange(7) + first[2]])
    torch.testing.assert_close(got, want(x, positions, False), rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    "options", [{}, {"interleaved": True, "seqlen_offsets": torch.tensor([2, 5])}], ids=str
)
def test_gradients(options: dict[str, Any]) -> None:
    x, cos, sin = draw(2, 4, 2, 14).requires_grad_(), COS.double(), SIN.double()
    assert torch.autograd.gradcheck(lambda x: rotary.apply_rotary_emb(x, cos, sin, **options), x)
    packed = {"cu_seqlens": torch.tensor([0, 3, 8]), "max_seqlen": 5} | options
    tokens = draw(8, 2, 14).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: rotary.apply_rotary_emb(x, cos, sin, **packed), tokens)


def test_back_again() -> None:
    x = draw(2, 4, 2, 14)
    there = apply_rotary(x, COS.double(), SIN.double(), interleaved=True)
    back = apply_rotary(there, COS.double(), SIN.double(), interleaved=True, conjugate=True)
    norm = (COS.double() ** 2 + SIN.double() ** 2)[:4].repeat_interleave(2, -1)[None, :, None]
    torch.testing.assert_close(back[..., :12], x[..., :12] * norm, rtol=1e-13, atol=1e-14)


def test_in_place() -> None:
    """The memory is the input's; a leaf and a result of unbind() may be given, as in flash-attn."""
    x = draw(2, 4, 3, 2, 12)
    expected = rotary.apply_rotary_emb(x[:, :, 0], COS, SIN)
    q, _, _ = x.clone().unbind(2)
    got = rotary.apply_rotary_emb(q, COS, SIN, inplace=True)
    assert got.data_ptr() == q.data_ptr()
    assert torch.equal(q, expected)
    leaf, factor = x[:, :, 0].clone().requires_grad_(), draw(2, 4, 2, 12)
    (rotary.apply_rotary_emb(leaf, COS, SIN, inplace=True) * factor).sum().backward()
    kept = factor.clone()
    assert torch.equal(leaf.grad, apply_rotary(factor, COS, SIN, conjugate=True))
    assert torch.equal(factor, kept)


@pytest.mark.parametrize("form", ["5 dims", "4 dims", "kv"])
def test_packed_tensors(form: str) -> None:
    """Queries and keys are turned, values are not; gradients are turned back."""
    cos_k, sin_k = COS * 0.5, SIN * 0.5
    if form == "kv":
        x = draw(2, 4, 2, 3, 14)
        parts: list[tuple[Any, torch.Tensor, torch.Tensor]] = [(0, COS, SIN)]
        call: Any = lambda x: rotary.apply_rotary_emb_kv_(x, COS, SIN, True, 3)  # noqa: E731
    else:
        x = draw(2, 4, 3, 3, 14) if form == "5 dims" else draw(2, 4, 4 + 2 + 2, 14)
        q, k = (0, 1) if form == "5 dims" else (slice(0, 4), slice(4, 6))
        parts = [(q, COS, SIN), (k, cos_k, sin_k)]
        heads = None if form == "5 dims" else 4
        call = lambda x: rotary.apply_rotary_emb_qkv_(  # noqa: E731
            x, COS, SIN, cos_k, sin_k, interleaved=True, seqlen_offsets=3, num_heads_q=heads
        )
    exact, factor = x.clone(), draw(*x.shape)
    back = factor.clone()
    for heads_of, cos, sin in parts:
        index = (slice(None), slice(None), heads_of)
        options: dict[str, Any] = {"seqlen_offsets": 3, "interleaved": True}
        exact[index] = apply_rotary(x[index], cos, sin, **options)
        back[index] = apply_rotary(factor[index], cos, sin, **options, conjugate=True)
    leaf = x.clone().requires_grad_()
    base = leaf * 1
    got = call(base)
    assert got.data_ptr() == base.data_ptr()
    assert torch.equal(got, exact)
    (got * factor).sum().backward()
    assert torch.equal(leaf.grad, back)


@pytest.mark.parametrize("scale_base", [None, 512.0])
def test_module(scale_base: float | None) -> None:
    module = rotary.RotaryEmbedding(12, base=100.0, scale_base=scale_base)
    assert not module.state_dict()
    qkv = draw(1, 6, 3, 2, 16, dtype=torch.float32)
    positions = torch.arange(2, 8)
    angles = torch.outer(torch.arange(8.0), 100.0 ** -(torch.arange(0, 12, 2) / 12))
    scale = torch.ones(8, 6)
    if scale_base is not None:
        power = (torch.arange(8.0)[:, None] - 4) / scale_base
        scale = ((torch.arange(0, 12, 2) + 0.4 * 12) / (1.4 * 12)) ** power
    of_q = {"cos": angles.cos() * scale, "sin": angles.sin() * scale}
    of_k = {"cos": angles.cos() / scale, "sin": angles.sin() / scale}
    exact = qkv.double()
    exact[0, :, 0] = want(qkv[0, :, 0], positions, False, **of_q)
    exact[0, :, 1] = want(qkv[0, :, 1], positions, False, **of_k)
    close: dict[str, Any] = {"rtol": 0, "atol": 2e-5, "check_dtype": False}  # of float32 angles up to 8
    torch.testing.assert_close(module(qkv.clone(), seqlen_offset=2), exact, **close)
    q, kv = module(qkv[:, :, 0].clone(), qkv[:, :, 1:].clone(), seqlen_offset=2)
    torch.testing.assert_close(q, exact[:, :, 0], **close)
    torch.testing.assert_close(kv, exact[:, :, 1:], **close)
    module(draw(1, 4, 3, 2, 16, dtype=torch.float32))
    assert module._seq_len_cached == 8  # what is there serves
    at = torch.tensor([2])
    torch.testing.assert_close(module(qkv.clone(), seqlen_offset=at, max_seqlen=8), exact, **close)
    with pytest.raises(InvalidArgumentError, match="max_seqlen: got None, expected the last position"):
        rotary.RotaryEmbedding(12)(qkv, seqlen_offset=at)


def test_in_torchs_own_operations() -> None:
    x, cos, sin = draw(2, 4, 2, 14), COS[:4].double(), SIN[:4].double()
    for interleaved in (False, True):
        exact = apply_rotary(x, cos, sin, interleaved=interleaved)
        torch.testing.assert_close(rotary.apply_rotary_emb_torch(x, cos, sin, interleaved), exact)
        each = cos.expand(2, 4, 6), sin.expand(2, 4, 6)
        torch.testing.assert_close(rotary.apply_rotary_emb_torch(x, *each, interleaved), exact)


# torch's own, at each such function that it traces.
@pytest.mark.filterwarnings("ignore:<class 'torch.autograd.function.Function'>:DeprecationWarning")
def test_compiled() -> None:
    """It is one graph with its gradient, in place too."""

    def step(x: torch.Tensor) -> torch.Tensor:
        x = rotary.apply_rotary_emb(x, COS, SIN, seqlen_offsets=3)
        return rotary.apply_rotary_emb_qkv_(torch.stack([x, x, x], 2), COS, SIN)

    x = draw(2, 4, 2, 14).requires_grad_()
    factor = draw(2, 4, 3, 2, 14)
    want = step(x)
    got = torch.compile(step, fullgraph=True, backend="aot_eager")(x)
    assert torch.equal(got, want)
    for a, b in zip(*(torch.autograd.grad(y, x, factor) for y in (got, want)), strict=True):
        assert torch.equal(a, b)


X = draw(2, 9, 3, 16)
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "dims": ({"x": X[0]}, r"x: got shape \(9, 3, 16\), expected \(batch, seqlen, nhead, hdim\)"),
    "packed": ({"cu_seqlens": CU, "max_seqlen": 9}, r"x: got .* expected \(total, nhead, hdim\)"),
    "wide": ({"x": X[..., :10]}, r"cos: got shape \(24, 6\), expected .* hdim 10"),
    "sin": ({"sin": SIN[:5]}, r"sin: got shape \(5, 6\), expected \(24, 6\) as cos"),
    "short": ({"seqlen_offsets": 16}, "cos: got 24 positions, expected at least 25"),
    "longest": ({"x": X[0], "cu_seqlens": CU}, "max_seqlen: got None, expected the longest"),
    "offsets": ({"seqlen_offsets": torch.tensor([1, 2, 3])}, r"seqlen_offsets: got torch.int64 \(3,\)"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD)
def test_bad_argument(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        rotary.apply_rotary_emb(**{"x": X, "cos": COS, "sin": SIN} | change)


def test_bad_packed_tensors() -> None:
    with pytest.raises(
        InvalidArgumentError, match="num_heads_q: got None, expected the number of query heads"
    ):
        rotary.apply_rotary_emb_qkv_(X, COS, SIN)
    with pytest.raises(InvalidArgumentError, match=r"qkv: got shape .* expected \(batch, seqlen, 3, nhead"):
        rotary.apply_rotary_emb_qkv_(X, COS, SIN, num_heads_q=2)
    with pytest.raises(InvalidArgumentError, match=r"kv: got shape .* expected \(batch, seqlen, 2, nhead"):
        rotary.apply_rotary_emb_kv_(X, COS, SIN)
