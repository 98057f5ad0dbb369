# SPDX-License-Identifier: MIT OR Apache-2.0
"""Loads, stores and atomics by GLOBAL, FLAT and MUBUF, and the addressing of GLOBAL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..support.asm import LANES, RETURN, Case, Result, Suite
from ..support.fp import Array
from ..support.ops.memory_ops import (
    ATOMICS,
    HOLES,
    LANE,
    LOADS,
    MEMORY,
    ON,
    STORES,
    WAIT,
    atomic_data,
    gather,
    into_lds,
    memory_is,
    reg,
    resource,
    stored_bytes,
)
from ..support.spelling import RDNA, exists

SUITE = Suite("global")
_U = np.uint32


class Space:
    """How one address space names its instructions and addresses."""

    def __init__(self, prefix: str, tail: Callable[[int], str], align: int, offset: int, base: int) -> None:
        self.prefix, self.tail, self.align, self.offset, self.base = prefix, tail, align, offset, base
        buffer = prefix == "buffer"
        self.lines: list[str] = (
            []
            if buffer or prefix == "global"
            else [
                "v_add_co_u32 v2, vcc, s70, v2",
                "v_mov_b32 v3, s71",
                "s_nop 0",
                "v_addc_co_u32 v3, vcc, 0, v3, vcc",
            ]
        )
        self.sin: dict[str, Any] = {"s[64:67]": resource(len(MEMORY))} if buffer else {}

    def load(self, name: str, dst: str) -> str:
        """Text of a load."""
        a = {
            "buffer": f"{dst}, v2, s[64:67], s6 offen",
            "global": f"{dst}, v2, s[70:71]",
            "flat": f"{dst}, v[2:3]",
        }[self.prefix]
        return f"{name} {a}{self.tail(self.offset)}"

    def store(self, name: str, data: str) -> str:
        """Text of a store or an atomic without return."""
        a = {
            "buffer": f"{data}, v2, s[64:67], s6 offen",
            "global": f"v2, {data}, s[70:71]",
            "flat": f"v[2:3], {data}",
        }[self.prefix]
        return f"{name} {a}{self.tail(self.offset)}"

    def atomic(self, name: str, dst: str, data: str) -> str:
        """Text of an atomic that returns the old value."""
        a = {
            "buffer": f"{data}, v2, s[64:67], s6 offen",
            "global": f"{dst}, v2, {data}, s[70:71]",
            "flat": f"{dst}, v[2:3], {data}",
        }[self.prefix]
        return f"{name} {a}{self.tail(self.offset)} {RETURN}"


def _offset_text(offset: int) -> str:
    return f" offset:{offset}" if offset else ""


SPACES = [
    Space("global", _offset_text, 1, -24, 64),
    Space("flat", _offset_text, 1, 40, 0),
    Space("buffer", _offset_text, 4, 20, 0),
]


def _loads(space: Space) -> None:
    for suffix, (count, fn) in LOADS.items():
        name = f"{space.prefix}_load_{suffix}"
        if not exists(name):
            continue
        step = max(4, count) if space.align == 4 else 17
        addresses = LANE * step + space.base
        n = -(-count // 4)
        old = np.random.default_rng(1).integers(0, 1 << 32, (n, LANES), dtype=_U)
        want = fn(
            gather(MEMORY, addresses + space.offset + (12 if space.prefix == "buffer" else 0), count), old
        )

        def check(result: Result, want: Array = want, old: Array = old, n: int = n) -> None:
            np.testing.assert_array_equal(result[reg(n, 10)], np.where(ON, want, old))

        SUITE.add(
            name,
            [*space.lines, space.load(name, reg(n, 10)), WAIT],
            [reg(n, 10)],
            check,
            {"v2": addresses.astype(_U), "v3": 0, reg(n, 10): old},
            {"exec": HOLES, "s6": 12} | space.sin,
            MEMORY,
            covers=[name],
        )


def _stores(space: Space) -> None:
    for suffix, (count, shift) in STORES.items():
        name = f"{space.prefix}_store_{suffix}"
        if not exists(name):
            continue
        step = max(4, count) if space.align == 4 else 17
        addresses = LANE * step + space.base
        n = -(-count // 4)
        data = np.random.default_rng(2).integers(0, 1 << 32, (n, LANES), dtype=_U)
        want = MEMORY.copy()
        place = addresses + space.offset + (12 if space.prefix == "buffer" else 0)
        for lane in np.flatnonzero(ON):
            want[place[lane] : place[lane] + count] = stored_bytes(data, count, shift)[lane]
        SUITE.add(
            name,
            [*space.lines, space.store(name, reg(n, 10)), WAIT],
            [],
            memory_is(want),
            {"v2": addresses.astype(_U), "v3": 0, reg(n, 10): data},
            {"exec": HOLES, "s6": 12} | space.sin,
            MEMORY,
            covers=[name],
        )


def _atomics(space: Space) -> None:
    for suffix, (width, fn) in ATOMICS.items():
        name = f"{space.prefix}_atomic_{suffix}"
        if exists(name):
            memory, data = atomic_data(suffix, width, np.random.default_rng(3))
            with np.errstate(all="ignore"):
                _atomic(space, name, width, memory, data, fn(memory, data), data)
    for suffix, width in (("cmpswap", 1), ("cmpswap_x2", 2)):
        name = f"{space.prefix}_atomic_{suffix}"
        if exists(name):
            memory, data = atomic_data(suffix, width, np.random.default_rng(4))
            compare = np.where(LANE % 2 == 0, memory, memory + memory.dtype.type(1))
            both = np.concatenate([_dwords(data), _dwords(compare)])
            _atomic(space, name, width, memory, both, np.where(LANE % 2 == 0, data, memory), data)


def _rdna_atomics(space: Space) -> None:
    """A compare of floats, and a subtraction that must return."""
    name = f"{space.prefix}_atomic_cmpswap_f32"
    if exists(name):
        x, y = (v.astype(np.float32) for v in np.random.default_rng(6).normal(0, 3, (2, LANES)))
        x[4:8], y[4:8] = [0.0, -0.0, np.nan, 1.0], [-0.0, 0.0, 1.0, np.nan]
        compare = np.where(LANE % 3 == 0, x, y).astype(np.float32)
        both = np.concatenate([_dwords(y), _dwords(compare)])
        _atomic(space, name, 1, x.view(_U), both, np.where(x == compare, y, x).view(_U), y)
    name = f"{space.prefix}_atomic_cmpswap_f64"
    if exists(name):
        x, y = np.random.default_rng(8).normal(0, 3, (2, LANES))
        compare = np.where(LANE % 3 == 0, x, y)
        after = np.where(x == compare, y, x)
        both = np.concatenate([_dwords(y), _dwords(compare)])
        _atomic(space, name, 2, x.view(np.uint64), both, after.view(np.uint64), y)
    name = f"{space.prefix}_atomic_csub_u32"
    if exists(name):
        memory, data = atomic_data("sub", 1, np.random.default_rng(7))
        after = np.where(memory >= data, memory - data, _U(0))
        _atomic(space, name, 1, memory, data, after, data, returns=True)


def _dwords(values: Array) -> Array:
    return np.ascontiguousarray(np.ascontiguousarray(values).view(_U).reshape(LANES, -1).T)


def _atomic(
    space: Space,
    name: str,
    width: int,
    memory: Array,
    data: Array,
    after: Array,
    plain: Array,
    returns: bool = False,
) -> None:
    """Each lane on a word of its own, some lanes off; with and without the old value returned."""
    base = 1024
    addresses = base + LANE * 4 * width - space.offset - (12 if space.prefix == "buffer" else 0)
    initial = MEMORY.copy()
    initial[base : base + memory.nbytes] = memory.view(np.uint8)
    want = initial.copy()
    want[base : base + memory.nbytes] = np.where(ON, after, memory).view(np.uint8)
    sources = data if data.ndim == 2 else _dwords(data)
    n = len(sources)
    vin = {"v2": addresses.astype(_U), "v3": 0, reg(n, 10): sources}
    sin = {"exec": HOLES, "s6": 12} | space.sin
    if not returns:
        SUITE.add(
            name,
            [*space.lines, space.store(name, reg(n, 10)), WAIT],
            [],
            memory_is(want),
            vin,
            sin,
            initial,
            covers=[name],
        )
    out = reg(width, 10 if space.prefix == "buffer" else 20)
    before = _dwords(memory)

    def check(result: Result) -> None:
        memory_is(want)(result)
        np.testing.assert_array_equal(result[out][:, ON], before[:, ON])

    SUITE.add(
        f"{name}-rtn",
        [*space.lines, space.atomic(name, out, reg(n, 10)), WAIT],
        [out],
        check,
        vin,
        sin,
        initial,
        covers=[name],
    )


def _same_word() -> None:
    """All lanes add to one word: nothing is lost."""
    initial = np.zeros(64, np.uint32)
    initial[4] = 5
    want = initial.copy()
    want[4] = 5 + int(LANE.sum())
    SUITE.add(
        "global_atomic_add-contended",
        ["global_atomic_add v2, v3, s[70:71]", WAIT],
        [],
        memory_is(want),
        {"v2": 16, "v3": LANE.astype(_U)},
        {},
        initial,
        covers=["global_atomic_add"],
    )
    floats = np.zeros(16, np.float32)
    total = floats.copy()
    total[0] = LANE.sum()
    SUITE.add(
        "buffer_atomic_add_f32-contended",
        ["buffer_atomic_add_f32 v3, v2, s[64:67], 0 offen", WAIT],
        [],
        memory_is(total),
        {"v2": 0, "v3": LANE.astype(np.float32)},
        {"s[64:67]": resource(64)},
        floats,
        covers=["buffer_atomic_add_f32"],
    )


def _global_forms() -> None:
    """A 64-bit address without a base."""
    lines = [
        "v_add_co_u32 v2, vcc, s70, v2",
        "v_mov_b32 v3, s71",
        "s_nop 0",
        "v_addc_co_u32 v3, vcc, 0, v3, vcc",
    ]
    want = gather(MEMORY, LANE * 4 + 2000, 4).view(_U)[:, 0]
    SUITE.add(
        "global-off",
        [*lines, "global_load_dword v10, v[2:3], off offset:2000", WAIT],
        ["v10"],
        lambda r: np.testing.assert_array_equal(r["v10"][0], want),
        {"v2": (LANE * 4).astype(_U)},
        {},
        MEMORY,
        covers=["global_load_dword"],
    )
    if RDNA:  # which has no AccVGPRs
        return
    SUITE.add(
        "global-agpr",
        ["global_load_dwordx2 a[4:5], v2, s[70:71]", WAIT],
        ["a[4:5]"],
        lambda r: np.testing.assert_array_equal(r["a[4:5]"], gather(MEMORY, LANE * 8, 8).view(_U).T),
        {"v2": (LANE * 8).astype(_U)},
        {},
        MEMORY,
        covers=["global_load_dwordx2"],
    )


def _by_lane() -> None:
    """The lane's number times 4 is the address."""
    if not RDNA:
        return
    words = MEMORY.view(_U)
    SUITE.add(
        "global_load_addtid_b32",
        ["global_load_addtid_b32 v10, s[70:71] offset:64", WAIT],
        ["v10"],
        lambda r: np.testing.assert_array_equal(r["v10"][0], np.where(ON, words[16 + LANE], 7)),
        {"v10": np.full(LANES, 7, _U)},
        {"exec": HOLES},
        MEMORY,
    )
    data = np.random.default_rng(9).integers(0, 1 << 32, LANES, dtype=_U)
    want = words.copy()
    want[16 : 16 + LANES] = np.where(ON, data, words[16 : 16 + LANES])
    SUITE.add(
        "global_store_addtid_b32",
        ["global_store_addtid_b32 v10, s[70:71] offset:64", WAIT],
        [],
        memory_is(want),
        {"v10": data},
        {"exec": HOLES},
        MEMORY,
    )


def _global_to_lds() -> None:
    """GLOBAL into LDS at M0 + offset + lane*4, narrow loads extended to a dword."""
    for suffix, (count, fn) in LOADS.items():
        name = f"global_load_lds_{suffix}"
        if not exists(name):
            continue
        if count > 4:  # a run of LDS a lane: on gfx950, and test_gfx950.py's
            continue
        want = np.full(256, 0xABABABAB, _U)
        loaded = fn(gather(MEMORY, LANE * 5 + 16, count), np.zeros((1, LANES), _U))[0]
        want[(64 + 16) // 4 : (64 + 16) // 4 + LANES] = np.where(ON, loaded, 0xABABABAB)
        SUITE.add(
            name,
            into_lds(f"{name} v2, s[70:71] offset:16"),
            ["v[10:13]"],
            lambda r, want=want: np.testing.assert_array_equal(r["v[10:13]"].reshape(-1), want),
            {"v2": (LANE * 5).astype(_U), "v3": (LANE * 4).astype(_U), "v4": 0xABABABAB},
            {"m0": 64, "exec": HOLES},
            MEMORY,
            lds=4096,
            covers=[name],
        )


for _space in SPACES:
    _loads(_space)
    _stores(_space)
    _atomics(_space)
    _rdna_atomics(_space)
_same_word()
_global_forms()
_by_lane()
_global_to_lds()


@SUITE.parametrize()
def test_global(case: Case) -> None:
    """Bytes go where the address says."""
    SUITE.check(case)
