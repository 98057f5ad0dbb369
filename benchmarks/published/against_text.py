# SPDX-License-Identifier: MIT OR Apache-2.0
"""The table of `bench --model --against`, for people."""

from __future__ import annotations

import textwrap
from typing import Any

from pyfa_rocm.cli.bench.model_text import MEANING, span
from pyfa_rocm.cli.bench.text import WIDTH

__all__ = ["table"]

Row = dict[str, Any]
COMPARED = (
    "Published and modelled TFLOPS; error: of the time at the middle of the range. In the summary, rows that "
    "were held out, of 2048 and more."
)


def _cell(estimate: Row | None) -> str:
    return f"{'-':>13}" if estimate is None else f"{span(estimate['tflops'], 1, 0):>13}"


def _width(name: str) -> int:
    """Return the width of a column of TFLOPS with this head."""
    return max(13, len(name) + 2)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1%}"


def table(result: Row) -> str:
    """Return the whole output of `bench --model --against`."""
    rows = result["rows"]
    wide = max(len(row["measures"]) for row in rows)
    columns = {key: "pyfa_rocm" if key == "ours" else key for key in rows[0]["columns"]}
    head = f"{'':39}{'':{wide}}{'published':>10}{'its model':>13}{'error':>8}"
    head += "".join(f"{name:>{_width(name)}}" for name in columns.values())
    lines = [f"Modelled: {result['card']}"]
    for source, about in result["sources"].items():
        members = [row for row in rows if row["source"] == source]
        if not members:
            continue
        lines += ["", f"{about['title']} ({about['repository']} at {about['commit'][:10]})", head]
        for row in members:
            shape = ("bwd " if row["direction"] == "backward" else "fwd ") + row["problem"]
            mark = " *" if row["role"] == "calibration" else "  "
            cells = "".join(f"{_cell(row['columns'][key]):>{_width(name)}}" for key, name in columns.items())
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
