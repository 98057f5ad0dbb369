# SPDX-License-Identifier: MIT OR Apache-2.0
"""Every row of the instruction table has a test; every instruction the kernels use has a row."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from inner import run_script

from ..isa.scalar.test_scalar_special import REFUSED
from ..support import rows
from ..support.syntax import llvm_names, llvm_names_rdna
from ..support.toolchain import CLANG20, UNKNOWN_TO_LLVM19

FILES = (
    "test_vop",
    "test_vop3p",
    "test_vopc",
    "test_carry",
    "test_mfma",
    "test_lanes",
    "test_mad",
    "test_scalar",
    "test_scalar_control",
    "test_scalar_special",
    "test_smem",
    "test_smem_write",
    "test_ds",
    "test_global",
    "test_buffer",
    "test_format",
    "test_smfmac",
    "test_scratch",
    "test_gfx950",
    "test_scaled",
    "test_bfloats",
    "test_mfma_small",
)
# Rows whose tests are not cases of a suite: the whole of test_dispatch and test_faults stands on them.
ELSEWHERE = {
    "s_endpgm": "test_dispatch",
    "s_trap": "test_faults",
    "s_sendmsghalt": "test_scalar_special",
    **dict.fromkeys(REFUSED, "test_scalar_special"),
}
# Instructions of an arch for which the device has no row: a whole encoding, which the decoder refuses. CDNA2
# can address images, but HIP has no textures on it, so no program can hold a valid resource.
WITHOUT_ROWS = {"gfx90a": "image_", "gfx942": "none"}


_ISA = Path(__file__).resolve().parents[1] / "isa"


def suite_of(file: str) -> Any:
    """Return the suite of a file below emulator/isa, whichever its folder."""
    (path,) = _ISA.rglob(f"{file}.py")
    folder = "".join(f".{name}" for name in path.parent.relative_to(_ISA).parts)
    return importlib.import_module(f"..isa{folder}.{file}", __package__).SUITE


def covered(files: tuple[str, ...]) -> set[str]:
    """Rows that some case of these files tests, on this process's arch."""
    return {name for file in files for case in suite_of(file).cases for name in case.mnemonics()}


# Those of gfx950 that are cases of no suite, but functions of test_gfx950.
_FUNCTIONS = (
    "v_bitop3_b16 v_bitop3_b32 v_cvt_pk_f16_f32 v_cvt_pk_bf16_f32 v_ashr_pk_i8_i32 v_ashr_pk_u8_i32 "
    "v_minimum3_f32 v_maximum3_f32 v_prng_b32 global_load_lds_dwordx3 "
    "global_load_lds_dwordx4 v_mfma_ld_scale_b32"
)


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942", "gfx950"])
def test_every_row_has_a_test(arch: str) -> None:
    """No row without a case on each arch that has it."""
    if arch == "gfx950" and not CLANG20.exists():
        pytest.skip("no clang 20: `make toolchain`, without a ROCm")
    script = "from emulator.code.test_coverage import *; print(*sorted(covered(FILES)))"
    tested = run_script(script, env={"FMHA_EMU_ARCH": arch}).split()
    elsewhere = {*ELSEWHERE, *(_FUNCTIONS.split() if arch == "gfx950" else ())}
    missing = sorted(rows.names(arch) - set(tested) - elsewhere)
    assert not missing, f"{len(missing)} of {len(rows.names(arch))} rows have no test: {missing}"
    stale = sorted(set(ELSEWHERE) & set(tested))
    assert not stale, f"exempted, and tested: {stale}"


def test_exemptions_name_rows() -> None:
    """Nothing is exempted that does not exist."""
    assert set(ELSEWHERE) <= rows.names("gfx90a") | rows.names("gfx942")


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_the_kernels_instructions_have_rows(arch: str) -> None:
    """The instructions of CK attention kernels of every family: 61 for gfx942, 30 for gfx90a."""
    needed = (Path(__file__).parent / f"needed_{arch}.txt").read_text().split()
    missing = sorted(set(needed) - (rows.names(arch) - set(REFUSED)))
    assert not missing, missing


@pytest.mark.parametrize("arch", ["gfx90a", "gfx942"])
def test_every_instruction_has_a_row(arch: str) -> None:
    """The rows are the instructions that LLVM knows; test_scalar_special lists the rows that refuse."""
    known = llvm_names.names(arch)
    assert len(known) > 1100, "the search no longer finds the instructions"
    missing = {n for n in known - rows.names(arch) if not n.startswith(WITHOUT_ROWS[arch])}
    assert not missing, sorted(missing)
    assert not rows.names(arch) - known, sorted(rows.names(arch) - known)


# RDNA's images, rays, exports, and interpolation with its reads of LDS; and names that are no instruction.
_OF_GRAPHICS = re.compile(r"image_|ds_bvh|exp(ort)?$|v_interp_|(lds|ds)_(direct|param)_load$|v_illegal$")


@pytest.mark.parametrize("arch", ["gfx1030", "gfx1100", "gfx1150", "gfx1201"])
def test_every_instruction_of_rdna_has_a_row(arch: str) -> None:
    """The rows are the instructions that LLVM 19 knows, but for graphics."""
    known = {n for n in llvm_names_rdna.names(arch) if not _OF_GRAPHICS.match(n)}
    assert len(known) > 900, "the search no longer finds the instructions"
    pairs = {n for n in known if n.startswith("v_dual_")}  # the halves of one row
    have = rows.names(arch) - {"v_dual"} - UNKNOWN_TO_LLVM19
    assert known - pairs == have, sorted(known - pairs ^ have)
    assert bool(pairs) == ("v_dual" in rows.names(arch))


def test_instructions_of_gfx950() -> None:
    """Those that LLVM 22 knows, which it was asked for as the others are, have rows, and no others.

    v_mfma_scale is of 16 bytes; clang 20 was asked for it, and knows nothing beyond LLVM 22.
    """
    known = set((Path(__file__).parent / "known_gfx950.txt").read_text().split())
    assert len(known) > 1200
    assert rows.names("gfx950") == known
