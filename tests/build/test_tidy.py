# SPDX-License-Identifier: MIT OR Apache-2.0
"""native/tools/lint/tidy.py remembers what was clean, and asks again after any change that could matter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tidy

PROGRAM = """#!/bin/sh
[ "$1" != --version ] || { echo "version VERSION"; exit; }
for source; do :; done
echo "$source" >>"ASKED"
! grep -q MISSING "$source" || echo "$source:1:1: error: no header providing \\"N\\" is directly included"
! grep -q DEAD "$source" || echo "$source:1:1: error: included header a.h is not used directly"
! grep -qE "WRONG|MISSING|DEAD" "$source"
"""


class Lint:
    """A source with a header, and a clang-tidy that writes down what it is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, folder / "asked"
        self.source = folder / "a.cc"
        self.source.write_text('#include "a.h"\nint f() { return N; }\n')
        (folder / "a.h").write_text("#define N 1\n")
        command = f"/usr/bin/c++ -I{folder} -std=c++17 -o a.o -c {self.source}"
        entry = {"directory": str(folder), "file": "a.cc", "command": command}
        (folder / "compile_commands.json").write_text(json.dumps([entry]))
        self.set_version("1")
        compiler = folder / "clang++-x"
        compiler.write_text('#!/bin/sh\nexec c++ "$@"\n')
        compiler.chmod(0o755)

    def set_version(self, version: str) -> None:
        """Make clang-tidy say that it is another one."""
        program = self.folder / "clang-tidy-x"
        program.write_text(PROGRAM.replace("VERSION", version).replace("ASKED", str(self.asked)))
        program.chmod(0o755)

    def say(self) -> str:
        """Check the source, and return the findings."""
        return str(tidy.Tidy(str(self.folder / "clang-tidy-x"), self.folder).check(self.source))

    def is_clean(self) -> bool:
        """Check the source."""
        return self.say() == ""

    def count(self) -> int:
        """How often clang-tidy was asked."""
        return len(self.asked.read_text().splitlines())


@pytest.fixture
def lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lint:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Lint(tmp_path)


def test_what_was_clean_is_not_asked_again(lint: Lint) -> None:
    assert lint.is_clean()
    assert lint.is_clean()
    assert lint.count() == 1


@pytest.mark.parametrize("change", ["header", "comment", "include", "version"])
def test_a_change_is_asked_again(lint: Lint, change: str) -> None:
    """A comment counts, since NOLINT is one; and so does an include that adds nothing."""
    assert lint.is_clean()
    if change == "header":
        (lint.folder / "a.h").write_text("#define N 2\n")
    elif change == "comment":
        lint.source.write_text(lint.source.read_text() + "// NOLINT\n")
    elif change == "include":
        lint.source.write_text('#include "a.h"\n' + lint.source.read_text())
    else:
        lint.set_version("2")
    assert lint.is_clean()
    assert lint.count() == 2


def test_what_is_wrong_is_not_remembered(lint: Lint) -> None:
    lint.source.write_text("// WRONG\n")
    assert not lint.is_clean()
    assert not lint.is_clean()
    assert lint.count() == 2


def test_a_header_may_come_by_way_of_another(lint: Lint) -> None:
    lint.source.write_text("// MISSING\n")
    assert lint.is_clean()
    assert lint.is_clean()
    assert lint.count() == 1


def test_an_include_that_nobody_needs_is_wrong(lint: Lint) -> None:
    lint.source.write_text("// MISSING, DEAD\n")
    said = lint.say()
    assert "a.h is not used" in said
    assert "no header" not in said


def test_a_cache_that_cannot_be_written(lint: Lint) -> None:
    (lint.folder / "cache").write_text("no folder")
    assert lint.is_clean()
    assert lint.is_clean()
    assert lint.count() == 2
