# SPDX-License-Identifier: MIT OR Apache-2.0
"""Instructions that look across lanes or at registers as such: readlane, mbcnt, swap, AccVGPR moves."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..support import fp
from ..support.asm import ALL_LANES, LANES, Case, Result, Suite
from ..support.fp import Array
from ..support.spelling import RDNA, exists

SUITE = Suite("lanes")
X = np.random.default_rng(0).integers(0, 1 << 32, LANES, dtype=np.uint32)
Y = np.random.default_rng(1).integers(0, 1 << 32, LANES, dtype=np.uint32)
HOLES = 0xFFFF_0000_1234_5670 & ALL_LANES
LAST = LANES - 1


def _equal(name: str, want: Any) -> Any:
    def check(result: Result) -> None:
        got = result[name]
        np.testing.assert_array_equal(got, np.broadcast_to(np.asarray(want, np.uint32), got.shape))

    return check


for _mask, _lane in ((ALL_LANES, 0), (HOLES, 4), (0, 0), (1 << LAST, LAST)):
    SUITE.add(
        f"v_readfirstlane_b32-{_mask:x}",
        ["v_readfirstlane_b32 s8, v2"],
        ["s8"],
        _equal("s8", X[_lane]),
        {"v2": X},
        {"exec": _mask},
    )
for _select, _lane in (("0", 0), (str(LAST), LAST), ("s4", 69 & LAST), ("m0", 17)):
    SUITE.add(
        f"v_readlane_b32-{_select}",
        [f"v_readlane_b32 s8, v2, {_select}"],
        ["s8"],
        _equal("s8", X[_lane]),
        {"v2": X},
        {"s4": 69, "m0": 17, "exec": HOLES},
    )
    _want = Y.copy()
    _want[_lane] = 0x1234ABCD
    SUITE.add(
        f"v_writelane_b32-{_select}",
        [f"v_writelane_b32 v3, s5, {_select}" if _select != "s4" else "v_writelane_b32 v3, s4, m0"],
        ["v3"],
        _equal("v3", _want if _select != "s4" else np.where(np.arange(LANES) == 17, 69, Y)),
        {"v3": Y},
        {"s5": 0x1234ABCD, "s4": 69, "m0": 17, "exec": HOLES},
    )
_swap = ["v_swap_b32 v2, v3"]
SUITE.add(
    "v_swap_b32", _swap, ["v2", "v3"], lambda r: (_equal("v2", Y)(r), _equal("v3", X)(r)), {"v2": X, "v3": Y}
)
_on = np.array([HOLES >> i & 1 for i in range(LANES)], bool)
SUITE.add(
    "v_swap_b32-exec",
    _swap,
    ["v2", "v3"],
    lambda r: (_equal("v2", np.where(_on, Y, X))(r), _equal("v3", np.where(_on, X, Y))(r)),
    {"v2": X, "v3": Y},
    {"exec": HOLES},
)
for _m in (0xFFFFFFFF, 0x80010F3C, 0):
    _lo = [(_m & (1 << min(i, 32)) - 1).bit_count() + int(Y[i]) for i in range(LANES)]
    _hi = [(_m & (1 << max(i - 32, 0)) - 1).bit_count() + int(Y[i]) for i in range(LANES)]
    for _name, _w in (("lo", _lo), ("hi", _hi)):
        SUITE.add(
            f"v_mbcnt_{_name}_u32_b32-{_m:x}",
            [f"v_mbcnt_{_name}_u32_b32 v4, s4, v3"],
            ["v4"],
            _equal("v4", [v & 0xFFFFFFFF for v in _w]),
            {"v3": Y},
            {"s4": _m},
        )
SUITE.add(
    "lane-id",
    ["v_mbcnt_lo_u32_b32 v4, -1, 0", "v_mbcnt_hi_u32_b32 v4, -1, v4"],
    ["v4"],
    _equal("v4", np.arange(LANES)),
    {"v3": Y},
)
SUITE.add(
    "v_accvgpr_write_b32",
    ["v_accvgpr_write_b32 a5, v2"],
    ["a5"],
    _equal("a5", np.where(_on, X, Y)),
    {"v2": X, "a5": Y},
    {"exec": HOLES},
)
SUITE.add(
    "v_accvgpr_write_b32-const", ["v_accvgpr_write_b32 a5, 1.0"], ["a5"], _equal("a5", 0x3F800000), {"v2": X}
)
SUITE.add(
    "v_accvgpr_read_b32",
    ["v_accvgpr_read_b32 v3, a5"],
    ["v3"],
    _equal("v3", np.where(_on, X, Y)),
    {"a5": X, "v3": Y},
    {"exec": HOLES},
)
SUITE.add(
    "v_accvgpr_mov_b32",
    ["v_accvgpr_mov_b32 a6, a5"],
    ["a6"],
    _equal("a6", np.where(_on, X, Y)),
    {"a5": X, "a6": Y},
    {"exec": HOLES},
)
SUITE.add("v_nop", ["v_nop"], ["v2"], _equal("v2", X), {"v2": X})
if exists("v_clrexcp"):
    SUITE.add("v_clrexcp", ["v_clrexcp"], ["v2"], _equal("v2", X), {"v2": X})
# The aperture registers: flat addresses of LDS and scratch start there.
SUITE.add(
    "apertures",
    ["s_mov_b64 s[4:5], src_shared_base", "s_mov_b64 s[6:7], src_private_base"],
    ["s[4:5]", "s[6:7]"],
    lambda r: [_nonzero_aligned(v) for n in ("s[4:5]", "s[6:7]") for v in r.scalar(n)],
    covers=["s_mov_b64"],
)


def _nonzero_aligned(base: int) -> None:
    assert base, "aperture at 0"
    assert base % (1 << 32) == 0, hex(base)


def _vccz() -> None:
    for name, expected in (("src_vccz", 0), ("src_execz", 0), ("src_scc", 1))[2 * RDNA :]:  # it has the last
        SUITE.add(name, [f"s_mov_b32 s4, {name}"], ["s4"], _equal("s4", expected), {}, {"vcc": 4, "scc": 1})


def _stochastic() -> None:
    """cvt_sr: noise decides the rounding, op_sel the byte written; the other bytes are kept."""
    rng = np.random.default_rng(3)
    for name, table, limit, dtype, shift in (
        ("v_cvt_sr_fp8_f32", fp.FP8_VALUES, 200.0, fp.FP8, 12),
        ("v_cvt_sr_bf8_f32", fp.BF8_VALUES, 40000.0, fp.BF8, 11),
    ):
        if not exists(name):
            continue
        finite = table[np.isfinite(table)]
        exact = rng.choice(finite, LANES).astype(np.float32)
        x = rng.uniform(-limit, limit, LANES).astype(np.float32)
        noise = rng.integers(0, 1 << 32, LANES, dtype=np.uint32)
        # The manual to the letter: noise added to the fraction, which wraps around, then nearest.
        bits = x.view(np.uint32)
        fraction = (bits & 0x7FFFFF) + (noise >> np.uint32(shift)) & np.uint32(0x7FFFFF)
        code = (
            (bits & np.uint32(0xFF800000) | fraction)
            .view(np.float32)
            .astype(dtype)
            .view(np.uint8)
            .astype(np.uint32)
        )
        selects = ("", " op_sel:[0,0,1,0]", " op_sel:[0,0,0,1]", " op_sel:[0,0,1,1]")
        for byte, text in enumerate(("", *(f" byte_sel:{i}" for i in (1, 2, 3))) if RDNA else selects):
            keep = np.uint32(0xFFFFFFFF ^ 0xFF << 8 * byte)
            SUITE.add(
                f"{name}-{byte}",
                [f"{name} v4, v2, v3{text}"],
                ["v4"],
                _equal("v4", Y & keep | code << np.uint32(8 * byte)),
                {"v2": x, "v3": noise, "v4": Y},
            )

        def same_value(result: Result, exact: Array = exact, table: Array = table) -> None:
            np.testing.assert_array_equal(table[result["v4"][0] & 255], exact)

        SUITE.add(
            f"{name}-exact",
            [f"{name} v4, v2, v3"],
            ["v4"],
            same_value,
            {"v2": exact, "v3": np.uint32(0), "v4": Y},
        )
    if exists("v_cvt_pk_fp8_f32"):
        _high_half()


def _high_half() -> None:
    high = np.array([1.0, -2.5, 0.3, 448.0] * (LANES // 4), np.float32)
    want = high.astype(fp.FP8).view(np.uint8).astype(np.uint32)
    SUITE.add(
        "v_cvt_pk_fp8_f32-high",
        ["v_cvt_pk_fp8_f32 v4, v2, v2 op_sel:[0,0,1]"],
        ["v4"],
        _equal("v4", (Y & 0xFFFF) | want << 16 | want << 24),
        {"v2": high, "v4": Y},
    )


_vccz()
_stochastic()


@SUITE.parametrize()
def test_lanes(case: Case) -> None:
    """Values arrive in the right lanes and registers."""
    SUITE.check(case)
