# SPDX-License-Identifier: MIT OR Apache-2.0
"""Multiply-adds with a literal, and the unfused ones of gfx90a, which round twice and flush denormals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..support import fp
from ..support.asm import MODE_DEFAULT, Case, Result, Suite
from ..support.fp import Array
from ..support.ops.valu import same, view
from ..support.spelling import exists

SUITE = Suite("mad")
K = {"f32": (0x40490FDB, np.uint32, np.float32), "f16": (0x4248, np.uint16, np.float16)}


def _unfused(a: Array, b: Array, c: Array) -> Array:
    """Product rounded, then the sum; denormals are zeros throughout, as v_mad_f32 has it."""
    a, b, c = (fp.flush(v) for v in (a, b, c))
    return fp.flush((fp.flush((a * b).astype(a.dtype)) + c).astype(a.dtype))


def _legacy_f32(a: Array, b: Array, c: Array) -> Array:
    """Unfused, and zero times anything is +0."""
    a, b, c = (fp.flush(v) for v in (a, b, c))
    product = np.where((a == 0) | (b == 0), np.float32(0), fp.flush((a * b).astype(np.float32)))
    return fp.flush((product + c).astype(np.float32))


def _add(
    name: str, line: str, kind: str, fn: Callable[[Array, Array, Array], Any], mode: int = MODE_DEFAULT
) -> None:
    if not exists(name):
        return
    args = fp.lanes_of((kind, kind, kind), seed=5)
    with np.errstate(all="ignore"):
        want = fn(*args)

    def check(result: Result) -> None:
        same(view(result, "v10", kind), want, 0, args)

    vin = {
        r: a.view(np.uint16).astype(np.uint32) if kind == "f16" else a
        for r, a in zip(("v2", "v4", "v10"), args, strict=True)
    }
    SUITE.add(f"{name}-{line.split()[0]}", [line], ["v10"], check, vin, {"mode": mode}, covers=[name])


for _kind, (_bits, _unsigned, _dtype) in K.items():
    _k = np.array(_bits, _unsigned).view(_dtype)[()]
    for _stem, _fn in (("fma", fp.fma), ("mad", _unfused)):
        _mode = MODE_DEFAULT if _stem == "fma" else 0x300
        _add(
            f"v_{_stem}mk_{_kind}",
            f"v_{_stem}mk_{_kind} v10, v2, 0x{_bits:x}, v4",
            _kind,
            lambda a, b, d, f=_fn, k=_k: f(a, np.full_like(a, k), b),
            _mode,
        )
        _add(
            f"v_{_stem}ak_{_kind}",
            f"v_{_stem}ak_{_kind} v10, v2, v4, 0x{_bits:x}",
            _kind,
            lambda a, b, d, f=_fn, k=_k: f(a, b, np.full_like(a, k)),
            _mode,
        )
    _add(f"v_mac_{_kind}", f"v_mac_{_kind}_e32 v10, v2, v4", _kind, _unfused, 0x300)
    _add(f"v_mad_{_kind}", f"v_mad_{_kind} v10, v2, v4, v10", _kind, _unfused, 0x300)
    _legacy = _legacy_f32 if _kind == "f32" else _unfused  # of f16 it only names the half it clears
    _add(f"v_mad_legacy_{_kind}", f"v_mad_legacy_{_kind} v10, v2, v4, v10", _kind, _legacy, 0x300)
_add(
    "v_fma_legacy_f32",
    "v_fma_legacy_f32 v10, v2, v4, v10",
    "f32",
    lambda a, b, c: np.where((a == 0) | (b == 0), c, fp.fma(a, b, c)).astype(np.float32),
)
_add(
    "v_mac_legacy_f32",
    "v_mac_legacy_f32_e32 v10, v2, v4",
    "f32",
    lambda a, b, c: np.where((a == 0) | (b == 0), fp.flush(c), _unfused(a, b, c)).astype(np.float32),
    0x300,
)


@SUITE.parametrize()
def test_mad(case: Case) -> None:
    """The right roundings, in the right places."""
    SUITE.check(case)
