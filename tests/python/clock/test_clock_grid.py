# SPDX-License-Identifier: MIT OR Apache-2.0
"""The forward selector's choice beside Composable Kernel's kernels, by the clock, on a few of the problems.

benchmarks/choices.py has the whole grid, whose results docs/clock.md sums up. This is a regression test: it
finds a choice that the clock calls slow. It is no evidence of what a card does.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Between them every way to choose: tall and short tiles, both origins, shared keys, full and idle devices.
PROBLEMS = [
    "bfloat16 d128 none 1x128 /1",
    "bfloat16 d128 none 16x512 /1",
    "bfloat16 d128 none 4x1024 /1 packed",
    "bfloat16 d128 causal 64x1024 /4",
    "bfloat16 d128 causal 4x2048 /1",
    "bfloat16 d128 window 16x2048 /1",
    "bfloat16 d128 window 256x512 /1",
    "bfloat16 d64 none 64x512 /1",
    "bfloat16 d64 causal 16x1024 /1",
    "bfloat16 d64 causal 256x256 /1",
    "bfloat16 d64 causal 256x1024 /1",
    "bfloat16 d64 window 64x2048 /1",
    "float16 d128 none 64x1024 /1",
    "float16 d64 causal 4x256 /1",
    # In bfloat16 the set `ci` has no tile of 64 rows for a head dim of 64, which `default` has.
    "float16 d64 window 4x2048 /1",
]
# How much longer the choice may take than the best kernel, in the middle of the range; and than Composable
# Kernel's at both ends of it. Times of one launch differ by as much from run to run, by the order of waves.
MARGIN, SURE_MARGIN = 1.12, 1.04
pytestmark = pytest.mark.skipif(
    "config.getoption('--device') == 'gpu'", reason="the clock is of the software device"
)


def test_choice_is_not_slower(tmp_path: Path) -> None:
    """Than any kernel that this build has for the problem."""
    times = str(tmp_path / "times.json")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.choices", "--json", times, "--results", "--only", *PROBLEMS],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert list(found) == PROBLEMS
    slow = {name: x for name, x in found.items() if x["worst"] > MARGIN or x["sure"] > SURE_MARGIN}
    assert not slow
