# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs tests and scripts in a process of their own, since a process plays one card."""

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


def run_script(script: str, *args: str, env: dict[str, str] | None = None) -> str:
    """Output of a Python script run in a new process, which must succeed; it imports what a test can."""
    tests = ROOT / "tests"
    done = subprocess.run(
        [sys.executable, "-c", script, *args], timeout=900,
        env=os.environ | {"PYTHONPATH": f"{tests}{os.pathsep}{tests / 'support'}"} | (env or {}),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
