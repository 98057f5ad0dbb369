# SPDX-License-Identifier: MIT OR Apache-2.0
"""Our own forward kernels with 8-bit floats, native/kernels/hip/fwd/fwd_pingpong_fp8.h: what is their own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from built import DTYPE_OF, Row, fp8, rows, this_arch
from cases import Case, Layout, Placement, Varlen, expected, forced, judge, numerics_by, run_raw, run_shared
from hypothesis import given, settings
from hypothesis import strategies as st
from plugins import hypothesis_profile

import pyfa_rocm
from pyfa_rocm import FwdParams, Strided
from pyfa_rocm._call.params import CATALOGUE_TYPES
from pyfa_rocm.oracle.rounding import P_SCALES

FP8 = fp8()
OURS = [
    row
    for row in rows()
    if row["pipeline"] == "pingpong" and row["arch"] == this_arch() and row["dtype"] == CATALOGUE_TYPES[FP8]
]
EXAMPLES = hypothesis_profile.EXAMPLES // 10
pytestmark = pytest.mark.skipif(not OURS, reason="this build has none")


def _name(row: Row) -> str:
    return str(row["name"])


def _case(row: Row, seqlen_q: int, seqlen_k: int) -> Case:
    return Case(
        batch=1, seqlen_q=seqlen_q, seqlen_k=seqlen_k, nhead_k=2, ratio=1, hdim=row["hdim_q"],
        hdim_v=row["hdim_v"], dtype=FP8, o_dtype=DTYPE_OF[row["o_dtype"]], lse=True,
        varlen=Varlen((seqlen_q,), (seqlen_k,)) if row["group"] else None,
    )  # fmt: skip


def _run(row: Row, case: Case, inputs: list[np.ndarray], scale: float | None = None) -> np.ndarray:
    """Run a case on a kernel, judge it, and return O."""
    placement = Placement(forced(case, row["name"]), inputs)
    placement.case = replace(placement.case, scale=scale)
    params = placement.params()
    kernel = pyfa_rocm.fmha_fwd_kernel(params)
    assert kernel.name == row["name"]
    pyfa_rocm.fmha_fwd(params)
    o, lse = placement.results()
    judge(expected(placement.case, inputs, numerics_by(kernel, case)), o, lse)
    return o


def _most(case: Case, q: np.ndarray, k: np.ndarray) -> float:
    """The largest product of a q and its k."""
    wide = (x[0].astype(np.float64).transpose(1, 0, 2) for x in (q, np.repeat(k, case.ratio, axis=2)))
    first, second = wide
    return float(np.abs(first @ second.transpose(0, 2, 1)).max())


@pytest.mark.parametrize("row", OURS, ids=_name)
@pytest.mark.parametrize("most", [1e3, 7.2e5])
def test_largest_scores(row: Row, most: float) -> None:
    """The type has P of a row's largest score, whatever float32 rounds off that score."""
    case = _case(row, 300, 300)
    inputs = case.inputs()
    o = _run(row, case, inputs, most / _most(case, *inputs[:2]))
    assert np.isfinite(o).all()


@pytest.mark.parametrize("row", OURS, ids=_name)
@pytest.mark.parametrize("rise", [0.7, 0.79, 0.85, 1.5])
def test_rises_just_below_the_largest_number(row: Row, rise: float) -> None:
    """The reference may stay behind a maximum whose P the type still has, but behind no larger one.

    A row of 1024 equal scores is followed by keys whose scores lie so many powers of two higher.
    """
    case = _case(row, 40, 1024 + 70)
    q, k, v = case.inputs()
    q[...], k[...] = 0, 0
    q[..., 0], k[:, 1024:, :, 0] = 1, 1
    o = _run(row, case, [q, k, v], rise * float(np.log(2)))
    assert np.isfinite(o).all()


@pytest.mark.parametrize("row", OURS, ids=_name)
def test_least_factor_on_v(row: Row) -> None:
    """O is divided by its row's sum before the factor on V: their product may be too small for float32."""
    least = 1.001 * P_SCALES[FP8] * float(np.finfo(np.float32).tiny)
    case = replace(_case(row, 70, 200), descale=(1.0, 1.0, least))
    q, k, v = case.inputs()
    v[...] = np.where(v.astype(np.float32) < 0, -P_SCALES[FP8], P_SCALES[FP8]).astype(v.dtype)
    _run(row, case, [q, k, v])
    placement = Placement(replace(case, descale=(1.0, 1.0, 1e-36)))
    with pytest.raises(pyfa_rocm.UnsupportedError, match="v_descale = 1e-36: kernels take"):
        pyfa_rocm.fmha_fwd(placement.params())
    assert placement.unchanged()


@pytest.mark.parametrize("row", OURS, ids=_name)
def test_largest_values(row: Row) -> None:
    """Numbers of the type's largest size, in q, k and v."""
    case = replace(_case(row, 90, 333), descale=(1 / 64, 1 / 64, 1.0))
    q, k, v = case.inputs()
    rng = np.random.default_rng(1)
    for x in (q, k, v):
        x[...] = rng.choice([-P_SCALES[FP8], P_SCALES[FP8]], x.shape).astype(x.dtype)
    _run(row, case, [q, k, v])


@st.composite
def problems(draw: st.DrawFn) -> Case:
    orders = [Layout((0, 1, 2)), Layout((0, 2, 1)), Layout((1, 0, 2)), Layout((0, 1, 2), (0, 2, 1, 64), 208)]
    return Case(
        batch=draw(st.integers(1, 3)), seqlen_q=draw(st.integers(1, 600)), seqlen_k=draw(st.integers(1, 700)),
        nhead_k=draw(st.integers(1, 3)), ratio=draw(st.integers(1, 3)), hdim=16 * draw(st.integers(1, 16)),
        hdim_v=16 * draw(st.integers(1, 16)), dtype=FP8, lse=draw(st.booleans()), causal=draw(st.booleans()),
        top_left=draw(st.booleans()),
        window=draw(st.sampled_from(((-1, -1), (0, 0), (70, 3), (-1, 20), (200, -1)))),
        layouts=(*(draw(st.sampled_from(orders)) for _ in range(3)), draw(st.sampled_from(orders[:3]))),
        scale=draw(st.sampled_from((None, 0.02, 0.5))), seed=draw(st.integers(0, 2**32)),
        descale=draw(st.sampled_from(((1.0, 1.0, 1.0), (0.5, 1.5, 3.0)))),
    )  # fmt: skip


@settings(max_examples=EXAMPLES)
@given(case=problems(), number=st.integers(0, 99))
def test_random(case: Case, number: int) -> None:
    able = [row for row in OURS if row["mask"] and not row["group"]]
    able = [row for row in able if row["hdim_q"] >= case.hdim and row["hdim_v"] >= case.hdim_v]
    row = able[number % len(able)]
    case = replace(case, o_dtype=DTYPE_OF[row["o_dtype"]])
    run_raw(forced(case, row["name"]), orders=("reverse", "random:1", "random:2"))


SHARED = Case(
    batch=1, seqlen_q=300, seqlen_k=2100, nhead_k=1, ratio=1, hdim=128, dtype=FP8, o_dtype="bfloat16",
    lse=True, descale=(0.5, 1.5, 3.0),
)  # fmt: skip


@pytest.mark.parametrize(
    "change", [{}, {"hdim": 64, "ratio": 2}, {"hdim": 256}, {"seqlen_q": 600, "causal": True}], ids=str
)
def test_shared_keys(change: dict[str, int]) -> None:
    """Workgroups that divide the keys of a tile: right, and the same each time."""
    case = replace(SHARED, **change)  # type: ignore[arg-type]
    info, inputs, results = run_shared(case)
    judge(expected(case, inputs, numerics_by(info, case)), *results)


@pytest.mark.parametrize(("hdim", "causal"), [(128, False), (128, True), (64, False), (256, True)])
def test_is_chosen(hdim: int, causal: bool) -> None:
    """The library takes it rather than Composable Kernel's."""
    n, nhead_q, nhead_k = 4096, 64, 8
    q, k = (Strided(0, n * nhead * hdim, nhead * hdim, hdim) for nhead in (nhead_q, nhead_k))
    info = pyfa_rocm.fmha_fwd_kernel(
        FwdParams(
            dtype=FP8, o_dtype="bfloat16", batch=4, seqlen_q=n, seqlen_k=n, nhead_q=nhead_q, nhead_k=nhead_k,
            hdim_q=hdim, hdim_v=hdim, softmax_scale=hdim**-0.5, mask="causal" if causal else "none",
            q=q, k=k, v=k, o=q,
        )
    )  # fmt: skip
    assert info.pipeline == "pingpong"
