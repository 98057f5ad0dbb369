# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tells which kernels can do a case, by what the library says of each."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from archs import read_archs
from cases_types import Case
from reference import visible

import pyfa_rocm
from pyfa_rocm._call.params import CATALOGUE_TYPES
from pyfa_rocm._runtime import library
from pyfa_rocm.oracle.rounding import P_SCALES, fp8_of

Row = dict[str, Any]
DTYPE_OF = {name: dtype for dtype, name in CATALOGUE_TYPES.items()}
# Each arch's checks that are off by default, which our kernels pass.
MORE_CHECKS = {
    arch.name: {"FMHA_EMU_CHECKS": "hazards-vector-scalar"}
    for arch in read_archs().archs
    if arch.late_scalars
}


@cache
def rows(family: str = "fwd") -> tuple[Row, ...]:
    """All kernels of a family, of all archs."""
    kernels = json.loads(library.build_info_json())["kernels"]
    return tuple(row for row in kernels if row["family"] == family)


def every(family: str) -> pytest.MarkDecorator:
    """Run a test with each kernel of a family as its `row`; test_other_archs runs it as each other arch."""
    return every_of(rows(family))


def every_of(some: Iterable[Row]) -> pytest.MarkDecorator:
    """Like `every`, for some rows."""
    params = [
        pytest.param(row, id=row["name"], marks=pytest.mark.every_kernel)
        for row in some
        if row["arch"] == this_arch()
    ]
    return pytest.mark.parametrize("row", params)


def drawn(row: Row) -> np.random.Generator:
    """Random numbers for a kernel, the same each time."""
    return np.random.default_rng(zlib.crc32(f"{row['arch']} {row['name']}".encode()))


@cache
def this_arch() -> str:
    """The arch of the first device."""
    return str(pyfa_rocm.devices()[0].arch)


@cache
def fp8() -> str:
    """The 8-bit float of the first device; of one that has none, any."""
    return fp8_of(this_arch()) or next(iter(P_SCALES))


@cache
def other_fp8() -> str:
    """The 8-bit float that the first device lacks."""
    return next(dtype for dtype in P_SCALES if dtype != fp8())


@cache
def reads_fp8_caches() -> bool:
    """Tell whether the first device has kernels over caches of 8 bits."""
    own = CATALOGUE_TYPES[fp8()]
    return any(row["arch"] == this_arch() and row["cache_dtype"] == own for row in rows("decode"))


@cache
def _of_this_arch() -> tuple[Row, ...]:
    return tuple(row for row in rows() if row["arch"] == this_arch())


def candidates(case: Case) -> list[Row]:
    """The kernels that can do a case."""
    return [row for row in _of_this_arch() if can_do(row, case)]


def nearest(case: Case) -> Case:
    """The case, or one of another dtype and head dim that has a kernel: a small library has few of each.

    None at all skips the test.
    """
    for dtype, hdim in product((case.dtype, "bfloat16", "float16", "float32"), (case.hdim, 128, 64, 32)):
        other = replace(case, dtype=dtype, hdim=hdim)
        if candidates(other):
            return other
    pytest.skip("no such kernel in this library")


def can_do(row: Row, case: Case) -> bool:
    """Tell whether a kernel's row says that it does all that a case asks for."""
    bias = "elementwise" if case.bias is not None else "alibi" if case.alibi else "none"
    return (
        row["dtype"] == CATALOGUE_TYPES[case.dtype]
        and row["o_dtype"] == CATALOGUE_TYPES[case.out_dtype]
        and _fits(case.hdim, row["hdim_q"], row["hdim_step"])
        and _fits(case.hdim_v or case.hdim, row["hdim_v"], row["hdim_step"])
        and row["group"] == (case.varlen is not None)
        and (row["mask"] or not needs_mask(case))
        and (row["origin"] != "aiter" or _is_for_object(row, case))
        and (row["pad"] or (case.seqlen_k > 0 and case.seqlen_k % row["tile_n"] == 0))
        and row["bias"] == bias
        and (row["pad"] or _aligned_bias(case))
        and row["softcap"] == (case.softcap > 0)
        and row["dropout"] == (case.dropout is not None)
        and (not case.sinks or row["origin"] in ("hip", "wmma"))
    )


def _is_for_object(row: Row, case: Case) -> bool:
    """Tell whether a case is as native/host/origins/aiter/fwd.cc wants it of a prebuilt kernel."""
    if case.varlen is not None or case.seqlen_k == 0:  # queries and keys have arrays of lengths of their own
        return False
    if pyfa_rocm.devices()[0].compute_units not in row["compute_units"] or needs_mask(case) != row["causal"]:
        return False
    if case.lse and case.batch > 1 and (case.layouts[3].gaps[2] or case.nhead_q == 1):
        return False  # heads have to follow each other, from one batch to the next
    if not row["causal"]:
        return True
    m, n = case.seqlen_q, case.seqlen_k
    seen = visible(m, n, causal=case.causal, window_size=case.window, top_left=case.top_left)
    causal = visible(m, n, causal=True, window_size=(-1, -1), top_left=False)
    return m <= n and (m == n or not case.top_left) and bool((seen == causal).all())


def _aligned_bias(case: Case) -> bool:
    """Tell whether four elements of the bias can be loaded at a time, as unpadded kernels do."""
    if case.bias is None:
        return True
    layout = case.bias.layout
    view = layout.view(np.empty(layout.size(case.bias_shape), np.int8), case.bias_shape)
    strides = [n for n, has in zip(view.strides, case.bias.dims, strict=False) if has]
    return layout.start % 4 == 0 and all(n % 4 == 0 for n in strides)


def _fits(hdim: int, tile: int, step: int) -> bool:
    return hdim == tile if step == 0 else hdim <= tile and hdim % step == 0


def needs_mask(case: Case) -> bool:
    """Tell whether only a masked kernel can do a case.

    A mask that hides nothing needs none; for packed sequences that cannot be known. An unmasked kernel
    counts ALiBi from bottom-right.
    """
    if case.seqlen_k == 0:
        return False
    square = case.varlen is None and case.seqlen_q == case.seqlen_k
    moved = case.alibi > 0 and case.top_left and not square
    if case.varlen is not None:
        return moved or case.causal or any(0 <= side < case.seqlen_k for side in case.window)
    seen = visible(
        case.seqlen_q, case.seqlen_k, causal=case.causal, window_size=case.window, top_left=case.top_left
    )
    return moved or not seen.all()
