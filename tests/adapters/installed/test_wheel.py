# SPDX-License-Identifier: MIT OR Apache-2.0
"""An installed wheel holds all its files, and its own commands and paths build C programs against it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pyfa_rocm

PACKAGE = Path(pyfa_rocm.__file__).resolve().parent
ROOT = Path(__file__).resolve().parents[3]
PROGRAM = r"""
#include <stdio.h>
#include <string.h>

#include "fmha_rocm.h"

int main(void) {
  printf("%s %d\n", fmha_version(), strstr(fmha_build_info(), "\"kernels\"") != NULL);
  return 0;
}
"""
CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(asks LANGUAGES C)
find_package(fmha_rocm REQUIRED CONFIG COMPONENTS emulator)
add_executable(asks asks.c)
target_link_libraries(asks PRIVATE fmha_rocm::fmha_rocm)
file(WRITE "${CMAKE_BINARY_DIR}/emulator.txt" "${fmha_rocm_EMULATOR}")
"""
pytestmark = pytest.mark.skipif(
    os.environ.get("PYFA_ROCM_TEST_INSTALLED") != "1", reason="of an installed wheel: make test-adapters"
)


def run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    result = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=os.environ | environment, capture_output=True, text=True
    )
    assert result.returncode == 0, f"{command}: {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout


def need(program: str) -> str:
    path = shutil.which(program)
    if path is None:
        if "CI" in os.environ:
            pytest.fail(f"no {program} on this machine")
        pytest.skip(f"no {program} on this machine")
    return path


def files() -> list[str]:
    """Names below the package's folder, of what the wheel installed."""
    listed = importlib.metadata.distribution("pyfa-rocm").files
    assert listed
    return [str(path) for path in listed if path.parts[0] == "pyfa_rocm" and path.suffix != ".pyc"]


def test_layout() -> None:
    names = {name.removeprefix("pyfa_rocm/") for name in files()}
    assert names >= {
        "py.typed",
        "include/fmha_rocm.h",
        "include/fmha_rocm.hpp",
        "lib/libfmha_rocm.so",
        "lib/libfmha_rocm.so.0",
        "lib/fmha_rocm/emulator/libamdhip64.so.6",
        "lib/cmake/fmha_rocm/fmha_rocm-config.cmake",
        "lib/pkgconfig/fmha_rocm.pc",
    }
    assert {name for name in names if "amdhip64" in name} == {"lib/fmha_rocm/emulator/libamdhip64.so.6"}
    assert not [name for name in files() if (PACKAGE.parent / name).is_symlink()]


def test_one_wheel_for_every_python() -> None:
    text = importlib.metadata.distribution("pyfa-rocm").read_text("WHEEL")
    assert text
    tag = re.findall(r"^Tag: (.*)$", text, re.MULTILINE)
    assert len(tag) == 1
    glibc = re.fullmatch(r"py3-none-manylinux_2_(\d+)_x86_64", tag[0])
    assert glibc
    assert int(glibc[1]) <= 28


def test_libraries_need_libc_alone() -> None:
    """No C++ run-time library, no HIP; and nothing of a glibc newer than the wheel's name says."""
    readelf = need("readelf")
    for name in files():
        path = PACKAGE.parent / name
        if not re.search(r"\.so(\.\d+)?$", name) or path.read_bytes()[:4] != b"\x7fELF":
            continue
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run(readelf, "-dW", path))
        assert set(needed) <= {
            "libc.so.6",
            "libm.so.6",
            "libdl.so.2",
            "libpthread.so.0",
            "ld-linux-x86-64.so.2",
        }, name
        versions = re.findall(r"Name: GLIBC_2\.(\d+)", run(readelf, "-VW", path))
        assert versions
        assert max(map(int, versions)) <= 28, name


def test_paths() -> None:
    assert Path(pyfa_rocm.get_include()) == PACKAGE / "include"
    assert Path(pyfa_rocm.get_lib()) == PACKAGE / "lib"
    assert Path(pyfa_rocm.get_cmake_dir()) == PACKAGE / "lib" / "cmake" / "fmha_rocm"


def test_version_is_the_headers() -> None:
    assert importlib.metadata.version("pyfa-rocm") == pyfa_rocm.__version__


def test_c_program_by_cmake(tmp_path: Path) -> None:
    """The run path is set by CMake itself, since the library is named by its file."""
    (tmp_path / "asks.c").write_text(PROGRAM)
    (tmp_path / "CMakeLists.txt").write_text(CMAKE)
    run(need("cmake"), "-S", ".", "-B", "build", f"-Dfmha_rocm_DIR={pyfa_rocm.get_cmake_dir()}", cwd=tmp_path)
    run("cmake", "--build", "build", cwd=tmp_path)
    assert run(tmp_path / "build" / "asks").split() == [pyfa_rocm.__version__, "1"]
    emulator = Path((tmp_path / "build" / "emulator.txt").read_text())
    assert emulator.samefile(PACKAGE / "lib" / "fmha_rocm" / "emulator" / "libamdhip64.so.6")


@pytest.mark.parametrize("how", ["pkg-config", "paths"])
def test_c_program_by_the_compiler(tmp_path: Path, how: str) -> None:
    (tmp_path / "asks.c").write_text(PROGRAM)
    lib = pyfa_rocm.get_lib()
    flags = ["-I" + pyfa_rocm.get_include(), "-L" + lib, "-lfmha_rocm"]
    if how == "pkg-config":
        asked = run(need("pkg-config"), "--cflags", "--libs", "fmha_rocm", PKG_CONFIG_PATH=f"{lib}/pkgconfig")
        flags = asked.split()
    run(need("gcc"), "-Wall", "-Werror", "asks.c", *flags, f"-Wl,-rpath,{lib}", "-o", "asks", cwd=tmp_path)
    assert run(tmp_path / "asks").split() == [pyfa_rocm.__version__, "1"]


def test_commands_are_on_the_path() -> None:
    program = Path(sys.executable).with_name("pyfa-rocm")
    info = json.loads(run(program, "info", "--json"))
    assert Path(info["library"]) == PACKAGE / "lib" / "libfmha_rocm.so.0"
    assert Path(info["runtime"]["path"]) == PACKAGE / "lib" / "fmha_rocm" / "emulator" / "libamdhip64.so.6"


def test_package_benchmark(wheel: Path) -> None:
    """It runs, and counts every byte once. How many is not a test's business."""
    result = json.loads(run(sys.executable, "-m", "benchmarks.package", "--json", wheel, cwd=ROOT))
    parts = [
        result[name]
        for name in result
        if name.endswith("_bytes") and name.split("_")[0] not in ("wheel", "unpacked")
    ]
    assert sum(parts) == result["unpacked_bytes"]
    assert result["wheel_bytes"] == wheel.stat().st_size


@pytest.fixture
def wheel() -> Path:
    """The file that was installed."""
    path = os.environ.get("PYFA_ROCM_TEST_WHEEL")
    if not path:
        pytest.skip("PYFA_ROCM_TEST_WHEEL does not name the wheel file")
    return Path(path)


@pytest.mark.parametrize("arch", ["gfx942", "gfx90a", "gfx950"])
@pytest.mark.parametrize(
    ("file", "tests"),
    [("isa/matrix/test_mfma_exact.py", "older_cpus"), ("code/test_fuzz.py", "agree or on_every_level")],
)
def test_software_device_for_older_cpus(file: str, tests: str, arch: str) -> None:
    """The wheel's has code for those without AVX-512 and FMA, which the build in the source tree has not."""
    python = ROOT / "build" / "venv" / "bin" / "python"
    if not python.exists():
        pytest.skip("`make build` was not run here: there is no environment for the software device's tests")
    device = PACKAGE / "lib" / "fmha_rocm" / "emulator" / "libamdhip64.so.6"
    fewer = {} if arch == "gfx942" else {"FMHA_TEST_EXAMPLES": "60", "FMHA_FUZZ_PROGRAMS": "120"}
    pytest_of_build: list[str | Path] = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", tests]
    printed = run(
        *pytest_of_build,
        f"tests/emulator/{file}",
        cwd=ROOT,
        PYFA_ROCM_EMULATOR=str(device),
        FMHA_EMU_ARCH=arch,
        **fewer,
    )
    assert re.search(r"^\d+ passed", printed, re.MULTILINE), printed
    assert "skipped" not in printed
