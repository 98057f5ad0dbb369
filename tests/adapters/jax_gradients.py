# SPDX-License-Identifier: MIT OR Apache-2.0
"""Gradients of the cases of the first group of tests through JAX, judged against float64.

To be imported before jax, as jax_cases.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from adapters import jax_cases  # isort: skip  # before jax
import jax
import numpy as np
import pytest
from backward import NAMES, Backward
from built import DTYPE_OF, candidates, rows, this_arch
from cases import Case
from cases_types import DTYPES, Array

from pyfa_rocm import UnsupportedError
from pyfa_rocm.jax import _gradient, _primitive, flash_attn_func, flash_attn_varlen_func

# Of the library's refusals for want of a kernel: it names what is asked for, and what the nearest takes.
REFUSED = "no .*backward kernel"


def has_backward(case: Case) -> bool:
    """Whether a kernel of this arch can do the backward pass of a case."""
    return any(
        row["arch"] == this_arch()
        and DTYPE_OF[row["dtype"]] == case.dtype
        and row["hdim_q"] >= case.hdim
        and row["hdim_v"] >= (case.hdim_v or case.hdim)
        and row["alibi"] == bool(case.alibi)
        and row["dropout"] == (case.dropout is not None)
        for row in rows("bwd")
    )


def has_both(case: Case) -> bool:
    """Whether there are kernels for both passes."""
    return has_backward(case) and bool(candidates(replace(case, lse=True)))


def nearest(case: Case) -> Case:
    """The case, or one of another dtype or head dim that has a backward kernel."""
    others = (replace(case, dtype=d, hdim=n) for d in ("float16", "bfloat16") for n in (64, 128))
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
def given_results(backward: Backward) -> Iterator[None]:
    """Have the forward pass give the oracle's O and LSE: a small library has few kernels for both passes."""
    results = [jax.numpy.asarray(x if backward.case.varlen is None else x[0]) for x in (backward.o, backward.lse)]

    def bind(problem: Any, operands: Any) -> Any:
        if problem.is_backward:
            return _primitive.bind(problem, operands)
        return results[: len(problem.results)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_gradient, "bind", bind)
        yield


def run(case: Case, compiled: bool, **options: Any) -> None:
    """Differentiate a case and judge its gradients, or see it refused if no kernel can do it."""
    case = jax_cases.in_jax(replace(case, lse=False))
    arrays, fixed = jax_cases.arguments(case)
    inputs = {name: arrays.pop(name) for name in "qkv"}
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
    results = [np.asarray(x) for x in (out, lse, cotangent(case), *(found[name] for name in "qkv"))]
    if case.varlen is not None:
        results = [x[None] for x in results]
    out, lse, dout, *gradients = results
    rows_used, keys_used = case.rows_in_use()
    for x, used in zip(gradients, (rows_used, keys_used, keys_used), strict=True):
        assert not x[:, ~used].any()
    Backward(case, results=(out, lse, dout)).judge(dict(zip(NAMES, gradients, strict=True)))
