# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lengths in torch CPU tensors, which the host knows: those that do not fit are refused before a write."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import pyfa_rocm.torch as fa
from pyfa_rocm import InvalidArgumentError


def ints(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def packed() -> dict[str, Any]:
    q, k, v = (torch.randn(n, 2, 64).bfloat16() for n in (50, 61, 61))
    return {
        "q": q,
        "k": k,
        "v": v,
        "cu_seqlens_q": ints(0, 30, 50),
        "cu_seqlens_k": ints(0, 60, 61),
        "max_seqlen_q": 30,
        "max_seqlen_k": 60,
    }


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"cu_seqlens_q": ints(0, 30, 51)}, r"cu_seqlens_q: got 51 at 2, expected 30 to 50"),
    ({"cu_seqlens_k": ints(0, 60, 59)}, r"cu_seqlens_k: got 59 at 2, expected 60 to 61"),
    ({"max_seqlen_k": 59}, r"max_seqlen_k: got 59, expected 60 or more"),
    ({"seqused_k": ints(60, 2)}, r"seqused_k: got 2 at 1, expected 0 to 1"),
]


@pytest.mark.parametrize(("change", "said"), WRONG, ids=["beyond", "descending", "bound", "used"])
def test_packed(change: dict[str, Any], said: str) -> None:
    out = torch.full((50, 2, 64), 7.0).bfloat16()
    with pytest.raises(InvalidArgumentError, match=said):
        fa.flash_attn_varlen_func(**packed() | change, out=out)
    assert bool((out == 7).all())


@pytest.mark.parametrize(("change", "said"), WRONG, ids=["beyond", "descending", "bound", "used"])
def test_packed_backward(change: dict[str, Any], said: str) -> None:
    arrays = packed()
    q, k, v = (arrays.pop(name) for name in "qkv")
    arrays = {"seqused_q": None, "seqused_k": None} | arrays | change
    lengths = ("cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k", "max_seqlen_q", "max_seqlen_k")
    operator = torch.ops.pyfa_rocm.fmha_varlen_bwd.default
    with pytest.raises(InvalidArgumentError, match=said):
        operator(q, q, k, v, q, torch.zeros(2, 50), **{name: arrays[name] for name in lengths})


def cache() -> dict[str, Any]:
    k_cache, v_cache = torch.zeros(2, 2, 64, 1, 64).bfloat16()
    return {"k_cache": k_cache, "v_cache": v_cache}


@pytest.mark.parametrize("new", [0, 2])
def test_attention_over_a_cache(new: int) -> None:
    """A length of which the new tokens would be past the cache's end: nothing is stored."""
    arrays = cache() | {"q": torch.ones(2, 1, 2, 64).bfloat16()}
    if new:
        arrays |= {name: torch.ones(2, new, 1, 64).bfloat16() for name in "kv"}
    said = rf"cache_seqlens: got {65 - new} at 1, expected at most {64 - new}: the cache has room for 64 "
    with torch.no_grad(), pytest.raises(InvalidArgumentError, match=said):
        fa.flash_attn_with_kvcache(**arrays, cache_seqlens=ints(3, 65 - new))
    assert not arrays["k_cache"].any()
    assert not arrays["v_cache"].any()
    with torch.no_grad():
        fa.flash_attn_with_kvcache(**arrays, cache_seqlens=ints(3, 64 - new))
    assert bool(arrays["k_cache"].any()) == bool(new)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cache_seqlens": ints(62, 63)}, r"cache_seqlens: got 63 at 1, expected at most 62"),
        ({"cache_seqlens": ints(-1, 0)}, r"cache_seqlens: got -1 at 0, expected 0 or more"),
        ({"cu_seqlens": ints(0, 2, 5)}, r"cu_seqlens: got 5 at 2, expected 2 to 4"),
    ],
)
def test_appends(change: dict[str, Any], said: str) -> None:
    shape = (4, 1, 64) if "cu_seqlens" in change else (2, 2, 1, 64)
    new = {name: torch.ones(shape).bfloat16() for name in "kv"}
    arrays = cache() | new | {"cache_seqlens": ints(0, 0)} | change
    with torch.no_grad(), pytest.raises(InvalidArgumentError, match=said):
        fa.flash_attn_kv_append(**arrays)
    assert not arrays["k_cache"].any()
