# SPDX-License-Identifier: MIT OR Apache-2.0
"""Gradients of head dims above 256, by kernels whose waves share rows, and exchange parts of scores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from backward import Ask, Backward, by, run_backward
from built import DTYPE_OF, Row, rows, this_arch
from cases import Case, Varlen, bits
from hypothesis import given, settings
from hypothesis import strategies as st
from plugins import hypothesis_profile
from strict import wave_order

EXAMPLES = max(2, hypothesis_profile.EXAMPLES // 12)
ORDERS = ("round", "reverse", "random:1")
KERNELS = [row for row in rows("bwd") if row["pipeline"] == "halves" and row["arch"] == this_arch()]
OF_KERNEL = pytest.mark.parametrize("row", KERNELS, ids=[row["name"] for row in KERNELS])
# Beside the ends of blocks and of a workgroup's rows, and any.
LENGTHS = st.sampled_from((0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129)) | st.integers(0, 130)


def base(row: Row, **change: Any) -> Case:
    """A small case with the features of a kernel."""
    case = Case(
        batch=1, seqlen_q=70, seqlen_k=90, nhead_k=1, ratio=2, hdim=512, dtype=DTYPE_OF[row["dtype"]], seed=3,
        alibi=int(row["alibi"]), softcap=4.0 if row["softcap"] else 0.0,
    )  # fmt: skip
    return replace(case, **change)


@OF_KERNEL
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_any_shape(row: Row, data: st.DataObject) -> None:
    """Right, and of the same bits in three orders of waves."""
    draw = data.draw
    hdim = draw(st.sampled_from((264, 320, 392, 448, 504, 512)))
    case = base(
        row,
        batch=draw(st.integers(1, 2)),
        seqlen_q=draw(LENGTHS),
        seqlen_k=draw(LENGTHS),
        nhead_k=draw(st.integers(1, 2)),
        ratio=draw(st.integers(1, 3)),
        hdim=hdim,
        hdim_v=draw(st.sampled_from((0, 264, 384, 512))),
        causal=draw(st.booleans()),
        window=draw(st.sampled_from(((-1, -1), (0, 0), (20, 3), (-1, 40)))),
        top_left=draw(st.booleans()),
        seed=draw(st.integers(0, 2**16)),
    )
    ask = by(
        row, case, Ask(grad_dtype=draw(st.sampled_from(("", "float32"))), accumulate=draw(st.booleans()))
    )
    results = []
    for order in ORDERS:
        with wave_order(order):
            results.append(run_backward(case, ask))
    for other in results[1:]:
        for name, got in other.items():
            assert np.array_equal(bits(results[0][name]), bits(got)), name


@OF_KERNEL
@pytest.mark.parametrize("used", [False, True])
def test_packed_sequences(row: Row, used: bool) -> None:
    """Lengths differ, and some are 0; not all rows are in use."""
    slack = ((3, 0, 20, 1), (0, 9, 2, 0)) if used else (None, None)
    varlen = Varlen((100, 0, 33, 65), (50, 60, 0, 130), *slack)
    case = base(row, batch=4, seqlen_q=100, seqlen_k=130, ratio=3, varlen=varlen, causal=True)
    run_backward(case, by(row, case))
    case = replace(case, causal=False, hdim=328, hdim_v=512)
    run_backward(case, by(row, case, Ask(grad_dtype="float32", accumulate=True)))


@OF_KERNEL
def test_many_query_heads(row: Row) -> None:
    """Several workgroups divide a group of query heads."""
    case = base(row, ratio=16, seqlen_q=33, seqlen_k=65)
    run_backward(case, by(row, case))


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
