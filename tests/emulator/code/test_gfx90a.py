# SPDX-License-Identifier: MIT OR Apache-2.0
"""The same tests with the software device playing gfx90a, a few files a process: a process has one arch."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from inner import run_script
from plugins import quick

_EMULATOR = Path(__file__).resolve().parents[1]
# Those that do archs themselves, sparse matrices, which gfx90a does not have, and one that test_attention_as
# runs. Streams, graphs and memory know no instructions, so that only the API's tests of the runtime depend on
# the arch.
_ELSEWHERE = {"test_gfx90a", "test_coverage", "test_decoder", "test_forms", "test_smfmac", "test_wide"}
_ELSEWHERE |= {"test_fuzz_rdna", "test_rdna_values", "test_check_schedule"}
_RUNTIME = {p.stem for p in _EMULATOR.glob("hip/test_*.py")} - {"test_hip_api"}
# A Python process takes as long to start as most files take to run, so files share one; but none is to take
# minutes, so these have one each.
_LONG = {"test_fuzz", "test_format"}
_FILES_OF_A_RUN = 6

pytestmark = pytest.mark.skipif(bool(os.environ.get("FMHA_EMU_ARCH")), reason="already the inner run")


def runs() -> dict[str, list[str]]:
    """Return pytest's arguments for each process, by name."""
    made: dict[str, list[str]] = {}
    for folder in sorted(p for p in _EMULATOR.iterdir() if p.is_dir()):
        files = [p for p in sorted(folder.rglob("test_*.py")) if p.stem not in _ELSEWHERE | _RUNTIME]
        short = [p for p in files if p.stem not in _LONG]
        for at in range(0, len(short), _FILES_OF_A_RUN):
            made[f"{folder.name}-{short[at].stem[5:]}"] = [str(p) for p in short[at : at + _FILES_OF_A_RUN]]
        made |= {path.stem[5:]: [str(path)] for path in files if path.stem in _LONG}
    return made


@pytest.mark.parametrize("name", runs())
def test_gfx90a(name: str) -> None:
    """Every test of these files passes."""
    script = """
import sys, pytest
sys.exit(pytest.main(["-q", "-pno:cacheprovider", "-pno:xdist", "--tb=short", "-rfE", *sys.argv[1:]]))
"""
    environment = {"FMHA_EMU_ARCH": "gfx90a", "FMHA_TEST_EXAMPLES": "60"}
    out = run_script(script, *runs()[name], *quick.arguments(), env=environment)
    assert " passed" in out, out
