# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tables of `bench --model`, for people."""

from __future__ import annotations

import textwrap
from typing import Any

from pyfa_rocm.cli.bench.text import WIDTH, groups, title

__all__ = ["against", "bound", "tables"]

Row = dict[str, Any]
MEANING = (
    "A model, not a measurement: the software device runs sampled workgroups and times them on a modelled "
    "compute unit and card. A range goes from the fast ends of all constants to the slow ends. Busy: the "
    "shares of the time in which the matrix and vector ports, LDS and memory's bandwidth are in use, or in "
    "which all waits for latencies or barriers, of the launch that takes longest."
)
COMPARED = (
    "Published and modelled TFLOPS; error: of the time at the middle of the range. In the summary, rows that "
    "were held out, of 2048 and more."
)


def bound(binds: dict[str, float], count: int = 3) -> str:
    """Name what is busiest, the busiest first."""
    busiest = sorted(binds.items(), key=lambda item: -item[1])[:count]
    return ", ".join(f"{name} {share:.0%}" for name, share in busiest)


def _range(values: dict[str, float], scale: float, digits: int) -> str:
    return f"{values['low'] / scale:.{digits}f} to {values['high'] / scale:.{digits}f}"


def _line(row: Row, way: int) -> str:
    start = f"{row['seqlen']:7}{row['batch']:6}{row['nhead_q']:6}  {row['implementation']:{way}}"
    if row["reason"]:
        return start + "  " + textwrap.shorten(row["reason"], WIDTH - len(start) - 2, placeholder=" ...")
    cycles, speed = _range(row["cycles"], 1e6, 2), _range(row["tflops"], 1, 0)
    return f"{start}{cycles:>18}{speed:>13}  {bound(row['binds'])}"


def tables(result: Row) -> str:
    """Return the whole output of `bench --model`."""
    rows = result["rows"]
    way = max(len(row["implementation"]) for row in rows)
    head = f"{'seqlen':>7}{'batch':>6}{'heads':>6}  {'':{way}}{'million cycles':>18}{'TFLOPS':>13}  busy"
    lines = [f"Modelled: {result['card']}; {rows[0]['dtype']}"]
    for key, members in groups(rows).items():
        lines += ["", title(key), head, *(_line(row, way) for row in members)]
    return "\n".join([*lines, "", textwrap.fill(MEANING, WIDTH)])


def _cell(estimate: Row | None) -> str:
    return f"{'-':>13}" if estimate is None else f"{_range(estimate['tflops'], 1, 0):>13}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1%}"


def against(result: Row) -> str:
    """Return the whole output of `bench --model --against`."""
    rows = result["rows"]
    wide = max(len(row["measures"]) for row in rows)
    columns = {"ours": "pyfa_rocm", "ck": "ck"}
    if any(row["moonmath"] for row in rows):
        columns["moonmath"] = "moonmath"
    head = f"{'':39}{'':{wide}}{'published':>10}{'its model':>13}{'error':>8}"
    head += "".join(f"{name:>13}" for name in columns.values())
    lines = [f"Modelled: {result['card']}"]
    for source, about in result["sources"].items():
        members = [row for row in rows if row["source"] == source]
        if not members:
            continue
        lines += ["", f"{about['title']} ({about['repository']} at {about['commit'][:10]})", head]
        for row in members:
            shape = ("bwd " if row["direction"] == "backward" else "fwd ") + row["problem"]
            mark = " *" if row["role"] == "calibration" else "  "
            cells = "".join(_cell(row[key]) for key in columns)
            lines.append(
                f"{shape:37}{mark}{row['measures']:{wide}}{row['tflops']:10.1f}{_cell(row['modelled'])}"
                f"{_percent(row['error']):>8}{cells}"
            )
    lines += ["", textwrap.fill(COMPARED, WIDTH), *_reasons(rows)]
    lines += [f"{name}: {_value(value)}" for name, value in result["summary"].items()]
    return "\n".join([*lines, "", textwrap.fill(MEANING, WIDTH)])


def _reasons(rows: list[Row]) -> list[str]:
    """Say once of each kernel why it has no model."""
    return sorted({f"No model of {row['measures']}: {row['reason']}" for row in rows if row["reason"]})


def _value(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else "-" if value is None else str(value)
