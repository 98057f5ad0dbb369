# SPDX-License-Identifier: MIT OR Apache-2.0
"""ALiBi and softcap of our own forward kernel (native/kernels/hip/fwd/fwd_pingpong_scores.h)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from built import Row, rows, this_arch
from cases import Case, Placement, Varlen, expected, forced, judge, run_raw

import pyfa_rocm

OURS = [row for row in rows() if row["pipeline"] == "pingpong" and row["arch"] == this_arch()]
WITH_ALIBI = [row for row in OURS if row["bias"] == "alibi"]
WITH_CAP = [row for row in OURS if row["softcap"]]
DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
LINE = 0.3  # of the cap: above it a block is capped by the exponential
pytestmark = pytest.mark.skipif(not OURS, reason="this build has none")


def _name(row: Row) -> str:
    return str(row["name"])


@dataclass(frozen=True)
class Sloped(Case):
    """A case whose slopes are given; they repeat."""

    given: tuple[float, ...] = ()

    def slopes(self) -> npt.NDArray[Any]:
        """See Case."""
        return np.resize(np.array(self.given, np.float32), self.slopes_shape)


def _fields(row: Row, **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "batch": 2, "seqlen_q": 300, "seqlen_k": 430, "nhead_k": 2, "ratio": 2, "hdim": row["hdim_q"],
        "dtype": DTYPES[row["dtype"]], "lse": True,
    }  # fmt: skip
    if row["group"]:
        fields["varlen"] = Varlen((300, 70), (201, 430))
    return fields | more


SLOPES = {
    "zero": (0.0,),
    "negative": (-0.5, -(2.0**-8), 0.5, 0.0),
    "steep": (30.0, -7.0, 1e4, 1e-6),
    "usual": (0.5, 0.25, 0.125, 0.0625, 2.0**-8),
}
MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "causal": {"causal": True},
    "top_left": {"causal": True, "top_left": True},
    "window": {"window": (130, 40)},
    "more rows": {"seqlen_q": 430, "seqlen_k": 150, "varlen": None},
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("slopes", SLOPES)
@pytest.mark.parametrize("row", WITH_ALIBI, ids=_name)
def test_slopes(row: Row, slopes: str, mask: str) -> None:
    """Any slopes, which differ by head and batch; blocks in front of the diagonal, across it and behind."""
    fields = _fields(row, alibi=2, given=SLOPES[slopes], **MASKS[mask])
    if row["group"] and fields["varlen"] is None:
        fields["varlen"] = Varlen((430, 90), (150, 150))
    run_raw(forced(Sloped(**fields), row["name"]))


@pytest.mark.parametrize("row", WITH_ALIBI, ids=_name)
def test_one_row_far_away(row: Row) -> None:
    """A row sees its nearest keys through a steep slope, wherever it lies; the reference falls on the way."""
    lengths = (1, 1500)
    varlen = Varlen((lengths[0],) * 2, (lengths[1],) * 2) if row["group"] else None
    for slope in (0.3, -0.3):
        case = Case(**_fields(row, seqlen_q=1, seqlen_k=1500, alibi=1, slope=slope, varlen=varlen))
        run_raw(forced(case, row["name"]))
        run_raw(forced(replace(case, top_left=True), row["name"]))


@pytest.mark.parametrize("cap", [0.5, 2.0, 5.0, 50.0, 800.0])
@pytest.mark.parametrize("scale", [None, 1e-4, 1.0])
@pytest.mark.parametrize("row", WITH_CAP, ids=_name)
def test_caps(row: Row, scale: float | None, cap: float) -> None:
    """Steep caps, and some that hardly change anything.

    With a cap much below these all P lie near one or two numbers, whose rounding errors have a mean.
    """
    run_raw(forced(Case(**_fields(row, softcap=cap, scale=scale, causal=True)), row["name"]))


@pytest.mark.parametrize("share", [LINE * 0.999, LINE * 1.001, 1.0, 20.0])
@pytest.mark.parametrize("row", WITH_CAP, ids=_name)
def test_where_the_line_ends(row: Row, share: float) -> None:
    """The largest score of each block is this share of the cap, of either sign."""
    case = Case(**_fields(row, softcap=30.0))
    q, k, v = case.inputs()
    q[..., 0], k[..., 0] = 16, 0
    scores = 16 * case.hdim**-0.5
    k[:, 5::32, :, 0] = share * case.softcap / scores
    k[:, 9::32, :, 0] = -share * case.softcap / scores
    q[..., 1:] /= 64
    _judge(row, case, [q, k, v])


@pytest.mark.parametrize("row", [row for row in WITH_CAP if row["dtype"] == "bf16"], ids=_name)
def test_infinite_products(row: Row) -> None:
    """Products that are no float32 any more are as large as the cap, of either sign."""
    case = Case(**_fields(row, softcap=3.0, causal=True))
    q, k, v = case.inputs()
    q[...], k[...] = 1e20, np.where(np.arange(k.shape[1])[:, None, None] % 3 == 0, -1e20, 1e20)
    _judge(row, case, [q, k, v])


@pytest.mark.parametrize(("scale", "cap"), [(1e-12, 1.0), (1.0, 1e-20), (1e-37, 1e-37), (1e-30, 700.0)])
@pytest.mark.parametrize("row", WITH_CAP, ids=_name)
def test_no_line(row: Row, scale: float, cap: float) -> None:
    """Quotients of the scale and the cap whose powers are no float32: all is capped by the exponential."""
    run_raw(forced(Case(**_fields(row, softcap=cap, scale=scale)), row["name"]))


def _judge(row: Row, case: Case, inputs: list[Any]) -> None:
    placement = Placement(forced(case, row["name"]), inputs)
    pyfa_rocm.fmha_fwd(placement.params())
    judge(expected(case, inputs), *placement.results())
