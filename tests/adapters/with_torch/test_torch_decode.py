# SPDX-License-Identifier: MIT OR Apache-2.0
"""pyfa_rocm.torch over KV caches: numbers, what is written, graphs, and what is refused."""

from __future__ import annotations

import ctypes
import inspect
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from adapters import torch_card
from adapters.cached_cases import Cached
from adapters.with_torch.torch_cases import to_numpy, to_torch
from capture import Graph, upload
from kv_append import Append, Appending
from torch._dynamo.testing import CompileCounterWithBackend
from torch._inductor.utils import run_and_get_code
from torch.utils._python_dispatch import TorchDispatchMode

import pyfa_rocm
import pyfa_rocm.torch as fa
from pyfa_rocm import InvalidArgumentError, UnsupportedError

BASE = Cached()
OPS = torch.ops.pyfa_rocm
card = torch_card.card


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(3)
    with torch.no_grad():
        yield


def tensors(case: Cached) -> dict[str, torch.Tensor]:
    return {name: to_torch(np.ascontiguousarray(x)) for name, x in case.hosts().items()}


def judge(case: Cached, arrays: dict[str, torch.Tensor], o: Any, lse: Any, lengths: Any = None) -> None:
    hosts = {name: to_numpy(x) for name, x in arrays.items()}
    case.judge(hosts, to_numpy(o), None if lse is None else to_numpy(lse), lengths)


def new_tokens(case: Cached, seqlen: int) -> dict[str, torch.Tensor]:
    shape = (case.batch, seqlen, case.nhead_k)
    return {
        "k": to_torch(case.normal(*shape, case.hdim, seed=7)),
        "v": to_torch(case.normal(*shape, case.hdim_v, seed=8)),
    }


def rotary(case: Cached) -> dict[str, torch.Tensor]:
    angles = torch.arange(200)[:, None] * 10.0 ** -torch.arange(0, 4, 0.25)
    dtype = getattr(torch, case.dtype)
    return {"rotary_cos": angles.cos().to(dtype), "rotary_sin": angles.sin().to(dtype)}


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"pages": "none", "dtype": "float16"},
        {"pages": "batch_idx", "lengths": (0, 65, 3)},
        {"hdim": 128, "hdim_v": 40, "page_size": 1, "ratio": 5, "nhead_k": 1},
        {"seqlen_q": 5, "options": {"causal": True, "window_size": (20, 0), "softcap": 20.0}},
        {"alibi": True, "seqlen_q": 30, "options": {"causal": True}},
        {"leftpad": (5, 40), "options": {"num_splits": 3}},
        {"scales": "page"},
        {"scales": "sequence"},
    ],
    ids=str,
)
def test_attention(change: dict[str, Any]) -> None:
    case = replace(BASE, **change)
    arrays = tensors(case)
    options = dict(case.options, scale_per_page=case.scales == "page")
    out, lse = fa.flash_attn_with_kvcache(**arrays, **options, return_softmax_lse=True)
    judge(case, arrays, out, lse)
    into = torch.full_like(out, torch.nan)
    assert fa.flash_attn_with_kvcache(**arrays, **options, out=into) is into
    assert torch.equal(into, out)


def test_layouts_are_not_copied() -> None:
    """Heads before tokens, and keys and values of one tensor: what the device sees is them."""
    arrays = tensors(replace(BASE, pages="none"))
    want = fa.flash_attn_with_kvcache(**arrays)
    both = torch.stack([arrays.pop("k_cache"), arrays.pop("v_cache")], 1).transpose(2, 3).contiguous()
    k, v = both.transpose(2, 3).unbind(1)
    assert torch.equal(fa.flash_attn_with_kvcache(k_cache=k, v_cache=v, **arrays), want)


@pytest.mark.parametrize("lengths", [40, None])
def test_one_length(lengths: int | None) -> None:
    arrays = tensors(replace(BASE, pages="none", lengths=(40, 40)))
    want = fa.flash_attn_with_kvcache(**arrays)
    assert torch.equal(fa.flash_attn_with_kvcache(**(arrays | {"cache_seqlens": lengths})), want)


class InTorch(Appending):
    """An append of the first group of tests, by torch's function."""

    def run_in_torch(self) -> None:
        """Append and judge the caches and q."""
        case, at = self.case, (0,) if self.case.packed else ()
        arrays = {name: x[at] for name, x in self.values.items()} | self.hosts()
        given = {name: to_torch(np.array(x, order="C")) for name, x in arrays.items()}
        buffer, caches = to_torch(self.before.copy()), []
        for (offset, _), hdim in zip(self.places, (case.hdim_q, case.hdim_v), strict=True):
            shape = (self.pages, self.page_size, case.nhead_k, hdim)
            caches.append(buffer[offset : offset + math.prod(shape)].view(shape))
        q = fa.flash_attn_kv_append(
            *caches, **given, rotary_interleaved=case.interleaved, scale_per_page=case.scales == "page"
        )
        self.judge_cache(to_numpy(buffer))
        if "q" in case.parts:
            assert q is given["q"]
            self.judge_q(to_numpy(q)[None] if case.packed else to_numpy(q))


@pytest.mark.parametrize("change", [
    {}, {"interleaved": True, "rotary_float": True, "table": "none"},
    {"packed": True, "lengths": (1, 0, 20, 7), "used": (100, 3, 0, 15)},
    {"table": "slots", "positions": True}, {"rotary_dim": 0, "parts": "kv", "hdim_v": 40},
    {"cache_dtype": "float8_e4m3fnuz", "scales": "page"},
], ids=str)  # fmt: skip
def test_append(change: dict[str, Any]) -> None:
    InTorch(replace(Append(rotary_dim=32), **change)).run_in_torch()


@pytest.mark.parametrize(("seqlen_q", "seqlen_new", "causal"), [(3, 3, True), (3, 3, False), (2, 4, True)])
def test_new_tokens(seqlen_q: int, seqlen_new: int, causal: bool) -> None:
    """One call equals an append, judged above, and attention after it; it is right against float64 too."""
    case = replace(BASE, seqlen_q=seqlen_q, room=seqlen_new, options={"causal": causal})
    arrays, new, tables = tensors(case), new_tokens(case, seqlen_new), rotary(case)
    caches = {name: arrays[name].clone() for name in ("k_cache", "v_cache")}
    out, lse = fa.flash_attn_with_kvcache(**arrays, **new, **tables, causal=causal, return_softmax_lse=True)
    where = {name: arrays[name] for name in ("cache_seqlens", "block_table")}
    fa.flash_attn_kv_append(**caches, **new, **tables, **where)
    for name, want in caches.items():
        assert (to_numpy(arrays[name]).view(np.uint8) == to_numpy(want).view(np.uint8)).all()
    place = arrays["cache_seqlens"][:, None] + torch.arange(seqlen_q, dtype=torch.int32) * causal
    q = fa.flash_attn_kv_append(
        None, None, None, None, q=arrays["q"], q_out=torch.empty_like(arrays["q"]), positions=place, **tables
    )
    judge(case, arrays | {"q": q}, out, lse, [n + seqlen_new for n in case.lengths])


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_merge(accumulate: bool, packed: bool) -> None:
    """Softmax over the parts, in float64; one part is of no keys."""
    shape = (3, 50, 2, 64) if packed else (3, 2, 25, 2, 64)
    outs = torch.randn(shape)
    lses = torch.randn((*shape[:-3], shape[-2], shape[-3]))
    lses[1, ..., :4] = -torch.inf
    weights = lses.double().softmax(0).transpose(-1, -2)[..., None]
    want, want_lse = (outs.double() * weights).sum(0), lses.double().logsumexp(0)
    if accumulate:
        out, lse = outs[0].clone(), lses[0].clone()
        results = fa.flash_attn_merge(outs[1:], lses[1:], out=out, lse=lse, accumulate=True)
        assert results[0] is out
        assert results[1] is lse
    else:
        out, lse = fa.flash_attn_merge(outs, lses)
    assert (out - want).abs().max() < 3 * 2**-22 * outs.abs().max()
    assert (lse - want_lse).abs().max() < 3 * 2**-22 * lses[lses.isfinite()].abs().max()


@pytest.mark.parametrize("cu", [False, True])
def test_paged_varlen(cu: bool) -> None:
    """Packed queries over pages: as flash_attn_with_kvcache gives of each sequence."""
    case = replace(BASE, seqlen_q=7, options={"causal": True})
    arrays = tensors(case)
    want, want_lse = fa.flash_attn_with_kvcache(**arrays, causal=True, return_softmax_lse=True)
    starts = torch.tensor([0, 7, 14], dtype=torch.int32)
    starts_k = torch.tensor([0, *np.cumsum(case.lengths)], dtype=torch.int32)
    out, lse = fa.flash_attn_varlen_func(
        arrays["q"].flatten(0, 1), arrays["k_cache"], arrays["v_cache"], starts, starts_k if cu else starts,
        7, 100, causal=True, block_table=arrays["block_table"], return_lse=True,
        seqused_k=None if cu else arrays["cache_seqlens"],
    )  # fmt: skip
    assert torch.equal(out, want.flatten(0, 1))
    assert torch.equal(lse, want_lse.movedim(1, 0).flatten(1))


# Graphs.


def step(
    q: Any, k_cache: Any, v_cache: Any, k: Any, v: Any, lengths: Any, table: Any, cos: Any, sin: Any
) -> Any:
    """A token of each sequence: stored, rotated, and attended to; the lengths are counted on."""
    out = fa.flash_attn_with_kvcache(
        q * 2, k_cache, v_cache, k, v, cos, sin, lengths, block_table=table, causal=True,
        rotary_interleaved=False,
    )  # fmt: skip
    lengths.add_(1)
    return out + 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled_loop(backend: str) -> None:
    """Compiled once and whole, a step goes on as sequences grow; the caches stay where they are."""
    case = replace(BASE, room=6)
    arrays, twin, tables = tensors(case), tensors(case), rotary(case)
    compiles: Any = CompileCounterWithBackend(backend)
    compiled = torch.compile(step, backend=compiles, fullgraph=True)
    for i in range(5):
        new = {name: x[:, i : i + 1] for name, x in new_tokens(case, 5).items()}
        results = []
        for function, a in ((compiled, arrays), (step, twin)):
            places = a["k_cache"].data_ptr()
            given: list[Any] = [a[name] for name in ("q", "k_cache", "v_cache")]
            given += [*new.values(), a["cache_seqlens"], a["block_table"], *tables.values()]
            results.append(function(*given))
            assert a["k_cache"].data_ptr() == places
        assert torch.equal(*results)
    assert compiles.frame_count == 1
    assert arrays["cache_seqlens"].tolist() == [n + 5 for n in case.lengths]
    for name in ("k_cache", "v_cache"):
        assert (to_numpy(arrays[name]).view(np.uint8) == to_numpy(twin[name]).view(np.uint8)).all()


def strided(caches: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """Keys and values as views of one tensor in which a head's tokens lie side by side, between NaN."""
    pages, tokens, nhead, hdim = caches[0].shape
    both = torch.full((pages, 2, nhead, tokens + 2, hdim + 8), torch.nan, dtype=caches[0].dtype)
    views: tuple[torch.Tensor, ...] = both[:, :, :, 1:-1, :hdim].transpose(2, 3).unbind(1)
    for view, cache in zip(views, caches, strict=True):
        view.copy_(cache)
    return views


def largest(codes: list[str]) -> int:
    """Elements of the largest tensor that compiled code allocates."""
    shapes = re.findall(r"empty_strided_cpu\w*\(\(([^)]*)\)", "\n".join(codes))
    return max(math.prod(int(x) for x in shape.split(",") if x.strip()) for shape in shapes)


@pytest.mark.parametrize("view", [False, True])
def test_no_copy_of_a_cache(view: bool) -> None:
    """A compiled step allocates nothing of a cache's size, also if the cache is a view."""
    case = replace(BASE, room=6, page_size=64)
    arrays, tables = tensors(case), rotary(case)
    new = new_tokens(case, 1)
    dense = (arrays["k_cache"], arrays["v_cache"])
    caches = strided(dense) if view else dense
    expected = [x.clone() for x in (*dense, arrays["cache_seqlens"])]
    places: list[Any] = [expected[2], arrays["block_table"], *tables.values()]
    want = step(arrays["q"], expected[0], expected[1], new["k"], new["v"], *places)
    got, codes = run_and_get_code(
        torch.compile(step, fullgraph=True), arrays["q"], *caches, *new.values(), arrays["cache_seqlens"],
        arrays["block_table"], *tables.values(),
    )  # fmt: skip
    assert "fmha_kv_append" in "\n".join(codes)
    assert largest(codes) < dense[0].numel()
    assert torch.equal(got, want)
    for x, y in zip(caches, expected, strict=False):
        assert torch.equal(x.nan_to_num(), y.nan_to_num())


class Large(TorchDispatchMode):
    """The operators, not of pyfa_rocm, that give a tensor of so many elements."""

    def __init__(self, elements: int) -> None:
        super().__init__()
        self.elements = elements
        self.seen: list[Any] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **kwargs or {})
        if function.namespace != "pyfa_rocm" and isinstance(result, torch.Tensor):
            self.seen += [function] * (result.numel() >= self.elements)
        return result


def test_no_eager_copy_of_a_view() -> None:
    case = replace(BASE, room=6, page_size=64)
    arrays, tables = tensors(case), rotary(case)
    caches = strided((arrays["k_cache"], arrays["v_cache"]))
    given: list[Any] = [arrays["q"], *caches, *new_tokens(case, 1).values(), arrays["cache_seqlens"]]
    given += [arrays["block_table"], *tables.values()]
    with Large(caches[0].numel()) as large:
        step(*given)
    assert not large.seen
    with large:
        caches[0].clone()
    assert large.seen


def _samples() -> dict[str, tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    case = replace(BASE, room=2)
    a, new, tables = tensors(case), new_tokens(case, 1), rotary(case)
    for name in ("k_cache", "v_cache"):
        a[name] = a[name].nan_to_num()  # opcheck compares copies of what was written
    q, caches = a["q"], (a["k_cache"], a["v_cache"])
    where = {"cache_seqlens": a["cache_seqlens"], "block_table": a["block_table"]}
    outs, lses = torch.randn(3, 2, 25, 2, 64), torch.randn(3, 2, 2, 25)
    packed = {
        "cu_seqlens_q": torch.tensor([0, 1, 2], dtype=torch.int32),
        "max_seqlen_q": 1,
        "max_seqlen_k": 100,
    }
    return {
        "decode": (OPS.fmha_decode, (q, *caches), where | {"causal": True, "return_lse": True}),
        "packed": (OPS.fmha_decode, (q[:, 0], *caches), where | packed),
        "decode_out": (OPS.fmha_decode_out, (q, *caches, torch.zeros_like(q)), where),
        "check": (OPS.fmha_decode_check, (q, *caches, None), where | {"causal": True}),
        "append": (OPS.fmha_kv_append, caches, where | new | tables | {"q": q, "q_out": torch.zeros_like(q)}),
        "rotate": (OPS.fmha_kv_append, (), tables | {"q_out": q.clone()}),
        "merge": (OPS.fmha_merge, (outs, lses), {"base2": True}),
        "merge_out": (OPS.fmha_merge_out, (outs, lses, outs[0].clone(), lses[0].clone()), {}),
    }


@pytest.mark.parametrize(
    "name", ["decode", "packed", "decode_out", "check", "append", "rotate", "merge", "merge_out"]
)
def test_opcheck(name: str) -> None:
    """PyTorch's own test of an operator: schema, fake kernel against the real one, tracing, symbols."""
    op, arguments, named = _samples()[name]
    torch.library.opcheck(op.default, arguments, named)


def test_captured_step(card: torch_card.CurrentStream) -> None:
    """A captured graph of append and attention goes on as the sequences grow."""
    case = replace(BASE, room=4)
    host, new = tensors(case), new_tokens(case, 1)
    on_card = {name: torch_card.on_card(x) for name, x in (host | new).items()}
    results: list[Any] = []

    def run(_: object) -> None:
        results.append(fa.flash_attn_with_kvcache(**on_card, causal=True))

    with Graph(run, card.stream) as graph:
        for i in range(4):
            lengths = np.array(case.lengths, np.int32) + i
            upload(on_card["cache_seqlens"].array, lengths)
            graph.replay()
            want = fa.flash_attn_with_kvcache(
                **host | new | {"cache_seqlens": torch.from_numpy(lengths)}, causal=True
            )
            np.testing.assert_array_equal(results[-1].array.to_numpy(), to_numpy(want))


def test_on_the_current_stream(card: torch_card.CurrentStream) -> None:
    """All of a step is on the stream that is torch's current one: it waits for that one, and for no other."""
    case = replace(BASE, room=1)
    host = tensors(case) | new_tokens(case, 1) | rotary(case)
    want = fa.flash_attn_with_kvcache(**{name: x.clone() for name, x in host.items()}, causal=True)
    held, current = card.stream, pyfa_rocm.Stream()
    runtime = ctypes.CDLL(pyfa_rocm.runtime().path)
    handle = ctypes.c_void_p(held.handle)
    for stream in (current, held):
        on_card = {name: torch_card.on_card(x) for name, x in host.items()}
        out = torch_card.on_card(torch.zeros_like(want))
        caches = [on_card[name].array for name in ("k_cache", "v_cache")]
        before = [_bytes(x) for x in (out.array, *caches)]
        card.stream = stream
        assert not runtime.fmha_emu_stream_hold(handle)
        fa.flash_attn_with_kvcache(**on_card, causal=True, out=out)
        current.synchronize()
        waits = [x == _bytes(y) for x, y in zip(before, (out.array, *caches), strict=True)]
        assert waits == [stream is held] * 3
        assert not runtime.fmha_emu_stream_release(handle)
        held.synchronize()
        np.testing.assert_array_equal(out.array.to_numpy(), to_numpy(want))
    card.stream = held
    current.close()


def _bytes(array: pyfa_rocm.DeviceArray) -> bytes:
    """Return the present content of the software device's memory."""
    return ctypes.string_at(array.data, array.nbytes)


# Around the operators.


def test_vmap() -> None:
    """One more dimension of queries over one cache: a call for each."""
    arrays = tensors(BASE)
    q = torch.stack([arrays.pop("q"), torch.randn(2, 1, 4, 64).to(torch.bfloat16)])
    got = torch.vmap(lambda x: fa.flash_attn_with_kvcache(x, **arrays))(q)
    for one, out in zip(q, got, strict=True):
        assert torch.equal(out, fa.flash_attn_with_kvcache(one, **arrays))


def test_autocast() -> None:
    """Queries and new tokens are cast, caches are not."""
    arrays = tensors(BASE)
    want = fa.flash_attn_with_kvcache(**arrays)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(fa.flash_attn_with_kvcache(**arrays | {"q": arrays["q"].float()}), want)


@pytest.mark.parametrize("compiled", [False, True])
def test_no_gradients(compiled: bool) -> None:
    arrays = tensors(BASE)
    arrays["q"].requires_grad_()
    function = fa.flash_attn_with_kvcache
    call = torch.compile(function, backend="aot_eager", fullgraph=True) if compiled else function
    with (
        torch.enable_grad(),
        pytest.raises(Exception, match=r"q: got a tensor with requires_grad=True") as raised,
    ):
        call(**arrays)
    assert compiled or isinstance(raised.value, UnsupportedError)
    assert "torch.no_grad()" in str(raised.value)


@pytest.mark.parametrize(("change", "kind", "said"), [
    ({"k_cache": None}, TypeError, "k_cache: got NoneType, expected a torch.Tensor"),
    ({"k": 1}, InvalidArgumentError, "v: got None, expected both k and v, or neither"),
    ({"cache_seqlens": -1}, InvalidArgumentError, "cache_seqlens: got -1, expected 0 or more"),
    ({"max_seqlen_q": 4}, InvalidArgumentError, "max_seqlen_q: got 4, expected None without cu_seqlens_q"),
    ({"cache_seqlens": torch.zeros(2)}, InvalidArgumentError, "cache_seqlens: got dtype float32, expected"),
    ({"sinks": torch.zeros(3)}, InvalidArgumentError, r"sinks: got shape \(3,\), expected \(4,\)"),
    ({"num_splits": 129}, InvalidArgumentError, "num_splits = 129"),
    ({"kernel": 99}, UnsupportedError, "kernel = 99"),
    ({"softcap": -1.0}, Exception, "softcap"),
    ({"alibi_slopes": torch.zeros(3)}, InvalidArgumentError, r"alibi_slopes: got shape \(3,\), expected"),
    ({"out": torch.zeros(2, 1, 4, 64)}, InvalidArgumentError, "out: got dtype float32, expected bfloat16"),
    ({"q": torch.ones(2, 1, 4, 64, dtype=torch.float16)}, UnsupportedError, "no fp16 kernel .* such a cache"),
    ({"sinks": torch.zeros(4, requires_grad=True)}, UnsupportedError, "sinks: got a tensor with requires_g"),
    ({"q": torch.ones(2, 1, 4, 64).bfloat16().requires_grad_()}, UnsupportedError, "q: got a tensor with r"),
], ids=[
    "k_cache", "k", "cache_seqlens", "max_seqlen_q", "dtype of lengths", "sinks", "num_splits", "kernel",
    "softcap", "alibi_slopes", "out", "dtype of q", "gradient of sinks", "gradient of q",
])  # fmt: skip
@pytest.mark.parametrize("stores", ["", "stores", "rotates", "rotates alone"])
def test_refused(change: dict[str, Any], kind: type[Exception], said: str, stores: str) -> None:
    """A refused call has stored nothing."""
    case = replace(BASE, room=2)
    arrays: dict[str, Any] = tensors(case)
    if stores:
        arrays |= new_tokens(case, 2 if stores == "rotates alone" else 1)
    if stores.startswith("rotates"):
        arrays |= rotary(case)
    before = {name: to_numpy(arrays[name].clone()).tobytes() for name in ("k_cache", "v_cache")}
    if "k" in change:
        arrays.pop("v", None)
    with torch.enable_grad(), pytest.raises(kind, match=said):
        fa.flash_attn_with_kvcache(**arrays | change)
    for name, want in before.items():
        assert to_numpy(arrays[name]).tobytes() == want


@pytest.mark.parametrize(
    ("change", "said"), [({"num_splits": 129}, "num_splits = 129"), ({"kernel": 99}, "kernel = 99")], ids=str
)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_refused_compiled(change: dict[str, Any], said: str, backend: str) -> None:
    """Errors that only the library can find come when the graph runs, but before it stores anything."""
    case = replace(BASE, room=2)
    arrays = tensors(case) | new_tokens(case, 1) | rotary(case)
    before = {name: to_numpy(arrays[name].clone()).tobytes() for name in ("k_cache", "v_cache")}
    call = torch.compile(fa.flash_attn_with_kvcache, backend=backend, fullgraph=True)
    with pytest.raises(Exception, match=said):
        call(**arrays, **change)
    for name, want in before.items():
        assert to_numpy(arrays[name]).tobytes() == want


@pytest.mark.parametrize("change", [
    {"seqused_q": torch.ones(2, dtype=torch.int32)}, {"dropout_p": 0.5}, {"top_left": True},
    {"out_dtype": torch.float32}, {"bias": torch.zeros(1, 1, 1, 1)}, {"return_attn_probs": True},
], ids=str)  # fmt: skip
def test_what_pages_are_without(change: dict[str, Any]) -> None:
    arrays = tensors(BASE)
    starts = torch.tensor([0, 1, 2], dtype=torch.int32)
    ((name, _),) = change.items()
    call = partial(
        fa.flash_attn_varlen_func, arrays["q"][:, 0], arrays["k_cache"], arrays["v_cache"], starts, starts, 1,
        100, block_table=arrays["block_table"],
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match=f"{name}: got .* with block_table, expected "):
        call(**change)


@pytest.mark.parametrize("name", ["flash_attn_with_kvcache", "flash_attn_kv_append"])
def test_signature(name: str) -> None:
    """pyfa_rocm's, without a stream."""
    ours, theirs = (
        [(x.name, x.kind, x.default) for x in inspect.signature(getattr(m, name)).parameters.values()]
        for m in (fa, pyfa_rocm)
    )
    assert ours == [x for x in theirs if x[0] != "stream"]
