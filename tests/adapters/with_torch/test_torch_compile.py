# SPDX-License-Identifier: MIT OR Apache-2.0
"""The operators in torch.compile, torch.export and opcheck: whole graphs, symbolic sizes, equal results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from pyfa_rocm.torch import FlashAttention, flash_attn_func, flash_attn_varlen_func, sdpa

BACKENDS = ("eager", "aot_eager", "inductor")
OPS = torch.ops.pyfa_rocm


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def randn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(shape).to(dtype)


def qkv(batch: int = 2, seqlen: int = 70, dtype: torch.dtype = torch.bfloat16) -> tuple[torch.Tensor, ...]:
    """q, and k and v of half as many heads, views of one tensor."""
    packed = randn(batch, seqlen, 4, 128, dtype=dtype)
    return packed[:, :, :2], packed[:, :, 2:3], packed[:, :, 3:]


def starts(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def _dense() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    return lambda q, k, v: flash_attn_func(q * 2, k, v, causal=True, return_lse=True), qkv()


def _window_softcap() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return flash_attn_func(q, k, v, window_size=(20, 5), softcap=3.0, top_left=True) + 1

    return function, qkv(dtype=torch.float16)


def _bias() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return flash_attn_func(q, k, v, bias=bias * 2)

    return function, (*qkv(dtype=torch.float16), randn(1, 2, 70, 70, dtype=torch.float16))


def _alibi() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    slopes = torch.tensor([0.5, 0.25])
    return lambda q, k, v, slopes: flash_attn_func(q, k, v, alibi_slopes=slopes), (*qkv(), slopes)


def _out() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        out = torch.zeros_like(q)
        result, lse = flash_attn_func(q, k, v, out=out, return_lse=True)
        return out + 1, result, lse

    return function, qkv()


def _dropout_by_value() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
        return flash_attn_func(q, k, v, 0.3, alibi_slopes=slopes, philox=(2**64 - 1, 3))

    return function, (*qkv(), torch.zeros(2))


def _fp8() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    q = randn(1, 64, 2, 128, dtype=torch.float8_e4m3fnuz)
    return lambda q: flash_attn_func(q, q, q, q_descale=0.5, out_dtype="bfloat16") * 2, (q,)


def _varlen() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, at: torch.Tensor) -> Any:
        return flash_attn_varlen_func(q, k, v, at, at, 50, 50, causal=True, return_lse=True)

    return function, (*(x[0] for x in qkv()), starts(0, 20, 70))


def _varlen_out() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    def function(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, at: torch.Tensor, used: torch.Tensor
    ) -> Any:
        out = torch.zeros_like(q)
        flash_attn_varlen_func(q, k, v, at, at, 50, 50, seqused_q=used, seqused_k=used, out=out)
        return out

    return function, (*(x[0] for x in qkv()), starts(0, 20, 70), starts(7, 49))


def _sdpa() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return sdpa(q, k, v, mask, enable_gqa=True).contiguous()

    q, k, v = (x.transpose(1, 2) for x in qkv(dtype=torch.float16))
    return function, (q, k, v, torch.rand(2, 1, 70, 70) > 0.4)


def _module() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A mask in a graph is a bias, since nobody can look; as lengths, by promise: test_torch_module.py."""
    return FlashAttention(causal=True).eval(), (*qkv(dtype=torch.float16), torch.rand(2, 70) > 0.4)


PROBLEMS = {
    function.__name__[1:]: function
    for function in (
        _dense, _window_softcap, _bias, _alibi, _out, _dropout_by_value, _fp8, _varlen, _varlen_out, _sdpa,
        _module,
    )
}  # fmt: skip


def as_tuple(result: Any) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def assert_same(got: Any, want: Any) -> None:
    """Values bit for bit, and layout."""
    for x, y in zip(as_tuple(got), as_tuple(want), strict=True):
        assert (x.shape, x.stride(), x.dtype, x.device) == (y.shape, y.stride(), y.dtype, y.device)
        assert torch.equal(x.float().nan_to_num(), y.float().nan_to_num())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_compiled_whole(problem: Any, backend: str) -> None:
    function, arguments = problem()
    want = function(*arguments)
    assert_same(torch.compile(function, fullgraph=True, backend=backend)(*arguments), want)


def test_one_graph_for_all_sizes() -> None:
    """Batch and lengths marked as dynamic: compiled once."""
    counter = CompileCounterWithBackend("inductor")
    function = partial(flash_attn_func, causal=True, return_lse=True)
    compiled = torch.compile(function, fullgraph=True, backend=counter)
    for batch, seqlen in ((2, 70), (3, 41), (5, 130)):
        arguments = qkv(batch, seqlen)
        for x in arguments:
            torch._dynamo.mark_dynamic(x, 0)
            torch._dynamo.mark_dynamic(x, 1)
        assert_same(compiled(*arguments), function(*arguments))
    assert counter.frame_count == 1


def test_one_graph_for_all_packed_lengths() -> None:
    """Rows, number of sequences and the bounds of their lengths, which are numbers."""
    counter = CompileCounterWithBackend("aot_eager")

    def function(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, at: torch.Tensor, most: int) -> Any:
        return flash_attn_varlen_func(q, k, v, at, at, most, most, return_lse=True)

    compiled = torch.compile(function, fullgraph=True, backend=counter, dynamic=True)
    counts = set()
    for numbers in ((0, 20, 70), (0, 50, 60, 130), (0, 3, 4, 5, 90)):
        at, (q, k, v) = starts(*numbers), [x[0] for x in qkv(1, numbers[-1])]
        most = int(at.diff().max())
        assert_same(compiled(q, k, v, at, most), function(q, k, v, at, most))
        counts.add(counter.frame_count)
    assert len(counts) == 1  # not 1: torch starts over once, when it sees that numbers are constants


def test_sizes_that_only_the_data_says() -> None:
    """Padding taken out inside of the graph: as many rows as the mask has, and bounds out of a tensor."""

    def function(x: torch.Tensor, mask: torch.Tensor, at: torch.Tensor) -> Any:
        rows = mask.nonzero()[:, 0]
        q, most = x[rows], at.diff().max().item()
        out, lse = flash_attn_varlen_func(q, q, q, at, at, most, most, causal=True, return_lse=True)
        return torch.zeros_like(x).index_copy(0, rows, out), lse * 2

    mask = torch.rand(90) > 0.3
    arguments = randn(90, 2, 128), mask, starts(0, 20, int(mask.sum()))
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, capture_scalar_outputs=True):
        compiled = torch.compile(function, fullgraph=True, backend="inductor")
        assert_same(compiled(*arguments), function(*arguments))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_export(strict: bool, dynamic: bool) -> None:
    class Block(torch.nn.Module):
        def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            return flash_attn_func(q, k, v, causal=True) * 2

    sizes: Any = {0: torch.export.Dim("batch"), 1: torch.export.Dim("seqlen")} if dynamic else None
    program = torch.export.export(
        Block(), qkv(3, 60), strict=strict, dynamic_shapes=(sizes,) * 3 if dynamic else None
    )
    assert "pyfa_rocm.fmha_fwd" in str(program.graph)
    for arguments in (qkv(3, 60), *([qkv(2, 91)] if dynamic else [])):
        assert_same(program.module()(*arguments), Block()(*arguments))


def test_export_lets_go_of_the_mask_s_values() -> None:
    module, arguments = _module()
    program = torch.export.export(module, arguments)
    q, k, v, mask = arguments
    padding = torch.arange(70).expand(2, 70) < 40
    for seen in (mask, padding):
        assert_same(program.module()(q, k, v, seen), partial(module, suffix=False)(q, k, v, seen))


Q, K, V = qkv()
AT = starts(0, 20, 70)
LENGTHS = (AT, AT, None, None, 50, 50)
SAMPLES: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]] = {
    "fwd": (OPS.fmha_fwd, (Q, K, V), {}),
    "fwd_lse": (OPS.fmha_fwd, (Q, K, V, 0.1, True), {"return_lse": True}),
    "fwd_dropout": (
        OPS.fmha_fwd,
        (Q, K, V),
        {"dropout_p": 0.5, "philox": torch.tensor([1, 2]), "alibi_slopes": torch.zeros(2)},
    ),
    "fwd_bias": (
        OPS.fmha_fwd,
        (Q.half(), K.half(), V.half()),
        {"bias": randn(1, 1, 70, 70, dtype=torch.float16)},
    ),
    "fwd_out": (OPS.fmha_fwd_out, (Q, K, V, torch.zeros_like(Q)), {"return_lse": True}),
    "varlen": (OPS.fmha_varlen_fwd, (Q[0], K[0], V[0], *LENGTHS), {"return_lse": True}),
    "varlen_out": (OPS.fmha_varlen_fwd_out, (Q[0], K[0], V[0], torch.zeros_like(Q[0]), *LENGTHS), {}),
}


@pytest.mark.parametrize("sample", SAMPLES.values(), ids=SAMPLES)
def test_opcheck(sample: tuple[Any, tuple[Any, ...], dict[str, Any]]) -> None:
    """PyTorch's own test of an operator: schema, fake kernel against the real one, tracing, symbols."""
    op, arguments, named = sample
    torch.library.opcheck(op.default, arguments, named)


def test_dropout_in_a_graph_draws_anew() -> None:
    q, k, v = (x.to(torch.bfloat16)[..., :64] for x in qkv())
    compiled = torch.compile(
        lambda q, k, v: flash_attn_func(q, k, v, 0.5), fullgraph=True, backend="inductor"
    )
    first, second = compiled(q, k, v), compiled(q, k, v)
    assert not torch.equal(first, second)
    torch.manual_seed(0)
    again = compiled(q, k, v)
    torch.manual_seed(0)
    assert torch.equal(compiled(q, k, v), again)


def test_an_error_in_a_graph_names_the_argument() -> None:
    q, k, v = qkv()
    with pytest.raises(torch._dynamo.exc.TorchRuntimeError, match=r"v: got shape .* expected .* to fit k"):
        torch.compile(flash_attn_func, fullgraph=True, backend="eager")(q, k, v[:, :-1])


def test_no_gradient_of_slopes_in_a_graph() -> None:
    q, k, v = qkv()
    slopes = torch.ones(q.shape[2], requires_grad=True)
    with torch.enable_grad(), pytest.raises(torch._dynamo.exc.TorchRuntimeError, match="alibi_slopes: got"):
        torch.compile(flash_attn_func, fullgraph=True, backend="aot_eager")(q, k, v, alibi_slopes=slopes)
