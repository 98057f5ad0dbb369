# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random programs leave the same registers with every check on as with none.

$FMHA_FUZZ_PROGRAMS says how many, $FMHA_FUZZ_SEED where their seeds start.
"""

from __future__ import annotations

import os
from functools import cache

import pytest

from .fuzz import Batch, Program, differences, programs, wanted

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
