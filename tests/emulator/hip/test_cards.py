# SPDX-License-Identifier: MIT OR Apache-2.0
"""HIP describes a card that the device plays as ROCm's runtime describes the real one."""

from __future__ import annotations

import pytest
from inner import run_script

SCRIPT = """
import ctypes as c
from emulator.support import hip
from pyfa_rocm import devices
MULTIPROCESSORS, PHYSICAL, ECC, INTEGRATED = 63, 10015, 0, 16
def attribute(number):
    value = c.c_int(-1)
    hip.call("hipDeviceGetAttribute", c.byref(value), number, 0)
    return value.value
print(*map(attribute, (MULTIPROCESSORS, PHYSICAL, ECC, INTEGRATED)), devices()[0].compute_units)
"""


@pytest.mark.parametrize(
    ("arch", "multiprocessors", "integrated", "compute_units"),
    [
        ("gfx90a", 110, 0, 110),
        ("gfx942", 304, 0, 304),
        ("gfx950", 256, 0, 256),
        ("gfx1030", 40, 0, 80),
        ("gfx1036", 1, 1, 2),
        ("gfx1100", 48, 0, 96),
        ("gfx1151", 20, 1, 40),
        ("gfx1152", 4, 1, 8),
        ("gfx1153", 1, 1, 2),
        ("gfx1201", 32, 0, 64),
    ],
)
def test_multiprocessors(arch: str, multiprocessors: int, integrated: int, compute_units: int) -> None:
    """A Radeon's are pairs of compute units; no runtime reports ECC."""
    numbers = [multiprocessors, multiprocessors, 0, integrated, compute_units]
    assert list(map(int, run_script(SCRIPT, env={"FMHA_EMU_ARCH": arch}).split())) == numbers
