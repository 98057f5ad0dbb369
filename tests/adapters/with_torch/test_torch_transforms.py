# SPDX-License-Identifier: MIT OR Apache-2.0
"""torch's contexts and transforms around pyfa_rocm.torch: vmap, autocast, the counter of operations."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from adapters.with_torch.torch_cases import kernels_that_run
from torch.utils.flop_counter import FlopCounterMode

import pyfa_rocm.flash_attn
from pyfa_rocm import InvalidArgumentError
from pyfa_rocm import torch as p
from pyfa_rocm.flash_attn import flash_attn_kvpacked_func

torch_sdpa = torch.nn.functional.scaled_dot_product_attention
AT = torch.tensor([0, 5, 16], dtype=torch.int32)


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def looped(function: Callable[..., Any], in_dims: tuple[int | None, ...], *tensors: torch.Tensor) -> Any:
    """Return the result expected from vmap: the function of each element, stacked."""
    size = next(x.shape[d] for x, d in zip(tensors, in_dims, strict=True) if d is not None)
    results = []
    for i in range(size):
        each = zip(tensors, in_dims, strict=True)
        results.append(function(*(x if d is None else x.select(d, i).contiguous() for x, d in each)))
    if isinstance(results[0], torch.Tensor):
        return torch.stack(results)
    return tuple(torch.stack(x) for x in zip(*results, strict=True))


def check(
    function: Callable[..., Any], in_dims: tuple[int | None, ...], *tensors: torch.Tensor, launches: int
) -> None:
    want = looped(function, in_dims, *tensors)
    with warnings.catch_warnings(), kernels_that_run() as kernels:
        warnings.simplefilter("error")  # torch warns when it falls back
        got = torch.vmap(function, in_dims=in_dims)(*tensors)
    assert len(kernels) == launches
    torch.testing.assert_close(got, want, rtol=0, atol=0)


def with_lse(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
    return p.flash_attn_func(q, k, v, causal=True, return_lse=True)


# Places of an axis of 3 in q, k, v, (batch 2, seqlen, nhead, hdim) else, and the number of launches it takes.
MAPPED: dict[str, tuple[tuple[int | None, ...], int]] = {
    "first": ((0, 0, 0), 1),
    "second": ((1, 1, 1), 3),
    "last": ((4, 4, 4), 1),
    "mixed": ((0, 4, 0), 1),
    "shared_keys": ((0, None, None), 3),
    "shared_queries": ((None, 0, 0), 3),
    "negative": ((-5, 0, 0), 1),
}


@pytest.mark.parametrize(("in_dims", "launches"), MAPPED.values(), ids=MAPPED)
def test_vmap(in_dims: tuple[int | None, ...], launches: int) -> None:
    shapes = ([2, 20, 4, 64], [2, 30, 2, 64], [2, 30, 2, 64])
    for shape, dim in zip(shapes, in_dims, strict=True):
        if dim is not None:
            shape.insert(dim % 5, 3)
    tensors = [draw(*shape, seed=i) for i, shape in enumerate(shapes)]
    check(with_lse, in_dims, *tensors, launches=launches)


def test_vmap_of_a_single_batch_shares_keys() -> None:
    q, k, v = draw(3, 1, 20, 4, 64), draw(1, 30, 4, 64, seed=1), draw(1, 30, 4, 64, seed=2)
    check(p.flash_attn_func, (0, None, None), q, k, v, launches=1)


def test_vmap_twice() -> None:
    tensors = [draw(3, 2, 1, 20, 4, 64, seed=i) for i in range(3)]
    inner = torch.vmap(p.flash_attn_func)
    with kernels_that_run() as kernels:
        got = torch.vmap(inner)(*tensors)
    assert len(kernels) == 1
    want = p.flash_attn_func(*(x.flatten(0, 2) for x in tensors)).view(got.shape)
    assert torch.equal(got, want)


@pytest.mark.parametrize(
    "shape", [(3, 1, 1, 20, 20), (3, 2, 4, 20, 20), (3, 1, 4, 20, 20), (2, 4, 20, 20)], ids=str
)
def test_vmap_of_a_bias(shape: tuple[int, ...]) -> None:
    q, k, v = (draw(3, 2, 20, 4, 64, seed=i) for i in range(3))
    dim = 0 if len(shape) == 5 else None
    one = len(shape) == 5 and shape[1] == 2
    check(
        lambda q, k, v, bias: p.flash_attn_func(q, k, v, bias=bias),
        (0, 0, 0, dim),
        q,
        k,
        v,
        draw(*shape, seed=4),
        launches=1 if one else 3,
    )
    shared = draw(1, 4, 20, 20)
    check(lambda q, k, v: p.flash_attn_func(q, k, v, bias=shared), (0, 0, 0), q, k, v, launches=1)


def test_vmap_of_slopes() -> None:
    q, k, v = (draw(3, 1, 20, 4, 128, seed=i, dtype=torch.bfloat16) for i in range(3))
    slopes = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
        return p.flash_attn_func(q, k, v, causal=True, alibi_slopes=slopes)

    check(attend, (0, 0, 0, 0), q, k, v, slopes, launches=1)
    check(attend, (0, 0, 0, None), q, k, v, slopes[0], launches=1)


def test_vmap_of_sinks() -> None:
    q, k, v = (draw(3, 1, 20, 4, 128, seed=i, dtype=torch.bfloat16) for i in range(3))
    sinks = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor) -> torch.Tensor:
        return p.flash_attn_func(q, k, v, causal=True, sinks=sinks)

    check(attend, (0, 0, 0, 0), q, k, v, sinks, launches=3)
    check(attend, (0, 0, 0, None), q, k, v, sinks[0], launches=1)


def test_vmap_of_packed_sequences() -> None:
    q, k, v = (draw(16, 3, 2, 64, seed=i) for i in range(3))
    starts = torch.stack([AT, AT, torch.tensor([0, 9, 16], dtype=torch.int32)], 1)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, starts: torch.Tensor) -> Any:
        return p.flash_attn_varlen_func(q, k, v, starts, starts, 11, 11, return_lse=True)

    check(attend, (1, 1, 1, 1), q, k, v, starts, launches=3)


def test_vmap_writes_where_it_is_told() -> None:
    q, k, v = (draw(3, 2, 20, 4, 64, seed=i) for i in range(3))
    want = torch.vmap(p.flash_attn_func)(q, k, v)
    for out, dim in ((torch.empty_like(q), 0), (torch.empty(2, 3, 20, 4, 64).half(), 1)):
        torch.vmap(lambda q, k, v, out: p.flash_attn_func(q, k, v, out=out), in_dims=(0, 0, 0, dim))(
            q, k, v, out
        )
        assert torch.equal(out.movedim(dim, 0), want)
    with pytest.raises(InvalidArgumentError, match=r"out: got a tensor that torch\.vmap does not map"):
        torch.vmap(lambda q: p.flash_attn_func(q, k[0], v[0], out=torch.empty_like(k[0])))(q)


def test_vmap_of_nothing() -> None:
    q = draw(0, 2, 20, 4, 64)
    assert torch.vmap(p.flash_attn_func)(q, q, q).shape == q.shape


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_vmap_with_dropout(randomness: str) -> None:
    """As torch's own randomness is asked to be; the same: what each element alone would get."""
    q, k, v = (draw(1, 20, 4, 64, seed=i, dtype=torch.bfloat16) for i in range(3))
    torch.manual_seed(3)
    mapped = torch.vmap(lambda q: p.flash_attn_func(q, k, v, 0.5), randomness=randomness)
    got = mapped(torch.stack([q, q]))
    assert torch.equal(got[0], got[1]) == (randomness == "same")
    if randomness == "same":
        torch.manual_seed(3)
        assert torch.equal(got[0], p.flash_attn_func(q, k, v, 0.5))


def test_vmap_of_what_is_built_on_the_functions() -> None:
    q, k, v = (draw(3, 2, 4, 20, 64, seed=i) for i in range(3))
    want = torch_sdpa(*(x.flatten(0, 1).double() for x in (q, k, v))).view(q.shape)
    assert (torch.vmap(p.sdpa)(q, k, v).double() - want).abs().max() < 0.01
    q, k, v = (x.transpose(2, 3) for x in (q, k, v))
    got = torch.vmap(pyfa_rocm.flash_attn.flash_attn_func)(q, k, v).transpose(2, 3)
    assert (got.double() - want).abs().max() < 0.01


def test_vmap_compiled() -> None:
    torch._dynamo.reset()
    q, k, v = (draw(3, 2, 20, 4, 64, seed=i) for i in range(3))
    compiled = torch.compile(torch.vmap(p.flash_attn_func), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(q, k, v), torch.vmap(p.flash_attn_func)(q, k, v))


EARLY = torch.arange(16) < 9
BIAS = draw(1, 1, 16, 16).float()
CALLED: dict[str, Callable[..., torch.Tensor]] = {
    "func": p.flash_attn_func,
    "bias": lambda q, k, v: p.flash_attn_func(q, k, v, bias=BIAS.to(k.dtype)),
    "varlen": lambda q, k, v: p.flash_attn_varlen_func(q[0], k[0], v[0], AT, AT, 11, 11),
    "module": lambda q, k, v: p.FlashAttention()(q, k, v),
    "lengths": lambda q, k, v: p.FlashAttention()(q, k, v, EARLY[None]),
    "rows": lambda q, k, v: p.FlashAttention()(q, k, v, EARLY[None, :, None] & EARLY[None, None]),
    "mask": lambda q, k, v: p.FlashAttention()(q, k, v, ~EARLY[None]),
    "sdpa": lambda q, k, v: p.sdpa(*(x.transpose(1, 2) for x in (q, k, v))),
    "drop_in": pyfa_rocm.flash_attn.flash_attn_func,
    "drop_in_kv": lambda q, k, v: flash_attn_kvpacked_func(q, torch.stack((k, v.to(k.dtype)), 2)),
}


# Biases of bfloat16 are not in the kernel set `ci`.
AUTOCAST = [(name, torch.float16) for name in CALLED]
AUTOCAST += [(name, torch.bfloat16) for name in CALLED if name not in ("bias", "mask")]


@pytest.mark.parametrize(("name", "dtype"), AUTOCAST, ids=str)
def test_autocast(name: str, dtype: torch.dtype) -> None:
    """Everywhere what the same call gives of tensors that were cast before, as torch's own attention."""
    q, k, v = (draw(1, 16, 2, 128, seed=i, dtype=torch.float32) for i in range(3))
    call = CALLED[name]
    with torch.autocast("cpu", dtype=dtype):
        got = call(q, k, v.half())
        assert got.dtype == torch_sdpa(q, k, v).dtype == dtype
        if name in ("func", "module", "sdpa", "drop_in"):
            with torch.autocast("cpu", enabled=False):
                assert call(q, k, v).dtype == torch.float32
    assert torch.equal(got, call(q.to(dtype), k.to(dtype), v.half().to(dtype)))


def test_autocast_leaves_fp8_and_slopes() -> None:
    q = draw(1, 16, 2, 128, dtype=torch.bfloat16)
    fp8 = q.to(torch.float8_e4m3fnuz)
    slopes = torch.tensor([0.5, 0.25])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(p.flash_attn_func(fp8, fp8, fp8, q_descale=2.0), _outside(fp8, q_descale=2.0))
        got = p.flash_attn_func(q.float(), q.float(), q.float(), causal=True, alibi_slopes=slopes)
    assert torch.equal(got, p.flash_attn_func(q, q, q, causal=True, alibi_slopes=slopes))


def _outside(x: torch.Tensor, **named: Any) -> torch.Tensor:
    with torch.autocast("cpu", enabled=False):
        return p.flash_attn_func(x, x, x, **named)


def test_operations_are_counted() -> None:
    """Counts are those of torch's own attention: masks do not count."""
    q, k, v = draw(2, 4, 20, 64), draw(2, 2, 30, 64), draw(2, 2, 30, 128)
    rows = q, k, v = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
    with FlopCounterMode(display=False) as ours:
        p.flash_attn_func(q, k, v, causal=True, out=torch.empty(2, 20, 4, 128).half())
    with FlopCounterMode(display=False) as theirs:
        torch_sdpa(*(x.repeat_interleave(4 // x.shape[2], 2).transpose(1, 2).float() for x in rows))
    assert ours.get_total_flops() == theirs.get_total_flops() == 2 * 2 * 4 * 20 * 30 * (64 + 128)
    with FlopCounterMode(display=False) as meta:
        p.flash_attn_func(*(x.to("meta") for x in rows))
    assert meta.get_total_flops() == ours.get_total_flops()
    x = draw(16, 2, 64)
    with FlopCounterMode(display=False) as packed:
        p.flash_attn_varlen_func(x, x, x, AT, AT, 11, 11)
    assert packed.get_total_flops() == 2 * 2 * (5 * 5 + 11 * 11) * 128
    used = torch.tensor([4, 10], dtype=torch.int32)
    with FlopCounterMode(display=False) as packed:
        p.flash_attn_varlen_func(x, x, x, AT, AT, 11, 11, seqused_k=used, seqused_q=used)
    assert packed.get_total_flops() == 2 * 2 * (4 * 4 + 10 * 10) * 128
    x, at = x.to("meta"), AT.to("meta")
    with FlopCounterMode(display=False) as packed:
        p.flash_attn_varlen_func(x, x, x, at, at, 11, 11)
    assert packed.get_total_flops() == 2 * 2 * (2 * 11 * 11) * 128
