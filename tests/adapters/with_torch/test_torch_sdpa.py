# SPDX-License-Identifier: MIT OR Apache-2.0
"""pyfa_rocm.torch.sdpa: PyTorch's meaning of its arguments, to the tolerances of the kernels."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from adapters.with_torch.torch_cases import kernels_that_run, numerics_like, to_numpy
from cases import judge
from cases_types import Array
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import attention

from pyfa_rocm import InvalidArgumentError, UnsupportedError
from pyfa_rocm.torch import flash_attn_func, sdpa

torch_sdpa = torch.nn.functional.scaled_dot_product_attention
HALF = torch.float16


def randn(*shape: int, dtype: torch.dtype = HALF, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def qkv(
    *leading: int,
    heads: tuple[int, int] = (2, 2),
    seqlen_q: int = 50,
    seqlen_k: int = 70,
    hdim: int = 128,
    dtype: torch.dtype = HALF,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    shapes = ((heads[0], seqlen_q), (heads[1], seqlen_k), (heads[1], seqlen_k))
    q, k, v = (randn(*leading, *s, hdim, dtype=dtype, seed=i) for i, s in enumerate(shapes))
    return q, k, v


def mask(*shape: int, seed: int = 5) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) > 0.4


def in_float64(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **named: Any) -> torch.Tensor:
    """Return PyTorch's result. It may refuse a mask with is_causal, so one mask has both."""
    attn_mask = named.pop("attn_mask", None)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            attn_mask = torch.zeros(attn_mask.shape).masked_fill(~attn_mask, -math.inf)
        attn_mask = attn_mask.double()
        if named.pop("is_causal", False):
            triangle = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril()
            attn_mask = attn_mask.masked_fill(~triangle, -math.inf)
    return torch_sdpa(q.double(), k.double(), v.double(), attn_mask=attn_mask, **named)


def _folded(x: torch.Tensor, leading: tuple[int, ...], nhead: int) -> Array:
    """A tensor as the oracle takes it, (batch, seqlen, nhead, hdim)."""
    x = x.expand(*leading, nhead, *x.shape[-2:])
    return to_numpy(x.reshape(math.prod(leading), nhead, *x.shape[-2:]).transpose(1, 2))


def _bias(attn_mask: torch.Tensor | None, scores: tuple[int, ...]) -> Array | None:
    if attn_mask is None:
        return None
    if attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros(attn_mask.shape).masked_fill(~attn_mask, -math.inf)
    attn_mask = attn_mask.float().expand(scores).reshape(-1, *scores[-3:])
    return np.asarray(attn_mask.numpy())


def check(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Run one problem; the oracle says the same as PyTorch in float64, and the kernel as the oracle."""
    named = {"attn_mask": attn_mask, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    with kernels_that_run() as kernels:
        got = sdpa(q, k, v, **named)  # type: ignore[arg-type]
    theirs = in_float64(q, k, v, **named)
    assert got.shape == theirs.shape
    assert got.dtype == q.dtype
    padded = [x if x.dim() > 2 else x[None] for x in (q, k, v)]
    leading = torch.broadcast_shapes(*(x.shape[:-3] for x in padded))
    nhead = max(x.shape[-3] for x in padded)
    nhead_k = nhead if not enable_gqa else k.shape[-3]
    folded = [_folded(x, leading, n) for x, n in zip(padded, (nhead, nhead_k, nhead_k), strict=True)]
    want = attention(
        *folded,
        softmax_scale=scale,
        causal=is_causal,
        top_left=True,
        bias=_bias(attn_mask, (*leading, nhead, q.shape[-2], k.shape[-2])),
        numerics=numerics_like(kernels[0], q.dtype),
    )

    def o_of(x: torch.Tensor) -> torch.Tensor:
        return x.reshape(-1, *want.o.transpose(0, 2, 1, 3).shape[1:]).transpose(1, 2)

    np.testing.assert_allclose(o_of(theirs).numpy(), want.o, rtol=0, atol=1e-12)
    judge(want, to_numpy(o_of(got)), None)
    return got


@dataclass(frozen=True)
class Case:
    """A problem by its shapes: leading dimensions, and which of them key and value have."""

    leading: tuple[int, ...]
    heads: tuple[int, int]
    shared: tuple[bool, ...]
    seqlens: tuple[int, int]
    mask: str
    is_causal: bool
    scale: float | None
    bhsd: bool
    seed: int

    def run(self) -> None:
        (m, n), (h, h_k) = self.seqlens, self.heads
        q = self._tensor(self.leading, h, m, 1)
        of_keys = tuple(1 if one else n for n, one in zip(self.leading, self.shared, strict=False))
        k, v = (self._tensor(of_keys, h_k, n, i) for i in (2, 3))
        if self.mask == "float":
            attn_mask: torch.Tensor | None = 2 * randn(*self.leading, 1, m, n, seed=self.seed)
        elif self.mask == "none":
            attn_mask = None
        else:
            attn_mask = mask(*((m, n) if self.mask == "bool" else (*self.leading, h, m, n)), seed=self.seed)
        check(q, k, v, attn_mask, self.is_causal, self.scale, enable_gqa=h != h_k)

    def _tensor(self, leading: tuple[int, ...], heads: int, seqlen: int, number: int) -> torch.Tensor:
        """Heads before rows as it says, or after them in memory: a projection's output."""
        if self.bhsd:
            return randn(*leading, heads, seqlen, 128, seed=self.seed + number)
        return randn(*leading, seqlen, heads, 128, seed=self.seed + number).transpose(-2, -3)


drawn = st.builds(
    Case,
    leading=st.lists(st.integers(1, 2), max_size=3).map(tuple),
    heads=st.sampled_from(((1, 1), (3, 3), (4, 2), (3, 1), (4, 4))),
    shared=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    seqlens=st.tuples(st.integers(1, 100), st.integers(1, 140)),
    mask=st.sampled_from(("none", "bool", "bool_full", "float")),
    is_causal=st.booleans(),
    scale=st.none() | st.sampled_from((0.02, 0.3)),
    bhsd=st.booleans(),
    seed=st.integers(0, 2**20),
)


@settings(max_examples=50)
@given(case=drawn)
def test_random(case: Case) -> None:
    case.run()


def test_signature() -> None:
    """Names, order and defaults of PyTorch's, which says them in the first line of its documentation."""
    ours = [
        f"{x.name}={x.default}" if x.default is not x.empty else x.name
        for x in inspect.signature(sdpa).parameters.values()
        if x.name != "fallback"  # PyTorch does not have it
    ]
    documented = " ".join((torch_sdpa.__doc__ or "").split())
    assert documented.startswith(f"scaled_dot_product_attention({', '.join(ours)}) -> Tensor")


@pytest.mark.parametrize("leading", [(), (2,), (2, 2), (1, 2, 2)], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
def test_leading_dimensions(leading: tuple[int, ...], is_causal: bool) -> None:
    check(*qkv(*leading), is_causal=is_causal)


def test_two_dimensions() -> None:
    q, k, v = (x[0] for x in qkv())
    assert check(q, k, v).shape == (50, 128)
    check(q, k, v, mask(50, 70))


def test_leading_dimensions_are_broadcast() -> None:
    q, k, v = qkv(2, 3)
    check(q, k[:1], v[:, :1])
    check(q[:1, 0], k, v)
    check(q, k[:, :, :1], v[:, :, :1])
    check(q[:, :, :1], k, v)


def test_causal_is_aligned_top_left() -> None:
    """The first row sees only the first key; if there are more rows than keys, the last rows see all."""
    q, k, v = qkv(1)
    torch.testing.assert_close(check(q, k, v, is_causal=True)[:, :, 0], v[:, :, 0])
    check(*qkv(1, seqlen_q=70, seqlen_k=50), is_causal=True)


def test_grouped_queries() -> None:
    check(*qkv(2, heads=(6, 2)), enable_gqa=True)
    check(*qkv(2, heads=(4, 1)), mask(50, 70), enable_gqa=True)


MASKS = {
    "rows": mask(50, 70),
    "keys": mask(2, 1, 1, 70),
    "row": mask(2, 1, 50, 1),
    "head": mask(1, 2, 50, 70),
    "full": mask(2, 2, 50, 70),
    "float": randn(2, 1, 50, 70),
    "float_row": randn(1, 2, 50, 1),
    "transposed": randn(70, 50).T,
    "float32": randn(50, 70, dtype=torch.float32).half().float(),
    "nothing": torch.zeros(50, 70, dtype=torch.bool),
    "one": torch.ones(1, 1, dtype=torch.bool),
}


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("attn_mask", MASKS.values(), ids=MASKS)
def test_masks(attn_mask: torch.Tensor, is_causal: bool) -> None:
    check(*qkv(2), attn_mask, is_causal=is_causal)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_dtypes(dtype: torch.dtype) -> None:
    check(*qkv(1, dtype=dtype), is_causal=True)


def test_nothing_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A projection's output, a mask of query's type, and expanded keys keep their addresses."""
    seen: list[torch.Tensor] = []

    def watched(*args: Any, **named: Any) -> Any:
        seen.extend((*args, named["bias"]))
        return flash_attn_func(*args, **named)

    monkeypatch.setattr("pyfa_rocm.torch._sdpa.flash_attn_func", watched)
    packed = randn(2, 50, 3, 2, 128)
    q, k, v = (x.transpose(1, 2) for x in packed.unbind(2))
    attn_mask = randn(1, 1, 50, 50)
    sdpa(q, k[:1].expand_as(k), v, attn_mask)
    assert [x.data_ptr() for x in seen] == [x.data_ptr() for x in (q, k, v, attn_mask)]


def test_dropout() -> None:
    """By torch's generator; the mean over many draws is the result without."""
    q, k, v = (x.to(torch.bfloat16)[..., :64] for x in qkv(1))
    torch.manual_seed(3)
    first = sdpa(q, k, v, dropout_p=0.5)
    draws = [sdpa(q, k, v, dropout_p=0.5).double() for _ in range(60)]
    assert not torch.equal(draws[0], draws[1])
    off = torch.stack(draws).mean(0) - sdpa(q, k, v).double()
    error = torch.stack(draws).std(0) / math.sqrt(len(draws))
    assert (off / error).pow(2).mean() < 1.5
    torch.manual_seed(3)
    assert torch.equal(sdpa(q, k, v, dropout_p=0.5), first)


def test_autocast() -> None:
    q, k, v = qkv(1, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = sdpa(q, k, v)
        assert got.dtype == torch_sdpa(q, k, v).dtype
    assert torch.equal(got, sdpa(q.bfloat16(), k.bfloat16(), v.bfloat16()))


def test_empty() -> None:
    q, k, v = qkv(2)
    assert torch.equal(sdpa(q, k[:, :, :0], v[:, :, :0]), torch.zeros_like(q))
    assert sdpa(q[:, :, :0], k, v).shape == (2, 2, 0, 128)
    assert sdpa(q[:0], k[:0], v[:0]).shape == (0, 2, 50, 128)


Q, K, V = qkv(2)
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "flat": ({"query": Q[0, 0, 0]}, r"query: got shape \(128,\), expected \(\.\.\., seqlen, hdim\)"),
    "dtype": ({"value": V.float()}, r"value: got dtype torch\.float32, expected torch\.float16 as query"),
    "hdim": ({"key": K[..., :64]}, r"key: got shape .*, expected 128 in the last dimension as query"),
    "rows": ({"value": V[:, :, :-1]}, r"value: got shape .*, expected 70 rows as key"),
    "leading": ({"query": torch.cat([Q, Q[:1]])}, r"key: got leading dimensions \(2,\), .*query's \(3,\)"),
    "heads": ({"query": torch.cat([Q, Q], 1)}, r"key: got 2 heads, expected 4 as query, or enable_gqa"),
    "divisor": ({"query": torch.cat([Q, Q[:, :1]], 1), "enable_gqa": True}, "key: got 2 heads, .*divisor of"),
    "mask": ({"attn_mask": mask(50, 60)}, r"attn_mask: got shape \(50, 60\), expected .* \(2, 2, 50, 70\)"),
    "mask_dims": ({"attn_mask": mask(1, 2, 2, 50, 70)}, r"attn_mask: got shape \(1, 2, 2, 50, 70\)"),
    "mask_dtype": ({"attn_mask": mask(50, 70).int()}, r"attn_mask: got dtype torch\.int32, expected bool"),
}


@pytest.mark.parametrize(("change", "message"), BAD.values(), ids=BAD)
def test_bad_argument(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        sdpa(**({"query": Q, "key": K, "value": V} | change))


def test_what_is_unsupported_says_what_works() -> None:
    with pytest.raises(
        UnsupportedError, match=r"query: got dtype torch\.float64, expected one of torch\.float16"
    ):
        sdpa(Q.double(), K.double(), V.double())


def unaligned(x: torch.Tensor) -> torch.Tensor:
    """The same, at an address that is no multiple of 16 bytes."""
    memory = torch.empty(x.numel() + 1, dtype=x.dtype)
    return memory[1:].view(x.shape).copy_(x)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "columns": lambda x: x.mT.contiguous().mT,
    "address": unaligned,
    "rows": lambda x: torch.cat([x, x[..., :3]], -1)[..., : x.shape[-1]],
    "slice": lambda x: torch.cat([x[..., :1], x], -1)[..., 1:],
    "heads_last": lambda x: x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("name", ["q", "k", "v", "all"])
def test_any_layout(layout: Callable[[torch.Tensor], torch.Tensor], name: str) -> None:
    q, k, v = (layout(x) if name in (own, "all") else x for own, x in zip("qkv", qkv(2), strict=True))
    check(q, k, v, mask(50, 70))


@pytest.mark.parametrize(("hdim", "hdim_v"), [(100, 100), (33, 33), (64, 60), (1, 1), (57, 64)])
def test_any_head_dim(hdim: int, hdim_v: int) -> None:
    """Padded with zeros; the scale is that of the true head dim."""
    q, k, _ = qkv(2, hdim=hdim)
    v = randn(2, 2, 70, hdim_v, seed=9)
    assert check(q, k, v, mask(50, 70), is_causal=True).shape == (2, 2, 50, hdim_v)
    check(q, k, v, scale=0.3)


@pytest.mark.parametrize("scale", [0.0, -0.1, -2.0])
def test_any_scale(scale: float) -> None:
    check(*qkv(2), scale=scale)
    check(*qkv(2), mask(50, 70), is_causal=True, scale=scale)


SHAPES = ((0, 2, 50, 70), (2, 0, 50, 70), (2, 2, 0, 70), (2, 2, 50, 0), (0, 0, 0, 0))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("b", "h", "m", "n"), SHAPES)
def test_empty_with_masks(b: int, h: int, m: int, n: int, masked: bool) -> None:
    q, k, v = randn(b, h, m, 128), randn(b, h, n, 128), randn(b, h, n, 128)
    masks = (mask(b, h, m, n), mask(m, n), mask(b, 1, 1, n), randn(1, h, m, 1))
    for attn_mask in masks if masked else (None,):
        for is_causal in (False, True):
            got = sdpa(q, k, v, attn_mask, is_causal=is_causal)
            want = in_float64(q, k, v, attn_mask=attn_mask, is_causal=is_causal)
            assert got.shape == want.shape
            assert torch.equal(got.double(), want)
    with pytest.raises(InvalidArgumentError, match=r"attn_mask: got shape \(3, 7\)"):
        sdpa(q, k, v, mask(3, 7))


def test_no_head_dim() -> None:
    """Scores of nothing are equal; an output without elements has its shape."""
    q, k, v = qkv(2)
    assert (sdpa(q[..., :0], k[..., :0], v).double() - v.double().mean(2, keepdim=True)).abs().max() < 1e-3
    assert sdpa(q, k, v[..., :0]).shape == (2, 2, 50, 0)


def test_messages_say_what_to_call() -> None:
    """Where nothing is copied: the functions below."""
    q, k, v = (x.transpose(1, 2) for x in qkv(2))
    for name, layout, remedy in (
        ("q", "columns", r"q: got stride \d+ in the last dimension, .*: pass q\.contiguous\(\)"),
        ("k", "address", r"k\.data = 0x\w+: expected an address aligned to 16 bytes: pass k\.clone\(\)"),
        ("v", "rows", r"v\.stride_\w+ = \d+: expected a multiple of 8 .*: pass v\.contiguous\(\)"),
    ):
        tensors = {"q": q, "k": k, "v": v}
        tensors[name] = LAYOUTS[layout](tensors[name])
        with pytest.raises(InvalidArgumentError, match=remedy):
            flash_attn_func(**tensors)
        for own in (torch.Tensor.clone, torch.Tensor.contiguous):
            if f"pass {name}\\.{own.__name__}" in remedy:
                flash_attn_func(**tensors | {name: own(tensors[name])})


def test_compiled_with_copies() -> None:
    torch._dynamo.reset()
    q, k, v = qkv(2, hdim=60)
    compiled = torch.compile(sdpa, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(q, LAYOUTS["columns"](k), v), sdpa(q, k, v))
