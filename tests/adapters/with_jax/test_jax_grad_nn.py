# SPDX-License-Identifier: MIT OR Apache-2.0
"""Gradients of pyfa_rocm.jax.dot_product_attention against jax.nn's in float32, and a training step."""

from __future__ import annotations

from functools import partial
from typing import Any

from adapters.with_jax import jax_gradients  # isort: skip  # before jax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pyfa_rocm.jax import dot_product_attention

Array = Any


def draw(*shape: int, seed: int, dtype: Any = jnp.float16) -> Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype)


def formula(q: Array, k: Array, v: Array, dout: Array, mask: Any, scale: float) -> tuple[Array, ...]:
    """The gradients of one head in float64, and for each the bound of a kernel's error.

    P, dS, O and what is stored are rounded to 16 bits; the terms of a sum of n are each off by half an ulp of
    themselves, and float32's part in it is nothing beside that.
    """
    scores = np.where(mask, scale * q @ k.T, -np.inf)
    with np.errstate(invalid="ignore"):
        p = np.nan_to_num(np.exp(scores - scores.max(axis=1, keepdims=True)))
        p = np.nan_to_num(p / p.sum(axis=1, keepdims=True))
    o, dp = p @ v, dout @ v.T
    d = (dout * o).sum(axis=1, keepdims=True)
    ds = p * (dp - d)
    # dS as rounded, with D's error, which is that of O.
    ds_error = UNIT * (abs(ds) + p * (abs(dout) * abs(o)).sum(axis=1, keepdims=True)) + 1e-5
    p_error = UNIT * p + 1e-6
    return (
        (scale * ds @ k, abs(scale) * ds_error @ abs(k)),
        (scale * ds.T @ q, abs(scale) * ds_error.T @ abs(q)),
        (p.T @ dout, p_error.T @ abs(dout)),
    )


# Half the distance from 1 to the next float16, and as much again for it to be rounded once more.
UNIT = 2.0**-10

LENGTHS = {"query_seq_lengths": [50, 7], "key_value_seq_lengths": [33, 60]}
FEATURES: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "window": {"local_window_size": (9, 4)},
    "one_side": {"local_window_size": 5, "is_causal": True},
    "scale": {"scale": 0.3},
    "negative_scale": {"scale": -0.1},
    "lengths": LENGTHS,
    "keys_only": {"key_value_seq_lengths": [60, 0], "is_causal": True},
}


def seen(t: int, s: int, named: dict[str, Any], b: int) -> Any:
    """Return the keys that each row sees."""
    i, j = np.arange(t)[:, None], np.arange(s)[None]
    mask = np.ones((t, s), np.bool_)
    if named.get("is_causal"):
        mask &= j <= i
    if (window := named.get("local_window_size")) is not None:
        left, right = (window, window) if isinstance(window, int) else window
        mask &= (j >= i - left) & (j <= i + right)
    for name, at in (("query_seq_lengths", i), ("key_value_seq_lengths", j)):
        if name in named:
            mask &= at < named[name][b]
    return mask


@pytest.mark.parametrize("hdim", [64, 33])
@pytest.mark.parametrize("named", FEATURES.values(), ids=FEATURES)
def test_against_float64(named: dict[str, Any], hdim: int) -> None:
    """Heads in groups; a head dim that is padded."""
    batch, t, s, n, n_k = 2, 50, 60, 4, 2
    q, k, v = (
        draw(batch, rows, heads, hdim, seed=i) for i, (rows, heads) in enumerate(((t, n), (s, n_k), (s, n_k)))
    )
    dout = draw(batch, t, n, hdim, seed=5)
    arrays = {name: jnp.asarray(x, jnp.int32) if name.endswith("lengths") else x for name, x in named.items()}
    _, pull = jax.vjp(partial(dot_product_attention, **arrays), q, k, v)
    found = pull(dout)
    wide = [np.asarray(x, np.float64) for x in (q, k, v, dout)]
    scale = named.get("scale", hdim**-0.5)
    want = [np.zeros((2, *x.shape)) for x in (q, k, v)]
    for b, h in np.ndindex(batch, n):
        at = [(b, slice(None), head) for head in (h, h // 2, h // 2)]
        one = [x[i] for x, i in zip((*wide[:3], wide[3]), (*at, at[0]), strict=True)]
        parts_of = formula(one[0], one[1], one[2], one[3], seen(t, s, named, b), scale)
        for total, i, parts in zip(want, at, parts_of, strict=True):
            for to, part in zip(total, parts, strict=True):
                to[i] += part
    for got, x, (value, bound) in zip(found, (q, k, v), want, strict=True):
        assert got.dtype == x.dtype
        assert (abs(np.asarray(got, np.float64) - value) <= bound + UNIT * abs(value) + 1e-6).all()


@pytest.mark.parametrize("name", ["plain", "causal", "window", "lengths"])
def test_against_jax_nn(name: str) -> None:
    """The gradients that jax.nn gives in float32, where all rows see a key."""
    named = {n: jnp.asarray(x, jnp.int32) if n.endswith("lengths") else x for n, x in FEATURES[name].items()}
    q, k, v = draw(2, 50, 4, 64, seed=1), draw(2, 60, 2, 64, seed=2), draw(2, 60, 2, 64, seed=3)
    dout = np.array(draw(2, 50, 4, 64, seed=4))
    if name == "lengths":
        dout[1, 7:] = 0  # of rows that are not used, of which jax.nn averages all values
    found = jax.vjp(partial(dot_product_attention, **named), q, k, v)[1](jnp.asarray(dout))
    wide = [x.astype(jnp.float32) for x in (q, k, v)]
    with jax.default_matmul_precision("highest"):
        want = jax.vjp(partial(jax.nn.dot_product_attention, **named), *wide)[1](dout.astype(np.float32))
    for got, expected in zip(found, want, strict=True):
        assert abs(got.astype(np.float32) - expected).max() <= 4 * UNIT * abs(expected).max()


def test_residual_and_no_batch() -> None:
    """The residual's gradient is in query's dtype, as it is itself."""
    q, k, v = (draw(50, 2, 56, seed=i) for i in range(3))

    def loss(function: Any, *xs: Any) -> Any:
        out, lse = function(*xs, return_residual=True)
        return (out.astype(jnp.float32) ** 2).sum() + lse.astype(jnp.float32).sum()

    got = jax.jit(jax.grad(partial(loss, dot_product_attention), (0, 1, 2)))(q, k, v)

    def standard(q: Any, k: Any, v: Any, return_residual: bool) -> Any:
        assert return_residual
        scores = jnp.einsum("qhd,khd->hqk", q, k) * 56**-0.5
        lse = jax.nn.logsumexp(scores, axis=-1)
        return jnp.einsum("hqk,khd->qhd", jnp.exp(scores - lse[..., None]), v), lse.T

    with jax.default_matmul_precision("highest"):
        wide = (x.astype(jnp.float32) for x in (q, k, v))
        want = jax.grad(partial(loss, standard), (0, 1, 2))(*wide)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == jnp.float16
        assert abs(a.astype(np.float32) - b).max() <= 4 * UNIT * max(1.0, abs(b).max())


def test_mapped() -> None:
    q, k, v = (draw(3, 40, 2, 64, seed=i) for i in range(3))
    lengths = jnp.array([[40], [7], [0]], jnp.int32)

    def loss(q: Any, k: Any, v: Any, used: Any) -> Any:
        out = dot_product_attention(q[None], k[None], v[None], key_value_seq_lengths=used)
        return (out.astype(jnp.float32) ** 2).sum()

    differentiate = jax.grad(loss, (0, 1, 2))
    got = jax.jit(jax.vmap(differentiate))(q, k, v, lengths)
    for i in range(3):
        for a, b in zip(got, differentiate(q[i], k[i], v[i], lengths[i]), strict=True):
            assert np.array_equal(a[i], b)


@pytest.mark.parametrize("shape", [(2, 4, 30, 36), (1, 1, 30, 36), (2, 1, 1, 36), (36,)])
def test_bias_and_mask(shape: tuple[int, ...]) -> None:
    """Gradients of the bias too, summed over what it is broadcast over; both mask and bias are added."""
    q, k, v = (
        draw(2, rows, heads, 64, seed=i, dtype=jnp.float32)
        for i, (rows, heads) in enumerate(((30, 4), (36, 2), (36, 2)))
    )
    bias, dout = draw(*shape, seed=3, dtype=jnp.float32), draw(2, 30, 4, 64, seed=4, dtype=jnp.float32)
    mask = jnp.asarray(np.random.default_rng(5).random((30, 36)) > 0.3).at[:, 0].set(True)
    named = {"mask": mask, "is_causal": True}

    def gradients(function: Any) -> Any:
        return jax.vjp(lambda *xs: function(*xs, **named), q, k, v, bias)[1](dout)

    with jax.default_matmul_precision("highest"):
        want = gradients(jax.nn.dot_product_attention)
    with jax_gradients.forward_is(jax_gradients.formula):
        found = gradients(dot_product_attention)
    for got, expected in zip(found, want, strict=True):
        assert got.shape == expected.shape
        assert abs(got - expected).max() <= 2.0**-17 * abs(expected).max()


# A model of two layers: tokens, width, heads, rows.
VOCABULARY, WIDTH, HEADS, ROWS, LAYERS, STEPS = 17, 128, 2, 32, 2, 8
RATE = 0.3


def parameters(seed: int) -> dict[str, Array]:
    """Weights of all layers, stacked."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> Array:
        return jnp.asarray(rng.standard_normal(shape) * shape[-2] ** -0.5, jnp.float32)

    return {
        "embedding": normal(VOCABULARY, WIDTH),
        "qkv": normal(LAYERS, WIDTH, 3 * WIDTH),
        "out": normal(LAYERS, WIDTH, WIDTH),
        "up": normal(LAYERS, WIDTH, 2 * WIDTH),
        "down": normal(LAYERS, 2 * WIDTH, WIDTH),
        "head": normal(WIDTH, VOCABULARY),
    }


def normalised(x: Array) -> Array:
    return x * jax.lax.rsqrt((x**2).mean(-1, keepdims=True) + 1e-6)


def cross_entropy(attend: Any, dtype: Any, weights: dict[str, Array], tokens: Array) -> Array:
    """The mean loss of the next token; layers are scanned over, and computed anew on the way back."""
    layers = {name: weights[name] for name in ("qkv", "out", "up", "down")}

    @jax.checkpoint
    def layer(x: Array, w: dict[str, Array]) -> tuple[Array, None]:
        parts = jnp.split(normalised(x) @ w["qkv"], 3, axis=-1)
        q, k, v = (part.reshape(*x.shape[:2], HEADS, -1).astype(dtype) for part in parts)
        x = x + attend(q, k, v, is_causal=True).astype(jnp.float32).reshape(x.shape) @ w["out"]
        return x + jax.nn.gelu(normalised(x) @ w["up"]) @ w["down"], None

    x, _ = jax.lax.scan(layer, weights["embedding"][tokens[:, :-1]], layers)
    logits = jax.nn.log_softmax(normalised(x) @ weights["head"])
    return -jnp.take_along_axis(logits, tokens[:, 1:, None], axis=-1).mean()


def train(attend: Any, dtype: Any) -> list[float]:
    """The losses of a few steps on the same two sequences."""

    @jax.jit
    def step(weights: dict[str, Array]) -> tuple[dict[str, Array], Array]:
        loss, slopes = jax.value_and_grad(partial(cross_entropy, attend, dtype))(weights, tokens)
        return {name: x - RATE * slopes[name] for name, x in weights.items()}, loss

    tokens = jnp.asarray(np.random.default_rng(3).integers(0, VOCABULARY, (2, ROWS + 1)))
    weights, losses = parameters(7), []
    for _ in range(STEPS):
        weights, loss = step(weights)
        losses.append(float(loss))
    return losses


def rounded(q: Array, k: Array, v: Array, *, is_causal: bool) -> Array:
    """jax.nn's attention of float16 arrays, in float32 but for P, dP and O."""
    assert is_causal

    def to_float16(x: Array) -> Array:
        return jax.lax.reduce_precision(x, 5, 10)

    q, k, v = (x.astype(jnp.float32) for x in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    p = jax.nn.softmax(jnp.where(jnp.tri(q.shape[1], dtype=jnp.bool_), scores, -jnp.inf))
    return to_float16(jnp.einsum("bhqk,bkhd->bqhd", to_float16(p), v))


def test_training() -> None:
    """A small transformer learns, and its losses are those of jax.nn's attention in float32."""
    ours, theirs = train(dot_product_attention, jnp.float16), train(jax.nn.dot_product_attention, jnp.float32)
    assert theirs[-1] < theirs[0] - 1
    # flash-attention's criterion: twice what the same formula in the low precision is off by. The rest is
    # float32's own, in sums of another order, over all steps.
    allowed = 2 * max(abs(np.subtract(train(rounded, jnp.float16), theirs))) + 2.0**-18
    assert max(abs(np.subtract(ours, theirs))) <= allowed
