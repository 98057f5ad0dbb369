# SPDX-License-Identifier: MIT OR Apache-2.0
"""Run on a card what only a card can tell, beside the clock's model: one file to send, within half an hour.

Every kernel of the card runs random problems against float64, several times; the library's choices,
published problems and decoding are timed with each kernel that can do them; so are launches, and clocks are
read. A page beside the file, of the same name but .html, shows what was measured in the clock's ranges. The
software device runs a small part of it, and its clock gives the times. An interrupted run goes on where it
was.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pyfa_rocm.cli.first_day import sizes, text, timing
from pyfa_rocm.cli.first_day.clockwork import Clockwork
from pyfa_rocm.cli.first_day.judge import judgement
from pyfa_rocm.cli.first_day.machine import identity
from pyfa_rocm.cli.first_day.page import page
from pyfa_rocm.cli.first_day.record import Record
from pyfa_rocm.cli.first_day.steps import PARTS, Step, kernels_of_this_device, steps
from pyfa_rocm.device import synchronize
from pyfa_rocm.errors import FmhaError, HipError, InvalidArgumentError, UnsupportedError
from pyfa_rocm.oracle.trial import to_json

__all__ = ["add_arguments", "run"]

_SECONDS_OF_A_MINUTE = 60


def _parts(given: str) -> tuple[str, ...]:
    """Return parts, between commas."""
    parts = tuple(part.strip() for part in given.split(","))
    if unknown := [part for part in parts if part not in PARTS]:
        raise argparse.ArgumentTypeError(f"got {unknown[0]!r}, expected some of {', '.join(PARTS)}")
    return parts


def _pattern(given: str) -> str:
    try:
        re.compile(given)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"got {given!r}, expected a regular expression: {error}") from error
    return given


def _file(given: str) -> Path:
    """Return where the results go, beside a page of the same name."""
    if given.endswith(".html"):
        raise argparse.ArgumentTypeError(f"got {given!r}, expected the file of the results, such as day.json")
    return Path(given)


def _minutes(given: str) -> float:
    try:
        minutes = float(given)
    except ValueError:
        minutes = math.nan
    if not 0 < minutes < math.inf:
        raise argparse.ArgumentTypeError(f"got {given!r}, expected a number above 0")
    return minutes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` takes."""
    add = parser.add_argument
    add("--out", type=_file, metavar="FILE", default=Path("first-day.json"), help="default: first-day.json")
    add("--steps", type=_parts, metavar="PART,...", default=PARTS, help=f"default: {', '.join(PARTS)}")
    add("--kernels", type=_pattern, metavar="REGEX", default="", help="force only kernels of such names")
    add("--minutes", type=_minutes, metavar="N", help="begin no step after that (default: 30; software: 5)")
    add("--fresh", action="store_true", help="begin anew, and replace the file")


def _day(about: dict[str, Any]) -> sizes.DayOne:
    """Return how much is run on this device."""
    if not timing.has_card():
        return sizes.software_device()
    return sizes.card("Radeon" not in about["device"])


def _once(step: Step, record: Record) -> bool:
    """Run a step and keep its result; False: the device does not answer any more."""
    if not record.begin(step.name):
        return True
    start = time.monotonic()
    try:
        result = step.run(record.steps)
    except KeyboardInterrupt:
        record.give_up(step.name)
        raise
    except UnsupportedError as error:
        result = {"unsupported": str(error)}
    except FmhaError as error:
        result = {"failed": f"{type(error).__name__}: {error}"}
    record.end(step.name, result | {"wall_seconds": time.monotonic() - start})
    if "failed" in result:
        try:
            synchronize()
        except HipError:
            return False
    return True


def _note(line: str, quiet: bool) -> None:
    if not quiet:
        print(line, file=sys.stderr, flush=True)


def _run_all(left: Sequence[Step], record: Record, end: float, quiet: bool) -> str:
    """Run steps until the time is up; return why some are left, or "".

    A terminal sees a bar; a log has a line for each part.
    """
    is_terminal = sys.stderr.isatty()
    part = ""
    looks: dict[str, Any] = {"unit": "step", "file": sys.stderr, "leave": False, "dynamic_ncols": True}
    with tqdm(total=len(left), disable=not is_terminal, **looks) as bar:
        for step in left:
            if time.monotonic() > end:
                return "the time is up"
            if step.part != part:
                part = step.part
                bar.set_description(part)
                count = sum(other.part == part for other in left)
                if not is_terminal:
                    _note(f"first-day: {part}, {count} step{'s' * (count > 1)}", quiet)
            if not _once(step, record):
                return "the device does not answer any more; a new process may"
            bar.update()
    return ""


def run(args: argparse.Namespace) -> int:
    """Run what is left, print the report, write the file; 1 if a result is wrong, else 0."""
    if not args.out.parent.is_dir():
        raise InvalidArgumentError(f"--out: got {args.out}, expected a file in a folder that exists")
    about = identity()
    record = Record(args.out, about, args.fresh)
    day = _day(about)
    _, not_forced = kernels_of_this_device(args.kernels)
    with Clockwork(about["arch"]) as clockwork:
        all_steps = steps(day, args.steps, args.kernels, clockwork)
        if not all_steps:
            raise InvalidArgumentError(f"--kernels: got {args.kernels!r}, expected a name of this device's")
        left = [step for step in all_steps if step.name not in record.steps]
        if record.found:
            done = len(all_steps) - len(left)
            _note(f"first-day: {args.out} has {done} of {len(all_steps)} steps for this library, device and "
                  "driver: they are not run again", args.json)  # fmt: skip
        minutes = args.minutes or day.minutes
        end = time.monotonic() + minutes * _SECONDS_OF_A_MINUTE
        why = _run_all(left, record, end, args.json)
    verdict = judgement(record.steps, [step.name for step in all_steps])
    verdict |= {"times": "measured" if timing.has_card() else "modelled", "not_forced": not_forced}
    record.write(verdict)
    document = record.as_json() | verdict
    report = text.report(document, args.out, why)
    args.out.with_suffix(".html").write_text(page(document, report), encoding="utf-8")
    print(to_json(document) if args.json else report)
    return 0 if verdict["ok"] else 1
