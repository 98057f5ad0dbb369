# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs tests and scripts in a process of their own: a process has one HIP runtime, and plays one card."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from plugins import quick

import pyfa_rocm

ROOT = Path(__file__).resolve().parents[2]
REPORT = "import pyfa_rocm; r = pyfa_rocm.runtime(); print(r.path, r.emulated)"
# A script imports the package, what tests share, and the catalogue's facts of archs.
_IMPORTS = os.pathsep.join(
    str(ROOT / folder) for folder in (".", "tests", "tests/support", "native/tools/catalogue")
)
_CHOICES = ("PYFA_ROCM_DEVICE", "FMHA_HIP_RUNTIME", "ROCM_PATH", "LD_LIBRARY_PATH", "LD_PRELOAD")


def _output(arguments: list[str], environment: dict[str, str], timeout: int | None = None) -> str:
    """Return what Python prints, which must succeed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | environment,
        cwd=ROOT,
        timeout=timeout,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def file_of_tests(name: str) -> str:
    """The path of a file of tests, whichever folder it is in."""
    (path,) = (ROOT / "tests").rglob(name)
    return str(path)


def run_as(arch: str, *arguments: str, **environment: str) -> str:
    """Run tests as an arch, by pytest's arguments, quick ones if this run is; return what pytest printed."""
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *quick.arguments()]
    return _output([*command, *arguments], {"FMHA_EMU_ARCH": arch} | environment)


def run_script(script: str, *args: str, env: dict[str, str] | None = None) -> str:
    """Run a script, which imports the package and what tests share; return what it printed."""
    return _output(["-c", script, *args], {"PYTHONPATH": _IMPORTS} | (env or {}), timeout=900)


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python code with nothing but `environment` choosing a runtime."""
    inherited = {name: value for name, value in os.environ.items() if name not in _CHOICES}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=inherited | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def ok(code: str, **environment: str) -> str:
    done = run(code, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def refused(code: str, **environment: str) -> str:
    done = run(code, **environment)
    assert done.returncode != 0, done.stdout
    return done.stderr.strip().splitlines()[-1]


def run_on_two_devices(*arguments: str) -> str:
    """Run Python in a process with two devices, and return what it prints."""
    if not pyfa_rocm.runtime().emulated and pyfa_rocm.device_count() < 2:
        pytest.skip("this machine has one GPU")
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"PYTHONPATH": _IMPORTS, "FMHA_EMU_DEVICES": "2"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def emulated(*arguments: str, arch: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program of its own process on the software device, which plays an arch if one is given."""
    environment = os.environ | {"PYFA_ROCM_DEVICE": "emulator", "PYTHONPATH": str(ROOT)}
    if arch:
        environment["FMHA_EMU_ARCH"] = arch
    return subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=ROOT, capture_output=True, text=True, check=False
    )


def program(*arguments: str, arch: str = "") -> dict[str, Any]:
    """Run a program of its own process, without the device's checks, and return its JSON."""
    ran = emulated(*arguments, arch=arch)
    assert ran.returncode == 0, ran.stderr
    value: dict[str, Any] = json.loads(ran.stdout)
    return value
