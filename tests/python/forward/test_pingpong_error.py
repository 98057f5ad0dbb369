# SPDX-License-Identifier: MIT OR Apache-2.0
"""How large the error of O is of our own forward kernel, beside that of an exact reference of exponentials.

A row's largest P has no rounding error if it is a power of two. The kernel lets the reference stay behind the
maximum, but only where that hardly shows (native/kernels/hip/fwd/fwd_pingpong_softmax.h).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from built import DTYPE_OF, Row, rows, this_arch
from cases import DTYPES, Case, Placement, Varlen, forced, numerics_by

import pyfa_rocm

Float64 = npt.NDArray[np.float64]

OURS = [row for row in rows() if row["pipeline"] == "pingpong" and row["arch"] == this_arch()]
N = 512
ROWS = np.arange(N)
MARGIN = 1.02
CAP = 5.0  # some scores lie where it is nearly a line, and some do not
pytestmark = pytest.mark.skipif(not OURS, reason="this build has none")


def _inputs(case: Case, kind: str) -> list[Any]:
    """Normal numbers; of "outliers" one in a thousand is ten times larger; of "peaked" q is three times."""
    rng = np.random.default_rng(case.seed)
    inputs = []
    for shape in (case.q_shape, case.k_shape, case.v_shape):
        x = rng.standard_normal(shape, np.float32)
        if kind == "outliers":
            x[rng.random(shape) < 1e-3] *= 10
        inputs.append(x)
    if kind == "peaked":
        inputs[0] *= 3
    return [x.astype(DTYPES[case.dtype]) for x in inputs]


def _attention(
    case: Case, inputs: list[Any], block: int, p_dtype: npt.DTypeLike, one: float = 1.0
) -> Float64:
    """O as (1, N, nhead, hdim) in float64, but for P. A block's P is rounded where the maximum has `one`."""
    q, k, v = (x[0].astype(np.float64).transpose(1, 0, 2) for x in inputs)
    scores = q @ k.transpose(0, 2, 1) * case.hdim**-0.5
    if case.softcap:
        scores = case.softcap * np.tanh(scores / case.softcap)
    if case.alibi:
        scores -= case.slopes().astype(np.float64).reshape(-1, 1, 1) * np.abs(np.subtract.outer(ROWS, ROWS))
    if case.causal:
        scores[:, ~np.tri(N, dtype=np.bool_)] = -np.inf
    most, total, o = np.full((*q.shape[:2], 1), -np.inf), np.zeros(()), np.zeros(())
    for first in range(0, N, block):
        of_block = scores[..., first : first + block]
        before, most = most, np.maximum(most, of_block.max(-1, keepdims=True))
        p, factor = one * np.exp(of_block - most), np.exp(before - most)
        total = total * factor + p.sum(-1, keepdims=True)
        o = o * factor + p.astype(p_dtype).astype(np.float64) @ v[:, first : first + block]
    return np.asarray((o / total).transpose(1, 0, 2)[None])


def _rms(x: Any) -> float:
    return float(np.sqrt((x.astype(np.float64) ** 2).mean()))


@pytest.mark.parametrize("kind", ["normal", "outliers", "peaked"])
@pytest.mark.parametrize("row", OURS, ids=lambda row: str(row["name"]))
def test_error(row: Row, kind: str) -> None:
    """The RMS error of O is at most a fiftieth above that of a reference which follows each maximum."""
    hdim, hdim_v = row["hdim_q"], row["hdim_v"]
    case = Case(
        batch=1, seqlen_q=N, seqlen_k=N, nhead_k=4, ratio=1, hdim=hdim, hdim_v=hdim_v,
        dtype=DTYPE_OF[row["dtype"]], causal=row["mask"], seed=7 + hdim + N,
        varlen=Varlen((N,), (N,)) if row["group"] else None,
        alibi=1 if row["bias"] == "alibi" else 0, softcap=CAP if row["softcap"] else 0.0,
        o_dtype="" if row["dtype"] == row["o_dtype"] else DTYPE_OF[row["o_dtype"]],
    )  # fmt: skip
    inputs = _inputs(case, kind)
    placement = Placement(forced(case, row["name"]), inputs)
    one = numerics_by(pyfa_rocm.fmha_fwd_kernel(placement.params()), case).p_scale
    pyfa_rocm.fmha_fwd(placement.params())
    o, _ = placement.results()
    block = row["tile_n"]
    right = _attention(case, inputs, block, np.float64)
    rounded = _attention(case, inputs, block, DTYPES[case.dtype], one).astype(o.dtype)
    error, exact = _rms(o - right), _rms(rounded - right)
    assert error <= MARGIN * exact, f"{error / exact:.3f} times {exact / _rms(right):.3g}"
