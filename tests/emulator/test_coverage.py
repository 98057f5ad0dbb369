# SPDX-License-Identifier: MIT OR Apache-2.0
"""Every row of the instruction table has a test; every instruction the kernels use has a row."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from . import rows
from .test_faults import run_script

FILES = (
    "test_vop",
    "test_vop3p",
    "test_vopc",
    "test_carry",
    "test_mfma",
    "test_sdwa_dpp",
    "test_lanes",
    "test_mad",
    "test_scalar",
    "test_scalar_control",
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


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_every_row_has_a_test(arch: str) -> None:
    """No row without a case on each arch that has it."""
    script = "from emulator.test_coverage import *; print(*sorted(covered(FILES)))"
    tested = run_script(script, env={"FMHA_EMU_ARCH": arch}).split()
    missing = sorted(rows.names(arch) - set(tested) - set(ELSEWHERE))
    assert not missing, f"{len(missing)} of {len(rows.names(arch))} rows have no test: {missing}"


def test_the_kernels_instructions_have_rows() -> None:
    """The instructions found in 61 CK attention kernels of every family (needed_gfx942.txt)."""
    needed = (Path(__file__).parent / "needed_gfx942.txt").read_text().split()
    missing = sorted(set(needed) - rows.names("gfx942"))
    assert not missing, missing
