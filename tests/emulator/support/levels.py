# SPDX-License-Identifier: MIT OR Apache-2.0
"""The software device's code for older CPUs: a wheel has it, a build in this tree usually has not."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache

import pytest

from .toolchain import ROOT

_ASK = "from emulator.support import hip; hip.lib().fmha_emu_isa_level()"


@cache
def is_built(level: str) -> bool:
    """Return whether the tested device has a copy for this level of x86-64 or an older one."""
    environment = os.environ | {"FMHA_EMU_LEVEL": level, "PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run([sys.executable, "-c", _ASK], env=environment, capture_output=True, check=False)
    return done.returncode == 0


def require(level: str) -> None:
    """Skip a test of a level that was not built; test_wheel.py runs it on a wheel's device."""
    if not is_built(level):
        pytest.skip(f"built without x86-64-v{level}: `make test-adapters` runs it on a wheel's device")
