# SPDX-License-Identifier: MIT OR Apache-2.0
"""AITER's backward kernels, which come as code objects: each against float64.

Under all checks but lds-race-equal, which Composable Kernel's do not pass either.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from backward import Ask, Backward, candidates, forced, run_backward
from built import DTYPE_OF, Row, rows, this_arch
from cases import Case, Layout, Varlen
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from plugins import hypothesis_profile
from strict import wave_order

OBJECTS = [row for row in rows("bwd") if row["origin"] == "aiter" and row["arch"] == this_arch()]
EXAMPLES = hypothesis_profile.EXAMPLES // 20
BASE = Case(batch=2, seqlen_q=150, seqlen_k=203, nhead_k=2, ratio=1, hdim=128, dtype="bfloat16", seed=5)
STARTS = (0, 70, 370, 370, 371)
pytestmark = pytest.mark.skipif(not OBJECTS, reason="this build has no prebuilt kernels")


@pytest.fixture(autouse=True)
def all_checks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """These objects have no hazards, unlike others of AITER's; but for M0 in those written for gfx950."""
    callspec = getattr(request.node, "callspec", None)
    row = callspec.params.get("row") if callspec else None
    if this_arch() != "gfx950" or (row and row["hdim_v"] != 128):
        monkeypatch.setenv("FMHA_EMU_CHECKS", "hazards-shipped")


def _name(row: Row) -> str:
    return str(row["name"])


def _case(row: Row, lengths_q: tuple[int, ...], lengths_k: tuple[int, ...]) -> Case:
    """Return a case for the kernel: packed sequences, or a batch of the first of them."""
    case = replace(
        BASE, dtype=DTYPE_OF[row["dtype"]], hdim=row["hdim_q"], hdim_v=row["hdim_v"],
        causal=row["mask"] == "top_left", top_left=row["mask"] == "top_left",
        seqlen_q=lengths_q[0], seqlen_k=lengths_k[0],
    )  # fmt: skip
    if row["layout"] == "batch":
        return case
    varlen = Varlen(lengths_q, lengths_k)
    return replace(
        case, batch=len(lengths_q), varlen=varlen, seqlen_q=max(lengths_q), seqlen_k=max(lengths_k)
    )


def _run(case: Case, row: Row, ask: Ask | None = None) -> None:
    """Run a case on this very kernel, whichever candidate it is."""
    run_backward(case, forced(case, ask or Ask(), row["name"]))


@pytest.mark.parametrize("lengths", [
    ((192, 300), (192, 100)), ((150, 0, 33), (203, 60, 130)), ((300, 1), (100, 500)), ((40, 257), (600, 31)),
    ((2, 90), (3, 0)), ((1,), (1,)), ((1,), (300,)), ((300,), (1,)), ((1, 1), (1, 70)),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("row", OBJECTS, ids=_name)
def test_lengths(row: Row, lengths: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    """Whole tiles and ragged ones; rows that see few keys; keys that no row sees; empty sequences."""
    case = _case(row, *lengths)
    if row["mask"] == "top_left" and case.seqlen_k == 1:
        pytest.skip("a single key is seen by all rows: no mask")
    _run(case, row)


@pytest.mark.parametrize("row", [row for row in OBJECTS if row["hdim_step"]], ids=_name)
def test_head_dims(row: Row) -> None:
    case = _case(row, (90, 33), (130, 70))
    for hdim in (row["hdim_q"] - 8, row["hdim_least"]):
        _run(replace(case, hdim=hdim, hdim_v=hdim), row)


LAYOUTS = st.builds(
    Layout,
    st.sampled_from(((0, 1, 2), (0, 2, 1), (1, 0, 2), (2, 0, 1))),
    st.tuples(*(st.integers(0, 2) for _ in range(3)), st.sampled_from((0, 8, 16))),
)
LENGTHS = st.lists(st.tuples(st.integers(1, 300), st.integers(1, 400)), min_size=1, max_size=3)


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random(data: st.DataObject) -> None:
    """Lengths, head dims, layouts, scales and orders of waves."""
    row = data.draw(st.sampled_from(OBJECTS), label="row")
    lengths_q, lengths_k = zip(*data.draw(LENGTHS), strict=True)
    assume(row["mask"] != "top_left" or _case(row, lengths_q, lengths_k).seqlen_k > 1)
    least = row["hdim_least"] if row["hdim_step"] else row["hdim_q"]
    hdim = data.draw(st.integers(least // 8, row["hdim_q"] // 8)) * 8
    case = replace(
        _case(row, lengths_q, lengths_k),
        hdim=hdim,
        hdim_v=min(hdim, row["hdim_v"]),
        nhead_k=data.draw(st.integers(1, 3)),
        layouts=(*(data.draw(LAYOUTS) for _ in range(3)), Layout()),
        seed=data.draw(st.integers(0, 999)),
        scale=data.draw(st.sampled_from((None, 0.02, 0.3))),
    )
    ask = Ask(layouts=tuple(data.draw(LAYOUTS) for _ in range(4)))  # type: ignore[arg-type]
    with wave_order(data.draw(st.sampled_from(("round", "reverse", "random:1")))):
        _run(case, row, ask)


@pytest.mark.parametrize("change", [
    {"ratio": 2}, {"causal": True}, {"window": (20, 3)}, {"hdim_v": 120},
    {"layouts": (Layout(), Layout(), Layout(), Layout((0, 1, 2), (0, 1, 0, 0)))},
    {"varlen": Varlen((90, 60), (150, 53), (0, 0), (0, 0))},
], ids=str)  # fmt: skip
def test_others_do(change: dict[str, object]) -> None:
    """They do not do these: more query heads than key heads, other masks, an LSE with gaps, seqused."""
    case = replace(BASE, **change)  # type: ignore[arg-type]
    assert not any("aiter" in name for name in candidates(case, Ask()))
    run_backward(case)


@pytest.mark.parametrize(
    "ask", [Ask(accumulate=True), Ask(deterministic=True), Ask(grad_dtype="float32")], ids=str
)
def test_others_are_asked(ask: Ask) -> None:
    assert not any("aiter" in name for name in candidates(BASE, ask))
    run_backward(BASE, ask)


def test_square() -> None:
    """Causal from bottom-right is causal from top-left if queries are as many as keys, as one array says."""
    hdim = min(row["hdim_q"] for row in OBJECTS if row["name"].endswith("aiter_causal_group"))
    base = replace(BASE, hdim=hdim)
    square = replace(base, seqlen_q=203, causal=True)
    run_backward(square, forced(square, Ask(), f"fmha_bwd_bf16_d{hdim}_aiter_causal"))
    lengths = tuple(np.diff(STARTS).tolist())
    packed = replace(base, batch=4, seqlen_q=300, seqlen_k=300, varlen=Varlen(lengths, lengths), causal=True)
    number = 1 + candidates(packed, Ask(), OfOneArray).index(f"fmha_bwd_bf16_d{hdim}_aiter_causal_group")
    backward = OfOneArray(packed, Ask(kernel=number))
    backward.judge(backward.run())


class OfOneArray(Backward):
    """Packed sequences whose queries and keys begin at the same rows, in one array."""

    def __init__(self, case: Case, ask: Ask) -> None:
        super().__init__(case, ask)
        self.forward.tensors["cu_k"] = self.forward.tensors["cu_q"]
