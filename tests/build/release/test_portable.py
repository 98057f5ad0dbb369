# SPDX-License-Identifier: MIT OR Apache-2.0
"""The compilers that native/cmake/Portable.cmake makes of zig, and what zig keeps for all clones."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# It says what it was called with, and where it would find its libraries. Like zig it gives relative paths.
ZIG = """#!/bin/sh
here=$(realpath --relative-to=. "$(dirname "$0")")
[ "$1" != env ] || { printf '.{\\n  .lib_dir = "%s/lib",\\n  .version = "VERSION",\\n}\\n' "$here"; exit; }
printf '%s\\n' "$*" "$ZIG_GLOBAL_CACHE_DIR" "$ZIG_LIB_DIR"
"""


class Clone:
    """A build folder, with a zig of its own."""

    def __init__(self, folder: Path, cache: Path, version: str = "1.2.3") -> None:
        self.folder, self.cache = folder, cache
        (folder / "lib" / "std").mkdir(parents=True)
        self.zig = folder / "zig-program"
        self.zig.write_text(ZIG.replace("VERSION", version))
        self.zig.chmod(0o755)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("ZIG_")}
        self.environment["XDG_CACHE_HOME"] = str(cache)

    def configure(self, *options: str) -> None:
        script = ROOT / "native" / "cmake" / "Portable.cmake"
        command = ["cmake", "-DFMHA_PORTABLE=ON", f"-DFMHA_ZIG={self.zig}", *options, "-P", str(script)]
        subprocess.run(command, cwd=self.folder, env=self.environment, check=True, capture_output=True)

    def compile(self, *arguments: str) -> list[str]:
        """Return what zig got, its cache folder and its library folder."""
        command = [str(self.folder / "zig" / "cc"), *arguments]
        done = subprocess.run(command, env=self.environment, check=True, capture_output=True, text=True)
        return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("options", "triple"),
    [((), "x86_64-linux-gnu.2.28"), (("-DCMAKE_SYSTEM_NAME=Windows",), "x86_64-windows-gnu")],
)
def test_target_and_spelling(tmp_path: Path, options: tuple[str, ...], triple: str) -> None:
    clone = Clone(tmp_path / "one", tmp_path / "cache")
    clone.configure(*options)
    got, *_ = clone.compile("-march=x86-64-v3", "a b.c")
    assert got == f"cc -target {triple} -O2 -s -march=x86_64_v3 a b.c"


def test_all_clones_have_the_same_folders(tmp_path: Path) -> None:
    """Each zig of a version sees its own libraries by one path, also when the clone is gone that made it."""
    clones = [Clone(tmp_path / name, tmp_path / "cache") for name in ("one", "two")]
    for clone in clones:
        clone.configure()
    kept = str(tmp_path / "cache" / "pyfa_rocm" / "zig")
    for clone in clones:
        assert clone.compile()[1:] == [kept, f"{kept}/lib-1.2.3"]
    assert (Path(kept) / "lib-1.2.3" / "std").is_dir()
    shutil.rmtree(clones[0].folder)
    assert not (Path(kept) / "lib-1.2.3" / "std").exists()
    clones[1].compile()
    assert (Path(kept) / "lib-1.2.3").readlink() == clones[1].folder / "lib"
    other = Clone(tmp_path / "three", tmp_path / "cache", version="1.3.0")
    other.configure()
    assert other.compile()[2] == f"{kept}/lib-1.3.0"


def test_what_is_kept_is_bounded(tmp_path: Path) -> None:
    clone = Clone(tmp_path / "one", tmp_path / "cache")
    kept = tmp_path / "cache" / "pyfa_rocm" / "zig" / "o"
    kept.mkdir(parents=True)
    (tmp_path / "du").write_text('#!/bin/sh\necho "$SIZE $2"\n')
    (tmp_path / "du").chmod(0o755)
    clone.environment["PATH"] = f"{tmp_path}:{clone.environment['PATH']}"
    for size, stays in (("999", True), ("1000", False)):
        clone.environment["SIZE"] = size
        clone.configure()
        assert kept.exists() == stays


def test_without_a_cache_folder(tmp_path: Path) -> None:
    """The build folder has it."""
    (tmp_path / "cache").write_text("no folder")
    clone = Clone(tmp_path / "one", tmp_path / "cache")
    clone.configure()
    own = f"{clone.folder}/zig/libraries"
    assert clone.compile()[1:] == [own, f"{own}/lib-1.2.3"]


def test_a_user_chooses_the_folder(tmp_path: Path) -> None:
    clone = Clone(tmp_path / "one", tmp_path / "cache")
    clone.environment |= {"ZIG_GLOBAL_CACHE_DIR": str(tmp_path / "mine"), "ZIG_LIB_DIR": "/some/lib"}
    clone.configure()
    assert clone.compile()[1:] == [str(tmp_path / "mine"), "/some/lib"]
    assert not (tmp_path / "cache").exists()
