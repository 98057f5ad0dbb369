# SPDX-License-Identifier: MIT OR Apache-2.0
"""The parts of a build for Windows that can be tested on Linux."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pyfa_rocm._runtime import paths

SOFTWARE_DEVICE = "the software device runs on Linux only (on Windows: in WSL)"
ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "native"
# Modules that themselves look at the system come first.
ON_WINDOWS = """
import ctypes, os, sys
import cffi, numpy, ml_dtypes
del os.register_at_fork
sys.platform = "win32"
from pathlib import Path
import pyfa_rocm
from pyfa_rocm import _public
from pyfa_rocm._runtime import blocks, hip_memory, paths
"""
PATHS = """
paths._PACKAGE = Path(sys.argv[1]) / "pyfa_rocm"
paths._SOURCE_TREE = Path(sys.argv[1])
for path in (paths.library_path, paths.emulator_path):
    try:
        print(path())
    except pyfa_rocm.FmhaError as error:
        print(error)
"""
# The index has no hip-python for Windows.
RUNTIME = """
sys.modules["rocm"] = None
try:
    pyfa_rocm.runtime()
except pyfa_rocm.HipError as error:
    print(error)
"""


def test_one_file_of_the_host_side_asks_linux() -> None:
    """And one asks Windows; no other knows which system it runs on, or includes more than C++ and zstd."""
    system = re.compile(
        r"^\s*#\s*include <(?!(?:[a-z_]+|stdint\.h|zstd\.h)>)|\b_WIN32\b|\b_POSIX|__linux__|__unix__", re.M
    )
    found = {
        str(path.relative_to(NATIVE))
        for folder in ("host", "include", "kernels/args")
        for path in (NATIVE / folder).rglob("*.*")
        if system.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"host/platform/posix.cc", "host/platform/windows.cc"}


def on_windows(code: str, *arguments: str | Path, **environment: str) -> list[str]:
    """Return the lines that a program prints which believes that it runs on Windows."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("FMHA_", "PYFA_ROCM_"))}
    done = subprocess.run(
        [sys.executable, "-c", ON_WINDOWS + code, *arguments],
        env=ours | environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("place", [None, "pyfa_rocm/lib", "build/windows"])
def test_package_without_posix(tmp_path: Path, place: str | None) -> None:
    """It can be imported, and asks for the DLL, in an installed package and in a checkout."""
    (tmp_path / "CMakeLists.txt").touch()
    if place:
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "fmha_rocm.dll").touch()
    library, device = on_windows(PATHS, tmp_path)
    places = ", ".join(f"{tmp_path}/{folder}/fmha_rocm.dll" for folder in ("pyfa_rocm/lib", "build/windows"))
    expected = (
        f"{tmp_path}/{place}/fmha_rocm.dll" if place else f"fmha_rocm.dll was not found (tried {places}): "
    )
    assert library.startswith(expected)
    assert device == SOFTWARE_DEVICE


def test_a_call_without_a_device() -> None:
    """There is no software device to fall back to: the error says so, and why no GPU works."""
    (message,) = on_windows(RUNTIME, PYFA_ROCM_LIBRARY=str(paths.library_path()))
    assert message.startswith("no GPU works here: no working HIP runtime: ")
    assert message.endswith(f"; and {SOFTWARE_DEVICE}")


def test_a_call_without_hip_python() -> None:
    chosen = {"FMHA_HIP_RUNTIME": str(paths.emulator_path())}
    (message,) = on_windows(RUNTIME, PYFA_ROCM_LIBRARY=str(paths.library_path()), **chosen)
    assert message.startswith("the device is used through hip-python, which is not installed: ")


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
