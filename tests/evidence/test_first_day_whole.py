# SPDX-License-Identifier: MIT OR Apache-2.0
"""`pyfa-rocm first-day` without a card: whole, in less than five minutes of one core, and once only."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pyfa_rocm.cli.first_day.record import SCHEMA
from pyfa_rocm.cli.first_day.steps import PARTS

MOST_SECONDS = 300


def _run(path: Path, arch: str) -> tuple[dict[str, Any], str, float]:
    """Return the file, what was said besides the report, and the seconds of the CPU.

    A machine that does other things as well takes longer, and is given the time.
    """

    def used() -> float:
        found = resource.getrusage(resource.RUSAGE_CHILDREN)
        return found.ru_utime + found.ru_stime

    start = used()
    done = subprocess.run(
        [sys.executable, "-m", "pyfa_rocm", "first-day", "--out", str(path), "--minutes", "30"],
        env=os.environ | {"PYFA_ROCM_DEVICE": "emulator", "FMHA_EMU_ARCH": arch},
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(path.read_text())
    jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).validate(document)
    return document, done.stderr, used() - start


@pytest.mark.parametrize("arch", ["gfx942", "gfx1201"])
def test_whole(arch: str, tmp_path: Path) -> None:
    """Each part has results, all are right, and a second run has nothing left to do."""
    path = tmp_path / "day.json"
    document, _, seconds = _run(path, arch)
    assert (document["ok"], document["complete"], document["times"]) == (True, True, "modelled")
    parts = {name.partition(" ")[0] for name in document["steps"]}
    assert parts == set(PARTS) - {"model"}  # which is beside a card
    assert not any(x["correctness"] for x in document["disagreements"])
    assert {reason for reason in document["not_forced"].values() if "beside others" not in reason} <= {
        "for cards with 64 or 80 compute units"
    }
    assert seconds < MOST_SECONDS
    assert path.with_suffix(".html").read_text().startswith("<!doctype html>")
    again, said, seconds = _run(path, arch)
    assert again == document
    count = len(document["steps"])
    assert f"has {count} of {count} steps" in said
    assert seconds < MOST_SECONDS / 10
