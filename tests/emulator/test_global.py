# SPDX-License-Identifier: MIT OR Apache-2.0
"""GLOBAL, FLAT, SCRATCH and MUBUF: loads, stores, atomics, and their addressing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import rows
from .asm import LANES, Case, Result, Suite
from .fp import Array
from .memory_ops import ATOMICS, LOADS, STORES, atomic_data, gather, stored_bytes

SUITE = Suite("global")
_U = np.uint32
WAIT = "s_waitcnt vmcnt(0) lgkmcnt(0)"
LANE = np.arange(LANES)
MEMORY = np.random.default_rng(0).integers(0, 256, 8192, dtype=np.uint8)
HOLES = 0xF0FF_0000_1234_5671
ON = np.array([HOLES >> i & 1 for i in range(LANES)], bool)


def reg(count: int, index: int) -> str:
    """A VGPR or a range."""
    return f"v{index}" if count == 1 else f"v[{index}:{index + count - 1}]"


def resource(records: int, stride: int = 0, swizzle: int = 0) -> Callable[[int], int]:
    """Buffer descriptor of the case's memory."""
    return lambda a: a & (1 << 48) - 1 | stride << 48 | swizzle << 63 | records << 64 | 0x00020000 << 96


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
        return f"{name} {a}{self.tail(self.offset)} sc0"


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
        if name not in rows.names():
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
        if name not in rows.names():
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
            _memory_is(want),
            {"v2": addresses.astype(_U), "v3": 0, reg(n, 10): data},
            {"exec": HOLES, "s6": 12} | space.sin,
            MEMORY,
            covers=[name],
        )


def _memory_is(want: Array) -> Callable[[Result], None]:
    def check(result: Result) -> None:
        np.testing.assert_array_equal(result.mem[: len(want.view(np.uint8))], want.view(np.uint8))

    return check


def _atomics(space: Space) -> None:
    for suffix, (width, fn) in ATOMICS.items():
        name = f"{space.prefix}_atomic_{suffix}"
        if name in rows.names():
            memory, data = atomic_data(suffix, width, np.random.default_rng(3))
            with np.errstate(all="ignore"):
                _atomic(space, name, width, memory, data, fn(memory, data), data)
    for suffix, width in (("cmpswap", 1), ("cmpswap_x2", 2)):
        name = f"{space.prefix}_atomic_{suffix}"
        if name in rows.names():
            memory, data = atomic_data(suffix, width, np.random.default_rng(4))
            compare = np.where(LANE % 2 == 0, memory, memory + memory.dtype.type(1))
            both = np.concatenate([_dwords(data), _dwords(compare)])
            _atomic(space, name, width, memory, both, np.where(LANE % 2 == 0, data, memory), data)


def _dwords(values: Array) -> Array:
    return np.ascontiguousarray(np.ascontiguousarray(values).view(_U).reshape(LANES, -1).T)


def _atomic(
    space: Space, name: str, width: int, memory: Array, data: Array, after: Array, plain: Array
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
    SUITE.add(
        name,
        [*space.lines, space.store(name, reg(n, 10)), WAIT],
        [],
        _memory_is(want),
        vin,
        sin,
        initial,
        covers=[name],
    )
    out = reg(width, 10 if space.prefix == "buffer" else 20)
    before = _dwords(memory)

    def check(result: Result) -> None:
        _memory_is(want)(result)
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
        _memory_is(want),
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
        _memory_is(total),
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
    want = gather(MEMORY, LANE * 4 + 4000, 4).view(_U)[:, 0]
    SUITE.add(
        "global-off",
        [*lines, "global_load_dword v10, v[2:3], off offset:4000", WAIT],
        ["v10"],
        lambda r: np.testing.assert_array_equal(r["v10"][0], want),
        {"v2": (LANE * 4).astype(_U)},
        {},
        MEMORY,
        covers=["global_load_dword"],
    )
    # AccVGPRs as data.
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


def _buffer_range() -> None:
    """Raw buffers: a dword is in range if offset + soffset + 4 <= num_records, else 0 or dropped."""
    for records in (256, 250, 100):
        for soffset in (0, 8):
            address = LANE * 8
            data = np.zeros((4, LANES), _U)
            kept = np.zeros((4, LANES), bool)
            for i in range(4):
                end = address + 4 * i + soffset + 4
                kept[i] = end <= records
                data[i] = np.where(kept[i], gather(MEMORY, np.minimum(end - 4, 4096), 4).view(_U)[:, 0], 0)

            def check(result: Result, data: Array = data) -> None:
                np.testing.assert_array_equal(result["v[10:13]"], data)

            SUITE.add(
                f"buffer-range-load-{records}-{soffset}",
                ["buffer_load_dwordx4 v[10:13], v2, s[64:67], s6 offen", WAIT],
                ["v[10:13]"],
                check,
                {"v2": address.astype(_U), "v[10:13]": np.full((4, LANES), 7, _U)},
                {"s[64:67]": resource(records), "s6": soffset},
                MEMORY,
                covers=["buffer_load_dwordx4"],
            )
            want = MEMORY.copy()
            stored = np.random.default_rng(7).integers(0, 1 << 32, (4, LANES), dtype=_U)
            address16 = LANE * 16
            for lane in range(LANES):
                for i in range(4):
                    at = int(address16[lane]) + 4 * i + soffset
                    if at + 4 <= records:
                        want[at : at + 4] = stored[i, lane : lane + 1].view(np.uint8)
            SUITE.add(
                f"buffer-range-store-{records}-{soffset}",
                ["buffer_store_dwordx4 v[10:13], v2, s[64:67], s6 offen", WAIT],
                [],
                _memory_is(want),
                {"v2": address16.astype(_U), "v[10:13]": stored},
                {"s[64:67]": resource(records), "s6": soffset},
                MEMORY,
                covers=["buffer_store_dwordx4"],
            )
    # An offset near 2^32 is out of range, not before the start.
    SUITE.add(
        "buffer-range-wrap",
        ["buffer_load_dword v10, v2, s[64:67], 0 offen offset:16", WAIT],
        ["v10"],
        lambda r: np.testing.assert_array_equal(r["v10"][0], 0),
        {"v2": np.full(LANES, 0xFFFFFF00, _U), "v10": 7},
        {"s[64:67]": resource(4096)},
        MEMORY,
        covers=["buffer_load_dword"],
    )


def _buffer_structured() -> None:
    """idxen with a stride: address index * stride + offset; in range while index < num_records."""
    stride, records = 24, 40
    index = LANE
    inside = index < records
    want = np.where(inside, gather(MEMORY, np.where(inside, index * stride + 4, 0), 4).view(_U)[:, 0], 0)
    SUITE.add(
        "buffer-idxen",
        ["buffer_load_dword v10, v2, s[64:67], 0 idxen offset:4", WAIT],
        ["v10"],
        lambda r: np.testing.assert_array_equal(r["v10"][0], want),
        {"v2": index.astype(_U)},
        {"s[64:67]": resource(records, stride)},
        MEMORY,
        covers=["buffer_load_dword"],
    )
    both = np.where(inside, gather(MEMORY, np.where(inside, index * stride + 8, 0), 4).view(_U)[:, 0], 0)
    SUITE.add(
        "buffer-idxen-offen",
        ["buffer_load_dword v10, v[2:3], s[64:67], 0 idxen offen", WAIT],
        ["v10"],
        lambda r: np.testing.assert_array_equal(r["v10"][0], both),
        {"v2": index.astype(_U), "v3": 8},
        {"s[64:67]": resource(records, stride)},
        MEMORY,
        covers=["buffer_load_dword"],
    )
    SUITE.add(
        "buffer-plain",
        ["buffer_load_dword v10, off, s[64:67], s6 offset:8", WAIT],
        ["v10"],
        lambda r: np.testing.assert_array_equal(r["v10"][0], MEMORY[20:24].view(_U)[0]),
        {"v10": 1},
        {"s[64:67]": resource(24), "s6": 12},
        MEMORY,
        covers=["buffer_load_dword"],
    )


def _buffer_to_lds() -> None:
    """Into LDS at M0 + offset + lane*4; a lane out of range writes 0, a lane off writes nothing."""
    records = 160
    address = LANE * 4
    values = np.where(address + 4 <= records, gather(MEMORY, np.minimum(address, 4096), 4).view(_U)[:, 0], 0)
    lds = np.full(256, 0xABABABAB, _U)
    lds[(64 + 16) // 4 : (64 + 16) // 4 + LANES] = np.where(ON, values, 0xABABABAB)
    fill = [f"ds_write_b32 v3, v4 offset:{256 * i}" for i in range(4)]
    read = [f"ds_read_b32 v{10 + i}, v3 offset:{256 * i}" for i in range(4)]
    lines = [
        "s_mov_b64 s[20:21], exec",
        "s_mov_b64 exec, -1",
        *fill,
        WAIT,
        "s_mov_b64 exec, s[20:21]",
        "buffer_load_dword v2, s[64:67], 0 offen offset:16 lds",
        WAIT,
        "s_mov_b64 exec, -1",
        *read,
        WAIT,
    ]
    # The instruction's own offset counts for the memory address too.
    shifted = np.where(
        address + 20 <= records, gather(MEMORY, np.minimum(address + 16, 4096), 4).view(_U)[:, 0], 0
    )
    lds[(64 + 16) // 4 : (64 + 16) // 4 + LANES] = np.where(ON, shifted, 0xABABABAB)

    def check(result: Result) -> None:
        np.testing.assert_array_equal(result["v[10:13]"].reshape(-1), lds)

    SUITE.add(
        "buffer_load_dword-lds",
        lines,
        ["v[10:13]"],
        check,
        {"v2": address.astype(_U), "v3": address.astype(_U), "v4": 0xABABABAB},
        {"s[64:67]": resource(records), "m0": 64, "exec": HOLES},
        MEMORY,
        lds=4096,
        covers=["buffer_load_dword"],
    )


def _global_to_lds() -> None:
    """GLOBAL into LDS at M0 + offset + lane*4, narrow loads extended to a dword."""
    for suffix, (count, fn) in LOADS.items():
        name = f"global_load_lds_{suffix}"
        if name not in rows.names():
            continue
        want = np.full(256, 0xABABABAB, _U)
        loaded = fn(gather(MEMORY, LANE * 5 + 16, count), np.zeros((1, LANES), _U))[0]
        want[(64 + 16) // 4 : (64 + 16) // 4 + LANES] = np.where(ON, loaded, 0xABABABAB)
        fill = [f"ds_write_b32 v3, v4 offset:{256 * i}" for i in range(4)]
        read = [f"ds_read_b32 v{10 + i}, v3 offset:{256 * i}" for i in range(4)]
        lines = [
            "s_mov_b64 s[20:21], exec",
            "s_mov_b64 exec, -1",
            *fill,
            WAIT,
            "s_mov_b64 exec, s[20:21]",
            f"{name} v2, s[70:71] offset:16",
            WAIT,
            "s_mov_b64 exec, -1",
            *read,
            WAIT,
        ]
        SUITE.add(
            name,
            lines,
            ["v[10:13]"],
            lambda r, want=want: np.testing.assert_array_equal(r["v[10:13]"].reshape(-1), want),
            {"v2": (LANE * 5).astype(_U), "v3": (LANE * 4).astype(_U), "v4": 0xABABABAB},
            {"m0": 64, "exec": HOLES},
            MEMORY,
            lds=4096,
            covers=[name],
        )


def _apertures() -> None:
    """FLAT into LDS and into scratch."""
    base = {"shared": "src_shared_base", "private": "src_private_base"}
    for name, special in base.items():
        lines = [
            f"s_mov_b64 s[20:21], {special}",
            "v_mov_b32 v3, s21",
            "flat_store_dword v[2:3], v4",
            "flat_store_short v[2:3], v5 offset:260",
            WAIT,
            "flat_load_dword v10, v[2:3]",
            "flat_load_ushort v11, v[2:3] offset:260",
            WAIT,
        ]
        if name == "shared":
            lines += ["ds_read_b32 v12, v2", WAIT]
        else:
            lines += ["scratch_load_dword v12, v2, off", WAIT]
        data = np.random.default_rng(5).integers(0, 1 << 32, (2, LANES), dtype=_U)

        def check(result: Result, data: Array = data) -> None:
            np.testing.assert_array_equal(result["v10"][0], data[0])
            np.testing.assert_array_equal(result["v11"][0], data[1] & 0xFFFF)
            np.testing.assert_array_equal(result["v12"][0], data[0])

        address = LANE * 4 if name == "shared" else np.full(LANES, 8)
        SUITE.add(
            f"flat-{name}",
            lines,
            ["v10", "v11", "v12"],
            check,
            {"v2": address.astype(_U), "v4": data[0], "v5": data[1]},
            {},
            None,
            lds=4096,
            scratch=512,
            covers=["flat_store_dword", "flat_load_dword"],
        )


def _scratch() -> None:
    """Private memory: lane by lane, with a VGPR, an SGPR, or an offset alone."""
    data = np.random.default_rng(6).integers(0, 1 << 32, (4, LANES), dtype=_U)
    for suffix, (count, shift) in STORES.items():
        name, n = f"scratch_store_{suffix}", -(-count // 4)
        if name not in rows.names():
            continue
        for form, address in (
            ("v2, {d}, off offset:16", 32),
            ("off, {d}, s5 offset:16", 40),
            ("off, {d}, off offset:64", 48),
        ):
            at = {"v2": 16, "s5": 24}
            text = form.format(d=reg(n, 10))
            load = f"scratch_load_dwordx4 v[20:23], off, off offset:{address + (16 if '64' in form else 0)}"
            raw = np.zeros((LANES, 16), np.uint8)
            raw[:, :count] = stored_bytes(data[:n], count, shift)
            clear = [
                f"scratch_store_dwordx4 off, v[30:33], off offset:{address + (16 if '64' in form else 0)}"
            ]

            def check(result: Result, raw: Array = raw) -> None:
                np.testing.assert_array_equal(np.ascontiguousarray(result["v[20:23]"].T).view(np.uint8), raw)

            SUITE.add(
                f"{name}-{form[:3]}",
                [*clear, WAIT, f"{name} {text}", WAIT, load, WAIT],
                ["v[20:23]"],
                check,
                {
                    "v2": np.full(LANES, at["v2"], _U),
                    reg(n, 10): data[:n],
                    "v[30:33]": np.zeros((4, LANES), _U),
                },
                {"s5": at["s5"]},
                scratch=256,
                covers=[name],
            )
    raw = np.ascontiguousarray(data.T).view(np.uint8)
    for suffix, (count, fn) in LOADS.items():
        name, n = f"scratch_load_{suffix}", -(-count // 4)
        if name not in rows.names():
            continue
        old = np.full((n, LANES), 0x11223344, _U)
        loaded = fn(raw[:, :count], old)

        def check_load(result: Result, loaded: Array = loaded, n: int = n) -> None:
            np.testing.assert_array_equal(result[reg(n, 20)], loaded)

        SUITE.add(
            name,
            [
                "scratch_store_dwordx4 off, v[10:13], off offset:64",
                WAIT,
                f"{name} {reg(n, 20)}, v2, off offset:32",
                WAIT,
            ],
            [reg(n, 20)],
            check_load,
            {"v2": np.full(LANES, 32, _U), "v[10:13]": data, reg(n, 20): old},
            scratch=256,
            covers=[name],
        )


for _space in SPACES:
    _loads(_space)
    _stores(_space)
    _atomics(_space)
_same_word()
_global_forms()
_buffer_range()
_buffer_structured()
_buffer_to_lds()
_global_to_lds()
_apertures()
_scratch()


@SUITE.parametrize()
def test_global(case: Case) -> None:
    """Bytes go where the address says."""
    SUITE.check(case)
