# SPDX-License-Identifier: MIT OR Apache-2.0
"""A process that never does the same twice holds no more after an hour than after a minute.

``pytest tests/python/memory/test_soak.py --soak 1800`` runs it for half an hour; a few seconds find what
grows with each call.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
WORKER = ROOT / "tests/support/soak_worker.py"
THREADS = 4
# Few, so that a short run gets there too.
MOST_KEPT_BLOCKS = 64
# Arrays that the calls of all threads hold at a time, ten or so each, which are in and out between samples.
IN_USE = 10 * THREADS
# Heaps of the C library, one for a thread at most, and the software device's list of freed allocations.
MOST_RESIDENT = 64 << 20
# Nine tables of 512 plans (_call/plan.py), which fill and are emptied, of some objects each.
MOST_OBJECTS = 20_000


@pytest.fixture(scope="module")
def soak(request: pytest.FixtureRequest) -> dict[str, Any]:
    seconds = float(request.config.getoption("--soak"))
    done = subprocess.run(
        [sys.executable, str(WORKER), f"{seconds}", f"{THREADS}", f"{MOST_KEPT_BLOCKS}"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * seconds + 300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_every_call_is_right(soak: dict[str, Any]) -> None:
    assert soak["wrong"] == []
    assert len(soak["done"]) == 7


@pytest.mark.parametrize(
    ("what", "most"),
    [
        ("mappings", MOST_KEPT_BLOCKS + IN_USE),
        ("resident", MOST_RESIDENT),
        ("threads", THREADS),
        ("files", 0),
        ("objects", MOST_OBJECTS),
    ],
)
def test_it_is_flat(soak: dict[str, Any], what: str, most: int) -> None:
    """Between the first half and the second."""
    values = [sample[what] for sample in soak["samples"]]
    middle = len(values) // 2
    assert max(values[middle:]) - max(values[:middle]) <= most, values


def test_nothing_is_left(soak: dict[str, Any]) -> None:
    before, after = soak["before"], soak["after"]
    assert after["live"] == before["live"] == 0
    assert after["kept"] == 0
    assert after["device"] == before["device"] - before["kept"]
    assert after["threads"] <= before["threads"]
    assert after["files"] <= before["files"]
