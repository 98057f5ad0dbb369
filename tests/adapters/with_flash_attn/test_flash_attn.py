# SPDX-License-Identifier: MIT OR Apache-2.0
"""The drop-in for flash-attn: its signatures, its results against float64, its names in `import`."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import itertools
import sys
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import reference
import torch
from cases_judge import judge

import pyfa_rocm
from pyfa_rocm import flash_attn
from pyfa_rocm.flash_attn import bert_padding, flash_attn_interface

# Arguments and their defaults in flash-attn 2.8.3, written down from flash_attn/flash_attn_interface.py and
# flash_attn/bert_padding.py.
_OPTIONS = (
    "dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, "
    "deterministic=False, return_attn_probs=False"
)
_LENGTHS = "cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k"
SIGNATURES = {
    "flash_attn_func": f"q, k, v, {_OPTIONS}",
    "flash_attn_kvpacked_func": f"q, kv, {_OPTIONS}",
    "flash_attn_qkvpacked_func": f"qkv, {_OPTIONS}",
    "flash_attn_varlen_func": f"q, k, v, {_LENGTHS}, {_OPTIONS}, block_table=None",
    "flash_attn_varlen_kvpacked_func": f"q, kv, {_LENGTHS}, {_OPTIONS}",
    "flash_attn_varlen_qkvpacked_func": f"qkv, cu_seqlens, max_seqlen, {_OPTIONS}",
    "flash_attn_with_kvcache": (
        "q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None, "
        "cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, "
        "window_size=(-1, -1), softcap=0.0, rotary_interleaved=True, alibi_slopes=None, num_splits=0, "
        "return_softmax_lse=False"
    ),
    "bert_padding.index_first_axis": "input, indices",
    "bert_padding.index_put_first_axis": "values, indices, first_axis_dim",
    "bert_padding.index_first_axis_residual": "input, indices",
    "bert_padding.unpad_input": "hidden_states, attention_mask, unused_mask=None",
    "bert_padding.unpad_input_for_concatenated_sequences": "hidden_states, attention_mask_in_length",
    "bert_padding.pad_input": "hidden_states, indices, batch, seqlen",
}
LENGTHS = (30, 0, 70)


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name: str) -> None:
    module = flash_attn if "." not in name else bert_padding
    function = getattr(module, name.rpartition(".")[2])
    plain = [
        x.replace(annotation=inspect.Parameter.empty) for x in inspect.signature(function).parameters.values()
    ]
    assert ", ".join(map(str, plain)) == SIGNATURES[name]
    assert all(x.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for x in plain)
    if "." not in name:
        assert getattr(flash_attn_interface, name) is function


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def check(out: torch.Tensor, inputs: Any, lse: torch.Tensor | None = None, **options: Any) -> None:
    """Compare with the float64 reference, within its derived tolerance."""
    hosts = [x.detach().float().numpy() for x in inputs]
    numerics = reference.numerics_of(str(out.dtype).removeprefix("torch."), arch="gfx942")
    want = reference.attention(*hosts, numerics=numerics, **options)
    judge(want, out.float().numpy(), None if lse is None else lse.numpy())


# Each feature, with a type and a head dim for which the kernel set `ci` has it.
OPTIONS: list[tuple[dict[str, Any], torch.dtype, int]] = [
    ({}, torch.float16, 64),
    ({"causal": True}, torch.float16, 64),
    ({"causal": True, "softmax_scale": 0.25}, torch.bfloat16, 64),
    ({"window_size": (20, 5)}, torch.bfloat16, 128),
    ({"causal": True, "softcap": 5.0}, torch.float16, 128),
    ({"softcap": -1.0}, torch.float16, 64),
]


@pytest.mark.parametrize(("options", "dtype", "hdim"), OPTIONS, ids=str)
def test_flash_attn_func(options: dict[str, Any], dtype: torch.dtype, hdim: int) -> None:
    shapes = ((60, 4), (90, 2), (90, 2))
    q, k, v = (draw(2, n, h, hdim, seed=i, dtype=dtype) for i, (n, h) in enumerate(shapes))
    out = flash_attn.flash_attn_func(q, k, v, **options)
    assert (out.shape, out.dtype) == (q.shape, dtype)
    check(out, (q, k, v), **options | {"softcap": max(options.get("softcap", 0.0), 0.0)})


def test_alibi() -> None:
    q, k, v = (draw(2, 60, 4, 128, seed=i, dtype=torch.bfloat16) for i in range(3))
    slopes = torch.tensor([0.5, 0.25, 0.125, 0.0625])
    out = flash_attn.flash_attn_func(q, k, v, causal=True, alibi_slopes=slopes)
    check(out, (q, k, v), causal=True, alibi_slopes=slopes.expand(2, 4).numpy())


@pytest.mark.parametrize("hdim", [60, 33])
def test_head_dims_that_are_no_multiple_of_8(hdim: int) -> None:
    """Padded with zeros, the scale being that of the true head dim, as flash-attn does."""
    q, k, v = (draw(1, 50, 2, hdim, seed=i) for i in range(3))
    out, lse, _ = flash_attn.flash_attn_func(q, k, v, return_attn_probs=True)
    assert out.shape == q.shape
    check(out, (q, k, v), lse, softmax_scale=hdim**-0.5)


def test_any_strides() -> None:
    """A last dimension that is not contiguous is copied; everything else is not."""
    q, k, v = (draw(1, 2, 50, 64, seed=i).transpose(1, 2) for i in range(3))
    scattered = draw(1, 50, 64, 2).transpose(2, 3)
    check(flash_attn.flash_attn_func(q, k, v), (q, k, v))
    check(flash_attn.flash_attn_func(scattered, k, v), (scattered, k, v))


def test_packed_forms() -> None:
    qkv = draw(2, 50, 3, 2, 64)
    q, k, v = qkv.unbind(2)
    check(flash_attn.flash_attn_qkvpacked_func(qkv, causal=True), (q, k, v), causal=True)
    out = flash_attn.flash_attn_kvpacked_func(q, qkv[:, :, 1:], window_size=(9, 3))
    check(out, (q, k, v), window_size=(9, 3))


def starts(lengths: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor((0, *np.cumsum(lengths)), dtype=torch.int32)


def test_varlen_forms() -> None:
    qkv, cu = draw(sum(LENGTHS), 3, 2, 64), starts(LENGTHS)
    q, k, v = qkv.unbind(1)
    longest = torch.tensor(max(LENGTHS))  # as a tensor of one number: some callers have no other
    results = [
        flash_attn.flash_attn_varlen_func(q, k, v, cu, cu, longest, longest, causal=True),
        flash_attn.flash_attn_varlen_qkvpacked_func(qkv, cu, max(LENGTHS), causal=True),
        flash_attn.flash_attn_varlen_kvpacked_func(q, qkv[:, 1:], cu, cu, 70, 70, causal=True),
    ]
    for out in results:
        assert out.shape == q.shape
        for begin, end in itertools.pairwise(cu):
            if end > begin:
                check(out[None, begin:end], [x[None, begin:end] for x in (q, k, v)], causal=True)


def test_probabilities() -> None:
    """The mask is None without dropout, else of flash-attn's size and type; its signs explain the output."""
    q, k, v = (draw(1, 60, 2, 64, seed=i) for i in range(3))
    out, lse, s_dmask = flash_attn.flash_attn_func(q, k, v, return_attn_probs=True)
    assert (s_dmask.shape, s_dmask.dtype) == ((0,), q.dtype)
    check(out, (q, k, v), lse)
    q, k, v = (x.bfloat16() for x in (q, k, v))
    out, lse, s_dmask = flash_attn.flash_attn_func(q, k, v, 0.25, return_attn_probs=True)
    assert (s_dmask.shape, s_dmask.dtype, lse.shape) == ((1, 2, 128, 128), q.dtype, (1, 2, 60))
    assert not s_dmask[:, :, 60:].any()
    assert not s_dmask[:, :, :, 60:].any()
    probabilities = s_dmask[:, :, :60, :60].double()
    assert 0.2 < (probabilities < 0).double().mean() < 0.3
    want = torch.einsum("bhij,bjhd->bihd", probabilities.clamp(min=0) / 0.75, v.double())
    # Probabilities are rounded to bfloat16 on both sides, here and in the kernel, and its output is.
    terms = torch.einsum("bhij,bjhd->bihd", probabilities.clamp(min=0) / 0.75, v.double().abs())
    assert ((out.double() - want).abs() <= 2**-9 * (2 * terms + want.abs())).all()
    cu = starts(LENGTHS)
    q, k, v = (draw(100, 2, 128, seed=i) for i in range(3))
    _, lse, s_dmask = flash_attn.flash_attn_varlen_func(
        q, k, v, cu, cu, 70, 70, dropout_p=0.25, return_attn_probs=True
    )
    assert (lse.shape, s_dmask.shape) == ((2, 100), (3, 2, 128, 128))


def test_dropout_follows_torchs_generator() -> None:
    q, k, v = (draw(1, 60, 2, 64, seed=i, dtype=torch.bfloat16) for i in range(3))

    def run() -> torch.Tensor:
        result: torch.Tensor = flash_attn.flash_attn_func(q, k, v, dropout_p=0.3)
        return result

    torch.manual_seed(5)
    first, second = run(), run()
    torch.manual_seed(5)
    assert torch.equal(run(), first)
    assert not torch.equal(first, second)


def test_what_is_missing_says_so() -> None:
    q = draw(1, 60, 2, 64)
    with pytest.raises(pyfa_rocm.UnsupportedError):
        flash_attn.flash_attn_func(q.double(), q.double(), q.double())


def test_unpad_and_pad() -> None:
    mask = torch.tensor([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1], [1, 0, 0, 0, 0]])
    x = draw(3, 5, 2, 4, dtype=torch.float64).requires_grad_()
    tokens, indices, cu, longest, used = bert_padding.unpad_input(x, mask)
    assert indices.tolist() == [0, 1, 2, 6, 7, 8, 9, 10]
    assert torch.equal(tokens, x.reshape(15, 2, 4)[indices])
    assert (cu.tolist(), cu.dtype, longest) == ([0, 3, 7, 8], torch.int32, 4)
    assert (used.tolist(), used.dtype) == ([3, 4, 1], torch.int32)
    back = bert_padding.pad_input(tokens, indices, 3, 5)
    assert torch.equal(back, x * mask[:, :, None, None])
    back.sum().backward()
    assert torch.equal(x.grad, torch.broadcast_to(mask[:, :, None, None], x.shape).double())


def test_unpad_with_unused() -> None:
    mask = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0]], dtype=torch.bool)
    unused = torch.tensor([[0, 0, 1, 0], [0, 1, 1, 0]], dtype=torch.bool)
    tokens, indices, cu, longest, used = bert_padding.unpad_input(draw(2, 4, 3), mask, unused)
    assert (tokens.shape, indices.tolist()) == ((6, 3), [0, 1, 2, 4, 5, 6])
    assert (cu.tolist(), longest, used.tolist()) == ([0, 3, 6], 3, [2, 1])


def test_unpad_concatenated_sequences() -> None:
    lengths = torch.tensor([[2, 3, 0, 0, 0, 0], [3, 2, 0, 0, 0, 0], [6, 0, 0, 0, 0, 0]])
    x = draw(3, 6, 4)
    tokens, indices, cu, longest = bert_padding.unpad_input_for_concatenated_sequences(x, lengths)
    assert indices.tolist() == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17]
    assert torch.equal(tokens, x.flatten(0, 1)[indices])
    assert (cu.tolist(), longest) == ([0, 2, 5, 8, 10, 16], 6)


def test_rows_and_their_gradients() -> None:
    x = draw(5, 3, dtype=torch.float64).requires_grad_()
    rows, whole = bert_padding.index_first_axis_residual(x, torch.tensor([1, 3]))
    (rows.sum() + 2 * whole.sum()).backward()
    assert torch.equal(x.grad[:, 0], torch.tensor([2.0, 3, 2, 3, 2]).double())
    put = bert_padding.index_put_first_axis(rows, torch.tensor([4, 0]), 6)
    assert torch.equal(put[[4, 0]], rows)
    assert not put[[1, 2, 3, 5]].any()


@pytest.fixture
def installed() -> Iterator[None]:
    flash_attn.install()
    yield
    flash_attn.uninstall()


def test_install(installed: None) -> None:
    flash_attn.install()
    module = importlib.import_module("flash_attn")
    assert module is flash_attn
    assert module.__version__ == importlib.metadata.version("flash-attn") == "2.8.3"
    assert importlib.metadata.version("flash_attn") == "2.8.3"
    assert importlib.import_module("flash_attn.bert_padding").unpad_input is bert_padding.unpad_input
    assert importlib.import_module("flash_attn.flash_attn_interface") is flash_attn_interface
    assert importlib.util.find_spec("flash_attn") is not None
    assert importlib.metadata.packages_distributions()["flash_attn"] == ["flash-attn"]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("flash_attn.layers.patch_embed")
    rotary = importlib.import_module("flash_attn.layers.rotary")
    assert rotary is importlib.import_module("pyfa_rocm.flash_attn.layers.rotary")
    for name in ("losses.cross_entropy", "ops.triton.cross_entropy", "ops.triton.rotary"):
        module = importlib.import_module(f"flash_attn.{name}")
        assert module is importlib.import_module(f"pyfa_rocm.flash_attn.{name}")
    assert sum(type(finder).__module__ == "pyfa_rocm.flash_attn._install" for finder in sys.meta_path) == 1


def test_uninstall(installed: None) -> None:
    for _ in range(2):
        flash_attn.uninstall()
        assert not [name for name in sys.modules if name.partition(".")[0] == "flash_attn"]
        assert importlib.util.find_spec("flash_attn") is None
        with pytest.raises(importlib.metadata.PackageNotFoundError):
            importlib.metadata.version("flash-attn")


def test_transformers_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """transformers finds it even if it has looked before, and found nothing."""
    utils = importlib.import_module("transformers.utils.import_utils")
    monkeypatch.setattr(utils, "is_torch_cuda_available", lambda: True)  # as with torch for ROCm on a card
    for forget in ("is_flash_attn_2_available", "is_flash_attn_4_available"):
        getattr(utils, forget).cache_clear()
    assert not utils.is_flash_attn_2_available()
    flash_attn.install()
    try:
        assert utils.is_flash_attn_2_available()
        assert not utils.is_flash_attn_4_available()
    finally:
        flash_attn.uninstall()
    assert not utils.is_flash_attn_2_available()


def test_refuses_beside_the_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    other = types.ModuleType("flash_attn")
    monkeypatch.setitem(sys.modules, "flash_attn", other)
    with pytest.raises(RuntimeError, match=r"flash_attn: got one already imported .* before"):
        flash_attn.install()
    flash_attn.uninstall()
    assert sys.modules["flash_attn"] is other
