# SPDX-License-Identifier: MIT OR Apache-2.0
"""Read native/kernels/catalogue.toml and write down which kernels a build makes.

Run by CMake at configure time: ``catalogue.py CATALOGUE --set ci --targets gfx942 --out DIR`` writes
``DIR/<arch>/<name>.row.json`` for every kernel and ``DIR/kernels.cmake``, a list for CMake to include.
Also imported by the tests, which take their parameters from the same rows.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SETS = ("ci", "default", "full")
ARCHS = ("gfx90a", "gfx942")
DTYPES = ("fp16", "bf16")
_REQUIRED = {"family", "source", "set", "arch", "dtype", "hdim", "mask", "pad"}
_OPTIONAL = {"allow_scratch"}


@dataclass(frozen=True)
class Row:
    """One kernel instance: what it does and how to compile it."""

    name: str
    arch: str
    family: str
    source: str
    set: str
    dtype: str
    hdim_q: int
    hdim_v: int
    mask: bool
    pad: bool
    allow_scratch: str | None = None

    def defines(self) -> list[str]:
        """Macros that native/kernels/<source> expects, as NAME=VALUE."""
        return [
            f"FMHA_ENTRY={self.name}",
            f"FMHA_DTYPE={self.dtype}_t",
            f"FMHA_HDIM={self.hdim_q}",
            f"FMHA_MASK={int(self.mask)}",
            f"FMHA_PAD={int(self.pad)}",
        ]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _check_block(block: dict[str, Any], where: str) -> None:
    missing, unknown = _REQUIRED - block.keys(), block.keys() - _REQUIRED - _OPTIONAL
    if missing:
        raise ValueError(f"{where}: missing {', '.join(sorted(missing))}")
    if unknown:
        raise ValueError(f"{where}: unknown key {', '.join(sorted(unknown))}")
    for key, known in (("set", SETS), ("arch", ARCHS), ("dtype", DTYPES)):
        for value in _as_list(block[key]):
            if value not in known:
                raise ValueError(f"{where}: {key} is {value!r}, expected one of {', '.join(known)}")
    for value in block["hdim"]:
        if not (isinstance(value, list) and len(value) == 2 and all(isinstance(n, int) for n in value)):
            raise ValueError(f"{where}: hdim is a list of [hdim_q, hdim_v], got {value!r}")
        if value[0] != value[1]:
            raise ValueError(f"{where}: no template takes hdim_q != hdim_v yet, got {value!r}")


def _name(family: str, dtype: str, hdim: list[int], mask: bool, pad: bool) -> str:
    head = f"d{hdim[0]}" if hdim[0] == hdim[1] else f"d{hdim[0]}v{hdim[1]}"
    return f"fmha_{family}_{dtype}_{head}" + "_mask" * mask + "_pad" * pad


def read_catalogue(path: Path) -> list[Row]:
    """Every row of the catalogue, whatever the set and arch.

    Raises
    ------
    ValueError
        If the catalogue says something this program does not understand, or names a kernel twice.
    """
    with open(path, "rb") as file:
        content = tomllib.load(file)
    rows: dict[tuple[str, str], Row] = {}
    for number, block in enumerate(content["kernels"], 1):
        _check_block(block, f"{path}: [[kernels]] block {number}")
        axes = (_as_list(block[key]) for key in ("arch", "dtype", "hdim", "mask", "pad"))
        for arch, dtype, hdim, mask, pad in itertools.product(*axes):
            name = _name(block["family"], dtype, hdim, mask, pad)
            if (arch, name) in rows:
                raise ValueError(f"{path}: block {number} makes {name} for {arch} a second time")
            rows[arch, name] = Row(
                name=name,
                arch=arch,
                family=block["family"],
                source=block["source"],
                set=block["set"],
                dtype=dtype,
                hdim_q=hdim[0],
                hdim_v=hdim[1],
                mask=mask,
                pad=pad,
                allow_scratch=block.get("allow_scratch"),
            )
    return list(rows.values())


def select_rows(rows: list[Row], kernel_set: str, targets: list[str]) -> list[Row]:
    """The rows that a build of this set and these targets makes."""
    wanted = SETS[: SETS.index(kernel_set) + 1]
    return [row for row in rows if row.set in wanted and row.arch in targets]


def _write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main() -> int:
    """Write the row files and the list for CMake."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("catalogue", type=Path)
    parser.add_argument("--set", required=True, choices=SETS)
    parser.add_argument("--targets", required=True, help="gfx names separated by commas")
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args()
    targets = args.targets.split(",")
    try:
        unknown = [target for target in targets if target not in ARCHS]
        if unknown:
            known = ", ".join(ARCHS)
            raise ValueError(f"FMHA_GPU_TARGETS: got {', '.join(unknown)}, expected some of {known}")
        rows = select_rows(read_catalogue(args.catalogue), args.set, targets)
    except (ValueError, KeyError, OSError) as error:
        print(f"catalogue.py: {error}", file=sys.stderr)
        return 1
    lines = ["# Generated from catalogue.toml.", "set(FMHA_KERNELS)"]
    for row in rows:
        row_file = args.out / row.arch / f"{row.name}.row.json"
        _write_if_changed(row_file, json.dumps(asdict(row), indent=1) + "\n")
        key = f"FMHA_KERNEL_{row.arch}_{row.name}"
        lines.append(f'list(APPEND FMHA_KERNELS "{row.arch}/{row.name}")')
        lines.append(f'set({key}_SOURCE "{row.source}")')
        lines.append(f"set({key}_DEFINES {' '.join(row.defines())})")
    _write_if_changed(args.out / "kernels.cmake", "\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
