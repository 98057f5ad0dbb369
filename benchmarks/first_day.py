# SPDX-License-Identifier: MIT OR Apache-2.0
"""Read a file of `pyfa-rocm first-day` from a card: measured times beside the clock's, and what fits them.

Without options it prints each time that was both measured and modelled, and their ratio to the middle of the
range. `--fit` asks which constants of the clock would bring the two together. For each of some rows, a third
of which is held out, the software device times the kernel with all constants in the middle of their ranges,
and with each of them at its fast and at its slow end. The logarithm of a row's time is taken to be linear in
the constants' places in their ranges, 0 being the fast end. Before anything is measured a place is anywhere:
its standard deviation is 0.29. The rows, each right within `--noise`, make it smaller. A constant is called
determined if they halve it at least. Only determined ones are moved, and the clock then times all rows again:
the errors before and after are those of its own times, not of the linear form. Nothing is written anywhere.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

os.environ["PYFA_ROCM_DEVICE"] = "emulator"

from pyfa_rocm import emulator
from pyfa_rocm.cli.first_day.timing import by_clock
from pyfa_rocm.cli.first_day.workloads import Ready, from_json

Float64 = npt.NDArray[np.float64]
# Standard deviation of a place that may be anywhere from 0 to 1, and how far down counts as determined.
ANYWHERE, HALVED = 1 / math.sqrt(12), 0.5
# Every so many rows, one is held out.
HELD_OUT = 3
MIDDLE = 0.5


@dataclass(frozen=True)
class Row:
    """A time that was measured: of the kernel that the library chose for a workload."""

    name: str
    workload: dict[str, Any]
    kernel: str
    measured: float
    modelled: dict[str, float] | None

    @property
    def ratio(self) -> float | None:
        """Return the measured time over the middle of the clock's range."""
        if self.modelled is None:
            return None
        return self.measured / ((self.modelled["low"] + self.modelled["high"]) / 2)


def rows_of(document: dict[str, Any]) -> Iterator[Row]:
    """Yield the library's choices that were measured, in the file's order."""
    steps = document["steps"]
    for name, result in steps.items():
        if not result.get("candidates") or "workload" not in result:
            continue
        chosen = result["candidates"][0]
        if chosen["measured"] is None:
            continue
        models = steps.get(f"model {name}", {}).get("candidates", [])
        modelled = next((x["modelled"] for x in models if x["kernel"] == chosen["kernel"]), None)
        yield Row(name, result["workload"], chosen["kernel"], chosen["measured"], modelled)


@dataclass(frozen=True)
class Fit:
    """Places of constants, from 0 (fast) to 1 (slow), and the standard deviation that the rows leave."""

    places: Float64
    deviations: Float64
    determined: npt.NDArray[np.bool_]


def fit(slopes: Float64, errors: Float64, noise: float) -> Fit:
    """Find the places that bring a linear clock to the measurements.

    Parameters
    ----------
    slopes : array (rows, constants)
        Logarithm of a row's time at the slow end of a constant over that at its fast end.
    errors : array (rows)
        Logarithm of the measured time over that with all constants in the middle.
    noise : float
        Standard deviation of `errors` that no constant is to explain.

    Returns
    -------
    Fit
        Constants that are not determined stay in the middle.
    """

    def solved(columns: Float64) -> tuple[Float64, Float64]:
        precision = columns.T @ columns / noise**2 + np.eye(columns.shape[1]) / ANYWHERE**2
        covariance = np.linalg.inv(precision)
        return covariance @ columns.T @ errors / noise**2, np.sqrt(np.diag(covariance))

    _, deviations = solved(slopes)
    determined = deviations < HALVED * ANYWHERE
    places = np.full(slopes.shape[1], MIDDLE)
    if determined.any():
        moved, _ = solved(slopes[:, determined])
        places[determined] += moved
    return Fit(places, deviations, determined)


class Clock:
    """The software device's clock with constants anywhere in their ranges."""

    def __init__(self, names: tuple[str, ...] | None) -> None:
        ranges = {name: (x["fast"], x["slow"]) for name, x in emulator.timing_constants().items()}
        self.ranges = {name: x for name, x in ranges.items() if x[0] != x[1]}
        if unknown := [name for name in names or () if name not in self.ranges]:
            raise SystemExit(f"--constants: got {unknown[0]}, expected some of {', '.join(self.ranges)}")
        self.names = names or tuple(self.ranges)

    def value(self, name: str, place: float) -> float:
        """Return a constant's value at a place of its range."""
        fast, slow = self.ranges[name]
        return float(fast + place * (slow - fast))

    def seconds(self, ready: Ready, kernel: str, places: Mapping[str, float]) -> float:
        """Return the time of a kernel; constants without a place are in the middle."""
        values = {name: self.value(name, places.get(name, MIDDLE)) for name in self.ranges}
        constants = {name: (value, value) for name, value in values.items()}
        found = by_clock(ready.enqueue(1 + ready.kernels.index(kernel)), constants)
        if found is None:
            raise SystemExit("the clock has no numbers of this card")
        return found["low"]


def fitted(rows: list[Row], clock: Clock, noise: float) -> dict[str, Any]:
    """Fit on two thirds of the rows, and return what is found, with the errors before and after."""
    slopes, before, kept = [], [], []
    for row in rows:
        ready = from_json(row.workload).ready()
        if row.kernel not in ready.kernels:
            print(f"first_day: {row.name}: this library has no {row.kernel}", file=sys.stderr)
            continue
        ends = [
            [clock.seconds(ready, row.kernel, {name: place}) for place in (0.0, 1.0)] for name in clock.names
        ]
        slopes.append([math.log(slow / fast) for fast, slow in ends])
        before.append(math.log(row.measured / clock.seconds(ready, row.kernel, {})))
        kept.append(row)
        print(f"first_day: {len(kept)} of {len(rows)} rows", file=sys.stderr)
    if not kept:
        raise SystemExit("no row of the file runs here")
    held_out = np.arange(len(kept)) % HELD_OUT == HELD_OUT - 1
    matrix, errors = np.array(slopes), np.array(before)
    found = fit(matrix[~held_out], errors[~held_out], noise)
    places = dict(zip(clock.names, found.places.tolist(), strict=True))
    # A value below zero is none: what is fitted may leave the range, but not that far.
    places = {name: place if clock.value(name, place) >= 0 else 0.0 for name, place in places.items()}
    after = np.array(
        [
            math.log(row.measured / clock.seconds(from_json(row.workload).ready(), row.kernel, places))
            for row in kept
        ]
    )
    constants = {
        name: {
            "determined": bool(found.determined[i]),
            "place": places[name],
            "value": clock.value(name, places[name]),
            "deviation": float(found.deviations[i]),
            "largest_slope": float(np.abs(matrix[:, i]).max()),
            "in_range": 0 <= places[name] <= 1,
        }
        for i, name in enumerate(clock.names)
    }

    def mean(x: Float64) -> float | None:
        return float(np.abs(np.expm1(x)).mean()) if x.size else None

    sets = {"fitted": ~held_out, "held_out": held_out}
    return {
        "rows": [{"name": row.name, "kernel": row.kernel} for row in kept],
        "constants": constants,
        "errors": {
            name: {"rows": int(these.sum()), "before": mean(errors[these]), "after": mean(after[these])}
            for name, these in sets.items()
        },
    }


def table(rows: list[Row]) -> str:
    """Return the measured times beside the clock's."""
    wide = max(len(row.name) for row in rows)
    lines = [f"{'':{wide}}{'measured, us':>14}{'the clock, us':>20}{'of the middle':>15}"]
    for row in rows:
        ends = (
            "-"
            if row.modelled is None
            else "{:.1f} to {:.1f}".format(*(row.modelled[end] * 1e6 for end in ("low", "high")))
        )
        ratio = "-" if row.ratio is None else f"{row.ratio:.3f}"
        lines.append(f"{row.name:{wide}}{row.measured * 1e6:14.1f}{ends:>20}{ratio:>15}")
    ratios = [row.ratio for row in rows if row.ratio is not None]
    if ratios:
        logs = np.log(ratios)
        lines.append(
            f"{len(ratios)} rows: measured times are {np.exp(logs.mean()):.3f} of the middle in the "
            f"mean, and {np.abs(np.expm1(logs)).mean():.1%} away from it"
        )
    return "\n".join(lines)


def fit_text(found: dict[str, Any]) -> str:
    """Return what a fit says."""
    lines = []
    for name, x in sorted(found["constants"].items(), key=lambda item: item[1]["deviation"]):
        if x["determined"]:
            outside = "" if x["in_range"] else ", outside of the clock's range"
            words = f"{x['value']:.4g} (place {x['place']:.2f} +- {x['deviation']:.2f}{outside})"
        else:
            words = f"not determined by these rows: it moves none by more than {x['largest_slope']:.1%}"
            if x["largest_slope"] > 0.01:
                words = f"not determined by these rows (+- {x['deviation']:.2f})"
        lines.append(f"{name:28} {words}")
    for name, x in found["errors"].items():
        if x["rows"]:
            lines.append(
                f"{name.replace('_', ' ')}: {x['rows']} rows, mean error {x['before']:.1%} before, "
                f"{x['after']:.1%} after"
            )
    return "\n".join(lines)


def main() -> None:
    """Print the table, or the fit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="of pyfa-rocm first-day")
    parser.add_argument(
        "--fit", action="store_true", help="find the constants of the clock that the rows determine"
    )
    parser.add_argument(
        "--rows", type=int, default=12, metavar="N", help="with --fit: of so many rows (default: 12)"
    )
    parser.add_argument("--noise", type=float, default=0.03, metavar="X", help="default: 0.03")
    parser.add_argument("--constants", metavar="NAME,...", help="with --fit: only these (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON object, and nothing else")
    args = parser.parse_args()
    if args.rows < 1 or not args.noise > 0:
        parser.error("--rows and --noise: expected numbers above 0")
    document = json.loads(args.file.read_text())
    rows = list(rows_of(document))
    if not rows:
        parser.error(f"{args.file} has no time that was measured on a card")
    if not args.fit:
        print(
            json.dumps([vars(row) | {"ratio": row.ratio} for row in rows], indent=2)
            if args.json
            else table(rows)
        )
        return
    os.environ.setdefault("FMHA_EMU_ARCH", document["identity"]["arch"])
    step = max(1, len(rows) // args.rows)
    names = tuple(args.constants.split(",")) if args.constants else None
    found = fitted(rows[::step][: args.rows], Clock(names), args.noise)
    print(json.dumps(found, indent=2) if args.json else fit_text(found))


if __name__ == "__main__":
    sys.exit(main())
