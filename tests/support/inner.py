# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs tests in a process of their own, since a process plays one card."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run_as(arch: str, *arguments: str, **environment: str) -> str:
    """Run tests as an arch, by pytest's arguments; return what pytest printed."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        env=os.environ | {"FMHA_EMU_ARCH": arch} | environment, cwd=ROOT,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
