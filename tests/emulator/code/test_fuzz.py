# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random programs leave the same registers with every check on as with none, and on every level of CPU.

$FMHA_FUZZ_PROGRAMS says how many, $FMHA_FUZZ_SEED where their seeds start: a long run is
`FMHA_FUZZ_PROGRAMS=5000 FMHA_FUZZ_SEED=1000000 pytest tests/emulator/code/test_fuzz.py`, and one with
FMHA_EMU_ARCH=gfx90a. A failure names its seed.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from ..support import asm, dense, hip, levels
from ..support.fuzz import Batch, Program, beyond_nans, differences, programs, wanted
from ..support.toolchain import ROOT

_FIRST = int(os.environ.get("FMHA_FUZZ_SEED") or 1)


@cache
def _made() -> tuple[list[Program], Batch]:
    made = programs(range(_FIRST, _FIRST + wanted(240)))
    print("seeds", _FIRST, "to", made[-1].seed, "instructions", sum(len(p.drawn) for p in made))
    return made, Batch.of([p.case() for p in made])


def _both(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the differences between the fast and the checked mode, by case."""
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


def _elsewhere(batch: Batch, level: str, folder: Path) -> list[dict[str, asm.U32]]:
    """Return the registers that the batch leaves on a CPU of this level."""
    source, results = folder / "batch", folder / "results"
    source.write_bytes(pickle.dumps(batch))
    command = [sys.executable, "-m", "emulator.support.fuzz", str(source), str(results)]
    subprocess.run(command, cwd=ROOT / "tests", env=os.environ | {"FMHA_EMU_LEVEL": level}, check=True)
    left: list[dict[str, asm.U32]] = pickle.loads(results.read_bytes())
    return left


@pytest.mark.parametrize("level", ["2", "3"])
def test_levels_agree(level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter's copies for older CPUs leave the same bits as the one in this process."""
    levels.require(level)
    made, batch = _single()
    monkeypatch.setenv("FMHA_EMU_CHECKS", "none")
    other = _elsewhere(batch, level, tmp_path)
    for program, a, b in zip(made, batch.run(), other, strict=True):
        found = beyond_nans(program, a, b)
        assert not found, f"seed {program.seed}: {program.drawn[0].line}: {'; '.join(found[:4])}"


@cache
def _dense() -> tuple[list[dense.Program], Batch]:
    made = dense.programs(range(_FIRST, _FIRST + wanted(240) // 4))
    print("dense seeds", _FIRST, "to", made[-1].seed)
    return made, Batch.of([p.case() for p in made])


def test_dense_programs_pass_every_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """No finding where no rule is broken; and the same registers, memory, LDS and scratch without checks."""
    made, batch = _dense()
    for program, found in zip(made, _both(batch, monkeypatch), strict=True):
        assert not found, f"seed {program.seed}: {'; '.join(found[:4])}"


@pytest.mark.parametrize("level", ["2", "3"])
def test_dense_programs_on_every_level(level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs without floating-point arithmetic, whose NaNs may differ, leave the same bits everywhere."""
    levels.require(level)
    made = [p for p in _dense()[0] if p.seed % 2]
    batch = Batch.of([p.case() for p in made])
    monkeypatch.setenv("FMHA_EMU_CHECKS", "none")
    other = _elsewhere(batch, level, tmp_path)
    for program, a, b in zip(made, batch.run(), other, strict=True):
        found = differences(a, b)
        assert not found, f"seed {program.seed}: {'; '.join(found[:4])}"


def test_a_missing_wait_state_is_found() -> None:
    """The same programs with one wait state too few."""
    short = [(p, text) for p in _dense()[0] for text in p.less(2)]
    assert len(short) > len(_dense()[0]) // 4
    cases = [p.case(f"{p.seed}_{i}", text) for i, (p, text) in enumerate(short)]
    batch = Batch.of(cases)
    module = hip.Module(batch.image)
    for (program, text), (case, kernel, count) in zip(short, batch.cases, strict=True):
        with pytest.raises(hip.HipError) as caught:
            asm._launch(module, case, kernel, count)
        changed = next(i for i, (a, b) in enumerate(zip(text, program.writer.text, strict=False)) if a != b)
        assert "hazard" in caught.value.fault, (program.seed, text[changed - 3 : changed + 2])
    module.unload()
