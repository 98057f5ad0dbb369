# SPDX-License-Identifier: MIT OR Apache-2.0
"""The forward selector's estimates, from the clock of the software device: costs of a key, starts, paces.

`--fit BUILD --times FILE` finds the numbers of FITTED: those with which the library's choices lose least over
the grid of choices.py, whose times FILE has. For that it builds the library in BUILD, which must have the
kernels that were timed, with numbers that are read from the environment; the build is as before after it.
It minimises `loss` below. `--write` puts them, with the date, into native/estimates.toml.

A pace is what a key costs a wave of another origin's kernel in time, in percent of what it costs a wave of
Composable Kernel's tile of 128 rows. `--paces` prints them, for the arch that is played (FMHA_EMU_ARCH), and
`--paces --write` puts them into native/archs.toml. The build must have the kernels.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

os.environ["PYFA_ROCM_DEVICE"] = "emulator"

from benchmarks.choices import Grid, Losses
from pyfa_rocm import fmha
from pyfa_rocm._call.backward import BwdParams
from pyfa_rocm._call.params import FwdParams
from pyfa_rocm.clock.estimate import estimate
from pyfa_rocm.clock.subjects import Ours
from pyfa_rocm.device import current_device, devices
from pyfa_rocm.oracle.params import candidates
from pyfa_rocm.oracle.problem import Problem

NATIVE = Path(__file__).parents[1] / "native"
SOURCE, ARCHS = NATIVE / "host" / "select" / "fwd.cc", NATIVE / "archs.toml"
ESTIMATES, TABLE = NATIVE / "estimates.toml", "forward"
PROGRAM = NATIVE / "tools" / "catalogue" / "estimates.py"
# Each is a multiple of its number.
FITTED = {"rows_of_a_key": 1, "rows_of_a_load": 1} | dict.fromkeys(
    ("latency", "start64", "start128", "start_of_many64", "start_of_many128"), 100
)
TRIALS = 1600  # of each width of a walk
WALKS = 5
# Without a mask, each beside the instance of Composable Kernel for the same head dim.
EXACT = "{}_exact"
PACES = {
    "aiter": (("{}_pad_aiter_rtna", "{}_pad_aiter"), 128),
    "pingpong64": (("{}_pad_pingpong",), 64),
    "pingpong128": (("{}_pad_pingpong",), 128),
}
SIMDS = 4
SEQLEN = 4096


class Named(Ours):
    """The library's kernel of a name, or of the first of some that it has."""

    def __init__(self, *names: str) -> None:
        self.name, self.names = names[0], names
        self.info: fmha.KernelInfo | None = None

    def choose(self, params: FwdParams | BwdParams, info: object) -> None:
        """See Ours."""
        del info
        assert isinstance(params, FwdParams)
        for self.info in candidates(params, fmha.fmha_fwd_kernel):
            if self.info.name in self.names:
                return
        raise SystemExit(f"this build has no kernel {self.name}: build another set of kernels")


def seconds_of_a_key(hdim: int, *names: str) -> float:
    """Time a kernel; return the time that a key costs a wave."""
    shape = Problem(8, 32, 32, SEQLEN, hdim, False)
    way = Named(*(name.format(f"fmha_fwd_bf16_d{hdim}") for name in names))
    found = estimate(way, shape)
    assert way.info is not None
    x, y, z = way.info.grid
    waves = x * y * z * way.info.block_size // 64
    units = list(devices())[current_device()].compute_units
    return found.middle_seconds * units * SIMDS / (waves * SEQLEN)


def paces() -> dict[str, int]:
    """Return the paces in percent, rounded."""
    return {
        name: round(100 * seconds_of_a_key(hdim, *kernels) / seconds_of_a_key(hdim, EXACT))
        for name, (kernels, hdim) in PACES.items()
    }


def build_to_fit(build: Path) -> Path:
    """Build the library with numbers from the environment; return its path, under a name of its own."""
    text = SOURCE.read_text()
    header = build / "generated" / "host" / "catalogue" / "estimates.h"
    estimates = [sys.executable, *map(str, (PROGRAM, ESTIMATES)), "--out", str(header)]
    try:
        # A cost that is kept with each kernel otherwise.
        SOURCE.write_text(text.replace("e.round_cost", "round_cost_of(*e.kernel)"))
        subprocess.run([*estimates, "--from-environment", TABLE], check=True)
        subprocess.run(["cmake", "--build", build, "--target", "fmha_rocm"], check=True, stdout=sys.stderr)
        copy = build / "libfmha_rocm_fit.so"
        shutil.copy(build / "libfmha_rocm.so", copy)
        return copy
    finally:
        SOURCE.write_text(text)
        subprocess.run(estimates, check=True)


def loss(found: dict[str, Losses]) -> float:
    """Return what a fit makes least, in percent: the mean loss, and what hurts most.

    That is a hundredth of the largest loss, and what the choices lose to Composable Kernel's kernels at both
    ends of the clock's range, added up.
    """
    worst = [x.worst for x in found.values()]
    sure = sum(max(x.sure - 1, 0.0) for x in found.values())
    return 100 * (sum(worst) / len(worst) - 1) + max(worst) - 1 + sure


def fit(times: Path) -> dict[str, int]:
    """Return the best numbers of some random walks from those in use; they are the same each time.

    A few hundred choices leave equally good ones; those that moved least are taken.
    """
    numbers = {
        name: int(number)
        for name, number in re.findall(r"(?m)^(\w+) = (\d+)", table_of(ESTIMATES.read_text()))
    }
    put_into_environment(numbers)
    grid = Grid(json.loads(times.read_text()))

    def judged(values: dict[str, int]) -> float:
        put_into_environment(values)
        return round(loss(grid.losses()), 6)

    first = {name: numbers[name] for name in FITTED}
    print(f"{first}: {judged(first):.3f}", file=sys.stderr)
    found = [walk(random.Random(seed), first, judged) for seed in range(WALKS)]
    return min(found, key=lambda values: (judged(values), moved(first, values)))


def put_into_environment(numbers: dict[str, int]) -> None:
    """Have the library that `build_to_fit` built use these numbers."""
    os.environ.update({f"{TABLE}.{name}": str(number) for name, number in numbers.items()})


def moved(first: dict[str, int], values: dict[str, int]) -> float:
    """Return how far constants are from the first ones, as the sum of the logarithms of their ratios."""
    return sum(abs(math.log(values[name] / first[name])) for name in first)


def walk(
    rng: random.Random, first: dict[str, int], judged: Callable[[dict[str, int]], float]
) -> dict[str, int]:
    """Return the best constants of a random walk."""
    best, least = first, judged(first)
    for step in (0.8, 0.4, 0.2, 0.1):
        for _ in range(TRIALS):
            some = rng.sample([*FITTED], rng.randint(1, len(FITTED)))
            # All by one factor, and each of some by one of its own.
            together = rng.gauss(0, step)
            new = {
                name: best[name] * math.exp(together + (rng.gauss(0, step) if name in some else 0))
                for name in FITTED
            }
            values = {name: max(1, round(new[name] / unit)) * unit for name, unit in FITTED.items()}
            if (now := judged(values)) < least:
                best, least = values, now
    print(f"{best}: {least:.3f}", file=sys.stderr)
    return best


def table_of(text: str) -> str:
    """Return the part of estimates.toml that is fitted."""
    return text.partition(f"\n[{TABLE}]\n")[2].partition("\n\n")[0]


def written(text: str, values: dict[str, int], date: str) -> str:
    """Return the text of estimates.toml with these numbers, and the date before them."""
    old = table_of(text)
    table = re.sub(r"# By benchmarks/selector\.py, [0-9-]+\.", f"# By benchmarks/selector.py, {date}.", old)
    for name, value in values.items():
        table, count = re.subn(rf"(?m)^{name} = \d+", f"{name} = {value}", table)
        if count != 1:
            raise SystemExit(f"{ESTIMATES}: expected one line that gives {name} in [{TABLE}], got {count}")
    return text.replace(old, table)


def write_paces(arch: str, values: dict[str, int], date: str) -> None:
    """Replace an arch's paces, and the line before them that says when."""
    table = ", ".join(f"{name} = {value}" for name, value in values.items())
    old = (
        r"# By benchmarks/selector\.py, [0-9-]+\.\nfwd_paces = \{.*?(, short64.*)?\}\n"
        rf"(?=\n\[{arch}\.unit\])"
    )
    new = rf"# By benchmarks/selector.py, {date}.\nfwd_paces = {{{table}\g<1>}}\n"
    text, count = re.subn(old, new, ARCHS.read_text())
    if count != 1:
        raise SystemExit(f"{ARCHS}: expected one line of fwd_paces before [{arch}.unit], got {count}")
    ARCHS.write_text(text)


def main() -> None:
    """Print the constants, or write them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--fit", type=Path, metavar="BUILD", help="find the constants of the estimate")
    what.add_argument("--paces", action="store_true", help="of kernels that are not Composable Kernel's")
    parser.add_argument("--times", type=Path, metavar="FILE", help="with --fit: of choices.py --json")
    parser.add_argument("--write", action="store_true", help="into the sources")
    args = parser.parse_args()
    if args.fit:
        if not args.times:
            parser.error("--fit needs --times")
        os.environ["PYFA_ROCM_LIBRARY"] = str(build_to_fit(args.fit))
    values, date = paces() if args.paces else fit(args.times), datetime.date.today().isoformat()
    for name, value in values.items():
        print(f"{name} = {value}")
    if args.write and args.paces:
        write_paces(list(devices())[current_device()].arch, values, date)
    elif args.write:
        ESTIMATES.write_text(written(ESTIMATES.read_text(), values, date))


if __name__ == "__main__":
    main()
