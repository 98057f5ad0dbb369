# SPDX-License-Identifier: MIT OR Apache-2.0
"""gfx950's bf16 as a number of its own: v_cvt_f32_bf16 and the dot products of two, against NumPy.

Only a process that plays gfx950 has cases: code/test_gfx950.py starts one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..support import rows
from ..support.asm import LANES, Case, Result, Suite

SUITE = Suite("bfloats")
U32 = np.uint32
Words = NDArray[np.uint32]
_LANES = 6 * LANES


def halves(pair: Words) -> Words:
    """Two rows of 16 bits as dwords."""
    return np.asarray([pair[0] | pair[1] << U32(16)])


def _bfloats() -> None:
    """v_cvt_f32_bf16 of every bf16, exactly, with the modifiers of its forms."""
    every = np.arange(1 << 16, dtype=U32)
    bits = every | U32(0x5A5A0000)
    name, whole = "v_cvt_f32_bf16", "dst_sel:DWORD dst_unused:UNUSED_PAD"
    forms = {
        f"{name}_e32 v3, v2": every << U32(16),
        f"{name}_e64 v3, -v2": every << U32(16) ^ U32(0x80000000),
        f"{name}_e64 v3, |v2|": every << U32(16) & U32(0x7FFFFFFF),
        f"{name}_sdwa v3, v2 {whole} src0_sel:WORD_1": np.full_like(every, 0x5A5A0000),
        f"{name}_sdwa v3, -v2 {whole} src0_sel:BYTE_0": (every & U32(255)) << U32(16) ^ U32(0x80000000),
        f"{name}_sdwa v3, v2 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:WORD_0": np.zeros_like(every),
        f"{name}_dpp v3, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf": (every ^ U32(1)) << U32(16),
        f"{name}_dpp v3, -|v2| row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:0": np.where(
            every & U32(15), every - U32(1), 0
        ).astype(U32)
        << U32(16)
        | U32(0x80000000),
        f"{name}_e32 v3, 1.0": np.full_like(every, 0x3F800000),
        f"{name}_e32 v3, 0.15915494": np.full_like(every, 0x3E220000),
        f"{name}_e32 v3, -4.0": np.full_like(every, 0xC0800000),
        f"{name}_e32 v3, 64": np.full_like(every, 64 << 16),
        f"{name}_e32 v3, 0x4248": np.full_like(every, 0x42480000),
    }
    for line, want in forms.items():

        def check(result: Result, want: Words = want) -> None:
            np.testing.assert_array_equal(result["v3"][0], want)

        SUITE.add(line.replace(",", ""), [line], ["v3"], check, {"v2": bits, "v3": np.full_like(bits, 77)})
    for tail, factor in ((" clamp", 0.0), (" mul:2", 2.0), (" div:2", 0.5)):

        def scaled(result: Result, factor: float = factor) -> None:
            x = (every << U32(16)).view(np.float32)
            with np.errstate(all="ignore"):
                want = x * np.float32(factor) if factor else np.where(np.isnan(x), 0, np.clip(x, 0, 1))
            normal = np.abs(x) > 1e-37
            np.testing.assert_array_equal(result["v3"][0].view(np.float32)[normal], want[normal])

        SUITE.add(
            f"{name}{tail}", [f"{name}_e64 v3, v2{tail}"], ["v3"], scaled, {"v2": bits}, {"mode": 0x100}
        )


def _dot2() -> None:
    """v_dot2c_f32_bf16, v_dot2_f32_bf16: exact on integers, else within a rounding of each sum."""
    rng = np.random.default_rng(9)
    for what, spread in (("exact", 0.0), ("rounded", 4.0)):
        a, b = (_bf16s(rng, spread) for _ in range(2))
        start = rng.normal(0, spread, _LANES) if spread else rng.integers(-64, 64, _LANES)
        start = start.astype(np.float32)
        for form in (
            "v_dot2c_f32_bf16_e32 v3, v4, v6",
            "v_dot2c_f32_bf16_e64 v3, v4, v6",
            "v_dot2c_f32_bf16_dpp v3, v4, v6 quad_perm:[0,1,2,3] row_mask:0xf bank_mask:0xf",
            "v_dot2c_f32_bf16_e32 v3, s4, v6",
            "v_dot2c_f32_bf16_e32 v3, 1.0, v6",
            "v_dot2_f32_bf16 v3, v4, v6, v3",
            "v_dot2_f32_bf16 v3, v6, 1.0, v3",
            "v_dot2_f32_bf16 v3, s4, v6, v3",
        ):
            left = a
            if "s4" in form:
                left = np.repeat(a[:, :1], _LANES, 1)
            if "1.0" in form:  # in the lower half, says LLVM (getInlineEncodingV2BF16)
                left = np.repeat(np.array([[0x3F80], [0]], U32), _LANES, 1)
            x, y = ((v << U32(16)).view(np.float32).astype(np.float64) for v in (left, b))
            want, bound = (x * y).sum(0) + start, 3 * 2.0**-24 * (np.abs(x * y).sum(0) + np.abs(start))

            def check(
                result: Result,
                want: NDArray[np.float64] = want,
                bound: NDArray[np.float64] = bound * (spread > 0),
            ) -> None:
                assert (np.abs(result["v3"][0].view(np.float32) - want) <= bound).all()

            word = int(halves(a)[0, 0])
            vin = {"v3": start.view(U32), "v4": halves(a)[0], "v6": halves(b)[0]}
            SUITE.add(f"{what} {form}", [form, "s_nop 2"], ["v3"], check, vin, {"s4": word})


def _bf16s(rng: np.random.Generator, spread: float) -> Words:
    shape = (2, _LANES)
    x = rng.normal(0, spread, shape) if spread else rng.integers(-8, 9, shape).astype(float)
    return x.astype(np.float32).view(U32) >> U32(16)


if rows.arch() == "gfx950":
    _bfloats()
    _dot2()


@SUITE.parametrize()
def test_bfloats(case: Case) -> None:
    """The bits of every lane."""
    SUITE.check(case)
