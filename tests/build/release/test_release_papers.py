# SPDX-License-Identifier: MIT OR Apache-2.0
"""Changelog, citation and the forms for issues agree with the version and name only commands that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from installed import VERSION

from pyfa_rocm.cli import main

ROOT = Path(__file__).resolve().parents[3]
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
RELEASES = re.findall(
    r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2})$", (ROOT / "CHANGELOG.md").read_text(), re.M
)


def test_the_changelog_ends_with_this_version() -> None:
    """Newest first, each once, in order of time; below a heading for what has no version yet."""
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (.*)$", text, re.M)
    assert headings == ["[Unreleased]", *(f"[{version}] - {date}" for version, date in RELEASES)]
    numbers = [tuple(map(int, version.split("."))) for version, _ in RELEASES]
    assert RELEASES[0][0] == VERSION
    assert numbers == sorted(set(numbers), reverse=True)
    dates = [date for _, date in RELEASES]
    assert dates == sorted(dates, reverse=True)
    kinds = set(re.findall(r"^### (.*)$", text, re.M))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_each_change_is_one_line() -> None:
    sections = re.findall(r"^### .*\n([^#]*)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    lines = [line for section in sections for line in section.splitlines() if line]
    assert lines
    assert [line for line in lines if not re.fullmatch(r"- [A-Z`].*\.", line)] == []


def test_citation_is_of_this_version() -> None:
    """It has the keys that version 1.2.0 of the Citation File Format requires."""
    cited: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(cited)
    assert cited["type"] == "software"
    assert (cited["version"], str(cited["date-released"])) == RELEASES[0]
    assert all(set(author) == {"name"} and author["name"] for author in cited["authors"])
    stated = re.findall(r'^license = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.M)
    assert [" OR ".join(cited["license"])] == stated


def test_forms_are_of_each_kind() -> None:
    assert [path.stem for path in FORMS] == ["crash", "refused", "slow", "wrong_result"]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_form_asks_what_is_in_use(path: Path) -> None:
    form: dict[str, Any] = yaml.safe_load(path.read_text())
    assert set(form) == {"name", "description", "title", "labels", "body"}
    fields = {field["id"]: field for field in form["body"]}
    assert len(fields) == len(form["body"])
    for field in fields.values():
        assert set(field) == {"type", "id", "attributes", "validations"}
        assert field["type"] == "textarea"
        assert set(field["attributes"]) - {"render"} == {"label", "description"}
    assert "`pyfa-rocm info --json`" in fields["info"]["attributes"]["label"]
    assert fields["info"]["validations"] == {"required": True}


@pytest.mark.parametrize("path", [*FORMS, ROOT / ".github" / "SECURITY.md"], ids=lambda path: path.stem)
def test_commands_exist(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command's --help names the options that the text gives it."""
    commands = re.findall(r"`pyfa-rocm ([^`]*)`", path.read_text())
    assert "info --json" in commands
    for command in commands:
        name, *options = shlex.split(command)
        with pytest.raises(SystemExit) as left:
            main.main([name, "--help"])
        assert left.value.code == 0
        told = capsys.readouterr().out
        options = [option for option in options if option.startswith("--") and len(option) > 2]
        assert [option for option in options if option not in told] == []
