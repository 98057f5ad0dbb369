# SPDX-License-Identifier: MIT OR Apache-2.0
"""The library's choice of a forward kernel beside the others that could do the problem, by the clock.

Over a grid of problems, each kind of kernel is timed: Composable Kernel's tiles of 128, 64 and 16 rows,
AITER's and our own. `--json FILE` keeps the times, and goes on where an earlier run was cut off; the table is
made of them. `--judge` times nothing, and asks the library at hand for its choices again: so a change of the
selector can be judged by one set of times. The build must have the kernels of `FMHA_KERNEL_SET=default` whose
names have no bias, softcap or dropout.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

os.environ["PYFA_ROCM_DEVICE"] = "emulator"

from pyfa_rocm import fmha
from pyfa_rocm._call.backward import BwdParams
from pyfa_rocm._call.params import FwdParams
from pyfa_rocm.clock.estimate import estimate
from pyfa_rocm.clock.subjects import Ours, ProblemArrays
from pyfa_rocm.oracle.params import candidates
from pyfa_rocm.oracle.problem import Problem

# Row tiles of 128 from which short tiles are not timed: each unit of an MI300X has one, or several.
MOST_TILES = {"m16": 304, "m64": 2432}
COMPOSABLE = ("ck", "m64", "m16")
UNTIMED = 2.0  # what such a choice counts as
NO_MEMORY_CHECK = 1  # FMHA_NO_MEMORY_CHECK
SEQLENS = (128, 256, 512, 1024, 2048, 4096, 8192)
HEADS = (1, 4, 16, 64, 256)


def case(
    dtype: str, hdim: int, mask: str, heads: int, seqlen: int, group: int = 1, packed: bool = False
) -> tuple[str, Problem]:
    """Return a forward pass, and its key in the results.

    `heads` are the query heads of all batches, up to 16 of them of one batch, and `group` how many share a
    key head. A window is of 256 keys to the left. Packed sequences have one length.
    """
    batch = -(-heads // 16)
    nhead = heads // batch
    problem = Problem(batch, nhead, nhead // group, seqlen, hdim, mask == "causal", dtype)
    if mask == "window":
        problem = replace(problem, window_size=(256, 0))
    if packed:
        problem = replace(problem, batch=1, seqlen=batch * seqlen, lengths=(seqlen,) * batch)
    return f"{dtype} d{hdim} {mask} {heads}x{seqlen} /{group}{' packed' if packed else ''}", problem


def grid() -> dict[str, Problem]:
    """Return the problems: all of bfloat16; a part in fp16, with grouped heads, and packed."""
    cases = [
        case("bfloat16", hdim, mask, heads, seqlen)
        for hdim, mask, heads, seqlen in product((128, 64), ("none", "causal"), HEADS, SEQLENS)
    ]
    for hdim, heads, seqlen in product((128, 64), HEADS, (512, 2048, 8192)):
        cases.append(case("bfloat16", hdim, "window", heads, seqlen))
    for hdim, heads, seqlen in product((128, 64), (4, 64), (512, 2048)):
        cases.append(case("float16", hdim, "window", heads, seqlen))
    for hdim, mask, heads, seqlen in product((128, 64), ("none", "causal"), (4, 64), (256, 1024, 4096)):
        cases.append(case("float16", hdim, mask, heads, seqlen))
        cases.append(case("bfloat16", hdim, mask, heads, seqlen, packed=True))
        cases.append(case("bfloat16", hdim, mask, heads, seqlen, group=4))
    for mask, heads in product(("none", "causal"), (1, 16)):
        cases.append(case("bfloat16", 128, mask, heads, 16384))
    return dict(cases)


class Way(Ours):
    """The n-th candidate; 0: the library's choice."""

    def __init__(self, number: int) -> None:
        self.number, self.name = number, str(number)

    def choose(self, params: FwdParams | BwdParams, info: object) -> None:
        """See Ours."""
        del info
        params.kernel = self.number


def kind_of(name: str) -> str:
    """Return the kind of a kernel by its name."""
    for kind in ("pingpong", "aiter", "m64", "m16"):
        if kind in name:
            return kind
    return "ck"


def first_of_each_kind(params: FwdParams) -> dict[str, int]:
    """Return the first candidate of each kind; the library's choice is the first of all."""
    found: dict[str, int] = {}
    for kernel in candidates(params, fmha.fmha_fwd_kernel):
        found.setdefault(kind_of(kernel.name), params.kernel)
    return found


def times(problem: Problem, known: dict[str, list[float]]) -> dict[str, list[float]]:
    """Time each kind that is not known yet: seconds at the fast end and at the slow end of the range."""
    found = dict(known)
    tiles = problem.batch * problem.nhead_q * -(-problem.seqlen // 128)
    for kind, number in first_of_each_kind(ProblemArrays(problem).params()).items():
        if kind in found or tiles > MOST_TILES.get(kind, tiles):
            continue
        seconds = estimate(Way(number), problem).seconds
        found[kind] = [seconds.low, seconds.high]
    return found


@dataclass(frozen=True)
class Losses:
    """How many times as long the library's choice takes as others: at least 1.

    Attributes
    ----------
    chosen, best : str
        Kinds: the library's choice, and the one of the least time in the middle of the range.
    worst : float
        As the best, in the middle of the range.
    sure : float
        As one of Composable Kernel's: at both ends of the range it takes as many times as long, or longer.
    """

    chosen: str
    best: str
    worst: float
    sure: float


def losses(chosen: str, seconds: dict[str, list[float]]) -> Losses:
    """Compare a choice with the kinds that were timed; one that was not is no choice for its problem."""
    best = min(seconds, key=lambda kind: sum(seconds[kind]))
    if chosen not in seconds:
        return Losses(chosen, best, UNTIMED, UNTIMED)
    low, high = seconds[chosen]
    sure = [min(low / seconds[kind][0], high / seconds[kind][1]) for kind in COMPOSABLE if kind in seconds]
    return Losses(chosen, best, (low + high) / sum(seconds[best]), max([1.0, *sure]))


class Grid:
    """The problems whose times are known, ready to ask the library for its choices."""

    def __init__(self, times: dict[str, dict[str, list[float]]]) -> None:
        self.times = times
        self.params: dict[str, FwdParams] = {}
        for name, problem in grid().items():
            if name in times:
                params = ProblemArrays(problem).params()
                # The first candidate is the choice of a caller that has a workspace. The memory is gone.
                params.kernel, params.flags = 1, NO_MEMORY_CHECK
                self.params[name] = params

    def losses(self) -> dict[str, Losses]:
        """Return those of each problem."""
        return {
            name: losses(kind_of(fmha.fmha_fwd_kernel(params).name), self.times[name])
            for name, params in self.params.items()
        }


def summary(found: dict[str, Losses]) -> None:
    """Print what loses more than 1 %, and how many do."""
    for name, x in sorted(found.items(), key=lambda item: -item[1].worst):
        if x.worst > 1.01 or x.sure > 1:
            print(
                f"{name:44} {x.chosen:9} best {x.best:9} {x.worst:6.3f}  surely slower than CK {x.sure:6.3f}"
            )
    worst = [x.worst for x in found.values()]
    print(f"{len(worst)} problems: mean {np.mean(worst):.4f}, largest {max(worst):.3f}")
    print(f"at most 1.02: {sum(value <= 1.02 for value in worst)}")
    sure = [x.sure for x in found.values() if x.sure > 1]
    print(f"slower than Composable Kernel's at both ends: {len(sure)}, at most {max([1.0, *sure]):.3f}")


def main() -> None:
    """Time what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", required=True, help="where the times are kept")
    parser.add_argument("--judge", action="store_true", help="only problems whose times are kept")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="each N-th problem, from the I-th on")
    parser.add_argument("--only", nargs="+", metavar="PROBLEM", help="these, by their names in the table")
    parser.add_argument("--results", action="store_true", help="print one JSON object, and nothing else")
    args = parser.parse_args()
    kept = json.loads(args.json.read_text()) if args.json.exists() else {}
    index, count = map(int, args.part.split("/"))
    problems = {name: p for name, p in grid().items() if not args.only or name in args.only}
    if args.only and (unknown := set(args.only) - problems.keys()):
        parser.error(f"--only: the grid has no {', '.join(sorted(unknown))}")
    for name in [] if args.judge else list(problems)[index::count]:
        kept[name] = times(problems[name], kept.get(name, {}))
        args.json.write_text(json.dumps(kept))
    found = Grid(kept).losses()
    if args.results:
        names = args.only or found
        print(json.dumps({name: asdict(found[name]) for name in names}))
    else:
        summary(found)


if __name__ == "__main__":
    main()
