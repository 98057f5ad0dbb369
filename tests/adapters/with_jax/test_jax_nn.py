# SPDX-License-Identifier: MIT OR Apache-2.0
"""pyfa_rocm.jax.dot_product_attention against jax.nn's, in float32 and float64."""

from __future__ import annotations

import doctest
import importlib
import inspect
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyfa_rocm import InvalidArgumentError, UnsupportedError
from pyfa_rocm.jax import dot_product_attention

# Twice the roundings of the probabilities and of the output: to half the distance to the next number.
ROUNDING = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-22}


def draw(*shape: int, seed: int, dtype: Any = np.float16) -> Any:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def visible(shape: tuple[int, ...], named: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Return the rows that see a key: jax.nn gives an average for the others."""
    t, s = shape[2:]
    i, j = np.arange(t)[:, None], np.arange(s)[None]
    seen = np.ones(shape, np.bool_)
    if named.get("mask") is not None:
        seen &= np.asarray(named["mask"])
    if named.get("is_causal"):
        seen &= j <= i
    if (window := named.get("local_window_size")) is not None:
        left, right = (window, window) if isinstance(window, int) else window
        seen &= (j >= i - left) & (j <= i + right)
    for name, at in (("query_seq_lengths", i), ("key_value_seq_lengths", j)):
        if named.get(name) is not None:
            seen &= at < np.asarray(named[name])[:, None, None, None]
    return np.asarray(np.max(seen, axis=-1).swapaxes(1, 2))


def check(q: Any, k: Any, v: Any, **named: Any) -> None:
    got, lse = dot_product_attention(q, k, v, **named, return_residual=True)
    assert got.dtype == q.dtype
    assert got.shape == q.shape
    assert lse.shape == q.shape[:-1]
    assert (dot_product_attention(q, k, v, **named) == got).all()
    wide = [jnp.asarray(x, jnp.float32) for x in (q, k, v)]
    with jax.default_matmul_precision("highest"):
        want = np.asarray(jax.nn.dot_product_attention(*wide, **named))
        terms = np.asarray(jax.nn.dot_product_attention(*wide[:2], abs(wide[2]), **named))
    b = q.shape[0] if q.ndim == 4 else 1
    rows = visible((b, q.shape[-2], q.shape[-3], k.shape[-3]), named).reshape(q.shape[:-1])
    unit = 2 * ROUNDING[str(q.dtype)]
    error = np.abs(np.asarray(got, np.float32) - want)
    assert (error[rows] <= (unit * (2 * terms + np.abs(want)) + 2e-6)[rows]).all()
    assert not np.asarray(got, np.float32)[~rows].any()
    assert np.isneginf(np.asarray(lse, np.float32)[~rows]).all()
    check_lse(lse, rows, wide, named, unit)


def check_lse(lse: Any, rows: Any, wide: list[Any], named: dict[str, Any], unit: float) -> None:
    try:
        with jax.default_matmul_precision("highest"):
            theirs = jax.nn.dot_product_attention(*wide, **named, return_residual=True)[1]
    except TypeError:  # of JAX before it had that
        return
    got, want = (np.asarray(x, np.float32)[rows] for x in (lse, theirs))
    assert (np.abs(got - want) <= unit * np.abs(want) + 2e-5).all()


@dataclass(frozen=True)
class Case:
    """A problem by its shapes."""

    batch: int
    heads: tuple[int, int]
    seqlens: tuple[int, int]
    hdim: int
    bias: tuple[bool, ...] | None
    mask: tuple[bool, ...] | None
    is_causal: bool
    window: Any
    lengths: tuple[bool, bool]
    scale: float | None
    seed: int

    def run(self) -> None:
        (n, n_k), (t, s) = self.heads, self.seqlens
        q = draw(self.batch, t, n, self.hdim, seed=self.seed)
        k, v = (draw(self.batch, s, n_k, self.hdim, seed=self.seed + i) for i in (1, 2))
        scores = (self.batch, n, t, s)
        random = np.random.default_rng(self.seed)
        named: dict[str, Any] = {"is_causal": self.is_causal, "scale": self.scale}
        named["local_window_size"] = self.window
        if self.bias is not None:
            named["bias"] = draw(*_sizes(scores, self.bias), seed=self.seed + 3)
        if self.mask is not None:
            named["mask"] = jnp.asarray(random.random(_sizes(scores, self.mask)) > 0.3)
        names = ("query_seq_lengths", "key_value_seq_lengths")
        for name, most, given_ in zip(names, self.seqlens, self.lengths, strict=True):
            if given_:
                named[name] = jnp.asarray(random.integers(0, most + 1, self.batch), jnp.int32)
        check(q, k, v, **named)


def _sizes(scores: tuple[int, ...], full: tuple[bool, ...]) -> tuple[int, ...]:
    return tuple(n if one else 1 for n, one in zip(scores, full, strict=True))


_which = st.none() | st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans())


@settings(max_examples=10)
@given(
    case=st.builds(
        Case,
        batch=st.integers(1, 3),
        heads=st.sampled_from(((1, 1), (4, 2), (3, 3), (4, 1))),
        seqlens=st.tuples(st.integers(1, 90), st.integers(1, 90)),
        hdim=st.sampled_from((64, 128, 40, 33)),
        bias=_which,
        mask=_which,
        is_causal=st.booleans(),
        window=st.none() | st.integers(0, 40) | st.tuples(st.integers(0, 40), st.integers(0, 40)),
        lengths=st.tuples(st.booleans(), st.booleans()),
        scale=st.none() | st.sampled_from((0.3, -0.1, 0.0)),
        seed=st.integers(0, 2**20),
    )
)
def test_random(case: Case) -> None:
    case.run()


def test_example_in_the_docstring() -> None:
    failed, attempted = doctest.testmod(importlib.import_module("pyfa_rocm.jax.nn"))
    assert attempted
    assert not failed


def test_signature() -> None:
    """jax.nn's, as far as the installed JAX has it."""
    ours = inspect.signature(dot_product_attention).parameters
    for name, theirs in inspect.signature(jax.nn.dot_product_attention).parameters.items():
        assert (ours[name].kind, ours[name].default) == (theirs.kind, theirs.default)
    assert list(ours)[:3] == ["query", "key", "value"]


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_dtypes(dtype: Any) -> None:
    q, k, v = (draw(2, 50, 2, 128, seed=i, dtype=dtype) for i in range(3))
    check(q, k, v, is_causal=True)


def test_float64_agrees() -> None:
    """The reference itself, in double precision."""
    q, k, v = (draw(2, 50, 2, 64, seed=i) for i in range(3))
    got = np.asarray(dot_product_attention(q, k, v, is_causal=True), np.float64)
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    scores = np.einsum("btnh,bsnh->bnts", q, k) / 8
    scores[:, :, ~np.tri(50, dtype=np.bool_)] = -np.inf
    p = np.exp(scores - scores.max(-1, keepdims=True))
    want = np.einsum("bnts,bsnh->btnh", p / p.sum(-1, keepdims=True), v)
    terms = np.einsum("bnts,bsnh->btnh", p / p.sum(-1, keepdims=True), abs(v))
    assert (abs(got - want) <= 2**-10 * (2 * terms + abs(want))).all()


@pytest.mark.parametrize("lengths", [False, True])
def test_windows_wider_than_all_keys(lengths: bool) -> None:
    """They hide keys yet, of rows that lie further beyond them."""
    q, k, v = draw(2, 51, 1, 64, seed=0), draw(2, 2, 1, 64, seed=1), draw(2, 2, 1, 64, seed=2)
    named = {"key_value_seq_lengths": jnp.array([2, 1], jnp.int32)} if lengths else {}
    for window in (10, (2, 0), (50, 3), (49, 0)):
        check(q, k, v, local_window_size=window, **named)


def test_without_batch() -> None:
    q, k, v = (draw(50, 2, 64, seed=i) for i in range(3))
    check(q, k, v, is_causal=True)
    check(q, k, v, bias=draw(2, 50, 50, seed=3))


def test_transformations() -> None:
    """Runs under jit with traced lengths, and under vmap."""
    q, k, v = (draw(2, 50, 2, 64, seed=i) for i in range(3))
    lengths = jnp.array([50, 20], jnp.int32)

    def attend(q: Any, k: Any, v: Any, used: Any) -> Any:
        return dot_product_attention(q, k, v, key_value_seq_lengths=used, is_causal=True)

    want = attend(q, k, v, lengths)
    assert (jax.jit(attend)(q, k, v, lengths) == want).all()
    each = jax.vmap(lambda q, k, v: dot_product_attention(q, k, v, is_causal=True))(q, k, v)
    assert (each == dot_product_attention(q, k, v, is_causal=True)).all()


Q = draw(2, 50, 2, 64, seed=0)
BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "list": ({"query": [1.0]}, TypeError, "query: got list, expected a JAX or NumPy array"),
    "dims": ({"key": Q[0, 0]}, InvalidArgumentError, r"key: got shape \(2, 64\), expected \(batch, seqlen"),
    "value": ({"value": Q[:, 1:]}, InvalidArgumentError, r"value: got shape \(2, 49, 2, 64\), .* as key"),
    "mask": ({"mask": jnp.ones((3, 50), bool)}, InvalidArgumentError, r"mask: got shape \(1, 1, 3, 50\)"),
    "mask_dtype": ({"mask": jnp.ones((50, 50))}, InvalidArgumentError, "mask: got dtype float32, expected"),
    "bias": ({"bias": jnp.ones((50, 49))}, InvalidArgumentError, r"bias: got shape .* \(2, 2, 50, 50\)"),
    "lengths": (
        {"query_seq_lengths": jnp.ones(3, jnp.int32)},
        InvalidArgumentError,
        r"query_seq_lengths: got int32 \(3,\), expected int32 \(2,\)",
    ),
    "window": ({"local_window_size": (-1, 2)}, InvalidArgumentError, r"local_window_size: got \(-1, 2\)"),
    "scale": ({"scale": "1"}, InvalidArgumentError, "scale: got '1', expected a number"),
    "other": ({"implementation": "cudnn"}, UnsupportedError, "implementation: got 'cudnn', expected None"),
}


@pytest.mark.parametrize(("change", "error", "message"), BAD.values(), ids=BAD)
def test_bad_argument(change: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        dot_product_attention(**{"query": Q, "key": Q, "value": Q} | change)
