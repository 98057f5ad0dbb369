# SPDX-License-Identifier: MIT OR Apache-2.0
"""docs/c-abi.md is what the header says, all of it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "native" / "tools" / "abi" / "abi_page.py"
HEADER = ROOT / "native" / "include" / "fmha_rocm.h"
PAGE = ROOT / "docs" / "c-abi.md"


def run(header: Path, page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), *options, str(header), str(page)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_up_to_date() -> None:
    done = run(HEADER, PAGE, "--check")
    assert done.returncode == 0, done.stderr


def test_everything_public_is_there() -> None:
    header, page = HEADER.read_text(encoding="utf-8"), PAGE.read_text(encoding="utf-8")
    functions = set(re.findall(r"^(?:fmha_status |const char\* )(fmha_\w+)\(", header, re.M))
    structs = set(re.findall(r"^typedef struct (fmha_\w+) \{", header, re.M))
    types = set(re.findall(r"^typedef int32_t (fmha_\w+);", header, re.M))
    headings = re.findall(r"^### (fmha_\w+)$", page, re.M)
    assert sorted(headings) == sorted(functions | structs | types)
    for constant in re.findall(r"^  (FMHA_\w+) = ", header, re.M):
        assert f"  {constant} = " in page


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("Version of the library loaded", "The version", "is not what the header says"),
        ("FMHA_UNSUPPORTED = 2", "FMHA_UNSUPPORTED = 7", "is not what the header says"),
        ("typedef int32_t fmha_dtype;", "typedef int64_t fmha_dtype;", "neither function, struct, type nor"),
        (
            "/* Element type of a tensor.",
            "struct x; /* Element type of a tensor.",
            "neither function, struct",
        ),
        ("typedef struct fmha_lse {", "typedef int32_t other; typedef struct fmha_lse {", "has no comment"),
        ("/* cffi-begin", "/* begin", "no marks"),
    ],
)
def test_another_header(before: str, after: str, message: str, tmp_path: Path, page: Path) -> None:
    text = HEADER.read_text(encoding="utf-8")
    assert before in text
    (tmp_path / "fmha_rocm.h").write_text(text.replace(before, after), encoding="utf-8")
    done = run(tmp_path / "fmha_rocm.h", page, "--check")
    assert done.returncode == 1
    assert message in done.stderr


def test_writes_between_the_marks_alone(tmp_path: Path, page: Path) -> None:
    text = HEADER.read_text(encoding="utf-8").replace("Never NULL. */\nconst", "Not NULL. */\nconst", 1)
    (tmp_path / "fmha_rocm.h").write_text(text, encoding="utf-8")
    before = page.read_text(encoding="utf-8")
    assert run(tmp_path / "fmha_rocm.h", page).returncode == 0
    after = page.read_text(encoding="utf-8")
    assert after == before.replace("Never NULL.", "Not NULL.", 1)
    assert run(tmp_path / "fmha_rocm.h", page, "--check").returncode == 0
    page.write_text("no marks", encoding="utf-8")
    done = run(HEADER, page)
    assert (done.returncode, page.read_text(encoding="utf-8")) == (1, "no marks")
