# SPDX-License-Identifier: MIT OR Apache-2.0
"""RDNA's instructions that compilers rarely emit: blocks, loads to LDS, the first wave at a barrier.

Some instructions are refused, each with its reason.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest

from ..support import hip, rows
from ..support.asm import LANES, Case, Kernel, Result, Suite, assemble
from ..support.findings import ARGS, GWS, HEAD, Kernels
from ..support.fp import Array
from ..support.ops.memory_ops import HOLES, LANE, MEMORY, ON, WAIT, gather, memory_is, resource
from ..support.spelling import GENERATION, RDNA, exists

SUITE = Suite("rdna_rest")
_U = np.uint32
RNG = np.random.default_rng(11)


def _equal(register: str, want: Array) -> Callable[[Result], None]:
    return lambda result: np.testing.assert_array_equal(result[register], want)


def _silent() -> None:
    """Hints change no register: the arch of the assembler, and a translation fetched ahead."""
    for line in ("s_version 0x2006", "s_atc_probe 7, s[4:5], 0x40", "s_atc_probe_buffer 7, s[64:67], 0x40"):
        sin = {"s[4:5]": lambda address: address, "s[64:67]": resource(len(MEMORY))}
        want = np.array([[4], [0x1234]], _U)
        before, after = ("s_mov_b32 s8, 4", "s_movk_i32 s9, 0x1234"), ("s_waitcnt lgkmcnt(0)",)
        name = line.split()[0]
        check = _equal("s[8:9]", np.repeat(want, LANES, axis=1))
        SUITE.add(name, [*before, line, *after], ["s[8:9]"], check, sin=sin, mem=MEMORY, covers=[name])


_EXTENDED = {"u8": np.uint8, "i8": np.int8, "u16": np.uint16, "i16": np.int16, "b32": np.uint32}


def _loads_to_lds() -> None:
    """A dword a lane, from M0 and the offset on; lanes that are off load nothing."""
    m0, offset, step = 96, 20, 9
    old = RNG.integers(0, 1 << 32, LANES, dtype=_U)
    fill = ["v_mov_b32 v5, v4", f"ds_write_b32 v3, v5 offset:{m0 + offset}", WAIT]
    read = [WAIT, "s_mov_b64 exec, -1", f"ds_read_b32 v10, v3 offset:{m0 + offset}", WAIT]
    for name, kind in _EXTENDED.items():
        mnemonic = f"buffer_load_lds_{name}"
        loaded = gather(MEMORY, LANE * step + 40 + offset + 12, np.dtype(kind).itemsize).view(kind)[:, 0]
        want = np.where(ON, loaded.astype(np.int64).astype(_U), old)
        load = [f"{mnemonic} v2, s[64:67], s6 offen offset:{offset}"]
        on = ["s_mov_b64 exec, s[8:9]"]
        SUITE.add(
            mnemonic,
            [*fill, *on, *load, *read],
            ["v10"],
            _equal("v10", want[None]),
            {"v2": (LANE * step + 40).astype(_U), "v3": (LANE * 4).astype(_U), "v4": old},
            {"s[64:67]": resource(len(MEMORY)), "s6": 12, "m0": m0, "s[8:9]": HOLES},
            MEMORY,
            lds=1024,
            covers=[mnemonic],
        )


def _formats_to_lds() -> None:
    """One component, as the format of the resource says: 16 bits, an unsigned integer."""
    name, integer16, raw = "buffer_load_lds_format_x", 11, 3
    words = MEMORY.view(np.uint16)[LANE]
    fields = integer16 << 12 | raw << 28 | 0xFAC

    def descriptor(address: int) -> int:
        return address & (1 << 48) - 1 | len(MEMORY) << 64 | fields << 96

    SUITE.add(
        name,
        [f"{name} v2, s[64:67], 0 offen", WAIT, "ds_read_b32 v10, v3", WAIT],
        ["v10"],
        _equal("v10", words.astype(_U)[None]),
        {"v2": (LANE * 2).astype(_U), "v3": (LANE * 4).astype(_U)},
        {"s[64:67]": descriptor},
        MEMORY,
        lds=1024,
        covers=[name],
    )


_BLOCKS = (0xFFFF_FFFF, 0x8000_0001, 0x1234_5678, 0)  # in M0


def _block_loads() -> None:
    """Register n of those in M0 gets dword n of each lane that is on."""
    name = "global_load_block"
    old = RNG.integers(0, 1 << 32, (32, LANES), dtype=_U)
    memory = np.pad(MEMORY, (0, 4))
    dwords = gather(memory, LANE * 128 + 4, 128).view(_U).T
    for m0 in _BLOCKS:
        there = np.array([m0 >> i & 1 for i in range(32)], bool)[:, None] & ON
        SUITE.add(
            f"{name}-{m0:x}",
            [f"{name} v[40:71], v2, s[70:71] offset:4", WAIT],
            ["v[40:71]"],
            _equal("v[40:71]", np.where(there, dwords, old)),
            {"v2": (LANE * 128).astype(_U), "v3": 0, "v[40:71]": old},
            {"exec": HOLES, "m0": m0},
            memory,
            covers=[name],
        )


def _block_over_address() -> None:
    """The address is read before any of it is overwritten."""
    dwords = gather(MEMORY, LANE * 64, 128).view(_U).T
    SUITE.add(
        "global_load_block-address",
        ["global_load_block v[2:33], v2, s[70:71]", WAIT],
        ["v[2:33]"],
        _equal("v[2:33]", dwords),
        {"v2": (LANE * 64).astype(_U)},
        {"m0": 0xFFFF_FFFF},
        MEMORY,
    )


def _block_stores() -> None:
    name = "global_store_block"
    data = RNG.integers(0, 1 << 32, (32, LANES), dtype=_U)
    for m0 in _BLOCKS:
        want = MEMORY[: 128 * LANES].copy().view(_U).reshape(LANES, 32)
        for n in range(32):
            want[ON, n] = data[n, ON] if m0 >> n & 1 else want[ON, n]
        SUITE.add(
            f"{name}-{m0:x}",
            [f"{name} v2, v[40:71], s[70:71] offset:-8", WAIT],
            [],
            memory_is(want.reshape(-1)),
            {"v2": (LANE * 128 + 8).astype(_U), "v[40:71]": data},
            {"exec": HOLES, "m0": m0},
            MEMORY,
        )


def _private_blocks() -> None:
    """There and back, but for one register that is not stored and one that is not loaded."""
    data = RNG.integers(0, 1 << 32, (32, LANES), dtype=_U)
    want = np.where(np.arange(32)[:, None] == 7, _U(5), data)
    want[3] = 0
    fill = [f"scratch_store_b32 off, v5, off offset:{4 * i + 16}" for i in range(32)]
    lines = ["v_mov_b32 v5, 0", *fill, WAIT, "s_mov_b32 m0, 0xfffffff7"]
    lines += ["scratch_store_block v2, v[40:71], off offset:16", WAIT]
    lines += [f"v_mov_b32 v{40 + i}, 5" for i in range(32)]
    lines += ["s_mov_b32 m0, 0xffffff7f", "scratch_load_block v[40:71], off, off offset:16", WAIT]
    SUITE.add(
        "scratch_block",
        lines,
        ["v[40:71]"],
        _equal("v[40:71]", want),
        {"v2": 0, "v[40:71]": data},
        scratch=256,
        covers=["scratch_store_block", "scratch_load_block"],
    )


if RDNA:
    _silent()
    if exists("buffer_load_lds_b32"):
        _loads_to_lds()
        _formats_to_lds()
    if GENERATION == 12:
        _block_loads()
        _block_over_address()
        _block_stores()
        _private_blocks()


@SUITE.parametrize()
def test_rdna_rest(case: Case) -> None:
    """Registers and memory after it."""
    SUITE.check(case)


@pytest.mark.skipif(GENERATION != 12, reason="gfx12's barrier")
def test_the_first_at_a_barrier() -> None:
    """Each barrier tells exactly one wave of the workgroup that it is the first."""
    body = [*HEAD]
    for scalar in ("s11", "s12"):
        body += ["s_barrier_signal_isfirst -1", f"s_cselect_b32 {scalar}, 1, 0", "s_barrier_wait 0xffff"]
    body += ["v_mov_b32 v2, s11", "v_mov_b32 v3, s12"]
    store = ["v_lshlrev_b32 v4, 1, v1", "global_store_dwordx2 v4, v[2:3], s[8:9]", "s_endpgm"]
    module = hip.Module(assemble([Kernel("first", [*body, *store], args=ARGS)]))
    waves = 3
    buffer = hip.Buffer.of(np.zeros(2 * waves * LANES, _U))
    module.launch("first", struct.pack("<Q", buffer.address), block=(waves * LANES, 1, 1))
    told = buffer.read(_U).reshape(waves, LANES, 2)
    assert (told == told[:, :1]).all()
    assert told[:, 0].sum(axis=0).tolist() == [1, 1]
    buffer.free()


_NO_GRAPHICS = "of the graphics pipeline"
_NO_NAMES = "named barriers are not modelled"
REFUSED = {
    **GWS,
    "ds_ordered_count": ("v2, v3 gds", _NO_GRAPHICS),
    "ds_add_gs_reg_rtn": ("v[2:3], v4 gds", _NO_GRAPHICS),
    "ds_sub_gs_reg_rtn": ("v[2:3], v4 gds", _NO_GRAPHICS),
    "global_atomic_ordered_add_b64": ("v1, v[2:3], s[8:9]", "only the graphics pipeline has"),
    "s_get_barrier_state": ("s11, -1", "when the other waves arrive"),
    "s_barrier_init": ("m0", _NO_NAMES),
    "s_barrier_join": ("2", _NO_NAMES),
    "s_barrier_leave": ("", _NO_NAMES),
    "s_wakeup_barrier": ("2", _NO_NAMES),
}
_HERE = [name for name in REFUSED if RDNA and name in rows.names()]
KERNELS = Kernels({name: [f"{name} {REFUSED[name][0]}".strip()] for name in _HERE})


@pytest.mark.parametrize("name", _HERE)
def test_refused(name: str) -> None:
    """By name, with the reason."""
    text = KERNELS.finding(name)
    assert name in text
    assert REFUSED[name][1] in text
