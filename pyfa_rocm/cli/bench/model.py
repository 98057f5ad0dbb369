# SPDX-License-Identifier: MIT OR Apache-2.0
"""bench --model: how long attention takes on a card, by the clock of the software device."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from tqdm import tqdm

from pyfa_rocm.cli.bench import loop_plot, model_text, plot
from pyfa_rocm.clock import trace
from pyfa_rocm.clock.cards import CARDS, played
from pyfa_rocm.clock.estimate import Estimate, estimate
from pyfa_rocm.clock.peers import peers
from pyfa_rocm.clock.subjects import Ours, Subject, subjects
from pyfa_rocm.device import devices, runtime
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError
from pyfa_rocm.oracle.problem import Problem
from pyfa_rocm.oracle.trial import to_json

__all__ = ["add_arguments", "check", "run"]

# Instructions of a compute unit that a trace and a picture keep.
EVENTS = 50_000
# A checkout has what others published of cards; an installed package does not.
_PUBLISHED = Path(__file__).parents[3] / "benchmarks" / "published"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what belongs to `--model`."""
    add = parser.add_argument
    add("--model", choices=list(CARDS), help="on the software device: model the time on this card")
    add("--against", action="store_true", help="with --model, in a checkout: next to published measurements")
    add("--trace", type=Path, metavar="FILE", help="with --model: a compute unit's waves, for Perfetto")
    add(
        "--aiter",
        type=Path,
        metavar="DIR",
        help="with --model mi300x: AITER's fmha_v3_fwd/MI300 (default: a checkout's, if it has it)",
    )
    add(
        "--peer",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="with --model: also time others' kernels; a file of a checkout's benchmarks/peers, or any such",
    )


def _against() -> ModuleType:
    """Return the checkout's module that compares with published measurements.

    Raises
    ------
    InvalidArgumentError
        The package is installed.
    """
    if not _PUBLISHED.is_dir():
        raise InvalidArgumentError(
            f"--against: got the package in {Path(__file__).parents[2]}, expected that of a checkout of "
            "pyfa_rocm, which has the published measurements in benchmarks/published"
        )
    root = str(_PUBLISHED.parents[1])
    if root not in sys.path:
        sys.path.append(root)
    return import_module("benchmarks.published.against")


def check(args: argparse.Namespace) -> None:
    """Raise unless options that need `--model` come with it, and options that exclude each other do not.

    Raises
    ------
    InvalidArgumentError
        They do not fit, or the device is not the software device.
    """
    given = [name for name in ("against", "trace", "aiter", "peer") if getattr(args, name)]
    if given and not args.model:
        raise InvalidArgumentError(f"--{given[0]}: needs --model {next(iter(CARDS))}")
    if args.against and (args.trace or args.plot):
        raise InvalidArgumentError("--against: got --trace or --plot too, expected a table only")
    if args.aiter and args.model != "mi300x":
        raise InvalidArgumentError(f"--aiter: got --model {args.model}, expected mi300x, for which they are")
    if args.model and not runtime().emulated:
        raise InvalidArgumentError("--model: needs the software device (PYFA_ROCM_DEVICE=emulator)")
    if args.model and args.model != played():
        raise InvalidArgumentError(
            f"--model {args.model}: got {devices()[0].name}, expected FMHA_EMU_ARCH to choose that card"
        )
    if args.against:
        _against().check(args.model)
    if args.trace and not args.trace.parent.is_dir():
        raise InvalidArgumentError(f"--trace: got {args.trace}, expected a file in a folder that exists")


def rows(
    trials: list[Problem], directions: tuple[str, ...], ways: dict[str, Subject]
) -> Iterator[dict[str, Any]]:
    """Model everything: a row for each problem, direction and way."""
    total = len(trials) * len(directions) * len(ways)
    with tqdm(total=total, unit="run", file=sys.stderr, leave=False) as bar:
        for problem in trials:
            for direction in directions:
                for name, way in ways.items():
                    row = problem.as_json() | {"direction": direction, "implementation": name}
                    bar.update()
                    if direction not in way.directions:
                        continue
                    try:
                        yield row | estimate(way, problem, direction).as_json() | {"reason": ""}
                    except UnsupportedError as error:
                        yield row | {"reason": str(error)}


def _one_loop(problem: Problem, way: Subject) -> Estimate:
    """Model a forward pass and keep what a compute unit issues."""
    return estimate(way, problem, "forward", EVENTS)


def run(args: argparse.Namespace, trials: list[Problem], directions: tuple[str, ...]) -> int:
    """Model, print, draw; 0 if something could be modelled, else 1."""
    ways, others = subjects(args.aiter), peers(args.peer)
    if args.against:
        return int(_against().run(args, ways, others))
    if args.trace or args.plot:
        if args.plot:
            plot.check(args.plot)
        found = _one_loop(trials[0], ways[Ours.name])
        if args.trace:
            trace.write(found, args.trace)
        if args.plot:
            loop_plot.draw(found, str(trials[0]), args.plot)
    ways |= {way.name: way for found in others.values() for way in found}
    modelled = list(rows(trials, directions, ways))
    result = {"card": args.model, "kind": "model", "rows": modelled}
    print(to_json(result) if args.json else model_text.tables(result))
    return 0 if any(not row["reason"] for row in modelled) else 1
