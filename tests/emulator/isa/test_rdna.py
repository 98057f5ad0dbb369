# SPDX-License-Identifier: MIT OR Apache-2.0
"""Instructions that only RDNA has: pairs of operations, permutations of rows, registers named by M0, halves.

The cases exist when $FMHA_EMU_ARCH is one of RDNA's archs; test_rdna_values.py runs them so, in waves
of 32 lanes and of 64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ..support import fp
from ..support.asm import ALL_LANES, LANES, Case, Result, Suite
from ..support.findings import Kernels
from ..support.fp import Array
from ..support.ops.ops1 import sat_pk_u8
from ..support.ops.ops3p import fields
from ..support.ops.ops_rdna import MAXIMUM, MINIMUM
from ..support.ops.predicates import classify, masks
from ..support.ops.valu import same
from ..support.spelling import GENERATION, NARROW, RDNA

SUITE = Suite("rdna")
_U = np.uint32
RNG = np.random.default_rng(0)
X, Y, Z, W = (RNG.integers(0, 1 << 32, LANES, dtype=_U) for _ in range(4))
HOLES = 0x1D3C_A6D2_80F1_7A5C & ALL_LANES
LANE = np.arange(LANES)
ON = np.array([HOLES >> i & 1 for i in range(LANES)], bool)
Check = Callable[[Result], None]


def add(
    name: str,
    lines: Sequence[str],
    want: dict[str, Any],
    vin: dict[str, Any] | None = None,
    sin: dict[str, Any] | None = None,
    covers: Sequence[str] = (),
) -> None:
    """A case whose registers have these bits afterwards."""

    def check(result: Result) -> None:
        for register, value in want.items():
            np.testing.assert_array_equal(result[register], np.broadcast_to(value, result[register].shape))

    SUITE.add(name, lines, list(want), check, {"v1": X} | (vin or {}), sin or {}, covers=covers)


def _pairs() -> None:
    """VOPD: both halves read before either writes; literals, VCC, and what lanes that are off keep."""
    one = _U(0x3F800000)
    f = [v.view(np.float32) for v in (X & _U(0x3FFFFFFF), Y & _U(0x3FFFFFFF), Z & _U(0x3FFFFFFF))]
    a, b, c = (v.view(_U) for v in f)
    picked = np.array([0xA5C3_0F1E >> i & 1 for i in range(LANES)], bool)

    def bits(values: Array) -> Array:
        return values.astype(np.float32).view(_U)

    cases: list[tuple[str, Array, Array]] = [
        ("v_dual_mov_b32 v2, v5 :: v_dual_mov_b32 v5, v2", b, a),
        ("v_dual_add_f32 v2, v5, v6 :: v_dual_mul_f32 v5, v2, v7", bits(f[1] + f[2]), bits(f[0] * f[1])),
        ("v_dual_sub_f32 v2, v5, v6 :: v_dual_subrev_f32 v5, v2, v7", bits(f[1] - f[2]), bits(f[1] - f[0])),
        ("v_dual_fmac_f32 v2, v5, v6 :: v_dual_add_nc_u32 v5, v2, v7", bits(fp.fma(f[1], f[2], f[0])), a + b),
        ("v_dual_cndmask_b32 v2, v5, v6 :: v_dual_lshlrev_b32 v5, 3, v7", np.where(picked, c, b), b << _U(3)),
        ("v_dual_mov_b32 v2, 0x12345678 :: v_dual_and_b32 v5, 0x12345678, v7",
         np.full(LANES, 0x12345678, _U), b & _U(0x12345678)),
        ("v_dual_fmaak_f32 v2, v5, v6, 0x3f800000 :: v_dual_fmamk_f32 v5, v2, 0x3f800000, v7",
         bits(fp.fma(f[1], f[2], one.view(np.float32))), bits(f[0] + f[1])),
        ("v_dual_mul_dx9_zero_f32 v2, 0, v6 :: v_dual_mul_dx9_zero_f32 v5, 1.0, v7", 0 * a, b),
    ]  # fmt: skip
    maximum = "max_num" if GENERATION == 12 else "max"
    cases.append(
        (
            f"v_dual_{maximum}_f32 v2, v5, v6 :: v_dual_mov_b32 v5, 1.0",
            bits(np.maximum(f[1], f[2])),
            0 * a + one,
        )
    )
    for n, (line, first, second) in enumerate(cases):
        for mask, on in ((ALL_LANES, ON | True), (HOLES, ON)):
            want = {"v2": np.where(on, first, a), "v5": np.where(on, second, b)}
            vin = {"v2": a, "v5": b, "v6": c, "v7": b}
            add(f"v_dual-{n}-{mask:x}", [line], want, vin, {"exec": mask, "vcc": 0xA5C3_0F1E}, ["v_dual"])


def _permutations() -> None:
    select = [int(v) for v in RNG.integers(0, 16, 16)]
    packed = [sum(s << 4 * i for i, s in enumerate(select[k : k + 8])) for k in (0, 8)]
    source = LANE & ~15 | np.array(select)[LANE & 15]
    sin = {"s4": packed[0], "s6": packed[1]}
    for name, lane in (("v_permlane16_b32", source), ("v_permlanex16_b32", source ^ 16)):
        add(name, [f"{name} v10, v2, s4, s6"], {"v10": X[lane]}, {"v2": X}, sin)
        # Lanes that are off are read all the same with the first bit, which is "fetch inactive".
        want = np.where(ON, X[lane], Y)
        add(
            f"{name}-inactive",
            [f"{name} v10, v2, s4, s6 op_sel:[1,0]"],
            {"v10": want},
            {"v2": X, "v10": Y},
            sin | {"exec": HOLES},
        )
        add(f"{name}-itself", [f"{name} v2, v2, s4, s6"], {"v2": X[lane]}, {"v2": X}, sin)
    for name, other in (("v_permlane16_var_b32", 0), ("v_permlanex16_var_b32", 16)):
        lane = LANE & ~15 ^ other | (Y & 15).astype(int)
        add(name, [f"{name} v10, v2, v4"], {"v10": X[lane]}, {"v2": X, "v4": Y})
        want = np.where(ON, X[lane], Z)
        vin = {"v2": X, "v4": Y, "v10": Z}
        add(f"{name}-inactive", [f"{name} v10, v2, v4 op_sel:[1,0]"], {"v10": want}, vin, {"exec": HOLES})
    # The halves change places, lanes that are off among them; a wave of 32 has none.
    swapped = Y if NARROW else X[LANE ^ 32]
    add("v_permlane64_b32", ["v_permlane64_b32 v10, v2"], {"v10": swapped}, {"v2": X, "v10": Y})
    want = np.where(ON, swapped, Y)
    add(
        "v_permlane64_b32-off",
        ["v_permlane64_b32 v10, v2"],
        {"v10": want},
        {"v2": X, "v10": Y},
        {"exec": HOLES},
    )
    add("v_permlane64_b32-itself", ["v_permlane64_b32 v2, v2"], {"v2": X if NARROW else swapped}, {"v2": X})


def _by_m0() -> None:
    """Relative registers: M0 for one, or its low half for the source and bits 25:16 for the destination."""
    m0 = 3 << 16 | 2
    add("v_movrels_b32", ["v_movrels_b32 v10, v2"], {"v10": Y}, {"v5": Y, "v2": X}, {"m0": 3})
    add("v_movreld_b32", ["v_movreld_b32 v10, v2"], {"v13": X, "v10": Z}, {"v2": X, "v10": Z}, {"m0": 3})
    vin = {"v4": Y, "v6": X, "v10": Z, "v13": Z, "v12": W}
    add("v_movrelsd_b32", ["v_movrelsd_b32 v10, v4"], {"v12": X, "v10": Z}, vin, {"m0": 2})
    add("v_movrelsd_2_b32", ["v_movrelsd_2_b32 v10, v4"], {"v13": X, "v10": Z, "v12": W}, vin, {"m0": m0})
    add("v_swaprel_b32", ["v_swaprel_b32 v10, v4"], {"v13": X, "v6": Z, "v4": Y}, vin, {"m0": m0})
    sin = {"s4": 1, "s6": 77, "s10": 5, "s13": 6}
    add("s_movrelsd_2_b32", ["s_movrelsd_2_b32 s10, s4"], {"s13": 77, "s10": 5}, {}, sin | {"m0": m0})


# VOP1 and VOP2 in 4 bytes, whose 16-bit registers are halves of v0 to v127: bit 7 says which.
_VOP1_MOV_B16, _ADD_F16, _HIGH = 0x1C, 0x32, 0x80


def _halves() -> None:
    x, y = (v.view(np.uint16).reshape(LANES, 2) for v in (X, Y))
    for low_dst in (True, False):
        for half in (0, 1):
            word = (
                0x7E000000
                | (10 | (0 if low_dst else _HIGH)) << 17
                | _VOP1_MOV_B16 << 9
                | 256 + 2 + half * _HIGH
            )
            got = x[:, half].astype(_U)
            want = Z & _U(0xFFFF0000) | got if low_dst else Z & _U(0xFFFF) | got << _U(16)
            add(
                f"v_mov_b16-{low_dst}-{half}",
                [f".long 0x{word:x}"],
                {"v10": want},
                {"v2": X, "v10": Z},
                covers=["v_mov_b16"],
            )
    small = [(v & np.uint16(0x3FFF)).view(np.float16) for v in (x, y)]
    vin = {"v2": X & _U(0x3FFF3FFF), "v4": Y & _U(0x3FFF3FFF), "v10": Z}
    for picks in range(8):
        a, b, d = (picks >> i & 1 for i in range(3))
        word = _ADD_F16 << 25 | (10 | d * _HIGH) << 17 | (4 | b * _HIGH) << 9 | 256 + 2 + a * _HIGH
        total = (small[0][:, a] + small[1][:, b]).view(np.uint16).astype(_U)
        want = Z & _U(0xFFFF) | total << _U(16) if d else Z & _U(0xFFFF0000) | total
        add(f"v_add_f16-halves{picks}", [f".long 0x{word:x}"], {"v10": want}, vin, covers=["v_add_f16"])
    pick = np.array([HOLES >> i & 1 for i in range(LANES)], bool)
    got = np.where(pick, y[:, 0], x[:, 0]).astype(_U)
    mask = "s8" if NARROW else "s[8:9]"
    vin, sin = {"v2": X, "v4": Y, "v10": Z}, {mask: HOLES}
    add("v_cndmask_b16", [f"v_cndmask_b16 v10, v2, v4, {mask}"], {"v10": Z & _U(0xFFFF0000) | got}, vin, sin)


def _placed(old: Array, high: int, value: Array) -> Array:
    """A register of which one half is written."""
    bits = np.ascontiguousarray(value).view(np.uint16).astype(_U)
    return old & _U(0xFFFF) | bits << _U(16) if high else old & _U(0xFFFF0000) | bits


def _words(*words: int) -> str:
    return ".long " + ", ".join(f"0x{w:x}" for w in words)


# A short form and a 64-bit one whose operands are v10, v2 and v4; and words of DPP that swap neighbours.
def _short(op: int, d: int, a: int, b: int) -> int:
    return op << 25 | (10 | d * _HIGH) << 17 | (4 | b * _HIGH) << 9 | 256 + 2 + a * _HIGH


_LONG_SOURCES, _DPP, _SWAPPED = 256 + 2 | (256 + 4) << 9, 250, 0xFF00B100


def _accumulated() -> None:
    """v_fmac_f16 adds to the half that it writes, in each form; v_fmamk and v_fmaak have halves too."""
    fmac, fmamk, fmaak, half_and_one = 0x36, 0x37, 0x38, 0x3E00
    registers = {"v2": X & _U(0x3FFF3FFF), "v4": Y & _U(0x3FFF3FFF), "v10": Z & _U(0x3FFF3FFF)}
    x, y, z = (np.ascontiguousarray(v).view(np.float16).reshape(LANES, 2) for v in registers.values())
    k = np.full(LANES, 1.5, np.float16)
    for picks in range(8):
        a, b, d = (picks >> i & 1 for i in range(3))
        short = _short(fmac, d, a, b)
        long = 0xD5360000 | (a | b << 1 | d << 3) << 11 | 10
        moved = x[LANE ^ 1, a]
        by_dpp = short & ~0x1FF | _DPP
        forms = {
            "e32": ((short,), fp.fma(x[:, a], y[:, b], z[:, d])),
            "e64": ((long, _LONG_SOURCES), fp.fma(x[:, a], y[:, b], z[:, d])),
            "dpp": ((by_dpp, _SWAPPED | 2 | a * _HIGH), fp.fma(moved, y[:, b], z[:, d])),
            "e64_dpp": ((long, _DPP | (256 + 4) << 9, _SWAPPED | 2), fp.fma(moved, y[:, b], z[:, d])),
            "fmamk": ((_short(fmamk, d, a, b), half_and_one), fp.fma(x[:, a], k, y[:, b])),
            "fmaak": ((_short(fmaak, d, a, b), half_and_one), fp.fma(x[:, a], y[:, b], k)),
        }
        for form, (words, value) in forms.items():
            want = {"v10": _placed(registers["v10"], d, value)}
            name = f"v_{form}_f16" if form.startswith("fma") else "v_fmac_f16"
            add(f"{name}-{form}-halves{picks}", [_words(*words)], want, registers, covers=[name])


def _moved_halves() -> None:
    """Halves that change places, results of 16 bits that others have as 32, and halves of operands of 32."""
    for picks in range(4):
        a, d = picks & 1, picks >> 1
        word = 0x7E000000 | (10 | d * _HIGH) << 17 | 0x66 << 9 | 256 + 2 + a * _HIGH
        x, z = (v.view(np.uint16).reshape(LANES, 2) for v in (X, Z))
        want = {
            "v10": np.where(ON, _placed(Z, d, x[:, a]), Z),
            "v2": np.where(ON, _placed(X, a, z[:, d]), X),
        }
        vin = {"v2": X, "v10": Z}
        add(f"v_swap_b16-{picks}", [_words(word)], want, vin, {"exec": HOLES}, ["v_swap_b16"])
    itself = _words(0x7E000000 | (10 | _HIGH) << 17 | 0x66 << 9 | 256 + 10)
    add("v_swap_b16-itself", [itself], {"v10": Z << _U(16) | Z >> _U(16)}, {"v10": Z}, covers=["v_swap_b16"])
    small = X & _U(0x81FF81FF)  # beyond a byte on either side
    packed = sat_pk_u8(small).astype(np.uint16)
    for d in range(2):
        for form, words in {
            "e32": (0x7E000000 | (10 | d * _HIGH) << 17 | 0x62 << 9 | 256 + 2,),
            "e64": (0xD5E20000 | d << 14 | 10, 256 + 2),
        }.items():
            want = {"v10": _placed(Z, d, packed)}
            vin = {"v2": small, "v10": Z}
            add(f"v_sat_pk_u8_i16-{form}-{d}", [_words(*words)], want, vin, covers=["v_sat_pk_u8_i16"])
    for name, op, bits in (("bit", 0x216, 1), ("byte", 0x217, 8)):
        for half in range(2):
            words = (0xD4000000 | op << 16 | half << 13 | 10, _LONG_SOURCES | (256 + 6) << 18)
            shift = (W >> _U(16 * half) & _U(31 if bits == 1 else 3)).astype(np.uint64) * np.uint64(bits)
            want = {"v10": ((X.astype(np.uint64) << np.uint64(32) | Y) >> shift).astype(_U)}
            vin = {"v2": X, "v4": Y, "v6": W}
            add(f"v_align{name}_b32-{half}", [_words(*words)], want, vin, covers=[f"v_align{name}_b32"])


def _classes_of_halves() -> None:
    """v_cmp_class_f16 beside a mask of classes that is half a register."""
    a = np.resize(fp.edges("f16").astype(np.uint16), (LANES, 2))
    wanted = Y.view(np.uint16).reshape(LANES, 2)
    vin = {"v2": np.ascontiguousarray(a).view(_U)[:, 0], "v4": Y}
    for picks in range(4):
        x, m = picks & 1, picks >> 1
        word = 0x7C000000 | 0x7D << 17 | (4 | m * _HIGH) << 9 | 256 + 2 + x * _HIGH
        hit = classify(np.ascontiguousarray(a[:, x]).view(np.float16), wanted[:, m])
        (mask,) = masks(hit)
        into = "s8" if NARROW else "s[8:9]"
        want = {"s8": mask & 0xFFFFFFFF} | ({} if NARROW else {"s9": mask >> 32})
        copied = f"s_mov_b{32 if NARROW else 64} {into}, vcc{'_lo' if NARROW else ''}"
        add(f"v_cmp_class_f16-halves{picks}", [_words(word), copied], want, vin, covers=["v_cmp_class_f16"])


def _halves_of_pairs() -> None:
    """gfx12's v_cvt_pk_f32_fp8, whose short form names the half of its source."""
    for name, op, table in (("fp8", 0x6E, fp.FP8_VALUES), ("bf8", 0x6F, fp.BF8_VALUES)):
        codes = (X & _U(0x3F3F3F3F)).view(np.uint8).reshape(LANES, 4)  # no NaN
        vin = {"v2": X & _U(0x3F3F3F3F)}
        for half in range(2):
            want = table[codes[:, 2 * half : 2 * half + 2]].astype(np.float32).view(_U).T
            forms = {
                "e32": (0x7E000000 | 10 << 17 | op << 9 | 256 + 2 + half * _HIGH,),
                "e64": (0xD5800000 | op << 16 | half << 11 | 10, 256 + 2),
            }
            for form, words in forms.items():
                case = f"v_cvt_pk_f32_{name}-{form}-{half}"
                add(case, [_words(*words)], {"v[10:11]": want}, vin, covers=[f"v_cvt_pk_f32_{name}"])


def _float_case(
    name: str, line: str, vin: dict[str, Array], want: Array, bound: Array, kept: Array | None = None
) -> None:
    """A result within a bound of `want`; 16 bits of it beside what `kept` has above."""

    def check(result: Result) -> None:
        full = result["v10"][0]
        if want.dtype.itemsize == 2:
            got = (full & _U(0xFFFF)).astype(np.uint16).view(want.dtype)
            assert kept is not None
            assert (full >> _U(16) == kept >> _U(16)).all()
        else:
            got = full.view(np.float32)
        error = np.abs(got.astype(np.float64) - want.astype(np.float64))
        assert (error <= bound).all(), (name, int(error.argmax()), error.max())

    SUITE.add(name, [line], ["v10"], check, {k: np.ascontiguousarray(v) for k, v in vin.items()})


def _dots() -> None:
    """Integers exactly; floats exactly where no rounding can matter, and within their roundings else."""
    for bits, name in ((8, "v_dot4_i32_iu8"), (4, "v_dot8_i32_iu4")):
        for neg in range(4):
            signs = [bool(neg >> i & 1) for i in range(2)]
            total = (fields(X, bits, signs[0]) * fields(Y, bits, signs[1])).sum(1) + Z.view(np.int32)
            text = f" neg_lo:[{neg & 1},{neg >> 1},0]" if neg else ""
            for clamp in ("", " clamp"):
                value = np.clip(total, -(1 << 31), (1 << 31) - 1) if clamp else total
                want = (value & 0xFFFFFFFF).astype(_U)
                line = f"{name} v10, v2, v4, v6{text}{clamp}"
                add(f"{name}-{neg}{clamp}", [line], {"v10": want}, {"v2": X, "v4": Y, "v6": Z})
    kinds: tuple[tuple[str, Any, Any, float], ...] = (
        ("v_dot2_f32_bf16", ml_dtypes.bfloat16, np.float32, 2.0**-24),
        ("v_dot2_f16_f16", np.float16, np.float16, 2.0**-11),
        ("v_dot2_bf16_bf16", ml_dtypes.bfloat16, ml_dtypes.bfloat16, 2.0**-8),
    )
    for name, kind, out, ulp in kinds:
        for exact in (True, False):
            a, b = (
                RNG.integers(-8, 9, (LANES, 2)) if exact else RNG.normal(0, 4, (LANES, 2)) for _ in range(2)
            )
            c = RNG.integers(-64, 65, LANES) if exact else RNG.normal(0, 4, LANES)
            a, b, c = (v.astype(t) for v, t in ((a, kind), (b, kind), (c, out)))
            products = a.astype(np.float64) * b.astype(np.float64)
            want = products.sum(1) + c.astype(np.float64)
            # A rounding of each partial sum.
            bound = 0 * want if exact else 3 * ulp * (np.abs(products).sum(1) + np.abs(c.astype(np.float64)))
            wide = c.view(_U) if c.dtype.itemsize == 4 else c.view(np.uint16).astype(_U) | _U(0x55AA0000)
            vin = {"v2": a.view(_U)[:, 0], "v4": b.view(_U)[:, 0], "v6": wide, "v10": Z}
            result = want.astype(out) if exact else want
            if out is not np.float32 and not exact:
                result = want.astype(out)
                bound = bound + ulp * np.abs(want)
            _float_case(f"{name}-{exact}", f"{name} v10, v2, v4, v6", vin, result.astype(out), bound, Z)
    for first, second in (("fp8", "fp8"), ("fp8", "bf8"), ("bf8", "fp8"), ("bf8", "bf8")):
        tables = [fp.FP8_VALUES if k == "fp8" else fp.BF8_VALUES for k in (first, second)]
        small = [np.flatnonzero(np.isfinite(t) & (np.abs(t) <= 8) & (t == np.rint(t))) for t in tables]
        codes = [RNG.choice(s, (LANES, 4)).astype(np.uint8) for s in small]
        c = RNG.integers(-64, 65, LANES).astype(np.float32)
        values = [t[k].astype(np.float64) for t, k in zip(tables, codes, strict=True)]
        want = ((values[0] * values[1]).sum(1) + c).astype(np.float32)
        name = f"v_dot4_f32_{first}_{second}"
        vin = {"v2": codes[0].view(_U)[:, 0], "v4": codes[1].view(_U)[:, 0], "v6": c}
        _float_case(name, f"{name} v10, v2, v4, v6", vin, want, 0 * want.astype(np.float64))


def _packed_minimum() -> None:
    for name, fn in (("v_pk_minimum_f16", MINIMUM), ("v_pk_maximum_f16", MAXIMUM)):
        a, b = fp.lanes_of(("pf16", "pf16"))
        halves = [np.ascontiguousarray(v).view(np.float16).reshape(-1, 2) for v in (a, b)]

        def check(result: Result, halves: list[Array] = halves, fn: Any = fn) -> None:
            got = np.ascontiguousarray(result["v10"][0]).view(np.float16).reshape(-1, 2)
            for i in range(2):
                same(got[:, i].copy(), fn(halves[0][:, i], halves[1][:, i]), 0, [h[:, i] for h in halves])

        SUITE.add(name, [f"{name} v10, v2, v4"], ["v10"], check, {"v2": a, "v4": b})


def _dpp() -> None:
    """Rows shared and crossed, eight lanes at will, in short and long forms; what lanes that are off give."""
    old = {"v2": X, "v10": Y}
    eight = (7, 0, 3, 3, 1, 6, 2, 5)
    lanes = LANE & ~7 | np.array(eight)[LANE & 7]
    forms = [
        *((f"row_share:{n}", LANE & ~15 | n) for n in (0, 5, 15)),
        *((f"row_xmask:{n}", LANE ^ n) for n in (1, 6, 15)),
        (f"dpp8:[{','.join(map(str, eight))}]", lanes),
    ]
    for control, lane in forms:
        dpp8 = control.startswith("dpp8")
        tail = "" if dpp8 else " row_mask:0xf bank_mask:0xf"
        for suffix in ("_dpp", "_e64_dpp")[: GENERATION - 9]:
            name, op = f"{suffix}-{control}", f"v_mov_b32{suffix} v10, v2 {control}{tail}"
            add(f"v_mov_b32{name}", [op], {"v10": X[lane]}, old, covers=["v_mov_b32"])
            # A source lane that is off: read with fi; else a zero with bound_ctrl and DPP8, else no write.
            sin = {"exec": HOLES}
            inside = np.where(ON, X[lane], Y)
            add(f"v_mov_b32{name}-fi", [f"{op} fi:1"], {"v10": inside}, old, sin, ["v_mov_b32"])
            zeros = np.where(ON, np.where(ON[lane], X[lane], 0), Y)
            left = np.where(ON & ON[lane], X[lane], Y)
            add(f"v_mov_b32{name}-off", [op], {"v10": zeros if dpp8 else left}, old, sin, ["v_mov_b32"])
            if not dpp8:
                line = f"{op} bound_ctrl:1"
                add(f"v_mov_b32{name}-bound", [line], {"v10": zeros}, old, sin, ["v_mov_b32"])
    if GENERATION == 10:  # which has no long forms
        return
    # In a long form with three sources the first comes from another lane; modifiers apply.
    a, b, c = (RNG.normal(0, 1, LANES).astype(np.float32) for _ in range(3))
    total = fp.fma(-a[LANE ^ 1], np.abs(b), c)
    line = "v_fma_f32_e64_dpp v10, -v2, |v4|, v6 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf"
    add(
        "v_fma_f32_e64_dpp",
        [line],
        {"v10": total.view(_U)},
        {"v2": a, "v4": b, "v6": c},
        covers=["v_fma_f32"],
    )
    line = f"v_cmp_lt_f32_e64_dpp {'s8' if NARROW else 's[8:9]'}, v2, v4 dpp8:[1,0,3,2,5,4,7,6]"
    less = sum(1 << int(i) for i in LANE if a[i ^ 1] < b[i])
    want = {"s8": less} if NARROW else {"s8": less & 0xFFFFFFFF, "s9": less >> 32}
    add("v_cmp_lt_f32_e64_dpp", [line], want, {"v2": a, "v4": b}, covers=["v_cmp_lt_f32"])


def _literals() -> None:
    """64-bit encodings with a literal behind them, for each place of a source."""
    f = [RNG.normal(0, 1, LANES).astype(np.float32) for _ in range(3)]
    pi = np.float32(np.pi)
    vin = {"v2": f[0], "v4": f[1], "v6": f[2]}
    for place in range(3):
        names, values = ["v2", "v4", "v6"], list(f)
        names[place], values[place] = "0x40490fdb", np.full(LANES, pi)
        want = fp.fma(*values).view(_U)
        add(
            f"v_fma_f32-literal{place}",
            [f"v_fma_f32 v10, {', '.join(names)}"],
            {"v10": want},
            vin,
            covers=["v_fma_f32"],
        )
    # The same literal twice is one; of 64-bit integers it is extended, of doubles it is the upper half.
    want = fp.fma(np.full(LANES, pi), np.full(LANES, pi), f[2]).view(_U)
    line = "v_fma_f32 v10, 0x40490fdb, 0x40490fdb, v6"
    add("v_fma_f32-literals", [line], {"v10": want}, vin, covers=["v_fma_f32"])
    doubles = np.stack([X, Y & _U(0x3FFFFFFF)], 1).copy().view(np.float64)[:, 0]
    line = "v_add_f64 v[10:11], v[2:3], 0x400921fb"
    total = (doubles + np.uint64(0x400921FB00000000).view(np.float64)).view(_U).reshape(LANES, 2).T
    add("v_add_f64-literal", [line], {"v[10:11]": total}, {"v[2:3]": doubles}, covers=["v_add_f64"])
    line = "v_pk_add_u16 v10, v2, 0x12345678"
    halves = (X.view(np.uint16).reshape(-1, 2) + np.array([0x5678, 0x1234], np.uint16)).view(_U)[:, 0]
    add("v_pk_add_u16-literal", [line], {"v10": halves}, {"v2": X}, covers=["v_pk_add_u16"])


def _halves_of_a_wave() -> None:
    """s_subvector_loop: the lower half of the lanes runs, then the upper one, each if it has a lane on."""
    loop = ["v_add_nc_u32 v10, v10, v2", "s_add_u32 s8, s8, 1"]
    body = ["s_mov_b32 s8, 0", "s_subvector_loop_begin s4, 0x3", *loop, "s_subvector_loop_end s4, 0xfffd"]
    covered = ["s_subvector_loop_begin", "s_subvector_loop_end"]
    for mask in (ALL_LANES, HOLES, HOLES & 0xFFFFFFFF, HOLES >> 32 << 32, 0):
        on = np.array([mask >> i & 1 for i in range(LANES)], bool)
        runs = int(mask & 0xFFFFFFFF != 0) + int(mask >> 32 != 0)
        want = {"v10": np.where(on, Y + X, Y), "s8": runs, "s10": mask & 0xFFFFFFFF, "s11": mask >> 32}
        lines = [*body, "s_mov_b64 s[10:11], exec"]
        add(f"s_subvector_loop-{mask:x}", lines, want, {"v10": Y, "v2": X}, {"exec": mask}, covered)


if RDNA:
    if NARROW:
        _pairs()
    elif GENERATION < 12:
        _halves_of_a_wave()
    _permutations()
    _by_m0()
    if GENERATION > 10:
        _halves()
        _accumulated()
        _moved_halves()
        _classes_of_halves()
    if GENERATION > 11:
        _halves_of_pairs()
    _dots()
    _packed_minimum()
    _dpp()
    _literals()


@pytest.mark.skipif(not RDNA, reason="of RDNA")
@SUITE.parametrize()
def test_rdna(case: Case) -> None:
    """Values arrive in the right registers, and others stay."""
    SUITE.check(case)


@pytest.mark.skipif(NARROW or GENERATION < 11, reason="of waves of 64, where waves of 32 have it")
def test_no_pairs() -> None:
    """VOPD in a wave of 64: refused by name."""
    mov_and_mov = (0xCA100105, 0x02040102)  # v_dual_mov_b32 v2, v5 :: v_dual_mov_b32 v5, v2
    text = Kernels({"dual": [f".long {word:#x}" for word in mov_and_mov]}).finding("dual")
    assert "VOPD" in text, text
    assert "waves of 32 lanes only" in text, text
