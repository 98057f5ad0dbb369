# SPDX-License-Identifier: MIT OR Apache-2.0
"""Gradients of the cases of the first group of tests through JAX, judged against float64.

To be imported before jax, as jax_cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from adapters.with_jax import jax_cases  # isort: skip  # before jax
import jax
import numpy as np
import pytest
from backward import Backward
from built import DTYPE_OF, candidates, rows, this_arch
from cases import Case
from cases_types import DTYPES, Array

from pyfa_rocm import UnsupportedError
from pyfa_rocm.jax import _gradient, _primitive, flash_attn_func, flash_attn_varlen_func

# The library's message if it has no kernel: it names the request, and what the nearest kernel takes.
REFUSED = "no .*backward kernel"


def has_backward(case: Case) -> bool:
    """Return whether a kernel of this arch can do the backward pass of a case."""
    features = {
        "alibi": bool(case.alibi),
        "dropout": case.dropout is not None,
        "softcap": case.softcap > 0,
        "bias": case.bias is not None,
        "dbias": case.bias is not None,
    }
    return any(
        row["arch"] == this_arch()
        and DTYPE_OF[row["dtype"]] == case.dtype
        and row["hdim_q"] >= case.hdim
        and row["hdim_v"] >= (case.hdim_v or case.hdim)
        and all(row["optional"] or row.get(name, False) == asked for name, asked in features.items())
        for row in rows("bwd")
    )


def has_both(case: Case) -> bool:
    """Return whether there are kernels for both passes."""
    return has_backward(case) and bool(candidates(replace(case, lse=True)))


def nearest(case: Case) -> Case:
    """The case, or one of another dtype or head dim that has a backward kernel."""
    others = (replace(case, dtype=d, hdim=n) for d in ("float16", "bfloat16", "float32") for n in (64, 128))
    for other in (case, *others):
        if has_backward(other):
            return other
    pytest.skip("no such kernel in this library")


def cotangent(case: Case) -> Array:
    """The gradient of O; NaN in rows of no sequence."""
    rng = np.random.default_rng((case.seed, 3))
    dout = rng.standard_normal(case.o_shape, np.float32).astype(DTYPES[case.dtype])
    dout[:, ~case.rows_in_use()[0]] = np.nan
    return np.asarray(dout if case.varlen is None else dout[0])


def function_of(case: Case, options: dict[str, Any]) -> Any:
    """The public function of a case, with what must be known while tracing."""
    function: Any = flash_attn_func if case.varlen is None else flash_attn_varlen_func
    return partial(function, **options)


@contextmanager
def forward_is(results: Callable[..., Any]) -> Iterator[None]:
    """Have a function give O and the LSE of a problem: a small library has few kernels for both passes."""

    def bind(problem: Any, operands: Any) -> Any:
        if problem.is_backward:
            return _primitive.bind(problem, operands)
        return list(results(problem, operands))[: len(problem.results)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_gradient, "bind", bind)
        patch.setattr(_gradient, "_traced", _gradient._attend)  # which jit would remember
        yield


def given_results(backward: Backward) -> Any:
    """Have the forward pass give the oracle's O and LSE of a case."""
    packed = backward.case.varlen is not None
    results = [jax.numpy.asarray(x[0] if packed else x) for x in (backward.o, backward.lse)]
    return forward_is(lambda _problem, _operands: results)


def formula(problem: Any, operands: Any) -> tuple[Any, Any]:
    """O and the LSE in float32, by XLA: with a bias, and masked causally from the top left, or not at all."""
    fields, arrays = dict(problem.fields), dict(zip(problem.names, operands, strict=True))
    assert fields["mask"] in ("none", "causal_top_left")
    q, k, v = (arrays[name] for name in "qkv")
    k, v = (jax.numpy.repeat(x, q.shape[2] // x.shape[2], axis=2) for x in (k, v))
    with jax.default_matmul_precision("highest"):
        scores = fields["softmax_scale"] * jax.numpy.einsum("bqhd,bkhd->bhqk", q, k) + arrays["bias"]
        if fields["mask"] != "none":
            seen = jax.numpy.tri(*scores.shape[2:], dtype=jax.numpy.bool_)
            scores = jax.numpy.where(seen, scores, -jax.numpy.inf)
        lse = jax.nn.logsumexp(scores, axis=-1)
        return jax.numpy.einsum("bhqk,bkhd->bqhd", jax.numpy.exp(scores - lse[..., None]), v), lse


def run(case: Case, compiled: bool, **options: Any) -> None:
    """Differentiate a case and judge its gradients, or see it refused if no kernel can do it."""
    case = jax_cases.in_jax(replace(case, lse=False))
    arrays, fixed = jax_cases.arguments(case)
    inputs: dict[str, Any] = {name: arrays.pop(name) for name in ("q", "k", "v", "bias") if name in arrays}
    call, dout = function_of(case, fixed | options), jax.numpy.asarray(cotangent(case))

    def gradients(inputs: Any, others: Any, dout: Any) -> Any:
        out, pull = jax.vjp(lambda x: call(**x, **others), inputs)
        return out, pull(dout)[0]

    if compiled:
        gradients = jax.jit(gradients)
    if not has_backward(case):
        with pytest.raises(UnsupportedError, match=REFUSED):
            gradients(inputs, arrays, dout)
    elif has_both(case):
        _, lse = call(**inputs, **arrays, return_lse=True)
        out, found = gradients(inputs, arrays, dout)
        judge(case, inputs, found, out, lse)
    else:
        oracle = Backward(case)
        with given_results(oracle):
            _, found = gradients(inputs, arrays, dout)
        parts = (oracle.o, oracle.lse) if case.varlen is None else (oracle.o[0], oracle.lse[0])
        judge(case, inputs, found, *parts)


def judge(case: Case, inputs: dict[str, Any], found: dict[str, Any], out: Any, lse: Any) -> None:
    """Judge gradients, O and LSE being what they are: rows of no sequence have 0."""
    for name, x in inputs.items():
        assert found[name].dtype == x.dtype
        assert found[name].shape == x.shape
    results = [np.asarray(x) for x in (out, lse, cotangent(case), *(found[name] for name in inputs))]
    if case.varlen is not None:
        results = [x[None] for x in results]
    out, lse, dout, *gradients = results
    rows_used, keys_used = case.rows_in_use()
    for x, used in zip(gradients, (rows_used, keys_used, keys_used), strict=False):
        assert not x[:, ~used].any()
    names = [f"d{name}" for name in inputs]
    Backward(case, results=(out, lse, dout)).judge(dict(zip(names, gradients, strict=True)))
