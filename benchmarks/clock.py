# SPDX-License-Identifier: MIT OR Apache-2.0
"""How far the clock of the software device is from published measurements of the card it plays.

All forward points are judged, or all backward ones, or every n-th problem: of an MI300X, or of an MI355X with
FMHA_EMU_ARCH=gfx950. AITER's objects for an MI300X are those of a checkout's toolchain, or of a folder,
`fmha_v3_fwd/MI300` of the wheel amd-aiter, and `fmha_v3_bwd` two levels up.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

os.environ["PYFA_ROCM_DEVICE"] = "emulator"

from benchmarks.published import judge as judge_clock
from benchmarks.published.against import Clock, judge
from benchmarks.published.points import points
from pyfa_rocm.clock.cards import played
from pyfa_rocm.clock.peers import peers
from pyfa_rocm.clock.subjects import subjects
from pyfa_rocm.oracle.trial import to_json


def line(row: judge_clock.Judged) -> str:
    """Return a row of the table."""
    point = row.point
    start = f"{point.source:15}{judge_clock.subject_name(point):20}{point.shape!s:34}{point.tflops:8.1f}"
    if row.estimate is None or row.error is None:
        return f"{start}  {row.reason}"
    speed = row.estimate.tflops
    mark = "  calibration" if point.role == "calibration" else ""
    return f"{start}{speed.low:8.1f} to {speed.high:5.1f}{row.error:+8.1%}{mark}"


def main() -> None:
    """Print the table and its summary."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--aiter", type=Path, metavar="DIR", help="AITER's fmha_v3_fwd/MI300")
    parser.add_argument(
        "--peer", action="append", default=[], metavar="NAME=PATH", help="a file of benchmarks/peers"
    )
    parser.add_argument("--kernel", metavar="NAME", help="only rows of this kernel, as the table names it")
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="take each n-th problem (default: 1)"
    )
    parser.add_argument(
        "--whole", nargs="+", default=(), metavar="SOURCE", help="take every problem of these sources"
    )
    parser.add_argument("--direction", choices=("forward", "backward"), default="forward")
    parser.add_argument("--json", action="store_true", help="print one JSON object, and nothing else")
    args = parser.parse_args()
    card = played()
    wanted = [point for point in points() if (point.card, point.direction) == (card, args.direction)]
    shapes = list(dict.fromkeys((point.source, point.shape) for point in wanted))[:: args.every]
    wanted = [
        point
        for point in wanted
        if (point.source, point.shape) in shapes or point.source in args.whole or point.role == "calibration"
    ]
    if args.kernel:
        wanted = [point for point in wanted if judge_clock.subject_name(point) == args.kernel]
    ways = subjects(args.aiter)
    ways |= {way.name: way for found in peers(args.peer).values() for way in found}
    rows = list(judge(wanted, Clock(ways)))
    summary = judge_clock.summary(rows)
    if args.json:
        print(to_json({"summary": summary, "rows": [row.as_json() for row in rows]}))
        return
    for row in rows:
        print(line(row))
    for name, value in summary.items():
        print(f"{name}: {value:.4f}" if isinstance(value, float) else f"{name}: {value}")


if __name__ == "__main__":
    sys.exit(main())
