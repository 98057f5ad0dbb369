# SPDX-License-Identifier: MIT OR Apache-2.0
"""native/tools/compile/ck_overlay.py edits the CK that is packaged, and leaves another one alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import ck_overlay as overlay
import pytest

ROOT = Path(__file__).resolve().parents[2]
CK = ROOT / "build/toolchain/ck/include"

pytestmark = pytest.mark.skipif(not CK.exists(), reason="no CK of `make toolchain`")


def run(include: Path, out: Path) -> str:
    """Run it, and return what it says."""
    command = [sys.executable, str(ROOT / "native/tools/compile/ck_overlay.py"), str(include), str(out)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout


def test_packaged_ck(tmp_path: Path) -> None:
    """Both headers are copied with every edit, and a second run leaves the copies as old as they are."""
    assert run(CK, tmp_path) == ""
    copies = [tmp_path / name for name in overlay.EDITS]
    for copy, edits in zip(copies, overlay.EDITS.values(), strict=True):
        assert all(instead in copy.read_text() for _, instead in edits)
    before = [copy.stat().st_mtime_ns for copy in copies]
    assert run(CK, tmp_path) == ""
    assert [copy.stat().st_mtime_ns for copy in copies] == before


@pytest.mark.parametrize("name", overlay.EDITS)
@pytest.mark.parametrize("times", [0, 2])
def test_another_ck(tmp_path: Path, name: str, times: int) -> None:
    """An anchor that is missing, or there twice, in either header: no copy is left, and one line says so."""
    theirs, out = tmp_path / "theirs", tmp_path / "out"
    for header in overlay.EDITS:
        (theirs / header).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(CK / header, theirs / header)
    assert run(theirs, out) == ""
    anchor = overlay.EDITS[name][-1][0]
    text = (theirs / name).read_text()
    (theirs / name).write_text(text.replace(anchor, anchor * times))
    assert run(theirs, out).splitlines() == [
        "K one slice ahead: this Composable Kernel is not the one "
        "that native/tools/compile/ck_overlay.py edits"
    ]
    assert not [path for path in out.rglob("*") if path.is_file()]


def test_a_ck_without_the_header(tmp_path: Path) -> None:
    """A header of another release may lack the lines: a message says which change failed."""
    assert run(tmp_path / "nothing", tmp_path / "out").startswith("K one slice ahead")
    assert not (tmp_path / "out").exists()
