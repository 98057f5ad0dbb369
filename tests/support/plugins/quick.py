# SPDX-License-Identifier: MIT OR Apache-2.0
"""`pytest --quick`: the part of the tests that `make test` and `make check` run.

tests/quick.ini says of each test that costs much how many of its cases are worth their time; all others run
whole, hypothesis tests with an eighth of their examples. Cases are chosen so that each value of each
parameter comes first. `make test` builds some of the kernels of `ci`, so a test that only fails for want of
a kernel counts as skipped here, and nowhere else.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import time
import zlib
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from pyfa_rocm._runtime import library

TESTS = Path(__file__).resolve().parents[2]
_VARIABLE = "PYTEST_QUICK"
MISSING = re.compile(r"UnsupportedError|this build has no|kernels?( over a KV cache)? of this build for")
_FEWER: set[Any] = set()  # functions of tests that take fewer examples already
shortened: list[str] = []  # what the test at hand has left out


def cases_by_test() -> dict[str, int]:
    """How many cases of a test to run, by "folder/file.py::test"."""
    file = configparser.ConfigParser(delimiters=("=",))
    file.optionxform = str  # type: ignore[assignment,method-assign]
    file.read(TESTS / "quick.ini")
    return {name: int(count) for name, count in file["cases"].items()}


def name_of(item: pytest.Item) -> str:
    """A test's name in tests/quick.ini."""
    path = item.path.relative_to(TESTS) if item.path.is_relative_to(TESTS) else item.path
    return f"{path}::{getattr(item, 'originalname', item.name)}"


def _values(item: pytest.Item) -> list[str]:
    """The values of its parameters, by their names in its id."""
    found = re.search(r"\[(.*)\]$", item.name)
    return [f"{i} {word}" for i, word in enumerate(found[1].split("-"))] if found else []


def spread(items: list[pytest.Item], count: int) -> list[pytest.Item]:
    """Choose this many cases of a test; the next is the one with the most values not had yet."""
    left = sorted(items, key=lambda item: zlib.crc32(item.name.encode()))
    seen: set[str] = set()
    chosen: list[pytest.Item] = []
    while left and len(chosen) < count:
        best = max(left, key=lambda item: len(set(_values(item)) - seen))
        if not set(_values(best)) - seen:
            seen.clear()  # another round
        seen |= set(_values(best))
        chosen.append(best)
        left.remove(best)
    return chosen


def arguments() -> list[str]:
    """Return the options of a run that is part of this one, in a process of its own."""
    if not os.environ.get(_VARIABLE):
        return []
    shortened.append("an inner run")
    return ["--quick"]


def takes_fewer_examples(item: pytest.Item) -> bool:
    """Tell whether it is a hypothesis test, shortened."""
    return getattr(item, "function", None) in _FEWER


def take_fewer_examples(item: pytest.Item) -> None:
    """Let a hypothesis test take an eighth of its examples."""
    name = "_hypothesis_internal_use_settings"
    function = getattr(item, "function", None)
    asked = getattr(function, name, None)
    if asked is not None and function not in _FEWER:
        _FEWER.add(function)
        setattr(function, name, settings(asked, max_examples=max(1, asked.max_examples // 8)))


def is_for_want_of_a_kernel(error: BaseException) -> bool:
    """Tell whether an error, or the output of a process, says that no kernel of this build does it."""
    return type(error).__name__ == "UnsupportedError" or bool(MISSING.search(str(error)))


def forces_a_kernel(item: pytest.Item) -> bool:
    """Tell whether a test runs one kernel, whichever others there are."""
    callspec = getattr(item, "callspec", None)
    return bool(item.get_closest_marker("every_kernel") or (callspec and "row" in callspec.params))


def choose(items: list[pytest.Item], counts_there: Callable[[Path], bool] | None) -> list[pytest.Item]:
    """Choose what runs; `counts_there` is as for Quick."""
    counts = cases_by_test()
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(name_of(item), []).append(item)
    chosen: list[pytest.Item] = []
    for name, group in groups.items():
        count, cases = counts.get(name, len(group)), group
        if counts_there and not counts_there(group[0].path):
            count, cases = min(count, 1), [item for item in group if not forces_a_kernel(item)]
        chosen += cases if count >= len(cases) else spread(cases, count)
    return chosen


class Quick:
    """The plugin: `budget` seconds are for all tests of a process, 0 means that there is no limit.

    If a whole run with more kernels follows, tests that force a kernel are left to it, and so are all but one
    case of any other; not those of files for which `counts_there` is true, which it need not run again.
    """

    def __init__(self, budget: float, counts_there: Callable[[Path], bool] | None = None) -> None:
        self.budget = budget
        self.counts_there = counts_there
        self.began = time.monotonic()
        self.is_partial = bool(json.loads(library.build_info_json())["kernel_filter"])
        os.environ[_VARIABLE] = "1"

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what costs more than it covers."""
        kept = {id(item) for item in choose(items, self.counts_there)}
        config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
        items[:] = [item for item in items if id(item) in kept]
        for item in items:
            take_fewer_examples(item)

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Begin nothing once the time is over."""
        if self.budget and time.monotonic() - self.began > self.budget:
            pytest.skip("no time left: `make test` runs it")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[Any]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Count a test as skipped that this build has no kernel for."""
        report = yield
        if report.failed and call.excinfo and self.is_partial and is_for_want_of_a_kernel(call.excinfo.value):
            report.outcome = "skipped"
            path, line, _ = item.location
            report.longrepr = (path, line or 0, "its kernel is not among those of `make test`")
        return report
