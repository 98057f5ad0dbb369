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
    """Its public function, one launch of each kernel named, and errors below their bounds."""
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
    assert proof["launched"][0] == proof["kernel"]
    assert [proof["launched"].count(proof[name]) for name in ("kernel", "backward_kernel")] == [1, 1]
    assert proof["launched_as_said"] is True
    for name in ("o", "lse", "dq", "dk", "dv"):
        assert 0 < proof[f"{name}_max_error"] <= proof[f"{name}_bound"]
        assert proof[f"{name}_max_error_over_tolerance"] <= 1
    assert proof["arch"] == "gfx942"
    assert DISTRIBUTIONS[backend] <= proof["versions"].keys()
    assert all(proof["versions"].values())
