# SPDX-License-Identifier: MIT OR Apache-2.0
"""An installed prefix, as a user has it: installed from the build at hand, then moved to another folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from pyfa_rocm._runtime import paths

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(paths.__file__).resolve().parents[1]
VERSION = paths.header_version(paths.header_path().read_text(encoding="utf-8"))


def run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """Output of a command that has to succeed, with these variables set besides."""
    result = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=os.environ | environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, f"{command}: {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout


def build_folder() -> Path:
    """Folder of the CMake build whose library the tests use."""
    folder = paths.library_path().parent
    if not (folder / "CMakeCache.txt").is_file():
        pytest.skip(f"{folder} is no build folder: there is nothing to install from")
    return folder


def cache(variable: str) -> str:
    """Return a variable of that build."""
    text = (build_folder() / "CMakeCache.txt").read_text(encoding="utf-8")
    match = re.search(rf"^{variable}:\w+=(.*)$", text, re.M)
    assert match, f"{variable} is not in the cache"
    return match[1]


def library_folder(prefix: Path) -> Path:
    """Folder of the libraries below a prefix: lib, lib64 or lib/<triplet>."""
    found = list(prefix.rglob("libfmha_rocm.so.0"))
    assert len(found) == 1, found
    return found[0].parent


def install(folder: Path) -> Path:
    """Install below `folder`, move what was installed, and return where it is then."""
    run("cmake", "--install", build_folder(), "--prefix", folder / "first")
    (folder / "first").rename(folder / "moved")
    return folder / "moved"


def program(*names: str) -> str:
    """Path of the first of these programs that there is. CI has one; elsewhere the test is skipped."""
    for name in names:
        if found := shutil.which(name):
            return found
    if "CI" in os.environ:
        pytest.fail(f"no {names[-1]} on this machine")
    pytest.skip(f"no {names[-1]} on this machine")


def pkg_config(prefix: Path, *arguments: str) -> str:
    """Output of pkg-config, which sees only this prefix."""
    path = str(library_folder(prefix) / "pkgconfig")
    return run(
        program("pkg-config", "pkgconf"),
        *arguments,
        "fmha_rocm",
        PKG_CONFIG_PATH=path,
        PKG_CONFIG_LIBDIR=path,
    ).strip()
