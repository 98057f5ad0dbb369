# SPDX-License-Identifier: MIT OR Apache-2.0
"""Checks of global memory: each defect is caught and named, and its repaired twin passes."""

from __future__ import annotations

import ctypes as c
import re
import struct
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from inner import run_script

from ..support import hip
from ..support.asm import RETURN, SCOPE, Kernel, assemble

# A is in s[8:9], a number in s10, that of the workgroup in s14; v1 is 4 times the lane, v2 that over a grid
# of workgroups of one wave each.
_ARGS = ((0, 8, "global_buffer"), (8, 4, "by_value"))
_HEAD = [
    "s_mov_b32 s14, s2",
    "s_load_dwordx4 s[8:11], s[0:1], 0x0",
    "v_lshlrev_b32 v1, 2, v0",
    "s_lshl_b32 s15, s14, 8",
    "v_add_u32 v2, s15, v1",
    "v_mov_b32 v3, 7",
    "s_waitcnt lgkmcnt(0)",
]
_TAIL = ["s_waitcnt vmcnt(0) lgkmcnt(0)", "s_endpgm"]
_RESOURCE = ["s_mov_b32 s4, s8", "s_mov_b32 s5, s9", "s_mov_b32 s6, 0x10000", "s_mov_b32 s7, 0x20000"]
_WAIT = "s_waitcnt vmcnt(0)"

_BODIES: dict[str, list[str]] = {
    "load": ["global_load_dword v4, v1, s[8:9]"],
    "load_x4": ["v_lshlrev_b32 v1, 4, v0", "global_load_dwordx4 v[4:7], v1, s[8:9]"],
    "load_byte": ["global_load_ubyte v4, v0, s[8:9]"],
    "load_flat": ["v_mov_b32 v5, s9", "v_add_co_u32 v4, vcc, s8, v1", "flat_load_dword v6, v[4:5]"],
    "load_buffer": [*_RESOURCE, "buffer_load_dword v4, v1, s[4:7], 0 offen"],
    "load_far": [*_RESOURCE, "s_mov_b32 s6, -1", "buffer_load_dword v4, v1, s[4:7], s10 offen"],
    "load_far_scalar": [*_RESOURCE, "s_mov_b32 s6, -1", "s_buffer_load_dword s20, s[4:7], s10"],
    "load_lds": [*_RESOURCE, "s_mov_b32 m0, 0", "s_nop 0", "buffer_load_dword v1, s[4:7], 0 offen lds"],
    "load_scalar": ["s_load_dwordx4 s[20:23], s[8:9], 0x10"],
    "load_scalar_buffer": [*_RESOURCE, "s_buffer_load_dwordx2 s[20:21], s[4:7], 0x10"],
    "atomic": ["global_atomic_add v1, v3, s[8:9]"],
    "store": ["global_store_dword v1, v3, s[8:9]"],
    "store_flat": ["v_mov_b32 v5, s9", "v_add_co_u32 v4, vcc, s8, v1", "flat_store_dword v[4:5], v3"],
    "store_buffer": [*_RESOURCE, "buffer_store_dword v3, v1, s[4:7], 0 offen"],
    "store_own": ["global_store_dword v2, v3, s[8:9]"],
    "store_short": ["s_lshl_b32 s15, s14, 1", "v_mov_b32 v1, s15", "global_store_short v1, v3, s[8:9]"],
    "store_byte": ["v_mov_b32 v1, s14", "global_store_byte v1, v3, s[8:9]"],
    "store_overlap": ["s_lshl_b32 s15, s14, 1", "v_mov_b32 v1, s15", "global_store_dword v1, v3, s[8:9]"],
    # Every workgroup stores its own part of A and loads that of workgroup 0, or of the next.
    "load_other": ["global_store_dword v2, v3, s[8:9]", _WAIT, "global_load_dword v4, v1, s[8:9]"],
    "load_other_scope": [
        "global_store_dword v2, v3, s[8:9]",
        _WAIT,
        "global_load_dword v4, v1, s[8:9] " + SCOPE,
    ],
    "load_own": ["global_store_dword v2, v3, s[8:9]", _WAIT, "global_load_dword v4, v2, s[8:9]"],
    "load_next": ["global_load_dword v4, v2, s[8:9] offset:256", _WAIT, "global_store_dword v2, v3, s[8:9]"],
    "store_ordered": [
        "global_atomic_add v4, v1, v3, s[8:9] offset:2048 " + RETURN,
        _WAIT,
        "global_load_dword v4, v1, s[8:9]",
        "global_store_dword v1, v3, s[8:9]",
    ],
    "store_own_loaded": ["global_load_dword v4, v2, s[8:9]", _WAIT, "global_store_dword v2, v3, s[8:9]"],
    "own_byte": [
        "v_mov_b32 v1, s14",
        "global_load_ubyte v4, v1, s[8:9]",
        _WAIT,
        "global_store_byte v1, v3, s[8:9]",
    ],
    "own_short": [
        "s_lshl_b32 s15, s14, 1",
        "v_mov_b32 v1, s15",
        "global_load_ushort v4, v1, s[8:9]",
        _WAIT,
        "global_store_short v1, v3, s[8:9]",
    ],
    "masked": ["s_mov_b64 exec, 0xff", "global_load_dword v4, v1, s[8:9]"],
}


@cache
def module() -> hip.Module:
    """All kernels."""
    kernels = [Kernel(f"k_{n}", [*_HEAD, *body, *_TAIL], args=_ARGS, lds=1024) for n, body in _BODIES.items()]
    return hip.Module(assemble(kernels))


def launch(name: str, a: int, groups: int = 1, number: int = 0) -> None:
    """Run a kernel."""
    module().launch(f"k_{name}", struct.pack("<QQ", a, number), (groups, 1, 1))


def finding(name: str, *words: str, code: int = 719, a: int, groups: int = 1, number: int = 0) -> str:
    """Return the message of a launch that must fail: kernel, workgroup, wave, lane, pc and instruction."""
    with pytest.raises(hip.HipError) as caught:
        launch(name, a, groups, number)
    text = caught.value.fault
    assert caught.value.code == code, text
    for pattern in (rf"kernel k_{name}\b", r"workgroup \(\d+, 0, 0\)", r"wave 0\b", r"pc 0x", "`.*`", *words):
        assert re.search(pattern, text), f"{pattern}: {text}"
    return text


def track(p: int, nbytes: int) -> None:
    """Nobody has written these bytes."""
    hip.call("fmha_emu_track_initialized", c.c_void_p(p), c.c_size_t(nbytes))


@pytest.fixture
def buffer() -> Iterator[hip.Buffer]:
    """4 KiB that hold zeros."""
    b = hip.Buffer.of(np.zeros(1024, np.uint32))
    yield b
    b.free()


def test_use_after_free() -> None:
    """Memory given back is named as such, for a kernel and for a copy."""
    b = hip.Buffer.of(np.zeros(1024, np.uint32))
    launch("load", b.address)
    b.free()
    finding("load", "use after free", f"freed: 8 bytes into {b.address:#x}", a=b.address + 8, code=700)
    others = [hip.Buffer(4096) for _ in range(8)]  # its address is not given out again
    assert b.address not in [o.address for o in others]
    with pytest.raises(hip.HipError):
        b.write(np.zeros(4, np.uint32))
    for o in others:
        o.free()


LOADS = [f"load_{kind}" for kind in ("x4", "byte", "flat", "buffer", "lds", "scalar", "scalar_buffer")]


@pytest.mark.parametrize("name", ["load", "atomic", *LOADS])
def test_unwritten(buffer: hip.Buffer, name: str) -> None:
    """A load of bytes nobody wrote, by every class of instruction; memset is the repair."""
    launch(name, buffer.address)
    track(buffer.address, buffer.nbytes)
    text = finding(name, "nobody has written", f"into {buffer.address:#x}", a=buffer.address)
    assert "lane -1" in text if "scalar" in name else "lane 0" in text
    hip.call("hipMemset", c.c_void_p(buffer.address), c.c_int(0), c.c_size_t(buffer.nbytes))
    launch(name, buffer.address)


@pytest.mark.parametrize(
    ("name", "at", "lane"), [("load", 150, 37), ("load_x4", 1023, 63), ("load_byte", 5, 5)]
)
def test_one_unwritten_byte(buffer: hip.Buffer, name: str, at: int, lane: int) -> None:
    """The lane and the byte are named; marking the byte is the repair."""
    track(buffer.address + at, 1)
    finding(name, rf"lane {lane}\b", rf"reads {buffer.address + at:#x},", a=buffer.address)
    hip.call("fmha_emu_mark_initialized", c.c_void_p(buffer.address + at), c.c_size_t(1))
    launch(name, buffer.address)


def test_lanes_that_are_off_read_nothing(buffer: hip.Buffer) -> None:
    """Eight lanes on, eight dwords written."""
    track(buffer.address, buffer.nbytes)
    buffer.write(np.zeros(8, np.uint32))
    launch("masked", buffer.address)


@pytest.mark.parametrize("name", ["store", "store_flat", "store_buffer"])
def test_stores_initialize(buffer: hip.Buffer, name: str) -> None:
    """A kernel may load what the kernel before it stored, and nothing else."""
    track(buffer.address, buffer.nbytes)
    launch(name, buffer.address)
    launch("load", buffer.address)
    finding("load", r"lane 63\b", a=buffer.address + 4)
    assert first_unwritten(buffer.address, buffer.nbytes) == 256


def first_unwritten(p: int, nbytes: int) -> int:
    """Offset of the first byte nobody wrote."""
    out = c.c_size_t()
    hip.call("fmha_emu_first_uninitialized", c.c_void_p(p), c.c_size_t(nbytes), c.byref(out))
    return out.value


def test_copies_carry_the_mark(buffer: hip.Buffer) -> None:
    """Device to device, unwritten bytes stay unwritten; from the host they become written."""
    other = hip.Buffer(buffer.nbytes)
    track(buffer.address, buffer.nbytes)
    track(other.address, other.nbytes)
    buffer.write(np.zeros(10, np.uint32))
    hip.call("hipMemcpy", *map(c.c_void_p, (other.address, buffer.address)), c.c_size_t(4096), c.c_int(3))
    hip.call("hipDeviceSynchronize")  # a copy within the device does not wait
    assert first_unwritten(other.address, other.nbytes) == 40
    assert first_unwritten(other.address, 40) == 40
    other.write(np.zeros(1024, np.uint32))
    assert first_unwritten(other.address, other.nbytes) == 4096
    other.free()


def read_only(p: int, nbytes: int) -> None:
    """This thread's launches may not write these bytes."""
    hip.call("fmha_emu_declare_read_only", c.c_void_p(p), c.c_size_t(nbytes))


@pytest.mark.parametrize("name", ["store", "store_flat", "store_buffer", "atomic"])
def test_read_only(buffer: hip.Buffer, name: str) -> None:
    """Writing what the launch declared an input, by every class of instruction; loading it is no finding."""
    try:
        read_only(buffer.address + 100, 2)
        launch("load", buffer.address)
        finding(name, r"lane 25\b", "read-only", rf"writes {buffer.address + 100:#x},", a=buffer.address)
        launch(name, buffer.address + 256)
    finally:
        hip.call("fmha_emu_end_read_only")
    launch(name, buffer.address)


def test_ranges_outside_memory_are_refused(buffer: hip.Buffer) -> None:
    """A range that leaves its allocation is an error of the caller."""
    for call in ("fmha_emu_track_initialized", "fmha_emu_mark_initialized", "fmha_emu_declare_read_only"):
        with pytest.raises(hip.HipError) as caught:
            hip.call(call, c.c_void_p(buffer.address + 1), c.c_size_t(buffer.nbytes))
        assert caught.value.code == 1


@pytest.mark.parametrize("name", ["store", "store_flat", "store_buffer", "store_overlap"])
def test_two_workgroups_store(buffer: hip.Buffer, name: str) -> None:
    """The same bytes, or some of them; a single workgroup may."""
    launch(name, buffer.address)
    text = finding(name, r"workgroup \(\d+, 0, 0\) stored in this launch too", a=buffer.address, groups=2)
    assert f"into {buffer.address:#x}" in text


@pytest.mark.parametrize(
    "name", ["store_own", "store_short", "store_byte", "own_byte", "own_short", "atomic"]
)
def test_no_race(buffer: hip.Buffer, name: str) -> None:
    """Neighbouring bytes, down to single ones, are no conflict; nor are atomics."""
    launch(name, buffer.address, groups=8)
    launch(name, buffer.address, groups=8)  # nor what another launch stored


def test_load_of_what_another_workgroup_stored(buffer: hip.Buffer) -> None:
    """A result that depends on the order of workgroups; device scope says that it is meant."""
    finding("load_other", "nothing orders the two", a=buffer.address, groups=4)
    launch("load_own", buffer.address, groups=4)
    launch("load_other_scope", buffer.address, groups=4)


def test_store_to_what_another_workgroup_loaded(buffer: hip.Buffer) -> None:
    """The same race when the load ran first, as it does on one thread."""
    launch("load_next", buffer.address)
    launch("store_own_loaded", buffer.address, groups=4)
    script = """
from emulator.support import hip
import numpy as np
from emulator.check.test_check_global import finding
b = hip.Buffer.of(np.zeros(1024, np.uint32))
print(finding("load_next", r"workgroup \\(1, 0, 0\\)", "another workgroup loaded", a=b.address, groups=4))
"""
    assert "nothing orders the two" in run_script(script, env={"FMHA_EMU_THREADS": "1"})


def test_atomics_order_workgroups(buffer: hip.Buffer) -> None:
    """An atomic that returns a value orders what its workgroup does after it."""
    launch("store_ordered", buffer.address, groups=4)


@pytest.mark.parametrize("name", ["load_far", "load_far_scalar"])
def test_resource_that_reaches_another_allocation(name: str) -> None:
    """A buffer access that leaves the allocation its resource starts in, and lands in another."""
    first, second = (hip.Buffer.of(np.zeros(1024, np.uint32)) for _ in range(2))
    low, high = sorted((first.address, second.address))
    finding(name, f"into {low:#x}", f"into {high:#x}", a=low, number=high - low, code=700)
    launch(name, low, number=16)
    for buffer in (first, second):
        buffer.free()


@pytest.mark.parametrize("name", ["load_scalar", "load_scalar_buffer"])
def test_misaligned_scalar_load(buffer: hip.Buffer, name: str) -> None:
    """The hardware would drop the low bits."""
    finding(name, "not a multiple of 4", a=buffer.address + 2, code=716)
    launch(name, buffer.address + 4)


def test_misaligned_atomic(buffer: hip.Buffer) -> None:
    """A fault on the hardware; loads and stores at any byte are none."""
    finding("atomic", "lane 0", "not a multiple of 4", a=buffer.address + 2, code=716)
    launch("atomic", buffer.address + 4)
    for name in ("load", "load_x4", "load_flat", "load_buffer", "store", "store_flat", "store_buffer"):
        launch(name, buffer.address + 1)


@pytest.mark.parametrize(
    ("check", "name", "groups"),
    [("global-unwritten", "load", 1), ("read-only", "store", 1), ("global-race", "store", 2)],
)
def test_off_by_name(
    buffer: hip.Buffer, monkeypatch: pytest.MonkeyPatch, check: str, name: str, groups: int
) -> None:
    """Each check can be turned off without the others."""
    try:
        if check == "global-unwritten":
            track(buffer.address, 256)
        elif check == "read-only":
            read_only(buffer.address, 4)
        monkeypatch.setenv("FMHA_EMU_CHECKS", f"none,{check}")
        finding(name, a=buffer.address, groups=groups)
        monkeypatch.setenv("FMHA_EMU_CHECKS", f"-{check}")
        launch(name, buffer.address, groups=groups)
    finally:
        hip.call("fmha_emu_end_read_only")


def test_unchecked_stores_initialize(buffer: hip.Buffer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch without checks still tells the next ones what it wrote."""
    track(buffer.address, buffer.nbytes)
    monkeypatch.setenv("FMHA_EMU_CHECKS", "none")
    launch("load", buffer.address)
    launch("store", buffer.address)
    monkeypatch.delenv("FMHA_EMU_CHECKS")
    launch("load", buffer.address)


def test_all_memory_tracked() -> None:
    """FMHA_EMU_TRACK_INITIALIZED: device memory counts as unwritten from the start.

    Memory that the CPU can write does not, nor does a copy of it.
    """
    script = """
import ctypes as c
from emulator.support import hip
import numpy as np
from emulator.check.test_check_global import finding, launch
b = hip.Buffer(4096)
finding("load", "nobody has written", a=b.address)
b.write(np.zeros(1024, np.uint32))
launch("load", b.address)
copy, pointer = hip.Buffer(4096), c.c_void_p()
for allocate in ("hipHostMalloc", "hipMallocManaged"):
    hip.call(allocate, c.byref(pointer), c.c_size_t(4096), c.c_uint(1))
    c.memset(pointer, 0, 4096)
    launch("load", pointer.value)
    hip.call("hipMemcpy", c.c_void_p(copy.address), pointer, c.c_size_t(4096), c.c_int(4))
    launch("load", copy.address)
print("ok")
"""
    assert "ok" in run_script(script, env={"FMHA_EMU_TRACK_INITIALIZED": "1"})


_INJECTED = """
import ctypes as c
import numpy as np
from emulator.support import hip
from emulator.check.test_check_global import launch

def code(f, *args, **kwargs):
    try:
        f(*args, **kwargs)
    except hip.HipError as e:
        return e.code
    return 0
"""


def test_allocation_failure() -> None:
    """The nth allocation fails, the others do not."""
    script = _INJECTED + "print([code(hip.Buffer, 64) for _ in range(4)])"
    assert "[0, 0, 2, 0]" in run_script(script, env={"FMHA_EMU_FAIL_ALLOC": "3"})


def test_launch_failure() -> None:
    """The nth launch is refused; the next works, and nothing of the refused one ran."""
    script = """
b = hip.Buffer.of(np.zeros(64, np.uint32))
print([code(launch, "atomic", b.address) for _ in range(4)], b.read()[0])
"""
    assert "[0, 701, 0, 0] 21" in run_script(_INJECTED + script, env={"FMHA_EMU_FAIL_LAUNCH": "2"})


def test_device_lost() -> None:
    """Everything fails from the nth launch on, until the device is reset."""
    script = """
b = hip.Buffer.of(np.zeros(64, np.uint32))
print([code(launch, "atomic", b.address) for _ in range(3)])
print(code(hip.call, "hipDeviceSynchronize"), code(b.read), code(hip.Buffer, 64))
hip.call("hipDeviceReset")
b = hip.Buffer.of(np.zeros(64, np.uint32))
print(code(launch, "atomic", b.address), b.read()[0])
"""
    out = run_script(_INJECTED + script, env={"FMHA_EMU_DEVICE_LOST": "2"}).split("\n")
    assert out[:3] == ["[0, 719, 719]", "719 719 719", "0 7"]
