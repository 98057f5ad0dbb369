# SPDX-License-Identifier: MIT OR Apache-2.0
"""The parts of a build for Windows that can be tested on Linux."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("broken", [None, "missing", "needless", "foreign"])
def test_dll_is_compared_with_header(tmp_path: Path, broken: str | None) -> None:
    """A DLL of the header's functions passes; not one that lacks one, has one more or needs another DLL."""
    names = re.findall(r"^ +(fmha_\w+);$", (NATIVE / "cmake/exports.map").read_text(encoding="utf-8"), re.M)
    if broken == "missing":
        names.remove("fmha_fwd")
    if broken == "needless":
        names.append("fmha_other")
    code = "".join(f".globl {name}\n{name}: ret\n" for name in names)
    libraries = []
    if broken == "foreign":
        (tmp_path / "o.def").write_text("LIBRARY libstdc++-6.dll\nEXPORTS\n  foreign\n")
        command = [shutil.which("llvm-dlltool-19") or "llvm-dlltool", "-m", "i386:x86-64", "-d", "o.def"]
        subprocess.run([*command, "-l", "o.lib"], cwd=tmp_path, check=True)
        code += ".globl use\nuse: jmp foreign\n"
        libraries = ["o.lib", "/include:use"]
    (tmp_path / "a.s").write_text(code)
    (tmp_path / "a.def").write_text("LIBRARY fmha_rocm\nEXPORTS\n" + "".join(f"  {n}\n" for n in names))
    subprocess.run(
        ["clang-19", "--target=x86_64-windows-gnu", "-c", "a.s", "-o", "a.o"], cwd=tmp_path, check=True
    )
    link = ["lld-link-19", "/dll", "/noentry", "/machine:x64", "/def:a.def", "/out:a.dll", "a.o", *libraries]
    subprocess.run(link, cwd=tmp_path, check=True)
    program = NATIVE / "tools/wheel/check_dll.py"
    done = subprocess.run(
        [sys.executable, program, tmp_path / "a.dll", NATIVE / "include/fmha_rocm.h"],
        check=False,
        capture_output=True,
        text=True,
    )
    said = {
        None: "",
        "missing": "does not export fmha_fwd",
        "needless": "exports fmha_other",
        "foreign": "needs libstdc++-6.dll",
    }
    assert (done.returncode != 0) == (broken is not None), done.stderr
    assert said[broken] in done.stderr
