# SPDX-License-Identifier: MIT OR Apache-2.0
"""Run a program that uses ROCm on the software device; without one, print the variables that do it."""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pyfa_rocm._runtime import library, paths
from pyfa_rocm.cli.program import add_program, run_program
from pyfa_rocm.errors import FmhaError, InvalidArgumentError

# Whatever release of ROCm a program was linked for, and what opens it by hand.
NAMES = ("libamdhip64.so", "libamdhip64.so.5", "libamdhip64.so.6", "libamdhip64.so.7")
# Names of the software device's checks: a test compares these with its own messages.
CHECKS = (
    "lds-unwritten",
    "lds-race",
    "lds-race-equal",
    "waits",
    "hazards",
    "hazards-shipped",
    "hazards-vector-scalar",
    "global-unwritten",
    "read-only",
    "global-race",
    "global-drain",
    "misaligned",
    "resource",
)
RELEASES = ("6.0", "6.2", "7")
MOST_DEVICES = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` takes."""
    parser.add_argument("--arch", help="the GPU to play, by LLVM's name of it (FMHA_EMU_ARCH)")
    parser.add_argument("--devices", metavar="N", help=f"1 to {MOST_DEVICES} of them (FMHA_EMU_DEVICES)")
    parser.add_argument(
        "--checks",
        metavar="LIST",
        help="none, all, or names of checks, each with a - in front to switch it off; write it as "
        "--checks=LIST (FMHA_EMU_CHECKS)",
    )
    parser.add_argument("--rocm", help=f"the release to behave as: {_one_of(RELEASES)} (FMHA_EMU_ROCM)")
    add_program(parser)


def run(args: argparse.Namespace) -> int:
    """Become the program; return only if there is none or it cannot be run."""
    return run_program(args, chosen(args) | of_device(device_folder(paths.emulator_path())))


def chosen(args: argparse.Namespace) -> dict[str, str]:
    """Return the variables of the options that were given.

    Raises
    ------
    InvalidArgumentError
        The software device would refuse a value.
    """
    found = {}
    if args.arch is not None:
        found["FMHA_EMU_ARCH"] = _require("--arch", args.arch, list(library.known_archs()))
    if args.devices is not None:
        if not (args.devices.isdecimal() and 1 <= int(args.devices) <= MOST_DEVICES):
            raise InvalidArgumentError(
                f"--devices: got {args.devices!r}, expected a number from 1 to {MOST_DEVICES}"
            )
        found["FMHA_EMU_DEVICES"] = str(int(args.devices))
    if args.checks is not None:
        for word in args.checks.split(","):
            if word and word not in ("none", "all", "-all"):
                _require("--checks", word.removeprefix("-"), ("none", "all", *CHECKS))
        found["FMHA_EMU_CHECKS"] = args.checks
    if args.rocm is not None:
        found["FMHA_EMU_ROCM"] = _require("--rocm", args.rocm, RELEASES)
    return found


def _require(option: str, value: str, expected: Sequence[str]) -> str:
    if value not in expected:
        raise InvalidArgumentError(f"{option}: got {value!r}, expected {_one_of(expected)}")
    return value


def _one_of(names: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def of_device(folder: Path) -> dict[str, str]:
    """Return the variables that make a program, and pyfa_rocm in it, take the device in this folder."""
    path = str(folder / "libamdhip64.so.6")
    return {
        "LD_LIBRARY_PATH": str(folder),
        "FMHA_HIP_RUNTIME": path,
        "PYFA_ROCM_DEVICE": "emulator",
        "PYFA_ROCM_EMULATOR": path,
    }


def device_folder(device: Path) -> Path:
    """Return a folder that has the software device under all NAMES.

    That is its own in a build. A wheel holds no links: then it is one in the user's cache.
    """
    if all((device.parent / name).exists() for name in NAMES):
        return device.parent
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyfa_rocm"
    folder = cache / ("device-" + hashlib.sha256(os.fsencode(device)).hexdigest()[:16])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in NAMES:
            _link(folder / name, device)
    except (OSError, RuntimeError) as error:  # RuntimeError: pathlib's, of a user without a home
        raise FmhaError(
            f"XDG_CACHE_HOME: got {str(cache.parent)!r}, expected a folder that can be written, for links to "
            f"the software device: {error}"
        ) from error
    return folder


def _link(link: Path, target: Path) -> None:
    """Make a link, in one step for whoever reads it meanwhile."""
    if link.is_symlink() and link.readlink() == target:
        return
    with tempfile.TemporaryDirectory(dir=link.parent) as folder:
        new = Path(folder) / link.name
        new.symlink_to(target)
        new.replace(link)
