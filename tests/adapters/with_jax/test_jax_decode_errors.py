# SPDX-License-Identifier: MIT OR Apache-2.0
"""pyfa_rocm.jax over KV caches: what it refuses, and that a refused call stores nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from adapters.with_jax import jax_cases  # noqa: F401  # isort: skip  # before jax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from adapters.with_jax.jax_cached import Cached, new_tokens, rotary

from pyfa_rocm import InvalidArgumentError, UnsupportedError
from pyfa_rocm.jax import flash_attn_kv_append, flash_attn_varlen_func, flash_attn_with_kvcache

BASE = Cached()


def test_derivatives_are_refused() -> None:
    arrays = BASE.arguments()
    q = arrays.pop("q").astype(jnp.float32)

    def loss(q: Any) -> Any:
        return flash_attn_with_kvcache(q.astype(jnp.bfloat16), **arrays).astype(jnp.float32).sum()

    for derivative in (jax.grad(loss), partial(jax.jvp, loss, (q,))):
        with pytest.raises(NotImplementedError, match=r"over a KV cache.*have no derivatives"):
            derivative((q,) if isinstance(derivative, partial) else q)


def zeros(*shape: int, dtype: Any = jnp.bfloat16) -> Any:
    return jnp.zeros(shape, dtype)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"q": zeros(2, 4, 64)}, r"q: got shape \(2, 4, 64\), expected \(batch, seqlen_q"),
    ({"k_cache": zeros(9, 16, 64)}, r"k_cache: got shape \(9, 16, 64\), expected 4 dimensions"),
    ({"v_cache": zeros(9, 8, 2, 64)}, r"v_cache: got shape \(9, 8, 2, 64\), expected \(9, 16, 2, 64\)"),
    ({"k_cache": zeros(9, 16, 2, 32)}, r"k_cache: got shape .*expected \(9, 16, 2, 64\) to fit q"),
    ({"v_cache": zeros(9, 16, 2, 64, dtype=jnp.float16)}, "v_cache: got dtype float16, expected bfloat16"),
    ({"block_table": zeros(3, 4, dtype=jnp.int32)}, r"block_table: got shape \(3, 4\), expected \(2, 4\)"),
    ({"block_table": zeros(2, 4, dtype=jnp.uint32)}, "block_table: got dtype uint32, expected int32"),
    ({"cache_seqlens": zeros(3, dtype=jnp.int32)}, r"cache_seqlens: got shape \(3,\), expected \(2,\)"),
    ({"cache_seqlens": -1}, "cache_seqlens: got -1, expected 0 or more"),
    ({"cache_batch_idx": zeros(2, dtype=jnp.int32)}, "cache_batch_idx: got an array, expected None"),
    ({"cache_leftpad": zeros(2)}, "cache_leftpad: got dtype bfloat16, expected int32"),
    ({"sinks": zeros(4)}, "sinks: got dtype bfloat16, expected float32"),
    ({"k": zeros(2, 1, 2, 64)}, "v: got None, expected both k and v"),
    ({"k": zeros(2, 1, 2, 32), "v": zeros(2, 1, 2, 64)}, r"k_cache: got shape .* expected \(9, 16, 2, 32\)"),
    ({"k": zeros(2, 1, 2, 64), "v": zeros(2, 1, 2, 64), "cache_seqlens": None}, "cache_seqlens: got None"),
    ({"rotary_cos": zeros(9, 16)}, "rotary_cos: got an array, expected None without k"),
    ({"k": zeros(2, 1, 2, 64), "v": zeros(2, 1, 2, 64), "rotary_cos": zeros(9, 16)}, "rotary_sin: got None"),
    ({"num_splits": -1}, "num_splits: got -1, expected 0 or more"),
    ({"num_splits": 129}, "num_splits = 129: expected 0 .* to 128"),
    ({"hdim_v": 64}, "v_cache: got an array, expected None with hdim_v"),
    ({"v_cache": None, "hdim_v": 65}, "hdim_v: got 65, expected 1 to 64"),
    ({"v_cache": None, "hdim_v": 0}, "hdim_v: got 0, expected 1 to 64"),
    ({"v_cache": None, "hdim_v": 64, "k_cache": zeros(9, 2, 8, 16, 8)}, "k_cache: .* expected 4 dim"),
    ({"window_size": 3}, "window_size: got 3, expected two integers"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=lambda x: x if isinstance(x, str) else "")
def test_wrong_arguments(wrong: dict[str, Any], message: str) -> None:
    arrays = {
        "q": zeros(2, 1, 4, 64),
        "k_cache": zeros(9, 16, 2, 64),
        "v_cache": zeros(9, 16, 2, 64),
        "block_table": zeros(2, 4, dtype=jnp.int32),
        "cache_seqlens": zeros(2, dtype=jnp.int32),
    }
    with pytest.raises(InvalidArgumentError, match=message):
        flash_attn_with_kvcache(**(arrays | wrong))


@pytest.mark.parametrize("donates", [False, True])
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"num_splits": 129}, "num_splits = 129"),
        ({"kernel": 99}, "kernel = 99"),
        ({"sinks": zeros(3, dtype=jnp.float32)}, r"sinks: got shape \(3,\)"),
    ],
    ids=["num_splits", "kernel", "sinks"],
)
def test_a_refused_call_stores_nothing(wrong: dict[str, Any], said: str, donates: bool) -> None:
    """The caches are as they were, also where the call would have taken their memory."""
    case = replace(BASE, room=1)
    arrays = case.arguments()
    caches = [arrays.pop("k_cache"), arrays.pop("v_cache")]
    before = [np.asarray(x).tobytes() for x in caches]

    def step(k_cache: Any, v_cache: Any) -> Any:
        return flash_attn_with_kvcache(
            k_cache=k_cache, v_cache=v_cache, **arrays, **new_tokens(case, 1), **rotary(case), **wrong
        )

    with pytest.raises((InvalidArgumentError, UnsupportedError), match=said):
        (jax.jit(step, donate_argnums=(0, 1)) if donates else step)(*caches)
    assert [np.asarray(x).tobytes() for x in caches] == before


def test_wrong_types() -> None:
    cache, q = zeros(2, 16, 2, 64), zeros(2, 1, 4, 64)
    with pytest.raises(TypeError, match="q: got list, expected a JAX or NumPy array"):
        flash_attn_with_kvcache([1.0], cache, cache)
    with pytest.raises(InvalidArgumentError, match="k: got None, expected k, v, k_cache and v_cache, or q"):
        flash_attn_kv_append(cache, cache, None, None)
    with pytest.raises(InvalidArgumentError, match="causal: got a traced value"):
        jax.jit(lambda causal: flash_attn_with_kvcache(q, cache, cache, causal=causal))(True)
    with pytest.raises(InvalidArgumentError, match="slots: got dtype int64, expected int32"):
        flash_attn_kv_append(cache, cache, *[zeros(2, 1, 2, 64)] * 2, slots=np.zeros((2, 1), np.int64))
    starts = np.array([0, 1, 2], np.int32)
    with pytest.raises(UnsupportedError, match="top_left: got a value with block_table"):
        flash_attn_varlen_func(
            q[:, 0], cache, cache, starts, starts, 1, 1, top_left=True, block_table=np.zeros((2, 1), np.int32)
        )


@pytest.mark.parametrize("causal", [False, True])
def test_a_length_that_leads_beyond_the_tables_of_rotary(causal: bool) -> None:
    """An integer is compared with them; queries at their own places count too."""
    cache, new, q, table = zeros(2, 32, 2, 64), zeros(2, 1, 2, 64), zeros(2, 3, 4, 64), zeros(20, 16)
    last = 17 if causal else 19

    def step(length: int) -> Any:
        return flash_attn_with_kvcache(
            q, cache, cache + 0, new, new, table, table, cache_seqlens=length, causal=causal
        )

    assert len(step(last)) == 3
    with pytest.raises(InvalidArgumentError, match="rotary_cos: got 20 positions, expected 21 or more"):
        step(last + 1)
