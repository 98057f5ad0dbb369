# SPDX-License-Identifier: MIT OR Apache-2.0
"""Read native/kernels/catalogue/fwd.toml and write down which kernels a build makes.

Run by CMake at configure time: ``catalogue.py CATALOGUE --set ci --targets gfx942 --out DIR`` writes, for
every translation unit, its source ``DIR/<arch>/<unit>.hip`` and its rows ``DIR/<arch>/<unit>.rows.json``, and
a list for CMake to include, ``DIR/kernels.cmake``. Also imported by the tests, which take their parameters
from the same rows.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SETS = ("ci", "default", "full")
ARCHS = ("gfx90a", "gfx942")
DTYPES = ("fp16", "bf16", "fp32", "fp8")
BIASES = ("none", "elementwise", "alibi")
PIPELINES = ("qr_async", "qr")
# Axes of a block, in the order of the product; a list stands for each of its values.
_AXES = ("arch", "dtype", "o_dtype", "tile", "group", "mask", "pad", "bias", "softcap", "dropout")
_REQUIRED = {"set", "arch", "dtype", "tile", "mask", "pad"}
_DEFAULTS = {"o_dtype": None, "group": False, "bias": "none", "softcap": False, "dropout": False}
_OPTIONAL = {*_DEFAULTS, "family"}
_TILE_REQUIRED = {"pipeline", "block", "waves", "mfma"}
_TILE_OPTIONAL = {"blocks_per_cu", "hdim_step", "tag"}
_KNOWN = {
    "set": SETS,
    "arch": ARCHS,
    "dtype": DTYPES,
    "o_dtype": DTYPES,
    "bias": BIASES,
    **dict.fromkeys(("group", "mask", "pad", "softcap", "dropout"), (False, True)),
}
# Kernels a translation unit has at most. A unit takes some 11 CPU seconds and 0.6 GB (ck_tile itself, and
# what all of its kernels instantiate), each kernel 5.5 and 0.1 more: d128's 21 kernels of an arch and a dtype
# took 215 seconds as eight units and 149 as two.
_KERNELS_A_UNIT = 12
# ck_tile's names of types.
_CK_TYPE = {"fp16": "fp16_t", "bf16": "bf16_t", "fp32": "fp32_t", "fp8": "fp8_t"}


@dataclass(frozen=True)
class Tile:
    """How a workgroup divides the work: what CK calls pipeline, block tile, waves and wave tile."""

    pipeline: str
    block: tuple[int, ...]  # kM0, kN0, kK0, kN1, kK1, head dim of q and k
    waves: int
    mfma: tuple[int, ...]  # M, N, K
    blocks_per_cu: int = -1
    hdim_step: int = 8
    tag: str | None = None

    @property
    def hdim_q(self) -> int:
        """The largest head dim of q and k."""
        return self.block[5]

    @property
    def hdim_v(self) -> int:
        """The largest head dim of v and o: one workgroup does all of its columns."""
        return self.block[3]


@dataclass(frozen=True)
class Row:
    """One kernel instance: what it does and how it is made."""

    name: str
    arch: str
    family: str
    set: str
    dtype: str
    o_dtype: str
    hdim_q: int
    hdim_v: int
    hdim_step: int
    group: bool
    mask: bool
    pad: bool
    bias: str
    softcap: bool
    dropout: bool
    lse: bool
    pipeline: str
    tile_m: int
    tile_n: int
    tile: str
    unit: str = ""  # the translation unit, which depends on what else is built: see in_units
    allow_scratch: str | None = None


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _check_keys(block: dict[str, Any], required: set[str], optional: set[str], where: str) -> None:
    missing, unknown = required - block.keys(), block.keys() - required - optional
    if missing:
        raise ValueError(f"{where}: missing {', '.join(sorted(missing))}")
    if unknown:
        raise ValueError(f"{where}: unknown key {', '.join(sorted(unknown))}")


def _read_tile(name: str, content: dict[str, Any], where: str) -> Tile:
    where = f"{where}: tiles.{name}"
    _check_keys(content, _TILE_REQUIRED, _TILE_OPTIONAL, where)
    if content["pipeline"] not in PIPELINES:
        known = ", ".join(PIPELINES)
        raise ValueError(f"{where}: pipeline is {content['pipeline']!r}, expected one of {known}")
    for key, length in (("block", 6), ("mfma", 3)):
        value = content[key]
        if not (isinstance(value, list) and len(value) == length and all(isinstance(n, int) for n in value)):
            raise ValueError(f"{where}: {key} is a list of {length} numbers, got {value!r}")
    step = content.get("hdim_step", 8)
    if not isinstance(step, int) or step < 0:
        raise ValueError(f"{where}: hdim_step is 0 or what head dims are multiples of, got {step!r}")
    return Tile(**{**content, "block": tuple(content["block"]), "mfma": tuple(content["mfma"])})


def _check_block(block: dict[str, Any], tiles: dict[str, Tile], where: str) -> None:
    _check_keys(block, _REQUIRED, _OPTIONAL, where)
    for key, known in {**_KNOWN, "tile": tuple(tiles)}.items():
        for value in _as_list(block.get(key, known[0])):
            if value not in known:
                raise ValueError(f"{where}: {key} is {value!r}, expected one of {', '.join(map(str, known))}")


def _check_row(row: Row, where: str) -> None:
    if row.group and not row.pad:
        raise ValueError(
            f"{where}: {row.name}: group mode needs pad = true, lengths being known to the device alone"
        )
    if row.softcap and row.bias != "none":
        raise ValueError(f"{where}: {row.name}: CK has no softcap together with a bias, got {row.bias!r}")
    if row.o_dtype == "fp8" or (row.dtype != "fp8" and row.o_dtype != row.dtype):
        raise ValueError(
            f"{where}: {row.name}: o_dtype is dtype, or for fp8 another than it, got {row.o_dtype!r}"
        )


def _head(dtype: str, o_dtype: str, hdim_q: int, hdim_v: int) -> str:
    types = dtype if o_dtype == dtype else f"{dtype}_{o_dtype}"
    dims = f"d{hdim_q}" if hdim_q == hdim_v else f"d{hdim_q}v{hdim_v}"
    return f"{types}_{dims}"


def _make_row(block: dict[str, Any], axes: dict[str, Any], tiles: dict[str, Tile]) -> Row:
    axes["o_dtype"] = axes["o_dtype"] or axes["dtype"]
    tile = tiles[axes["tile"]]
    head = _head(axes["dtype"], axes["o_dtype"], tile.hdim_q, tile.hdim_v)
    tag = f"_{tile.tag}" if tile.tag else ""
    flags = [key for key in ("group", "mask", "pad") if axes[key]]
    flags += {"none": [], "elementwise": ["bias"], "alibi": ["alibi"]}[axes["bias"]]
    flags += [key for key in ("softcap", "dropout") if axes[key]]
    return Row(
        name="_".join(["fmha", block.get("family", "fwd"), head, *flags]) + tag,
        family=block.get("family", "fwd"),
        set=block["set"],
        hdim_q=tile.hdim_q,
        hdim_v=tile.hdim_v,
        hdim_step=tile.hdim_step,
        lse=True,
        pipeline=tile.pipeline,
        tile_m=tile.block[0],
        tile_n=tile.block[1],
        **axes,
    )


def _rows_of(block: dict[str, Any], tiles: dict[str, Tile], where: str) -> Iterator[Row]:
    _check_block(block, tiles, where)
    lists = [_as_list(block.get(key, _DEFAULTS.get(key))) for key in _AXES]
    for values in itertools.product(*lists):
        row = _make_row(block, dict(zip(_AXES, values, strict=True)), tiles)
        _check_row(row, where)
        yield row


def _allow_scratch(rows: list[Row], reasons: dict[str, str], where: str) -> list[Row]:
    """The rows, those with the reason that an expression matches by name."""
    for pattern in reasons:
        if not any(re.fullmatch(pattern, row.name) for row in rows):
            raise ValueError(f"{where}: allow_scratch: no kernel is named {pattern!r}")
    found = [[why for pattern, why in reasons.items() if re.fullmatch(pattern, row.name)] for row in rows]
    return [replace(row, allow_scratch=why[0] if why else None) for row, why in zip(rows, found, strict=True)]


def read_tiles(path: Path) -> dict[str, Tile]:
    """The tiles of the catalogue by name."""
    with open(path, "rb") as file:
        content = tomllib.load(file)
    return {name: _read_tile(name, tile, str(path)) for name, tile in content["tiles"].items()}


def read_catalogue(path: Path, largest: bool = False) -> list[Row]:
    """Every row of the catalogue, whatever the set and arch.

    A kernel that entries of several sets make is in the smallest of them, or said to be in the largest: the
    one that has its siblings too.

    Raises
    ------
    ValueError
        If the catalogue says something this program does not understand, or makes a kernel twice.
    """
    tiles = read_tiles(path)
    with open(path, "rb") as file:
        content = tomllib.load(file)
    rows: dict[tuple[str, str], Row] = {}
    for number, block in enumerate(content["kernels"], 1):
        for row in _rows_of(block, tiles, f"{path}: kernels, entry {number}"):
            old = rows.setdefault((row.arch, row.name), row)
            if old is row:
                continue
            if old.set == row.set or replace(old, set=row.set) != row:
                raise ValueError(f"{path}: entry {number} makes {row.name} for {row.arch} a second time")
            chosen = (max if largest else min)(old.set, row.set, key=SETS.index)
            rows[row.arch, row.name] = replace(old, set=chosen)
    return _allow_scratch(list(rows.values()), content.get("allow_scratch", {}), str(path))


def select_rows(rows: list[Row], kernel_set: str, targets: list[str], pattern: str = "") -> list[Row]:
    """The rows a build of this set and these targets makes, if their names have a match of the pattern."""
    wanted = SETS[: SETS.index(kernel_set) + 1]
    return [r for r in rows if r.set in wanted and r.arch in targets and re.search(pattern, r.name)]


def in_units(rows: list[Row]) -> list[Row]:
    """The rows, each with its unit: those of an arch, a dtype and head dims share as few as may be.

    What `full` adds has units of its own: a build folder that goes on from `default` keeps what it has.
    The order in a unit is the catalogue's, varlen last.
    """
    alike: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        stem = f"{row.family}_{_head(row.dtype, row.dtype, row.hdim_q, row.hdim_v)}"
        stem += "_full" * (row.set == "full")
        alike.setdefault((row.arch, stem), []).append(row)
    found = []
    for (_, stem), members in alike.items():
        members.sort(key=lambda row: row.group)
        count = -(-len(members) // _KERNELS_A_UNIT)
        for i, row in enumerate(members):
            part = i * count // len(members) + 1
            found.append(replace(row, unit=stem if count == 1 else f"{stem}_{part}of{count}"))
    return found


def _literal(value: Any) -> str:
    if isinstance(value, tuple):
        return "{" + ", ".join(map(str, value)) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _enum(enum: str, value: str) -> str:
    return f"fmha::{enum}::k" + "".join(part.capitalize() for part in value.split("_"))


def kernel_line(row: Row, tile: Tile) -> str:
    """The line of a translation unit that makes the kernel: see native/kernels/ck/fwd_kernel.h."""
    traits = {
        "pipeline": _enum("PipelineKind", tile.pipeline),
        **{key: getattr(tile, key) for key in ("block", "waves", "mfma", "blocks_per_cu", "hdim_step")},
        **{key: getattr(row, key) for key in ("group", "mask", "pad")},
        "bias": _enum("Bias", row.bias),
        **{key: getattr(row, key) for key in ("softcap", "dropout")},
    }
    fields = ", ".join(f".{key} = {_literal(value)}" for key, value in traits.items())
    types = f"{_CK_TYPE[row.dtype]}, {_CK_TYPE[row.o_dtype]}"
    return f"FMHA_{row.family.upper()}_KERNEL({row.name}, {types}, {{{fields}}})"


def _write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def write_units(rows: list[Row], tiles: dict[str, Tile], out: Path) -> None:
    """Write the translation units of these rows, and the list of them for CMake."""
    units: dict[str, list[Row]] = {}
    for row in rows:
        units.setdefault(f"{row.arch}/{row.unit}", []).append(row)
    for unit, members in units.items():
        lines = [
            "// Generated by native/tools/catalogue.py.",
            f'#include "ck/{members[0].family}_kernel.h"',
            "",
        ]
        lines += [kernel_line(row, tiles[row.tile]) for row in members]
        _write_if_changed(out / f"{unit}.hip", "\n".join(lines) + "\n")
        _write_if_changed(
            out / f"{unit}.rows.json", json.dumps([asdict(row) for row in members], indent=1) + "\n"
        )
    lines = [
        "# Generated from catalogue.toml.",
        "set(FMHA_KERNEL_UNITS",
        *(f'  "{unit}"' for unit in units),
        ")",
    ]
    _write_if_changed(out / "kernels.cmake", "\n".join(lines) + "\n")


def main() -> int:
    """Write the units and the list for CMake."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("catalogue", type=Path)
    parser.add_argument("--set", required=True, choices=SETS)
    parser.add_argument("--targets", required=True, help="gfx names separated by commas")
    parser.add_argument(
        "--filter", default="", help="regular expression: kernels whose name has a match alone"
    )
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args()
    targets = args.targets.split(",")
    try:
        unknown = [target for target in targets if target not in ARCHS]
        if unknown:
            known = ", ".join(ARCHS)
            raise ValueError(f"FMHA_GPU_TARGETS: got {', '.join(unknown)}, expected some of {known}")
        rows = select_rows(read_catalogue(args.catalogue), args.set, targets, args.filter)
        write_units(in_units(rows), read_tiles(args.catalogue), args.out)
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
