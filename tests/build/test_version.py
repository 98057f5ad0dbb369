# SPDX-License-Identifier: MIT OR Apache-2.0
"""Only the public header states the version; everything else reads it there."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:  # the copy inside pip
    from pip._vendor import tomli as tomllib

import pyfa_rocm
from pyfa_rocm._runtime import library, paths

ROOT = Path(__file__).resolve().parents[2]
HEADER = ROOT / "native" / "include" / "fmha_rocm.h"
VERSION = paths.header_version(HEADER.read_text(encoding="utf-8"))


def test_header_states_three_numbers() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)


def test_library_and_package_have_the_headers_version() -> None:
    assert library.version() == VERSION
    assert pyfa_rocm.__version__ == VERSION
    assert json.loads(library.build_info_json())["version"] == VERSION


def test_wheel_takes_the_headers_version() -> None:
    """Return the version as the build backend reads it with these settings."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["project"]["dynamic"] == ["version"]
    settings = project["tool"]["scikit-build"]["metadata"]["version"]
    match = re.search(settings["regex"], (ROOT / settings["input"]).read_text(encoding="utf-8"), re.MULTILINE)
    assert match
    assert settings["result"].format(**match.groupdict()) == VERSION


def test_nothing_else_states_it() -> None:
    # release/test_release_papers.py compares these two with the header.
    papers = {"CHANGELOG.md", "CITATION.cff"}
    files = [path for path in ROOT.iterdir() if path.is_file() and path.name not in papers]
    for folder in ("native", "pyfa_rocm", "tests", "benchmarks", "examples", ".ci"):
        files += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    stated = re.compile(rb"(?<![\d.])" + re.escape(VERSION.encode()) + rb"(?![\d.])")
    assert [str(path) for path in files if path.suffix != ".pyc" and stated.search(path.read_bytes())] == []
