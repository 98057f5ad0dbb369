# SPDX-License-Identifier: MIT OR Apache-2.0
"""bench --model --against: published measurements, and the clock's word on them and on our kernels.

Options of `bench` that say which lengths, head dims, masks and directions choose among the published rows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tqdm import tqdm

from pyfa_rocm.cli import bench_model_text, judge_clock
from pyfa_rocm.cli.clock import Estimate, estimate
from pyfa_rocm.cli.clock_subjects import CompositeKernel, Ours, Subject
from pyfa_rocm.cli.published import Point, Shape, points, sources
from pyfa_rocm.cli.trial import to_json
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError

__all__ = ["Clock", "chosen", "judge", "ours_over_aiter", "run"]

# Where ours is held against AITER's: batch, heads, key heads, seqlen, hdim, causal.
RACES = (Shape(4, 64, 8, 8192, 128, False), Shape(8, 32, 8, 8192, 128, True))
# AITER's kernels that round P to the nearest, as ours do.
TO_NEAREST = ("aiter rtna", "aiter rtne")
# moonmath's column: its default.
MOONMATH = "moonmath rtne"


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
        if (args.seqlens is None or point.shape.seqlen in args.seqlens)
        and point.shape.hdim in args.hdims
        and point.shape.causal in masks
        and args.direction in (point.direction, "both")
    ]
    if not found:
        raise InvalidArgumentError("--against: no published row has these lengths, head dims and masks")
    return found


class Clock:
    """Estimates by subject, shape and direction, each made once."""

    def __init__(self, ways: Mapping[str, Subject]) -> None:
        self._ways = ways
        self._known: dict[tuple[str, Shape, str], Estimate | None] = {}

    def __call__(self, name: str, shape: Shape, direction: str = "forward") -> Estimate | None:
        """Return an estimate; None if there is no such subject here, or it cannot."""
        key = name, shape, direction
        if key not in self._known:
            try:
                way = self._ways.get(name)
                self._known[key] = None if way is None else estimate(way, shape, direction)
            except UnsupportedError:
                self._known[key] = None
        return self._known[key]


def ours_over_aiter(clock: Callable[[str, Shape], Estimate | None]) -> float | None:
    """Return how many times as fast ours is as AITER's best kernel that rounds to nearest.

    The low end of the range: the lower of both ends of the constants, which are the same for both kernels,
    and of the two problems of RACES. None without AITER's objects.
    """
    ratios: list[float] = []
    for shape in RACES:
        ours = clock(Ours.name, shape)
        theirs = [found for name in TO_NEAREST if (found := clock(name, shape)) is not None]
        if ours is None or not theirs:
            return None
        ratios.append(min(found.seconds.low for found in theirs) / ours.seconds.low)
        ratios.append(min(found.seconds.high for found in theirs) / ours.seconds.high)
    return min(ratios)


def judge(wanted: list[Point], clock: Clock) -> Iterator[judge_clock.Judged]:
    """Time each point's problem by the subject that it measures."""
    for point in tqdm(wanted, unit="row", file=sys.stderr, leave=False):
        name = judge_clock.subject_name(point)
        found = clock(name, point.shape, point.direction)
        yield judge_clock.Judged(point, found, "" if found else f"there is no {name} here")


def _row(judged: judge_clock.Judged, clock: Clock) -> dict[str, Any]:
    """Return a row of the table: published, its model, ours, CK's, and moonmath's where it is."""
    point = judged.point
    row = judged.as_json() | {"problem": str(point.shape), "measures": judge_clock.subject_name(point)}
    for key, name in (("ours", Ours.name), ("ck", CompositeKernel.name), ("moonmath", MOONMATH)):
        found = clock(name, point.shape, point.direction)
        row[key] = None if found is None else found.as_json()
    return row


def run(args: argparse.Namespace, ways: Mapping[str, Subject]) -> int:
    """Model and print; 0 if something could be compared, else 1."""
    clock = Clock(ways)
    judged = []
    rows = []
    for found in judge(chosen(args), clock):
        judged.append(found)
        rows.append(_row(found, clock))
    result = {
        "card": args.model,
        "kind": "model",
        "sources": sources(),
        "summary": {"ours_over_aiter": ours_over_aiter(clock)} | judge_clock.summary(judged),
        "rows": rows,
    }
    print(to_json(result) if args.json else bench_model_text.against(result))
    return 0 if any(row["modelled"] or row["ours"] for row in rows) else 1
