# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lengths in NumPy arrays, which are known while JAX traces: what does not fit is refused."""

from __future__ import annotations

from typing import Any

from adapters.with_jax import jax_cases  # noqa: F401  # isort: skip
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pyfa_rocm import InvalidArgumentError
from pyfa_rocm.jax import flash_attn_kv_append, flash_attn_varlen_func, flash_attn_with_kvcache


def ints(*numbers: int) -> Any:
    return np.array(numbers, np.int32)


def ones(*shape: int) -> Any:
    return jnp.ones(shape, jnp.bfloat16)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cu_seqlens_q": ints(0, 30, 51)}, r"cu_seqlens_q: got 51 at 2, expected 30 to 50"),
        ({"cu_seqlens_k": ints(0, 60, 59)}, r"cu_seqlens_k: got 59 at 2, expected 60 to 61"),
        ({"max_seqlen_k": 59}, r"max_seqlen_k: got 59, expected 60 or more"),
        ({"seqused_k": ints(60, 2)}, r"seqused_k: got 2 at 1, expected 0 to 1"),
    ],
)
@pytest.mark.parametrize("traced", [False, True])
def test_packed(change: dict[str, Any], said: str, traced: bool) -> None:
    arrays = {
        "cu_seqlens_q": ints(0, 30, 50),
        "cu_seqlens_k": ints(0, 60, 61),
        "max_seqlen_q": 30,
        "max_seqlen_k": 60,
    } | change

    def call(q: Any, k: Any, v: Any) -> Any:
        return flash_attn_varlen_func(q, k, v, **arrays)

    with pytest.raises(InvalidArgumentError, match=said):
        (jax.jit(call) if traced else call)(ones(50, 2, 64), ones(61, 2, 64), ones(61, 2, 64))


@pytest.mark.parametrize(
    ("lengths", "new", "said"),
    [
        (ints(3, 65), 0, "cache_seqlens: got 65 at 1, expected at most 64: the cache has room for 64 tokens"),
        (ints(3, 63), 2, "cache_seqlens: got 63 at 1, expected at most 62"),
        (63, 2, "cache_seqlens: got 63, expected at most 62"),
    ],
)
def test_attention_over_a_cache(lengths: Any, new: int, said: str) -> None:
    tokens = {name: ones(2, new, 1, 64) for name in "kv"} if new else {}
    with pytest.raises(InvalidArgumentError, match=said):
        flash_attn_with_kvcache(
            ones(2, 1, 2, 64), ones(2, 64, 1, 64), ones(2, 64, 1, 64), **tokens, cache_seqlens=lengths
        )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cache_seqlens": ints(62, 63)}, r"cache_seqlens: got 63 at 1, expected at most 62"),
        ({"cu_seqlens": ints(0, 2, 5)}, r"cu_seqlens: got 5 at 2, expected 2 to 4"),
    ],
)
def test_appends(change: dict[str, Any], said: str) -> None:
    new = ones(4, 1, 64) if "cu_seqlens" in change else ones(2, 2, 1, 64)
    cache = ones(2, 64, 1, 64)
    with pytest.raises(InvalidArgumentError, match=said):
        flash_attn_kv_append(cache, cache, new, new, **{"cache_seqlens": ints(0, 0)} | change)
