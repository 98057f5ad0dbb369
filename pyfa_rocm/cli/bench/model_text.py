# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables of `bench --model`, for people."""

from __future__ import annotations

import textwrap
from typing import Any

from pyfa_rocm.cli.bench.text import WIDTH, groups, title

__all__ = ["MEANING", "bound", "span", "tables"]

Row = dict[str, Any]
MEANING = (
    "A model, not a measurement: the software device runs sampled workgroups and times them on a modelled "
    "compute unit and card. A range goes from the fast ends of all constants to the slow ends. Busy: the "
    "shares of the time in which the matrix and vector ports, LDS and memory's bandwidth are in use, or in "
    "which all waits for latencies or barriers, of the launch that takes longest."
)


def bound(binds: dict[str, float], count: int = 3) -> str:
    """Name what is busiest, the busiest first."""
    busiest = sorted(binds.items(), key=lambda item: -item[1])[:count]
    return ", ".join(f"{name} {share:.0%}" for name, share in busiest)


def span(values: dict[str, float], scale: float, digits: int) -> str:
    """Say a range."""
    return f"{values['low'] / scale:.{digits}f} to {values['high'] / scale:.{digits}f}"


def _line(row: Row, way: int) -> str:
    start = f"{row['seqlen']:7}{row['batch']:6}{row['nhead_q']:6}  {row['implementation']:{way}}"
    if row["reason"]:
        return start + "  " + textwrap.shorten(row["reason"], WIDTH - len(start) - 2, placeholder=" ...")
    cycles, speed = span(row["cycles"], 1e6, 2), span(row["tflops"], 1, 0)
    return f"{start}{cycles:>18}{speed:>13}  {bound(row['binds'])}"


def tables(result: Row) -> str:
    """Return the whole output of `bench --model`."""
    rows = result["rows"]
    way = max(len(row["implementation"]) for row in rows)
    head = f"{'seqlen':>7}{'batch':>6}{'heads':>6}  {'':{way}}{'million cycles':>18}{'TFLOPS':>13}  busy"
    lines = [f"Modelled: {result['card']}; {rows[0]['dtype']}"]
    modelled = {row["implementation"] for row in rows if not row["reason"]}
    for key, members in groups([row for row in rows if row["implementation"] in modelled]).items():
        lines += ["", title(key), head, *(_line(row, way) for row in members)]
    # Ways that do none of the problems have no rows, but each reason stands once.
    without: dict[str, dict[str, None]] = {}
    for row in rows:
        if row["implementation"] not in modelled:
            without.setdefault(row["reason"], {})[row["implementation"]] = None
    reasons = [f"No model of {', '.join(names)}: {reason}" for reason, names in without.items()]
    return "\n".join([*lines, "", *(textwrap.fill(text, WIDTH) for text in (MEANING, *reasons))])
