# SPDX-License-Identifier: MIT OR Apache-2.0
"""The page's table: how far each operator is from float64, and which kernels ran."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from engines import recorded
from engines.with_onnxruntime import (
    test_onnxruntime_attention,
    test_onnxruntime_group_query,
    test_onnxruntime_multi_head,
    test_onnxruntime_paged,
)
from engines.with_onnxruntime.expectations import heads_first
from engines.with_onnxruntime.sessions import Array, our_session, run
from reference import Expected

from pyfa_rocm import emulator

SEEDS = range(3)
Pair = tuple[Array, Expected]


def _whole(drawn: Any, case: Any) -> Iterator[Pair]:
    """Attention and MultiHeadAttention: all sequences at once."""
    want = drawn.expected()
    got = run(our_session(case.model()), case.feeds())[0]
    yield (heads_first(got) if got.ndim == 4 else got.reshape(want.o.shape)), want


def attention(dtype: str, seed: int) -> Iterator[Pair]:
    drawn = test_onnxruntime_attention.Drawn(3 + seed % 2, dtype, seed)
    return _whole(drawn, drawn.case())


def multi_head(dtype: str, seed: int) -> Iterator[Pair]:
    drawn = test_onnxruntime_multi_head.Drawn(test_onnxruntime_multi_head.LAYOUTS[seed], dtype, seed)
    return _whole(drawn, drawn.case(dynamic=False))


def group_query(dtype: str, seed: int) -> Iterator[Pair]:
    drawn = test_onnxruntime_group_query.Drawn(("prompt", "token", "tokens")[seed], dtype, seed)
    case = drawn.case()
    output, keys, _ = run(our_session(case.model()), case.feeds())
    output = output.reshape(drawn.q.shape)
    for b in range(drawn.batch):
        q, k, v = drawn.sequence(b)
        kept = heads_first(keys[b : b + 1, :, : len(k)])[0]  # as the operator has rotated them
        yield output[b : b + 1, : len(q)], drawn.expected(q, kept, v)


def paged(dtype: str, seed: int) -> Iterator[Pair]:
    drawn = test_onnxruntime_paged.Drawn(dtype, seed)
    case = drawn.case()
    results = run(our_session(case.model()), case.feeds())
    for b in range(drawn.batch):
        rows, want = drawn.expected(b, results)
        yield results[0].reshape(drawn.q.shape)[None, rows], want


OPERATORS = {
    "GroupQueryAttention": (group_query, ("fp16", "bf16")),
    "MultiHeadAttention": (multi_head, ("fp16", "bf16", "fp32")),
    "PagedAttention": (paged, ("fp16", "bf16")),
    "Attention (ONNX)": (attention, ("fp16", "bf16", "fp32")),
}


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, x) for name, (_, types) in OPERATORS.items() for x in types]
)
def test_recorded(name: str, dtype: str) -> None:
    """The error is within the bound of rounding, and the page has a row of it."""
    worst, launched = 0.0, set()
    for seed in SEEDS:
        with emulator.profile() as profile:
            for got, want in OPERATORS[name][0](dtype, seed):
                off = np.abs(got.astype(np.float64) - want.o)
                assert (off <= want.o_tolerance).all()
                worst = max(worst, float(off.max(initial=0)))
        launched |= {x.kernel for x in profile.launches if "_decode_" in x.kernel or "_fwd_" in x.kernel}
    assert launched
    kernels = ", ".join(f"`{x}`" for x in sorted(launched))
    recorded.row("onnxruntime.md", f"{ort.__version__}: {name}, {dtype}", f"{worst:.1e}", kernels)
