# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs the programs of examples/python with the pyfa_rocm under test: a checkout's, or an installed one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyfa_rocm

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "python"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "check")


def run_program(name: str, folder: Path = FOLDER) -> tuple[int, str]:
    """Exit code and output of a program, which may not warn."""
    package = Path(pyfa_rocm.__file__).resolve().parents[1]
    result = subprocess.run(
        [sys.executable, "-W", "error", folder / f"{name}.py"],
        env=os.environ | {"PYTHONPATH": str(package)},
        check=False,
        capture_output=True,
        text=True,
    )
    return result.returncode, result.stdout + result.stderr
