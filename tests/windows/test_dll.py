# SPDX-License-Identifier: MIT OR Apache-2.0
"""The library for Windows beside that for Linux: its exports, and how it calls a HIP of our own in Wine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import check_dll
import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
BUILD, LINUX = ROOT / "build" / "windows", ROOT / "build" / "release"
ZIG = BUILD / "zig" / "cc"
NAMES = ("amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll")
NO_DEVICE = "status 3: hipInit (flags 0): hipErrorNoDevice (100): no ROCm-capable device is detected ["


def run(*command: str | Path, environment: dict[str, str] | None = None) -> str:
    """Return what a program prints, whatever its status."""
    ours = {
        name: value for name, value in os.environ.items() if not name.startswith(("FMHA_", "HIP_", "ROCM_"))
    }
    done = subprocess.run(
        command,
        env=ours | (environment or {}),
        check=False,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.stdout, f"{command}: {done.stderr}"
    return done.stdout


@dataclass
class Machine:
    """A folder with the library and use_library, in a Windows."""

    folder: Path
    hip: Path
    wine: str
    environment: dict[str, str]

    def put_hip(self, *places: str) -> None:
        """Copy the HIP to each of these, seen from the folder."""
        for place in places:
            path = self.folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.hip, path)

    def windows(self, place: str) -> str:
        """Return a path below the folder as Windows has it."""
        return "Z:" + str(self.folder / place).replace("/", "\\")

    def use(self, what: str, *dlls: str, **environment: str) -> list[str]:
        """Return the lines that use_library prints, which has loaded these DLLs before."""
        program = self.folder / "use_library.exe"
        return run(self.wine, program, what, *dlls, environment=self.environment | environment).splitlines()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The HIP that runs nothing and use_library, for Windows and Linux."""
    folder = tmp_path_factory.mktemp("built")
    include = f"-I{ROOT / 'native' / 'include'}"
    warnings = ("-Wall", "-Wextra", "-Werror", "-std=c99")
    stub, program = HERE / "hip_stub.c", HERE / "use_library.c"
    kernels = f"-I{ROOT / 'native' / 'kernels'}"
    for command in (
        ("g++", "-std=c++20", kernels, HERE / "padding.cc", "-o", folder / "padding"),
        (ZIG, *warnings, "-shared", stub, "-o", folder / "hip.dll"),
        (ZIG, *warnings, include, program, BUILD / "fmha_rocm.lib", "-o", folder / "use_library.exe"),
        ("gcc", *warnings, "-shared", "-fPIC", stub, "-o", folder / "libhip.so"),
        (
            *("gcc", *warnings, include, program, "-o", folder / "use_library"),
            *(f"-L{LINUX}", f"-Wl,-rpath,{LINUX}", "-lfmha_rocm"),
        ),
    ):
        subprocess.run(command, check=True)
    return folder


@pytest.fixture(scope="module")
def wine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, dict[str, str]]]:
    """Wine and its environment: no desktop, no services, and its own DLLs loaded from where they are.

    Its server starts here, because a program would wait for the pipes of one that it started.
    """
    program = os.environ.get("PYFA_ROCM_WINE")
    if not program:
        pytest.skip("needs PYFA_ROCM_WINE: native/tools/test_windows.sh (`make windows`) sets it")
    prefix = str(tmp_path_factory.mktemp("wine"))
    environment = {"WINEPREFIX": prefix, "WINEBOOTSTRAPMODE": "1", "WINEDEBUG": "-all", "LC_ALL": "C.UTF-8"}
    server = Path(program).with_name("wineserver")
    subprocess.run([server, "-p"], env=os.environ | environment, check=True)
    yield program, environment
    subprocess.run([server, "-k"], env=os.environ | environment, check=False)


@pytest.fixture
def machine(tmp_path: Path, built: Path, wine: tuple[str, dict[str, str]]) -> Machine:
    program, environment = wine
    for file in (BUILD / "fmha_rocm.dll", built / "use_library.exe"):
        shutil.copy(file, tmp_path)
    return Machine(tmp_path, built / "hip.dll", program, environment)


def on_linux(built: Path, what: str) -> list[str]:
    """Return the lines that use_library prints here."""
    hip = {"FMHA_HIP_RUNTIME": str(built / "libhip.so")}
    return run(built / "use_library", what, environment=hip).splitlines()


def without_padding(launch: str, mask: bytes) -> tuple[str, bytes]:
    """Return a launch, and its arguments with zeros where they are not written."""
    head, _, arguments = launch.rpartition(" ")
    given = bytes.fromhex(arguments)
    assert len(given) == len(mask)
    return head, bytes(byte & keep for byte, keep in zip(given, mask, strict=True))


def test_exports_are_those_of_linux() -> None:
    """Both have the functions of the header, and nothing else."""
    header = (ROOT / "native/include/fmha_rocm.h").read_text(encoding="utf-8")
    said = run("nm", "-D", "--defined-only", LINUX / "libfmha_rocm.so")
    image = check_dll.Image((BUILD / "fmha_rocm.dll").read_bytes())
    assert image.exports() == set(re.findall(r" T (\w+)", said)) == check_dll.declared(header)
    assert check_dll.differences(image, header) == []


def test_build_info_is_that_of_linux(machine: Machine, built: Path) -> None:
    """It has the same kernels."""
    (found,) = machine.use("build_info")
    assert json.loads(found) == json.loads(on_linux(built, "build_info")[0])
    assert machine.use("version") == on_linux(built, "version")


def test_forward_reaches_the_launch(machine: Machine, built: Path) -> None:
    """Its code object and its arguments are, byte for byte, those of the library for Linux."""
    machine.put_hip("amdhip64_7.dll")
    kernel, code, launch = machine.use("forward")
    assert kernel.startswith("kernel fmha_fwd_bf16_d128")
    assert re.fullmatch(r"code object: \d+ bytes [0-9a-f]{16}", code)
    *here, launch_here = on_linux(built, "forward")
    assert [kernel, code] == here
    mask = bytes.fromhex(run(built / "padding"))
    assert without_padding(launch, mask) == without_padding(launch_here, mask)
    assert launch.startswith(f"launch {kernel.split()[1]}: grid 8 1 2, block 512 1 1, LDS 0, arguments ")


def test_a_refusal_launches_nothing(machine: Machine, built: Path) -> None:
    machine.put_hip("amdhip64_7.dll")
    (message,) = machine.use("bad_batch")
    assert "-5000000000" in message
    assert [message] == on_linux(built, "bad_batch")


def test_without_hip(machine: Machine) -> None:
    """The message says what was looked for, and where."""
    (message,) = machine.use("forward", ROCM_PATH="C:\\none")
    assert message.startswith("status 3: no HIP runtime: none is mapped into this process, and ")
    assert (
        "amdhip64_7.dll, amdhip64_6.dll and amdhip64.dll were found neither by the loader nor in " in message
    )
    assert "HIP_PATH\\bin (not set) nor in ROCM_PATH\\bin (C:\\none); set FMHA_HIP_RUNTIME" in message


def test_machine_without_a_device(machine: Machine) -> None:
    machine.put_hip("amdhip64_7.dll")
    (message,) = machine.use("forward", STUB_DEVICES="0")
    assert message.startswith(NO_DEVICE)
    assert message.endswith("\\amdhip64_7.dll]")


def test_the_newest_name_comes_first(machine: Machine) -> None:
    for names in ((NAMES[2],), NAMES[1:], NAMES):
        machine.put_hip(*names)
        assert machine.use("runtime") == [machine.windows(names[0])]


def test_the_loaded_one_comes_before_any_file(machine: Machine) -> None:
    """Two of them are an error, which names both."""
    machine.put_hip("amdhip64_7.dll", "a/AMDHIP64_6.dll", "b/amdhip64_7.dll")
    loaded = [machine.windows("a/AMDHIP64_6.dll"), machine.windows("b/amdhip64_7.dll")]
    assert machine.use("runtime", loaded[0]) == loaded[:1]
    assert machine.use("forward", loaded[0])[-1].startswith("launch ")
    (message,) = machine.use("runtime", *loaded)
    assert "two HIP runtimes mapped" in message
    assert all(path in message for path in loaded)


@pytest.mark.parametrize("variable", ["HIP_PATH", "ROCM_PATH"])
@pytest.mark.parametrize("end", ["", "\\"])
def test_folder_of_an_installed_hip(machine: Machine, variable: str, end: str) -> None:
    """AMD's installer ends the folder with a backslash."""
    machine.put_hip("installed/bin/amdhip64_6.dll")
    folder = {variable: machine.windows("installed") + end}
    assert machine.use("runtime", **folder) == [machine.windows("installed/bin/amdhip64_6.dll")]
    found = machine.use("search", **folder)
    assert [line.split(" ", 1)[1] for line in found] == [
        *NAMES,
        machine.windows("installed/bin/amdhip64_6.dll"),
    ]


@pytest.mark.parametrize("name", ["any name.dll", "größe 大.dll"])
def test_chosen_by_its_path(machine: Machine, name: str) -> None:
    """A path is UTF-8, in the environment and in what the library returns."""
    machine.put_hip(f"elsewhere/{name}", "amdhip64_7.dll")
    path = machine.windows(f"elsewhere/{name}")
    assert machine.use("runtime", FMHA_HIP_RUNTIME=path) == [path]
    assert machine.use("forward", FMHA_HIP_RUNTIME=path)[-1].startswith("launch ")


def test_a_file_that_is_no_dll(machine: Machine) -> None:
    """It is told, with what Windows says of it, unless another one will do."""
    (machine.folder / "amdhip64_7.dll").write_bytes(machine.hip.read_bytes()[:1000])
    (message,) = machine.use("runtime")
    assert re.search(r"none that was found can be used: amdhip64_7\.dll: .*\(error \d+\)", message), message
    machine.put_hip("amdhip64_6.dll")
    assert machine.use("runtime") == [machine.windows("amdhip64_6.dll")]


def test_a_dll_that_is_no_hip(machine: Machine) -> None:
    shutil.copy(BUILD / "fmha_rocm.dll", machine.folder / "other.dll")
    (message,) = machine.use("forward", FMHA_HIP_RUNTIME=machine.windows("other.dll"))
    assert "other.dll has no hipInit: not a HIP runtime, or too old" in message
