# SPDX-License-Identifier: MIT OR Apache-2.0
"""Packed sequences of different lengths. Rows that belong to none are NaN, neither to be read nor written."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from built import nearest
from cases import Bias, Case, Dropout, Layout, Varlen, cases, run_flash, run_or_refused, run_raw
from hypothesis import given, settings
from plugins.hypothesis_profile import EXAMPLES

import pyfa_rocm
from pyfa_rocm import DeviceArray, backward
from pyfa_rocm import varlen as _varlen

BASE = Case(
    batch=3, seqlen_q=200, seqlen_k=333, nhead_k=2, ratio=2, hdim=128, dtype="bfloat16", seed=7,
    varlen=Varlen((200, 1, 77), (130, 333, 64)),
)  # fmt: skip
GAPS = Layout((0, 1, 2), (0, 3, 1, 8), 64)


def both(case: Case) -> None:
    run_raw(case)
    run_flash(case)


@settings(max_examples=EXAMPLES)
@given(case=cases(varlen=(True,), sinks=(False, True)))
def test_random(case: Case) -> None:
    run_or_refused(case)


@settings(max_examples=EXAMPLES * 3 // 8)
@given(case=cases(varlen=(True,), sinks=(False, True), max_tiles=24))
def test_random_flash(case: Case) -> None:
    run_flash(case)


@pytest.mark.parametrize(
    "varlen",
    [
        Varlen((0, 0, 0), (5, 0, 3)),
        Varlen((5, 9, 3), (0, 0, 0)),
        Varlen((0, 200, 0), (0, 333, 7)),
        Varlen((0, 200, 0), (0, 0, 7), (0, 5, 0), (3, 0, 9)),
        Varlen((1, 1, 1), (1, 1, 1)),
        Varlen((128, 128, 128), (128, 256, 128)),
        Varlen((5, 6, 7), (50, 60, 70), None, (100, 0, 9)),
        Varlen((5, 6, 7), (50, 60, 70), (0, 140, 3), None),
        Varlen((200, 0, 130), (300, 1, 129), (20, 30, 40), (50, 60, 70)),
    ],
    ids=str,
)
@pytest.mark.parametrize("mask", [{}, {"causal": True}, {"window": (40, 3), "top_left": True}], ids=str)
def test_lengths(varlen: Varlen, mask: dict[str, object]) -> None:
    """Empty sequences, slots longer than what is in use, and both."""
    case = replace(BASE, varlen=varlen, layouts=(GAPS,) * 4, **mask)  # type: ignore[arg-type]
    # No rows at all go with upper bounds of 0, so that a forgotten total is seen.
    both(replace(case, seqlen_q=min(200, 200 * case.total_q), seqlen_k=min(333, 333 * case.total_k)))


def test_one_sequence() -> None:
    both(replace(BASE, batch=1, varlen=Varlen((150,), (150,)), causal=True))


def test_many_sequences() -> None:
    lengths = tuple(i * 7 % 23 for i in range(40))
    both(replace(BASE, batch=40, nhead_k=1, varlen=Varlen(lengths, lengths[::-1]), causal=True))


def test_more_heads_than_a_grid_has_rows() -> None:
    """Batch times heads may exceed 65535, as in video models. Most sequences are empty: it is quick."""
    empty = (0,) * 8189
    lengths = (3, 1, *empty, 5, 2)
    varlen = Varlen(lengths, lengths)
    run_raw(replace(BASE, batch=8193, seqlen_q=5, seqlen_k=5, ratio=4, hdim=64, varlen=varlen))


@pytest.mark.parametrize("window", [(200, 200), (332, 332), (333, 333), (400, 5), (5, 400)], ids=str)
@pytest.mark.parametrize("top_left", [False, True])
def test_windows_are_compared_with_the_upper_bound(window: tuple[int, int], top_left: bool) -> None:
    """A side above a sequence's length, below max_seqlen_k, still hides keys of queries outside."""
    both(replace(BASE, varlen=Varlen((200, 180, 3), (20, 333, 100)), window=window, top_left=top_left))


@pytest.mark.parametrize(
    "change",
    [
        {"bias": Bias()},
        {"bias": Bias((False, True, False), infinities=True), "causal": True},
        {"alibi": 2},
        {"alibi": 1, "causal": True, "top_left": True},
        {"softcap": 5.0},
        {"dropout": Dropout(0.3, 99, 5, randval=True)},
        {"dropout": Dropout(0.3, 99, 5, on_device=True), "causal": True},
    ],
    ids=str,
)
def test_features(change: dict[str, object]) -> None:
    """Other features work with packed sequences, if this library has a kernel for them."""
    case = nearest(replace(BASE, **change))  # type: ignore[arg-type]
    both(case)
    both(replace(case, varlen=Varlen((150, 0, 77), (130, 30, 0), (3, 4, 0), (7, 0, 9))))


def test_one_array_of_starts_makes_another_plan() -> None:
    """Some kernels are for it, forward and backward: the workspace of a plan is that of one kernel."""
    q = DeviceArray.from_numpy(np.ones((5, 1, 64), np.float16))
    lse = DeviceArray.from_numpy(np.ones((1, 5), np.float32))
    first, second = (DeviceArray.from_numpy(np.array([0, 3, 5], np.int32)) for _ in range(2))
    for table in (_varlen._plans, backward._plans):
        table.clear()
    for other in (first, second, first):
        pyfa_rocm.flash_attn_varlen_func(q, q, q, first, other, 3, 3, causal=True)
        pyfa_rocm.flash_attn_varlen_bwd(q, q, q, q, q, lse, first, other, 3, 3, causal=True)
    assert len(_varlen._plans) == len(backward._plans) == 2
