# SPDX-License-Identifier: MIT OR Apache-2.0
"""Any fields in `fmha_decode_params` and its structs: an error that names one, or attention as they say."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from arena import REGION, Arena, Bytes, OutsideError, Path, Tried, paths, tame, try_field, try_fields
from built import this_arch
from cases_judge import judge
from hypothesis import given, settings
from hypothesis import strategies as st
from plugins import hypothesis_profile
from reference import attention, numerics_of

import pyfa_rocm
from pyfa_rocm import (
    AbiMismatchError,
    Cache,
    CacheTensor,
    DecodeParams,
    FwdParams,
    InvalidArgumentError,
    Lse,
    Strided,
)
from pyfa_rocm._call.decode import decode_to_c
from pyfa_rocm._runtime import library
from pyfa_rocm._runtime.library import check
from pyfa_rocm.array import dtype_of

EXAMPLES = hypothesis_profile.EXAMPLES // 8
BATCH, SEQLEN_Q, NHEAD_Q, NHEAD_K, HDIM, PAGE, PAGES = 2, 2, 4, 2, 64, 16, 6
NAMES = ("q", "k", "v", "o", "lse", "table", "used", "leftpad", "sinks", "slopes", "workspace")
LISTS = (
    "cache.block_table",
    "cache.kv_indptr",
    "cache.kv_indices",
    "cache.cache_batch_idx",
    "fwd.seqused_k",
    "fwd.seqused_q",
    "fwd.cu_seqlens_q",
    "fwd.cu_seqlens_k",
    "leftpad_k",
)
# Fields that the call ignores, or that need memory which only other tests set up.
NOT_HERE = ("bias", "k", "v", "randval", "philox_seed_offset")
WORDS = re.compile(
    r"dtype|batch|seqlen|seqused|nhead|hdim|softmax_scale|mask|window_|\bq\b|\bk\b|\bv\b|\bo\b|lse|softcap|alibi|p_drop"
    r"|philox|kernel|workspace|flags|params|descale|total_|page|indptr|indices|leftpad|sinks|splits|scale|cache|vector"
)
_LONGEST = 2000


def _params(arena: Arena) -> DecodeParams:
    rows = SEQLEN_Q * NHEAD_Q * HDIM
    of_q, of_o = (Strided(arena.address(name), rows, NHEAD_Q * HDIM, HDIM) for name in "qo")
    nothing = Strided(0, 0, 0, 0)
    fwd = FwdParams(
        "float16", BATCH, SEQLEN_Q, 40, NHEAD_Q, NHEAD_K, HDIM, HDIM, 0.125, of_q, nothing, nothing, of_o,
        lse=Lse(arena.address("lse"), NHEAD_Q * SEQLEN_Q, SEQLEN_Q), mask="causal",
        seqused_k=arena.address("used"), alibi_slopes=arena.address("slopes"),
    )  # fmt: skip
    k, v = (CacheTensor(arena.address(name), PAGE * NHEAD_K * HDIM, NHEAD_K * HDIM, HDIM) for name in "kv")
    cache = Cache(
        "float16",
        PAGES,
        PAGE,
        k=k,
        v=v,
        block_table=arena.address("table"),
        stride_block_table=3,
        max_pages=3,
    )
    return DecodeParams(
        fwd,
        cache,
        leftpad_k=arena.address("leftpad"),
        sinks=arena.address("sinks"),
        num_splits=2,
        workspace=arena.address("workspace"),
        workspace_bytes=2 * REGION,
    )


def _arena() -> Arena:
    arena = Arena(NAMES)
    arena.fill("table", [3, 0, 5, 1, 4, 2], np.int32)
    arena.fill("used", [40, 23], np.int32)
    arena.fill("leftpad", [3, 0], np.int32)
    arena.fill("sinks", [0.5, 1.0, -1.0, 0.0], np.float32)
    arena.fill("slopes", np.full(REGION // 4, 0.25), np.float32)
    arena.upload()
    return arena


def _list(arena: Arena, data: int, count: int) -> Any:
    return arena.view(data, np.int32, (count,), (1,))


def _cached(arena: Arena, p: DecodeParams, tensor: CacheTensor, hdim: int, b: int, length: int) -> Any:
    """The tokens of a sequence, (length, nhead_k, hdim)."""
    cache, found = p.cache, []
    size = cache.page_size
    for t in range(length):
        page = b
        if cache.block_table:
            at = cache.block_table + 4 * (
                b * (cache.stride_block_table if p.fwd.batch > 1 else 0) + t // size
            )
            page = int(_list(arena, at, 1)[0])
        elif cache.cache_batch_idx:
            page = int(_list(arena, cache.cache_batch_idx + 4 * b, 1)[0])
        page = min(page % 2**32, cache.pages - 1)  # what is no page is read as the last one
        strides = [
            s if n > 1 else 0 for s, n in zip(tensor[1:], (cache.pages, size, p.fwd.nhead_k), strict=True)
        ]
        slot = t % size if cache.block_table else t
        begin = tensor.data + 2 * (page * strides[0] + slot * strides[1])
        found.append(arena.view(begin, dtype_of(cache.dtype), (p.fwd.nhead_k, hdim), (strides[2], 1)))
    return np.stack(found) if found else np.zeros((0, p.fwd.nhead_k, hdim), dtype_of(cache.dtype))


def _sequence(arena: Arena, p: DecodeParams, q: Any, b: int) -> Any:
    """The oracle's answer for a sequence, and whether it can judge."""
    f = p.fwd
    length = int(_list(arena, f.seqused_k + 4 * b, 1)[0]) if f.seqused_k and f.seqlen_k else f.seqlen_k
    first = int(_list(arena, p.leftpad_k + 4 * b, 1)[0]) if p.leftpad_k else 0
    length += p.seqlen_new if f.seqused_k and f.seqlen_k else 0
    length = min(max(length, 0), f.seqlen_k)
    first = min(max(first, 0), length)
    if length > _LONGEST or p.cache.k_vector:  # vectors: test_decode_caches.py
        raise OutsideError
    assert p.cache.k is not None
    assert p.cache.v is not None
    k = _cached(arena, p, p.cache.k, f.hdim_q, b, length)[None, first:]
    v = _cached(arena, p, p.cache.v, f.hdim_v, b, length)[None, first:]
    options: dict[str, Any] = {"causal": f.mask.startswith("causal"), "softcap": f.softcap}
    if f.mask == "window":
        options |= {"window_size": (f.window_left, f.window_right), "max_seqlen_k": f.seqlen_k}
    if f.alibi_slopes:
        slopes = arena.view(f.alibi_slopes + 4 * b * f.alibi_stride_batch, np.float32, (f.nhead_q,), (1,))
        options["alibi_slopes"] = slopes
    with np.errstate(all="ignore"):
        numerics = numerics_of(f.dtype, None, 128, this_arch())
        want = attention(q, k, v, softmax_scale=f.softmax_scale, numerics=numerics, **options)
        if p.lse_base:  # rounded to float32 in that base
            want = replace(want, lse_tolerance=want.lse_tolerance + 2.0**-23 * np.abs(want.lse))
    tamed = tame(q, k, v, options.get("alibi_slopes", np.zeros(1)))
    return want, tamed and 1e-30 < f.softmax_scale < 2 and (f.softcap == 0 or f.softcap > 1)


def _expected(arena: Arena, p: DecodeParams) -> Callable[[Bytes, Any], None]:
    f = p.fwd
    assert f.lse is None or isinstance(f.lse, Lse)
    dtype = dtype_of(f.dtype)
    rows = (f.batch, f.seqlen_q, f.nhead_q)
    strides = {name: (*getattr(f, name)[1:], 1) for name in "qo"}
    q = arena.view(f.q.data, dtype, (*rows, f.hdim_q), strides["q"])
    o_place = (f.o.data, dtype, (*rows, f.hdim_v), strides["o"])
    lse_place = None
    if f.lse is not None and f.lse.data:
        lse_place = (f.lse.data, np.float32, (f.batch, f.nhead_q, f.seqlen_q), (*f.lse[1:], 1))
        arena.view(*lse_place)
    arena.view(*o_place)
    sinks = arena.view(p.sinks, np.float32, (f.nhead_q,), (1,)) if p.sinks else None
    answers = [_sequence(arena, p, q[b : b + 1], b) for b in range(f.batch if q.size else 0)]
    nbytes = pyfa_rocm.fmha_decode_workspace_bytes(p)
    scratch = arena.view(p.workspace, np.uint8, (nbytes,), (1,)) if p.workspace else None

    def judge_bytes(after: Bytes, may_differ: Any) -> None:
        o = arena.view(*o_place, of=after)
        arena.mark(may_differ, f.o.data, o)
        lse = None
        if lse_place is not None:
            lse = arena.view(*lse_place, of=after)
            arena.mark(may_differ, lse_place[0], lse)
            lse = lse * (np.log(2.0) if p.lse_base else 1.0)
        if scratch is not None:
            arena.mark(may_differ, p.workspace, scratch)
        for b, (want, judged) in enumerate(answers):
            if judged and sinks is None:
                judge(want, o[b : b + 1], None if lse is None else lse[b : b + 1])
            elif judged and tame(sinks):
                _judge_with_sinks(want, o[b], None if lse is None else lse[b], sinks)

    return judge_bytes


def _judge_with_sinks(want: Any, o: Any, lse: Any, sinks: Any) -> None:
    joined = np.logaddexp(want.lse[0], sinks[:, None])
    share = np.exp(want.lse[0] - joined).T[..., None]
    # O is rounded once more than its share of what the oracle bounds: half an ulp of float16 below 4.
    assert (np.abs(o - want.o[0] * share) <= want.o_tolerance[0] * share + 2.0**-10).all()
    if lse is not None:
        assert np.abs(lse - joined).max(initial=0) <= 1e-5 + want.lse_tolerance.max(initial=0)


@pytest.fixture(scope="module")
def arena() -> Arena:
    return _arena()


@pytest.fixture(scope="module")
def tried(arena: Arena) -> Tried:
    return Tried(
        arena, pyfa_rocm.fmha_decode, pyfa_rocm.fmha_decode_supported, lambda p: _expected(arena, p), WORDS
    )


FIELDS = [path for path in paths(_params(_arena())) if not set(path) & set(NOT_HERE) or path[0] == "cache"]


def test_the_base_is_accepted(arena: Arena, tried: Tried) -> None:
    assert tried(_params(arena))


@pytest.mark.parametrize("path", FIELDS, ids=".".join)
def test_each_field(tried: Tried, path: Path) -> None:
    """Every field at every one of its values."""
    try_field(tried, _params, path, LISTS)


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_several_fields(tried: Tried, data: st.DataObject) -> None:
    try_fields(tried, _params, data, FIELDS, LISTS)


@pytest.mark.parametrize("size", [0, 4, 40, 2**31])
@pytest.mark.parametrize("whose", ["params", "fwd", "cache"])
def test_struct_size_of_no_version(arena: Arena, whose: str, size: int) -> None:
    ffi, lib = library.load()
    params, (fwd, cache) = decode_to_c(_params(arena))
    {"params": params, "fwd": fwd, "cache": cache}[whose].struct_size = size
    with pytest.raises(AbiMismatchError, match=f"struct_size.*{size}"):
        check(lib.fmha_decode(params, ffi.NULL))


def test_no_struct(arena: Arena) -> None:
    ffi, lib = library.load()
    with pytest.raises(InvalidArgumentError, match=r"params.*NULL"):
        check(lib.fmha_decode(ffi.NULL, ffi.NULL))
    for name in ("fwd", "cache"):
        params, _held = decode_to_c(_params(arena))
        setattr(params, name, ffi.NULL)
        with pytest.raises(InvalidArgumentError, match=rf"{name}.*NULL"):
            check(lib.fmha_decode(params, ffi.NULL))
    params, (_fwd, cache) = decode_to_c(_params(arena))
    cache.reserved = 1
    with pytest.raises(InvalidArgumentError, match="reserved"):
        check(lib.fmha_decode(params, ffi.NULL))
