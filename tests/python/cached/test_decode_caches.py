# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention over caches of 8 bits with scales, and over vectorised ones, against float64.

Tokens that no query sees are NaN in the cache, also those in a page with tokens that are seen.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from built import DTYPE_OF, Row, every_of, fp8, other_fp8, reads_fp8_caches, rows, this_arch
from cases_types import Array
from decoding import fields_of, number_of
from decoding_stored import Stored, Storing
from decoding_stored import run_stored as run
from hypothesis import given, settings
from hypothesis import strategies as st
from plugins import hypothesis_profile
from strict import wave_order

import pyfa_rocm
from pyfa_rocm import CacheScale, InvalidArgumentError, UnsupportedError
from pyfa_rocm._call.params import CATALOGUE_TYPES

EXAMPLES = hypothesis_profile.EXAMPLES // 8
_FP8 = fp8()


@every_of(r for r in rows("decode") if (r["layout"], r["cache_dtype"]) != ("rows", r["dtype"]))
def test_every_kernel(row: Row) -> None:
    """Each kernel over such caches, forced; test_decode.py has the others."""
    stored = "" if row["cache_dtype"] == row["dtype"] else DTYPE_OF[row["cache_dtype"]]
    p = Stored(
        **fields_of(row),
        cache_dtype=stored,
        scales="page" if stored else "",
        v_vector=16 if row["layout"] == "vectors" else 0,
    )
    run(replace(p, options={"kernel": number_of(Storing(p), row["name"])}))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("scales", ["", "tensor", "sequence", "page"])
@pytest.mark.parametrize("page_size", [1, 8, 16, 128])
def test_fp8(dtype: str, scales: str, page_size: int) -> None:
    run(Stored(dtype=dtype, cache_dtype=_FP8, scales=scales, page_size=page_size, lengths=(300, 37)))


@pytest.mark.parametrize("hdim", [(16, 16), (64, 64), (80, 48), (256, 192), (512, 512), (576, 512)])
def test_fp8_head_dims(hdim: tuple[int, int]) -> None:
    for dtype in ("float16", "bfloat16"):
        run(
            Stored(
                dtype=dtype, cache_dtype=_FP8, scales="page", hdim=hdim[0], hdim_v=hdim[1], nhead_k=1, ratio=3
            )
        )


@pytest.mark.parametrize("cache_dtype", ["", _FP8])
@pytest.mark.parametrize(("page_size", "v_vector"), [(8, 8), (16, 8), (16, 16), (32, 8), (64, 64), (256, 16)])
def test_vectors(cache_dtype: str, page_size: int, v_vector: int) -> None:
    for dtype in ("float16", "bfloat16"):
        run(
            Stored(
                dtype=dtype,
                cache_dtype=cache_dtype,
                page_size=page_size,
                v_vector=v_vector,
                lengths=(300, 37),
                scales="page" if cache_dtype else "",
            )
        )


@pytest.mark.parametrize("hdim", [(64, 64), (48, 32), (112, 96), (256, 256)])
def test_vectors_of_head_dims(hdim: tuple[int, int]) -> None:
    for dtype in ("", _FP8):
        run(Stored(cache_dtype=dtype, v_vector=16, hdim=hdim[0], hdim_v=hdim[1], nhead_k=1, ratio=3))


@st.composite
def problems(draw: st.DrawFn) -> Stored:
    batch = draw(st.integers(1, 3))
    same = draw(st.integers(1, 20))
    packed = draw(st.booleans())
    lengths = tuple(draw(st.integers(0, 400)) for _ in range(batch))
    page_size = draw(st.sampled_from((1, 4, 8, 16, 64)))
    fp8 = reads_fp8_caches() and draw(st.booleans())
    hdim = draw(st.sampled_from((64, 128, 256)))
    v_vector = draw(st.sampled_from((0, 8, page_size))) if page_size >= 8 else 0
    kernel = 0 if v_vector else draw(st.sampled_from((0, 1, 2)))
    return Stored(
        lengths=lengths, seqlens_q=tuple(draw(st.integers(0, 20)) if packed else same for _ in range(batch)),
        packed=packed, dtype=draw(st.sampled_from(("float16", "bfloat16"))), nhead_k=draw(st.integers(1, 2)),
        ratio=draw(st.sampled_from((1, 3, 8))), hdim=hdim - 16 * draw(st.integers(0, 3)),
        hdim_v=hdim - 16 * draw(st.integers(0, 3)), page_size=page_size, causal=draw(st.booleans()),
        window=draw(st.sampled_from(((-1, -1), (50, 0), (7, 3)))),
        softcap=draw(st.sampled_from((0.0, 0.0, 20.0))), seed=draw(st.integers(0, 2**32)),
        leftpad=tuple(draw(st.integers(0, n)) for n in lengths) if draw(st.booleans()) else (),
        options={"num_splits": draw(st.sampled_from((0, 1, 2, 7))), "kernel": kernel},
        cache_dtype=_FP8 if fp8 else "", v_vector=v_vector,
        scales=draw(st.sampled_from(("", "tensor", "sequence", "page"))) if fp8 else "",
    )  # fmt: skip


@pytest.mark.parametrize("schedule", ["round", "reverse", "random:1"])
@settings(max_examples=EXAMPLES)
@given(problem=problems())
def test_random(schedule: str, problem: Stored) -> None:
    with wave_order(schedule):
        run(problem)


@pytest.mark.parametrize("splits", [1, 3])
def test_lse_of_base_two(splits: int) -> None:
    p = Stored(lengths=(0, 70), options={"num_splits": splits})
    natural = run(p)
    base2 = Storing(replace(p, options={"num_splits": splits, "lse_base": 1})).run()
    for (o, lse), (same, lse2) in zip(natural, base2, strict=True):
        assert (o == same).all()
        assert lse2 * math.log(2) == pytest.approx(lse, rel=2**-22, abs=2**-22)


@pytest.mark.parametrize("packed", [False, True])
def test_lengths_before_an_append(packed: bool) -> None:
    """seqlen_new is added to the lengths that the device has."""
    p = Stored(lengths=(65, 70), seqlens_q=(3, 3), causal=True, packed=packed)
    decoding = Storing(p)
    params = decoding.params()

    def run_anew() -> Array:
        decoding.put(decoding.o_host)
        params.fwd.o = params.fwd.o._replace(data=decoding.kept[-1].data)
        pyfa_rocm.fmha_decode(params)
        return decoding.kept[-1].to_numpy()[..., : p.hdim]

    expected = run_anew()
    params.fwd.seqused_k, params.seqlen_new = decoding.put(np.array([62, 67], np.int32)), 3
    assert (run_anew() == expected).all()
    if packed:
        params.fwd.seqused_k, params.fwd.cu_seqlens_k = 0, decoding.put(np.array([0, 62, 129], np.int32))
        assert (run_anew() == expected).all()


_REFUSALS: list[Any] = [
    ({}, {"k_vector": 8}, InvalidArgumentError, "cache->v_vector = 0: expected a power of two from 8 to"),
    ({}, {"k_vector": 4, "v_vector": 8}, InvalidArgumentError, "cache->k_vector = 4: expected 8 (16 bytes)"),
    ({}, {"k_vector": 8, "v_vector": 32}, InvalidArgumentError, "cache->v_vector = 32: expected a power of"),
    (
        {},
        {"block_table": 0, "k_vector": 8, "v_vector": 8, "page_size": 256},
        InvalidArgumentError,
        "cache->k_vector = 8: expected 0 without pages",
    ),
    ({}, {"k_scale": CacheScale(4096, 0, 0)}, InvalidArgumentError, "scales are for fp8"),
    (
        {"cache_dtype": _FP8, "scales": "page"},
        {"k_scale": CacheScale(4096, -1, 0)},
        InvalidArgumentError,
        "got strides -1 and 0, expected 0 or more",
    ),
    ({"cache_dtype": "float16"}, {}, UnsupportedError, "no bf16 kernel of this build for ARCH reads such"),
    ({"cache_dtype": _FP8, "hdim": 72}, {}, InvalidArgumentError, "expected a multiple of 16 elements"),
    (
        {"cache_dtype": _FP8, "hdim": 72},
        {"k_vector": 16, "v_vector": 8},
        InvalidArgumentError,
        "fwd->hdim_q = 72: expected a multiple of cache->k_vector = 16",
    ),
    (
        {"hdim": 256},
        {"k_vector": 8, "v_vector": 8, "page_size": 2**23},
        UnsupportedError,
        "cache->page_size = 8388608: of a vectorised cache kernels take pages of less than 2^31 elements a "
        "head, here at most 8388607 tokens",
    ),
    ({"hdim": 512, "v_vector": 8}, {}, UnsupportedError, "takes fwd->hdim_q up to 256"),
    (
        {"cache_dtype": other_fp8()},
        {},
        UnsupportedError,
        f"cache->dtype = {CATALOGUE_TYPES[other_fp8()]}, cache->k_vector = 0: no bf16 kernel "
        "of this build for",
    ),
]


@pytest.mark.parametrize(("fields", "change", "error", "said"), _REFUSALS, ids=str)
def test_refusals(fields: dict[str, Any], change: dict[str, Any], error: type[Exception], said: str) -> None:
    if fields.get("cache_dtype") == _FP8 and not reads_fp8_caches():
        pytest.skip(f"{this_arch()} reads no caches of 8 bits")
    params = Storing(Stored(**fields)).params()
    params.cache = replace(params.cache, **change)
    with pytest.raises(error) as caught:
        pyfa_rocm.fmha_decode(params)
    assert said.replace("ARCH", this_arch()) in str(caught.value)
