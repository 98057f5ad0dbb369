# SPDX-License-Identifier: MIT OR Apache-2.0
"""The parts of a build for Windows that can be tested on Linux."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "native"
# Modules that themselves look at the system come first.
ON_WINDOWS = """
import ctypes, os, sys
import cffi, numpy, ml_dtypes
del os.register_at_fork
sys.platform = "win32"
import pyfa_rocm
from pyfa_rocm import _public
from pyfa_rocm._runtime import blocks, hip_memory, paths
for path in (paths.library_path, paths.emulator_path):
    try:
        print(path())
    except pyfa_rocm.FmhaError as error:
        print(error)
"""


def test_one_file_of_the_host_side_asks_linux() -> None:
    """And one asks Windows; no other knows which system it runs on."""
    system = re.compile(
        r"^#include <(?:sys/\w+|dlfcn|elf|fcntl|link|psapi|pthread|sched|unistd|windows)\.h>"
        r"|\b_WIN32\b|__linux__",
        re.M,
    )
    found = {
        str(path.relative_to(NATIVE))
        for path in (NATIVE / "host").rglob("*.*")
        if system.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"host/platform/posix.cc", "host/platform/windows.cc"}


def test_package_without_posix() -> None:
    """It can be imported, and asks for the DLL."""
    done = subprocess.run([sys.executable, "-c", ON_WINDOWS], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    library, device = done.stdout.splitlines()
    assert "fmha_rocm.dll was not found (tried " in library
    assert device == "the software device runs on Linux only (on Windows: in WSL)"
