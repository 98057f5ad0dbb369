# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs tests in a process of their own, since a process plays one arch."""

from __future__ import annotations

import os
import subprocess
import sys

from .toolchain import ROOT


def run_as(arch: str, tests: str, *options: str, **environment: str) -> str:
    """Run tests, by pytest's name of a file or a test, as an arch; return what pytest printed."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, tests],
        env=os.environ | {"FMHA_EMU_ARCH": arch} | environment, cwd=ROOT,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
