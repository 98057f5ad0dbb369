# SPDX-License-Identifier: MIT OR Apache-2.0
"""AITER's kernels, which come as code objects: each forced, against float64."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace

import numpy as np
import pytest
from built import Row, candidates, rows, this_arch
from cases import Case, Layout, forced, run_raw
from cases_judge import judge
from cases_types import DTYPES
from hypothesis import given, settings
from hypothesis import strategies as st
from inner import run_as
from plugins import hypothesis_profile
from reference import attention, numerics_of

import pyfa_rocm
from pyfa_rocm import DeviceArray, emulator, flash_attn_varlen_func

OBJECTS = [row for row in rows() if row["origin"] == "aiter"]
EXAMPLES = hypothesis_profile.EXAMPLES // 20
BASE = Case(batch=2, seqlen_q=130, seqlen_k=200, nhead_k=2, ratio=2, hdim=128, dtype="bfloat16", lse=True)
pytestmark = pytest.mark.skipif(not OBJECTS, reason="this build has no prebuilt kernels")


def _usable(*, group: bool) -> list[Row]:
    """Kernels for the first device."""
    units = pyfa_rocm.devices()[0].compute_units
    return [
        row
        for row in OBJECTS
        if row["group"] == group and row["arch"] == this_arch() and units in row["compute_units"]
    ]


BATCHED, PACKED = _usable(group=False), _usable(group=True)


def _name(row: Row) -> str:
    return str(row["name"])


@pytest.mark.parametrize(
    "lengths", [(1, 1), (256, 96), (130, 200), (300, 300), (513, 520), (7, 600), (96, 33)]
)
@pytest.mark.parametrize("row", BATCHED, ids=_name)
def test_lengths(row: Row, lengths: tuple[int, int]) -> None:
    m, n = lengths
    if row["causal"] and (m > n or n == 1):
        pytest.skip("every row of queries has to see a key, and some not to: then another kernel is chosen")
    case = replace(BASE, seqlen_q=m, seqlen_k=n, causal=row["causal"], seed=m)
    assert run_raw(forced(case, row["name"])) == row["name"]


@st.composite
def problems(draw: st.DrawFn) -> Case:
    causal = draw(st.sampled_from(sorted({row["causal"] for row in BATCHED})))
    seqlen_q = draw(st.integers(1, 300))
    seqlen_k = draw(st.integers(seqlen_q + 1 if causal else 1, 400))
    orders = [Layout((0, 1, 2)), Layout((0, 2, 1)), Layout((1, 0, 2)), Layout((0, 1, 2), (0, 2, 1, 64), 208)]
    return Case(
        batch=draw(st.integers(1, 2)), seqlen_q=max(seqlen_q, 2 if causal else 1), seqlen_k=max(seqlen_k, 3),
        nhead_k=draw(st.integers(1, 3)), ratio=draw(st.sampled_from((2, 4))), hdim=128, dtype="bfloat16",
        lse=draw(st.booleans()), causal=causal, seed=draw(st.integers(0, 2**32)),
        layouts=(*(draw(st.sampled_from(orders)) for _ in range(3)), draw(st.sampled_from(orders[:3]))),
        scale=draw(st.sampled_from((None, 0.02, 0.5))),
    )  # fmt: skip


@pytest.mark.skipif(not BATCHED, reason="this device has none")
@settings(max_examples=EXAMPLES)
@given(case=problems(), which=st.integers(0, 7))
def test_random(case: Case, which: int) -> None:
    able = [row["name"] for row in candidates(case) if row["origin"] == "aiter"]
    assert able
    run_raw(forced(case, able[which % len(able)]))


@pytest.mark.parametrize("lengths", [(70, 300, 0, 1), (513,)])
@pytest.mark.parametrize("row", PACKED, ids=_name)
def test_packed(row: Row, lengths: tuple[int, ...]) -> None:
    """Sequences of queries and keys of the same lengths, which one array says."""
    rng = np.random.default_rng(sum(lengths))
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    q, k, v = (
        rng.standard_normal((starts[-1], heads, 128), np.float32).astype(DTYPES["bfloat16"])
        for heads in (4, 2, 2)
    )
    dq, dk, dv = (DeviceArray.from_numpy(x) for x in (q, k, v))
    cu = DeviceArray.from_numpy(starts)
    rounding = row["name"].partition("_aiter")[2].partition("_mi")[0]  # "", "_rtna" or "_rtne"
    symbol = f"bf16{'_causal' * row['causal']}{rounding}_group"
    for kernel in itertools.count(1):  # behind the last candidate the call fails
        with emulator.profile() as profile:
            o, lse = flash_attn_varlen_func(
                dq, dk, dv, cu, cu, max(lengths), max(lengths), causal=row["causal"], return_lse=True,
                kernel=kernel,
            )  # fmt: skip
        if symbol in profile.launches[0].kernel:
            break
    host_o, host_lse = o.to_numpy(), lse.to_numpy()
    numerics = numerics_of("bfloat16", None, row["tile_n"], row["arch"])
    for begin, end in itertools.pairwise(starts):
        own = slice(begin, end)
        want = attention(q[None, own], k[None, own], v[None, own], causal=row["causal"], numerics=numerics)
        judge(want, host_o[None, own], host_lse[None, :, own])


@pytest.mark.skipif("FMHA_EMU_CARD" in os.environ, reason="this is the other card")
def test_other_card(device_kind: str) -> None:
    """The objects for an MI308X, on a software device that plays one."""
    if (
        device_kind == "gpu"
        or this_arch() != "gfx942"
        or all(80 not in row["compute_units"] for row in OBJECTS)
    ):
        pytest.skip("no such objects, or no choice of card")
    assert " passed" in run_as("gfx942", __file__, FMHA_EMU_CARD="AMD Instinct MI308X")
