# SPDX-License-Identifier: MIT OR Apache-2.0
"""Read native/kernels/catalogue, a file a family, and write down which kernels a build makes.

CMake runs it when it configures: ``catalogue.py FOLDER --set ci --targets gfx942 --out DIR`` writes, for
every translation unit, its source ``DIR/<arch>/<unit>.hip`` and its rows ``DIR/<arch>/<unit>.rows.json``, and
a list for CMake to include, ``DIR/kernels.cmake``. With ``--enums FILE`` it writes the library's enums of
what rows say, with ``--absent FILE`` its table of the kernels that the build lacks. The tests import it: they
take their parameters from the same rows.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from absent import absent_source
from archs import read_archs
from families import FAMILIES
from family import DTYPES, SETS, Family, Row, check_keys, check_known, enumerator

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ARCHS = {arch.name: arch for arch in read_archs().archs}
# A translation unit has at most this many kernels. A unit takes some 11 CPU seconds and 0.6 GB (ck_tile
# itself, and what all of its kernels instantiate), each kernel 5.5 seconds and 0.1 GB more: d128's 21 kernels
# of an arch and a dtype took 215 seconds as eight units and 149 as two.
_KERNELS_A_UNIT = 12
# Our own kernels take HIP's words from native/kernels/common/device.h.
_WITHOUT_HIP = ("-nogpuinc",)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _check_block(block: dict[str, Any], family: Family, tiles: dict[str, Any], where: str) -> None:
    check_keys(block, set(family.required), set(family.defaults), where)
    for key, known in {**family.known, "arch": tuple(ARCHS), "tile": tuple(tiles)}.items():
        for value in _as_list(block.get(key, known[0])):
            check_known(key, value, known, where)


def _rows_of(block: dict[str, Any], family: Family, tiles: dict[str, Any], where: str) -> Iterator[Row]:
    _check_block(block, family, tiles, where)
    lists = [_as_list(block.get(key, family.defaults.get(key))) for key in family.axes]
    for values in itertools.product(*lists):
        fields = {"set": block["set"], **dict(zip(family.axes, values, strict=True))}
        row = family.make_row(fields, tiles[fields["tile"]], where)
        for dtype in (fields[key] for key in family.axes if key.endswith("dtype")):
            if dtype not in ARCHS[row.arch].dtypes:
                raise ValueError(f"{where}: {row.name}: {row.arch} has no {dtype} (native/archs.toml)")
        yield row
        yield from (replace(row, arch=arch.name) for arch in ARCHS.values() if arch.like == row.arch)


def _allow_spills(rows: list[Row], reasons: dict[str, str], where: str) -> list[Row]:
    """The rows, each with the reason of the first expression that matches its name."""
    for pattern in reasons:
        if not any(re.fullmatch(pattern, row.name) for row in rows):
            raise ValueError(f"{where}: allow_spills: no kernel is named {pattern!r}")
    found = [[why for pattern, why in reasons.items() if re.fullmatch(pattern, row.name)] for row in rows]
    return [replace(row, allow_spills=why[0] if why else None) for row, why in zip(rows, found, strict=True)]


def _files(folder: Path) -> list[tuple[Path, Family, dict[str, Any]]]:
    """The folder's files, and those of prebuilt kernels beside it, in the order of the families."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: expected a folder with a file a family")
    found = [path for place in (folder, folder.parent / "prebuilt") for path in sorted(place.glob("*.toml"))]
    if strange := {path.stem for path in found} - FAMILIES.keys():
        known = ", ".join(FAMILIES)
        raise ValueError(f"{folder}: {', '.join(sorted(strange))}: no family of kernels; known: {known}")
    files = []
    for name, family in FAMILIES.items():
        for path in (path for path in found if path.stem == name):
            content = tomllib.loads(path.read_text())
            check_keys(content, {"tiles", "kernels"}, {"origin", "allow_spills"}, str(path))
            files.append((path, family, content))
    return files


def _read_tiles(path: Path, family: Family, content: dict[str, Any]) -> dict[str, Any]:
    tiles = {}
    for name, table in content["tiles"].items():
        where = f"{path}: tiles.{name}"
        origin = table.get("origin", content.get("origin"))
        check_known("origin", origin, family.origins, where)
        described = {key: value for key, value in table.items() if key != "origin"}
        tiles[name] = family.read_tile(described, origin, where)
    return tiles


def read_tiles(folder: Path) -> dict[str, dict[str, Any]]:
    """The tiles of the catalogue, by family and name."""
    tiles: dict[str, dict[str, Any]] = {}
    for path, family, content in _files(folder):
        known = tiles.setdefault(family.name, {})
        if twice := known.keys() & content["tiles"].keys():
            raise ValueError(
                f"{path}: tiles {', '.join(sorted(twice))}: another file of {family.name} has them"
            )
        known.update(_read_tiles(path, family, content))
    return tiles


def _read_file(path: Path, family: Family, content: dict[str, Any], largest: bool) -> list[Row]:
    tiles = _read_tiles(path, family, content)
    rows: dict[tuple[str, str], Row] = {}
    for number, block in enumerate(content["kernels"], 1):
        for row in _rows_of(block, family, tiles, f"{path}: kernels, entry {number}"):
            old = rows.setdefault((row.arch, row.name), row)
            if old is row:
                continue
            if old.set == row.set or replace(old, set=row.set) != row:
                raise ValueError(f"{path}: entry {number} makes {row.name} for {row.arch} a second time")
            chosen = (max if largest else min)(old.set, row.set, key=SETS.index)
            rows[row.arch, row.name] = replace(old, set=chosen)
    return _allow_spills(list(rows.values()), content.get("allow_spills", {}), str(path))


def read_catalogue(folder: Path, largest: bool = False) -> list[Row]:
    """Every row of the catalogue, whatever the family, set and arch.

    A kernel that entries of several sets make is in the smallest of them, or said to be in the largest: the
    one that has its siblings too.

    Raises
    ------
    ValueError
        If the catalogue says something this program does not understand, or makes a kernel twice.
    """
    return [row for file in _files(folder) for row in _read_file(*file, largest)]


def select_rows(
    rows: list[Row], kernel_set: str, targets: list[str], pattern: str = "", prebuilt: bool = True
) -> list[Row]:
    """The rows a build of this set and these targets makes, if the pattern has a match in ARCH/NAME."""
    wanted = SETS[: SETS.index(kernel_set) + 1]
    return [
        row
        for row in rows
        if row.set in wanted
        and row.arch in targets
        and re.search(pattern, row.path())
        and (prebuilt or not row.object)
    ]


def _merged(alike: dict[tuple[str, str], list[Row]]) -> Iterator[tuple[str, list[Row]]]:
    """Units by stem, Composable Kernel's small ones of the same arch, family, set and flags together."""
    few: dict[tuple[Any, ...], list[tuple[str, list[Row]]]] = {}
    for (arch, stem), members in alike.items():
        first, family = members[0], FAMILIES[members[0].family]
        members.sort(key=family.order)
        if first.origin != "ck" or len(members) > _KERNELS_A_UNIT // 2:
            yield stem, members
            continue
        kind = arch, first.family, first.set == "full", family.flags(first)
        units = few.setdefault(kind, [])
        if units and len(units[-1][1]) + len(members) <= _KERNELS_A_UNIT:
            units[-1] = f"{units[-1][0]}_{stem.partition('_')[2]}", units[-1][1] + members
        else:
            units.append((stem, members))
    yield from itertools.chain(*few.values())


def in_units(rows: list[Row]) -> list[Row]:
    """The rows, each with its unit: those alike, as their family sees it, share as few as may be.

    Kernels that `full` adds have units of their own: a build folder that changes from `default` to `full`
    keeps its objects.
    """
    alike: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        family = FAMILIES[row.family]
        if row.object:  # a unit of its own
            alike[row.arch, row.name.removeprefix("fmha_")] = [row]
            continue
        stem = family.stem(row)
        stem += f"_{row.origin}" * (row.origin != family.origins[0])
        stem += "_full" * (row.set == "full")
        alike.setdefault((row.arch, stem), []).append(row)
    found = []
    for stem, members in _merged(alike):
        count = -(-len(members) // _KERNELS_A_UNIT)
        for i, row in enumerate(members):
            part = i * count // len(members) + 1
            found.append(replace(row, unit=stem if count == 1 else f"{stem}_{part}of{count}"))
    return found


def enums_header() -> str:
    """The library's enums of what rows say, their counts and the words for their values."""
    enums = {
        "Family": tuple(FAMILIES),
        "Origin": tuple(dict.fromkeys(origin for family in FAMILIES.values() for origin in family.origins)),
        "DType": DTYPES,
        **{name: values for family in FAMILIES.values() for name, values in family.enums.items()},
    }
    lines = [
        "// SPDX-License-Identifier: MIT OR Apache-2.0",
        "// Generated by native/tools/catalogue/catalogue.py.",
    ]
    lines += ["#pragma once", "", "#include <cstddef>", "#include <cstdint>", "", "namespace fmha {"]
    for name, values in enums.items():
        lines += [
            "",
            f"enum class {name} : uint8_t {{ {', '.join(map(enumerator, values))} }};",
            f"inline constexpr size_t k{name}Count = {len(values)};",
            f"inline constexpr const char* k{name}Names[] = {{{', '.join(map(json.dumps, values))}}};",
            f"constexpr const char* {name.lower()}_name({name} value) {{",
            f"  return k{name}Names[static_cast<size_t>(value)];",
            "}",
        ]
    return "\n".join([*lines, "", "}  // namespace fmha"]) + "\n"


def _write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def write_units(rows: list[Row], tiles: dict[str, dict[str, Any]], out: Path) -> None:
    """Write the translation units of these rows, and the lists of them and of prebuilt objects for CMake."""
    units: dict[str, list[Row]] = {}
    for row in rows:
        units.setdefault(f"{row.arch}/{row.unit}", []).append(row)
    for unit, members in units.items():
        family = FAMILIES[members[0].family]
        if not members[0].object:
            lines = ["// Generated by native/tools/catalogue/catalogue.py."]
            lines += family.unit_lines(members, tiles[family.name])
            _write_if_changed(out / f"{unit}.hip", "\n".join(lines) + "\n")
        _write_if_changed(
            out / f"{unit}.rows.json", json.dumps([asdict(row) for row in members], indent=1) + "\n"
        )
    lines = [
        "# Generated from native/kernels/catalogue.",
        "set(FMHA_KERNEL_UNITS",
        *(f'  "{unit}"' for unit, (first, *_) in units.items() if not first.object),
        ")",
        "# Unit, file and sha256 of each.",
        "set(FMHA_PREBUILT_UNITS",
        *(
            f'  "{unit}" "{first.object}" {first.object_sha256}'
            for unit, (first, *_) in units.items()
            if first.object
        ),
        ")",
        "# The compiler's flags of a unit, besides those of all.",
        *(
            f'set("FMHA_FLAGS_{unit}" {" ".join(flags)})'
            for unit, (first, *_) in units.items()
            if (flags := FAMILIES[first.family].flags(first) + _WITHOUT_HIP * (first.origin != "ck"))
        ),
    ]
    _write_if_changed(out / "kernels.cmake", "\n".join(lines) + "\n")


def main() -> int:
    """Write the units, the list for CMake and, if asked for, the enums."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("catalogue", type=Path, help="folder with a file a family")
    parser.add_argument("--set", required=True, choices=SETS)
    parser.add_argument("--targets", required=True, help="gfx names separated by commas")
    parser.add_argument(
        "--filter", default="", help="regular expression: only kernels whose ARCH/NAME has a match"
    )
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--no-prebuilt", action="store_true", help="leave out kernels that come prebuilt")
    parser.add_argument("--enums", type=Path, help="the C++ header of enums to write")
    parser.add_argument("--absent", type=Path, help="the C++ table to write of what is left out")
    args = parser.parse_args()
    targets = args.targets.split(",")
    try:
        unknown = [target for target in targets if target not in ARCHS]
        if unknown:
            known = ", ".join(ARCHS)
            raise ValueError(f"FMHA_GPU_TARGETS: got {', '.join(unknown)}, expected some of {known}")
        catalogue = read_catalogue(args.catalogue)
        rows = select_rows(catalogue, args.set, targets, args.filter, not args.no_prebuilt)
        write_units(in_units(rows), read_tiles(args.catalogue), args.out)
        if args.enums:
            _write_if_changed(args.enums, enums_header())
        if args.absent:
            _write_if_changed(args.absent, absent_source(catalogue, args.set, targets, args.filter))
    except re.error as error:
        print(
            f"catalogue.py: FMHA_KERNEL_FILTER: {args.filter!r} is no regular expression: {error}",
            file=sys.stderr,
        )
        return 1
    except (ValueError, KeyError, OSError) as error:
        print(f"catalogue.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
