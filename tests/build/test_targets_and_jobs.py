# SPDX-License-Identifier: MIT OR Apache-2.0
"""CMake detects the archs of a machine's cards, and how many compilers may run at a time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = ROOT / "native" / "cmake"
INSTINCT = ["gfx90a", "gfx942", "gfx950"]
RDNA2 = ["gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036"]
RDNA3 = ["gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"]
RADEON = [*RDNA2, *RDNA3, "gfx1201", "gfx1200"]
ALL = INSTINCT + RADEON
DISTINCT = [*INSTINCT, "gfx1030", "gfx1100", "gfx1201"]
CARDS = {
    "gfx906": 90006,
    "gfx90a": 90010,
    "gfx942": 90402,
    "gfx950": 90500,
    "gfx1010": 100100,
    **{arch: 100300 + i for i, arch in enumerate(RDNA2)},
    "gfx1100": 110000,
    "gfx1101": 110001,
    "gfx1102": 110002,
    "gfx1103": 110003,
    "gfx1150": 110500,
    "gfx1151": 110501,
    "gfx1152": 110502,
    "gfx1153": 110503,
    "gfx1200": 120000,
    "gfx1201": 120001,
}


def configure(folder: Path, script: str, **variables: str) -> str:
    """Return CMake's output when the test's own script includes a module."""
    (folder / "script.cmake").write_text("cmake_minimum_required(VERSION 3.24)\n" + script)
    env = {name: value for name, value in os.environ.items() if name != "CMAKE_BUILD_PARALLEL_LEVEL"}
    result = subprocess.run(
        ["cmake", f"-DFMHA_SYSTEM_ROOT={folder}", f"-DMODULES={MODULES}", "-P", "script.cmake"],
        cwd=folder,
        env=env | variables,
        check=True,
        capture_output=True,
        text=True,
    )
    return result.stdout + result.stderr


def targets_of(folder: Path, wish: str) -> tuple[list[str], str]:
    """The archs that are built for a value of FMHA_GPU_TARGETS, and what CMake prints."""
    program = ROOT / "native/tools/catalogue/archs.py"
    subprocess.run([sys.executable, program, ROOT / "native/archs.toml", "--out", folder], check=True)
    script = (
        "include(archs.cmake)\n"
        f'set(FMHA_GPU_TARGETS {wish} CACHE STRING "as users set it")\n'
        "include(${MODULES}/GpuTargets.cmake)\n"
        'message("targets: ${FMHA_GPU_TARGETS}")\n'
    )
    said = configure(folder, script)
    targets = re.search(r"^targets: (.*)$", said, re.MULTILINE)
    assert targets
    return targets[1].split(";"), said


def native(folder: Path, *nodes: int | None) -> tuple[list[str], str]:
    """The archs that are built on a machine with these nodes in its topology, and what CMake prints."""
    for number, version in enumerate(nodes):
        node = folder / "sys/class/kfd/kfd/topology/nodes" / str(number)
        node.mkdir(parents=True)
        line = "" if version is None else f"gfx_target_version {version}\n"
        (node / "properties").write_text(f"cpu_cores_count 16\nsimd_count 0\n{line}max_waves_per_simd 8\n")
    return targets_of(folder, "native")


@pytest.mark.parametrize("arch", ALL)
def test_native_is_this_machines_card(tmp_path: Path, arch: str) -> None:
    """A CPU is node 0; cards of one kind count once."""
    targets, said = native(tmp_path, 0, CARDS[arch], CARDS[arch])
    assert targets == [arch]
    assert f"FMHA_GPU_TARGETS=native: {arch}" in said


def test_native_takes_all_kinds_that_have_kernels(tmp_path: Path) -> None:
    targets, said = native(tmp_path, 0, CARDS["gfx942"], CARDS["gfx1010"], CARDS["gfx90a"])
    assert sorted(targets) == ["gfx90a", "gfx942"]
    assert "gfx1010" in said


@pytest.mark.parametrize(
    ("nodes", "cards"),
    [
        ((), "none"),
        ((0,), "none"),
        ((None, 0), "none"),
        ((0, CARDS["gfx906"], CARDS["gfx1010"]), "gfx906;gfx1010"),
    ],
)
def test_native_falls_back_to_all(tmp_path: Path, nodes: tuple[int | None, ...], cards: str) -> None:
    targets, said = native(tmp_path, *nodes)
    assert targets == ALL
    assert f"cards of this machine: {cards}; so for all that there are kernels" in " ".join(said.split())


def test_named_targets_stay(tmp_path: Path) -> None:
    assert targets_of(tmp_path, "gfx90a")[0] == ["gfx90a"]


@pytest.mark.parametrize(
    ("wish", "targets"),
    [
        ("all", ALL),
        ("instinct", INSTINCT),
        ("radeon", RADEON),
        ("distinct", DISTINCT),
        ("gfx90a;instinct", INSTINCT),
        ("instinct;radeon", ALL),
        ("all;gfx942", ALL),
        ("gfx942,gfx1100;gfx942", ["gfx942", "gfx1100"]),
    ],
)
def test_families(tmp_path: Path, wish: str, targets: list[str]) -> None:
    """Names may be mixed; an arch is built once."""
    assert targets_of(tmp_path, f'"{wish}"')[0] == targets


def test_code_objects_are_packed_after_the_nearest(tmp_path: Path) -> None:
    """An arch with `nearest` names it before the one that both are like; it must be like that one too."""
    program, own = ROOT / "native/tools/catalogue/archs.py", ROOT / "native/archs.toml"
    subprocess.run([sys.executable, program, own, "--out", tmp_path], check=True)
    lists = (tmp_path / "archs.cmake").read_text().splitlines()
    assert "set(FMHA_LIKE_gfx1100)" in lists
    assert "set(FMHA_LIKE_gfx1150 gfx1100)" in lists
    assert "set(FMHA_LIKE_gfx1153 gfx1150 gfx1100)" in lists
    for other in ("gfx942", "gfx1030", "gfx1151", "gfx9999"):
        wrong = tmp_path / "archs.toml"
        wrong.write_text(own.read_text().replace('nearest = "gfx1150"', f'nearest = "{other}"'))
        result = subprocess.run(
            [sys.executable, program, wrong, "--out", tmp_path], check=False, capture_output=True, text=True
        )
        assert result.returncode == 1
        assert f"gfx1151: nearest is '{other}', expected one like gfx1100 too" in result.stderr


def jobs(folder: Path, files: dict[str, str], **variables: str) -> tuple[int, str]:
    """How many compilers run at a time on a machine with these files, and what CMake prints."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    script = (
        "include(${MODULES}/Jobs.cmake)\nget_property(pools GLOBAL PROPERTY JOB_POOLS)\nmessage(${pools})\n"
    )
    said = configure(folder, script, **variables)
    pool = re.search(r"^fmha_kernels=(\d+)$", said, re.MULTILINE)
    assert pool
    return int(pool[1]), said


def machine(cpus: str = "ff", mbytes: int = 64000) -> dict[str, str]:
    """A machine's files: the mask of its cores, and its free memory."""
    return {
        "proc/self/status": f"Name:\tcmake\nCpus_allowed:\t{cpus}\nCpus_allowed_list:\t0-7\n",
        "proc/meminfo": f"MemTotal:       99000000 kB\nMemAvailable:   {mbytes}000 kB\n",
    }


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (machine(), 8),
        (machine("3"), 2),
        (machine("ffff,ffffffff"), 32),  # of memory for 32
        (machine("d"), 3),
        (machine(mbytes=6600), 3),
        (machine(mbytes=300), 1),
        # Control groups: a limit of memory less what is used of it; two and a half cores.
        ({**machine(), "sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        (
            {
                **machine(),
                "sys/fs/cgroup/memory.max": "9000000000\n",
                "sys/fs/cgroup/memory.current": "1000000000\n",
            },
            4,
        ),
        ({**machine(), "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 3),
    ],
)
def test_jobs_follow_cores_and_memory(tmp_path: Path, files: dict[str, str], expected: int) -> None:
    number, said = jobs(tmp_path, files)
    assert number == expected
    assert f"Kernels compiled at a time: {expected} (" in said


def test_jobs_of_a_machine_that_says_nothing(tmp_path: Path) -> None:
    """Without proc, CMake's own count of cores."""
    number, _ = jobs(tmp_path, {})
    assert number == os.cpu_count()


@pytest.mark.parametrize("level", ["1", "3", "200"])
def test_parallel_level_overrides(tmp_path: Path, level: str) -> None:
    number, said = jobs(tmp_path, machine(mbytes=300), CMAKE_BUILD_PARALLEL_LEVEL=level)
    assert number == int(level)
    assert "(CMAKE_BUILD_PARALLEL_LEVEL;" in said


def test_this_machine(tmp_path: Path) -> None:
    """The real proc and sys."""
    script = 'set(FMHA_SYSTEM_ROOT "")\ninclude(${MODULES}/Jobs.cmake)\n'
    said = configure(tmp_path, script)
    cores = len(os.sched_getaffinity(0))
    number = re.search(r"at a time: (\d+) \(\d+ cores, (\d+) MB free", said)
    assert number
    assert 1 <= int(number[1]) <= cores
