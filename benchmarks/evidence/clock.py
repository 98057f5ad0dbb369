# SPDX-License-Identifier: MIT OR Apache-2.0
"""The clock's word on the cards: rows of data/clock_CARD.json, judged by published times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.evidence import record
from benchmarks.published import judge
from benchmarks.published.points import points
from pyfa_rocm.clock.cards import CARDS
from pyfa_rocm.clock.estimate import Estimate
from pyfa_rocm.emulator import Range, Time

# 16-bit operations of a compute unit in a cycle: an MFMA of 32x32x8 in 32 cycles on each of four SIMDs, and
# of 32x32x16; a WMMA of 16x16x16 in 32 and in 16 cycles on each of two.
FLOPS_A_CYCLE = {"mi300x": 2048, "mi355x": 4096, "rx7900xtx": 512, "rx9070xt": 1024}
# A row is timed anew to the last digits that the clock rounds, or the kernel or the clock has changed.
SAME = 1e-6

Row = dict[str, Any]


def _estimate(row: Row) -> Estimate:
    """Return a recorded row as the clock gave it, as far as judging needs it."""
    low, high = row["seconds"]
    none = Range(0.0, 0.0)
    time = Time(row["name"], none, none, none, none, {}, 0, 0, 0, None)
    return Estimate(
        row["kernel"], none, Range(low, high), none, Range(*row["tflops"]), row["binds"], 1, longest=time
    )


def judged(card: str, rows: dict[str, Row]) -> list[judge.Judged]:
    """Return the published measurements of a card whose problems were timed."""
    found = []
    for point in points():
        key = record.key_of(judge.subject_name(point), point.direction, point.shape)
        row = rows.get(key)
        if point.card == card and row is not None and "seconds" in row:
            found.append(judge.Judged(point, _estimate(row), ""))
    return found


def _point(row: judge.Judged) -> Row:
    assert row.seconds is not None
    flops = row.point.shape.flops(row.point.direction)
    return {
        "source": row.point.source, "name": judge.subject_name(row.point), "problem": str(row.point.shape),
        "direction": row.point.direction, "seqlen": row.point.shape.seqlen, "role": row.point.role,
        "published": row.point.tflops, "error": row.error, "within": row.within,
        "tflops": [flops / row.seconds.high / 1e12, flops / row.seconds.low / 1e12],
    }  # fmt: skip


def _series(card: str, rows: dict[str, Row]) -> list[Row]:
    """Return the rows of the series, with their operations and the bytes that have to move once."""
    found = []
    for name, direction, shape in record.series(card):
        row = rows.get(record.key_of(name, direction, shape))
        if row is None or "seconds" not in row:
            continue
        tensors = shape.batch * shape.seqlen * shape.hdim * 2 * (2 * shape.nhead_q + 2 * shape.nhead_k)
        nbytes = tensors * (2 if direction == "backward" else 1)
        found.append(
            row
            | {"seqlen": shape.seqlen, "problem": str(shape), "intensity": shape.flops(direction) / nbytes}
        )
    return found


def _again(card: str, count: int) -> list[Row]:
    """Time the cheapest rows of the series once more, in a process whose device plays the card."""
    command = [sys.executable, "-m", record.__name__, "--again", str(count), "--cards", card]
    environment = {"PYFA_ROCM_DEVICE": "emulator", "FMHA_EMU_ARCH": record.ARCHS[card]}
    done = subprocess.run(
        command, check=True, cwd=record.ROOT, env=os.environ | environment, stdout=subprocess.PIPE, text=True
    )
    rows: list[Row] = json.loads(done.stdout)
    return rows


def _compare(before: dict[str, Row], now: list[Row]) -> Row:
    """Say how much the middle of the rows that were timed again is off from their record."""

    def middle(row: Row) -> float:
        return sum(row["seconds"]) / 2

    changes = [middle(row) / middle(before[row["key"]]) - 1 for row in now if row["key"] in before]
    largest = max(changes, key=abs, default=0.0)
    return {"rows": len(changes), "largest": largest, "same": abs(largest) <= SAME}


def collect(peaks: dict[str, tuple[int, int]], jobs: int, again: int) -> list[Row]:
    """Return what is known of each card that has a record; `peaks`: compute units and clock in kHz."""
    cards = [card for card in CARDS if (record.DATA / f"clock_{card}.json").exists()]
    with ThreadPoolExecutor(jobs) as pool:
        anew = dict(zip(cards, pool.map(lambda card: _again(card, again), cards), strict=True))
    found = []
    for card in cards:
        data = json.loads((record.DATA / f"clock_{card}.json").read_text())
        rows = {row["key"]: row for row in data["rows"]}
        rated = judged(card, rows)
        units, khz = peaks[card]
        found.append(
            {
                "card": card, "title": CARDS[card], "head": {k: v for k, v in data.items() if k != "rows"},
                "peak_tflops": FLOPS_A_CYCLE[card] * units * khz * 1e3 / 1e12,
                "bandwidth": anew[card][0]["hbm_bandwidth"] if anew[card] else None,
                "series": _series(card, rows), "points": [_point(row) for row in rated],
                "summary": judge.summary(rated) if rated else {}, "again": _compare(rows, anew[card]),
            }
        )  # fmt: skip
    return found
