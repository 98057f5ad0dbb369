# SPDX-License-Identifier: MIT OR Apache-2.0
"""DPP of packed instructions, which gfx11 and gfx12 have: sources come from other lanes, halves and all.

Inputs are small integers, of which nothing rounds. The cases exist when $FMHA_EMU_ARCH is one of those archs;
code/test_rdna_values.py runs them so, in waves of 32 lanes and of 64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..support import fp, rows
from ..support.asm import ALL_LANES, LANES, Case, Result, Suite
from ..support.fp import Array
from ..support.ops.memory_ops import HOLES, LANE, ON
from ..support.spelling import GENERATION, exists

SUITE = Suite("rdna_dpp")
_U = np.uint32
_RNG = np.random.default_rng(21)
_OLD = _RNG.integers(0, 1 << 32, LANES, dtype=_U)
_EIGHT = (7, 0, 3, 3, 1, 6, 2, 5)
_ALL = np.ones(LANES, bool)


@dataclass(frozen=True)
class _Control:
    """A permutation: the lane that each lane reads, -1 for none, and which lanes may be written."""

    text: str
    lane: Array
    masked: Array | bool = True
    zeros: bool = False  # a lane without a source reads 0, and is written
    inactive: bool = False  # lanes that are off can be read


_SHARE = LANE & ~15 | 5
_BY8 = LANE & ~7 | np.array(_EIGHT)[LANE & 7]
_TEXT8 = f"dpp8:[{','.join(map(str, _EIGHT))}]"
_MASKED = (LANE // 16 % 2 == 0) & np.isin(LANE // 4 % 4, (1, 2))
_SHIFTED = np.where((LANE & 15) < 13, LANE + 3, -1)
_CONTROLS = (
    _Control("quad_perm:[1,0,3,2]", LANE ^ 1),
    _Control("row_shl:3", _SHIFTED),
    _Control("row_shl:3 bound_ctrl:1", _SHIFTED, zeros=True),
    _Control("row_share:5 row_mask:0x5 bank_mask:0x6", _SHARE, _MASKED),
    _Control("row_xmask:6 fi:1", LANE ^ 6, inactive=True),
    _Control(_TEXT8, _BY8, zeros=True),
    _Control(f"{_TEXT8} fi:1", _BY8, inactive=True),
)


def _add(name: str, line: str, vin: dict[str, Array], want: Callable[[Array], Array], **sin: int) -> None:
    """The instruction under every control: `want` has the bits of v10 by those of v2 where they are read."""
    if not exists(name):
        return
    for n, control in enumerate(_CONTROLS):
        for mask, on in ((ALL_LANES, _ALL), (HOLES, ON)):
            there = (control.lane >= 0) & (on[control.lane] | control.inactive)
            source = np.where(there, vin["v2"].view(_U)[control.lane], 0).astype(_U)
            written = on & control.masked & (there | control.zeros)
            result = np.where(written, want(source), vin.get("v10", _OLD))

            def check(got: Result, result: Array = result) -> None:
                np.testing.assert_array_equal(got["v10"][0], result)

            SUITE.add(
                f"{name}-{len(SUITE.cases)}-{n}-{mask:x}",
                [f"{line} {control.text}"],
                ["v10"],
                check,
                {"v10": _OLD} | vin,
                {"exec": mask} | sin,
                covers=[name],
            )


def _small(kind: Any, *shape: int) -> Array:
    return np.ascontiguousarray(_RNG.integers(-8, 9, (LANES, *shape)).astype(kind))


def _halves(bits: Array) -> Array:
    """The two halves of each register, as float64."""
    return np.ascontiguousarray(bits).view(np.float16).reshape(-1, 2).astype(np.float64)


def _f32(values: Array) -> Array:
    return values.astype(np.float32).view(_U)


def _f16(values: Array) -> Array:
    return values.astype(np.float16).view(np.uint16).astype(_U)


def _mixes() -> None:
    """-(upper half of the moved source) * |v4| + lower half of v6."""
    a, b, c = _small(np.float16, 2).view(_U)[:, 0], _small(np.float32), _small(np.float16, 2).view(_U)[:, 0]
    tail = "op_sel:[1,0,0] op_sel_hi:[1,0,1]"

    def total(source: Array) -> Array:
        return -_halves(source)[:, 1] * np.abs(b) + _halves(c)[:, 0]

    def low(source: Array) -> Array:
        return _OLD & _U(0xFFFF0000) | _f16(total(source))

    def high(source: Array) -> Array:
        return _OLD & _U(0xFFFF) | _f16(total(source)) << _U(16)

    vin = {"v2": a, "v4": b, "v6": c}
    wants = (("f32", lambda source: _f32(total(source))), ("lo_f16", low), ("hi_f16", high))
    for kind, want in wants:
        name = f"v_fma_mix{'_' if kind == 'f32' else ''}{kind}"
        _add(name, f"{name}_e64_dpp v10, -v2, |v4|, v6 {tail}", vin, want)
    clamped = f"v_fma_mix_f32_e64_dpp v10, -v2, |v4|, v6 {tail} clamp"
    _add("v_fma_mix_f32", clamped, vin, lambda source: _f32(np.clip(total(source), 0, 1) + 0.0))


def _dots() -> None:
    """Sums of products, of halves, with one factor of each negated or none; and of bytes."""
    a, b, c = _small(np.float16, 2).view(_U)[:, 0], _small(np.float16, 2).view(_U)[:, 0], _small(np.float32)
    name = "v_dot2_f32_f16"

    def total(source: Array) -> Array:
        return _f32((_halves(source) * _halves(b) * -1).sum(1) + c)

    vin = {"v2": a, "v4": b, "v6": c}
    _add(name, f"{name}_e64_dpp v10, v2, v4, v6", vin, lambda s: _f32((_halves(s) * _halves(b)).sum(1) + c))
    _add(name, f"{name}_e64_dpp v10, v2, v4, v6 neg_lo:[1,0,0] neg_hi:[0,1,0]", vin, total)
    if GENERATION == 12 or rows.arch() == "gfx1150":  # where the second source may be an SGPR
        twos = int(np.full(2, 2, np.float16).view(_U)[0])
        _add(name, f"{name}_e64_dpp v10, v2, s4, v6", vin, lambda s: _f32(_halves(s).sum(1) * 2 + c), s4=twos)
    tables = {"fp8": fp.FP8_VALUES, "bf8": fp.BF8_VALUES}
    for first in tables:
        for second in tables:
            codes = []
            for kind in (first, second):
                table = tables[kind]
                small = np.isfinite(table) & (np.abs(table) <= 8) & (table == np.rint(table))
                codes.append(_RNG.choice(np.flatnonzero(small), (LANES, 4)).astype(np.uint8))
            x, y = (code.view(_U)[:, 0] for code in codes)
            factors = tables[second][codes[1]].astype(np.float64)

            def sums(source: Array, table: Array = tables[first], factors: Array = factors) -> Array:
                bytes_ = np.ascontiguousarray(source).view(np.uint8).reshape(-1, 4)
                return _f32((table[bytes_].astype(np.float64) * factors).sum(1) + c)

            name = f"v_dot4_f32_{first}_{second}"
            _add(name, f"{name}_e64_dpp v10, v2, v4, v6", {"v2": x, "v4": y, "v6": c}, sums)


def _accumulated() -> None:
    """v_pk_fmac_f16, whose short form has DPP."""
    a, b, c = (_small(np.float16, 2).view(_U)[:, 0] for _ in range(3))

    def want(source: Array) -> Array:
        both = (_halves(source) * _halves(b) + _halves(c)).astype(np.float16)
        return np.ascontiguousarray(both).view(_U)[:, 0]

    _add("v_pk_fmac_f16", "v_pk_fmac_f16_dpp v10, v2, v4", {"v2": a, "v4": b, "v10": c}, want)


if GENERATION > 10:
    _mixes()
    _dots()
    _accumulated()


@SUITE.parametrize()
def test_rdna_dpp(case: Case) -> None:
    """Values come from the lanes that the control names, or from nowhere."""
    SUITE.check(case)
