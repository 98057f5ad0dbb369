# SPDX-License-Identifier: MIT OR Apache-2.0
"""float32, and the device's 8-bit float with its outputs and descales."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from built import candidates, fp8, other_fp8, rows, this_arch
from cases import (
    Case,
    Dropout,
    Placement,
    cases,
    expected,
    judge,
    numerics_by,
    run_flash,
    run_or_refused,
    run_raw,
)
from hypothesis import given, settings
from plugins.hypothesis_profile import EXAMPLES

import pyfa_rocm
from pyfa_rocm._call.params import CATALOGUE_TYPES
from pyfa_rocm.oracle.rounding import P_SCALES, fp8_of, smallest_ulp

FP8 = fp8()
_FP8 = CATALOGUE_TYPES[FP8]
BASE = Case(
    batch=2, seqlen_q=150, seqlen_k=211, nhead_k=2, ratio=2, hdim=128, dtype="float32", seed=17, lse=False
)


def _hdims(dtype: str) -> tuple[int, ...]:
    """Head dims of the kernels of a type, and some below where they are padded."""
    found = set()
    for row in rows():
        if row["dtype"] == dtype and row["hdim_q"] == row["hdim_v"]:
            step = row["hdim_step"]
            found |= {row["hdim_q"]} | ({row["hdim_q"] - step, row["hdim_q"] - 2 * step} if step else set())
    return tuple(sorted(found))


@pytest.mark.skipif(not _hdims("fp32"), reason="no float32 kernel in this library")
@settings(max_examples=EXAMPLES // 4)
@given(case=cases(dtypes=("float32",), hdims=_hdims("fp32") or (128,), max_tiles=8))
def test_random_float32(case: Case) -> None:
    run_or_refused(case)


@pytest.mark.skipif(not _hdims(_FP8), reason="no fp8 kernel in this library")
@settings(max_examples=EXAMPLES * 3 // 8)
@given(case=cases(dtypes=(FP8,), hdims=_hdims(_FP8) or (128,), sinks=(False, True), max_tiles=24))
def test_random_fp8(case: Case) -> None:
    run_or_refused(case)


@pytest.mark.parametrize("o_dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("mask", [{}, {"causal": True}], ids=str)
def test_fp8(o_dtype: str, mask: dict[str, object]) -> None:
    case = replace(BASE, dtype=FP8, o_dtype=o_dtype, descale=(0.25, 2.0, 3.0), **mask)  # type: ignore[arg-type]
    if not candidates(case):
        pytest.skip("no such kernel in this library")
    run_raw(case)
    run_flash(case)


@pytest.mark.parametrize("mask", [{}, {"causal": True}, {"window": (60, 9)}], ids=str)
@pytest.mark.parametrize("lse", [False, True])
def test_float32(mask: dict[str, object], lse: bool) -> None:
    case = replace(BASE, lse=lse, **mask)  # type: ignore[arg-type]
    if not candidates(case):
        pytest.skip("no such kernel in this library")
    run_raw(case)
    run_flash(case)


def _exact(case: Case) -> Case:
    """The case with an output of as many bits as this library has a kernel for."""
    for o_dtype in ("float32", "float16", "bfloat16"):
        if candidates(replace(case, o_dtype=o_dtype)):
            return replace(case, o_dtype=o_dtype)
    pytest.skip("no such kernel in this library")


def test_large_and_small_fp8_values() -> None:
    """The largest numbers of the type, and subnormals, through descales that bring them to size."""
    most, least = P_SCALES[FP8], smallest_ulp(FP8)
    case = _exact(replace(BASE, dtype=FP8, descale=(1 / most, 1 / most, 0.5 / least)))
    q, k, v = case.inputs()
    rng = np.random.default_rng(2)
    q[...], k[...] = (rng.choice([-most, most, 1.0], x.shape).astype(x.dtype) for x in (q, k))
    v[...] = rng.choice([least, -2 * least, 3 * least], v.shape).astype(v.dtype)
    placement = Placement(case, [q, k, v])
    kernel = pyfa_rocm.fmha_fwd_kernel(placement.params())
    pyfa_rocm.fmha_fwd(placement.params())
    judge(expected(case, [q, k, v], numerics_by(kernel, case)), *placement.results())


def test_largest_scores_of_fp8() -> None:
    """Up to 7.2e5 a row's largest P is rounded to the type's largest number, and not to NaN beyond it."""
    case = _exact(replace(BASE, dtype=FP8, seqlen_q=300, seqlen_k=64))
    q, k, v = case.inputs()
    scores = np.einsum("bihd,bjhd->bhij", *(x.astype(np.float64) for x in (q, np.repeat(k, 2, axis=2))))
    placement = Placement(case, [q, k, v])
    placement.case = replace(case, scale=7.2e5 / float(np.abs(scores).max()))
    for number in range(1, len(candidates(case)) + 1):
        params = replace(placement.params(), kernel=number)
        kernel = pyfa_rocm.fmha_fwd_kernel(params)
        pyfa_rocm.fmha_fwd(params)
        o, _ = placement.results()
        assert np.isfinite(o).all()
        judge(expected(placement.case, [q, k, v], numerics_by(kernel, case)), o, None)


def test_the_other_fp8_is_refused() -> None:
    """Its bytes are other numbers on this device, and are not taken for its own."""
    placement = Placement(replace(BASE, dtype=other_fp8(), o_dtype="bfloat16"))
    with pytest.raises(pyfa_rocm.UnsupportedError) as caught:
        pyfa_rocm.fmha_fwd(placement.params())
    got, said = CATALOGUE_TYPES[other_fp8()], str(caught.value)
    assert f"dtype = {got}: this build has no such kernel for {this_arch()}" in said
    if fp8_of(this_arch()):
        assert f"{got} is {other_fp8()}, and {this_arch()} has {_FP8}, {FP8}" in said
    assert placement.unchanged()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"dtype": FP8, "o_dtype": FP8}, "o_dtype|dtype"),
        ({"dtype": "bfloat16", "o_dtype": "float16"}, "o_dtype"),
        ({"dtype": "bfloat16", "descale": (2.0, 1.0, 1.0)}, "descale"),
        ({"dtype": FP8, "o_dtype": "bfloat16", "dropout": Dropout(0.5)}, "dropout|dtype"),
    ],
    ids=str,
)
def test_what_no_kernel_does_is_refused(change: dict[str, object], word: str) -> None:
    placement = Placement(replace(BASE, **change))  # type: ignore[arg-type]
    with pytest.raises((pyfa_rocm.UnsupportedError, pyfa_rocm.InvalidArgumentError), match=word):
        pyfa_rocm.fmha_fwd(placement.params())
    assert placement.unchanged()
