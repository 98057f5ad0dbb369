# SPDX-License-Identifier: MIT OR Apache-2.0
"""Times that `pyfa-rocm first-day` has measured on a card, beside the clock's ranges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FORMAT = 1
# Names of steps that time kernels begin so. Those of their models have "model " in front.
TIMED = ("published ", "choices ", "decode ")
MODEL = "model "

Row = dict[str, Any]


def _ranges(steps: dict[str, Row], name: str) -> dict[str, Row]:
    """Return the modelled ranges of a step, by kernel."""
    beside = {x["kernel"]: x["modelled"] for x in steps[name].get("candidates", ()) if x["modelled"]}
    model = {x["kernel"]: x["modelled"] for x in steps.get(MODEL + name, {}).get("candidates", ())}
    return model | beside


def rows(steps: dict[str, Row]) -> list[Row]:
    """Return a row for each kernel that was timed on the card: seconds measured, and the clock's range."""
    found = []
    for name, step in steps.items():
        if not name.startswith(TIMED) or "candidates" not in step:
            continue
        ranges = _ranges(steps, name)
        for candidate in step["candidates"]:
            seconds, range_ = candidate["measured"], ranges.get(candidate["kernel"])
            if seconds is None:
                continue
            row = {"problem": name, "kernel": candidate["kernel"], "seconds": seconds}
            row |= {"low": None, "high": None}
            if range_ is not None:
                row |= {"low": range_["low"], "high": range_["high"]}
                row["error"] = (range_["low"] + range_["high"]) / 2 / seconds - 1
                row["within"] = range_["low"] <= seconds <= range_["high"]
            found.append(row)
    return found


def read(path: Path) -> Row:
    """Return what the page shows of a file.

    Raises
    ------
    ValueError
        The file has another format, or no card has run it.
    """
    data = json.loads(path.read_text())
    if data.get("format") != FORMAT:
        raise ValueError(f"{path}: got format {data.get('format')}, expected {FORMAT}")
    if data["identity"]["emulated"] or data.get("times") != "measured":
        raise ValueError(f"{path}: its times are the clock's, expected those of a card")
    compared = rows(data["steps"])
    errors = [abs(row["error"]) for row in compared if "error" in row]
    return {
        "identity": data["identity"], "rows": compared, "complete": data["complete"], "ok": data["ok"],
        "disagreements": data["disagreements"], "compared": len(errors),
        "within": sum(row.get("within", False) for row in compared),
        "error": sum(errors) / len(errors) if errors else None,
    }  # fmt: skip
