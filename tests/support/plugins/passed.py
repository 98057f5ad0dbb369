# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests of the software device that need not run twice.

`pytest --quick --note-passed FILE` notes which of them ran whole and passed; `pytest --skip-passed FILE`
leaves those out. Only tests that use no kernel of this project count, since `make test` builds some and
`make test-full` all. FILE begins with a hash of the device and its tests: of others it says nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest
from plugins import quick

TESTS = quick.TESTS
_WHOLE = "ran whole"  # a property of a report
_USES_KERNELS = re.compile(r"pyfa_rocm|support\.kernels|\brun_as\b")


def state() -> str:
    """A hash of the device and of what tests it."""
    from emulator.support.toolchain import emulator_path

    found = hashlib.sha256(emulator_path().read_bytes())
    folders = (TESTS / "emulator", TESTS / "support")
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        found.update(str(path.relative_to(TESTS)).encode() + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


@cache
def may_count(path: Path) -> bool:
    """Tell whether a file's tests depend on nothing but the device."""
    return path.is_relative_to(TESTS / "emulator") and not _USES_KERNELS.search(path.read_text())


class Noting:
    """The plugin that notes; with workers, they judge, and the process that reports writes."""

    def __init__(self, file: Path, is_worker: bool) -> None:
        self.file = file
        self.is_worker = is_worker
        self.names: list[str] = []
        file.unlink(missing_ok=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Nothing of this test has been left out yet."""
        quick.shortened.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """Say of a test that has run whether it ran whole."""
        yield
        if may_count(item.path) and not quick.shortened and not quick.takes_fewer_examples(item):
            item.user_properties.append((_WHOLE, True))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note it."""
        if report.when == "call" and report.passed and (_WHOLE, True) in map(tuple, report.user_properties):
            self.names.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        if not self.is_worker:
            self.file.write_text("\n".join([state(), *sorted(self.names)]) + "\n")


def without_passed(items: list[pytest.Item], file: Path) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Return the tests to run, and those to leave out; all run if the file is absent or of another state."""
    first, *names = file.read_text().splitlines() if file.exists() else [""]
    passed = set(names) if first == state() else set()
    return [i for i in items if i.nodeid not in passed], [i for i in items if i.nodeid in passed]
