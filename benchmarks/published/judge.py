# SPDX-License-Identifier: MIT OR Apache-2.0
"""How far the clock is from published measurements.

The middle of the clock's range is compared with the time published; an error is how much it is off, as a
fraction of the time published. Cards and ways to measure differ as much: of AITER's kernel at one shape
(batch 1, 64 heads, 16384, no mask) the sources say 548 and 502 TFLOPS.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.published.points import Point
from pyfa_rocm import emulator
from pyfa_rocm.clock.estimate import Estimate
from pyfa_rocm.clock.subjects import ROUNDINGS
from pyfa_rocm.emulator import Range

__all__ = ["MIN_SEQLEN", "Judged", "errors_of_cards", "orders", "subject_name", "summary"]

# Below, starting kernels weighs more than running them.
MIN_SEQLEN = 2048
# From here on next to no compute unit idles.
LONG = 8192
HAND_WRITTEN = ("aiter", "moonmath")


@dataclass(frozen=True)
class Judged:
    """A point and what the clock says of it; `estimate` is None, with a reason, if nothing could run."""

    point: Point
    estimate: Estimate | None
    reason: str

    @property
    def seconds(self) -> Range | None:
        """Return the clock's time for what the source timed: the kernel, and a copy at HBM's bandwidth."""
        if self.estimate is None or not self.point.copied_bytes:
            return None if self.estimate is None else self.estimate.seconds
        bandwidth = emulator.timing_constants()["hbm_bandwidth"]
        kernel, copied = self.estimate.seconds, self.point.copied_bytes
        return Range(kernel.low + copied / bandwidth["fast"], kernel.high + copied / bandwidth["slow"])

    @property
    def error(self) -> float | None:
        """Return how much the time is off, as a fraction of that published: below 0, it is too short."""
        seconds = self.seconds
        return None if seconds is None else (seconds.low + seconds.high) / 2 / self.point.seconds - 1

    @property
    def within(self) -> bool:
        """Tell whether the published time lies in the clock's range."""
        seconds = self.seconds
        return seconds is not None and seconds.low <= self.point.seconds <= seconds.high

    def counter_error(self, name: str) -> float | None:
        """Return how much the use of the "matrix" cores or of "lds" is off, as a fraction of that counted."""
        counted = {"matrix": self.point.matrix_busy, "lds": self.point.lds_busy}[name]
        return None if self.estimate is None or counted is None else self.estimate.binds[name] / counted - 1

    def as_json(self) -> dict[str, Any]:
        """Return it for a JSON object."""
        point = vars(self.point) | {"shape": self.point.shape.as_json()}
        modelled = None if self.estimate is None else self.estimate.as_json()
        errors = {"error": self.error, "within": self.within}
        return point | {"modelled": modelled, "reason": self.reason} | errors


def subject_name(point: Point) -> str:
    """Return the name of the subject that a point measures."""
    if point.direction == "backward":
        return f"{point.implementation} backward {point.rounding}"
    return f"{point.implementation} {point.rounding}".strip()


def errors_of_cards(judged: list[Judged]) -> list[float | None]:
    """Return each row's error with the times of its source's card, in the order of the rows.

    The clock's times are multiplied by one factor for a source and family of kernels: that which makes its
    row of calibration right. None where that row, or the row itself, did not run.
    """
    factors = {
        _family(row.point): 1 / (1 + row.error)
        for row in judged
        if row.error is not None and row.point.role == "calibration"
    }
    found: list[float | None] = []
    for row in judged:
        factor = factors.get(_family(row.point))
        found.append(None if factor is None or row.error is None else (1 + row.error) * factor - 1)
    return found


def _family(point: Point) -> tuple[str, str, str, str]:
    return point.card, point.source, point.implementation, point.direction


def orders(judged: Iterable[Judged]) -> list[tuple[str, bool]]:
    """Say of each problem that was published with several roundings whether the clock has their order."""
    groups: dict[tuple[str, str, str], dict[str, Judged]] = {}
    for row in judged:
        point = row.point
        if point.rounding in ROUNDINGS and row.estimate is not None:
            key = (point.source, point.implementation, str(point.shape))
            groups.setdefault(key, {})[point.rounding] = row
    found = []
    for (_, implementation, shape), rows in groups.items():
        if len(rows) < 2:
            continue
        by_model = sorted(rows, key=lambda name: rows[name].estimate.middle_seconds)  # type: ignore[union-attr]
        by_card = sorted(rows, key=lambda name: rows[name].point.seconds)
        found.append((f"{implementation} {shape}", by_model == by_card))
    return found


def _bias(errors: Iterable[float | None]) -> float | None:
    """Return the mean with signs: below 0, the clock is too fast."""
    values = [error for error in errors if error is not None]
    return statistics.fmean(values) if values else None


def _mean(errors: Iterable[float | None]) -> float | None:
    return _bias(None if error is None else abs(error) for error in errors)


def summary(judged: list[Judged]) -> dict[str, Any]:
    """Return mean errors over the rows held out, from MIN_SEQLEN on, and how many rows they are of.

    Returns
    -------
    dict
        "held_out_error": mean of hand-written forward kernels; "held_out_error_of_card": the same with one
        factor for each source's card (`errors_of_cards`); "held_out_bias": the mean with signs;
        "held_out_rows", and "held_out_within": how many of them lie in the clock's range.
        "ck_error", "ck_rows": the largest of Composable Kernel's. "backward_error", "backward_bias",
        "backward_rows": the same of hand-written backward kernels with float32 sums, and with "a16_" in
        front, of those that add up in 16 bits.
        "matrix_error", "lds_error": mean by which the use of matrix cores and LDS is off from the counters,
        which also count compute units that idle; "matrix_error_of_long", "lds_error_of_long": the same from
        LONG on, where next to none do. "orders",
        "orders_right": problems published with several roundings that run here, and those whose order the
        clock has.
    """
    held_out = [
        row
        for row in judged
        if row.point.role == "held_out" and row.point.shape.seqlen >= MIN_SEQLEN and row.estimate is not None
    ]
    forward = [row for row in held_out if row.point.direction == "forward"]
    hand = [row for row in forward if row.point.implementation in HAND_WRITTEN]
    backward = {
        kind: [row for row in held_out if row.point.rounding.startswith(kind)] for kind in ("a32", "a16")
    }
    ck = [row for row in forward if row.point.implementation == "ck"]
    right = [is_right for _, is_right in orders(judged)]
    long = [row for row in forward if row.point.shape.seqlen >= LONG]
    of_card = [
        error
        for row, error in zip(judged, errors_of_cards(judged), strict=True)
        if any(row is x for x in hand)
    ]
    return {
        "held_out_error": _mean(row.error for row in hand),
        "held_out_error_of_card": _mean(of_card),
        "held_out_bias": _bias(row.error for row in hand),
        "held_out_rows": len(hand),
        "held_out_within": sum(row.within for row in hand),
        "ck_error": max((abs(row.error or 0) for row in ck), default=None),
        "ck_rows": len(ck),
        "backward_error": _mean(row.error for row in backward["a32"]),
        "backward_bias": _bias(row.error for row in backward["a32"]),
        "backward_rows": len(backward["a32"]),
        "a16_backward_error": _mean(row.error for row in backward["a16"]),
        "a16_backward_bias": _bias(row.error for row in backward["a16"]),
        "a16_backward_rows": len(backward["a16"]),
        "matrix_error": _mean(row.counter_error("matrix") for row in forward),
        "lds_error": _mean(row.counter_error("lds") for row in forward),
        "matrix_error_of_long": _mean(row.counter_error("matrix") for row in long),
        "lds_error_of_long": _mean(row.counter_error("lds") for row in long),
        "orders_right": sum(right),
        "orders": len(right),
    }
