# SPDX-License-Identifier: MIT OR Apache-2.0
"""Gradients of pyfa_rocm.jax: every feature against float64, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from adapters.with_jax import jax_cases, jax_gradients  # isort: skip  # before jax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from backward import Backward
from cases import Bias, Case, Dropout, cases
from cases_types import Varlen
from hypothesis import given, settings
from hypothesis import strategies as st

from pyfa_rocm import UnsupportedError, emulator
from pyfa_rocm.jax import flash_attn_func, flash_attn_varlen_func, philox_of_key

BASE = Case(2, 70, 90, 2, 1, 64, "float16", causal=True, seed=3)
SMALL = replace(BASE, batch=1, seqlen_q=8, seqlen_k=8)
DROPPED = replace(BASE, hdim=128, dropout=Dropout(0.3, on_device=True))


def attend(case: Case, **options: Any) -> tuple[list[jax.Array], Any]:
    """The arrays q, k, v of a case, and a function of them."""
    arrays, fixed = jax_cases.arguments(case)
    return list(arrays.values()), partial(flash_attn_func, **(fixed | options))


def squares(function: Any) -> Any:
    """A loss that depends on the first result of a function."""

    def loss(*args: Any) -> Any:
        out = function(*args)
        return ((out[0] if isinstance(out, tuple) else out).astype(jnp.float32) ** 2).sum()

    return loss


DTYPES = ("float16", "bfloat16", "float32")
FEATURES = ("none", "alibi", "softcap", "bias")


@settings(max_examples=50)
@given(cases(dtypes=DTYPES, variants=FEATURES, dropout=(False, True), max_tiles=6), st.booleans())
def test_random(case: Case, compiled: bool) -> None:
    jax_gradients.run(case, compiled)


@settings(max_examples=40)
@given(
    cases(dtypes=DTYPES, varlen=(True,), variants=FEATURES, dropout=(False, True), max_tiles=6),
    st.booleans(),
)
def test_random_varlen(case: Case, compiled: bool) -> None:
    jax_gradients.run(case, compiled)


FIXED = {
    "plain": BASE,
    "bfloat16": replace(BASE, dtype="bfloat16", hdim=32),
    "groups": replace(BASE, ratio=3, window=(20, 3), causal=False),
    "top_left": replace(BASE, top_left=True, seqlen_q=130),
    "rows_without_keys": replace(BASE, seqlen_q=200, seqlen_k=40),
    "alibi": replace(BASE, dtype="bfloat16", alibi=2),
    "dropout": DROPPED,
    "dropout_of_values": replace(DROPPED, dropout=Dropout(0.6, 2**63, 5), ratio=2),
    "softcap": replace(BASE, dtype="float32", softcap=2.0),
    "bias": replace(BASE, dtype="float32", bias=Bias(infinities=True)),
    "bias_of_all_heads": replace(BASE, dtype="float32", ratio=2, bias=Bias((True, False, True))),
    "bias_of_all_batches": replace(BASE, ratio=2, bias=Bias((False, True, True))),
    "bias_of_all": replace(BASE, dtype="float32", bias=Bias((False, False, False))),
    "other_hdim_v": replace(BASE, hdim=72, hdim_v=40),
    "packed": replace(BASE, varlen=Varlen((70, 0, 33), (60, 5, 90), (3, 1, 0), (0, 7, 9)), batch=3),
    "packed_groups": replace(BASE, varlen=Varlen((70, 1), (60, 90)), ratio=2),
}


@pytest.mark.parametrize("case", FIXED.values(), ids=FIXED)
def test_fixed(case: Case) -> None:
    """One of each feature, so that there is something to judge."""
    case = jax_gradients.nearest(case)
    jax_gradients.run(case, compiled=True, deterministic=case.ratio == 2)


def test_only_some() -> None:
    """The gradients of any of q, k and v are those of all three."""
    arrays, call = attend(BASE, return_lse=False)
    loss = squares(partial(call, deterministic=True))
    want = jax.grad(loss, (0, 1, 2))(*arrays)
    for some in ((0,), (1,), (2,), (0, 2)):
        got = jax.jit(jax.grad(loss, some))(*arrays)
        assert all(np.array_equal(x, want[i]) for x, i in zip(got, some, strict=True))
    x = arrays[1]
    same = jax.grad(squares(lambda x: call(x, x, x, deterministic=True)))(x)
    three = jax.grad(squares(partial(call, deterministic=True)), (0, 1, 2))(x, x, x)
    # Summed in float16, in an order of JAX's.
    wide = [np.asarray(g, np.float32) for g in three]
    size = sum(abs(g) for g in wide)
    assert (abs(np.asarray(same, np.float32) - sum(wide)) <= 2**-10 * size).all()


def test_dropout_of_a_key() -> None:
    """A compiled step draws anew for each key, the same numbers in both passes."""
    case = jax_gradients.nearest(replace(DROPPED, dropout=Dropout(0.3)))
    (q, k, v), draw = attend(case, return_lse=False)

    def step(key: Any, q: Any) -> Any:
        return jax.grad(squares(lambda q: draw(q, k, v, deterministic=True, philox=philox_of_key(key))))(q)

    first, second = (jax.random.key(i) for i in range(2))
    seed, offset = np.asarray(philox_of_key(first)).view(np.uint64).tolist()
    with jax_gradients.given_results(Backward(case)):
        got = jax.jit(step)(first, q)
        assert np.array_equal(got, step(first, q))
        assert not np.array_equal(got, step(second, q))
        by_value = jax.grad(squares(lambda q: draw(q, k, v, deterministic=True, philox=(seed, offset))))(q)
    assert np.array_equal(got, by_value)


@pytest.mark.parametrize(("rows", "keys"), [(0, 40), (40, 0), (0, 0)])
def test_nothing_to_see(rows: int, keys: int) -> None:
    q, k = (jnp.ones((2, n, 2, 64), jnp.float16) for n in (rows, keys))
    for grad in (jax.grad, lambda *x: jax.jit(jax.grad(*x))):
        for got, x in zip(grad(squares(flash_attn_func), (0, 1, 2))(q, k, k), (q, k, k), strict=True):
            assert got.shape == x.shape
            assert not got.any()
    lengths = jnp.zeros(3, jnp.int32)
    packed = partial(
        flash_attn_varlen_func,
        cu_seqlens_q=lengths,
        cu_seqlens_k=lengths,
        max_seqlen_q=rows,
        max_seqlen_k=keys,
    )
    loss = squares(lambda q, k, v: packed(q, k, v))
    for got, x in zip(jax.grad(loss, (0, 1, 2))(q[0], k[0], k[0]), (q[0], k[0], k[0]), strict=True):
        assert got.shape == x.shape
        assert not got.any()


def standard(q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    """O and the LSE of causal attention, in float32, by the formula."""
    q, k, v = (x.astype(jnp.float32) for x in (q, k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    rows, keys = scores.shape[2:]
    seen = jnp.arange(keys)[None] <= jnp.arange(rows)[:, None] + keys - rows
    scores = jnp.where(seen, scores, -jnp.inf)
    lse = jax.nn.logsumexp(scores, axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", jnp.exp(scores - lse[..., None]), v), lse


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("packed", [False, True])
def test_lse(dtype: str, packed: bool) -> None:
    """Its gradient too: with O's, and by itself."""
    case = replace(BASE, dtype=dtype, hdim=56, seqlen_q=70, seqlen_k=70)
    if not jax_gradients.has_both(case):
        pytest.skip("no such kernel in this library")
    arrays, call = attend(case)
    weights = jnp.asarray(np.random.default_rng(2).standard_normal((2, 2, 70)) * 3, jnp.float32)
    if packed:
        arrays = [x.reshape(-1, *x.shape[2:]) for x in arrays]
        lengths = jnp.array([0, 70, 140], jnp.int32)
        call = partial(
            flash_attn_varlen_func,
            cu_seqlens_q=lengths,
            cu_seqlens_k=lengths,
            max_seqlen_q=70,
            max_seqlen_k=70,
            causal=True,
            return_lse=True,
        )

    def loss(function: Any, of_o: float, *arrays: Any) -> Any:
        o, lse = function(*arrays)
        if lse.ndim == 2:
            o, lse = o.reshape(2, 70, 2, -1), lse.reshape(2, 2, 70).swapaxes(0, 1)
        return of_o * (o.astype(jnp.float32) ** 2).sum() + (weights * jnp.sin(lse)).sum()

    for of_o in (1.0, 0.0):
        got = jax.jit(jax.grad(partial(loss, call, of_o), (0, 1, 2)))(*arrays)
        with jax.default_matmul_precision("highest"):
            whole = [x.reshape(2, 70, 2, -1) for x in arrays]
            want = jax.grad(partial(loss, standard, of_o), (0, 1, 2))(*(x.astype(jnp.float32) for x in whole))
        for a, b in zip(got, want, strict=True):
            a, b = np.asarray(a, np.float64).reshape(b.shape), np.asarray(b, np.float64)
            # O, dO, P and dS are rounded, each by half an ulp of terms of the size of the largest gradient.
            assert abs(a - b).max() <= 4 * float(jnp.finfo(dtype).eps) * max(1.0, abs(b).max())


def test_lse_of_parts() -> None:
    """Attention over halves of the keys, merged by their LSEs, has the gradients of the whole."""
    q, k, v = (
        jnp.asarray(np.random.default_rng(i).standard_normal((1, 60, 2, 56)), jnp.float16) for i in range(3)
    )

    def merged(q: Any, k: Any, v: Any) -> Any:
        parts = [flash_attn_func(q, k[:, i : i + 30], v[:, i : i + 30], return_lse=True) for i in (0, 30)]
        top = jnp.logaddexp(*(lse for _, lse in parts))
        return sum(o * jnp.exp(lse - top).swapaxes(1, 2)[..., None] for o, lse in parts)

    whole = jax.grad(squares(flash_attn_func), (0, 1, 2))(q, k, v)
    for got, want in zip(jax.grad(squares(merged), (0, 1, 2))(q, k, v), whole, strict=True):
        assert abs(got.astype(np.float32) - want.astype(np.float32)).max() <= 2**-8 * abs(want).max()


def test_unused_lse_costs_nothing() -> None:
    """The same kernels run on the same columns, with the LSE returned or not."""
    arrays, call = attend(BASE)
    calls = (call, partial(call, return_lse=False))
    lowered = [jax.jit(jax.grad(squares(f))).lower(*arrays).as_text() for f in calls]
    backward = [[x for x in text.splitlines() if "pyfa_rocm_fmha_bwd" in x] for text in lowered]
    assert len(backward[0]) == 1
    assert [x.partition("@")[2] for x in backward[0]] == [x.partition("@")[2] for x in backward[1]]


def test_memory_is_linear_in_length() -> None:
    """Neither the residuals nor the workspace have a number for each pair of a query and a key."""
    for rows in (256, 512):
        q = jax.ShapeDtypeStruct((1, rows, 2, 64), jnp.float16)
        out, pull = jax.eval_shape(lambda q: jax.vjp(flash_attn_func, q, q, q), q)
        kept = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(pull))
        assert kept <= 4 * out.size * 2 + 2 * rows * 4
        text = jax.jit(jax.grad(squares(flash_attn_func), (0, 1, 2))).lower(q, q, q).as_text()
        workspace = int(text.rpartition("xui8>")[0].rpartition("<")[2])
        assert workspace <= 2 * rows * (64 + 1) * 4 + 3 * 256


def test_kernels_that_run() -> None:
    """One call of each pass, whether or not the backward pass follows at once."""
    arrays, call = attend(BASE, return_lse=False)
    step = jax.jit(jax.grad(squares(call), (0, 1, 2)))
    jax.block_until_ready(step(*arrays))
    with emulator.profile() as profile:
        jax.block_until_ready(step(*arrays))
    names = [x.kernel.rpartition("fmha_")[2][:3] for x in profile.launches if "fmha_" in x.kernel]
    assert names.count("fwd") == 1
    assert names.count("bwd") == 2  # D; dQ, dK and dV


REFUSALS: dict[str, tuple[Any, type[Exception], str]] = {
    "jvp": (lambda f, x: jax.jvp(f, (x,), (x,)), NotImplementedError, "forward mode .*jax.jvp"),
    "compiled_jvp": (
        lambda f, x: jax.jit(lambda x: jax.jvp(f, (x,), (x,)))(x),
        NotImplementedError,
        "forward mode",
    ),
    "jvp_of_jit": (lambda f, x: jax.jvp(jax.jit(f), (x,), (x,)), NotImplementedError, "forward mode"),
    "jacfwd": (lambda f, x: jax.jacfwd(f)(x), NotImplementedError, "forward mode"),
    "linearize": (lambda f, x: jax.linearize(f, x)[1](x), NotImplementedError, "forward mode"),
    "hessian": (lambda f, x: jax.hessian(f)(x), NotImplementedError, "pyfa_rocm.jax: .*(forward|second)"),
    "twice": (
        lambda f, x: jax.grad(lambda x: jax.grad(f)(x).sum().astype(jnp.float32))(x),
        NotImplementedError,
        "no second derivatives",
    ),
    "twice_compiled": (
        lambda f, x: jax.grad(lambda x: jax.jit(jax.grad(f))(x).sum().astype(jnp.float32))(x),
        NotImplementedError,
        "no second derivatives",
    ),
}


@pytest.mark.parametrize(("derivative", "error", "message"), REFUSALS.values(), ids=REFUSALS)
def test_no_such_derivative(derivative: Any, error: type[Exception], message: str) -> None:
    (q, k, v), call = attend(SMALL, return_lse=False)
    with pytest.raises(error, match=message):
        derivative(squares(lambda x: call(x, k, v)), q)


def test_stopped() -> None:
    """Functions that are not differentiated are not, whatever is around them."""
    (q, k, v), call = attend(SMALL, return_lse=False)
    total = squares(lambda x: call(x, k, v))
    assert jax.grad(lambda scale: scale * total(q))(2.0) == total(q)
    stopped = jax.grad(lambda x: total(jax.lax.stop_gradient(x)) + 3 * x.sum().astype(jnp.float32))
    assert (stopped(q) == 3).all()
    primal, tangent = jax.jvp(lambda s: s * total(q), (2.0,), (1.0,))
    assert primal == 2 * tangent


def test_refused_while_tracing() -> None:
    """The error names a feature without a backward pass while tracing: no call is made."""
    arrays, _ = attend(BASE)
    if not jax_gradients.has_backward(replace(BASE, softcap=3.0)):
        with pytest.raises(UnsupportedError, match=r"softcap.*no .*backward kernel"):
            jax.jit(jax.grad(squares(partial(flash_attn_func, softcap=3.0)))).trace(*arrays)
    low = [jnp.zeros(x.shape, jnp.float8_e4m3fnuz) for x in arrays]
    with pytest.raises(UnsupportedError, match="dtype = fp8: backward kernels take fp16, bf16 and fp32"):
        jax.eval_shape(jax.grad(squares(flash_attn_func)), *low)
    slopes = jnp.ones(2, jnp.float32)
    q, k, v = arrays
    loss = squares(lambda slopes: flash_attn_func(q, k, v, alibi_slopes=slopes))
    with pytest.raises(UnsupportedError, match="alibi_slopes: got an array that is differentiated"):
        jax.grad(loss)(slopes)
    q = jnp.ones((1, 8, 1, 512), jnp.bfloat16)
    with pytest.raises(UnsupportedError, match=r"lse: got .* 8 more columns of v, .*hdim_v = 520"):
        jax.grad(lambda q: flash_attn_func(q, q, q, return_lse=True)[1].sum())(q)
