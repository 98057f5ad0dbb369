# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention over a KV cache, against float64: pages in any order, lengths, masks, features."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from built import Row, every_of, rows, this_arch
from cases_judge import judge
from cases_types import Array
from decoding import Decoding, Problem, fields_of, number_of, run_judged
from hypothesis import given, settings
from hypothesis import strategies as st
from plugins import hypothesis_profile
from strict import wave_order

import pyfa_rocm
from pyfa_rocm import emulator
from pyfa_rocm._runtime import library

NO_MEMORY_CHECK = 1  # FMHA_NO_MEMORY_CHECK
EXAMPLES = hypothesis_profile.EXAMPLES // 8


def run(p: Problem) -> list[tuple[Array, Array]]:
    """Run a problem and judge it."""
    return run_judged(Decoding(p))


@pytest.mark.parametrize("page_size", [1, 2, 8, 16, 32, 64, 128, 256])
@pytest.mark.parametrize("pages", ["table", "list"])
def test_pages(page_size: int, pages: str) -> None:
    run(Problem(page_size=page_size, pages=pages, lengths=(300, 37), heads_first=pages == "list"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("hdim", [(8, 8), (64, 64), (72, 40), (128, 128), (256, 200), (512, 512), (576, 512)])
def test_head_dims(dtype: str, hdim: tuple[int, int]) -> None:
    run(Problem(dtype=dtype, hdim=hdim[0], hdim_v=hdim[1], nhead_k=1, ratio=3))


@pytest.mark.parametrize(
    "change",
    [
        {"pages": "batch_idx"},
        {"pages": "batch_idx", "heads_first": True},
        {"seqlens_q": (7, 7), "causal": True, "lengths": (3, 300)},
        {"seqlens_q": (7, 7), "causal": True, "window": (20, 0), "page_size": 4},
        {"seqlens_q": (1, 40), "packed": True, "causal": True, "lengths": (200, 40)},
        {"seqlens_q": (0, 5), "packed": True, "window": (30, 2)},
        {"lengths": (0, 65)},
        {"lengths": (0, 0)},
        {"ratio": 1, "nhead_k": 5},
        {"ratio": 16, "nhead_k": 1},
        {"ratio": 33, "nhead_k": 1},
        {"softcap": 15.0},
        {"alibi": True, "seqlens_q": (3, 3), "causal": True},
        {"leftpad": (30, 5)},
        {"options": {"num_splits": 1}},
        {"options": {"num_splits": 3}, "lengths": (0, 700)},
        {"options": {"num_splits": 128}, "lengths": (500, 1), "seqlens_q": (3, 3), "causal": True},
        {"options": {"num_splits": 5}, "seqlens_q": (2, 30), "packed": True, "lengths": (200, 260)},
        {"leftpad": (0, 17), "page_size": 1, "causal": True, "seqlens_q": (2, 2)},
    ],
    ids=str,
)
def test_what_is_asked(change: dict[str, Any]) -> None:
    run(replace(Problem(), **change))


@pytest.mark.parametrize("pages", ["table", "list"])
@pytest.mark.parametrize("page_size", [1, 16, 64])
def test_shared_pages(pages: str, page_size: int) -> None:
    """A common prefix in the same pages, whose border the sequences' own tokens do not keep to."""
    lengths, queries = (200, 150, 131, 129), (1, 3, 2, 1)
    run(
        Problem(
            lengths=lengths,
            seqlens_q=queries,
            packed=True,
            causal=True,
            shared=128,
            pages=pages,
            page_size=page_size,
            heads_first=page_size == 16,
        )
    )


@pytest.mark.parametrize("packed", [False, True])
def test_ragged_lengths(packed: bool) -> None:
    """Lengths go from 1 to 5000, and none at all; the library chooses how many splits."""
    lengths = (1, 5000, 777, 0, 4096, 16, 2500, 33)
    queries = (1, 1, 4, 1, 9, 2, 0, 33) if packed else (1,) * len(lengths)
    run(Problem(lengths=lengths, seqlens_q=queries, packed=packed, causal=packed, hdim=64, nhead_k=1))


@pytest.mark.parametrize("window", [(0, 0), (15, 0), (16, 0), (40, 3), (100, -1)])
@pytest.mark.parametrize("page_size", [1, 16, 128])
def test_windows_across_pages(page_size: int, window: tuple[int, int]) -> None:
    """Pages before the window are given up: their entries are -1."""
    run(
        Problem(lengths=(128, 129, 300, 143), seqlens_q=(3,) * 4, window=window, page_size=page_size, hdim=64)
    )


def test_any_splits() -> None:
    """The same within the bound, whatever the keys are dealt to."""
    p = Problem(lengths=(700, 0, 31, 260), seqlens_q=(2,) * 4, causal=True, page_size=8, nhead_k=1)
    expected = [Decoding(p).expected(b) for b in range(4)]
    for splits in (1, 2, 3, 7, 16, 22, 64, 100, 128):
        results = Decoding(replace(p, options={"num_splits": splits})).run()
        for want, (o, lse) in zip(expected, results, strict=True):
            judge(want, o, lse)


@every_of(r for r in rows("decode") if (r["layout"], r["cache_dtype"]) == ("rows", r["dtype"]))
def test_every_kernel(row: Row) -> None:
    """Each kernel over a cache of its own type in rows, forced; test_decode_caches.py has the others."""
    p = Problem(**fields_of(row))
    run(replace(p, options={"kernel": number_of(Decoding(p), row["name"])}))


@pytest.mark.skipif("config.getoption('--device') == 'gpu'", reason="the software device says what fits")
def test_splits_for_the_device() -> None:
    """Unless the caller says how many, workgroups fill whole rounds of those that the device has room for."""
    call = Decoding(Problem(nhead_k=8, ratio=1))
    with emulator.profile() as profile:
        run_judged(call)
    arch = library.known_archs()[this_arch()]
    units: int = pyfa_rocm.devices()[0].compute_units // arch["cus_per_multiprocessor"]
    room = units * profile.launches[0].modelled.occupancy.workgroups_per_cu
    params = call.params()
    for batch, length in ((1, 4096), (1, 200), (11, 8192), (16, 8192), (40, 8192), (64, 640), (300, 4096)):
        fwd = replace(params.fwd, batch=batch, seqlen_k=length, flags=NO_MEMORY_CHECK)
        asked = replace(params, fwd=fwd, cache=replace(params.cache, max_pages=-(-length // 16)))
        info = pyfa_rocm.fmha_decode_kernel(asked)
        steps = -(-length // info.tile_n)

        def cost(splits: int, groups: int = 8 * batch, steps: int = steps) -> int:
            return -(-groups * splits // room) * (-(-steps // splits) + 1) + 2 * (splits > 1)

        chosen = info.grid[0]
        assert cost(chosen) == min(cost(n) for n in range(1, min(max(steps // 2, 1), 128) + 1))
        assert pyfa_rocm.fmha_decode_workspace_bytes(asked) == pyfa_rocm.fmha_decode_workspace_bytes(
            replace(asked, num_splits=chosen)
        )


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    batch = draw(st.integers(1, 3))
    lengths = tuple(draw(st.lists(st.integers(0, 400), min_size=batch, max_size=batch)))
    packed = draw(st.booleans())
    same = draw(st.integers(1, 20))
    seqlens_q = tuple(draw(st.integers(0, 20)) if packed else same for _ in range(batch))
    hdim = draw(st.sampled_from((64, 128, 256)))
    return Problem(
        lengths=lengths, seqlens_q=seqlens_q, packed=packed,
        dtype=draw(st.sampled_from(("float16", "bfloat16"))), nhead_k=draw(st.integers(1, 2)),
        ratio=draw(st.sampled_from((1, 3, 8))), hdim=hdim - 8 * draw(st.integers(0, 3)),
        hdim_v=hdim - 8 * draw(st.integers(0, 3)), page_size=draw(st.sampled_from((1, 4, 16, 64, 256))),
        pages=draw(st.sampled_from(("table", "list", "batch_idx"))), heads_first=draw(st.booleans()),
        causal=draw(st.booleans()), window=draw(st.sampled_from(((-1, -1), (50, 0), (7, 3)))),
        softcap=draw(st.sampled_from((0.0, 0.0, 20.0))),
        shared=draw(st.integers(0, min(lengths))), seed=draw(st.integers(0, 2**32)),
        options={
            "num_splits": draw(st.sampled_from((0, 1, 2, 7, 128))), "kernel": draw(st.sampled_from((0, 1, 2)))
        },
    )  # fmt: skip


@pytest.mark.parametrize("schedule", ["round", "reverse", "random:1"])
@settings(max_examples=EXAMPLES)
@given(problem=problems())
def test_random(schedule: str, problem: Problem) -> None:
    with wave_order(schedule):
        run(problem)


def test_sinks() -> None:
    """A logit without a value, against its definition."""
    p = Problem(lengths=(0, 70), seqlens_q=(3, 3), causal=True)
    plain = run(p)
    decoding = Decoding(p)
    sinks = decoding.rng.standard_normal(8, np.float32)
    params = decoding.params()
    params.sinks = decoding.put(sinks)
    pyfa_rocm.fmha_decode(params)
    o, lse = decoding.o.to_numpy()[..., :128].astype(np.float64), decoding.lse.to_numpy()
    for b, (want, want_lse) in enumerate(plain):
        joined = np.logaddexp(want_lse[0].astype(np.float64), sinks[:, None])
        assert lse[b] == pytest.approx(joined, abs=1e-5)
        share = np.exp(want_lse[0] - joined).T[..., None]
        # Both are rounded to bfloat16: half an ulp of each.
        most = np.abs(want.astype(np.float64)).max(initial=1)
        assert np.abs(o[b] - want[0].astype(np.float64) * share).max() <= 2**-8 * most
