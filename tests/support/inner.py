# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs tests and scripts in a process of their own, since a process plays one card."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import quick

ROOT = Path(__file__).resolve().parents[2]


def _output(arguments: list[str], environment: dict[str, str], timeout: int | None = None) -> str:
    """Return what Python prints, which must succeed."""
    done = subprocess.run(
        [sys.executable, *arguments], env=os.environ | environment, cwd=ROOT, timeout=timeout,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_as(arch: str, *arguments: str, **environment: str) -> str:
    """Run tests as an arch, by pytest's arguments, quick ones if this run is; return what pytest printed."""
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *quick.arguments()]
    return _output([*pytest, *arguments], {"FMHA_EMU_ARCH": arch} | environment)


def run_script(script: str, *args: str, env: dict[str, str] | None = None) -> str:
    """Run a script, which imports the package and what tests share; return what it printed."""
    paths = (ROOT, ROOT / "tests", ROOT / "tests" / "support")
    environment = {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    return _output(["-c", script, *args], environment | (env or {}), timeout=900)
