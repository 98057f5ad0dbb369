# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random programs leave the same registers with every check on as with none, and on every level of CPU.

$FMHA_FUZZ_PROGRAMS says how many, $FMHA_FUZZ_SEED where their seeds start.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from .fuzz import Batch, Program, beyond_nans, differences, programs, wanted
from .toolchain import ROOT

_FIRST = int(os.environ.get("FMHA_FUZZ_SEED") or 1)


@cache
def _made() -> tuple[list[Program], Batch]:
    made = programs(range(_FIRST, _FIRST + wanted(240)))
    print("seeds", _FIRST, "to", made[-1].seed, "instructions", sum(len(p.drawn) for p in made))
    return made, Batch.of([p.case() for p in made])


def _both(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What differs between the fast and the checked mode, by case."""
    monkeypatch.setenv("FMHA_EMU_CHECKS", "none")
    fast = batch.run()
    monkeypatch.delenv("FMHA_EMU_CHECKS")
    checked = batch.run()
    return [differences(a, b) for a, b in zip(fast, checked, strict=True)]


def _culprit(program: Program, monkeypatch: pytest.MonkeyPatch) -> str:
    """The first instruction after which the registers differ."""
    prefixes = Batch.of([program.case(n) for n in range(1, len(program.drawn) + 1)])
    for d, found in zip(program.drawn, _both(prefixes, monkeypatch), strict=True):
        if found:
            return f"{d.line}: {'; '.join(found[:4])}"
    return "only the whole program differs"


def test_checks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fast and checked mode leave the same bits in every register, VCC, EXEC and SCC."""
    made, batch = _made()
    for program, found in zip(made, _both(batch, monkeypatch), strict=True):
        assert not found, f"seed {program.seed}: {_culprit(program, monkeypatch)}"


@cache
def _single() -> tuple[list[Program], Batch]:
    """One VALU instruction a program: which of two NaNs comes out would spread to other registers."""
    seeds = range(_FIRST, _FIRST + max(wanted(240) // 30, 1))
    drawn = [d for p in programs(seeds) for d in p.drawn if d.row and d.row.format[0] in "VM"]
    made = [Program(_FIRST + i, [d]) for i, d in enumerate(drawn)]
    return made, Batch.of([p.case() for p in made])


@pytest.mark.parametrize("level", ["2", "3"])
def test_levels_agree(level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter's copies for older CPUs leave the same bits as the one in this process."""
    made, batch = _single()
    monkeypatch.setenv("FMHA_EMU_CHECKS", "none")
    source, results = tmp_path / "batch", tmp_path / "results"
    source.write_bytes(pickle.dumps(batch))
    command = [sys.executable, "-m", "emulator.fuzz", str(source), str(results)]
    subprocess.run(command, cwd=ROOT / "tests", env=os.environ | {"FMHA_EMU_LEVEL": level}, check=True)
    other = pickle.loads(results.read_bytes())
    for program, a, b in zip(made, batch.run(), other, strict=True):
        found = beyond_nans(program, a, b)
        assert not found, f"seed {program.seed}: {program.drawn[0].line}: {'; '.join(found[:4])}"
