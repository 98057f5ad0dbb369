# SPDX-License-Identifier: MIT OR Apache-2.0
"""A record of `pyfa-rocm first-day` beside the clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.evidence import measured

STEPS: dict[str, Any] = {
    "published b1": {
        "candidates": [
            {"kernel": "a", "measured": 2e-3, "modelled": {"low": 1e-3, "high": 3e-3}},
            {"kernel": "b", "measured": 1e-3, "modelled": None},
            {"kernel": "c", "measured": None, "modelled": None},
        ]
    },
    "model published b1": {"candidates": [{"kernel": "b", "modelled": {"low": 2e-3, "high": 4e-3}}]},
    "choices b2": {"unsupported": "no kernel"},
    "overhead": {"rows": []},
}


def _file(folder: Path, **changes: Any) -> Path:
    record = {
        "format": 1, "identity": {"emulated": False, "device": "AMD Instinct MI300X"}, "times": "measured",
        "steps": STEPS, "complete": True, "ok": True, "disagreements": [],
    }  # fmt: skip
    path = folder / "day.json"
    path.write_text(json.dumps(record | changes))
    return path


def test_rows(tmp_path: Path) -> None:
    """A kernel's range is beside its time or in the step of its model; what was not timed has no row."""
    found = measured.read(_file(tmp_path))
    assert [(row["kernel"], row.get("within")) for row in found["rows"]] == [("a", True), ("b", False)]
    assert [row["error"] for row in found["rows"]] == pytest.approx([0, 2])
    assert (found["compared"], found["within"], found["error"]) == (2, 1, pytest.approx(1))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": 2}, "got format 2, expected 1"),
        ({"times": "modelled"}, "expected those of a card"),
        ({"identity": {"emulated": True}}, "expected those of a card"),
    ],
)
def test_refusals(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        measured.read(_file(tmp_path, **changes))
