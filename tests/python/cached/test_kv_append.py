# SPDX-License-Identifier: MIT OR Apache-2.0
"""fmha_kv_append against float64: every kernel, page, list and rotary, and random problems."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from built import DTYPE_OF, Row, drawn, every, fp8, other_fp8, rows, this_arch
from hypothesis import given, settings
from hypothesis import strategies as st
from kv_append import Append, Appending
from plugins import hypothesis_profile

import pyfa_rocm
from pyfa_rocm import InvalidArgumentError, UnsupportedError
from pyfa_rocm._call.kv_append import kv_append_to_c
from pyfa_rocm._call.params import CATALOGUE_TYPES
from pyfa_rocm._runtime import library

EXAMPLES = hypothesis_profile.EXAMPLES // 8
BASE = Append(rotary_dim=32)


def types() -> list[tuple[str, str]]:
    """Pairs of types that this arch has a kernel for."""
    found = [row for row in rows("kv_append") if row["arch"] == this_arch()]
    return [(DTYPE_OF[row["dtype"]], DTYPE_OF[row["o_dtype"]]) for row in found]


@every("kv_append")
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("rotary_float", [False, True])
def test_every_kernel(row: Row, interleaved: bool, rotary_float: bool) -> None:
    dtype, stored = DTYPE_OF[row["dtype"]], DTYPE_OF[row["o_dtype"]]
    case = replace(
        BASE,
        dtype=dtype,
        cache_dtype=stored,
        interleaved=interleaved,
        rotary_float=rotary_float,
        scales="page" if stored.startswith("float8") else "",
    )
    appending = Appending(case)
    assert pyfa_rocm.fmha_kv_append_kernel(appending.params()).name == row["name"]
    appending.run()
    new, used = (tuple(int(n) for n in drawn(row).integers(1, most, 2)) for most in (30, 250))
    Appending(replace(case, lengths=new, used=used, packed=True)).run()


@pytest.mark.parametrize("page_size", [1, 2, 16, 128, 256])
@pytest.mark.parametrize("table", ["2d", "1d", "slots"])
def test_pages(page_size: int, table: str) -> None:
    """New tokens across the borders of pages, whose neighbours stay as they are."""
    Appending(replace(BASE, page_size=page_size, table=table, lengths=(20, 20), used=(0, 250))).run()


@pytest.mark.parametrize(
    "change",
    [
        {"table": "none"},
        {"table": "none", "order": (0, 2, 1), "packed": True, "lengths": (4, 0, 1), "used": (0, 9, 31)},
        {"together": True},
        {"together": True, "order": (0, 2, 1)},
        {"order": (2, 0, 1)},
        {"packed": True, "lengths": (1, 0, 40, 7), "used": (100, 3, 0, 15)},
        {"packed": True, "table": "slots", "positions": True, "wide": True, "lengths": (9,), "used": (30,)},
        {"positions": True},
        {"in_place": True},
        {"in_place": True, "interleaved": True, "rotary_dim": 64},
        {"parts": "q"},
        {"parts": "k"},
        {"parts": "v"},
        {"parts": "kv", "rotary_dim": 0},
        {"hdim_q": 576, "hdim_v": 512, "nhead_k": 1, "rotary_dim": 64},
        {"hdim_q": 40, "hdim_v": 8, "rotary_dim": 24, "interleaved": True},
        {"lengths": (1,) * 9, "used": (0, 15, 16, 17, 31, 32, 5, 1, 64)},
    ],
    ids=str,
)
def test_shapes(change: dict[str, Any]) -> None:
    Appending(replace(BASE, **change)).run()


@pytest.mark.parametrize("scales", ["page", "sequence", ""])
def test_scales(scales: str) -> None:
    """A value beyond the largest number times the scale is limited to that; scales of 0.01 cause many."""
    if ("float16", fp8()) not in types():
        pytest.skip(f"{this_arch()} has no 8-bit floats")
    case = replace(BASE, cache_dtype=fp8(), scales=scales, lengths=(20, 20))
    Appending(case).run()
    Appending(replace(case, table="slots", dtype="bfloat16")).run()


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_random(data: st.DataObject) -> None:
    """Any lengths, pages, lists, layouts, head dims and rotary."""
    draw = data.draw
    lengths = tuple(draw(st.lists(st.integers(0, 20), min_size=1, max_size=4)))
    used = tuple(draw(st.integers(0, 90)) for _ in lengths)
    dtype, stored = draw(st.sampled_from(types()))
    hdim = 8 * draw(st.integers(1, 20))
    interleaved = draw(st.booleans())
    step = 8 if interleaved else 16
    booleans = {
        name: draw(st.booleans())
        for name in ("packed", "together", "rotary_float", "positions", "wide", "in_place")
    }
    rotary_dim = step * draw(st.integers(0, hdim // step))
    parts = draw(st.sampled_from(("qkv", "kv", "qk", "v"))).replace("" if rotary_dim else "q", "")
    first, second, third = draw(st.permutations((0, 1, 2)))
    case = Append(
        lengths, used, hdim_q=hdim, hdim_v=8 * draw(st.integers(1, 20)), nhead_k=draw(st.integers(1, 3)),
        nhead_q=draw(st.integers(1, 5)), dtype=dtype, cache_dtype=stored, interleaved=interleaved,
        page_size=2 ** draw(st.integers(0, 6)), table=draw(st.sampled_from(("2d", "1d", "none", "slots"))),
        order=(first, second, third), rotary_dim=rotary_dim, parts=parts,
        scales=draw(st.sampled_from(("", "page", "sequence"))) if stored.startswith("float8") else "",
        seed=draw(st.integers(0, 2**20)), **booleans,
    )  # fmt: skip
    if max(lengths) == 0:
        lengths = (1, *lengths[1:])
        case = replace(case, lengths=lengths)
    if not case.packed:
        case = replace(case, lengths=(max(lengths),) * len(lengths))
    Appending(case).run()


@pytest.mark.parametrize("change", [{"batch": 0}, {"seqlen": 0}, {"q": None, "k": None, "v": None}], ids=str)
def test_nothing_to_append(change: dict[str, Any]) -> None:
    params = replace(Appending(replace(BASE, in_place=True)).params(), **change)
    pyfa_rocm.fmha_kv_append(params)
    pyfa_rocm.fmha_kv_append_prepare(params)
    assert pyfa_rocm.fmha_kv_append_kernel(params).step_count == 0


def test_only_queries_need_no_cache() -> None:
    appending = Appending(replace(BASE, parts="q"))
    pyfa_rocm.fmha_kv_append_supported(replace(appending.params(), cache=None))
    with pytest.raises(InvalidArgumentError, match="cache = NULL: expected a struct"):
        pyfa_rocm.fmha_kv_append(replace(Appending(BASE).params(), cache=None))


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"hdim_v": 12}, UnsupportedError, "hdim_v = 12: append kernels take multiples of 8"),
        ({"nhead_k": 0}, InvalidArgumentError, "nhead_k = 0: expected 1 or more"),
        ({"dtype": "float32"}, UnsupportedError, "dtype = fp32: this build has no such kernel"),
        ({"rotary": None}, InvalidArgumentError, "rotary.cos = NULL: expected a device pointer with q"),
        ({"q": None}, InvalidArgumentError, "expected NULL without q"),
        ({"seqlen": 1000}, InvalidArgumentError, "seqlen = 1000: expected at most cache->max_pages"),
        ({"batch": 1 << 24}, UnsupportedError, "batch = 16777216: append kernels take at most 16777215"),
        ({"kernel": 2}, UnsupportedError, "kernel = 2: expected 0"),
    ],
    ids=str,
)
def test_refusals(change: dict[str, Any], error: type[Exception], said: str) -> None:
    appending = Appending(BASE)
    with pytest.raises(error) as caught:
        pyfa_rocm.fmha_kv_append(replace(appending.params(), **change))
    assert said in str(caught.value)


_REFUSED_CACHES: list[Any] = [
    ({"page_size": 24}, InvalidArgumentError, "cache->page_size = 24: expected a power of two"),
    ({"pages": 0}, InvalidArgumentError, "cache->pages = 0: expected 1 or more"),
    ({"dtype": "bfloat16"}, UnsupportedError, "cache->dtype = bf16: this build stores dtype = fp16 in"),
    ({"k": None}, InvalidArgumentError, "cache->k.data = NULL: expected a device pointer"),
    ({"kv_indices": 4096}, InvalidArgumentError, "cache->kv_indptr = NULL, but cache->kv_indices is set"),
    ({"cache_batch_idx": 4096}, InvalidArgumentError, "expected NULL with pages"),
    ({"k_scale": pyfa_rocm.CacheScale(4096, 0, 0)}, InvalidArgumentError, "scales are for fp8"),
    (
        {"dtype": other_fp8()},
        UnsupportedError,
        f"cache->dtype = {CATALOGUE_TYPES[other_fp8()]}: this build stores dtype = fp16 in",
    ),
]


@pytest.mark.parametrize(("change", "error", "said"), _REFUSED_CACHES, ids=str)
def test_refused_caches(change: dict[str, Any], error: type[Exception], said: str) -> None:
    appending = Appending(BASE)
    params = appending.params()
    assert params.cache is not None
    params.cache = replace(params.cache, **change)
    with pytest.raises(error) as caught:
        pyfa_rocm.fmha_kv_append(params)
    assert said in str(caught.value)


_REFUSED_SIZES: list[Any] = [
    (
        {"page_size": 12, "k_vector": 8, "v_vector": 8},
        {},
        "cache->page_size = 12: expected a multiple of cache->v_vector = 8",
    ),
    ({"page_size": 12, "k_vector": 8, "v_vector": 16}, {}, "cache->v_vector = 16: expected a power of two"),
    (
        {"dtype": fp8(), "k_vector": 16, "v_vector": 8},
        {"hdim_q": 72, "hdim_v": 72, "rotary": None, "q": None, "q_out": None},
        "hdim_q = 72: expected a multiple of cache->k_vector = 16",
    ),
    ({"page_size": 2**61, "pages": 2**62 + 1}, {}, "cache->k.stride_page = 2048: over a size of"),
    ({"dtype": "float32", "pages": 2**62 + 1}, {}, "cache->k.stride_page = 2048: over a size of"),
]


@pytest.mark.parametrize(("change", "fields", "said"), _REFUSED_SIZES, ids=str)
def test_refused_sizes(change: dict[str, Any], fields: dict[str, Any], said: str) -> None:
    """Vectors that a page or a head does not fill, and products beyond 64 bits; extents say so too."""
    appending = Appending(replace(BASE, table="slots"))
    params = replace(appending.params(), **fields)
    assert params.cache is not None
    params.cache = replace(params.cache, **change)
    for call in (pyfa_rocm.fmha_kv_append, pyfa_rocm.fmha_kv_append_supported, _extents):
        with pytest.raises(InvalidArgumentError) as caught:
            call(params)
        assert said in str(caught.value)


def _extents(params: pyfa_rocm.KvAppendParams) -> None:
    ffi, lib = library.load()
    c, _held = kv_append_to_c(params)
    library.check(lib.fmha_kv_append_extents(c, ffi.NULL, 0, ffi.new("int32_t *")))


@pytest.mark.parametrize("change", [{"batch": 0}, {"seqlen": 0}], ids=str)
def test_nothing_to_append_to_vectors(change: dict[str, Any]) -> None:
    """A list that is not read is a list."""
    params = replace(Appending(replace(BASE, in_place=True)).params(), **change)
    assert params.cache is not None
    params.cache = replace(params.cache, k_vector=8, v_vector=8)
    pyfa_rocm.fmha_kv_append(params)


@pytest.mark.parametrize(
    ("stride", "value", "said"),
    [
        ("stride_token", 132, "cache->k.stride_token = 132: expected a multiple of 8 elements"),
        ("stride_page", -8, "cache->k.stride_page = -8: expected 0 or more"),
        ("stride_head", 0, "cache->k.stride_head = 0: its elements overlap one another"),
    ],
)
def test_refused_strides(stride: str, value: int, said: str) -> None:
    appending = Appending(BASE)
    params = appending.params()
    assert params.cache is not None
    assert params.cache.k is not None
    params.cache.k = params.cache.k._replace(**{stride: value})
    with pytest.raises(InvalidArgumentError) as caught:
        pyfa_rocm.fmha_kv_append(params)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dim": 24}, "rotary.dim = 24: expected a multiple of 16 up to hdim_q = 64"),
        ({"dim": 80}, "rotary.dim = 80: expected a multiple of 16 up to hdim_q = 64"),
        ({"sin": 0}, "rotary.sin = NULL, but rotary.cos is set: expected both or neither"),
        ({"dtype": "bfloat16"}, "rotary.dtype = bf16: expected 0, dtype = fp16, or FMHA_FP32"),
        ({"positions": 0}, "rotary.positions = 0: expected 1 or more"),
    ],
    ids=str,
)
def test_refused_rotary(change: dict[str, Any], said: str) -> None:
    appending = Appending(BASE)
    params = appending.params()
    assert params.rotary is not None
    params.rotary = replace(params.rotary, **change)
    with pytest.raises(InvalidArgumentError) as caught:
        pyfa_rocm.fmha_kv_append(params)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"table": "slots", "positions": True, "wide": True},
        {"table": "none"},
        {"packed": True, "lengths": (1, 0, 20), "used": (16, 3, 0), "in_place": True, "interleaved": True},
        {"parts": "kv", "cache_dtype": fp8(), "scales": "page", "rotary_float": True},
        {"parts": "kv", "cache_dtype": fp8(), "scales": "sequence", "rotary_dim": 0},
    ],
    ids=str,
)
def test_public_function(change: dict[str, Any]) -> None:
    """flash_attn_kv_append: its shapes, strides and defaults."""
    case = replace(BASE, **change)
    if (case.dtype, case.stored) not in types():
        pytest.skip(f"{this_arch()} has no 8-bit floats")
    Appending(case).run(public=True)


_REFUSED_ARGUMENTS: list[Any] = [
    ("k", np.zeros((2, 8), np.float16), "k: got shape (2, 8), expected 4 dimensions"),
    ("v", np.zeros((2, 4, 1, 32), np.float16), "v: got shape (2, 4, 1, 32), expected (2, 3, 1, 32)"),
    ("k_cache", np.zeros((2, 64, 2, 32), np.float16), "k_cache: got shape (2, 64, 2, 32)"),
    ("v_cache", np.zeros((2, 64, 1, 32), np.float32), "v_cache: got dtype float32, expected float16"),
    ("slots", np.zeros((2, 2), np.int64), "slots: got shape (2, 2), expected (2, 3)"),
    ("slots", np.zeros((2, 3), np.uint8), "slots: got dtype uint8, expected int32"),
    ("block_table", np.zeros((3, 3), np.int32), "block_table: got shape (3, 3), expected (2, 3)"),
    ("rotary_cos", np.zeros((64, 16), np.float16), "rotary_sin: got None, expected an array as rotary_cos"),
    ("q_out", np.zeros((2, 3, 1, 32), np.float16), "q_out: got an array, expected None without q"),
    ("k_scale", np.zeros((3, 1), np.float32), "k_scale: got shape (3, 1), expected (2, 1)"),
]


@pytest.mark.parametrize(
    ("name", "value", "said"), _REFUSED_ARGUMENTS, ids=lambda x: x if isinstance(x, str) else ""
)
def test_refused_arguments(name: str, value: Any, said: str) -> None:
    arrays = {"k_cache": (2, 64, 1, 32), "v_cache": (2, 64, 1, 32), "k": (2, 3, 1, 32), "v": (2, 3, 1, 32)}
    hosts: dict[str, Any] = {n: np.zeros(shape, np.float16) for n, shape in arrays.items()} | {name: value}
    given: dict[str, Any] = {n: pyfa_rocm.DeviceArray.from_numpy(x) for n, x in hosts.items()}
    with pytest.raises(InvalidArgumentError) as caught:
        pyfa_rocm.flash_attn_kv_append(**given)
    assert said in str(caught.value)
