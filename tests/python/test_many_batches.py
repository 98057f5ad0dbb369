# SPDX-License-Identifier: MIT OR Apache-2.0
"""More batch elements than y and z of a grid hold: windows of images, rows of tables, pixels over time.

Most sequences are empty, so that a workgroup of theirs ends at once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from backward import Ask, candidates, forced, run_backward
from built import candidates as forward_candidates
from built import rows, this_arch
from cases import Bias, Case, Placement, Varlen, run_raw
from cases_judge import judge
from decoding import Decoding, Problem
from kv_append import Append, Appending

import pyfa_rocm
from pyfa_rocm import UnsupportedError
from pyfa_rocm._call.params import CATALOGUE_TYPES

BATCH = 65539
# The first, the last that z would hold, those behind it, the last.
PLACES = (0, 1, 65534, 65535, 65536, BATCH - 1)


def lengths(*some: int) -> tuple[int, ...]:
    """Lengths of all sequences: those at PLACES have rows."""
    held = [0] * BATCH
    for place, length in zip(PLACES, some, strict=True):
        held[place] = length
    return tuple(held)


def packed(dtype: str, change: dict[str, Any]) -> Case:
    """A case of so many sequences, each of a few rows."""
    varlen = Varlen(lengths(5, 1, 3, 2, 6, 4), lengths(4, 7, 5, 1, 3, 9))
    case = Case(
        batch=BATCH, seqlen_q=6, seqlen_k=9, nhead_k=1, ratio=1, hdim=64, dtype=dtype, seed=3, varlen=varlen
    )
    return replace(case, **change)


@pytest.mark.parametrize("change", [{}, {"bias": Bias()}], ids=str)
def test_forward(change: dict[str, Any]) -> None:
    """By our own kernels; Composable Kernel's refuse, and say what works."""
    case = packed("float16", change)
    ours = [row["name"] for row in forward_candidates(case) if row["origin"] in ("hip", "wmma")]
    if ours:
        params = Placement(case).params()
        count = pyfa_rocm.fmha_fwd_kernel(params).candidate_count
        names = [pyfa_rocm.fmha_fwd_kernel(replace(params, kernel=i + 1)).name for i in range(count)]
        assert set(names) == set(ours)
        run_raw(replace(case, kernel=1 + names.index(ours[0])))
    elif forward_candidates(case):
        with pytest.raises(UnsupportedError, match=r"^batch = 65539: .* at most 65535; split the batch"):
            run_raw(case)
    else:
        pytest.skip("this library has no such kernel")


@pytest.mark.parametrize(
    ("dtype", "change"),
    [("float16", {}), ("float32", {"bias": Bias((False, True, False))})],
    ids=["f16", "f32"],
)
def test_backward(dtype: str, change: dict[str, Any]) -> None:
    case = packed(dtype, change)
    names = backward_kernels(case)
    if not names:
        pytest.skip("this library has no such kernel for so many batches")
    for name in names:
        run_backward(case, forced(case, Ask(), name))


def backward_kernels(case: Case) -> list[str]:
    """A kernel of each pipeline; none of Composable Kernel's, of which the library says what works."""
    pipelines = {row["name"]: row["pipeline"] for row in rows("bwd") if row["arch"] == this_arch()}
    try:
        names = candidates(case, Ask())
        return list({pipelines[name]: name for name in reversed(names)}.values())
    except UnsupportedError as error:
        said = str(error)
    assert not ours("bwd", case.dtype) or "split the batch" in said, said
    return []


def ours(family: str, dtype: str) -> list[str]:
    """Our own kernels of this arch for a dtype."""
    return [
        row["name"]
        for row in rows(family)
        if row["arch"] == this_arch() and row["origin"] in ("hip", "wmma")
        and row["dtype"] == CATALOGUE_TYPES[dtype]
    ]  # fmt: skip


def test_decode() -> None:
    problem = Problem(
        lengths=lengths(37, 5, 100, 3, 70, 64), seqlens_q=lengths(1, 2, 1, 3, 1, 1), packed=True,
        dtype="float16", hdim=64, nhead_k=1, ratio=2, options={"num_splits": 1}, alibi=True, causal=True,
    )  # fmt: skip
    decoding = Decoding(problem)
    results = decoding.run()
    for b in PLACES:
        judge(decoding.expected(b), *results[b])


def test_append() -> None:
    used = tuple(b % 3 for b in range(BATCH))
    small = Append(used=used, nhead_q=1, nhead_k=1, hdim_q=16, hdim_v=8, page_size=4, rotary_dim=16)
    Appending(replace(small, lengths=lengths(5, 1, 3, 2, 6, 4), packed=True)).run()
    Appending(replace(small, lengths=(1,) * BATCH, table="none", parts="v", rotary_dim=0)).run()


def test_limits() -> None:
    """A launch that would have too many workgroups is refused."""
    params = Appending(Append(lengths=(1, 1), parts="kv")).params()
    with pytest.raises(UnsupportedError, match="seqlen = 70000: append kernels take at most 65535"):
        pyfa_rocm.fmha_kv_append(replace(params, batch=70000, seqlen=70000, cache=cache_of(params, 70000)))


def cache_of(params: pyfa_rocm.KvAppendParams, tokens: int) -> pyfa_rocm.Cache:
    """The cache of a call, with room for so many tokens."""
    assert params.cache is not None
    return replace(params.cache, max_pages=tokens)
