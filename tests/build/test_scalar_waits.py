# SPDX-License-Identifier: MIT OR Apache-2.0
"""native/tools/compile/scalar_waits.py adds waits to assembly; test_every_kernel runs the result."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "native/tools/compile/scalar_waits.py"
WAIT = "s_wait_alu depctr_va_sdst(0) depctr_va_vcc(0)"
COMPARE = "v_cmp_gt_u32_e64 s2, v1, v2"


def mended(folder: Path, lines: list[str]) -> list[str]:
    """Run the program on lines, and return its lines without the white space before them."""
    path = folder / "k.s"
    path.write_text("".join(line + "\n" if line.endswith(":") else f"\t{line}\n" for line in lines))
    subprocess.run([sys.executable, PROGRAM, path], check=True)
    return [line.strip() for line in path.read_text().splitlines()]


_WAITS = [
    [COMPARE, ">v_cndmask_b32_e64 v3, v4, v5, s2", "v_cndmask_b32_e64 v6, v4, v5, s2"],
    ["v_cmp_lt_f32_e32 vcc_lo, v1, v2", ">v_dual_cndmask_b32 v3, v4, v5 :: v_dual_mov_b32 v6, v7"],
    ["v_cmp_lt_f32_e32 vcc_lo, v1, v2", ">v_cndmask_b32_e32 v3, v4, v5, vcc_lo"],
    ["v_readfirstlane_b32 s4, v1", "s_add_co_i32 s5, s4, s4", ">v_add_f32_e64 v1, s4, v2"],
    ["v_readlane_b32 s4, v1, 3", ">v_pk_mul_f16 v1, s4, v2"],
    ["v_add_co_u32 v1, s6, v2, v3", ">v_add_co_ci_u32_e64 v4, null, v5, v6, s6"],
    ["v_mad_co_u64_u32 v[0:1], s7, v2, v3, v[4:5]", ">v_mov_b32_e32 v1, s7"],
    ["v_div_scale_f32 v1, vcc_lo, v2, v3, v2", ">v_div_fmas_f32 v1, v2, v3, v4"],
    ["v_div_scale_f32 v1, s3, v2, v3, v2", ">v_mov_b32_e32 v1, s3"],
    [
        "v_readlane_b32 s5, v1, 3",
        ">v_add_nc_u32_e32 v1, s5, v2",
        "v_readlane_b32 s5, v1, 4",
        ">v_mov_b32_e32 v2, s5",
    ],
    [COMPARE, ">v_cmp_eq_u32_e64 s3, s2, v1", ">v_cndmask_b32_e64 v3, v4, v5, s3"],
    # A jump comes from below.
    [".LBB0_1:", ">v_mov_b32_e32 v1, s2", COMPARE, "s_cbranch_scc1 .LBB0_1"],
    # A register of a pair.
    [COMPARE, ">v_cvt_f64_f32_e32 v[1:2], s[2:3]"],
]


@pytest.mark.parametrize("lines", _WAITS, ids=lambda lines: lines[0].split()[0] + str(len(lines)))
def test_waits(lines: list[str], tmp_path: Path) -> None:
    """One before each line that begins with an arrow."""
    want = [part for line in lines for part in ([WAIT, line[1:]] if line[0] == ">" else [line])]
    assert mended(tmp_path, [line.removeprefix(">") for line in lines]) == want


@pytest.mark.parametrize(
    "lines",
    [
        [COMPARE, "v_mov_b32_e32 v1, s3"],  # of another register
        [COMPARE, "s_and_b32 s4, s2, s3", "v_mov_b32_e32 v1, s4"],  # scalar instructions wait by themselves
        ["s_mov_b32 s2, 1", "v_mov_b32_e32 v1, s2"],  # clang 20 does these
        ["v_cmpx_lt_u32_e64 v1, v2", "v_mov_b32_e32 v1, s2"],  # writes EXEC
        ["v_add_co_u32 v1, null, v2, v3", "v_mov_b32_e32 v1, s2"],
        ["k:", COMPARE, ".Lfunc_end0:", "m:", "v_mov_b32_e32 v1, s2"],  # another function
        ["; v_cmp_gt_u32_e64 s2, v1, v2", ".p2align 8", "v_mov_b32_e32 v1, s2"],
    ],
    ids=lambda lines: lines[0].split()[0] + str(len(lines)),
)
def test_no_wait(lines: list[str], tmp_path: Path) -> None:
    assert mended(tmp_path, lines) == lines
