# SPDX-License-Identifier: MIT OR Apache-2.0
"""Any fields in `fmha_merge_params` and its structs: an error that names one, or a merge as they say."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from arena import Arena, Bytes, Path, Tried, paths, tame, try_field, try_fields
from hypothesis import given, settings
from hypothesis import strategies as st
from plugins import hypothesis_profile

import pyfa_rocm
from pyfa_rocm import AbiMismatchError, InvalidArgumentError, Lse, LseParts, MergeParams, Parts, Strided
from pyfa_rocm._call.merge import merge_to_c
from pyfa_rocm._runtime import library
from pyfa_rocm._runtime.library import check
from pyfa_rocm.array import dtype_of
from pyfa_rocm.oracle.merging import merged

EXAMPLES = hypothesis_profile.EXAMPLES // 8
PARTS, BATCH, SEQLEN, NHEAD, HDIM = 9, 2, 3, 2, 64
NAMES = ("o_parts", "lse_parts", "o", "lse")
WORDS = re.compile(r"dtype|parts|batch|seqlen|nhead|hdim|\bo\b|lse|accumulate|kernel|flags|params")


def _params(arena: Arena) -> MergeParams:
    row, rows = NHEAD * HDIM, SEQLEN * NHEAD
    return MergeParams(
        "float16", PARTS, BATCH, SEQLEN, NHEAD, HDIM,
        o_parts=Parts(arena.address("o_parts"), BATCH * SEQLEN * row, SEQLEN * row, row, HDIM),
        lse_parts=LseParts(arena.address("lse_parts"), BATCH * rows, rows, SEQLEN),
        o=Strided(arena.address("o"), SEQLEN * row, row, HDIM), lse=Lse(arena.address("lse"), rows, SEQLEN),
    )  # fmt: skip


def _arena() -> Arena:
    arena = Arena(NAMES)
    rng = np.random.default_rng(2)
    for name in ("lse_parts", "lse"):
        arena.fill(name, rng.normal(0, 3, 1 << 14), np.float32)
    arena.upload()
    return arena


def _expected(arena: Arena, p: MergeParams) -> Callable[[Bytes, Any], None]:
    dtype, o_dtype = dtype_of(p.dtype), dtype_of(p.o_dtype or p.dtype)
    rows, lse_rows = (p.batch, p.seqlen, p.nhead, p.hdim), (p.batch, p.nhead, p.seqlen)
    if 0 in rows:
        return lambda *_: None
    parts = arena.view(p.o_parts.data, dtype, (p.parts, *rows), (*p.o_parts[1:], 1))
    lses = arena.view(p.lse_parts.data, np.float32, (p.parts, *lse_rows), (*p.lse_parts[1:], 1))
    o_place = (p.o.data, o_dtype, rows, (*p.o[1:], 1))
    before = [arena.view(*o_place)]
    has_lse = p.lse is not None and bool(p.lse.data)
    lse = p.lse if p.lse is not None and has_lse else Lse(p.o.data, 0, 0)
    lse_place = (lse.data, np.float32, lse_rows, (*lse[1:], 1))
    lse_before = arena.view(*lse_place) if has_lse else np.zeros(lse_rows, np.float32)
    values_of, lses_of = list(parts), lses
    if p.accumulate:
        values_of, lses_of = [*values_of, *before], np.concatenate([lses, lse_before[None]])
    judged = tame(*values_of) and tame(lses_of)
    want = merged(values_of, lses_of, p.base2, o_dtype.name) if judged else []

    def judge(after: Bytes, may_differ: Any) -> None:
        results = [arena.view(*o_place, of=after)]
        arena.mark(may_differ, p.o.data, results[0])
        if has_lse:
            results.append(arena.view(*lse_place, of=after))
            arena.mark(may_differ, lse_place[0], results[1])
        for got, (value, bound) in zip(results, want, strict=False):
            assert ((np.abs(got.astype(np.float64) - value) <= bound) | (got == value)).all()

    return judge


@pytest.fixture(scope="module")
def arena() -> Arena:
    return _arena()


@pytest.fixture(scope="module")
def tried(arena: Arena) -> Tried:
    return Tried(
        arena, pyfa_rocm.fmha_merge, pyfa_rocm.fmha_merge_supported, lambda p: _expected(arena, p), WORDS
    )


FIELDS = list(paths(_params(_arena())))


def test_the_base_is_accepted(arena: Arena, tried: Tried) -> None:
    assert tried(_params(arena))


@pytest.mark.parametrize("path", FIELDS, ids=".".join)
def test_each_field(tried: Tried, path: Path) -> None:
    """Every field at every one of its values."""
    try_field(tried, _params, path, ())


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_several_fields(tried: Tried, data: st.DataObject) -> None:
    try_fields(tried, _params, data, FIELDS, ())


@pytest.mark.parametrize("size", [0, 4, 40, 2**31])
def test_struct_size_of_no_version(arena: Arena, size: int) -> None:
    ffi, lib = library.load()
    params = merge_to_c(_params(arena))
    params.struct_size = size
    with pytest.raises(AbiMismatchError, match=f"struct_size.*{size}"):
        check(lib.fmha_merge(params, ffi.NULL))


def test_no_struct() -> None:
    ffi, lib = library.load()
    with pytest.raises(InvalidArgumentError, match=r"params.*NULL"):
        check(lib.fmha_merge(ffi.NULL, ffi.NULL))
