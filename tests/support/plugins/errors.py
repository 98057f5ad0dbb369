# SPDX-License-Identifier: MIT OR Apache-2.0
"""Keeps how far kernels are from float64 while the tests judge them, for the page of evidence.

With PYFA_ROCM_KEEP_ERRORS=FOLDER each process of the tests writes FOLDER/ARCH-PROCESS.json when it ends. It
keeps only tests that force one kernel: those of the mark every_kernel, and those of prebuilt kernels. The
environment is what processes of tests hand on to the processes that they start.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

VARIABLE = "PYFA_ROCM_KEEP_ERRORS"
# Shares of a bound, with their sign: equal bins from -1 to 1.
BINS = 64
Array = npt.NDArray[Any]
_row: dict[str, Any] | None = None  # of the kernel that the test at hand forces
_kept: dict[tuple[str, str], dict[str, Any]] = {}


def tell(result: str, got: Array, want: Array, bound: Array) -> None:
    """Take note of a result before it is judged: "o", "lse", a gradient ..., its values and their bounds."""
    if _row is None:
        return
    with np.errstate(all="ignore"):
        distance = np.where(got == want, 0.0, got.astype(np.float64) - want).ravel()
        share = np.where(distance == 0, 0.0, distance / np.broadcast_to(bound, want.shape).ravel())
    if not share.size:
        return
    found = _of(_row)["results"].setdefault(
        result,
        {"elements": 0, "worst": 0.0, "error": 0.0, "bound": 0.0, "squares": 0.0, "counts": [0] * BINS},
    )
    at = int(np.abs(share).argmax())  # the first NaN, if there is one
    found["elements"] += share.size
    if not abs(share[at]) <= found["worst"]:
        found["worst"] = float(abs(share[at]))
        found["error"] = float(abs(distance[at]))
        found["bound"] = float(np.broadcast_to(bound, want.shape).ravel()[at])
    found["squares"] += float((share**2).sum())
    counts, _ = np.histogram(np.clip(share, -1, 1), BINS, (-1, 1))
    found["counts"] = (np.array(found["counts"]) + counts).tolist()


def _of(row: dict[str, Any]) -> dict[str, Any]:
    facts = {key: row[key] for key in ("arch", "name", "family", "origin", "dtype", "sha256")}
    return _kept.setdefault((row["arch"], row["name"]), {**facts, "tests": 0, "failed": 0, "results": {}})


def row_of(item: pytest.Item) -> dict[str, Any] | None:
    """Return the catalogue's row of the kernel that a test forces, if its errors are kept."""
    callspec = getattr(item, "callspec", None)
    row = callspec.params.get("row") if callspec else None
    forces = item.get_closest_marker("every_kernel") or "prebuilt" in item.path.name
    return row if forces and isinstance(row, dict) else None


class Keeping:
    """The plugin."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Learn which kernel the test forces."""
        global _row
        _row = row_of(item)

    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
        """Count the test."""
        if _row is None or call.when != "call":
            return
        if call.excinfo is None:
            _of(_row)["tests"] += 1
        elif not call.excinfo.errisinstance(pytest.skip.Exception):
            _of(_row)["failed"] += 1

    def pytest_sessionfinish(self) -> None:
        """Write the file, if this process has judged anything."""
        if not _kept:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        archs = "-".join(sorted({arch for arch, _ in _kept}))
        (self.folder / f"{archs}-{os.getpid()}.json").write_text(json.dumps(list(_kept.values())))
