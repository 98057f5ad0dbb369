# SPDX-License-Identifier: MIT OR Apache-2.0
"""The floors of native, and the size of each folder.

A room of native includes headers of its own and of rooms below it, and of no other. A room is a folder that
HOUSES lists, with the folders in it that HOUSES does not list. No folder of the repository has more than
MOST_FILES files. Run as a program, this file prints the counts.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "native"
# Each house from the ground up, a line a floor. Rooms of one floor do not know each other.
HOUSES = {
    "library": """
        include kernels/args
        host host/platform
        host/catalogue host/hip host/memory
        host/problem
        host/plan
        host/origins
        host/origins/aiter host/origins/ck host/origins/hip
        host/origins/by_name
        host/select
        host/launch
        host/api
    """,
    "device code": """
        kernels/args kernels/common
        kernels/ck kernels/hip/common
        kernels/hip/bwd kernels/hip/decode kernels/hip/fwd kernels/hip/quantize
        kernels/hip/latent
    """,
    "jax": """
        include
        jax
    """,
    "onnxruntime": """
        include
        onnxruntime/engine
        onnxruntime/ops
        onnxruntime
    """,
    "software device": """
        emulator/base
        emulator/core
        emulator/image emulator/isa
        emulator/code
        emulator/check emulator/model
        emulator/launch
        emulator/hip
        emulator/tools
    """,
}
# Where a house's sources look for headers, besides their own folder.
ROOTS = {
    "emulator": ("emulator",),
    "host": ("host", "kernels", "include"),
    "include": ("include",),
    "jax": ("jax", "include"),
    "kernels": ("host", "kernels", "include"),
    "onnxruntime": ("onnxruntime", "include"),
}
MOST_FILES = 25
# Folders of a checkout that git does not keep, by name or path.
_MADE = {"__pycache__", "./build", "target"}
_INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)


def floors(house: str) -> list[list[str]]:
    """The rooms of a house, floor by floor from the ground."""
    return [line.split() for line in HOUSES[house].strip().splitlines()]


ROOMS = {room for house in HOUSES for floor in floors(house) for room in floor}


def room_of(path: Path) -> str:
    """The room that a file of native is in."""
    folders = [parent.as_posix() for parent in path.relative_to(NATIVE).parents][:-1]
    return next((folder for folder in folders if folder in ROOMS), folders[0])


def is_below(room: str, other: str) -> bool:
    """Return whether a room may include headers of another: in some house it is on a higher floor."""
    for house in HOUSES:
        height = {name: number for number, floor in enumerate(floors(house)) for name in floor}
        if room in height and other in height:
            return height[other] < height[room]
    return False


@cache
def sources() -> list[Path]:
    """The C and C++ files of native, without what a program of the build tries a compiler with."""
    found = (path for path in NATIVE.rglob("*") if path.suffix in (".h", ".hpp", ".cc", ".c", ".hip"))
    return sorted(path for path in found if NATIVE / "tools" not in path.parents)


def header(name: str, source: Path) -> Path | None:
    """The file of native that a source includes by a name; None if that is generated, or from elsewhere."""
    roots = ROOTS[source.relative_to(NATIVE).parts[0]]
    places = [source.parent / name, *(NATIVE / root / name for root in roots)]
    return next((place.resolve() for place in places if place.is_file()), None)


@cache
def includes() -> Counter[tuple[str, str]]:
    """How many includes go from one room to another."""
    counts: Counter[tuple[str, str]] = Counter()
    for source in sources():
        for name in _INCLUDE.findall(source.read_text()):
            found = header(name, source)
            if found is not None and room_of(found) != room_of(source):
                counts[room_of(source), room_of(found)] += 1
    return counts


def knots() -> list[set[str]]:
    """Sets of rooms of which each includes all others, directly or by way of others."""
    reach = {room: {b for a, b in includes() if a == room} for room in ROOMS}
    for middle in ROOMS:
        for room in ROOMS:
            if middle in reach[room]:
                reach[room] |= reach[middle]
    found = {frozenset(b for b in reach[a] if a in reach[b]) for a in ROOMS if a in reach[a]}
    return sorted(map(set, found), key=sorted)


def not_below() -> set[tuple[str, str]]:
    """Pairs of rooms of which the first includes the second, which is not below it."""
    return {pair for pair in includes() if not is_below(*pair)}


def files() -> Counter[str]:
    """How many files each folder of the repository has."""
    counts: Counter[str] = Counter()
    for folder, folders, names in os.walk(ROOT):
        path = Path(folder).relative_to(ROOT)
        folders[:] = [
            name for name in folders if not name.startswith(".") and not _MADE & {name, f"{path}/{name}"}
        ]
        counts[path.as_posix()] = len(names)
    return counts


def large() -> dict[str, int]:
    """Folders with more than MOST_FILES files."""
    return {folder: count for folder, count in sorted(files().items()) if count > MOST_FILES}


def test_the_count_sees_includes() -> None:
    """It finds those of every house, and those from one room to the next."""
    assert len(sources()) > 250
    assert {a for a, _ in includes()} >= {"host/api", "host/problem", "jax", "emulator/hip"}
    assert includes()["host/api", "host/launch"] >= 2


def test_every_source_is_in_a_room() -> None:
    assert {room_of(path) for path in sources()} <= ROOMS


def test_rooms_exist() -> None:
    assert [room for room in sorted(ROOMS) if not (NATIVE / room).is_dir()] == []


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_a_room_includes_rooms_below_it(room: str) -> None:
    assert {other for including, other in not_below() if including == room} == set()


def test_one_room_names_origins() -> None:
    """Shared code knows no origin by name."""
    naming = {
        path.parent.relative_to(NATIVE).as_posix()
        for path in (NATIVE / "host").rglob("*.[ch]*")
        if "Origin::k" in path.read_text()
    }
    assert naming == {"host/origins/by_name"}


def test_knots() -> None:
    assert knots() == []


def test_files_of_every_folder_are_counted() -> None:
    assert {"native/tools", "tests/build", "tests/adapters", "pyfa_rocm", "benchmarks", "docs"} <= set(
        files()
    )
    assert files()["tests/build"] == len(list((ROOT / "tests" / "build").glob("*.*")))


def test_large_folders() -> None:
    assert large() == {}


if __name__ == "__main__":
    upward = sum(includes()[pair] for pair in not_below())
    print(f"pairs of rooms: {len(includes())}")
    print(f"includes between rooms: {sum(includes().values())}")
    print(f"knots: {len(knots())}")
    print(f"includes that go up or across: {upward}")
    print(f"folders of more than {MOST_FILES} files: {len(large())}")
