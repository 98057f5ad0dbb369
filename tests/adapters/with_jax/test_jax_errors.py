# SPDX-License-Identifier: MIT OR Apache-2.0
"""pyfa_rocm.jax: what makes no sense is refused, while tracing where shapes tell it."""

from __future__ import annotations

from functools import partial
from typing import Any

from adapters.with_jax import jax_cases  # noqa: F401  # isort: skip  # before jax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from built import fp8, other_fp8, this_arch

from pyfa_rocm import InvalidArgumentError, UnsupportedError
from pyfa_rocm.jax import flash_attn_func, flash_attn_varlen_func

B, SQ, SK, H, HK, D = 2, 40, 50, 4, 2, 64


def zeros(*shape: int, dtype: Any = jnp.bfloat16) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))


Q, K, V = zeros(B, SQ, H, D), zeros(B, SK, HK, D), zeros(B, SK, HK, D)
Q_, K_ = jnp.zeros(Q.shape, Q.dtype), jnp.zeros(K.shape, K.dtype)
PACKED = {
    "q": zeros(SQ, H, D),
    "k": zeros(SK, HK, D),
    "v": zeros(SK, HK, D),
    "cu_seqlens_q": zeros(B + 1, dtype=jnp.int32),
    "cu_seqlens_k": zeros(B + 1, dtype=jnp.int32),
}

WRONG_ARRAYS: list[tuple[dict[str, Any], str]] = [
    ({"q": zeros(B, SQ, H)}, r"q: got shape \(2, 40, 4\), expected 4 dimensions \(batch, seqlen"),
    ({"q": zeros(3, SQ, H, D)}, r"k: got shape \(2, 50, 2, 64\), expected \(3, 50, 2, 64\) to fit q"),
    ({"k": zeros(B, SK, HK, 32)}, r"k: got shape \(2, 50, 2, 32\), expected \(2, 50, 2, 64\) to fit q"),
    ({"v": zeros(B, SQ, HK, D)}, r"v: got shape \(2, 40, 2, 64\), expected \(2, 50, 2, 64\) to fit k"),
    ({"k": zeros(B, SK, HK, D, dtype=jnp.float16)}, "k: got dtype float16, expected bfloat16 as q"),
    ({"bias": zeros(B, H, SQ, SQ)}, r"bias: got shape \(2, 4, 40, 40\), expected \(2, 4, 40, 50\), or 1"),
    ({"bias": zeros(B, H, SQ, SK, dtype=jnp.float32)}, "bias: got dtype float32, expected bfloat16 as q"),
    ({"alibi_slopes": zeros(3, dtype=jnp.float32)}, r"slopes: got shape \(3,\), expected \(4,\) or \(2, 4\)"),
    ({"alibi_slopes": zeros(H)}, "alibi_slopes: got dtype bfloat16, expected float32"),
]
WRONG_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"dropout_p": 1.0, "philox": (1, 2)}, "dropout_p: got 1.0, expected from 0 to below 1"),
    ({"dropout_p": 0.5}, "philox: got None, expected .*philox_of_key"),
    ({"dropout_p": 0.5, "philox": (1, -2)}, r"philox: got \(1, -2\), expected \(seed, offset\)"),
    ({"dropout_p": 0.5, "philox": np.zeros(2, np.uint32)}, r"got uint32 \(2,\), expected uint32 \(4,\)"),
    ({"window_size": 3}, "window_size: got 3, expected two integers"),
    ({"softcap": -1.0}, "softcap: got -1.0, expected 0"),
    ({"softmax_scale": "large"}, "softmax_scale: got 'large', expected a number"),
    ({"kernel": -1}, "kernel: got -1, expected 0 or more"),
    ({"q_descale": 2.0}, "q_descale: got a scale for bfloat16, expected None"),
    ({"out_dtype": "int8"}, "out_dtype: got 'int8', expected one of float16"),
]


@pytest.mark.parametrize(("wrong", "message"), WRONG_ARRAYS, ids=lambda x: x if isinstance(x, str) else "")
def test_arrays(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        jax.jit(flash_attn_func).trace(**({"q": Q, "k": K, "v": V} | wrong))


@pytest.mark.parametrize(("wrong", "message"), WRONG_OPTIONS, ids=lambda x: x if isinstance(x, str) else "")
def test_options(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        jax.eval_shape(partial(flash_attn_func, **wrong), Q, K, V)


@pytest.mark.parametrize(
    "name", ["dropout_p", "softmax_scale", "causal", "softcap", "deterministic", "kernel", "return_lse"]
)
def test_traced_options(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{name}: got a traced value, expected a Python value"):
        jax.jit(lambda x: flash_attn_func(Q_, K_, K_, **{name: x})).trace(1)


def test_unsupported() -> None:
    with pytest.raises(UnsupportedError, match="return_attn_probs: got True, expected False"):
        flash_attn_func(Q_, K_, K_, return_attn_probs=True)
    with pytest.raises(UnsupportedError, match="q: got dtype int32, expected one of float16"):
        flash_attn_func(*(x.astype(jnp.int32) for x in (Q_, K_, K_)))
    with pytest.raises(TypeError, match="k: got list, expected a JAX or NumPy array"):
        flash_attn_func(Q_, [1, 2], K_)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"q": Q}, r"q: got shape \(2, 40, 4, 64\), expected 3 dimensions \(total, nhead, hdim\)"),
        ({"cu_seqlens_k": zeros(B, dtype=jnp.int32)}, r"cu_seqlens_k: got shape \(2,\), expected \(3,\)"),
        ({"cu_seqlens_q": zeros(B + 1, dtype=jnp.float32)}, "_q: got dtype float32, expected int32"),
        ({"seqused_q": zeros(B + 1, dtype=jnp.int32)}, r"seqused_q: got shape \(3,\), expected \(2,\)"),
        ({"cu_seqlens_q": None}, "cu_seqlens_q: got None, expected an int32 array"),
        ({"bias": zeros(H, SQ, SQ)}, r"bias: got shape \(4, 40, 40\), expected \(4, 40, 50\), or 1"),
    ],
)
def test_varlen(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        jax.jit(partial(flash_attn_varlen_func, max_seqlen_q=SQ, max_seqlen_k=SK)).trace(**(PACKED | wrong))


def test_64_bits_are_not_cut_off() -> None:
    """JAX would make int32 of int64 without a word."""
    arrays: dict[str, Any] = {name: np.zeros(x.shape, x.dtype) for name, x in PACKED.items()}
    arrays["cu_seqlens_q"] = arrays["cu_seqlens_q"].astype(np.int64)
    with pytest.raises(InvalidArgumentError, match="cu_seqlens_q: got dtype int64, expected int32"):
        flash_attn_varlen_func(**arrays, max_seqlen_q=SQ, max_seqlen_k=SK)


def test_the_librarys_own() -> None:
    """Errors that only the library can find come when the call runs, with its status and message."""
    for compiled in (flash_attn_func, jax.jit(flash_attn_func)):
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"INVALID_ARGUMENT: nhead_q = 4: .*nhead_k"):
            compiled(Q_, *(x[:, :, :1].repeat(3, axis=2) for x in (K_, K_))).block_until_ready()
    with pytest.raises(jax.errors.JaxRuntimeError, match="UNIMPLEMENTED: kernel = 99"):
        flash_attn_func(Q_, K_, K_, kernel=99).block_until_ready()


def test_the_other_fp8() -> None:
    """Its bytes are other numbers on this device."""
    q = jnp.zeros((1, 16, 1, 128), getattr(jnp, other_fp8()))
    said = f"UNIMPLEMENTED: dtype = fp8.* is {other_fp8()}, and {this_arch()} has fp8.*, {fp8()}"
    with pytest.raises(jax.errors.JaxRuntimeError, match=said):
        flash_attn_func(q, q, q).block_until_ready()
