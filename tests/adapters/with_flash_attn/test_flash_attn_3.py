# SPDX-License-Identifier: MIT OR Apache-2.0
"""The drop-in for flash-attention 3: signatures, results against float64, gradients, names in `import`."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from adapters.cached_cases import Cached
from adapters.with_flash_attn.flash_attn_cases import LENGTHS, draw, judge_gradients, judge_packed, starts
from adapters.with_flash_attn.test_flash_attn import check
from adapters.with_flash_attn.test_flash_attn_kvcache import judge, new_tokens, rotary, tensors
from built import fp8

from pyfa_rocm import InvalidArgumentError, UnsupportedError, flash_attn
from pyfa_rocm.flash_attn import _private_3, flash_attn_3

# Arguments and their defaults in flash-attention 3.0.0, written down from hopper/flash_attn_interface.py.
_DESCALES = "q_descale=None, k_descale=None, v_descale=None"
_HINTS = "num_splits=1, pack_gqa=None, deterministic=False, sm_margin=0, return_attn_probs=False"
_OPTIONS = f"{_DESCALES}, window_size=(-1, -1), attention_chunk=0, softcap=0.0"
SIGNATURES = {
    "flash_attn_func": f"q, k, v, softmax_scale=None, causal=False, qv=None, {_OPTIONS}, {_HINTS}",
    "flash_attn_varlen_func": (
        "q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q=None, seqused_k=None, "
        f"softmax_scale=None, causal=False, qv=None, {_OPTIONS}, {_HINTS}"
    ),
    "flash_attn_qkvpacked_func": (
        f"qkv, softmax_scale=None, causal=False, {_OPTIONS}, deterministic=False, num_heads_q=None, "
        "sm_margin=0, return_attn_probs=False"
    ),
    "flash_attn_with_kvcache": (
        "q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, "
        "cache_batch_idx=None, cache_leftpad=None, page_table=None, cu_seqlens_q=None, "
        "cu_seqlens_k_new=None, max_seqlen_q=None, rotary_seqlens=None, "
        f"{_DESCALES}, softmax_scale=None, causal=False, window_size=(-1, -1), attention_chunk=0, "
        "softcap=0.0, rotary_interleaved=True, scheduler_metadata=None, num_splits=0, pack_gqa=None, "
        "sm_margin=0, return_softmax_lse=False"
    ),
    "flash_attn_combine": "out_partial, lse_partial, out=None, out_dtype=None",
    "get_scheduler_metadata": (
        "batch_size, max_seqlen_q, max_seqlen_k, num_heads_q, num_heads_kv, headdim, cache_seqlens, "
        "qkv_dtype=torch.bfloat16, headdim_v=None, cu_seqlens_q=None, cu_seqlens_k_new=None, "
        "cache_leftpad=None, page_size=None, max_seqlen_k_new=0, causal=False, window_size=(-1, -1), "
        "attention_chunk=0, has_softcap=False, num_splits=0, pack_gqa=None, sm_margin=0"
    ),
    "_flash_attn_forward": (
        "q, k, v, k_new=None, v_new=None, qv=None, out_=None, cu_seqlens_q=None, cu_seqlens_k=None, "
        "cu_seqlens_k_new=None, seqused_q=None, seqused_k=None, max_seqlen_q=None, max_seqlen_k=None, "
        "page_table=None, kv_batch_idx=None, leftpad_k=None, rotary_cos=None, rotary_sin=None, "
        f"seqlens_rotary=None, {_DESCALES}, softmax_scale=None, causal=False, window_size_left=-1, "
        "window_size_right=-1, attention_chunk=0, softcap=0.0, rotary_interleaved=True, "
        "scheduler_metadata=None, num_splits=1, pack_gqa=None, sm_margin=0"
    ),
    "_flash_attn_backward": (
        "dout, q, k, v, out, softmax_lse, cu_seqlens_q=None, cu_seqlens_k=None, sequed_q=None, "
        "sequed_k=None, max_seqlen_q=None, max_seqlen_k=None, dq=None, dk=None, dv=None, "
        "softmax_scale=None, is_causal=False, window_size_left=-1, window_size_right=-1, softcap=0.0, "
        "deterministic=False, sm_margin=0"
    ),
}
# Not typed: calls here are by tuples and dictionaries of arguments.
f3: Any = flash_attn_3
private: Any = _private_3
BASE = Cached()


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name: str) -> None:
    parameters = inspect.signature(getattr(flash_attn_3, name)).parameters.values()
    plain = [x.replace(annotation=x.empty) for x in parameters if x.kind is x.POSITIONAL_OR_KEYWORD]
    assert ", ".join(map(str, plain)) == SIGNATURES[name]
    assert len(plain) == len(parameters) or name.startswith("_")


# The kernel set `ci` has each feature for these.
OPTIONS: list[tuple[dict[str, Any], torch.dtype, int]] = [
    ({}, torch.float16, 64),
    ({"causal": True, "softmax_scale": 0.25, "num_splits": 4}, torch.bfloat16, 64),
    ({"window_size": (20, 5), "pack_gqa": True}, torch.bfloat16, 128),
    ({"causal": True, "softcap": 5.0, "sm_margin": 8}, torch.float16, 128),
]
_HINT_NAMES = {"num_splits", "pack_gqa", "sm_margin"}


@pytest.mark.parametrize(("options", "dtype", "hdim"), OPTIONS, ids=str)
def test_flash_attn_func(options: dict[str, Any], dtype: torch.dtype, hdim: int) -> None:
    """O alone, or with the log-sum-exp; hints change nothing."""
    shapes = ((60, 4), (90, 2), (90, 2))
    q, k, v = (draw(2, n, h, hdim, seed=i, dtype=dtype) for i, (n, h) in enumerate(shapes))
    out, lse = f3.flash_attn_func(q, k, v, **options, return_attn_probs=True)
    given = {name: x for name, x in options.items() if name not in _HINT_NAMES}
    check(out, (q, k, v), lse, **given)
    assert torch.equal(f3.flash_attn_func(q, k, v, **given), out)
    kept = torch.full_like(out, torch.nan)
    result, again, *empty = private._flash_attn_forward(q, k, v, out_=kept, **options)
    assert result is kept
    assert torch.equal(kept, out)
    assert torch.equal(again, lse)
    assert [x.numel() for x in empty] == [0, 0]


def test_varlen_with_used_lengths() -> None:
    cu, used = starts(LENGTHS), torch.tensor([10, 0, 70], dtype=torch.int32)
    q, k, v = (draw(sum(LENGTHS), 2, 64, seed=i) for i in range(3))
    out, lse = f3.flash_attn_varlen_func(
        q, k, v, cu, cu, torch.tensor(70), 70, seqused_q=used, seqused_k=used, causal=True,
        return_attn_probs=True,
    )  # fmt: skip
    for b in (0, 2):
        rows = slice(int(cu[b]), int(cu[b] + used[b]))
        check(out[None, rows], [x[None, rows] for x in (q, k, v)], lse[None, :, rows], causal=True)
    assert not out[10:30].any()
    by_name = private._flash_attn_forward(
        q, k, v, cu_seqlens_q=cu, cu_seqlens_k=cu, seqused_q=used, seqused_k=used, max_seqlen_q=70,
        max_seqlen_k=70, causal=True,
    )  # fmt: skip
    assert torch.equal(by_name[0], out)


def test_packed_forms() -> None:
    qkv = draw(2, 50, 3, 2, 64)
    out = f3.flash_attn_qkvpacked_func(qkv, causal=True)
    check(out, qkv.unbind(2), causal=True)
    heads = draw(2, 50, 8, 64)  # 4 of q, 2 of k, 2 of v
    out, lse = f3.flash_attn_qkvpacked_func(heads, num_heads_q=4, return_attn_probs=True)
    check(out, heads.split([4, 2, 2], 2), lse)


@pytest.mark.parametrize("joined", [True, False])
def test_queries_of_values(joined: bool) -> None:
    """They add their product with v to the scores, in one scale of all dimensions; with gradients."""
    q, qv, whole = draw(1, 40, 4, 32), draw(1, 40, 4, 64, seed=1), draw(1, 60, 2, 96, seed=2)
    v, k = whole[..., :64], whole[..., 64:]
    if not joined:
        q, qv, k, v = (x.clone().requires_grad_() for x in (q, qv, k, v))
    out, lse = f3.flash_attn_func(q, k, v, qv=qv, causal=True, return_attn_probs=True)
    wide = torch.cat([qv, q], -1), whole, whole[..., :64]
    check(out.detach(), wide, lse.detach(), causal=True)
    if joined:
        return
    dout = draw(*out.shape, seed=3)
    dqv, dq, dv, dk = torch.autograd.grad(out, (qv, q, v, k), dout)
    a, b, c = (x.clone().requires_grad_() for x in wide)
    want = torch.autograd.grad(flash_attn.flash_attn_func(a, b, c, causal=True), (a, b, c), dout)
    assert torch.equal(torch.cat([dqv, dq], -1), want[0])
    assert torch.equal(dk, want[1][..., 64:])
    assert torch.equal(dv, want[1][..., :64] + want[2])


# The kernel set `ci` has no backward kernel with softcap of this head dim.
@pytest.mark.parametrize(("options", "dtype", "hdim"), OPTIONS[:3], ids=str)
def test_gradients(options: dict[str, Any], dtype: torch.dtype, hdim: int) -> None:
    shapes = ((45, 4), (70, 2), (70, 2))
    q, k, v = (draw(2, n, h, hdim, seed=i, dtype=dtype).requires_grad_() for i, (n, h) in enumerate(shapes))
    out, lse = f3.flash_attn_func(q, k, v, return_attn_probs=True, deterministic=True, **options)
    lse, dout = lse.detach(), draw(*out.shape, seed=3, dtype=dtype)
    got = torch.autograd.grad(out, (q, k, v), dout)
    given = {name: x for name, x in options.items() if name not in _HINT_NAMES}
    judge_gradients(got, q, k, v, out, lse, dout, **given)
    written = [torch.empty_like(x) for x in (q, k, v)]
    left, right = given.pop("window_size", (-1, -1))
    softmax_d = private._flash_attn_backward(
        dout, q, k, v, out, lse, dq=written[0], dk=written[1], dv=written[2], deterministic=True,
        is_causal=given.pop("causal", False), window_size_left=left, window_size_right=right, **given,
    )  # fmt: skip
    assert all(torch.equal(a, b) for a, b in zip(got, written, strict=True))
    assert softmax_d.shape == lse.shape


def test_gradients_of_packed_sequences() -> None:
    cu = starts(LENGTHS)
    leaves = q, k, v = [draw(sum(LENGTHS), 2, 64, seed=i).requires_grad_() for i in range(3)]
    out, lse = f3.flash_attn_varlen_func(q, k, v, cu, cu, 70, 70, causal=True, return_attn_probs=True)
    lse, dout = lse.detach(), draw(*out.shape, seed=3)
    judge_packed(torch.autograd.grad(out, leaves, dout), q, k, v, out, lse, dout, cu, cu, causal=True)
    written = [torch.empty_like(x) for x in leaves]
    private._flash_attn_backward(
        dout, q, k, v, out, lse, cu, cu, None, None, 70, 70, *written, is_causal=True
    )
    judge_packed(written, q, k, v, out, lse, dout, cu, cu, causal=True)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"pages": "none", "dtype": "float16"},
        {"pages": "batch_idx", "lengths": (0, 65, 3)},
        {"page_size": 1, "seqlen_q": 3, "leftpad": (5, 40)},
        {"options": {"num_splits": 256}},
        {"seqlen_q": 5, "options": {"causal": True, "window_size": (20, 0), "softcap": 20.0}},
    ],
    ids=str,
)
def test_cache(change: dict[str, Any]) -> None:
    """The table by flash-attention 3's name; four results with the log-sum-exp, as its callers expect."""
    case = replace(BASE, **change)
    arrays = tensors(case)
    named = {name.replace("block_table", "page_table"): x for name, x in arrays.items()}
    metadata = f3.get_scheduler_metadata(2, 1, 100, 4, 2, 64, arrays["cache_seqlens"])
    out, lse, *rest = f3.flash_attn_with_kvcache(
        **named, **case.options, scheduler_metadata=metadata, return_softmax_lse=True
    )
    assert [x.numel() for x in rest] == [0, 0]
    judge(case, arrays, out, lse)
    # Factors on 8-bit floats are not read with other types.
    factors = {f"{x}_descale": torch.full((case.batch, 2), 3.0) for x in "qkv"}
    assert torch.equal(f3.flash_attn_with_kvcache(**named, **case.options, **factors), out)
    renamed = {"cache_seqlens": "seqused_k", "cache_batch_idx": "kv_batch_idx", "cache_leftpad": "leftpad_k"}
    q, k, v = (named.pop(name) for name in ("q", "k_cache", "v_cache"))
    again, *_ = private._flash_attn_forward(
        q,
        k,
        v,
        num_splits=case.options.get("num_splits", 0),
        **{renamed.get(name, name): x for name, x in named.items()},
        **{name: x for name, x in case.options.items() if name not in ("num_splits", "window_size")},
        window_size=case.options.get("window_size"),
    )
    assert torch.equal(again, out)


def test_cache_appends_and_rotates() -> None:
    """As the drop-in for flash-attn 2 does, whose test judges it."""
    case = replace(BASE, seqlen_q=3, room=3)
    arrays, new, tables = tensors(case), new_tokens(case, 3), rotary(case)
    other = {name: x.clone() for name, x in arrays.items()}
    want = flash_attn.flash_attn_with_kvcache(**other, **new, **tables, causal=True)
    named = {name.replace("block_table", "page_table"): x for name, x in arrays.items()}
    got = f3.flash_attn_with_kvcache(**named, **new, **tables, causal=True)
    assert torch.equal(got, want)
    for name in ("k_cache", "v_cache"):
        assert torch.equal(arrays[name].nan_to_num(), other[name].nan_to_num())


def test_cache_with_packed_queries() -> None:
    case = replace(BASE, seqlen_q=3, options={"causal": True})
    arrays = tensors(case)
    table = arrays.pop("block_table")
    q, cu = arrays.pop("q"), torch.tensor([0, 3, 6], dtype=torch.int32)
    out, lse, *_ = f3.flash_attn_with_kvcache(
        q.flatten(0, 1), **arrays, page_table=table, cu_seqlens_q=cu, max_seqlen_q=3, causal=True,
        return_softmax_lse=True, cu_seqlens_k_new=cu,  # as SGLang gives it, which has stored the keys
    )  # fmt: skip
    lse = lse.view(4, 2, 3).transpose(0, 1)
    judge(case, arrays | {"q": q, "block_table": table}, out.view(2, 3, 4, 64), lse)


@pytest.mark.parametrize("of_q", [True, False])
def test_cache_of_8_bits(of_q: bool) -> None:
    """Queries of 8 bits are those of bfloat16; their factors are those of keys, of each sequence and head."""
    case = replace(BASE, scales="sequence", seqlen_q=3, options={"causal": True})
    arrays = tensors(case)
    named = {"page_table": arrays["block_table"], "cache_seqlens": arrays["cache_seqlens"]}
    named |= {"k_cache": arrays["k_cache"], "v_cache": arrays["v_cache"], "v_descale": arrays["v_scale"]}
    if not of_q:
        out, lse, *_ = f3.flash_attn_with_kvcache(
            arrays["q"], **named, k_descale=arrays["k_scale"], causal=True, return_softmax_lse=True
        )
        judge(case, arrays, out, lse)
        return
    q8, half = arrays["q"].to(getattr(torch, fp8())), torch.full((2, 2), 0.5)
    out, lse, *_ = f3.flash_attn_with_kvcache(
        q8, **named, q_descale=half, k_descale=2 * arrays["k_scale"], causal=True, return_softmax_lse=True
    )
    assert out.dtype == torch.bfloat16
    judge(case, arrays | {"q": q8.bfloat16()}, out, lse)


def test_8_bits() -> None:
    """One factor for each of q, k and v; others are refused by name."""
    q, k, v = (draw(2, 40, 2, 128, seed=i).to(getattr(torch, fp8())) for i in range(3))
    numbers = {"q_descale": 0.5, "k_descale": 2.0, "v_descale": 3.0}
    factors = {name: torch.full((2, 2), x) for name, x in numbers.items()}
    out = f3.flash_attn_func(q, k, v, **factors, causal=True)
    assert out.dtype == torch.bfloat16
    one = f3.functional.flash_attn_func(q, k, v, causal=True, **numbers)
    assert torch.equal(out, one)
    half = q.bfloat16()
    assert torch.equal(f3.flash_attn_func(half, half, half, **factors), f3.flash_attn_func(half, half, half))
    factors["k_descale"][0, 1] = 1.0
    with pytest.raises(UnsupportedError, match="k_descale: got values from 1 to 2, expected equal ones"):
        f3.flash_attn_func(q, k, v, **factors)


def test_latent_attention() -> None:
    """Keys of 64 behind values of 512 in one cache: read in place, and the same bits from two caches."""
    cache = draw(4, 64, 1, 576, dtype=torch.bfloat16)
    latent, rotated = cache[..., :512], cache[..., 512:]
    table, lengths = torch.tensor([[0, 2], [3, 1]], dtype=torch.int32), torch.tensor([100, 60]).int()
    q, qv = (draw(2, 1, 16, n, seed=n, dtype=torch.bfloat16) for n in (64, 512))
    options = {"cache_seqlens": lengths, "page_table": table, "causal": True, "return_softmax_lse": True}
    out, lse, *_ = f3.flash_attn_with_kvcache(q, rotated, latent, qv=qv, **options)
    wide = torch.cat([qv, q], -1)
    for b, n in enumerate(lengths.tolist()):
        keys = cache[table[b].long()].flatten(0, 1)[None, :n]
        one = slice(b, b + 1)
        check(out[one], (wide[one], keys, keys[..., :512]), lse[one], causal=True)
    again = f3.flash_attn_with_kvcache(q, rotated.contiguous(), latent.contiguous(), qv=qv, **options)
    assert torch.equal(again[0], out)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_combine(dtype: torch.dtype) -> None:
    """Parts of the keys, merged: as attention over all of them."""
    q, k, v = (draw(2, 50, 2, 64, seed=i) for i in range(3))
    parts = [
        f3.flash_attn_func(q, k[:, at], v[:, at], return_attn_probs=True)
        for at in (slice(0, 20), slice(20, 50))
    ]
    outs = torch.stack([out for out, _ in parts]).float()
    lses = torch.stack([lse.transpose(1, 2) for _, lse in parts])
    want, want_lse = f3.flash_attn_func(q, k, v, return_attn_probs=True)
    out, lse = f3.flash_attn_combine(outs, lses, out_dtype=dtype)
    assert out.dtype == dtype
    # Each part was rounded to float16, and the whole to `dtype`.
    close = 2 * torch.finfo(torch.float16).eps + torch.finfo(dtype).eps
    torch.testing.assert_close(out.float(), want.float(), rtol=close, atol=close)
    torch.testing.assert_close(lse.transpose(1, 2), want_lse, rtol=1e-5, atol=1e-5)
    into = torch.empty_like(out)
    assert f3.flash_attn_combine(outs, lses, into)[0] is into
    assert torch.equal(into, out)


@pytest.mark.parametrize("form", ["func", "varlen", "cache", "qv", "private", "combine"])
def test_compiles(form: str) -> None:
    """One graph without a break, of the same bits."""
    torch._dynamo.reset()
    cu, length = starts((10, 30)), torch.tensor([20], dtype=torch.int32)
    calls = {
        "func": lambda q, k, v: f3.flash_attn_func(q, k, v, causal=True, return_attn_probs=True),
        "varlen": lambda q, k, v: f3.flash_attn_varlen_func(q[0], k[0], v[0], cu, cu, 30, 30)[None],
        "cache": lambda q, k, v: f3.flash_attn_with_kvcache(q[:, :1], k, v, cache_seqlens=length)[None],
        "qv": lambda q, k, v: f3.flash_attn_func(q, k, v, qv=q, causal=True)[None],
        "private": lambda q, k, v: f3._flash_attn_forward(q, k, v, causal=True),
        "combine": lambda q, k, v: f3.flash_attn_combine(torch.stack([q, k]), torch.ones(2, 1, 40, 2)),
    }
    arrays = [draw(1, 40, 2, 64, seed=i) for i in range(3)]
    compiled = torch.compile(calls[form], fullgraph=True, backend="aot_eager")(*arrays)
    for got, want in zip(compiled, calls[form](*arrays), strict=True):
        assert torch.equal(got, want)


X = torch.ones(1, 16, 2, 64, dtype=torch.float16)
CACHE = (X, X, X)
plain, cached = f3.flash_attn_func, f3.flash_attn_with_kvcache
REFUSED: dict[str, tuple[Any, tuple[Any, ...], dict[str, Any], type[Exception], str]] = {
    "chunk": (plain, CACHE, {"attention_chunk": 8}, UnsupportedError, "attention_chunk: got 8,"),
    "chunk_cache": (cached, CACHE, {"attention_chunk": 8}, UnsupportedError, "attention_ch"),
    "new_lengths": (
        cached, CACHE, {"k": X, "v": X, "cu_seqlens_k_new": X}, UnsupportedError,
        r"cu_seqlens_k_new: got a tensor with k, expected None: .*pyfa_rocm\.torch\.flash_attn_kv_append",
    ),
    "rotary": (
        cached, CACHE, {"k": X, "v": X, "rotary_seqlens": X}, UnsupportedError, "rotary_seqlens: .* with k"
    ),
    "qv_new": (cached, CACHE, {"k": X, "v": X, "qv": X}, UnsupportedError, "qv: got a tensor with k"),
    "packed_new": (
        cached, (X[0], X, X), {"k": X, "v": X, "cu_seqlens_q": X}, UnsupportedError, "cu_seqlens_q: .* with k"
    ),
    "q_8": (cached, (X.to(getattr(torch, fp8())), X, X), {}, InvalidArgumentError, "q: got .*of k_cache"),
    "qv": (plain, CACHE, {"qv": X[..., :8]}, InvalidArgumentError, r"qv: got shape \(1, 16, 2, 8"),
    "qkv": (f3.flash_attn_qkvpacked_func, (X,), {}, InvalidArgumentError, "qkv: got shape .* num_heads_q"),
    "numpy": (plain, (np.ones(3), X, X), {}, TypeError, r"q: got ndarray, expected a torch"),
    "beta": (private._flash_attn_forward, (X, X, X, 0.125, True), {}, TypeError, "k_new: got float, exp"),
    "used": (
        private._flash_attn_backward, (X, X, X, X, X, X), {"sequed_q": X}, UnsupportedError, "sequed_q: got"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("call", "given", "options", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(
    call: Any, given: tuple[Any, ...], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(*given, **options)


@pytest.fixture
def installed() -> Iterator[None]:
    flash_attn.install(flash_attn_3=True)
    yield
    flash_attn.uninstall()


def test_install(installed: None) -> None:
    for name in ("flash_attn_interface", "flash_attn_3", "flash_attn_3.flash_attn_interface"):
        assert importlib.import_module(name) is flash_attn_3
    assert importlib.metadata.version("flash_attn_3") == flash_attn_3.__version__ == "3.0.0"
    assert importlib.metadata.packages_distributions()["flash_attn_interface"] == ["flash-attn-3"]
    assert importlib.import_module("flash_attn") is flash_attn
    message = (
        r"flash_attn_kvpacked_func: not part of .*in flash-attention 3's place .*has flash_attn_combine, "
    )
    with pytest.raises(ImportError, match=message):
        exec("from flash_attn_interface import flash_attn_kvpacked_func", {})
    with pytest.raises(ImportError, match=r"flash_attn_interface\._C: not part of "):
        importlib.import_module("flash_attn_3._C")
    with pytest.raises(AttributeError, match=message):
        f3.flash_attn_kvpacked_func  # noqa: B018
    flash_attn.uninstall()
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("flash_attn_interface")
