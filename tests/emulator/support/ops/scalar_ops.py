# SPDX-License-Identifier: MIT OR Apache-2.0
"""Models of the scalar ALU: tables of (widths, function giving value and SCC), and the check of them."""

from __future__ import annotations

from collections.abc import Callable

from ..asm import Result

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
V32 = [
    0,
    1,
    2,
    5,
    31,
    32,
    33,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x10000,
    0x00100005,
    0x00200000,
    0x7FFFFFFF,
    0x80000000,
    0x80000001,
    0xF0F01234,
    0xFFFFFFFE,
    0xFFFFFFFF,
]
V64 = [
    0,
    1,
    31,
    32,
    63,
    64,
    0xFFFFFFFF,
    0x100000000,
    0x7FFFFFFFFFFFFFFF,
    0x8000000000000000,
    0x8000000000000001,
    0xF0F0123400FF5678,
    0xFFFFFFFF00000000,
    0xFFFFFFFFFFFFFFFE,
    M64,
]
Fn = Callable[..., tuple[int, int | None]]


def s32(x: int) -> int:
    """Signed value of 32 bits."""
    return (x & M32 ^ 1 << 31) - (1 << 31)


def s64(x: int) -> int:
    """Signed value of 64 bits."""
    return (x & M64 ^ 1 << 63) - (1 << 63)


def logic(fn: Callable[..., int], bits: int) -> Fn:
    """SCC says whether the result is not zero."""
    mask = (1 << bits) - 1
    return lambda *a: (fn(*a) & mask, int(fn(*a) & mask != 0))


def first_one(x: int, bits: int) -> int:
    """Index of the lowest one."""
    return (x & -x).bit_length() - 1 if x & (1 << bits) - 1 else M32


def from_top(x: int, bits: int) -> int:
    """Zeros above the highest one."""
    return bits - x.bit_length() if x else M32


def signed_top(x: int, bits: int) -> int:
    """Distance from the top of the first bit unlike the sign."""
    flipped = x ^ (1 << bits) - 1 if x >> (bits - 1) else x
    return bits - flipped.bit_length() if flipped else M32


def reverse(x: int, bits: int) -> int:
    """Bits mirrored."""
    return int(f"{x:0{bits}b}"[::-1], 2)


def quads(x: int, bits: int, whole: bool) -> int:
    """wqm and quadmask."""
    out = 0
    for i in range(bits // 4):
        if x >> (4 * i) & 15:
            out |= 15 << (4 * i) if whole else 1 << i
    return out


def bfe(x: int, control: int, bits: int, signed: bool) -> int:
    """Bit field extract."""
    offset, width = control & (bits - 1), control >> 16 & 127
    if not width:
        return 0
    value = ((s64(x) if bits == 64 else s32(x)) if signed else x) >> offset
    width = min(width, bits)
    value &= (1 << width) - 1
    if signed and value >> (width - 1):
        value -= 1 << width
    return value


def replicate(x: int) -> int:
    """Every bit twice."""
    return sum((x >> i & 1) * (3 << 2 * i) for i in range(32))


ONE: dict[str, tuple[int, int, Fn]] = {  # bits of result, bits of source
    "s_mov_b32": (32, 32, lambda a: (a, None)),
    "s_mov_b64": (64, 64, lambda a: (a, None)),
    "s_brev_b32": (32, 32, lambda a: (reverse(a, 32), None)),
    "s_brev_b64": (64, 64, lambda a: (reverse(a, 64), None)),
    "s_bcnt0_i32_b32": (32, 32, logic(lambda a: 32 - a.bit_count(), 32)),
    "s_bcnt0_i32_b64": (32, 64, logic(lambda a: 64 - a.bit_count(), 32)),
    "s_bcnt1_i32_b32": (32, 32, logic(int.bit_count, 32)),
    "s_bcnt1_i32_b64": (32, 64, logic(int.bit_count, 32)),
    "s_ff0_i32_b32": (32, 32, lambda a: (first_one(~a & M32, 32), None)),
    "s_ff0_i32_b64": (32, 64, lambda a: (first_one(~a & M64, 64), None)),
    "s_ff1_i32_b32": (32, 32, lambda a: (first_one(a, 32), None)),
    "s_ff1_i32_b64": (32, 64, lambda a: (first_one(a, 64), None)),
    "s_flbit_i32_b32": (32, 32, lambda a: (from_top(a, 32), None)),
    "s_flbit_i32_b64": (32, 64, lambda a: (from_top(a, 64), None)),
    "s_flbit_i32": (32, 32, lambda a: (signed_top(a, 32), None)),
    "s_flbit_i32_i64": (32, 64, lambda a: (signed_top(a, 64), None)),
    "s_sext_i32_i8": (32, 32, lambda a: (((a & 255 ^ 128) - 128) & M32, None)),
    "s_sext_i32_i16": (32, 32, lambda a: (((a & 65535 ^ 32768) - 32768) & M32, None)),
    "s_abs_i32": (32, 32, logic(lambda a: abs(s32(a)), 32)),
    "s_bitreplicate_b64_b32": (64, 32, lambda a: (replicate(a), None)),
    **{f"s_not_b{b}": (b, b, logic(lambda a: ~a, b)) for b in (32, 64)},
    **{f"s_wqm_b{b}": (b, b, logic(lambda a, b=b: quads(a, b, True), b)) for b in (32, 64)},
    **{f"s_quadmask_b{b}": (b, b, logic(lambda a, b=b: quads(a, b, False), b)) for b in (32, 64)},
}


def add_i32(a: int, b: int) -> tuple[int, int]:
    """Signed sum, SCC on overflow."""
    total = s32(a) + s32(b)
    return total & M32, int(s32(total) != total)


def sub_i32(a: int, b: int) -> tuple[int, int]:
    """Signed difference, SCC on overflow."""
    total = s32(a) - s32(b)
    return total & M32, int(s32(total) != total)


def absdiff(a: int, b: int) -> tuple[int, int]:
    """Magnitude of the difference."""
    value = s32(s32(a) - s32(b))
    return abs(value) & M32, int(value != 0)


TWO: dict[str, tuple[int, int, int, Fn]] = {
    "s_add_u32": (32, 32, 32, lambda a, b: (a + b & M32, int(a + b > M32))),
    "s_sub_u32": (32, 32, 32, lambda a, b: (a - b & M32, int(b > a))),
    "s_add_i32": (32, 32, 32, add_i32),
    "s_sub_i32": (32, 32, 32, sub_i32),
    "s_absdiff_i32": (32, 32, 32, absdiff),
    "s_min_i32": (32, 32, 32, lambda a, b: (a, 1) if s32(a) < s32(b) else (b, 0)),
    "s_min_u32": (32, 32, 32, lambda a, b: (a, 1) if a < b else (b, 0)),
    "s_max_i32": (32, 32, 32, lambda a, b: (a, 1) if s32(a) >= s32(b) else (b, 0)),
    "s_max_u32": (32, 32, 32, lambda a, b: (a, 1) if a >= b else (b, 0)),
    **{
        f"s_{n}_b{w}": (w, w, w, logic(f, w))
        for w in (32, 64)
        for n, f in {
            "and": lambda a, b: a & b,
            "or": lambda a, b: a | b,
            "xor": lambda a, b: a ^ b,
            "andn2": lambda a, b: a & ~b,
            "orn2": lambda a, b: a | ~b,
            "nand": lambda a, b: ~(a & b),
            "nor": lambda a, b: ~(a | b),
            "xnor": lambda a, b: ~(a ^ b),
        }.items()
    },
    **{f"s_lshl_b{w}": (w, w, 32, logic(lambda a, b, w=w: a << (b & w - 1), w)) for w in (32, 64)},
    **{f"s_lshr_b{w}": (w, w, 32, logic(lambda a, b, w=w: a >> (b & w - 1), w)) for w in (32, 64)},
    "s_ashr_i32": (32, 32, 32, logic(lambda a, b: s32(a) >> (b & 31), 32)),
    "s_ashr_i64": (64, 64, 32, logic(lambda a, b: s64(a) >> (b & 63), 64)),
    **{
        f"s_bfm_b{w}": (
            w,
            32,
            32,
            lambda a, b, w=w: (((1 << (a & w - 1)) - 1) << (b & w - 1) & (1 << w) - 1, None),
        )
        for w in (32, 64)
    },
    "s_mul_i32": (32, 32, 32, lambda a, b: (a * b & M32, None)),
    "s_mul_hi_u32": (32, 32, 32, lambda a, b: (a * b >> 32, None)),
    "s_mul_hi_i32": (32, 32, 32, lambda a, b: (s32(a) * s32(b) >> 32 & M32, None)),
    **{
        f"s_bfe_{t}{w}": (w, w, 32, logic(lambda a, b, t=t, w=w: bfe(a, b, w, t == "i"), w))
        for t in "ui"
        for w in (32, 64)
    },
    **{
        f"s_lshl{k}_add_u32": (32, 32, 32, lambda a, b, k=k: ((a << k) + b & M32, int((a << k) + b > M32)))
        for k in (1, 2, 3, 4)
    },
    "s_pack_ll_b32_b16": (32, 32, 32, lambda a, b: (a & 65535 | (b & 65535) << 16, None)),
    "s_pack_lh_b32_b16": (32, 32, 32, lambda a, b: (a & 65535 | b & 0xFFFF0000, None)),
    "s_pack_hh_b32_b16": (32, 32, 32, lambda a, b: (a >> 16 | b & 0xFFFF0000, None)),
}
ORDER: dict[str, Callable[[int, int], bool]] = {
    "eq": int.__eq__,
    "lg": int.__ne__,
    "gt": int.__gt__,
    "ge": int.__ge__,
    "lt": int.__lt__,
    "le": int.__le__,
}
COMPARE: dict[str, tuple[int, int, Callable[[int, int], bool]]] = {
    **{f"s_cmp_{n}_u32": (32, 32, f) for n, f in ORDER.items()},
    **{f"s_cmp_{n}_i32": (32, 32, lambda a, b, f=f: f(s32(a), s32(b))) for n, f in ORDER.items()},
    **{f"s_cmp_{n}_u64": (64, 64, ORDER[n]) for n in ("eq", "lg")},
    "s_bitcmp0_b32": (32, 32, lambda a, b: not a >> (b & 31) & 1),
    "s_bitcmp1_b32": (32, 32, lambda a, b: bool(a >> (b & 31) & 1)),
    "s_bitcmp0_b64": (64, 32, lambda a, b: not a >> (b & 63) & 1),
    "s_bitcmp1_b64": (64, 32, lambda a, b: bool(a >> (b & 63) & 1)),
}


def check(dst: str | None, want: list[int] | None, scc: list[int] | int) -> Callable[[Result], None]:
    """Check the one result register, if any, and SCC."""

    def on(result: Result) -> None:
        if dst and want is not None:
            assert [hex(v) for v in result.scalar(dst)] == [hex(v) for v in want]
        assert result.scc == (scc if isinstance(scc, list) else [scc] * len(result.scc))

    return on
