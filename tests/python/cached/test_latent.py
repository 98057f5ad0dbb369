# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention over a latent cache, whose values are the first dims of its keys, against float64.

Instinct's kernel for many rows has 128 in a workgroup: 32 a wave.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from built import fp8, rows, this_arch
from cases_judge import judge
from cases_types import DTYPES
from decoding import Decoding, Problem, kernels_of, run_judged
from decoding_stored import Stored, Storing, run_stored
from hypothesis import given, settings
from hypothesis import strategies as st
from plugins import hypothesis_profile
from reference import attention, numerics_of
from strict import wave_order

import pyfa_rocm
from pyfa_rocm._call.params import CATALOGUE_TYPES

EXAMPLES = hypothesis_profile.EXAMPLES // 16
LATENT = Problem(nhead_k=1, ratio=128, hdim=576, hdim_v=512, page_size=64, latent=True)


def has_kernel() -> bool:
    return any(row["latent"] and row["arch"] == this_arch() for row in rows("decode"))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"dtype": "float16"},
        {"lengths": (33, 1, 0, 257), "seqlens_q": (1,) * 4},
        {"lengths": (64, 32), "page_size": 1},
        {"pages": "batch_idx", "heads_first": True},
        {"pages": "list", "page_size": 16},
        {"ratio": 16, "seqlens_q": (8, 8), "causal": True},
        {"ratio": 16, "seqlens_q": (2, 9), "packed": True, "causal": True, "lengths": (150, 9)},
        {"ratio": 17},
        {"ratio": 40, "seqlens_q": (3, 3), "causal": True, "window": (50, 0), "page_size": 4},
        {"ratio": 129, "dtype": "float16"},
        {"softcap": 15.0, "seqlens_q": (2, 2), "causal": True},
        {"alibi": True, "seqlens_q": (2, 2), "causal": True, "dtype": "float16"},
        {"leftpad": (30, 5)},
        {"options": {"num_splits": 1}, "lengths": (37, 300)},
        {"options": {"num_splits": 3}, "lengths": (0, 300)},
        {"options": {"num_splits": 4}, "seqlens_q": (0, 2), "packed": True},
        {"hdim": 560, "hdim_v": 480},
        {"hdim": 544, "hdim_v": 504, "dtype": "float16", "options": {"num_splits": 2}},
        {"nhead_k": 2, "ratio": 32},
    ],
    ids=str,
)
def test_what_is_asked(change: dict[str, Any]) -> None:
    p = replace(LATENT, **change)
    run_judged(Decoding(p))
    assert kernels_of(Decoding(p))[0].endswith("_m128") == has_kernel()


def test_the_kernel_for_many_rows_wants_values_in_keys_and_many_rows() -> None:
    """Sixteen rows are a tile of another kernel; and values elsewhere are not the first dims of the keys."""
    for change in ({"ratio": 16}, {"latent": False}):
        p = replace(LATENT, **change)
        run_judged(Decoding(p))
        assert not kernels_of(Decoding(p))[0].endswith("_m128")
    names = kernels_of(Decoding(replace(LATENT, latent=False)))
    assert not any(name.endswith("_m128") for name in names)


@pytest.mark.parametrize(("hdim", "values"), [(64, slice(512)), (504, slice(512)), (512, slice(64, 512))])
def test_values_that_are_not_the_first_dims(hdim: int, values: slice) -> None:
    """More dims than the keys have, or others of theirs, are what another kernel reads."""
    rng = np.random.default_rng(hdim)
    q = rng.standard_normal((1, 1, 128, hdim), np.float32).astype(np.float16)
    held = rng.standard_normal((1, 70, 1, 512), np.float32).astype(np.float16)
    cache = pyfa_rocm.DeviceArray.from_numpy(held)
    k, v = cache[:, :, :, :hdim], cache[:, :, :, values]
    o, lse = pyfa_rocm.flash_attn_with_kvcache(
        pyfa_rocm.DeviceArray.from_numpy(q), k, v, return_softmax_lse=True
    )
    numerics = numerics_of("float16", None, 128, this_arch())
    judge(attention(q, held[..., :hdim], held[..., values], numerics=numerics), o.to_numpy(), lse.to_numpy())


def test_lse_of_base_two() -> None:
    p = replace(LATENT, options={"num_splits": 1})
    base2 = Decoding(replace(p, options={"num_splits": 1, "lse_base": 1})).run()
    for (o, lse2), (same, lse) in zip(base2, run_judged(Decoding(p)), strict=True):
        assert (o == same).all()
        assert lse2 * np.log(2) == pytest.approx(lse, rel=2**-22, abs=2**-22)


@pytest.mark.parametrize("splits", [1, 2])
def test_sinks(splits: int) -> None:
    """A logit without a value, far below the scores, among them and far above; -inf is none."""
    p = replace(LATENT, lengths=(0, 70), options={"num_splits": splits})
    plain = run_judged(Decoding(p))
    decoding = Decoding(p)
    sinks = decoding.rng.standard_normal(p.ratio, np.float32)
    sinks[:3] = -np.inf, -1e4, 1e4
    params = decoding.params()
    params.sinks = decoding.put(sinks)
    nbytes = pyfa_rocm.fmha_decode_workspace_bytes(params)
    if nbytes:
        params.workspace, params.workspace_bytes = decoding.put(np.zeros(nbytes, np.uint8)), nbytes
    pyfa_rocm.fmha_decode(params)
    o, lse = decoding.o.to_numpy()[..., : p.hdim_v].astype(np.float64), decoding.lse.to_numpy()
    for b, (want, want_lse) in enumerate(plain):
        joined = np.logaddexp(want_lse[0].astype(np.float64), sinks[:, None])
        assert lse[b] == pytest.approx(joined, abs=1e-5, rel=1e-6)
        with np.errstate(invalid="ignore"):
            share = np.nan_to_num(np.exp(want_lse[0] - joined)).T[..., None]
        # Both are rounded to bfloat16: half an ulp of each.
        most = np.abs(want.astype(np.float64)).max(initial=1)
        assert np.abs(o[b] - want[0].astype(np.float64) * share).max() <= 2**-8 * most


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    batch, same = draw(st.integers(1, 2)), draw(st.integers(1, 5))
    lengths = tuple(draw(st.integers(0, 200)) for _ in range(batch))
    packed = draw(st.booleans())
    return replace(
        LATENT, lengths=lengths,
        seqlens_q=tuple(draw(st.integers(0, 8)) if packed else same for _ in range(batch)), packed=packed,
        dtype=draw(st.sampled_from(("float16", "bfloat16"))), nhead_k=draw(st.integers(1, 2)),
        ratio=draw(st.sampled_from((5, 16, 31, 64, 128))), hdim=576 - 8 * draw(st.integers(0, 8)),
        hdim_v=512 - 8 * draw(st.integers(0, 9)), page_size=draw(st.sampled_from((1, 4, 16, 64, 256))),
        pages=draw(st.sampled_from(("table", "list", "batch_idx"))), heads_first=draw(st.booleans()),
        causal=draw(st.booleans()), window=draw(st.sampled_from(((-1, -1), (50, 0), (7, 3)))),
        softcap=draw(st.sampled_from((0.0, 0.0, 20.0))), alibi=draw(st.booleans()),
        leftpad=tuple(draw(st.integers(0, n)) for n in lengths) if draw(st.booleans()) else (),
        seed=draw(st.integers(0, 2**32)),
        options={"num_splits": draw(st.sampled_from((0, 1, 2, 7))), "kernel": draw(st.sampled_from((1, 2)))},
    )  # fmt: skip


@pytest.mark.parametrize("schedule", ["round", "reverse", "random:1"])
@settings(max_examples=EXAMPLES)
@given(problem=problems())
def test_random(schedule: str, problem: Problem) -> None:
    problem = problem if this_arch().startswith("gfx9") else replace(problem, options={"num_splits": 2})
    with wave_order(schedule):
        run_judged(Decoding(problem))


EIGHT_BITS = Stored(**vars(LATENT) | {"cache_dtype": fp8(), "scales": "sequence"})


def has_kernel_of_eight_bits(p: Stored) -> bool:
    wanted = (this_arch(), CATALOGUE_TYPES[p.dtype], CATALOGUE_TYPES[p.stored])
    return any(
        row["latent"] and (row["arch"], row["dtype"], row["cache_dtype"]) == wanted for row in rows("decode")
    )


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"dtype": "float16"},
        {"scales": ""},
        {"scales": "tensor", "lengths": (33, 1, 0, 257), "seqlens_q": (1,) * 4},
        {"scales": "page"},
        {"scales": "page", "page_size": 4, "dtype": "float16", "options": {"num_splits": 3}},
        {"scales": "page", "page_size": 1, "lengths": (0, 70), "softcap": 15.0},
        {"scales": "page", "ratio": 40, "seqlens_q": (3, 3), "causal": True, "window": (50, 0)},
        {"scales": "page", "alibi": True, "lengths": (100,), "seqlens_q": (1,)},
        {"ratio": 16, "seqlens_q": (2, 9), "packed": True, "causal": True, "lengths": (150, 9)},
        {"ratio": 129, "softcap": 15.0, "seqlens_q": (2, 2), "causal": True},
        {"ratio": 33, "alibi": True, "dtype": "float16", "options": {"num_splits": 1}},
        {"leftpad": (30, 5), "options": {"num_splits": 4}},
        {"hdim": 560, "hdim_v": 480, "dtype": "float16"},
        {"hdim": 544, "hdim_v": 496, "options": {"num_splits": 2}, "nhead_k": 2, "ratio": 32},
    ],
    ids=str,
)
def test_eight_bits(change: dict[str, Any]) -> None:
    """Keys are widened; the scale of keys multiplies scores, that of values O."""
    p = replace(EIGHT_BITS, **change)
    run_stored(p)
    assert kernels_of(Storing(p))[0].endswith("_m128") == has_kernel_of_eight_bits(p)


def test_few_rows_of_eight_bits() -> None:
    for change in ({"ratio": 16}, {"latent": False}):
        p = replace(EIGHT_BITS, **change)
        run_stored(p)
        assert not kernels_of(Storing(p))[0].endswith("_m128")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_number_of_eight_bits_is_widened_exactly(dtype: str) -> None:
    """Each row sees one token, so that O is that token's value."""
    p = replace(EIGHT_BITS, dtype=dtype, scales="", lengths=(1, 1), ratio=32)
    if not has_kernel_of_eight_bits(p):
        pytest.skip(f"{this_arch()} reads no latent caches of 8 bits by such a kernel")
    bits = np.resize(np.arange(256, dtype=np.uint8), 512)
    numbers = bits.view(DTYPES[p.stored]).astype(np.float32)
    numbers = np.where(np.isnan(numbers), 0, numbers)
    decoding = Storing(p)
    for k in decoding.k:
        k[0, 0, :512] = numbers
    decoding.v = [k[..., :512] for k in decoding.k]
    for q in decoding.q:
        q[...] = 0
    for o, _ in run_judged(decoding):
        assert (o[0, 0].astype(np.float32) == numbers).all()


@st.composite
def problems_of_eight_bits(draw: st.DrawFn) -> Stored:
    p = draw(problems())
    fields = vars(p) | {"pages": "table", "heads_first": False, "cache_dtype": fp8()}
    fields |= {name: fields[name] // 16 * 16 for name in ("hdim", "hdim_v")}  # 512 or more, and 512 or less
    return Stored(**fields, scales=draw(st.sampled_from(("", "tensor", "sequence", "page"))))


@pytest.mark.parametrize("schedule", ["round", "reverse", "random:1"])
@settings(max_examples=EXAMPLES)
@given(problem=problems_of_eight_bits())
def test_random_of_eight_bits(schedule: str, problem: Stored) -> None:
    if not has_kernel_of_eight_bits(problem):
        problem = replace(problem, options={"num_splits": 2})
    with wave_order(schedule):
        run_stored(problem)
