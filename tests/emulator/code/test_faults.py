# SPDX-License-Identifier: MIT OR Apache-2.0
"""Launches that stop: the device says why, and never guesses or stays silent.

test_archs runs this file again as archs of RDNA.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache

import numpy as np
import pytest
from inner import run_as, run_script

from ..support import hip, rows
from ..support.asm import LANES, Kernel, assemble, legal
from ..support.profiles import text
from ..support.spelling import RDNA, spell
from ..support.timing import clock

RDNA_ARCHS = ("gfx1030", "gfx1100", "gfx1150", "gfx1201")
_TIMED = ("gfx942", "gfx1100", "gfx1201")  # of the archs here
_LANE = 37 % LANES  # that the 37th work-item has in its wave
_ARGS = ((0, 8, "global_buffer"),)
_HEAD = ["s_load_dwordx2 s[8:9], s[0:1], 0x0", "v_lshlrev_b32 v1, 2, v0", "s_waitcnt lgkmcnt(0)"]
_BODIES: dict[str, list[str]] = {
    "undefined_word": [".long 0x7E00FE00"],
    "ones": [".long 0xffffffff"],
    "not_in_table": [".long 0xec000000, 0x12345678"],
    "load": ["global_load_dword v2, v1, s[8:9]"],
    "load_high_lane": [
        f"v_cmp_eq_u32 vcc, {_LANE}, v0",
        "v_mov_b32 v3, 0x100000",
        "s_nop 0",
        "v_cndmask_b32 v1, v1, v3, vcc",
        "global_load_dword v2, v1, s[8:9]",
    ],
    "store": ["global_store_dword v1, v1, s[8:9]"],
    "atomic": ["global_atomic_add v1, v1, s[8:9]"],
    "flat": ["v_mov_b32 v2, s8", "v_mov_b32 v3, s9", "flat_load_dword v4, v[2:3]"],
    "scalar": ["s_load_dword s10, s[8:9], 0x0"],
    "straddle": ["v_mov_b32 v1, 62", "global_load_dword v2, v1, s[8:9]"],
    "masked": ["s_mov_b64 exec, 0xff", "global_load_dword v2, v1, s[8:9]"],
    "lds": ["v_mov_b32 v2, 0x1fe", "ds_write_b32 v2, v2"],
    "lds_read": ["v_mov_b32 v2, 0x10000", "ds_read_b128 v[4:7], v2"],
    "private": ["scratch_store_dword v1, v1, off offset:2044"],
    "jump_out": ["s_branch 0x7000"],
    "trap": ["s_trap 2"],
    "buffer": [
        "s_mov_b32 s4, s8",
        "s_mov_b32 s5, s9",
        "s_mov_b32 s6, 0x10000",
        f"s_mov_b32 s7, {0x30000000 if RDNA else 0x20000:#x}",
        "buffer_load_dword v2, v1, s[4:7], 0 offen offset:2048",
    ],
}


# DPP's controls that only CDNA has, or only RDNA: of v_mov_b32 v2, v1.
_OTHERS_CONTROLS = (0x130, 0x134, 0x138, 0x13C, 0x142, 0x143) if RDNA else (0x160, 0x16F)
_BODIES |= {f"dpp_{x:x}": [f".long 0x7e0402fa, {0xFF000001 | x << 8:#x}"] for x in _OTHERS_CONTROLS}

# LLVM knows these on some archs; the device has no row for them.
_GRAPHICS = {
    "lds_direct": "lds_direct_load v2",
    "ds_direct": "ds_direct_load v2",
    "image": "image_load v[4:7], v2, s[16:23] dmask:0xf dim:SQ_RSRC_IMG_1D",
}


def graphics() -> dict[str, list[str]]:
    """Graphics instructions that this process's arch has."""
    good = legal(list(_GRAPHICS.values())) if RDNA else [False] * len(_GRAPHICS)
    return {name: [line] for (name, line), ok in zip(_GRAPHICS.items(), good, strict=True) if ok}


def _kernel(name: str, body: Sequence[str]) -> Kernel:
    lines = [line for part in (*_HEAD, *body) for line in spell(part)]
    return Kernel(f"bad_{name}", lines, args=_ARGS, lds=512, scratch=16)


@cache
def module() -> hip.Module:
    """A kernel a fault; the last has no end."""
    end = ("s_waitcnt vmcnt(0)", "s_endpgm")
    kernels = [_kernel(name, (*body, *end)) for name, body in (_BODIES | graphics()).items()]
    return hip.Module(assemble([*kernels, _kernel("endless", ("s_nop 0",))]))


def fault(name: str, address: int) -> hip.HipError:
    """The error of a launch that must fail."""
    with pytest.raises(hip.HipError) as caught:
        module().launch(f"bad_{name}", struct.pack("<Q", address), block=(LANES, 1, 1))
    assert f"bad_{name}" in caught.value.fault, caught.value.fault
    assert re.search(r"\bpc\b", caught.value.fault), caught.value.fault
    return caught.value


@pytest.mark.parametrize(
    ("name", "words"),
    [("undefined_word", "7e00fe00"), ("ones", "ffffffff"), ("not_in_table", "ec000000 0x12345678")],
)
def test_unknown_instruction(name: str, words: str) -> None:
    """The words, the place and the kernel are named; an instruction beside the fault runs first."""
    error = fault(name, hip.Buffer(256).address)
    assert "unknown instruction" in error.fault
    assert words in error.fault.lower()


@pytest.mark.parametrize("control", _OTHERS_CONTROLS)
def test_controls_of_other_archs(control: int) -> None:
    """A card of this arch moves lanes in no way that a manual tells."""
    assert "dpp_ctrl" in fault(f"dpp_{control:x}", hip.Buffer(256).address).fault


@pytest.mark.parametrize("name", graphics())
def test_graphics(name: str) -> None:
    """Instructions of graphics stop the launch, which prints their words."""
    assert re.search("unknown instruction 0x[0-9a-f]{8} 0x[0-9a-f]{8}", fault(name, 0).fault)


def test_the_end_of_the_code() -> None:
    """A kernel without an end runs into the end of all code."""
    assert "ran past the end of the code" in fault("endless", 0).fault


def _counted(name: str) -> int:
    """The instructions that the profile counts until the fault, with the clock where the arch has one."""
    hip.lib().fmha_emu_profile_enable(1)
    try:
        with clock({}) if rows.arch() in _TIMED else nullcontext():
            fault(name, 0)
    finally:
        hip.lib().fmha_emu_profile_enable(0)
    (record,) = text("fmha_emu_profile")
    return int(record["counted"]["instructions"]["total"])


def test_a_profile_of_no_instruction() -> None:
    """Bytes that are no instruction are not counted: `endless` has one instruction more."""
    assert _counted("ones") == _counted("endless") - 1


@pytest.mark.parametrize("name", ["load", "store", "atomic", "flat", "scalar"])
def test_address_outside(name: str) -> None:
    """One past the end of an allocation: error 700 with the address, and the allocation it is near."""
    buffer = hip.Buffer(256)
    error = fault(name, buffer.address + 256 + 4096 * 16)
    assert error.code == 700
    assert f"{buffer.address + 256 + 4096 * 16:x}" in error.fault.lower()
    buffer.free()


def test_lane_and_nearest_allocation() -> None:
    """The lane at fault, and how far from which allocation."""
    buffer = hip.Buffer(256)
    error = fault("load_high_lane", buffer.address)
    assert re.search(rf"lane {_LANE}\b", error.fault), error.fault
    assert f"{buffer.address + 0x100000:x}" in error.fault.lower()
    assert "past the end" in error.fault or "before" in error.fault
    buffer.free()


def test_straddling_the_end() -> None:
    """Two of the four bytes are inside: still an error, which names this allocation."""
    buffer = hip.Buffer(64)
    error = fault("straddle", buffer.address)
    assert f"{buffer.address:x}" in error.fault.lower()
    buffer.free()


def test_lanes_that_are_off_do_not_fault() -> None:
    """Eight lanes on, room for eight."""
    buffer = hip.Buffer(32)
    module().launch("bad_masked", struct.pack("<Q", buffer.address), block=(LANES, 1, 1))
    buffer.free()


def test_buffer_resource_larger_than_memory() -> None:
    """A descriptor's range check does not hide an access outside the allocation."""
    buffer = hip.Buffer(256)
    assert fault("buffer", buffer.address).code == 700
    buffer.free()


def test_freed_memory() -> None:
    """Memory given back is outside."""
    buffer = hip.Buffer(4096)
    buffer.free()
    assert fault("load", buffer.address).code == 700


def test_host_pointer() -> None:
    """A host pointer that nobody registered is outside, though the process could read it."""
    host = np.zeros(64, np.uint32)
    assert fault("load", host.ctypes.data).code == 700


def test_null() -> None:
    """A null pointer is outside."""
    assert fault("load", 0).code == 700


@pytest.mark.parametrize("name", ["lds", "lds_read"])
def test_lds_range(name: str) -> None:
    """LDS beyond the workgroup's 512 bytes."""
    assert "512" in fault(name, hip.Buffer(256).address).fault


@pytest.mark.parametrize("name", ["private", "jump_out", "trap"])
def test_other_stops(name: str) -> None:
    """Private memory out of range, a jump out of the text, a trap."""
    fault(name, hip.Buffer(256).address)


def test_the_device_lives_on() -> None:
    """After a fault the next launch works."""
    buffer = hip.Buffer(256)
    fault("load", 0)
    module().launch("bad_load", struct.pack("<Q", buffer.address))
    buffer.free()


@pytest.mark.skipif(bool(os.environ.get("FMHA_EMU_ARCH")), reason="already the inner run")
@pytest.mark.parametrize("arch", RDNA_ARCHS)
def test_archs(arch: str) -> None:
    """The same as each arch of RDNA: a process has one."""
    assert " passed" in run_as(arch, __file__, "-p", "no:xdist", "-k", "not test_bad_code_objects")


def test_endless_loop() -> None:
    """A budget of instructions ends it."""
    script = """
import struct
from emulator.support import hip
from emulator.support.asm import Kernel, assemble
m = hip.Module(assemble([Kernel("endless", ["s_branch -1"], args=((0, 8, "global_buffer"),))]))
try:
    m.launch("endless", struct.pack("<Q", 0))
except hip.HipError as e:
    assert "endless" in e.fault and "FMHA_EMU_MAX_INSTRUCTIONS" in e.fault, e.fault
    print("stopped", e.code)
"""
    assert "stopped" in run_script(script, env={"FMHA_EMU_MAX_INSTRUCTIONS": "100000"})


def corrupt(image: bytes, at: int, value: Sequence[int]) -> bytes:
    """`image` with bytes replaced."""
    return image[:at] + bytes(value) + image[at + len(value) :]


def test_bad_code_objects() -> None:
    """An image that is not a code object of this arch is refused with a message."""
    good = assemble([Kernel("k", ["s_endpgm"], args=_ARGS)])
    # The machine number in e_flags, at 48: gfx90a's in place of gfx942's, or the reverse.
    other = corrupt(good, 48, [0x3F if rows.arch() == "gfx942" else 0x4C])
    hip.Module(good).unload()
    for image in (b"\x7fELF" + b"\0" * 200, corrupt(good, 18, [62, 0]), other, b"\0" * 64):
        with pytest.raises(hip.HipError):
            hip.Module(image)


def test_missing_kernel() -> None:
    """hipModuleGetFunction: error 500."""
    with pytest.raises(hip.HipError) as caught:
        module().function("nothing")
    assert caught.value.code == 500
