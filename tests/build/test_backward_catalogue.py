# SPDX-License-Identifier: MIT OR Apache-2.0
"""The catalogue's backward families: what a build makes of their rows, and what is wrong with a row."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "native" / "tools"
BACKWARD = """
origin = "ck"
[tiles]
d64 = {block = [32, 128, 64, 32, 64, 32, 32, 64, 64], waves_s = [1, 4, 1], waves_dkv = [4, 1, 1], waves_dq = [1, 4, 1], mfma_s = [16, 16, 32], mfma_dkv = [16, 16, 16]}
[[kernels]]
set = "ci"
arch = "gfx942"
dtype = ["fp16", "bf16"]
tile = "d64"
dropout = [false, true]
"""  # noqa: E501
FLOAT32 = """
[tiles]
f128 = {origin = "hip", hdim = 128, rows = 16}
[[kernels]]
set = "ci"
arch = "gfx942"
dtype = "fp32"
tile = "f128"
"""
PARTS = """
origin = "hip"
[tiles]
dot = {kind = "dot"}
sum = {kind = "sum"}
[[kernels]]
set = "ci"
arch = "gfx942"
dtype = ["fp16", "fp32"]
tile = ["dot", "sum"]
"""


def list_kernels(tmp_path: Path, bwd: str, parts: str) -> subprocess.CompletedProcess[str]:
    """Run catalogue.py over a catalogue of these families."""
    (tmp_path / "bwd.toml").write_text(bwd)
    (tmp_path / "bwd_parts.toml").write_text(parts)
    command = [
        sys.executable,
        str(TOOLS / "catalogue" / "catalogue.py"),
        str(tmp_path),
        "--set",
        "ci",
        "--targets",
        "gfx942",
    ]
    command += ["--out", str(tmp_path / "out"), "--enums", str(tmp_path / "enums.h")]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_lines(tmp_path: Path) -> None:
    """Each family's unit includes its origin's header, and has a line a kernel."""
    assert list_kernels(tmp_path, BACKWARD, PARTS).returncode == 0
    (unit,) = (tmp_path / "out" / "gfx942").glob("bwd_fp16_d64*.hip")
    main = unit.read_text().splitlines()
    assert main[1:3] == ['#include "ck/bwd_kernel.h"', ""]
    assert main[3].startswith("FMHA_BWD_KERNEL(fmha_bwd_fp16_d64, fp16_t, {.block = {32, 128, 64, 32, ")
    features = ".alibi = false, .bias = false, .softcap = false, .dropout = false, .dbias = false"
    assert f".mfma_dkv = {{16, 16, 16}}, .hdim_step = 8, {features}}})" in main[3]
    assert main[4].startswith("FMHA_BWD_KERNEL(fmha_bwd_fp16_d64_dropout, fp16_t, ")
    parts = (tmp_path / "out" / "gfx942" / "bwd_parts.hip").read_text().splitlines()
    assert parts[1:] == [
        '#include "hip/bwd/bwd_parts.h"',
        "",
        "FMHA_BWD_DOT_KERNEL(fmha_bwd_dot_fp16, Fp16)",
        "FMHA_BWD_DOT_KERNEL(fmha_bwd_dot_fp32, Fp32)",
        "FMHA_BWD_SUM_KERNEL(fmha_bwd_sum_fp16, Fp16)",
        "FMHA_BWD_SUM_KERNEL(fmha_bwd_sum_fp32, Fp32)",
    ]
    paths = (tmp_path / "out").rglob("*.rows.json")
    found = {(row["family"], row["origin"]) for path in paths for row in json.loads(path.read_text())}
    assert found == {("bwd", "ck"), ("bwd_parts", "hip")}
    assert (tmp_path / "enums.h").read_text().count("kBwdParts") == 1


def test_kernels_of_ours(tmp_path: Path) -> None:
    """One kernel a tile, which has all features."""
    assert list_kernels(tmp_path, FLOAT32, PARTS).returncode == 0
    unit = tmp_path / "out" / "gfx942" / "bwd_fp32_d128_hip.hip"
    assert unit.read_text().splitlines()[1:] == [
        '#include "hip/bwd/bwd_fp32_kernel.h"',
        "",
        "FMHA_BWD_FP32_KERNEL(fmha_bwd_fp32_d128, 128, 16)",
    ]
    (row,) = json.loads(unit.with_suffix(".rows.json").read_text())
    assert all(row[key] for key in ("alibi", "dropout", "optional", "whole"))
    assert (row["tile_m"], row["tile_n"], row["hdim_step"]) == (16, 64, 8)


@pytest.mark.parametrize(
    ("bwd", "parts", "said"),
    [
        (BACKWARD.replace('"bf16"', '"fp32"'), PARTS, "expected dtype fp16 or bf16, got 'fp32'"),
        (BACKWARD.replace("[32, 128, 64, ", "[32, 128, "), PARTS, "block is a list of 9 numbers, got [32"),
        (BACKWARD.replace("waves_dq = [1, 4, 1], ", ""), PARTS, "tiles.d64: missing waves_dq"),
        (BACKWARD, PARTS.replace('kind = "sum"', 'kind = "product"'), "kind is 'product', expected"),
        (BACKWARD, PARTS.replace('"fp32"', '"fp8"'), "expected fp16, bf16 or fp32, got 'fp8'"),
        (BACKWARD, PARTS.replace('"hip"', '"ck"'), "origin is 'ck', expected one of hip"),
        (FLOAT32.replace('"fp32"', '"bf16"'), PARTS, "fmha_bwd_bf16_d128: expected dtype fp32, got 'bf16'"),
        (BACKWARD + "dbias = true\n", PARTS, "dbias: a kernel with dbias has bias"),
        (FLOAT32 + "alibi = true\n", PARTS, "alibi: the kernels of tile f128 have all"),
        (FLOAT32.replace("128", "96"), PARTS, "hdim is a multiple of 64, got 96"),
        (FLOAT32.replace("16", "24"), PARTS, "rows is a multiple of 16, got 24"),
    ],
)
def test_wrong_catalogue(tmp_path: Path, bwd: str, parts: str, said: str) -> None:
    result = list_kernels(tmp_path, bwd, parts)
    assert result.returncode == 1
    assert said in result.stderr
