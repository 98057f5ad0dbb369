# SPDX-License-Identifier: MIT OR Apache-2.0
"""Say where header, library, CMake package and software device are, for programs that build against them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

from pyfa_rocm._runtime import paths
from pyfa_rocm.errors import FmhaError

PATHS: dict[str, Callable[[], str]] = {
    "include": paths.get_include,
    "lib": paths.get_lib,
    "cmake_dir": paths.get_cmake_dir,
    "emulator": lambda: str(paths.emulator_path()),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` takes."""
    parser.add_argument(
        "path", nargs="?", choices=tuple(PATHS), help="print only this one; without it, all of them"
    )


def _or_none(path: Callable[[], str]) -> str | None:
    try:
        return path()
    except FmhaError:
        return None


def run(args: argparse.Namespace) -> int:
    """Print one, which has to be there, or all; None (JSON: null) stands for those that are missing."""
    found = {args.path: PATHS[args.path]()} if args.path else {name: _or_none(x) for name, x in PATHS.items()}
    if args.json:
        print(json.dumps(found, indent=2))
    elif args.path:
        print(found[args.path])
    else:
        for name, path in found.items():
            print(f"{name:10} {path}")
    return 0
