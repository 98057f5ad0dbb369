# SPDX-License-Identifier: MIT OR Apache-2.0
"""Another clone finds what was compiled before, and never gets something else instead."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import installed
import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = """
cmake_minimum_required(VERSION 3.24)
project(cached LANGUAGES NONE)
include({module})
fmha_cache_program(program kernels "${{CMAKE_SOURCE_DIR}}/bitcode")
"""
COMPILER = """#!/bin/sh
[ "$1" != --version ] || { echo "clang version VERSION"; exit; }
exec COMPILER "$@"
"""
FLAGS = (
    "-x",
    "hip",
    "--offload-arch=gfx942",
    "-nogpuinc",
    "-nogpulib",
    "--cuda-device-only",
    "--no-gpu-bundle-output",
    "-std=c++20",
    "-O2",
    "-fuse-cuid=none",
)
SOURCE = """
#include "value.h"
extern "C" __attribute__((global)) void kernel(int* p) { *p = VALUE; }
"""

pytestmark = pytest.mark.skipif(not shutil.which("ccache"), reason="needs ccache")


class Clone:
    """A project with a kernel, a header and bitcode, that compiles as native/cmake/Kernels.cmake does."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self.cache = folder, cache
        for name, text in {
            "CMakeLists.txt": PROJECT.format(module=ROOT / "native/cmake/CompilerCache.cmake"),
            "value.h": "#define VALUE 1\n",
            "kernel.hip": SOURCE,
            "bitcode/ockl.bc": "bitcode",
        }.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        self.compiler = folder / "clang++"
        self.set_version("19.1.7 (Debian 1)")
        ours = {name: value for name, value in os.environ.items() if not name.startswith("CCACHE_")}
        self.environment = ours | {"XDG_CACHE_HOME": str(cache)}
        self._run("cmake", "-S", folder, "-B", folder / "build", "-G", "Ninja")

    def _run(self, *command: str | Path) -> None:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def set_version(self, version: str) -> None:
        """Make the compiler say that it is another one."""
        real = installed.cache("FMHA_DEVICE_COMPILER")
        self.compiler.write_text(COMPILER.replace("VERSION", version).replace("COMPILER", real))
        self.compiler.chmod(0o755)

    def compile(self, *more: str) -> bytes:
        """Return the code object."""
        build = self.folder / "build"
        command: list[str | Path] = [
            build / "ccache" / "kernels",
            self.compiler,
            *FLAGS,
            *more,
            "-c",
            "../kernel.hip",
            "-o",
            "k.co",
        ]
        done = subprocess.run(
            command, cwd=build, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return (build / "k.co").read_bytes()

    def misses(self) -> int:
        """How often the compiler was run, so far and in any clone."""
        command = ["ccache", "--print-stats"]
        environment = self.environment | {"CCACHE_DIR": str(self.cache / "pyfa_rocm" / "ccache")}
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        found = re.search(r"^cache_miss\t(\d+)$", said, re.MULTILINE)
        assert found
        return int(found[1])


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path / "one", tmp_path / "cache")


def test_another_clone_finds_it(clone: Clone, tmp_path: Path) -> None:
    first = clone.compile()
    assert clone.misses() == 1
    assert Clone(tmp_path / "two", clone.cache).compile() == clone.compile() == first
    assert clone.misses() == 1


CHANGES: dict[str, Callable[[Clone], object]] = {
    "header": lambda clone: (clone.folder / "value.h").write_text("#define VALUE 2\n"),
    "source": lambda clone: (clone.folder / "kernel.hip").write_text(SOURCE.replace("VALUE", "3")),
    "bitcode": lambda clone: (clone.folder / "bitcode" / "ockl.bc").write_text("other bitcode"),
    "compiler": lambda clone: clone.set_version("19.1.7 (Debian 2)"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_it_depends_on_counts(clone: Clone, change: str) -> None:
    before = clone.compile()
    CHANGES[change](clone)
    after = clone.compile()
    assert clone.misses() == 2
    assert (after != before) == (change in ("header", "source"))


def test_a_flag_counts(clone: Clone) -> None:
    for flag in ("-O1", "-O3"):
        clone.compile(flag)
    assert clone.misses() == 2


def test_a_damaged_cache_is_harmless(clone: Clone) -> None:
    right = clone.compile()
    for number, path in enumerate(path for path in clone.cache.rglob("*") if path.is_file()):
        path.write_bytes(b"" if number % 2 else b"damaged" + path.read_bytes()[7:-1])
        assert clone.compile() == right, path


def test_without_a_folder_it_compiles(clone: Clone) -> None:
    """One that is gone is made again; if it cannot be made or written, the compiler runs by itself."""
    right = clone.compile()
    shutil.rmtree(clone.cache)
    assert clone.compile() == right
    shutil.rmtree(clone.cache)
    clone.cache.write_text("no folder")
    assert clone.compile() == right


def test_it_is_bounded(clone: Clone) -> None:
    """And has options of its own, not those of a user's ccache."""
    options = (clone.folder / "build" / "ccache" / "kernels.conf").read_text()
    assert re.search(r"^max_size = \d+G$", options, re.MULTILINE)
    assert f"cache_dir = {clone.cache}/pyfa_rocm/ccache\n" in options
