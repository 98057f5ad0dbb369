# SPDX-License-Identifier: MIT OR Apache-2.0
"""tests/emulator/support/kept.py keeps an answer as long as all that decides it is the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from emulator.support.syntax import kept


class Program:
    """A program that answers with its version, its argument and its input, and counts how often."""

    def __init__(self, path: Path, version: str) -> None:
        self.path, self.version, self.asked = path, version, 0
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\necho '{version}'\necho 'InstalledDir: {path.parent}'\n")
        path.chmod(0o755)

    def answer(self, text: str = "text", argument: str = "-c") -> bytes:
        """Ask for it, as if no other test had asked for a version."""
        kept._version.cache_clear()
        expected = f"{self.version} {argument} {text}".encode()

        def ask() -> bytes:
            self.asked += 1
            return expected

        assert kept.kept([[str(self.path), argument]], text, ask) == expected
        return expected


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Program(tmp_path / "one" / "clang", "version 1")


def test_it_is_asked_once(program: Program, tmp_path: Path) -> None:
    """Another clone, whose program lies elsewhere, takes the answer too."""
    program.answer()
    program.answer()
    again = Program(tmp_path / "two" / "clang", "version 1")
    again.answer()
    assert (program.asked, again.asked) == (1, 0)


def test_what_it_depends_on_counts(program: Program) -> None:
    program.answer()
    program.answer("other text")
    program.answer(argument="-S")
    later = Program(program.path, "version 2")
    later.answer()
    assert (program.asked, later.asked) == (3, 1)


def test_a_damaged_answer_is_asked_again(program: Program) -> None:
    program.answer()
    (file,) = kept.folder().iterdir()
    whole = file.read_bytes()
    for number, damaged in enumerate((b"", whole[:-1], b"?" + whole[1:], whole[:-1] + b"?"), start=2):
        file.write_bytes(damaged)
        program.answer()
        assert program.asked == number
        assert file.read_bytes() == whole


def test_it_does_without_a_folder(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    program.answer()
    program.answer()
    assert program.asked == 2


def test_the_oldest_are_forgotten(program: Program) -> None:
    for number, text in enumerate(("old", "older", "new")):
        before = set(kept.folder().glob("*"))
        program.answer(text)
        (file,) = set(kept.folder().iterdir()) - before
        os.utime(file, ns=(0, 10**9 * (number != 1) + number))
    size = max(file.stat().st_size for file in kept.folder().iterdir())
    kept.forget_old(2 * size)
    for text in ("old", "new"):
        program.answer(text)
    assert program.asked == 3
    program.answer("older")
    assert program.asked == 4
