# SPDX-License-Identifier: MIT OR Apache-2.0
"""gfx950's conversions under a scale, and the stochastic ones to 16 bits, against NumPy.

support/small_floats.py says where the expected values come from. Only a process that plays gfx950 has cases:
code/test_gfx950.py starts one.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from ...support import rows
from ...support.asm import ALL_LANES, LANES, MODE_DEFAULT, Case, Result, Suite
from ...support.findings import Kernels
from ...support.small_floats import FORMATS, Format, as_numbers, narrow, packed, prng, widen

SUITE = Suite("scaled")
HERE = rows.arch() == "gfx950"
U32 = np.uint32
Dwords = NDArray[np.uint32]
LANES_OF_CASE = 6 * LANES
PART = 0xF0F0_1234_8000_00F1
NO_DENORMALS, OVERFLOW, TO_ZERO = MODE_DEFAULT & ~0xF0, MODE_DEFAULT | 1 << 23, MODE_DEFAULT | 0xF
SPECIAL = {
    "f32": [0, 0x80000000, 1, 0x807FFFFF, 0x00400000, 0x3F800000, 0xBFC00000, 0x7F7FFFFF, 0x7F800000,
            0xFF800000, 0x7FC00000, 0xFF812345, 0x43E00000, 0x43E80000, 0x43E80001, 0x43F00000, 0x47600000,
            0x40C00000, 0x40E00000, 0x40F00000, 0x41E00000, 0x41F00000, 0x3E800000, 0x3D000000],
    "f16": [0, 0x8000, 1, 0x83FF, 0x0200, 0x3C00, 0xBE00, 0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0xFD01, 0x5F00,
            0x5F40, 0x5F41, 0x5F80, 0x4600, 0x4700, 0x4780, 0x4F00, 0x4F80, 0x3400, 0x2800, 0x1000],
    "bf16": [0, 0x8000, 1, 0x807F, 0x0040, 0x3F80, 0xBFC0, 0x7F7F, 0x7F80, 0xFF80, 0x7FC0, 0xFF81, 0x43E0,
             0x43E8, 0x43E9, 0x43F0, 0x40C0, 0x40E0, 0x40F0, 0x41E0, 0x41F0, 0x3E80, 0x3D00, 0x4760],
}  # fmt: skip


@dataclass(frozen=True)
class Conversion:
    """The parts of a mnemonic."""

    name: str
    of: str
    to: str
    count: int  # elements
    stochastic: bool
    two_sources: bool  # of data

    @property
    def widens(self) -> bool:
        """From a small float?"""
        return self.of in FORMATS

    @property
    def small(self) -> Format:
        """The small float of the two."""
        return FORMATS[self.of if self.widens else self.to]

    @property
    def wide(self) -> str:
        """The other kind."""
        return self.to if self.widens else self.of

    def dwords(self, kind: str) -> int:
        """The dwords of all elements of a kind."""
        width = FORMATS[kind].bits if kind in FORMATS else int(kind.lstrip("bf"))
        return max(1, self.count * width // 32)


def _mode(mode: int) -> list[str]:
    """FP16_OVFL, which the harness does not set."""
    return ["s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1"] if mode == OVERFLOW else []


def _conversion(name: str) -> Conversion:
    *_, to, of = name.split("_")
    count = 32 if "pk32" in name or "2xpk16" in name else 2 if "_pk_" in name else 1
    stochastic = "_sr_" in name
    pair = count == 2 and of == "f32" and not stochastic
    return Conversion(name, of, to, count, stochastic, pair or "2xpk16" in name)


def _rng(text: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(text.encode()))


def _numbers(kind: str, shape: tuple[int, ...], rng: np.random.Generator) -> Dwords:
    """Bits of numbers: of moderate size, any, and the special ones."""
    width = 16 if "16" in kind else 32
    any_bits = rng.integers(0, 1 << width, shape, dtype=np.uint64).astype(U32)
    single = (rng.normal(0, 4, shape) * 2.0 ** rng.integers(-6, 7, shape)).astype(np.float32)
    near = single.view(U32) if kind == "f32" else single.view(U32) >> U32(16)
    if kind == "f16":
        near = single.astype(np.float16).view(np.uint16).astype(U32)
    special = rng.choice(np.array(SPECIAL[kind], U32), shape)
    pick = rng.integers(0, 8, shape)
    return np.where(pick < 4, near, np.where(pick < 6, any_bits, special)).astype(U32)


def _scales(n: int, rng: np.random.Generator) -> Dwords:
    """f32 of which the exponent counts: near 1, any, the least and NaN; sign and fraction are junk."""
    exponent = np.where(rng.random(n) < 0.6, rng.integers(120, 135, n), rng.integers(0, 256, n))
    exponent[:6] = [127, 0, 255, 254, 1, 126]
    return (exponent << 23 | rng.integers(0, 1 << 23, n) | rng.integers(0, 2, n) << 31).astype(U32)


def _halves(elements: Dwords) -> Dwords:
    """[element, lane] of 16 bits as dwords."""
    return np.asarray(elements[0::2] | elements[1::2] << U32(16))


class _Run:
    """Inputs of one case, and what they make."""

    def __init__(self, c: Conversion, seed: str, limit: int = LANES_OF_CASE) -> None:
        rng = _rng(c.name + seed)
        self.c, n = c, limit
        self.scale, self.random = _scales(n, rng), rng.integers(0, 1 << 32, n, dtype=np.uint64).astype(U32)
        self.old = rng.integers(0, 1 << 32, (max(1, c.dwords(c.to)), n), dtype=np.uint64).astype(U32)
        self.junk = rng.integers(0, 1 << 16, (32, n), dtype=np.uint64).astype(U32)
        if c.widens:
            self.elements = rng.integers(0, 1 << c.small.bits, (32, n), dtype=np.uint64).astype(U32)
            if c.count == 1:  # every code
                self.elements[0, :256] = np.arange(256)
        else:
            self.elements = _numbers(c.wide, (32, n), rng)
            self.random[:4] = [0, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF]

    def data(self) -> list[Dwords]:
        """The data operands."""
        c, e = self.c, self.elements
        if c.widens:
            return [
                packed(e, c.small.bits) if c.count == 32 else packed(e[: 32 // c.small.bits], c.small.bits)
            ]
        if c.two_sources:
            half = c.count // 2
            return [e[0 : 2 * half : 2], e[1 : 2 * half : 2]] if c.count == 32 else [e[:1], e[1:2]]
        if c.wide == "f32":
            return [e[: c.count]]
        return [_halves(e[: c.count]) if c.count > 1 else e[:1] | self.junk[:1] << U32(16)]

    def results(self, mode: int, modify: Callable[[int, Dwords], Dwords], chosen: int) -> Dwords:
        """Codes or numbers [element, lane]; of a source of several bytes or halves from `chosen` on."""
        c, saturate = self.c, bool(mode >> 23 & 1)
        scale = self.scale >> U32(23) & U32(255)
        out, random = [], self.random
        for i in range(c.count):
            if c.widens:
                out.append(widen(self.elements[chosen + i], c.small, scale, c.wide, saturate))
                continue
            x = modify(i, self.elements[i])
            if c.wide == "f32" and not mode >> 4 & 1:
                x = np.where(x & U32(0x7F800000), x, x & U32(0x80000000))
            out.append(narrow(x, c.wide, scale, c.small, random if c.stochastic else None, saturate))
            random = prng(random)
        return np.stack(out)


def _wanted(c: Conversion, results: Dwords, old: Dwords, place: int) -> Dwords:
    """The destination's dwords, of which results of fewer bits replace a part."""
    if not c.widens:
        whole = packed(results, c.small.bits) if c.count == 32 else None
        if whole is not None:
            return whole
        code = np.zeros_like(results[0])
        for i in range(c.count):
            code |= results[i] << U32(i * c.small.bits)
        width = c.count * c.small.bits
    elif c.wide == "f32":
        return results
    elif c.count > 1:
        return _halves(results)
    else:
        code, width = results[0], 16
    mask = U32((1 << width) - 1)
    return np.asarray([old[0] & ~(mask << U32(place * width)) | code << U32(place * width)])


def _same(c: Conversion, got: Dwords, want: Dwords, lanes: NDArray[np.bool_]) -> None:
    """The same bits, but for those of a NaN in a wide float."""
    if c.widens:
        if c.wide == "f32":
            nan = [(x & U32(0x7FFFFFFF)) > 0x7F800000 for x in (got, want)]
            equal = (got == want) | (nan[0] & nan[1])
        else:
            least = U32(0x7C00 if c.wide == "f16" else 0x7F80)
            equal = np.ones(got.shape, bool)
            for shift in (0, 16):
                a, b = (x >> U32(shift) & U32(0x7FFF) for x in (got, want))
                bits_equal = (got >> U32(shift) & U32(0xFFFF)) == (want >> U32(shift) & U32(0xFFFF))
                equal &= bits_equal | ((a > least) & (b > least))
    else:
        equal = got == want
    bad = np.argwhere(~equal & lanes)
    if len(bad):
        d, lane = bad[0]
        text = f"{len(bad)} wrong; dword {d} of lane {lane}: {got[d, lane]:#x}, expected {want[d, lane]:#x}"
        raise AssertionError(text)


def _range(first: int, count: int) -> str:
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


def _add(
    c: Conversion,
    what: str,
    tail: str = "",
    place: int = 0,
    chosen: int = 0,
    mode: int = MODE_DEFAULT,
    exec_mask: int = ALL_LANES,
    signs: tuple[str, ...] = (),
    scalar: str = "",
    dst: int = 200,
) -> None:
    run = _Run(c, what)
    n = LANES_OF_CASE
    vin: dict[str, Dwords] = {}
    sin: dict[str, object] = {"mode": mode, "exec": exec_mask}
    operands = [_range(dst, max(1, c.dwords(c.to)))]
    if dst == 200:
        vin[operands[0]] = run.old
    at = 4
    for block in run.data():
        operands.append(_range(at, len(block)))
        vin[operands[-1]] = block if len(block) > 1 else block[0]
        at += len(block) + len(block) % 2
    if c.stochastic:
        operands.append("v100")
        vin["v100"] = run.random
    operands.append("v101")
    vin["v101"] = run.scale
    if scalar == "register":  # scale, and the number's random bits, in SGPRs
        run.scale[:] = run.scale[7]
        operands[-1], sin["s4"] = "s4", int(run.scale[7])
        del vin["v101"]
        if c.stochastic:
            run.random[:] = run.scale[7]  # GFX9 has one scalar operand
            operands[-2] = "s4"
            del vin["v100"]
    elif scalar:
        run.scale[:] = np.array([float(scalar)], np.float32).view(U32)
        operands[-1] = scalar
        del vin["v101"]
    for i, pattern in enumerate(signs, 1):
        operands[i] = pattern.format(operands[i])

    def modify(element: int, x: Dwords) -> Dwords:
        source = element if c.two_sources else 0
        pattern = signs[source] if source < len(signs) else "{}"
        sign = U32(0x8000 if "16" in c.wide else 0x80000000)
        x = x & ~sign if "|" in pattern else x
        return x ^ sign if "-" in pattern else x

    want = _wanted(c, run.results(mode, modify, chosen), run.old, place)
    on = np.tile(np.array([exec_mask >> i & 1 for i in range(LANES)], bool), n // LANES)

    def check(result: Result) -> None:
        got = result[_range(dst, len(run.old))]
        _same(c, got, want, on)
        assert (got[:, ~on] == run.old[:, ~on]).all(), "a lane was written that is off"

    SUITE.add(
        f"{c.name}-{what}",
        [*_mode(mode), f"{c.name} {', '.join(operands)}{tail}"],
        [_range(dst, len(run.old))],
        check,
        vin,
        sin,
        covers=[c.name],
    )


def _selects(c: Conversion) -> list[tuple[str, int, int]]:
    """Every op_sel but zeros: its text, the part that is written and the first element that is read."""
    found = []
    bits = 4 if (c.small.bits == 4 and not c.widens) or c.stochastic or c.two_sources else 3
    for number in range(1, 1 << bits):
        sel = [number >> i & 1 for i in range(bits)]
        byte_written = not c.widens and (c.small.bits == 4 or c.stochastic)
        place, chosen, used = 0, 0, set()
        if byte_written:
            place, used = sel[2] + 2 * sel[3], {2, 3}
        elif not c.widens or (c.wide == "f16" and c.count == 1):
            place, used = sel[-1], {bits - 1}
        if c.widens:
            byte = c.count == 1 or c.small.bits == 4
            used |= {0, 1} if byte else {0}
            chosen = (sel[0] + 2 * sel[1]) * (2 if c.small.bits == 4 else 1) if byte else 2 * sel[0]
        if all(i in used for i in range(bits) if sel[i]):
            found.append((f" op_sel:[{','.join(map(str, sel))}]", place, chosen))
    return found


def _cases(c: Conversion) -> None:
    _add(c, "plain")
    _add(c, "part", exec_mask=PART)
    _add(c, "flush", mode=NO_DENORMALS)
    _add(c, "overflow", mode=OVERFLOW)
    _add(c, "to-zero", mode=TO_ZERO)
    _add(c, "scalar", scalar="register")
    for constant in ("0.5", "4.0", "-1.0"):
        _add(c, f"scale-{constant}", scalar=constant)
    if c.count == 32:
        if c.two_sources:  # LLVM lets the destination overlap
            _add(c, "overlap", dst=6)
        return
    for tail, place, chosen in _selects(c):
        _add(c, tail.strip(), tail, place, chosen)
    if not c.widens and (c.count == 1 or c.two_sources):
        second = "|{}|" if c.two_sources else "{}"
        _add(c, "signs", signs=("-{}", second))
        _add(c, "signs-2", signs=("-|{}|", second))


CONVERSIONS = [_conversion(n) for n in sorted(rows.names("gfx950")) if n.startswith("v_cvt_scalef32")]


def _stochastic_halves() -> None:
    """v_cvt_sr_f16_f32 and v_cvt_sr_bf16_f32: the same, to formats of 16 bits."""
    for to in (Format("f16", 5, 10), Format("bf16", 8, 7)):
        name = f"v_cvt_sr_{to.name}_f32"
        rng = _rng(name)
        x = _numbers("f32", (LANES_OF_CASE,), rng)
        random = rng.integers(0, 1 << 32, LANES_OF_CASE, dtype=np.uint64).astype(U32)
        random[:2] = 0, 0xFFFFFFFF
        old = rng.integers(0, 1 << 32, LANES_OF_CASE, dtype=np.uint64).astype(U32)
        for what, mode, high, pattern in (
            ("plain", MODE_DEFAULT, 0, "{}"),
            ("high", MODE_DEFAULT, 1, "-{}"),
            ("flush", NO_DENORMALS, 0, "|{}|"),
            ("overflow", OVERFLOW, 1, "{}"),
        ):
            want = _to_half(x, random, to, mode, pattern)

            def check(
                result: Result, want: Dwords = want, high: int = high, to: Format = to, old: Dwords = old
            ) -> None:
                got = result["v200"][0]
                other = U32(0xFFFF << 16 * (1 - high))
                np.testing.assert_array_equal(got & other, old & other)
                part, least = got >> U32(16 * high) & U32(0xFFFF), U32(0x7C00 if to.exponent == 5 else 0x7F80)
                nan = [(v & U32(0x7FFF)) > least for v in (part, want)]
                np.testing.assert_array_equal(np.where(nan[0] & nan[1], want, part), want)

            tail = " op_sel:[0,0,1]" * high
            line = f"{name} v200, {pattern.format('v4')}, v6{tail}"
            vin = {"v4": x, "v6": random, "v200": old}
            SUITE.add(
                f"{name}-{what}", [*_mode(mode), line], ["v200"], check, vin, {"mode": mode}, covers=[name]
            )


def _to_half(x: Dwords, random: Dwords, to: Format, mode: int, pattern: str) -> Dwords:
    x = x & U32(0x7FFFFFFF) if "|" in pattern else x
    x = x ^ U32(0x80000000) if "-" in pattern else x
    if not mode >> 4 & 1:
        x = np.where(x & U32(0x7F800000), x, x & U32(0x80000000))
    sign = x >> U32(16) & U32(0x8000)
    value = np.abs(as_numbers(x, "f32"))
    finite = np.where(np.isfinite(value), value, 0)
    exponent = np.where(finite == 0, -1000, np.frexp(finite)[1] - 1)
    count = 23 - to.mantissa
    steps = np.floor(finite / to.step(exponent) + (random >> U32(32 - count)) / (1 << count))
    least = 1 - to.bias
    code = steps + (np.maximum(exponent, least) - least) * (1 << to.mantissa)
    infinity = ((1 << to.exponent) - 1) << to.mantissa
    beyond = infinity - 1 if to.exponent == 5 and mode >> 23 & 1 else infinity
    code = np.where(code >= infinity, beyond, code)
    if to.exponent == 5 and not mode >> 7 & 1:  # denormal results of 16 bits
        code = np.where(code < 1 << to.mantissa, 0, code)
    code = np.where(np.isinf(value), infinity, np.where(np.isnan(value), infinity + 1, code))
    return np.asarray(sign | code.astype(U32))


if HERE:
    for conversion in CONVERSIONS:
        _cases(conversion)
    _stochastic_halves()


@SUITE.parametrize()
def test_conversion(case: Case) -> None:
    """The bits of every lane."""
    SUITE.check(case)


@pytest.mark.skipif(not HERE, reason="needs FMHA_EMU_ARCH=gfx950")
def test_every_conversion_is_there() -> None:
    """There are as many as LLVM has."""
    assert len(CONVERSIONS) == 49
    assert {c.name for c in CONVERSIONS} <= {m for case in SUITE.cases for m in case.mnemonics()}


_WIDE = "v_cvt_scalef32_pk32_f16_fp6 v[4:19], v[{}:{}], v40"
_OVERLAPS, _CONSTANT = "the destination overlaps a source", "a constant reads as two elements"
_UNKNOWN = "does not model these operands"
_REFUSED = {
    "overlap": (_WIDE.format(18, 23), _OVERLAPS),
    "overlap_scale": ("v_cvt_scalef32_pk32_f16_fp6 v[4:19], v[20:25], v4", _OVERLAPS),
    "constant": ("v_cvt_scalef32_pk_fp8_f16 v4, 1.0, v5", _CONSTANT),
    "constant_sr": ("v_cvt_scalef32_sr_pk_fp4_f32 v4, 1.0, v5, v6", _CONSTANT),
    "half": ("v_cvt_scalef32_pk_fp8_f32 v4, v5, v6, v7 op_sel:[1,0,0,0]", _UNKNOWN),
    "second_half": ("v_cvt_scalef32_pk_f32_fp8 v[4:5], v6, v7 op_sel:[0,1,0]", _UNKNOWN),
    "signs": ("v_cvt_scalef32_pk_fp8_f16 v4, -v5, v6", _UNKNOWN),
}
KERNELS = Kernels({name: [line] for name, (line, _) in _REFUSED.items()} | {"beside": [_WIDE.format(20, 25)]})


@pytest.mark.skipif(not HERE, reason="needs FMHA_EMU_ARCH=gfx950")
@pytest.mark.parametrize("name", _REFUSED)
def test_refused(name: str) -> None:
    """Forms that LLVM takes and no manual explains are refused."""
    text = KERNELS.finding(name)
    assert re.search(_REFUSED[name][1], text), text


@pytest.mark.skipif(not HERE, reason="needs FMHA_EMU_ARCH=gfx950")
def test_apart() -> None:
    """The neighbour of what is refused."""
    KERNELS.run("beside")
