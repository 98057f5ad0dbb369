# SPDX-License-Identifier: MIT OR Apache-2.0
"""The C ABI is the one on record, and changes that would break programs already built are noticed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "native" / "include" / "fmha_rocm.h"
EXPORTS = ROOT / "native" / "cmake" / "exports.map"

if not (shutil.which("abidw") and shutil.which("abidiff")) and "CI" not in os.environ:
    pytest.skip("no abidw and abidiff on this machine (Debian's abigail-tools)", allow_module_level=True)


def abi(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run native/tools/abi/abi.py."""
    command = [sys.executable, str(ROOT / "native" / "tools" / "abi" / "abi.py"), *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_abi_is_the_one_on_record() -> None:
    result = abi("check")
    assert result.returncode == 0, result.stderr


def test_record_can_be_made_again(tmp_path: Path) -> None:
    record = tmp_path / "new" / "fmha_rocm.abi"
    assert abi("update", "--record", record).returncode == 0
    assert abi("check", "--record", record).returncode == 0


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("FMHA_BF16 = 2", "FMHA_BF16 = 5", "FMHA_BF16' from value '2' to '5'"),
        ("  float softcap; ", "  double softcap; ", "type name changed from 'float' to 'double'"),
        ("  int64_t hdim_q; ", "  int64_t extra, hdim_q; ", "'int64_t extra'"),
        ("  float v_descale;", "  float v_descale;\n  int32_t in_the_padding;", "'int32_t in_the_padding'"),
        ("void* stream);", "int stream);", "parameter 2 of type 'void*' changed"),
        ("fmha_status fmha_prepare(", "fmha_status fmha_prepared(", "1 Removed function"),
        ("typedef int32_t fmha_mask;", "typedef uint32_t fmha_mask;", "fmha_mask"),
        ("FMHA_VERSION_MAJOR 0", "FMHA_VERSION_MAJOR 1", "SONAME changed"),
    ],
)
def test_break_is_noticed(tmp_path: Path, before: str, after: str, said: str) -> None:
    text = HEADER.read_text(encoding="utf-8")
    assert before in text
    (tmp_path / "fmha_rocm.h").write_text(text.replace(before, after), encoding="utf-8")
    result = abi("check", "--header", tmp_path / "fmha_rocm.h")
    assert result.returncode == 1
    assert said in result.stderr
    assert "abi.py update" in result.stderr


@pytest.mark.parametrize(
    ("before", "after"), [("    fmha_prepare;\n", ""), ("FMHA_ROCM_0.1 {", "FMHA_ROCM_0.2 {")]
)
def test_lost_symbol_or_version_is_noticed(tmp_path: Path, before: str, after: str) -> None:
    text = EXPORTS.read_text(encoding="utf-8")
    assert before in text
    (tmp_path / "exports.map").write_text(text.replace(before, after), encoding="utf-8")
    result = abi("check", "--exports", tmp_path / "exports.map")
    assert result.returncode == 1
    assert "Removed function" in result.stderr
