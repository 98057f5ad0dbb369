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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np

os.environ["PYFA_ROCM_DEVICE"] = "emulator"

from pyfa_rocm import fmha
from pyfa_rocm._call.backward import BwdParams
from pyfa_rocm._call.params import FwdParams
from pyfa_rocm.array import DeviceArray
from pyfa_rocm.clock.estimate import estimate
from pyfa_rocm.clock.subjects import Enqueue, Ours, ProblemArrays
from pyfa_rocm.oracle.problem import Problem

# Row tiles of 128 from which short tiles are not timed: each unit of an MI300X has one, or several.
MOST_TILES = {"m16": 304, "m64": 2432}
COMPOSABLE = ("ck", "m64", "m16")
UNTIMED = 2.0  # what such a choice counts as
NO_MEMORY_CHECK = 1  # FMHA_NO_MEMORY_CHECK
SEQLENS = (128, 256, 512, 1024, 2048, 4096, 8192)
HEADS = (1, 4, 16, 64, 256)


@dataclass(frozen=True)
class Case:
    """A forward pass.

    Attributes
    ----------
    heads, group : int
        Query heads of all batches, and how many share a key head. Up to 16 heads are of one batch.
    mask : str
        "none", "causal" or "window", of 256 keys to the left.
    packed : bool
        Sequences of one length, by cu_seqlens.
    """

    dtype: str
    hdim: int
    mask: str
    heads: int
    seqlen: int
    group: int = 1
    packed: bool = False

    def __str__(self) -> str:
        """Return a key of the results."""
        packed = " packed" if self.packed else ""
        return f"{self.dtype} d{self.hdim} {self.mask} {self.heads}x{self.seqlen} /{self.group}{packed}"

    @property
    def nhead(self) -> int:
        """Heads of a batch."""
        return min(self.heads, 16)

    @property
    def tiles(self) -> int:
        """Row tiles of 128."""
        return self.heads * -(-self.seqlen // 128)


def grid() -> Iterator[Case]:
    """Return the problems: all of bfloat16; a part in fp16, with grouped heads, and packed."""
    for hdim, mask, heads, seqlen in product((128, 64), ("none", "causal"), HEADS, SEQLENS):
        yield Case("bfloat16", hdim, mask, heads, seqlen)
    for hdim, heads, seqlen in product((128, 64), HEADS, (512, 2048, 8192)):
        yield Case("bfloat16", hdim, "window", heads, seqlen)
    for hdim, heads, seqlen in product((128, 64), (4, 64), (512, 2048)):
        yield Case("float16", hdim, "window", heads, seqlen)
    for hdim, mask, heads, seqlen in product((128, 64), ("none", "causal"), (4, 64), (256, 1024, 4096)):
        yield Case("float16", hdim, mask, heads, seqlen)
        yield Case("bfloat16", hdim, mask, heads, seqlen, packed=True)
        yield Case("bfloat16", hdim, mask, heads, seqlen, group=4)
    for mask, heads in product(("none", "causal"), (1, 16)):
        yield Case("bfloat16", 128, mask, heads, 16384)


class Arrays(ProblemArrays):
    """A problem's arrays and parameters."""

    def __init__(self, problem: Case) -> None:
        self.problem = problem
        p = problem
        self.batch = p.heads // p.nhead
        rows = p.seqlen * (self.batch if p.packed else 1)
        shape = Problem(
            *(1 if p.packed else self.batch, p.nhead, p.nhead // p.group, rows, p.hdim),
            p.mask == "causal",
            p.dtype,
        )
        super().__init__(shape)
        starts = np.arange(self.batch + 1, dtype=np.int32) * p.seqlen
        self.starts = DeviceArray.from_numpy(starts) if p.packed else None

    def params(self) -> FwdParams:
        """Describe it to the library."""
        params, p = super().params(), self.problem
        params.mask = p.mask
        if p.mask == "window":
            params.window_left, params.window_right = 256, 0
        if self.starts is not None:
            params.batch, params.seqlen_q, params.seqlen_k = self.batch, p.seqlen, p.seqlen
            params.cu_seqlens_q = params.cu_seqlens_k = self.starts.data
            params.total_q = params.total_k = self.batch * p.seqlen
        return params


class Way(Ours):
    """The n-th candidate; 0: the library's choice."""

    def __init__(self, problem: Case, number: int) -> None:
        self.problem, self.number = problem, number
        self.name = str(number)

    def choose(self, params: FwdParams | BwdParams, info: object) -> None:
        """See Ours."""
        del info
        params.kernel = self.number

    @contextmanager
    def prepare(self, shape: Problem, direction: str) -> Iterator[Enqueue]:
        """See Subject."""
        del shape, direction
        arrays = Arrays(self.problem)
        yield self._forward(arrays)


def kind_of(name: str) -> str:
    """Return the kind of a kernel by its name."""
    for kind in ("pingpong", "aiter", "m64", "m16"):
        if kind in name:
            return kind
    return "ck"


def candidates(params: FwdParams) -> dict[str, int]:
    """Return the first candidate of each kind; the library's choice is the first of all."""
    params.kernel = 1
    found: dict[str, int] = {}
    for number in range(1, fmha.fmha_fwd_kernel(params).candidate_count + 1):
        params.kernel = number
        found.setdefault(kind_of(fmha.fmha_fwd_kernel(params).name), number)
    return found


def times(problem: Case, known: dict[str, list[float]]) -> dict[str, list[float]]:
    """Time each kind that is not known yet: seconds at the fast end and at the slow end of the range."""
    found = dict(known)
    for kind, number in candidates(Arrays(problem).params()).items():
        if kind in found or problem.tiles > MOST_TILES.get(kind, problem.tiles):
            continue
        seconds = estimate(
            Way(problem, number), Problem(1, 1, 1, problem.seqlen, problem.hdim, False)
        ).seconds
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
        for problem in grid():
            if str(problem) in times:
                params = Arrays(problem).params()
                # The first candidate is the choice of a caller that has a workspace. The memory is gone.
                params.kernel, params.flags = 1, NO_MEMORY_CHECK
                self.params[str(problem)] = params

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
    problems = [p for p in grid() if not args.only or str(p) in args.only]
    if args.only and (unknown := set(args.only) - {str(p) for p in problems}):
        parser.error(f"--only: the grid has no {', '.join(sorted(unknown))}")
    for problem in [] if args.judge else problems[index::count]:
        kept[str(problem)] = times(problem, kept.get(str(problem), {}))
        args.json.write_text(json.dumps(kept))
    found = Grid(kept).losses()
    if args.results:
        names = args.only or found
        print(json.dumps({name: asdict(found[name]) for name in names}))
    else:
        summary(found)


if __name__ == "__main__":
    main()
