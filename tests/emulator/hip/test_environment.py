# SPDX-License-Identifier: MIT OR Apache-2.0
"""The FMHA_EMU_* variables: what they set, and that a value that cannot be taken ends the process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ..support import hip, levels

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "software-device.md"
# Makes the device read every variable: a launch that faults.
SCRIPT = """
import ctypes as c, struct
from emulator.support import hip
from emulator.support.asm import Kernel, assemble
count, total = c.c_int(), c.c_size_t()
hip.call("hipGetDeviceCount", c.byref(count))
hip.call("hipDeviceTotalMem", c.byref(total), 0)
hip.lib().fmha_emu_isa_level.restype = c.c_char_p
body = ["s_nop 0"] * 20 + ["s_endpgm"]
m = hip.Module(assemble([Kernel("k", body, args=((0, 8, "global_buffer"),))]))
try:
    m.launch("k", struct.pack("<Q", 0))
    code = 0
except hip.HipError as e:
    code = e.code
print(count.value, total.value, hip.lib().fmha_emu_isa_level().decode(), code)
"""


FIRST_CALL = """
import ctypes as c
from emulator.support import hip
count = c.c_int()
hip.call("hipGetDeviceCount", c.byref(count))
print(count.value)
"""


def run(script: str = SCRIPT, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the script with only these variables."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("FMHA_EMU_")}
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=env | {"PYTHONPATH": str(ROOT / "tests")} | variables,
    )


def test_values() -> None:
    """Each is taken; an empty one is as good as none."""
    level = next(level for level in "234" if levels.is_built(level))
    done = run(
        FMHA_EMU_DEVICES="3",
        FMHA_EMU_MEMORY="1000000",
        FMHA_EMU_LEVEL=level,
        FMHA_EMU_THREADS="2",
        FMHA_EMU_MAX_INSTRUCTIONS="",
        FMHA_EMU_QUIET="",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3", "1000000", f"x86-64-v{level}", "0"]


@pytest.mark.parametrize("quiet", ["0", "1"])
def test_quiet(quiet: str) -> None:
    """A fault is on stderr unless that was refused; it is told to the caller either way."""
    done = run(FMHA_EMU_MAX_INSTRUCTIONS="10", FMHA_EMU_QUIET=quiet)
    assert done.stdout.split()[-1] == "702", done.stderr
    assert ("has run 10 instructions" in done.stderr) == (quiet == "0")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FMHA_EMU_ARCH", "gfx1010"),
        ("FMHA_EMU_BOUNDS", "4096"),
        ("FMHA_EMU_CARD", "MI308X"),
        ("FMHA_EMU_CHECKS", "-lds-races"),
        ("FMHA_EMU_DELAY", "1s"),
        ("FMHA_EMU_DEVICE_LOST", "never"),
        ("FMHA_EMU_DEVICES", "two"),
        ("FMHA_EMU_DEVICES", "0"),
        ("FMHA_EMU_DEVICES", "33"),
        ("FMHA_EMU_FAIL_ALLOC", "-1"),
        ("FMHA_EMU_FAIL_LAUNCH", "first"),
        ("FMHA_EMU_LEVEL", "1"),
        ("FMHA_EMU_LEVEL", "v3"),
        ("FMHA_EMU_MAX_INSTRUCTIONS", "1e6"),
        ("FMHA_EMU_MEMORY", "16G"),
        ("FMHA_EMU_MEMORY", "-1"),
        ("FMHA_EMU_ON_FAULT", "stop"),
        ("FMHA_EMU_QUIET", "yes"),
        ("FMHA_EMU_ROCM", "6"),
        ("FMHA_EMU_SCHEDULE", "random"),
        ("FMHA_EMU_SCHEDULE", "random:x"),
        ("FMHA_EMU_SCHEDULE", "random:99999999999999999999999"),
        ("FMHA_EMU_THREADS", " 4"),
        ("FMHA_EMU_THREADS", "99999999999999999999999"),
        ("FMHA_EMU_TRACK_INITIALIZED", "on"),
    ],
)
def test_refused(name: str, value: str) -> None:
    """The first call names the variable, what it may be and what it is, whatever would read it later."""
    done = run(FIRST_CALL, **{name: value})
    assert done.returncode == -signal.SIGABRT
    assert not done.stdout
    assert re.search(rf'{name} must be .*, got "{value}"\n', done.stderr), done.stderr


# Stores to and loads from 4 bytes at an offset into an allocation of 100 bytes, all of which was written.
OFFSETS = """
import struct, sys
import numpy as np
from emulator.support import hip
from emulator.support.asm import Kernel, assemble
body = [
    "s_load_dwordx2 s[8:9], s[0:1], 0x0", "v_mov_b32 v1, 0", "s_waitcnt lgkmcnt(0)",
    "global_load_dword v2, v1, s[8:9]", "s_waitcnt vmcnt(0)", "global_store_dword v1, v2, s[8:9]", "s_endpgm",
]
m = hip.Module(assemble([Kernel("k", body, args=((0, 8, "global_buffer"),))]))
for offset in map(int, sys.argv[1:]):
    out = hip.Buffer.of(np.zeros(25, np.uint32))
    try:
        m.launch("k", struct.pack("<Q", out.address + offset))
        print(0)
    except hip.HipError as e:
        hip.recover()
        print(e.code)
    out.free()
"""


@pytest.mark.parametrize("checks", ["all", "none"])
@pytest.mark.parametrize(
    ("bounds", "codes"),
    [("", [0, 700, 700, 700, 700]), ("byte", [0, 700, 700, 700, 700]), ("page", [0, 0, 0, 700, 700])],
)
def test_bounds(bounds: str, codes: list[int], checks: str) -> None:
    """The last element, the next, the last of the page, one that ends behind the page, and one behind it."""
    done = run(
        OFFSETS, "96", "100", "4092", "4094", "4096",
        FMHA_EMU_BOUNDS=bounds, FMHA_EMU_CHECKS=checks, FMHA_EMU_TRACK_INITIALIZED="1",
    )  # fmt: skip
    assert [int(code) for code in done.stdout.split()] == codes, done.stderr


def test_page_lists_them() -> None:
    """The table of the software device's page has every variable that the device reads, and no other."""
    sources = (ROOT / "native" / "emulator").rglob("*.cc")
    read = {name for path in sources for name in re.findall(r'"(FMHA_EMU_\w+)"', path.read_text())}
    listed = re.findall(r"^\| `(FMHA_EMU_\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(read) == sorted(listed)


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("0000:01:00.0", 0),
        ("0:1:0.0", 0),
        ("0000:02:00.0", None),
        ("0000:01:00", None),
        ("0000:01:00.0x", None),
        ("0000:01:00.1", None),
        ("", None),
        ("-0:1:0.0", None),
    ],
)
def test_pci_address(text: str, device: int | None) -> None:
    """The form that hipDeviceGetPCIBusId gives, and nothing behind it."""
    index = hip.c.c_int(-1)
    result = hip.lib().hipDeviceGetByPCIBusId(hip.c.byref(index), text.encode())
    hip.lib().hipGetLastError()
    assert (result, index.value) == ((0, device) if device is not None else (101, -1))


# CPU features that each level of x86-64 adds to the one below, as Linux names them.
LEVELS = (
    "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3",
    "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave",
    "avx512f avx512bw avx512cd avx512dq avx512vl",
)


def test_level_is_the_best_of_this_cpu() -> None:
    """Asked of CPUID; Linux's list leaves out what it does not save, too."""
    line = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags"))
    flags = set(line.split())
    level = 1
    while level < 4 and flags.issuperset(LEVELS[level - 1].split()):
        level += 1
    assert run().stdout.split()[2] == f"x86-64-v{level}"
