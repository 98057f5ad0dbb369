# SPDX-License-Identifier: MIT OR Apache-2.0
"""Give the device library the archs that it lacks: ``add_bitcode.py FOLDER --clang CLANG``.

The library has one constant for each arch, its version. llvm-dis and llvm-as beside CLANG make
those that are missing from one that FOLDER has.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path

# Arch: the version and stepping that `__oclc_ISA_version` is for it, and an arch that every library has.
VERSIONS = {
    "950": (9500, "942"),
    "1152": (11502, "1100"),
    "1153": (11503, "1100"),
    "1200": (12000, "1100"),
    "1201": (12001, "1100"),
}


def _run(*command: str | Path, stdin: str | None = None) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, input=stdin).stdout


def add_bitcode(folder: Path, clang: Path) -> None:
    """Make what `folder` lacks.

    Raises
    ------
    ValueError
        If the library's constant is not what it used to be.
    """
    tools = clang.resolve().parent
    for name, (version, other) in VERSIONS.items():
        path = folder / f"oclc_isa_version_{name}.bc"
        if path.exists():
            continue
        text = _run(tools / "llvm-dis", "-o", "-", folder / f"oclc_isa_version_{other}.bc")
        changed, count = re.subn(r"(@__oclc_ISA_version = .* i32) \d+\b", rf"\1 {version}", text)
        if count != 1:
            raise ValueError(f"{folder}/oclc_isa_version_{other}.bc: expected one constant, got {count}")
        _run(tools / "llvm-as", "-o", path, stdin=changed)


def main() -> None:
    """Add to a folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--clang", required=True, type=Path)
    args = parser.parse_args()
    add_bitcode(args.folder, args.clang)


if __name__ == "__main__":
    main()
