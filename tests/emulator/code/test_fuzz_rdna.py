# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random programs in waves of 64 of RDNA: as two waves of 32 they leave the same, and checks change nothing.

$FMHA_FUZZ_PROGRAMS and $FMHA_FUZZ_SEED as for test_fuzz.py.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from inner import run_as

from ..support import asm
from ..support.fuzz import beyond_nans, differences, wanted
from ..support.halves import Program, programs, run
from ..support.spelling import NARROW
from ..support.toolchain import ROOT

ARCHS = ("gfx1030", "gfx1100", "gfx1150", "gfx1201")
_FIRST = int(os.environ.get("FMHA_FUZZ_SEED") or 1)
inner = pytest.mark.skipif(NARROW or "FMHA_TEST_LANES" not in os.environ, reason="run by test_archs")


@pytest.mark.skipif(bool(os.environ.get("FMHA_EMU_ARCH")), reason="already the inner run")
@pytest.mark.parametrize("arch", ARCHS)
def test_archs(arch: str) -> None:
    """Run the other tests as each arch: a process has one."""
    assert " passed" in run_as(arch, __file__, "-p", "no:xdist", FMHA_TEST_LANES="64")


def _halved(made: list[Program], folder: Path) -> list[dict[str, asm.U32]]:
    """Return the registers that they leave in waves of 32."""
    source, results = folder / "programs", folder / "results"
    source.write_bytes(pickle.dumps(made))
    command = [sys.executable, "-m", "emulator.support.halves", str(source), str(results)]
    subprocess.run(command, cwd=ROOT / "tests", env=os.environ | {"FMHA_TEST_LANES": "32"}, check=True)
    left: list[dict[str, asm.U32]] = pickle.loads(results.read_bytes())
    return left


@cache
def _made(floats: bool) -> list[Program]:
    return programs(range(_FIRST, _FIRST + wanted(60)), floats)


def _single() -> list[Program]:
    """One instruction a program: which of two NaNs comes out would spread to other registers."""
    some = _made(True)[: max(wanted(60) // 6, 1)]
    drawn = [d for p in some for d in p.drawn if d.row]
    return [Program(_FIRST + i, [d]) for i, d in enumerate(drawn)]


@inner
@pytest.mark.parametrize("floats", [False, True])
def test_two_halves(floats: bool, tmp_path: Path) -> None:
    """Long programs without floating-point arithmetic, and single instructions of every kind."""
    made = _single() if floats else _made(False)
    for program, wide, narrow in zip(made, run(made), _halved(made, tmp_path), strict=True):
        found = beyond_nans(program, wide, narrow) if floats else differences(wide, narrow)
        assert not found, f"seed {program.seed}: {program.drawn[0].line}: {'; '.join(found[:4])}"


@inner
@pytest.mark.parametrize("floats", [False, True])
def test_checks_change_nothing(floats: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fast and checked mode leave the same bits, and no check objects."""
    made = _made(floats)
    monkeypatch.setenv("FMHA_EMU_CHECKS", "none")
    fast = run(made)
    monkeypatch.setenv("FMHA_EMU_CHECKS", "hazards-vector-scalar")
    for program, one, other in zip(made, fast, run(made), strict=True):
        found = differences(one, other)
        assert not found, f"seed {program.seed}: {'; '.join(found[:4])}"
