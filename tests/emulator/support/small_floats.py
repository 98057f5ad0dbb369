# SPDX-License-Identifier: MIT OR Apache-2.0
"""OCP's small floats, written from their specification: tables of values, scales of E8M0, both roundings.

Sources: the OCP Microscaling Formats (MX) specification 1.0 for the formats and for E8M0, the CDNA4 ISA guide
(7.3, and the pseudocode of V_CVT_SCALEF32_*) for what converts to what, which bits are the scale, what
MODE changes and what saturates, and AMD's amd_hip_ocp_host.hpp for a NaN in 6 or 4 bits and for where
stochastic rounding adds its bits: below the last one kept, as many as the source has there, the upper ones
of the number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]
U32 = np.uint32
NAN_SCALE = 255


@dataclass(frozen=True)
class Format:
    """A float of a sign, `exponent` and `mantissa` bits."""

    name: str
    exponent: int
    mantissa: int

    @property
    def bits(self) -> int:
        """The number of bits of a code."""
        return 1 + self.exponent + self.mantissa

    @property
    def sign(self) -> int:
        """The sign's bit."""
        return 1 << (self.bits - 1)

    @property
    def bias(self) -> int:
        """The bias of the exponent."""
        return (1 << (self.exponent - 1)) - 1

    @property
    def most(self) -> int:
        """The code of the largest number: below infinity, or below the NaN of E4M3."""
        return {"bf8": 0x7B, "fp8": 0x7E}.get(self.name, self.sign - 1)

    @property
    def over(self) -> int:
        """The code of a larger number if nothing saturates it."""
        return {"bf8": 0x7C, "fp8": 0x7F}.get(self.name, self.most)

    @property
    def nan(self) -> int:
        """The code of a NaN."""
        return {"bf8": 0x7E, "fp8": 0x7F}.get(self.name, self.most)

    def step(self, exponent: Array) -> Array:
        """The distance of neighbours among numbers of 2^exponent and more."""
        least = 1 - self.bias
        return np.ldexp(1.0, np.maximum(exponent, least).astype(int) - self.mantissa)

    @cached_property
    def values(self) -> NDArray[np.float64]:
        """The number of every code."""
        code = np.arange(1 << self.bits)
        field = code >> self.mantissa & ((1 << self.exponent) - 1)
        fraction = (code & ((1 << self.mantissa) - 1)) / (1 << self.mantissa)
        power = np.ldexp(1.0, np.maximum(field, 1) - self.bias)
        value = np.where(field > 0, 1 + fraction, fraction) * power
        magnitude = code & (self.sign - 1)
        if self.name == "bf8":
            value = np.where(magnitude == self.over, np.inf, np.where(magnitude > self.over, np.nan, value))
        if self.name == "fp8":
            value = np.where(magnitude == self.nan, np.nan, value)
        return np.where(code & self.sign, -value, value)


FORMATS = {
    f.name: f
    for f in (
        Format("fp8", 4, 3),
        Format("bf8", 5, 2),
        Format("fp6", 2, 3),
        Format("bf6", 3, 2),
        Format("fp4", 2, 1),
    )
}
_MANTISSA = {"f32": 23, "f16": 10, "bf16": 7}


def as_numbers(bits: Array, kind: str) -> NDArray[np.float64]:
    """The numbers of bits of f32, f16 or bf16."""
    if kind == "bf16":
        bits, kind = bits.astype(U32) << U32(16), "f32"
    single = bits.astype(np.uint16).view(np.float16) if kind == "f16" else bits.astype(U32).view(np.float32)
    with np.errstate(invalid="ignore"):
        return single.astype(np.float64)


def narrow(
    bits: Array, kind: str, scale: Array, to: Format, random: Array | None = None, saturate: bool = False
) -> NDArray[np.uint32]:
    """Numbers of a wider kind divided by their scales, as codes: rounded to nearest even, or by `random`."""
    x = as_numbers(bits, kind)
    top = {"f32": 31, "f16": 15, "bf16": 15}[kind]
    negative = (bits.astype(np.uint64) >> np.uint64(top) & np.uint64(1)).astype(bool)
    finite = np.where(np.isfinite(x), np.abs(x), 0.0)
    value = np.ldexp(finite, 127 - scale.astype(int))
    exponent = np.where(value == 0, -1000, np.frexp(value)[1] - 1)
    step = to.step(exponent)
    steps = value / step
    if random is None:
        steps = np.rint(steps)
    else:
        count = _MANTISSA[kind] - to.mantissa
        steps = np.floor(steps + (random >> U32(32 - count)).astype(np.float64) / (1 << count))
    # Codes count up with their numbers: a step beyond the last of an exponent is the first of the next.
    least = 1 - to.bias
    code = steps + (np.maximum(exponent, least) - least) * (1 << to.mantissa)
    over = to.most if saturate else to.over
    code = np.where((code > to.most) | np.isinf(x), over, code)
    code = np.where(np.isnan(x) | (scale == NAN_SCALE), to.nan, code)
    return code.astype(U32) | np.where(negative, to.sign, 0).astype(U32)


def widen(code: Array, of: Format, scale: Array, kind: str, saturate: bool = False) -> NDArray[np.uint32]:
    """Codes times their scales, as bits of a wider kind; a NaN as some NaN."""
    value = of.values[code.astype(int)]
    scaled = np.ldexp(value, scale.astype(int) - 127)
    scaled = np.where(scale == NAN_SCALE, np.nan, scaled)
    with np.errstate(over="ignore", invalid="ignore"):
        if kind == "f16":
            half = scaled.astype(np.float16)
            if saturate:  # a finite number beyond f16
                half = np.where(np.isinf(half) & np.isfinite(value), np.copysign(65504, half), half)
            return half.astype(np.float16).view(np.uint16).astype(U32)
        single = scaled.astype(np.float32).view(U32)  # without loss, so that rounding twice is once
    if kind == "f32":
        return single
    rounded = single + U32(0x7FFF) + (single >> U32(16) & U32(1)) >> U32(16)
    return np.where(np.isnan(scaled), U32(0x7FC0), rounded).astype(U32)


def prng(x: Array) -> NDArray[np.uint32]:
    """A step of v_prng_b32, which makes the random bits of each further element of an instruction."""
    bits = x.astype(U32)
    return bits << U32(1) ^ np.where(bits >> U32(31), U32(197), U32(0)).astype(U32)


def packed(codes: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    """Codes [element, lane] one after the other, lowest first, as dwords [dword, lane]."""
    planes = np.stack([codes >> U32(b) & U32(1) for b in range(bits)], 1).reshape(-1, codes.shape[1])
    dwords = planes.reshape(-1, 32, codes.shape[1])
    return np.asarray((dwords << np.arange(32, dtype=U32)[None, :, None]).sum(1, dtype=U32))


def unpacked(dwords: NDArray[np.uint32], bits: int) -> NDArray[np.uint32]:
    """The codes of dwords [dword, lane], as [element, lane]."""
    planes = (dwords[:, None] >> np.arange(32, dtype=U32)[None, :, None] & U32(1)).reshape(
        -1, bits, dwords.shape[1]
    )
    return np.asarray((planes << np.arange(bits, dtype=U32)[None, :, None]).sum(1, dtype=U32))
