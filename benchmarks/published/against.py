# SPDX-License-Identifier: MIT OR Apache-2.0
"""bench --model --against: published measurements of a card, and the clock's word on them and on our kernels.

Options of `bench` that say which lengths, head dims, masks and directions choose among the published rows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tqdm import tqdm

from benchmarks.published import against_text
from benchmarks.published import judge as judge_clock
from benchmarks.published.points import Point, cards, points, sources
from pyfa_rocm.clock.estimate import Estimate, estimate
from pyfa_rocm.clock.subjects import CompositeKernel, Ours, Subject
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError
from pyfa_rocm.oracle.problem import Problem
from pyfa_rocm.oracle.trial import to_json

__all__ = ["Clock", "check", "chosen", "judge", "ours_over_aiter", "run"]

# Where ours is held against AITER's: batch, heads, key heads, seqlen, hdim, causal.
RACES = (Problem(4, 64, 8, 8192, 128, False), Problem(8, 32, 8, 8192, 128, True))
# AITER's kernels that round P to the nearest, as ours do: two for an MI300X, one for an MI355X.
TO_NEAREST = ("aiter rtna", "aiter rtne", "aiter")


def check(card: str) -> None:
    """Raise unless there are points of a card.

    Raises
    ------
    InvalidArgumentError
        There are none.
    """
    if card not in cards():
        known = ", ".join(cards())
        raise InvalidArgumentError(
            f"--against: got --model {card}, expected a card with published points: {known}"
        )


def chosen(args: argparse.Namespace) -> list[Point]:
    """Return the published rows that the options ask for.

    Raises
    ------
    InvalidArgumentError
        There is none.
    """
    masks = {"yes": (True,), "no": (False,), "both": (False, True)}[args.causal]
    found = [
        point
        for point in points()
        if point.card == args.model
        and (args.seqlens is None or point.shape.seqlen in args.seqlens)
        and point.shape.hdim in args.hdims
        and point.shape.causal in masks
        and args.direction in (point.direction, "both")
    ]
    if not found:
        raise InvalidArgumentError(
            f"--against: no published row of {args.model} has these lengths, head dims and masks"
        )
    return found


class Clock:
    """Estimates by subject, shape and direction, each made once."""

    def __init__(self, ways: Mapping[str, Subject]) -> None:
        self._ways = ways
        self._known: dict[tuple[str, Problem, str], Estimate | str] = {}

    def __call__(self, name: str, shape: Problem, direction: str = "forward") -> Estimate | None:
        """Return an estimate; None if there is no such subject here, or it cannot."""
        found = self._find(name, shape, direction)
        return found if isinstance(found, Estimate) else None

    def reason(self, name: str, shape: Problem, direction: str = "forward") -> str:
        """Say why there is no estimate; "" if there is one."""
        found = self._find(name, shape, direction)
        return found if isinstance(found, str) else ""

    def _find(self, name: str, shape: Problem, direction: str) -> Estimate | str:
        key = name, shape, direction
        if key not in self._known:
            self._known[key] = self._estimate(name, shape, direction)
        return self._known[key]

    def _estimate(self, name: str, shape: Problem, direction: str) -> Estimate | str:
        if name not in self._ways:
            return f"there is no {name} here"
        try:
            return estimate(self._ways[name], shape, direction)
        except UnsupportedError as error:
            return str(error)


def ours_over_aiter(clock: Callable[[str, Problem], Estimate | None]) -> float | None:
    """Return how many times as fast ours is as AITER's best kernel that rounds to nearest.

    The low end of the range: the lower of both ends of the constants, which are the same for both kernels,
    and of the problems of RACES that a kernel of AITER's does here. None if it does neither.
    """
    ratios: list[float] = []
    for shape in RACES:
        ours = clock(Ours.name, shape)
        theirs = [found for name in TO_NEAREST if (found := clock(name, shape)) is not None]
        if ours is None or not theirs:
            continue
        ratios.append(min(found.seconds.low for found in theirs) / ours.seconds.low)
        ratios.append(min(found.seconds.high for found in theirs) / ours.seconds.high)
    return min(ratios, default=None)


def judge(wanted: list[Point], clock: Clock) -> Iterator[judge_clock.Judged]:
    """Time each point's problem by the subject that it measures."""
    for point in tqdm(wanted, unit="row", file=sys.stderr, leave=False):
        name = judge_clock.subject_name(point)
        found = clock(name, point.shape, point.direction)
        yield judge_clock.Judged(point, found, clock.reason(name, point.shape, point.direction))


def _row(judged: judge_clock.Judged, clock: Clock, columns: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return a row of the table. A column has the first of its subjects that does the problem."""
    point = judged.point
    row = judged.as_json() | {"problem": str(point.shape), "measures": judge_clock.subject_name(point)}
    row["columns"] = {}
    for key, names in columns.items():
        found = (clock(name, point.shape, point.direction) for name in names)
        first = next((each for each in found if each is not None), None)
        row["columns"][key] = None if first is None else first.as_json()
    return row


def run(
    args: argparse.Namespace, ways: Mapping[str, Subject], others: Mapping[str, list[Subject]] | None = None
) -> int:
    """Model and print, with a column for ours, Composable Kernel's and each of the others.

    Returns 0 if something could be compared, else 1.
    """
    others = others or {}
    columns = {"ours": [Ours.name], "ck": [CompositeKernel.name]}
    columns |= {key: [way.name for way in found] for key, found in others.items()}
    clock = Clock({**ways, **{way.name: way for found in others.values() for way in found}})
    judged = []
    rows = []
    for found in judge(chosen(args), clock):
        judged.append(found)
        rows.append(_row(found, clock, columns))
    named = {point.source for point in points() if point.card == args.model}
    result = {
        "card": args.model,
        "kind": "model",
        "sources": {name: about for name, about in sources().items() if name in named},
        "summary": {"ours_over_aiter": ours_over_aiter(clock)} | judge_clock.summary(judged),
        "rows": rows,
    }
    print(to_json(result) if args.json else against_text.table(result))
    return 0 if any(row["modelled"] or row["columns"]["ours"] for row in rows) else 1
