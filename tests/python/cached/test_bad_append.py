# SPDX-License-Identifier: MIT OR Apache-2.0
"""Any fields in `fmha_kv_append_params` and its structs: an error that names one, or what they say."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from arena import Arena, Bytes, OutsideError, Path, Tried, paths, tame, try_field, try_fields
from hypothesis import given, settings
from hypothesis import strategies as st
from plugins import hypothesis_profile
from reference import ulp

import pyfa_rocm
from pyfa_rocm import (
    AbiMismatchError,
    Cache,
    CacheTensor,
    InvalidArgumentError,
    KvAppendParams,
    Rotary,
    Strided,
)
from pyfa_rocm._call.kv_append import kv_append_to_c
from pyfa_rocm._runtime import library
from pyfa_rocm._runtime.library import check
from pyfa_rocm.array import dtype_of

EXAMPLES = hypothesis_profile.EXAMPLES // 8
BATCH, SEQLEN, NHEAD_Q, NHEAD_K, HDIM, PAGE, PAGES, POSITIONS = 2, 3, 4, 2, 64, 16, 6, 60
NAMES = ("q", "q_out", "k", "v", "cache_k", "cache_v", "table", "used", "cos", "sin")
LISTS = (
    "cache.block_table",
    "cache.kv_indptr",
    "cache.kv_indices",
    "cache.cache_batch_idx",
    "seqused_k",
    "cu_seqlens",
    "slots",
    "positions",
)
WORDS = re.compile(
    r"dtype|batch|seqlen|seqused|nhead|hdim|\bq\b|\bk\b|\bv\b|q_out|kernel|flags|total|page|indptr"
    r"|indices|slots|positions|rotary|cos|sin|scale|cache|vector"
)


def _params(arena: Arena) -> KvAppendParams:
    def tokens(name: str, heads: int) -> Strided:
        return Strided(arena.address(name), SEQLEN * heads * HDIM, heads * HDIM, HDIM)

    row = NHEAD_K * HDIM
    k, v = (CacheTensor(arena.address(name), PAGE * row, row, HDIM) for name in ("cache_k", "cache_v"))
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
    rotary = Rotary(arena.address("cos"), arena.address("sin"), POSITIONS, 16, 32, "float16")
    return KvAppendParams(
        "float16", BATCH, SEQLEN, NHEAD_K, HDIM, HDIM, NHEAD_Q, cache, q=tokens("q", NHEAD_Q),
        q_out=tokens("q_out", NHEAD_Q), k=tokens("k", NHEAD_K), v=tokens("v", NHEAD_K),
        seqused_k=arena.address("used"), rotary=rotary,
    )  # fmt: skip


def _arena() -> Arena:
    arena = Arena(NAMES)
    arena.fill("table", [3, 0, 5, 1, 4, 2], np.int32)
    arena.fill("used", [30, 14], np.int32)
    arena.upload()
    return arena


class Reading:
    """An accepted struct, read in NumPy: every row that is written, with its value and its bound."""

    def __init__(self, arena: Arena, p: KvAppendParams) -> None:
        self.arena, self.p = arena, p
        self.judged: list[tuple[int, Any, Any, Any]] = []  # address, dtype, value, error
        self.places: set[tuple[int, int]] = set()
        dtype = dtype_of(p.dtype)
        self.inputs = {}
        for name, heads, hdim in (
            ("q", p.nhead_q, p.hdim_q),
            ("k", p.nhead_k, p.hdim_q),
            ("v", p.nhead_k, p.hdim_v),
        ):
            strided = getattr(p, name)
            if strided is not None and strided.data:
                shape = (p.batch, p.seqlen, heads, hdim)
                self.inputs[name] = arena.view(strided.data, dtype, shape, (*strided[1:], 1))
        for b in range(p.batch if self.inputs and p.seqlen else 0):
            used = self._integer(p.seqused_k, b) if p.seqused_k else 0
            for i in range(p.seqlen):
                self._token(b, i, used + i)

    def _integer(self, data: int, at: int) -> int:
        return int(self.arena.view(data + 4 * at, np.int32, (1,), (1,))[0])

    def _token(self, b: int, i: int, place: int) -> None:
        p = self.p
        rotary = p.rotary if p.rotary is not None and p.rotary.cos and {"q", "k"} & set(self.inputs) else None
        if rotary is not None and not 0 <= place < rotary.positions:
            return
        if "q" in self.inputs:
            value, error = self._rotated(self.inputs["q"][b, i], place)
            out = p.q if p.q_out is None or not p.q_out.data else p.q_out
            assert out is not None
            strides = [s if n > 1 else 0 for s, n in zip(out[1:], (p.batch, p.seqlen), strict=False)]
            at = out.data + 2 * (b * strides[0] + i * strides[1])
            self._rows(at, out.stride_head, dtype_of(p.dtype), value, error, p.nhead_q)
        cache = p.cache
        if cache is None or not ({"k", "v"} & set(self.inputs)):
            return
        page, slot = b, place
        if place < 0:
            return
        if cache.block_table:
            if place // cache.page_size >= cache.max_pages:
                return
            stride = cache.stride_block_table if p.batch > 1 else 0
            page = self._integer(cache.block_table, b * stride + place // cache.page_size)
            slot = place % cache.page_size
        elif cache.cache_batch_idx:
            page = self._integer(cache.cache_batch_idx, b)
        if not 0 <= page < cache.pages or slot >= cache.page_size:
            return
        if (page, slot) in self.places:
            raise OutsideError
        self.places.add((page, slot))
        if cache.k_vector:  # test_decode_caches.py
            raise OutsideError
        for name, tensor in (("k", cache.k), ("v", cache.v)):
            if name not in self.inputs:
                continue
            value, error = self._rotated(self.inputs[name][b, i], place, turned=name == "k")
            assert tensor is not None
            steps = [
                s if n > 1 else 0 for s, n in zip(tensor[1:], (cache.pages, cache.page_size), strict=False)
            ]
            stored = dtype_of(cache.dtype)
            at = tensor.data + stored.itemsize * (page * steps[0] + slot * steps[1])
            self._rows(at, tensor.stride_head, stored, value, error, p.nhead_k)

    def _rows(self, at: int, stride: int, dtype: Any, value: Any, error: Any, heads: int) -> None:
        for head in range(heads):
            address = at + dtype.itemsize * (stride * head if heads > 1 else 0)
            self.arena.view(address, dtype, value.shape[-1:], (1,))
            self.judged.append((address, dtype, value[head], error[head]))

    def _rotated(self, row: Any, place: int, turned: bool = True) -> tuple[Any, Any]:
        x = row.astype(np.float64)
        error = np.zeros_like(x)
        r = self.p.rotary
        if r is None or not r.cos or not turned:
            return x, error
        dtype, half = dtype_of(r.dtype or self.p.dtype), r.dim // 2
        stride = r.stride_position if r.positions > 1 else 0
        cos, sin = (
            self.arena.view(data + dtype.itemsize * place * stride, dtype, (half,), (1,)).astype(np.float64)
            for data in (r.cos, r.sin)
        )
        first, second = (
            (slice(0, r.dim, 2), slice(1, r.dim, 2)) if r.interleaved else (slice(half), slice(half, r.dim))
        )
        a, b = x[:, first].copy(), x[:, second].copy()
        x[:, first], x[:, second] = a * cos - b * sin, b * cos + a * sin
        error[:, first] = 2.0**-23 * (np.abs(a * cos) + np.abs(b * sin))
        error[:, second] = 2.0**-23 * (np.abs(b * cos) + np.abs(a * sin))
        return x, error

    def judge(self, after: Bytes, may_differ: Any) -> None:
        """Every row against its bound, unless two have the same place or numbers are out of range."""
        count = np.zeros(after.size, np.int32)
        for address, dtype, value, _ in self.judged:
            flags = np.zeros(after.size, np.bool_)
            row = self.arena.view(address, dtype, value.shape, (1,), of=after)
            self.arena.mark(flags, address, row)
            count += flags
        may_differ |= count > 0
        if (count > 1).any() or not tame(*self.inputs.values()):
            return
        for address, dtype, value, error in self.judged:
            got = self.arena.view(address, dtype, value.shape, (1,), of=after).astype(np.float64)
            if tame(value) and tame(error):
                rounding = ulp(np.abs(value) + error, dtype.name) / 2
                exact = dtype == dtype_of(self.p.dtype)
                assert (np.abs(got - value) <= error + np.where(exact & (error == 0), 0, rounding)).all()


@pytest.fixture(scope="module")
def arena() -> Arena:
    return _arena()


@pytest.fixture(scope="module")
def tried(arena: Arena) -> Tried:
    def expected(p: KvAppendParams) -> Callable[[Bytes, Any], None]:
        with np.errstate(all="ignore"):
            return Reading(arena, p).judge

    return Tried(arena, pyfa_rocm.fmha_kv_append, pyfa_rocm.fmha_kv_append_supported, expected, WORDS)


FIELDS = list(paths(_params(_arena())))


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
@pytest.mark.parametrize("whose", ["params", "cache"])
def test_struct_size_of_no_version(arena: Arena, whose: str, size: int) -> None:
    ffi, lib = library.load()
    params, cache = kv_append_to_c(_params(arena))
    {"params": params, "cache": cache}[whose].struct_size = size
    with pytest.raises(AbiMismatchError, match=f"struct_size.*{size}"):
        check(lib.fmha_kv_append(params, ffi.NULL))


def test_no_struct(arena: Arena) -> None:
    ffi, lib = library.load()
    with pytest.raises(InvalidArgumentError, match=r"params.*NULL"):
        check(lib.fmha_kv_append(ffi.NULL, ffi.NULL))
    params, _cache = kv_append_to_c(_params(arena))
    params.reserved = 1
    with pytest.raises(InvalidArgumentError, match="reserved"):
        check(lib.fmha_kv_append(params, ffi.NULL))
