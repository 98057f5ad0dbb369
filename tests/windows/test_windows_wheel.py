# SPDX-License-Identifier: MIT OR Apache-2.0
"""The wheel for Windows: its tag, its files, and how the package finds the DLL in it."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DIST = ROOT / "build" / "dist"
LICENCES = {"aiter", "composable_kernel", "hip", "rocm-device-libs", "zstd"}
# Modules that themselves look at the system come first.
FIND = """
import ctypes, os, sys
import cffi, numpy, ml_dtypes
sys.path.insert(0, sys.argv[1])
sys.platform = "win32"
from pyfa_rocm._runtime import paths
print(paths.library_path().relative_to(sys.argv[1]))
print(paths.get_include())
print(paths.get_cmake_dir())
"""


@pytest.fixture(scope="module")
def wheel() -> zipfile.ZipFile:
    (path,) = DIST.glob("pyfa_rocm-*-win_amd64.whl")
    return zipfile.ZipFile(path)


def text(wheel: zipfile.ZipFile, name: str) -> str:
    """Return a file of the wheel's metadata."""
    (path,) = (path for path in wheel.namelist() if path.endswith(f".dist-info/{name}"))
    return wheel.read(path).decode()


def test_tag(wheel: zipfile.ZipFile) -> None:
    assert re.fullmatch(r".*/pyfa_rocm-[\d.]+-py3-none-win_amd64\.whl", str(wheel.filename))
    assert re.findall("^Tag: (.*)$", text(wheel, "WHEEL"), re.M) == ["py3-none-win_amd64"]


def test_files(wheel: zipfile.ZipFile) -> None:
    """The library, what programs need to build against it, and the package; no software device."""
    names = {name for name in wheel.namelist() if not name.endswith("/")}
    of_c = {name for name in names if re.match("pyfa_rocm/(lib|include|bin|share)/", name)}
    cmake = {"config", "config-version", "targets", "targets-release"}
    assert of_c == {
        "pyfa_rocm/include/fmha_rocm.h",
        "pyfa_rocm/include/fmha_rocm.hpp",
        "pyfa_rocm/lib/fmha_rocm.dll",
        "pyfa_rocm/lib/fmha_rocm.lib",
        "pyfa_rocm/lib/pkgconfig/fmha_rocm.pc",
        *(f"pyfa_rocm/lib/cmake/fmha_rocm/fmha_rocm-{part}.cmake" for part in cmake),
    }
    source = {
        path.relative_to(ROOT).as_posix(): path.read_bytes()
        for path in (ROOT / "pyfa_rocm").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    package = {name for name in names - of_c if name.startswith("pyfa_rocm/")}
    assert {name for name in package if wheel.read(name) != source.get(name)} == set()
    assert {name for name in source if name.endswith((".py", ".typed"))} <= package
    assert wheel.read("pyfa_rocm/lib/fmha_rocm.dll") == (ROOT / "build/windows/fmha_rocm.dll").read_bytes()


def test_licences(wheel: zipfile.ZipFile) -> None:
    """It carries those of all third-party code in it."""
    found = {
        match[1]: wheel.read(name).decode()
        for name in wheel.namelist()
        if (match := re.search(r"\.dist-info/licenses/third-party/(.+)\.txt$", name))
    }
    assert set(found) == LICENCES
    assert all("Copyright" in licence for licence in found.values())


def test_it_can_be_installed_on_windows(wheel: zipfile.ZipFile) -> None:
    """The package index has no hip-python for Windows, so the wheel does not ask for it there."""
    needed = re.findall(r"^Requires-Dist: hip-python.*$", text(wheel, "METADATA"), re.M)
    assert [line.partition(";")[2].strip().replace('"', "'") for line in needed] == [
        "sys_platform != 'win32'"
    ]


def test_the_package_finds_the_dll(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path)
    done = subprocess.run(
        [sys.executable, "-I", "-c", FIND, tmp_path], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    library, include, cmake = done.stdout.splitlines()
    assert library == "pyfa_rocm/lib/fmha_rocm.dll"
    assert include == str(tmp_path / "pyfa_rocm/include")
    assert cmake == str(tmp_path / "pyfa_rocm/lib/cmake/fmha_rocm")
