# SPDX-License-Identifier: MIT OR Apache-2.0
"""Time kernels by the clock for the page of evidence, which takes hours: data/clock_CARD.json.

Published problems are timed by the kernels that were published, and a series of lengths by each kernel there
is for them. It can be stopped and started again: what is done lies in build/evidence. `make evidence` times
some of the rows again, and the page says if they have changed since.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).parent / "data"
PARTS = ROOT / "build" / "evidence"
# The arch that plays each card.
ARCHS = {"mi300x": "gfx942", "mi355x": "gfx950", "rx7900xtx": "gfx1100", "rx9070xt": "gfx1201"}
DIRECTIONS = ("forward", "backward")
# Batch 4 of 16 heads, head dim 128: the lengths of the series.
LENGTHS = (512, 1024, 2048, 4096, 8192)

Row = dict[str, Any]


def series(card: str) -> Iterator[tuple[str, str, Any]]:
    """Yield the problems of the series: a kernel's name, a direction and a problem."""
    from pyfa_rocm.clock.subjects import CompositeKernel, Ours
    from pyfa_rocm.oracle.problem import Problem

    instinct = card.startswith("mi")
    dtype = "bfloat16" if instinct else "float16"
    of_aiter = {"mi300x": ("aiter rtna", "aiter backward a32"), "mi355x": ("aiter", "aiter backward a32")}
    for seqlen in LENGTHS:
        shape = Problem(4, 16, 16, seqlen, 128, False, dtype)
        for direction in DIRECTIONS:
            theirs = [CompositeKernel.name, of_aiter[card][direction == "backward"]] if instinct else []
            for name in (Ours.name, *theirs):
                yield name, direction, shape


def published(card: str, every: int) -> Iterator[tuple[str, str, Any]]:
    """Yield each n-th published problem with each of its kernels, and those that were calibrated on."""
    from benchmarks.published.judge import subject_name
    from benchmarks.published.points import points

    of_card = [point for point in points() if point.card == card]
    shapes = list(dict.fromkeys((point.source, point.shape) for point in of_card))[::every]
    for point in of_card:
        if (point.source, point.shape) in shapes or point.role == "calibration":
            yield subject_name(point), point.direction, point.shape


def key_of(name: str, direction: str, shape: Any) -> str:
    """Return the key of a row: what was timed."""
    return f"{name} | {direction} | {shape} | {shape.dtype}"


def time_rows(wanted: list[tuple[str, str, Any]], known: dict[str, Row]) -> Iterator[Row]:
    """Time what is not known, in this process, whose device plays the card."""
    from pyfa_rocm.clock.estimate import estimate
    from pyfa_rocm.clock.subjects import subjects
    from pyfa_rocm.errors import UnsupportedError

    ways = subjects()
    for name, direction, shape in wanted:
        key = key_of(name, direction, shape)
        if key in known or name not in ways:
            continue
        row: Row = {"key": key, "name": name, "direction": direction, "shape": vars(shape)}
        try:
            found = estimate(ways[name], shape, direction)
        except UnsupportedError as error:
            row["reason"] = str(error)
        else:
            row["kernel"] = found.kernel
            row["seconds"] = [found.seconds.low, found.seconds.high]
            row["tflops"] = [found.tflops.low, found.tflops.high]
            row["binds"] = {what: round(share, 4) for what, share in found.binds.items()}
        known[key] = row
        yield row


def read_part(path: Path) -> dict[str, Row]:
    """Return the rows of a file of this program, by key."""
    rows = map(json.loads, path.read_text().splitlines()) if path.exists() else ()
    return {row["key"]: row for row in rows}


def work(card: str, every: int) -> None:
    """Time a card's rows, in a process whose device plays it; each is written as soon as it is known."""
    PARTS.mkdir(parents=True, exist_ok=True)
    part = PARTS / f"clock_{card}.part"
    known = read_part(part)
    wanted = [*series(card), *published(card, every)]
    for row in time_rows(wanted, known):
        with part.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(row["key"], row.get("tflops", row.get("reason")), flush=True)


def again(card: str, count: int) -> list[Row]:
    """Time the first rows of the series, in a process whose device plays the card."""
    from pyfa_rocm import emulator

    bandwidth = emulator.timing_constants()["hbm_bandwidth"]["fast"]
    return [row | {"hbm_bandwidth": bandwidth} for row in time_rows(list(series(card))[:count], {})]


def finish(card: str, every: int) -> None:
    """Write the data file of a card from what is known."""
    rows = read_part(PARTS / f"clock_{card}.part")
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()
    head = {
        "card": card,
        "command": f"python -m benchmarks.evidence.record --cards {card} --every {every}",
        "commit": commit,
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "every": every,
    }
    lines = ",\n".join(json.dumps(row) for row in rows.values())
    text = json.dumps(head, indent=2)[:-2] + f',\n  "rows": [\n{lines}\n]}}\n'
    (DATA / f"clock_{card}.json").write_text(text)


def main() -> None:
    """Time the cards' rows, each card in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cards", nargs="+", choices=ARCHS, default=list(ARCHS))
    parser.add_argument("--every", type=int, default=1, metavar="N", help="take each n-th published problem")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--again", type=int, metavar="N", help="print the first rows of the series as JSON")
    args = parser.parse_args()
    if args.again is not None:
        print(json.dumps(again(args.cards[0], args.again)))
        return
    if args.here:
        work(args.cards[0], args.every)
        return
    for card in args.cards:
        program = (sys.executable, "-m", "benchmarks.evidence.record")
        command = [*program, "--here", "--cards", card, "--every", str(args.every)]
        environment = {"PYFA_ROCM_DEVICE": "emulator", "FMHA_EMU_ARCH": ARCHS[card]}
        subprocess.run(command, check=True, cwd=ROOT, env=os.environ | environment)
        finish(card, args.every)


if __name__ == "__main__":
    main()
