# SPDX-License-Identifier: MIT OR Apache-2.0
"""The cases of the first group of tests, run through JAX.

To be imported before jax: it chooses the platform, with four devices. That is the CPU, unless these tests run
as part of the third group, which puts JAX for ROCm on the software device.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import jax
import numpy as np
import pytest
from built import candidates
from cases import Bias, Case, Layout, bits, canary, expected, judge
from cases_types import DTYPES, Array, Bools

from pyfa_rocm.jax import flash_attn_func, flash_attn_varlen_func

# For tests of four devices in which one device reads another's data.
needs_collectives = pytest.mark.skipif(
    "rocm" in os.environ["JAX_PLATFORMS"],
    reason="RCCL is a stub here, as test_jax_devices.py shows; the second group runs this",
)


def in_jax(case: Case) -> Case:
    """The case as far as JAX has it: arrays are contiguous, and the random bytes cannot be asked for."""
    bias = case.bias and Bias(case.bias.dims, Layout(), case.bias.infinities)
    dropout = case.dropout and replace(case.dropout, randval=False)
    return replace(case, layouts=(Layout(),) * 4, bias=bias, dropout=dropout)


def run(case: Case, compiled: bool) -> None:
    """Run a case and judge it, or see it refused if no kernel can do it."""
    case = in_jax(case)
    inputs, (arrays, options) = case.inputs(), arguments(case)
    function: Any = flash_attn_func if case.varlen is None else flash_attn_varlen_func
    call: Any = partial(function, **options)
    if compiled:
        call = jax.jit(call)
    if not candidates(case):
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"UNIMPLEMENTED: .*(dtype|hdim_q|softcap)"):
            jax.block_until_ready(call(**arrays))
        return
    before = {name: np.array(x) for name, x in arrays.items()}
    result = call(**arrays)
    o, lse = result if case.lse else (result, None)
    assert o.dtype == DTYPES[case.out_dtype]
    for name, x in arrays.items():
        assert np.array_equal(bits(np.asarray(x)), bits(before[name])), f"{name} was written"
    judge_result(case, inputs, np.asarray(o), None if lse is None else np.asarray(lse))


def judge_result(case: Case, inputs: list[Array], o: Array, lse: Array | None) -> None:
    """Judge the rows in use; of packed sequences, the others are 0, and -inf in the LSE."""
    if case.varlen is None:
        return judge(expected(case, inputs), o, lse)
    used = case.rows_in_use()[0]
    assert not bits(o[~used]).any()
    if lse is not None:
        assert np.isneginf(lse[:, ~used]).all()
        lse = lse[None][..., used]
    return judge(expected(case, inputs), o[None][:, used], lse)


def arguments(case: Case) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays of a case, and what must be known while tracing."""
    rows, keys = case.rows_in_use()
    used = (rows, keys, keys)
    arrays = {name: _only(*x) for name, *x in zip("qkv", case.inputs(), used, strict=True)}
    options: dict[str, Any] = {
        "softmax_scale": case.scale,
        "causal": case.causal,
        "window_size": case.window,
        "softcap": case.softcap,
        "top_left": case.top_left,
        "return_lse": case.lse,
    }
    if case.out_dtype != case.dtype:
        options["out_dtype"] = case.out_dtype
    if case.bias is not None:
        arrays["bias"] = case.bias_data()
    if case.alibi:
        arrays["alibi_slopes"] = case.slopes() if case.alibi == 2 else case.slopes()[0]
    if case.sinks:
        arrays["sinks"] = case.sink_data()
    if case.dropout is not None:
        seed = (case.dropout.seed, case.dropout.offset)
        options["dropout_p"] = case.dropout.p
        if case.dropout.on_device:
            arrays["philox"] = np.array(seed, np.uint64).view(np.uint32)
        else:
            options["philox"] = seed
    if case.descale != (1.0, 1.0, 1.0):
        options |= dict(zip(("q_descale", "k_descale", "v_descale"), case.descale, strict=True))
    if case.varlen is not None:
        arrays = {name: x[0] if name in ("q", "k", "v", "bias") else x for name, x in arrays.items()}
        arrays |= _lengths(case)
        options |= {"max_seqlen_q": case.seqlen_q, "max_seqlen_k": case.seqlen_k}
    return {name: jax.numpy.asarray(x) for name, x in arrays.items()}, options


def _lengths(case: Case) -> dict[str, Array]:
    varlen = case.varlen
    assert varlen is not None
    lengths = {"cu_seqlens_q": varlen.cu_q, "cu_seqlens_k": varlen.cu_k}
    if varlen.slack_q is not None:
        lengths["seqused_q"] = varlen.lengths_q
    if varlen.slack_k is not None:
        lengths["seqused_k"] = varlen.lengths_k
    return {name: np.array(x, np.int32) for name, x in lengths.items()}


def _only(x: Array, used: Bools) -> Array:
    """The rows in use, among NaN."""
    result = canary(x.size, x.dtype).reshape(x.shape)
    result[:, used] = x[:, used]
    return result
