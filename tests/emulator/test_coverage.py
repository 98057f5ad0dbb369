# SPDX-License-Identifier: MIT OR Apache-2.0
"""Every row of the instruction table has a test; every instruction the kernels use has a row."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import pytest

from . import rows
from .test_faults import run_script

# gfx90a's own rows are tested by the same files in a process where the device plays that arch.
FILES_90A = (
    "test_vop",
    "test_vop3p",
    "test_carry",
    "test_mfma",
    "test_sdwa_dpp",
    "test_mad",
    "test_scalar",
    "test_scalar_control",
)
FILES = (
    *FILES_90A,
    "test_vopc",
    "test_lanes",
    "test_smem",
    "test_ds",
    "test_global",
    "test_buffer",
    "test_scratch",
)
# Rows whose tests are not cases of a suite: the whole of test_dispatch and test_faults stands on them.
ELSEWHERE = {
    "s_endpgm": "test_dispatch",
    "s_trap": "test_faults",
    "s_sendmsg": "test_faults",
    "s_sendmsghalt": "test_faults",
    "s_set_gpr_idx_on": "test_faults",
    "s_set_gpr_idx_idx": "test_faults",
    "s_set_gpr_idx_mode": "test_faults",
    "s_set_gpr_idx_off": "test_faults",
}


def covered(files: tuple[str, ...]) -> set[str]:
    """Rows that some case of these files tests, on this process's arch."""
    package = __package__
    return {
        name
        for file in files
        for case in importlib.import_module(f"{package}.{file}").SUITE.cases
        for name in case.mnemonics()
    }


def test_every_row_has_a_test() -> None:
    """gfx942: no row without a case."""
    missing = sorted(rows.names("gfx942") - covered(FILES) - set(ELSEWHERE))
    assert not missing, f"{len(missing)} of {len(rows.names('gfx942'))} rows have no test: {missing}"


def test_every_gfx90a_row_has_a_test() -> None:
    """Rows only gfx90a has."""
    out = run_script(
        f"from emulator.test_coverage import *; print(*sorted(covered({FILES_90A!r})))",
        env={"FMHA_EMU_ARCH": "gfx90a"},
    )
    missing = sorted(rows.names("gfx90a") - rows.names("gfx942") - set(out.split()))
    assert not missing, f"{len(missing)} rows have no test: {missing}"


def test_the_kernels_instructions_have_rows() -> None:
    """The instructions found in 61 CK attention kernels of every family (needed_gfx942.txt)."""
    needed = (Path(__file__).parent / "needed_gfx942.txt").read_text().split()
    missing = sorted(set(needed) - rows.names("gfx942"))
    assert not missing, missing


@pytest.mark.skipif(bool(os.environ.get("FMHA_EMU_ARCH")), reason="already the inner run")
def test_gfx90a() -> None:
    """The vector and matrix suites with the device playing gfx90a."""
    here = Path(__file__).parent
    run_script(
        "import sys, pytest; sys.exit(pytest.main(['-q', '-pno:cacheprovider', '--tb=line', *sys.argv[1:]]))",
        *[str(here / f"{name}.py") for name in FILES_90A],
        env={"FMHA_EMU_ARCH": "gfx90a"},
    )
