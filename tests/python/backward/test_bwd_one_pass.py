# SPDX-License-Identifier: MIT OR Apache-2.0
"""Gradients by kernels that add up dQ in memory, in blocks: forced, as most of these problems are small."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from backward import Ask, Backward, by, candidates, run_backward
from built import DTYPE_OF, Row, rows, this_arch
from cases import Case, Varlen, bits
from hypothesis import given, settings
from hypothesis import strategies as st
from plugins import hypothesis_profile
from strict import wave_order

EXAMPLES = max(2, hypothesis_profile.EXAMPLES // 12)
ORDERS = ("round", "reverse", "random:1")
KERNELS = [row for row in rows("bwd") if row["pipeline"] == "one_pass" and row["arch"] == this_arch()]
OF_KERNEL = pytest.mark.parametrize("row", KERNELS, ids=[row["name"] for row in KERNELS])
# Beside the ends of blocks and of a workgroup's keys, and any.
LENGTHS = st.sampled_from((0, 1, 31, 32, 33, 63, 64, 65, 255, 256, 257)) | st.integers(0, 300)


def base(row: Row, **change: Any) -> Case:
    """A small case with the features of a kernel."""
    case = Case(
        batch=1, seqlen_q=70, seqlen_k=290, nhead_k=1, ratio=2, hdim=128, dtype=DTYPE_OF[row["dtype"]],
        seed=3, alibi=int(row["alibi"]),
    )  # fmt: skip
    return replace(case, **change)


@OF_KERNEL
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_any_shape(row: Row, data: st.DataObject) -> None:
    """Right in three orders of waves, in which dK and dV have the same bits."""
    draw = data.draw
    case = base(
        row,
        batch=draw(st.integers(1, 2)),
        seqlen_q=draw(LENGTHS),
        seqlen_k=draw(LENGTHS),
        nhead_k=draw(st.integers(1, 2)),
        ratio=draw(st.integers(1, 3)),
        hdim=draw(st.sampled_from((8, 72, 104, 120, 128))),
        hdim_v=draw(st.sampled_from((0, 8, 96, 128))),
        causal=draw(st.booleans()),
        window=draw(st.sampled_from(((-1, -1), (0, 0), (20, 3), (-1, 40)))),
        top_left=draw(st.booleans()),
        seed=draw(st.integers(0, 2**16)),
    )
    ask = Ask(grad_dtype=draw(st.sampled_from(("", "float32"))), accumulate=draw(st.booleans()))
    results = []
    for order in ORDERS:
        with wave_order(order):
            results.append(run_backward(case, by(row, case, ask)))
    for other in results[1:]:
        for name in ("dk", "dv"):
            assert np.array_equal(bits(results[0][name]), bits(other[name])), name


@OF_KERNEL
@pytest.mark.parametrize("accumulate", [False, True])
def test_many_query_heads(row: Row, accumulate: bool) -> None:
    """Several workgroups divide a group of query heads."""
    case = base(row, ratio=16, seqlen_q=33, seqlen_k=65, causal=True)
    run_backward(case, by(row, case, Ask(accumulate=accumulate)))


@OF_KERNEL
def test_infinite_log_sum_exp(row: Row) -> None:
    """Rows whose LSE is infinite have P 0."""
    case = base(row)
    plain = Backward(case, by(row, case))
    for infinite in (np.inf, -np.inf):
        lse = plain.lse.copy()
        lse[:, :, [3, 40, 69]] = infinite
        backward = Backward(case, by(row, case), results=(plain.o, lse, plain.dout))
        got = backward.run()
        if infinite > 0:
            backward.judge(got)
        assert all(np.isfinite(x.astype(np.float32)).all() for x in got.values())


@OF_KERNEL
@pytest.mark.parametrize("size", [1.4, 3.0], ids=["near -22", "near -100"])
def test_keys_that_are_not_there(row: Row, size: float) -> None:
    """Behind the last key scores would be 0: far above all others, and exp(0 - LSE) beyond 16 bits, or 32."""
    case = base(row)
    inputs = list(Backward(case).forward.inputs)
    for i, sign in ((0, 1), (1, -1)):
        inputs[i] = (inputs[i].astype(np.float32) / 16 + sign * size).astype(inputs[i].dtype)
    backward = Backward(case, by(row, case), inputs=inputs)
    assert backward.lse.max() < (-10 if size < 2 else -80)
    backward.judge(backward.run())


@OF_KERNEL
def test_what_it_does_not_do(row: Row) -> None:
    """The same bits each time, and packed sequences, are others'."""
    packed = base(row, batch=2, seqlen_q=40, seqlen_k=40, varlen=Varlen((30, 40), (40, 5)))
    assert row["name"] not in candidates(base(row), Ask(deterministic=True))
    assert row["name"] not in candidates(packed, Ask())
