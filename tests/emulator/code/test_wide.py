# SPDX-License-Identifier: MIT OR Apache-2.0
"""Waves of 64 lanes on RDNA beside those of 32: one module has both.

The checks, the occupancy and the profile go by the kernel's.
"""

from __future__ import annotations

import ctypes as c
import os

import numpy as np
import pytest
from inner import run_as

from ..support import hip, profiles, rows
from ..support.asm import Kernel, assemble
from ..support.findings import ARGS, HEAD, Kernels
from ..support.spelling import GENERATION

ARCHS = ("gfx1030", "gfx1100", "gfx1150", "gfx1201")
inner = pytest.mark.skipif("FMHA_TEST_LANES" not in os.environ, reason="run by test_archs")
WIDTHS = pytest.mark.parametrize("lanes", [32, 64])


@pytest.mark.skipif(bool(os.environ.get("FMHA_EMU_ARCH")), reason="already the inner run")
@pytest.mark.parametrize("arch", ARCHS)
def test_archs(arch: str) -> None:
    """Run the other tests as each arch: a process has one."""
    assert " passed" in run_as(arch, __file__, FMHA_TEST_LANES="64")


# The same words: a lane's number in its wave, and how many of its lanes are on.
_SAME = [
    *HEAD,
    "v_mbcnt_lo_u32_b32 v2, -1, 0",
    "v_mbcnt_hi_u32_b32 v2, -1, v2",
    "s_bcnt1_i32_b64 s11, exec",
    "v_lshl_or_b32 v2, s11, 16, v2",
    "global_store_dword v1, v2, s[8:9]",
    "s_endpgm",
]


def _both() -> hip.Module:
    return hip.Module(assemble([Kernel(f"w{n}", _SAME, args=ARGS, lanes=n) for n in (32, 64)]))


@inner
def test_both_in_one_module() -> None:
    """A workgroup of 96 is three waves of 32, or two of 64, of which one is half empty."""
    module = _both()
    buffer = hip.Buffer.of(np.zeros(96, np.uint32))
    thread = np.arange(96)
    for lanes in (64, 32, 64):
        module.launch(f"w{lanes}", buffer.address.to_bytes(8, "little"), block=(96, 1, 1))
        on = np.minimum(96 - thread // lanes * lanes, lanes)
        np.testing.assert_array_equal(buffer.read(np.uint32), on << 16 | thread % lanes)
    buffer.free()


@inner
def test_the_device_has_waves_of_32() -> None:
    """warpSize is that of a kernel which does not say otherwise."""
    value = c.c_int()
    warp_size = 87
    hip.call("hipDeviceGetAttribute", c.byref(value), c.c_int(warp_size), c.c_int(0))
    assert value.value == 32


@inner
def test_occupancy() -> None:
    """256 registers, in a file that holds half as many of 64 lanes, and is given out by half as many."""
    module = _both()
    found = {}
    for lanes in (32, 64):
        count = c.c_int()
        name = "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor"
        hip.call(name, c.byref(count), module.function(f"w{lanes}"), c.c_int(64), c.c_size_t(0))
        found[lanes] = count.value
    file, granule = (1024, 16) if rows.arch() in ("gfx1030", "gfx1150") else (1536, 24)
    registers = -(-256 // granule) * granule
    # Waves of two SIMDs: a workgroup of 64 takes two of 32.
    assert found[32] == 2 * (file // registers) // 2
    registers = -(-256 // (granule // 2)) * (granule // 2)
    assert found[64] == 2 * (file // 2 // registers)


@inner
@WIDTHS
def test_profile(lanes: int) -> None:
    """Waves and instructions of a launch, and the registers of the model."""
    module = _both()
    buffer = hip.Buffer.of(np.zeros(128, np.uint32))
    hip.call("fmha_emu_profile_enable", c.c_int(1))
    module.launch(f"w{lanes}", buffer.address.to_bytes(8, "little"), block=(128, 1, 1))
    hip.call("hipDeviceSynchronize")
    (record,) = profiles.text("fmha_emu_profile")
    hip.call("fmha_emu_profile_enable", c.c_int(0))
    assert record["counted"]["waves"] == 128 // lanes
    granule = (16 if rows.arch() in ("gfx1030", "gfx1150") else 24) * 32 // lanes
    assert record["modelled"]["occupancy"]["vgprs"] == -(-256 // granule) * granule
    buffer.free()


@inner
@WIDTHS
def test_races_go_by_the_wave(lanes: int) -> None:
    """Two of 64 threads write each dword of LDS: two waves of 32, or one instruction of a wave of 64."""
    body = ["v_and_b32 v3, 0x7f, v1", "ds_write_b32 v3, v1"]
    kernels = Kernels({"twice": body}, lds=1024, lanes=lanes)
    if lanes == 32:
        assert "LDS race" in kernels.finding("twice")
    else:
        kernels.run("twice")
        assert "LDS race" in kernels.finding("twice", waves=2)


@inner
@WIDTHS
def test_missing_waits(lanes: int) -> None:
    wait = "s_wait_loadcnt 0x0" if GENERATION == 12 else "s_waitcnt vmcnt(0)"
    load, use = "global_load_dword v8, v1, s[8:9]", "v_mov_b32 v9, v8"
    kernels = Kernels({"late": [load, use], "waited": [load, wait, use]}, lanes=lanes)
    assert "missing wait: reads v8" in kernels.finding("late")
    kernels.run("waited")
