# SPDX-License-Identifier: MIT OR Apache-2.0
"""Typed buffers: every data and number format, loaded and stored, in full and in 16-bit registers."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from ..support.asm import LANES, Case, Result, Suite
from ..support.findings import Kernels
from ..support.fp import Array
from ..support.ops.memory_ops import HOLES, LANE, MEMORY, ON, WAIT, memory_is, reg
from ..support.spelling import GENERATION, RDNA, spell

SUITE = Suite("format")
_U = np.uint32
# Bits of the components, the lowest first: the names count from the highest bit of a packed format down.
DATA = {
    1: (8,),
    2: (16,),
    3: (8, 8),
    4: (32,),
    5: (16, 16),
    6: (11, 11, 10),
    7: (10, 11, 11),
    8: (2, 10, 10, 10),
    9: (10, 10, 10, 2),
    10: (8, 8, 8, 8),
    11: (32, 32),
    12: (16, 16, 16, 16),
    13: (32, 32, 32),
    14: (32, 32, 32, 32),
}
UNORM, SNORM, USCALED, SSCALED, UINT, SINT, FLOAT = 0, 1, 2, 3, 4, 5, 7
NUMBERS = (UNORM, SNORM, USCALED, SSCALED, UINT, SINT, FLOAT)
INTEGERS = (UINT, SINT)
PACKED = (6, 7, 8, 9)
NAMES = ("x", "xy", "xyz", "xyzw")
IDENTITY = 4 | 5 << 3 | 6 << 6 | 7 << 9


def exists(data: int, number: int) -> bool:
    """Return whether the manual's table has the pair: from gfx11 on it has fewer of the packed ones."""
    if GENERATION > 10 and (data in (6, 7) or (data == 8 and number in (USCALED, SSCALED))):
        return data != 8 and number == FLOAT
    if DATA[data][0] == 32:
        return number in (*INTEGERS, FLOAT)
    return number != FLOAT or DATA[data][0] == 16 or data in (6, 7)


PAIRS = [(d, n) for d in DATA for n in NUMBERS if exists(d, n)]


def field(data: int, number: int) -> int:
    """A format as an instruction has it: on RDNA its number among those that exist."""
    if not RDNA:
        return data | number << 4
    return PAIRS.index((data, number)) + 1 if data else 0


def _word3(data: int, number: int, select: int = IDENTITY) -> int:
    """Return the last dword of a resource."""
    return select | (field(data, number) << 12 | 3 << 28 if RDNA else number << 12 | data << 15)


def resource(records: int, data: int = 0, number: int = 0, select: int = IDENTITY) -> Callable[[int], int]:
    """Descriptor of the case's memory with a format."""
    word3 = _word3(data, number, select)
    return lambda a: a & (1 << 48) - 1 | records << 64 | word3 << 96


def _float(value: int, bits: int) -> float:
    if bits == 32:
        return float(np.array(value, _U).view(np.float32))
    if bits == 16:
        return float(np.array(value, np.uint16).view(np.float16))
    fraction = bits - 5  # five bits of exponent, no sign
    return float(np.array(value << (10 - fraction), np.uint16).view(np.float16))


def component(value: int, bits: int, number: int) -> int | float:
    """Return the value of a component's bits: an integer, or a number to be rounded to a float."""
    signed = value - (1 << bits) if value >> (bits - 1) else value
    if number == UNORM:
        return value / ((1 << bits) - 1)
    if number == SNORM:
        return max(signed / ((1 << (bits - 1)) - 1), -1.0)
    if number == FLOAT:
        return _float(value, bits)
    if number in (SSCALED, SINT):
        return float(signed) if number == SSCALED else signed
    return float(value) if number == USCALED else value


def element(raw: bytes, data: int, number: int) -> list[int | float]:
    """x, y, z, w of an element; those it lacks are 0, 0, 0, 1."""
    word, out, at = int.from_bytes(raw, "little"), [], 0
    for bits in DATA[data]:
        out.append(component(word >> at & (1 << bits) - 1, bits, number))
        at += bits
    missing: list[int | float] = [0, 0, 0, 1] if number in INTEGERS else [0.0, 0.0, 0.0, 1.0]
    return out + missing[len(out) :]


def size(data: int) -> int:
    """Bytes of an element."""
    return sum(DATA[data]) // 8


def _register(value: int | float, number: int, half: bool) -> int:
    if number in INTEGERS:
        return int(value) & (0xFFFF if half else 0xFFFFFFFF)
    with np.errstate(over="ignore"):
        return int(np.float16(value).view(np.uint16)) if half else int(np.float32(value).view(_U))


def _packed(values: Array, count: int, old: Array) -> Array:
    """16-bit values (4, lanes) two a register; a half that gets none is kept."""
    out = old.copy()
    for i in range(count):
        shift = _U(16 * (i % 2))
        out[i // 2] = (out[i // 2] & ~(_U(0xFFFF) << shift)) | values[i] << shift
    return out


def _same(got: Array, want: Array, half: bool, number: int) -> None:
    """The same bits, any NaN for a NaN."""
    kind, bits = (np.float16, np.uint16) if half else (np.float32, _U)
    g, w = (np.ascontiguousarray(v).view(bits) for v in (got, want))
    nan = np.isnan(g.view(kind)) & np.isnan(w.view(kind)) if number == FLOAT else np.zeros(g.shape, bool)
    np.testing.assert_array_equal(np.where(nan, 0, g), np.where(nan, 0, w))


def _loads(data: int, number: int, count: int, half: bool, typed: bool) -> None:
    step = max(size(data), 4)
    records = 50 * step  # some lanes are out of range
    address = LANE * step
    values = np.zeros((4, LANES), _U)
    for lane in LANE:
        at = int(address[lane])
        inside = at + size(data) <= records
        raw = MEMORY[at : at + size(data)].tobytes() if inside else bytes(size(data))
        values[:, lane] = [_register(v, number, half) for v in element(raw, data, number)]
    n = (count + 1) // 2 if half else count
    old = np.full((n, LANES), 0x77665544, _U)
    want = np.where(ON, _packed(values, count, old) if half else values[:count], old)
    stem = f"{'t' if typed else ''}buffer_load_format_{'d16_' if half else ''}{NAMES[count - 1]}"
    dst = reg(n, 10)

    def check(result: Result) -> None:
        _same(result[dst], want, half, number)

    form = f" format:{field(data, number)}" if typed else ""
    SUITE.add(
        f"{stem}-{data}-{number}",
        [f"{stem} {dst}, v2, s[64:67], 0{form} offen", WAIT],
        [dst],
        check,
        {"v2": address.astype(_U), dst: old},
        {"s[64:67]": resource(records, *((0, 0) if typed else (data, number))), "exec": HOLES},
        MEMORY,
        covers=[stem],
    )


def _stored(value: int | float, bits: int, number: int) -> int:
    """Bits that memory gets of a register's value."""
    mask = (1 << bits) - 1
    if number in INTEGERS:
        return int(value) & mask
    if number == FLOAT:
        kind, unsigned = (np.float16, np.uint16) if bits == 16 else (np.float32, _U)
        return int(np.array(value, kind).view(unsigned))
    if np.isnan(value):
        return 0
    top = mask if number == UNORM else mask >> 1
    return int(np.rint(np.clip(value, 0 if number == UNORM else -1, 1) * top)) & mask


def _store_values(number: int, bits: int, half: bool, rng: np.random.Generator) -> list[int | float]:
    if number in INTEGERS:
        width = min(bits, 16 if half else 32)
        low, high = (0, 1 << width) if number == UINT else (-(1 << width - 1), 1 << width - 1)
        return [int(v) for v in rng.integers(low, high, LANES)]
    values = rng.normal(0, 0.8, LANES).astype(np.float16 if half else np.float32)
    values[:6] = [0, -0.0, 1, -1, np.inf, np.nan]
    return [float(v) for v in values]


def _stores(data: int, number: int, count: int, half: bool, typed: bool) -> None:
    rng = np.random.default_rng(data * 8 + number)
    parts = DATA[data][:count]
    step = max(size(data), 4)
    records = 50 * step
    want, given = MEMORY.copy(), np.zeros((4, LANES), _U)
    columns = [_store_values(number, bits, half, rng) for bits in DATA[data]]
    for lane in LANE:
        at, word, place = int(lane) * step, 0, 0
        for i, bits in enumerate(parts):
            given[i, lane] = _register(columns[i][lane], number, half)
            word |= _stored(columns[i][lane], bits, number) << place
            place += bits
        if ON[lane] and at + size(data) <= records:
            want[at : at + place // 8] = np.frombuffer(word.to_bytes(place // 8, "little"), np.uint8)
    n = (count + 1) // 2 if half else count
    registers = _packed(given, count, np.zeros((n, LANES), _U)) if half else given[:count]
    stem = f"{'t' if typed else ''}buffer_store_format_{'d16_' if half else ''}{NAMES[count - 1]}"
    form = f" format:{field(data, number)}" if typed else ""
    nans = number == FLOAT

    def check(result: Result) -> None:
        if not nans:
            memory_is(want)(result)
            return
        kind = np.float32 if DATA[data][0] == 32 else np.float16
        got, expected = (v[: 50 * step].view(kind) for v in (result.mem, want))
        good = (got.view(f"u{got.itemsize}") == expected.view(f"u{got.itemsize}")) | (
            np.isnan(got) & np.isnan(expected)
        )
        assert good.all()

    SUITE.add(
        f"{stem}-{data}-{number}",
        [f"{stem} {reg(n, 10)}, v2, s[64:67], 0{form} offen", WAIT],
        [],
        check,
        {"v2": (LANE * step).astype(_U), reg(n, 10): registers},
        {"s[64:67]": resource(records, *((0, 0) if typed else (data, number))), "exec": HOLES},
        MEMORY,
        covers=[stem],
    )


def _storable(data: int, number: int, count: int) -> bool:
    if number in (USCALED, SSCALED):
        return False
    return data not in PACKED or (number != FLOAT and count >= len(DATA[data]))


def _selects() -> None:
    """A resource's selects: constants 0 and 1, and components in any order."""
    select = 7 | 1 << 3 | 0 << 6 | 4 << 9  # x = alpha, y = 1, z = 0, w = red
    values = np.array([element(MEMORY[4 * i : 4 * i + 4].tobytes(), 10, UINT) for i in LANE], _U)
    want = np.stack([values[:, 3], np.ones(LANES), np.zeros(LANES), values[:, 0]]).astype(_U)
    SUITE.add(
        "selects",
        ["buffer_load_format_xyzw v[10:13], v2, s[64:67], 0 offen", WAIT],
        ["v[10:13]"],
        lambda r: np.testing.assert_array_equal(r["v[10:13]"], want),
        {"v2": (LANE * 4).astype(_U)},
        {"s[64:67]": resource(4096, 10, UINT, select)},
        MEMORY,
        covers=["buffer_load_format_xyzw"],
    )


def _high_halves() -> None:
    """d16_hi: the upper half of one register."""
    old = np.full(LANES, 0x11112222, _U)
    half = (MEMORY[: LANES * 4 : 4] / 255).astype(np.float16).view(np.uint16).astype(_U)
    SUITE.add(
        "load-d16-hi",
        ["buffer_load_format_d16_hi_x v10, v2, s[64:67], 0 offen", WAIT],
        ["v10"],
        lambda r: np.testing.assert_array_equal(r["v10"][0], half << _U(16) | _U(0x2222)),
        {"v2": (LANE * 4).astype(_U), "v10": old},
        {"s[64:67]": resource(4096, 1, UNORM)},
        MEMORY,
        covers=["buffer_load_format_d16_hi_x"],
    )
    want = MEMORY.copy()
    want[: LANES * 4 : 4] = 0x33
    SUITE.add(
        "store-d16-hi",
        ["buffer_store_format_d16_hi_x v10, v2, s[64:67], 0 offen", WAIT],
        [],
        memory_is(want),
        {"v2": (LANE * 4).astype(_U), "v10": np.full(LANES, 0x00332222, _U)},
        {"s[64:67]": resource(4096, 1, UINT)},
        MEMORY,
        covers=["buffer_store_format_d16_hi_x"],
    )


def _to_lds() -> None:
    want = (MEMORY[: LANES * 4 : 4] / 255).astype(np.float32)
    SUITE.add(
        "to-lds",
        [
            "buffer_load_format_x v2, s[64:67], 0 offen lds",
            WAIT,
            "ds_read_b32 v10, v2 offset:64",
            WAIT,
        ],
        ["v10"],
        lambda r: np.testing.assert_array_equal(r["v10"][0].view(np.float32), want),
        {"v2": (LANE * 4).astype(_U)},
        {"s[64:67]": resource(4096, 1, UNORM), "m0": 64},
        MEMORY,
        lds=4096,
        covers=["buffer_load_format_x"],
    )


def _build() -> None:
    # The bodies are gfx9's: on RDNA each format comes up with every fourth of the widths.
    for i, (data, number) in enumerate(PAIRS):
        for half, typed, count in itertools.product((False, True), (False, True), (1, 2, 3, 4)):
            if RDNA and (i + count + half + 2 * typed) % 4:
                continue
            _loads(data, number, count, half, typed)
            if _storable(data, number, count):
                _stores(data, number, count, half, typed)


_build()
_selects()
_high_halves()
if GENERATION < 11:
    _to_lds()


@SUITE.parametrize()
def test_format(case: Case) -> None:
    """Components arrive as the format says."""
    SUITE.check(case)


def _body(line: str, word3: int, value: int = 0) -> list[str]:
    return [
        f"s_mov_b32 s7, {word3:#x}",
        f"v_mov_b32 v10, {value:#x}",
        "v_mov_b32 v11, 0",
        "s_nop 4",
        *spell(line),
    ]


_STORE = "buffer_store_format_x v10, v1, s[4:7], 0 offen"
_REFUSED = {
    "no_format": (_body("buffer_load_format_x v2, v1, s[4:7], 0 offen", _word3(0, 0)), "data format 0"),
    "no_pair": (_body("tbuffer_load_format_x v2, v1, s[4:7], 0 format:113 offen", 0), "does not exist"),
    "scaled": (_body(_STORE, _word3(1, USCALED)), "is not documented"),
    "part": (_body(_STORE, _word3(9, UINT)), "is not documented"),
    "order": (_body(_STORE, _word3(1, UINT, 5)), "reorders components"),
    "range": (_body(_STORE, _word3(1, UINT), 256), "does not fit the 8 bits"),
    "range_signed": (_body(_STORE, _word3(1, SINT), 128), "does not fit the 8 bits"),
}
if not RDNA:
    _REFUSED["add_lane"] = (_body(_STORE, _word3(1, UINT) | 1 << 23), "has no data format")
KERNELS = Kernels({**{n: b for n, (b, _) in _REFUSED.items()}, "good": _body(_STORE, _word3(1, UINT), 255)})


@pytest.mark.parametrize("name", _REFUSED)
def test_refused(name: str) -> None:
    """A case that the manual leaves open stops the launch."""
    assert _REFUSED[name][1] in KERNELS.finding(name)


def test_not_refused() -> None:
    """The largest value that fits."""
    KERNELS.run("good")
