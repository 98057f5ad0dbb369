# SPDX-License-Identifier: MIT OR Apache-2.0
"""Measure forward and backward over sequence lengths: times on a card, counts or a model without one.

The sizes are those of the field: a hidden dim that the heads fill, and as many tokens whatever the length, so
that the batch shrinks as the length grows. Operations are counted as the field counts them: forward
4 batch heads seqlen^2 hdim, half of that with a causal mask, backward 2.5 times as many.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tqdm import tqdm

from pyfa_rocm.cli import traffic
from pyfa_rocm.cli.bench import decode, model, plot, text
from pyfa_rocm.cli.bench.arguments import positive, positives
from pyfa_rocm.cli.bench.subjects import (
    Float64,
    Ours,
    Subject,
    TorchEager,
    TorchSdpa,
    distances,
    head_reference,
    milliseconds,
)
from pyfa_rocm.device import current_device, describe, runtime, synchronize
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError
from pyfa_rocm.oracle.problem import Problem
from pyfa_rocm.oracle.trial import to_json

DIRECTIONS = ("forward", "backward")
RESULTS = {"forward": ["o"], "backward": ["dq", "dk", "dv"]}
OURS = "pyfa_rocm"


@dataclass(frozen=True)
class Sizes:
    """The sizes that are measured by default."""

    seqlens: tuple[int, ...]
    hidden: int
    tokens: int


CARD = Sizes((128, 256, 512, 1024, 2048, 4096, 8192, 16384), 2048, 16384)
# Every instruction is simulated: short lengths, and a part of the heads and of the batch, which are alike.
SOFTWARE_DEVICE = Sizes((128, 256, 512, 1024), 256, 1024)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` takes."""
    add = parser.add_argument
    add("--seqlens", type=positives, metavar="N,...", help="default: 128 to 16384; software device: to 1024")
    add("--hdims", type=positives, default=(64, 128), metavar="N,...", help="default: 64,128")
    add("--hidden", type=positive, metavar="N", help="heads times head dim (default: 2048; software: 256)")
    add("--tokens", type=positive, metavar="N", help="batch times seqlen (default: 16384; software: 1024)")
    add("--dtype", choices=("float16", "bfloat16"), default="float16")
    add("--direction", choices=(*DIRECTIONS, "both"), default="both")
    add("--causal", choices=("yes", "no", "both"), default="both")
    add("--repeat", type=positive, default=10, metavar="N", help="timed calls on a card (default: 10)")
    add("--plot", type=Path, metavar="FILE", help="draw it: .png or .svg; needs matplotlib")
    model.add_arguments(parser)
    others = parser.add_subparsers(metavar="decode")
    summary = (decode.__doc__ or "").splitlines()[0]
    command = others.add_parser("decode", help=summary, description=summary)
    command.add_argument(
        "--json",
        action="store_true",
        default=argparse.SUPPRESS,
        help="print one JSON object, and nothing else",
    )
    command.set_defaults(run=decode.run)
    decode.add_arguments(command)


def problems(args: argparse.Namespace, sizes: Sizes) -> list[Problem]:
    """Return what to measure, in the order of the tables.

    Raises
    ------
    InvalidArgumentError
        A head dim does not divide the hidden dim.
    """
    hidden, tokens = args.hidden or sizes.hidden, args.tokens or sizes.tokens
    for hdim in args.hdims:
        if hidden % hdim:
            raise InvalidArgumentError(f"--hdims: got {hdim}, expected a divisor of the hidden dim {hidden}")
    masks = {"yes": (True,), "no": (False,), "both": (False, True)}[args.causal]
    return [
        Problem(max(1, tokens // seqlen), hidden // hdim, hidden // hdim, seqlen, hdim, causal, args.dtype)
        for hdim in args.hdims
        for causal in masks
        for seqlen in args.seqlens or sizes.seqlens
    ]


def subjects() -> dict[str, type[Subject]]:
    """Return what can be measured here: ours, and torch's where torch has the card that is in use."""
    if runtime().emulated:
        return {OURS: Ours}
    try:
        torch = import_module("torch")
    except ImportError:
        return {OURS: Ours}
    if not (torch.version.hip and torch.cuda.is_available()):
        return {OURS: Ours}
    return {OURS: Ours, "torch SDPA": TorchSdpa, "torch eager": TorchEager}


def _counted(problem: Problem, direction: str) -> dict[str, Any] | None:
    """Return what the software device counts; a GPU counts nothing."""
    found = (traffic.measure if direction == "forward" else traffic.measure_backward)(problem)
    if found is None:
        return None
    ours = found["ours"]
    return {
        "matrix_flops": ours["flops"],
        "instructions": ours["instructions"],
        "launches": ours["launches"],
        "hbm_bytes": ours["hbm_bytes"],
        "standard_hbm_bytes": found["standard"]["hbm_bytes"],
    }


def _measure(
    make: type[Subject], problem: Problem, direction: str, repeat: int, want: dict[str, Float64]
) -> dict[str, Any]:
    """Measure one way in one direction; without a kernel, or memory for it, the reason."""
    empty = dict.fromkeys(("milliseconds", "tflops", "peak_bytes", "max_difference", "counted"))
    try:
        subject = make(problem)
        subject.reset_peak()
        subject.forward()
        if direction == "backward":
            subject.backward()
        synchronize()
        peak = subject.peak_bytes()
        difference = distances(subject.first_head(RESULTS[direction]), want)
        row: dict[str, Any] = {"peak_bytes": peak, "max_difference": difference, "reason": ""}
        if runtime().emulated:
            return empty | row | {"counted": _counted(problem, direction)}
        ms = milliseconds(getattr(subject, direction), repeat)
        return empty | row | {"milliseconds": ms, "tflops": problem.flops(direction) / ms / 1e9}
    except UnsupportedError as error:
        return empty | {"reason": str(error)}
    except RuntimeError as error:  # torch's, of a card that is full
        if "out of memory" not in str(error):
            raise
        return empty | {"reason": "out of memory"}


def rows(trials: list[Problem], directions: tuple[str, ...], repeat: int) -> Iterator[dict[str, Any]]:
    """Measure everything: a row for each problem, direction and way."""
    ways = subjects()
    with tqdm(
        total=len(trials) * len(directions) * len(ways), unit="run", file=sys.stderr, leave=False
    ) as bar:
        for problem in trials:
            bar.set_description(f"hdim {problem.hdim}, seqlen {problem.seqlen}")
            want = head_reference(problem)
            for direction in directions:
                for name, make in ways.items():
                    shape = problem.as_json() | {"direction": direction, "implementation": name}
                    flops = problem.flops(direction)
                    measured = _measure(make, problem, direction, repeat, want)
                    yield shape | {"formula_flops": flops} | measured
                    bar.update()


def run(args: argparse.Namespace) -> int:
    """Measure, print, draw; 0 if something could be measured, else 1."""
    if args.plot is not None:
        plot.check(args.plot)
    emulated = runtime().emulated
    model.check(args)
    trials = problems(args, SOFTWARE_DEVICE if emulated and not args.model else CARD)
    directions = DIRECTIONS if args.direction == "both" else (args.direction,)
    if args.model:
        return model.run(args, trials, directions)
    found = list(rows(trials, directions, args.repeat))
    result = {
        "device": describe(current_device()).name,
        "emulated": emulated,
        "kind": "counts" if emulated else "times",
        "repeat": None if emulated else args.repeat,
        "rows": found,
    }
    if args.plot is not None:
        plot.draw(result, args.plot)
    print(to_json(result) if args.json else text.tables(result))
    return 0 if any(not row["reason"] for row in found) else 1
