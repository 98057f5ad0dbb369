# SPDX-License-Identifier: MIT OR Apache-2.0
"""`pyfa-rocm device`: what it sets, what it runs, and how that ends."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import installed
import pytest

from pyfa_rocm._runtime import library, paths
from pyfa_rocm.cli import device

ROOT = Path(__file__).resolve().parents[3]
# A program that uses HIP, in the least words: it opens a runtime by name and says what that is.
PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **names) {
  for (int i = 1; i < count; ++i) {
    void *hip = dlopen(names[i], RTLD_NOW);
    if (!hip) return puts(dlerror()), 1;
    int version = 0, devices = 0;
    ((int (*)(int *))dlsym(hip, "hipRuntimeGetVersion"))(&version);
    ((int (*)(int *))dlsym(hip, "hipGetDeviceCount"))(&devices);
    char name[300] = "";
    ((int (*)(char *, int, int))dlsym(hip, "hipDeviceGetName"))(name, sizeof name, 0);
    printf("%s %d %d %s\\n", names[i], version, devices, name);
  }
  return 0;
}
"""


@pytest.fixture(autouse=True)
def _only_the_software_device(device_kind: str) -> None:
    if device_kind != "emulator":
        pytest.skip("of the software device")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("program")
    (folder / "program.c").write_text(PROGRAM)
    compiler = installed.program("cc", "gcc")
    subprocess.run(
        [compiler, "-o", folder / "program", folder / "program.c", "-ldl"],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return str(folder / "program")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("FMHA_")}
    return subprocess.run(
        [sys.executable, "-m", "pyfa_rocm", "device", *arguments],
        env=inherited | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def output(*arguments: str, **environment: str) -> str:
    done = run(*arguments, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_every_name_of_the_runtime(program: str) -> None:
    """A program of any release of ROCm gets the device, as the release that it asks for."""
    lines = output("--", program, *device.NAMES).splitlines()
    assert len(lines) == len(device.NAMES)
    assert all("Emulated" in line for line in lines)
    assert [line.split()[0] for line in lines] == list(device.NAMES)
    # Each alone, since a process has one of them.
    assert output(program, "libamdhip64.so.6").split()[1:3] == ["60400000", "1"]
    assert output(program, "libamdhip64.so.7").split()[1:3] == ["70000000", "1"]


def test_options(program: str) -> None:
    for arch in library.known_archs():
        printed = output("--arch", arch, "--devices", "3", "--rocm", "6.0", "--", program, "libamdhip64.so.6")
        assert printed.split()[1:3] == ["60000000", "3"]
        assert f"({arch})" in printed
    printed = output(
        "--checks=-waits,lds-race-equal", "sh", "-c", "echo $FMHA_EMU_CHECKS $0 $1", "--arch", "-x"
    )
    assert printed == "-waits,lds-race-equal --arch -x\n"


@pytest.mark.parametrize("name", ["arch", "devices", "checks", "rocm"])
@pytest.mark.parametrize("value", ["", "nonsense", "-1"])
def test_bad_values(name: str, value: str) -> None:
    if name == "checks" and not value:
        return  # an empty list: the default
    done = run(f"--{name}={value}", "--", "true")
    assert done.returncode == 2
    got = value.removeprefix("-") if name == "checks" else value
    assert done.stderr.startswith(f"pyfa-rocm device: --{name}: got {got!r}, expected ")
    assert done.stdout == ""


def test_values_are_those_of_the_device() -> None:
    """The command accepts the values that the device accepts, and no others."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYFA_ROCM_DEVICE": "emulator"}

    def refusal(variable: str) -> str:
        command = [sys.executable, "-m", "pyfa_rocm", "prove"]
        done = subprocess.run(
            command, env=env | {variable: "zzz"}, capture_output=True, text=True, check=False
        )
        assert done.returncode != 0
        return done.stderr

    (checks,) = re.findall(r"a list of all, none, (.*), each also with a -", refusal("FMHA_EMU_CHECKS"))
    assert checks.split(", ") == list(device.CHECKS)
    assert f"FMHA_EMU_ROCM must be {device._one_of(device.RELEASES)}, got" in refusal("FMHA_EMU_ROCM")
    assert f"a number from 1 to {device.MOST_DEVICES}, got" in refusal("FMHA_EMU_DEVICES")
    archs = device._one_of(list(library.known_archs()))
    assert f"FMHA_EMU_ARCH must be {archs}, got" in refusal("FMHA_EMU_ARCH")


def test_pyfa_rocm_in_the_program(tmp_path: Path) -> None:
    """It takes the same file, whatever it would have chosen, and says nothing about it."""
    code = "import pyfa_rocm; r = pyfa_rocm.runtime(); print(r.emulated, r.path, pyfa_rocm.devices()[0].arch)"
    printed = output("--arch", "gfx90a", "--", sys.executable, "-c", code, PYFA_ROCM_DEVICE="gpu")
    emulated, path, arch = printed.split()
    assert (emulated, arch) == ("True", "gfx90a")
    assert Path(path).samefile(paths.emulator_path())


def test_a_path_of_libraries_is_kept() -> None:
    printed = output("--", "sh", "-c", "echo $LD_LIBRARY_PATH", LD_LIBRARY_PATH="/one:/two").strip()
    folder, _, rest = printed.partition(":")
    assert rest == "/one:/two"
    assert Path(folder, "libamdhip64.so.7").samefile(paths.emulator_path())
    # An empty entry would stand for the current folder.
    assert ":" not in output("--", "sh", "-c", "echo $LD_LIBRARY_PATH", LD_LIBRARY_PATH="")


def test_the_end_is_the_programs_own() -> None:
    assert run("--", "sh", "-c", "exit 37").returncode == 37
    assert run("--", "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM
    ignored = re.findall(r"SigIgn:\s*(\w+)", output("--", "cat", "/proc/self/status"))
    assert not int(ignored[0], 16) & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


def test_what_cannot_be_run(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    for path, status, why in (
        ("no-such-program", 127, "No such file or directory"),
        (str(tmp_path / "none"), 127, "No such file or directory"),
        (str(tmp_path / "text"), 126, "Permission denied"),
        (str(tmp_path), 126, "Permission denied"),
    ):
        done = run("--", path, "--argument")
        assert (done.returncode, done.stderr) == (status, f"pyfa-rocm device: {path}: {why}\n")


def test_without_a_program(program: str) -> None:
    """It prints what it would set, for a shell or as JSON."""
    folder = paths.emulator_path().parent
    variables = json.loads(output("--json", "--devices", "2"))
    assert variables.pop("FMHA_EMU_DEVICES") == "2"
    assert variables == device.of_device(folder)
    command = f'eval "$({sys.executable} -m pyfa_rocm device --devices 2)"; {program} libamdhip64.so.7; env'
    printed = subprocess.run(
        ["sh", "-c", command],
        env=os.environ | {"PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": "/one"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed.startswith("libamdhip64.so.7 70000000 2 Emulated")
    assert f"\nLD_LIBRARY_PATH={folder}:/one\n" in printed
    done = run("--json", "--", "true")
    assert done.returncode == 2
    assert done.stderr.startswith("pyfa-rocm device: --json: got the program 'true' too, expected")


def test_a_device_without_links(program: str, tmp_path: Path) -> None:
    """As in a wheel, which cannot hold links: they are made once, in the user's cache, and mended."""
    lonely = tmp_path / "wheel" / "libamdhip64.so.6"
    lonely.parent.mkdir()
    shutil.copy(paths.emulator_path(), lonely)
    environment = {"PYFA_ROCM_EMULATOR": str(lonely), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    printed = output("--", program, "libamdhip64.so.7", **environment)
    assert printed.startswith("libamdhip64.so.7 70000000 1 ")
    (folder,) = (tmp_path / "cache" / "pyfa_rocm").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == sorted(device.NAMES)
    link = folder / "libamdhip64.so.7"
    made = link.lstat().st_ino
    (folder / "libamdhip64.so.5").unlink()
    (folder / "libamdhip64.so.5").symlink_to("/elsewhere")
    assert output("--", program, "libamdhip64.so.5", **environment)
    assert link.lstat().st_ino == made
    assert lonely.parent.joinpath("libamdhip64.so.7").exists() is False


def test_no_place_for_links(tmp_path: Path) -> None:
    lonely = tmp_path / "libamdhip64.so.6"
    shutil.copy(paths.emulator_path(), lonely)
    done = run("--", "true", PYFA_ROCM_EMULATOR=str(lonely), XDG_CACHE_HOME="/dev/null")
    assert done.returncode == 2
    assert done.stderr.startswith("pyfa-rocm device: XDG_CACHE_HOME: got '/dev/null', expected a folder")
