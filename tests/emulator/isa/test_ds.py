# SPDX-License-Identifier: MIT OR Apache-2.0
"""LDS: reads, writes, atomics, and the lane permutations that share its path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..support.asm import ALL_LANES, LANES, Case, Result, Suite
from ..support.fp import Array
from ..support.ops.memory_ops import ATOMICS, HOLES, LANE, ON, atomic_data, gather, reg, stored_bytes
from ..support.ops.memory_ops import _extend as extend
from ..support.ops.memory_ops import _half as half
from ..support.ops.memory_ops import _plain as plain
from ..support.spelling import GENERATION, RDNA, exists

SUITE = Suite("ds")
# A compare and swap has the new value first.
SWAPPED = GENERATION > 10
_U = np.uint32
WAIT = "s_waitcnt lgkmcnt(0)"
BYTES = 4096
IMAGE = np.random.default_rng(0).integers(0, 256, BYTES, dtype=np.uint8)
ADDRESS = "v2"


def add(
    name: str,
    lines: Sequence[str],
    vin: dict[str, Any],
    check: Callable[[Array, Result], None],
    out: Sequence[str] = (),
    image: Array = IMAGE,
    exec_mask: int = HOLES,
    row: str = "",
    sin: dict[str, int] | None = None,
) -> None:
    """A case between filling LDS with `image` and reading all of it back; `check` gets LDS's bytes."""
    mnemonic = row or lines[0].split()[0]
    if not exists(mnemonic):
        return
    count = BYTES // (4 * LANES)
    held = f"v[30:{29 + count}]"
    fill = [f"ds_write_b32 v64, v{30 + i} offset:{4 * LANES * i}" for i in range(count)]
    read = [f"ds_read_b32 v{30 + i}, v64 offset:{4 * LANES * i}" for i in range(count)]
    text = [*fill, WAIT, "s_mov_b64 exec, s[20:21]", *lines, WAIT, "s_mov_b64 exec, -1", *read, WAIT]
    words = np.ascontiguousarray(image).view(_U).reshape(count, LANES)

    def whole(result: Result) -> None:
        check(np.ascontiguousarray(result[held]).reshape(-1).view(np.uint8), result)

    SUITE.add(
        name,
        text,
        [*out, held],
        whole,
        {"v64": (LANE * 4).astype(_U), held: words} | vin,
        {"s[20:21]": exec_mask, "m0": BYTES} | (sin or {}),
        lds=BYTES,
        covers=[mnemonic],
    )


def unchanged(lds: Array, result: Result) -> None:
    """LDS is as it was."""
    np.testing.assert_array_equal(lds, IMAGE)


READS: dict[str, tuple[int, Callable[[Array, Array], Array]]] = {
    "u8": (1, extend(8, False)),
    "i8": (1, extend(8, True)),
    "u16": (2, extend(16, False)),
    "i16": (2, extend(16, True)),
    "b32": (4, plain),
    "b64": (8, plain),
    "b96": (12, plain),
    "b128": (16, plain),
    "u8_d16": (1, half(extend(8, False), False)),
    "u8_d16_hi": (1, half(extend(8, False), True)),
    "i8_d16": (1, half(extend(8, True), False)),
    "i8_d16_hi": (1, half(extend(8, True), True)),
    "u16_d16": (2, half(extend(16, False), False)),
    "u16_d16_hi": (2, half(extend(16, False), True)),
}
WRITES = {
    "b8": (1, 0),
    "b16": (2, 0),
    "b32": (4, 0),
    "b64": (8, 0),
    "b96": (12, 0),
    "b128": (16, 0),
    "b8_d16_hi": (1, 16),
    "b16_d16_hi": (2, 16),
}


def _plain_access() -> None:
    rng = np.random.default_rng(1)
    for suffix, (count, fn) in READS.items():
        n, step = -(-count // 4), max(count, 4) if count > 2 else count
        old = rng.integers(0, 1 << 32, (n, LANES), dtype=_U)
        address = rng.permutation(LANE) * step
        want = np.where(ON, fn(gather(IMAGE, address + 48, count), old), old)
        add(
            f"ds_read_{suffix}",
            [f"ds_read_{suffix} {reg(n, 10)}, v2 offset:48"],
            {"v2": address.astype(_U), reg(n, 10): old},
            lambda lds, r, want=want, n=n: (
                unchanged(lds, r),
                np.testing.assert_array_equal(r[reg(n, 10)], want),
            ),
            [reg(n, 10)],
        )
    for suffix, (count, shift) in WRITES.items():
        n, step = -(-count // 4), max(count, 4) if count > 2 else count
        data = rng.integers(0, 1 << 32, (n, LANES), dtype=_U)
        address = rng.permutation(LANE) * step
        want = IMAGE.copy()
        for lane in np.flatnonzero(ON):
            want[address[lane] + 48 : address[lane] + 48 + count] = stored_bytes(data, count, shift)[lane]
        add(
            f"ds_write_{suffix}",
            [f"ds_write_{suffix} v2, {reg(n, 10)} offset:48"],
            {"v2": address.astype(_U), reg(n, 10): data},
            lambda lds, r, want=want: np.testing.assert_array_equal(lds, want),
        )


def _two_at_once() -> None:
    rng = np.random.default_rng(2)
    for bits, width in ((32, 1), (64, 2)):
        for infix, unit in (("", 4 * width), ("st64", 256 * width)):
            first, second = (3, 5) if infix else (3, 130 if width == 1 else 90)
            address = rng.permutation(LANE) * 4 * width
            address = address % 512 if infix and width == 2 else address
            places = [address + first * unit, address + second * unit]
            name = f"ds_read2{infix}_b{bits}"
            want = np.concatenate(
                [np.ascontiguousarray(gather(IMAGE, p, 4 * width)).view(_U).T for p in places]
            )
            dst = reg(2 * width, 10)
            add(
                name,
                [f"{name} {dst}, v2 offset0:{first} offset1:{second}"],
                {"v2": address.astype(_U), dst: np.zeros((2 * width, LANES), _U)},
                lambda lds, r, want=want, dst=dst: np.testing.assert_array_equal(r[dst][:, ON], want[:, ON]),
                [dst],
            )
            address = np.sort(address) if not infix else LANE * 4 * width
            data = [rng.integers(0, 1 << 32, (width, LANES), dtype=_U) for _ in range(2)]
            after = IMAGE.copy()
            for d, offset in zip(data, (first, second), strict=True):
                for lane in np.flatnonzero(ON):
                    at = address[lane] + offset * unit
                    after[at : at + 4 * width] = stored_bytes(d, 4 * width, 0)[lane]
            name = f"ds_write2{infix}_b{bits}"
            add(
                name,
                [f"{name} v2, {reg(width, 10)}, {reg(width, 14)} offset0:{first} offset1:{second}"],
                {"v2": address.astype(_U), reg(width, 10): data[0], reg(width, 14): data[1]},
                lambda lds, r, after=after: np.testing.assert_array_equal(lds, after),
            )
            name = f"ds_wrxchg2{infix}_rtn_b{bits}"
            old = np.concatenate(
                [
                    np.ascontiguousarray(gather(IMAGE, address + o * unit, 4 * width)).view(_U).T
                    for o in (first, second)
                ]
            )
            if len(np.unique(address)) == LANES:
                add(
                    name,
                    [
                        f"{name} {reg(2 * width, 20)}, v2, {reg(width, 10)}, {reg(width, 14)}"
                        f" offset0:{first} offset1:{second}"
                    ],
                    {"v2": address.astype(_U), reg(width, 10): data[0], reg(width, 14): data[1]},
                    lambda lds, r, after=after, old=old, width=width: (
                        np.testing.assert_array_equal(lds, after),
                        np.testing.assert_array_equal(r[reg(2 * width, 20)][:, ON], old[:, ON]),
                    ),
                    [reg(2 * width, 20)],
                )


_NAMES = {
    "add": "add_u",
    "sub": "sub_u",
    "inc": "inc_u",
    "dec": "dec_u",
    "smin": "min_i",
    "umin": "min_u",
    "smax": "max_i",
    "umax": "max_u",
    "and": "and_b",
    "or": "or_b",
    "xor": "xor_b",
}


def _atomic(
    stem: str,
    kind: str,
    width: int,
    memory: Array,
    sources: Sequence[Array],
    after: Array,
    swap: bool = False,
) -> None:
    """stem "add", kind "u32": ds_add_u32 and ds_add_rtn_u32, each lane on its own word."""
    base = 256
    image = IMAGE.copy()
    image[base : base + memory.nbytes] = memory.view(np.uint8)
    want = image.copy()
    want[base : base + memory.nbytes] = np.where(ON, after, memory).view(np.uint8)
    operands = [reg(width, 10 + 4 * i) for i in range(len(sources))]
    vin = {"v2": (LANE * 4 * width).astype(_U)} | {
        r: np.ascontiguousarray(np.ascontiguousarray(s).view(_U).reshape(LANES, -1).T)
        for r, s in zip(operands, sources, strict=True)
    }
    if not swap:
        add(
            f"ds_{stem}_{kind}",
            [f"ds_{stem}_{kind} v2, {', '.join(operands)} offset:{base}"],
            vin,
            lambda lds, r: np.testing.assert_array_equal(lds, want),
            image=image,
        )
    before = np.ascontiguousarray(memory.view(_U).reshape(LANES, -1).T)
    out = reg(width, 24)
    add(
        f"ds_{stem}_rtn_{kind}",
        [f"ds_{stem}_rtn_{kind} {out}, v2, {', '.join(operands)} offset:{base}"],
        vin,
        lambda lds, r: (
            np.testing.assert_array_equal(lds, want),
            np.testing.assert_array_equal(r[out][:, ON], before[:, ON]),
        ),
        [out],
        image=image,
    )


def _atomics() -> None:
    for suffix, (width, fn) in ATOMICS.items():
        stem = suffix.removesuffix("_x2")
        memory, data = atomic_data(suffix, width, np.random.default_rng(3))
        with np.errstate(all="ignore"):
            after = fn(memory, data)
        if stem == "swap":
            _atomic("wrxchg", f"b{32 * width}", width, memory, [data], after, swap=True)
        elif stem in _NAMES:
            name, letter = _NAMES[stem].split("_")
            _atomic(name, f"{letter}{32 * width}", width, memory, [data], after)
        else:
            name, kind = stem.rsplit("_", 1)
            _atomic(name, kind, width, memory, [data], after)
    for width in (1, 2):
        dtype = np.dtype(f"u{4 * width}")
        memory, data = atomic_data("x", width, np.random.default_rng(4))
        _atomic("rsub", f"u{32 * width}", width, memory, [data], data - memory)
        mask = np.random.default_rng(5).permutation(data)
        _atomic("mskor", f"b{32 * width}", width, memory, [mask, data], memory & ~mask | data)
        compare = np.where(LANE % 2 == 0, memory, memory + dtype.type(1))
        both = [data, compare] if SWAPPED else [compare, data]
        _atomic("cmpst", f"b{32 * width}", width, memory, both, np.where(LANE % 2 == 0, data, memory))
        kind = np.float32 if width == 1 else np.float64
        x, y = (v.astype(kind) for v in np.random.default_rng(6).normal(0, 3, (2, LANES)))
        x[:4], y[:4] = [0.0, -0.0, np.nan, 1.0], [-0.0, 0.0, 1.0, np.nan]
        same = np.where(LANE % 3 == 0, x, y).astype(kind)
        _atomic(
            "cmpst",
            f"f{32 * width}",
            width,
            x.view(dtype),
            [v.view(dtype) for v in ((y, same) if SWAPPED else (same, y))],
            np.where(x == same, y, x).astype(kind).view(dtype),
        )
        for name in () if RDNA else ("min", "max"):  # RDNA's are among ATOMICS
            finite = [np.nan_to_num(v, nan=2.0) for v in (x, y)]
            _atomic(
                name,
                f"f{32 * width}",
                width,
                finite[0].view(dtype),
                [finite[1].view(dtype)],
                np.where(
                    finite[1] < finite[0] if name == "min" else finite[1] > finite[0], finite[1], finite[0]
                )
                .astype(kind)
                .view(dtype),
            )
    memory, data = atomic_data("x", 1, np.random.default_rng(8))
    second = np.random.default_rng(9).permutation(data)
    _atomic(
        "wrap",
        "b32",
        1,
        memory,
        [data, second],
        np.where(memory >= data, memory - data, memory + second),
        swap=True,
    )
    memory, data = atomic_data("x", 2, np.random.default_rng(10))
    halves = [v.view(_U).reshape(LANES, 2) for v in (memory, data)]
    exchanged = np.where(halves[1] >> 31 == 1, halves[1] & _U(0x7FFFFFFF), halves[0])
    _atomic(
        "condxchg32",
        "b64",
        2,
        memory,
        [data],
        np.ascontiguousarray(exchanged).view(np.uint64)[:, 0],
        swap=True,
    )


def _permutes() -> None:
    rng = np.random.default_rng(11)
    x = rng.integers(0, 1 << 32, LANES, dtype=_U)
    index = rng.integers(0, 1 << 20, LANES, dtype=_U)
    # bpermute: the lane index wraps modulo the lanes it reaches, on gfx10 and gfx11 a half of a wave of 64
    # (LLVM, supportsWaveWideBPermute); lanes that are off give 0.
    reach = 32 if GENERATION in (10, 11) else LANES
    lane = LANE // reach * reach + (index.astype(np.int64) + 8) // 4 % reach
    for mask, on in ((ALL_LANES, np.ones(LANES, bool)), (HOLES, ON)):
        want = np.where(on, np.where(on[lane], x[lane], 0), 5)
        add(
            f"ds_bpermute_b32-{mask:x}",
            ["ds_bpermute_b32 v10, v2, v3 offset:8"],
            {"v2": index, "v3": x, "v10": np.full(LANES, 5, _U)},
            lambda lds, r, want=want: np.testing.assert_array_equal(r["v10"][0], want),
            ["v10"],
            exec_mask=mask,
        )
        # With "fi" those give what they have. LLVM 19 does not know it: clang 20's words of
        # ds_bpermute_fi_b32 v10, v2, v3 offset:8.
        inactive = np.where(on, x[lane], 5)
        add(
            f"ds_bpermute_fi_b32-{mask:x}",
            [".long 0xdb340008, 0x0a000302"],
            {"v2": index, "v3": x, "v10": np.full(LANES, 5, _U)},
            lambda lds, r, want=inactive: np.testing.assert_array_equal(r["v10"][0], want),
            ["v10"],
            exec_mask=mask,
            row="ds_bpermute_fi_b32",
        )
        target = LANE // reach * reach + np.concatenate(
            [rng.permutation(reach) for _ in range(LANES // reach)]
        )
        sent = np.zeros(LANES, _U)
        for i in np.flatnonzero(on):
            sent[target[i]] = x[i]
        pushed = np.where(on, sent, 5)
        add(
            f"ds_permute_b32-{mask:x}",
            ["ds_permute_b32 v10, v2, v3"],
            {"v2": (target * 4 + 4 * LANES).astype(_U), "v3": x, "v10": np.full(LANES, 5, _U)},
            lambda lds, r, pushed=pushed: np.testing.assert_array_equal(r["v10"][0], pushed),
            ["v10"],
            exec_mask=mask,
        )
    swap32 = x[LANE // reach * reach + (LANE + 32) % reach]
    add(
        "ds_bpermute_b32-lane^32",
        ["ds_bpermute_b32 v10, v2, v3"],
        {"v2": ((LANE + 32) * 4).astype(_U), "v3": x},
        lambda lds, r: np.testing.assert_array_equal(r["v10"][0], swap32),
        ["v10"],
        exec_mask=ALL_LANES,
    )
    for offset, source in (
        (0x8000 | 0b00_01_10_11, lambda i: i & ~3 | [3, 2, 1, 0][i & 3]),
        (0x041F, lambda i: i ^ 1),
        (0x401F, lambda i: i ^ 16),
        (0x0018 | 3 << 5, lambda i: i & ~31 | (i & 0x18 | 3) & 31),
    ):
        want = x[[source(i) for i in range(LANES)]]
        add(
            f"ds_swizzle_b32-{offset:x}",
            [f"ds_swizzle_b32 v10, v3 offset:{offset}"],
            {"v3": x},
            lambda lds, r, want=want: np.testing.assert_array_equal(r["v10"][0], want),
            ["v10"],
            exec_mask=ALL_LANES,
        )
    zero = np.where(ON, np.where(ON[LANE ^ 1], x[LANE ^ 1], 0), 5)
    add(
        "ds_swizzle_b32-off",
        ["ds_swizzle_b32 v10, v3 offset:0x41f"],
        {"v3": x, "v10": np.full(LANES, 5, _U)},
        lambda lds, r: np.testing.assert_array_equal(r["v10"][0], zero),
        ["v10"],
    )


def _others() -> None:
    unaddressed = {"v2": (LANE * 4).astype(_U)}
    add("ds_nop", ["ds_nop"], unaddressed, unchanged)
    words = IMAGE.view(_U)
    add(
        "ds_read_addtid_b32",
        ["ds_read_addtid_b32 v10 offset:64"],
        unaddressed | {"v10": np.full(LANES, 5, _U)},
        lambda lds, r: np.testing.assert_array_equal(
            r["v10"][0], np.where(ON, words[(64 + 128) // 4 + LANE], 5)
        ),
        ["v10"],
        sin={"m0": 128},
    )
    data = np.random.default_rng(12).integers(0, 1 << 32, LANES, dtype=_U)
    want = words.copy()
    want[48 : 48 + LANES] = np.where(ON, data, want[48 : 48 + LANES])
    add(
        "ds_write_addtid_b32",
        ["ds_write_addtid_b32 v10 offset:64"],
        unaddressed | {"v10": data},
        lambda lds, r: np.testing.assert_array_equal(lds.view(_U), want),
        sin={"m0": 128},
    )
    for name, step in (("ds_append", 1), ("ds_consume", -1)):
        after = words.copy()
        after[(16 + 128) // 4] += np.uint32(step * int(ON.sum()) & 0xFFFFFFFF)
        add(
            name,
            [f"{name} v10 offset:16"],
            unaddressed,
            lambda lds, r, after=after: (
                np.testing.assert_array_equal(lds.view(_U), after),
                np.testing.assert_array_equal(r["v10"][0][ON], words[36]),
            ),
            ["v10"],
            sin={"m0": 128},
        )


with np.errstate(all="ignore"):
    _plain_access()
    _two_at_once()
    _atomics()
    _permutes()
    _others()


@SUITE.parametrize()
def test_ds(case: Case) -> None:
    """LDS holds what it should, and registers too."""
    SUITE.check(case)
