# SPDX-License-Identifier: MIT OR Apache-2.0
"""The judge sees small faults: each is put into the oracle's own answer, rounded as a kernel's would be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import philox
import pytest
from cases import DTYPES, Bias, Case, Dropout, Varlen, expected, judge
from reference import Expected

BASE = Case(batch=1, seqlen_q=200, seqlen_k=130, nhead_k=2, ratio=2, hdim=64, dtype="bfloat16", seed=21)
PACKED = {"varlen": Varlen((190, 40), (60, 130)), "batch": 2}


def _as_kernel(case: Case, answer: Expected) -> tuple[Any, Any]:
    return (answer.o + answer.o_bias).astype(DTYPES[case.out_dtype]), answer.lse.astype(np.float32)


def _assert_seen(case: Case, wrong: Expected) -> None:
    right = expected(case, case.inputs())
    judge(right, *_as_kernel(case, right))
    with pytest.raises(AssertionError, match=r"off|bias|RMS|not 0"):
        judge(right, *_as_kernel(case, wrong))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"causal": True}, {"window": (-1, 1), "causal": False}),
        ({"causal": True}, {"top_left": True}),
        ({"window": (40, 7)}, {"window": (41, 7)}),
        ({"window": (40, 7)}, {"window": (40, 6)}),
        ({"window": (128, 128), "top_left": True}, {"window": (-1, 128)}),
        ({"alibi": 1}, {"top_left": True}),
        ({"alibi": 2, "batch": 2}, {"alibi": 1}),
        ({"softcap": 3.0}, {"softcap": 3.05}),
        ({"softcap": 3.0}, {"softcap": 0.0}),
        ({"bias": Bias()}, {"bias": None}),
        ({"dropout": Dropout(0.3, 5, 8)}, {"dropout": Dropout(0.3, 6, 8)}),
        ({"dropout": Dropout(0.3, 5, 8)}, {"dropout": Dropout(0.3, 5, 9)}),
        ({"dropout": Dropout(0.3, 5, 8)}, {"dropout": Dropout(77 / 256, 5, 8)}),
        ({"scale": 0.125}, {"scale": 0.1255}),
        ({**PACKED, "causal": True}, {"top_left": True}),
        ({**PACKED, "window": (129, 5), "top_left": True}, {"window": (130, 5)}),
        ({**PACKED, "dropout": Dropout(0.3)}, {"dropout": Dropout(0.3, 8)}),
        ({"dtype": "float8_e4m3fnuz", "o_dtype": "bfloat16"}, {"descale": (1.01, 1.0, 1.0)}),
        ({"dtype": "float8_e4m3fnuz", "o_dtype": "bfloat16"}, {"descale": (1.0, 1.0, 1.03)}),
        ({"dtype": "float8_e4m3fn", "o_dtype": "bfloat16"}, {"descale": (1.01, 1.0, 1.0)}),
        ({"dtype": "float8_e4m3fn", "o_dtype": "bfloat16"}, {"descale": (1.0, 1.0, 1.03)}),
        ({"dtype": "float32"}, {"scale": 0.125 * (1 + 2.0**-13)}),
    ],
    ids=str,
)
def test_another_problem(change: dict[str, Any], fault: dict[str, Any]) -> None:
    """A result that is right for nearly the same problem is seen as wrong."""
    case = replace(BASE, **change)
    _assert_seen(case, expected(replace(case, **fault), case.inputs()))


def test_alibi_from_another_origin() -> None:
    """Scores moved by the same in a row, as CK's causal shortcut does, show only in the LSE."""
    case = replace(BASE, alibi=1, causal=True)
    right = expected(case, case.inputs())
    shift = case.slopes()[0][None, :, None] * np.arange(case.seqlen_q) * 2.0**-9
    _assert_seen(case, replace(right, lse=right.lse + shift))


@pytest.mark.parametrize("step", [-1, 1])
def test_threshold_of_dropout(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One byte of 256 more or less is kept."""
    case = replace(BASE, dropout=Dropout(0.3, 5))
    right = expected(case, case.inputs())
    threshold = philox.keep_at_most(0.3) + step
    with monkeypatch.context() as patched:
        patched.setattr(philox, "keep_at_most", lambda _: threshold)
        wrong = expected(case, case.inputs())
    assert not np.array_equal(right.o, wrong.o)
    _assert_seen(case, wrong)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_one_wrong_element(dtype: str) -> None:
    case = replace(BASE, dtype=dtype)
    right = expected(case, case.inputs())
    o = right.o.copy()
    o[0, 3, 1, 5] += 3 * right.o_tolerance[0, 3, 1, 5]
    _assert_seen(case, replace(right, o=o))
