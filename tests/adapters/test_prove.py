# SPDX-License-Identifier: MIT OR Apache-2.0
"""`prove --backend`, as users type it, with the frameworks at hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import pyfa_rocm

DISTRIBUTIONS = {
    "numpy": {"numpy", "hip-python"},
    "c": {"cffi", "hip-python"},
    "torch": {"torch"},
    "jax": {"jax", "jaxlib"},
}


@pytest.mark.parametrize("backend", DISTRIBUTIONS)
def test_prove(backend: str) -> None:
    """Its public function, one launch of the kernel named, and an error below its bound."""
    done = subprocess.run(
        [sys.executable, "-m", "pyfa_rocm", "prove", "--backend", backend, "--json"],
        cwd=Path(pyfa_rocm.__file__).parents[1],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    proof = json.loads(done.stdout)
    assert proof["ok"] is True
    assert proof["backend"] == backend
    assert proof["emulated"] is True
    assert proof["launched"] == [proof["kernel"]]
    assert 0 < proof["o_max_error"] <= proof["o_bound"]
    assert proof["o_max_error_over_tolerance"] <= 1
    assert proof["lse_max_error_over_tolerance"] <= 1
    assert proof["arch"] == "gfx942"
    assert DISTRIBUTIONS[backend] <= proof["versions"].keys()
    assert all(proof["versions"].values())
