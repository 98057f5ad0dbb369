# SPDX-License-Identifier: MIT OR Apache-2.0
"""The same tests with the software device playing gfx90a, in a process a file: a process has one arch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ..support.kernels import built_for
from .test_faults import run_script

# Those that do both archs themselves, environment variables, the runtime's, where the arch plays no part,
# and sparse matrices, which gfx90a does not have.
_ELSEWHERE = {
    "test_gfx90a",
    "test_coverage",
    "test_decoder",
    "test_environment",
    "test_hip_async",
    "test_hip_graph",
    "test_hip_peers",
    "test_smfmac",
}
_EMULATOR = Path(__file__).resolve().parents[1]
_FILES = sorted(p for p in _EMULATOR.glob("*/test_*.py") if p.stem not in _ELSEWHERE)
_ATTENTION = ["forward", "strict", "capture"]

pytestmark = pytest.mark.skipif(bool(os.environ.get("FMHA_EMU_ARCH")), reason="already the inner run")


def _passes(path: Path) -> None:
    script = """
import sys, pytest
sys.exit(pytest.main(["-q", "-pno:cacheprovider", "-pno:xdist", "--tb=short", "-rfE", *sys.argv[1:]]))
"""
    out = run_script(script, str(path), env={"FMHA_EMU_ARCH": "gfx90a", "FMHA_TEST_EXAMPLES": "60"})
    assert " passed" in out, out


@pytest.mark.parametrize("path", _FILES, ids=lambda p: p.stem)
def test_gfx90a(path: Path) -> None:
    """Every test of a file passes."""
    _passes(path)


@pytest.mark.skipif(not built_for("gfx90a"), reason="the library was built without kernels for gfx90a")
@pytest.mark.parametrize("name", _ATTENTION)
def test_attention(name: str) -> None:
    """The attention kernels for gfx90a: right, and clean with every check on."""
    _passes(_EMULATOR.parent / "python" / f"test_{name}.py")
