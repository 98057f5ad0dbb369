# SPDX-License-Identifier: MIT OR Apache-2.0
"""The benchmarks run, as the README says to run them. How fast is not a test's business."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def _run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run emulator.py as a plain script from some other folder."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "emulator.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
        env=env,
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_emulator(dtype: str, tmp_path: Path) -> None:
    done = _run(tmp_path, "--json", "--repeats", "1", "--dtype", dtype)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    ms, checked = result["ms_per_tile_d128"], result["ms_per_tile_d128_checked"]
    assert result == {
        "dtype": dtype,
        "host_isa": result["host_isa"],
        "ms_per_tile_d128": ms,
        "ms_per_tile_d128_min": ms,
        "ms_per_tile_d128_max": ms,
        "ms_per_tile_d128_checked": checked,
        "ms_per_tile_d128_checked_min": checked,
        "ms_per_tile_d128_checked_max": checked,
        "wave_instructions_per_tile": result["wave_instructions_per_tile"],
        # The two matrix products of 128 queries, 128 keys and a head dim of 128.
        "gmac_per_second": pytest.approx(2 * 128**3 / (ms * 1e6)),
        "wave_instructions_per_second": pytest.approx(result["wave_instructions_per_tile"] / ms * 1e3),
    }
    assert checked > 0
    assert result["host_isa"] in ("x86-64-v2", "x86-64-v3", "x86-64-v4")
    # Of 32x32x8 matrix instructions alone there must be 512, and CK's loop has less than ten others for each.
    assert 512 < result["wave_instructions_per_tile"] < 5120


def test_emulator_refuses_no_repeats(tmp_path: Path) -> None:
    done = _run(tmp_path, "--repeats", "0")
    assert done.returncode == 2
    assert "--repeats" in done.stderr
    assert "Traceback" not in done.stderr
