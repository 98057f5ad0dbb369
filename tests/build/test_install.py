# SPDX-License-Identifier: MIT OR Apache-2.0
"""`cmake --install` lays out a complete, movable package of the version that it names."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import installed
import pytest
from installed import VERSION, library_folder, pkg_config, run

MAJOR, MINOR, PATCH = (int(part) for part in VERSION.split("."))
# Configured, not built: whether the package is found is all that it asks.
PROJECT = """
cmake_minimum_required(VERSION 3.16)
project(asks LANGUAGES C)
find_package(fmha_rocm {wanted} REQUIRED CONFIG NO_CMAKE_SYSTEM_PATH NO_CMAKE_PACKAGE_REGISTRY)
set(emulator "${{fmha_rocm_EMULATOR}};${{fmha_rocm_EMULATOR_DIR}}")
file(WRITE answer.txt "${{fmha_rocm_VERSION}};${{fmha_rocm_DIR}};${{emulator}}")
"""


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed.install(tmp_path_factory.mktemp("prefix"))


def find_package(prefix: Path, folder: Path, wanted: str) -> list[str] | None:
    """Return the version that CMake gives a project which wants this one; None if it finds no package."""
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(PROJECT.format(wanted=wanted))
    command = ["cmake", "-G", "Ninja", "-S", ".", "-B", "b", f"-DCMAKE_PREFIX_PATH={prefix}"]
    result = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    if result.returncode == 0:
        return (folder / "answer.txt").read_text().split(";")
    assert "fmha_rocm" in result.stderr, result.stderr
    return None


def test_layout(prefix: Path) -> None:
    lib = library_folder(prefix)
    emulator = lib / "fmha_rocm" / "emulator"
    assert {path.name for path in (prefix / "include").iterdir()} == {"fmha_rocm.h", "fmha_rocm.hpp"}
    assert (lib / "libfmha_rocm.so").resolve().name == f"libfmha_rocm.so.{VERSION}"
    assert (lib / f"libfmha_rocm.so.{MAJOR}").resolve() == (lib / "libfmha_rocm.so").resolve()
    assert all((emulator / f"libamdhip64.so{suffix}").is_file() for suffix in ("", ".5", ".6", ".7"))
    assert not list(lib.glob("libamdhip64*"))  # never beside the library, where a loader would take it
    assert len(list((prefix / "share" / "doc" / "fmha_rocm").glob("LICENSE*"))) == 3


def test_licences_of_others_come_along(prefix: Path) -> None:
    """The licences of all third-party code, compiled or linked in, are copied from its packages."""
    folder = prefix / "share" / "doc" / "fmha_rocm" / "third-party"
    texts = {path.stem: path.read_text() for path in folder.iterdir()}
    libraries = {"hip", "nlohmann-json", "rocm-device-libs", "xla", "zstd"}
    assert set(texts) == {"aiter", "composable_kernel", *libraries}
    words = {
        "xla": "Apache License",
        "aiter": "Permission is hereby granted",
        "composable_kernel": "Permission is hereby granted",
        "zstd": "Redistribution and use",
    }
    for name, text in texts.items():
        assert words.get(name, "Copyright") in text, name


def test_library_names_itself_and_its_versions(prefix: Path) -> None:
    library = library_folder(prefix) / "libfmha_rocm.so"
    dynamic = run("readelf", "-dW", library)
    assert f"[libfmha_rocm.so.{MAJOR}]" in dynamic
    assert not re.search("RPATH|RUNPATH", dynamic)
    symbols = re.findall(r" [TDRBVW] (\S+)$", run("nm", "-D", "--defined-only", library), re.M)
    assert symbols
    assert all(re.fullmatch(r"fmha_[a-z_]+@@FMHA_ROCM_\d+\.\d+", symbol) for symbol in symbols), symbols


def test_nothing_says_where_it_was_built_or_installed(prefix: Path) -> None:
    places = [str(path).encode() for path in (installed.build_folder(), installed.ROOT, prefix.parent)]
    for path in prefix.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert [place for place in places if place in content] == [], path


def test_destdir(tmp_path: Path) -> None:
    stage = tmp_path / "stage"
    run("cmake", "--install", installed.build_folder(), "--prefix", "/opt/fmha", DESTDIR=str(stage))
    assert (stage / "opt" / "fmha" / "include" / "fmha_rocm.h").is_file()
    lib = library_folder(stage / "opt" / "fmha")
    assert (lib / "pkgconfig" / "fmha_rocm.pc").is_file()
    assert b"stage" not in (lib / "cmake" / "fmha_rocm" / "fmha_rocm-targets.cmake").read_bytes()
    assert list(tmp_path.iterdir()) == [stage]


def test_components(tmp_path: Path) -> None:
    command = ("cmake", "--install", installed.build_folder(), "--prefix", tmp_path, "--component")
    run(*command, "fmha_rocm_runtime")
    lib = library_folder(tmp_path)
    assert not (tmp_path / "include").exists()
    assert not (lib / "libfmha_rocm.so").exists()
    run(*command, "fmha_rocm_development")
    assert (tmp_path / "include" / "fmha_rocm.h").is_file()
    assert not (lib / "fmha_rocm").exists()
    # Without the software device its component is not found, and its variables are empty.
    assert find_package(tmp_path, tmp_path / "any", "")[2:] == ["", ""]  # type: ignore[index]
    assert find_package(tmp_path, tmp_path / "emulator", "COMPONENTS emulator") is None
    run(*command, "fmha_rocm_emulator")
    assert find_package(tmp_path, tmp_path / "then", "COMPONENTS emulator") is not None


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("", True),
        (VERSION, True),
        (f"{VERSION} EXACT", True),
        (f"{MAJOR}", True),
        (f"{MAJOR}.{MINOR}", True),
        (f"{MAJOR}.{MINOR}.{PATCH + 1}", False),
        (f"{MAJOR}.{MINOR + 1}", False),
        (f"{MAJOR + 1}", False),
    ],
)
def test_cmake_finds_the_version(prefix: Path, tmp_path: Path, wanted: str, found: bool) -> None:
    answer = find_package(prefix, tmp_path / "project", wanted)
    assert (answer is not None) == found
    if answer:
        lib = library_folder(prefix)
        emulator = lib / "fmha_rocm" / "emulator"
        assert answer[0] == VERSION
        assert [Path(path) for path in answer[1:]] == [
            lib / "cmake" / "fmha_rocm",
            emulator / "libamdhip64.so.6",
            emulator,
        ]


def test_pkg_config(prefix: Path) -> None:
    lib = library_folder(prefix)
    assert pkg_config(prefix, "--modversion") == VERSION
    assert Path(pkg_config(prefix, "--variable=emulator")).resolve() == lib / "fmha_rocm" / "emulator"
    assert Path(pkg_config(prefix, "--cflags").removeprefix("-I")).resolve() == prefix / "include"
    folder, name = pkg_config(prefix, "--libs").split()
    assert (Path(folder.removeprefix("-L")).resolve(), name) == (lib, "-lfmha_rocm")
