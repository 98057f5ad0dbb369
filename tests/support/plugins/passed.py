# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests of the software device that need not run twice, in this clone or another.

`pytest --note-passed` notes which of them ran whole and passed; `pytest --skip-passed` leaves those out. Only
tests that use no kernel of this project count. The notes lie in the user's cache folder, in a file for each
state of the device: a hash of all that decides every test. A line has a hash of what decides one folder of
tests beside that, and a test's name. Without a folder to write to nothing is noted, and all run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Generator, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from emulator.support.syntax import kept
from emulator.support.toolchain import emulator_path
from plugins import quick

TESTS = quick.TESTS
ROOT = TESTS.parent
_WHOLE = "ran whole"  # a property of a report, whose value is the test's line in the notes
# Tests of files with these words depend on kernels, pages, or more of the package than the state has.
_MORE = {
    "emulator": re.compile(
        r"pyfa_rocm|support\.kernels|file_of_tests|build/release|ROOT / \"(docs|native|build)"
    ),
    "clients": re.compile(r"import pyfa_rocm|from adapters|pyfa_rocm\.(jax|clock|oracle)|client_pages"),
}
# These decide every test beside the device's code: its programs, the tests' packages, compilers, and the part
# of our package that puts a program on the device.
_DECIDES = (
    *("native/emulator", "native/tools/fetch", "native/tools/toolchain.sh", "native/archs.toml"),
    *("native/tools/environments.sh", "native/tools/test_clients.sh"),
    *("tests/conftest.py", "tests/support/plugins", "tests/emulator/support"),
    *("pyfa_rocm/_runtime", "pyfa_rocm/array.py", "pyfa_rocm/device.py", "pyfa_rocm/emulator.py"),
    "pyfa_rocm/cli/device.py",
)
# A module that is imported, or a program that is run
_IMPORT = re.compile(r"^\s*(?:from|import) +(\w+)|\b(\w+)\.py\b", re.M)
_MOST_STATES = 16


def folder() -> Path:
    """Where the notes are, beside the compiler's cache."""
    return kept.in_user_cache("passed")


def _below(path: Path) -> list[Path]:
    """A file, or the files of a folder."""
    found = [path] if path.is_file() else sorted(path.rglob("*"))
    return [f for f in found if f.is_file() and "__pycache__" not in f.parts]


def _files() -> Iterator[Path]:
    for name in _DECIDES:
        found = _below(ROOT / name)
        assert found, f"{name} is not there"
        yield from found


def _add(found: Any, files: Iterable[Path]) -> None:
    for path in files:
        found.update(str(path.relative_to(ROOT)).encode() + hashlib.sha256(path.read_bytes()).digest())


@cache
def state() -> str:
    """A hash of what decides every test: files, FMHA_ variables, and what this machine's CPU can do."""
    found = hashlib.sha256(emulator_path().read_bytes())
    _add(found, _files())
    found.update(repr(sorted(pair for pair in os.environ.items() if pair[0].startswith("FMHA_"))).encode())
    cpu = re.search(r"^flags.*$", Path("/proc/cpuinfo").read_text(), re.M)
    found.update(cpu[0].encode() if cpu else b"")
    return found.hexdigest()


@cache
def state_of_tests(room: Path) -> str:
    """A hash of what decides a folder's tests beside `state`: its files, and what they import."""
    files = {*_below(room), *room.parent.glob("*.py"), *room.parent.glob("*.c")}
    left = [f for f in files if f.suffix == ".py" and (not f.name.startswith("test_") or may_count(f))]
    while left:
        names = {"".join(found) for found in _IMPORT.findall(left.pop().read_text())}
        more = {f for name in names for f in _shared(name)} - files
        files |= more
        left += more
    found = hashlib.sha256()
    _add(found, sorted(files))
    return found.hexdigest()[:16]


@cache
def _shared(name: str) -> list[Path]:
    """The files of a module or folder of tests/support, if it is one."""
    paths = [TESTS / "support" / f"{name}.py", TESTS / "support" / name]
    return [f for path in paths if path.exists() for f in _below(path) if f.suffix == ".py"]


@cache
def may_count(path: Path) -> bool:
    """Tell whether the state has all that a file's tests depend on."""
    rooms = [room for room in _MORE if path.is_relative_to(TESTS / room)]
    return bool(rooms) and not _MORE[rooms[0]].search(path.read_text())


def names() -> set[str]:
    """The tests that have passed in this state."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        lines = (folder() / state()).read_text().splitlines()
        if lines[:1] == [state()] and lines[-1:] == ["end"]:
            return set(lines[1:-1])
    return set()


def note(more: set[str]) -> None:
    """Add tests to this state's, and forget the oldest states."""
    with contextlib.suppress(OSError):
        kept.write(folder() / state(), "\n".join([state(), *sorted(names() | more), "end", ""]).encode())
        for old in sorted(folder().iterdir(), key=lambda path: -path.stat().st_mtime)[_MOST_STATES:]:
            old.unlink()


def add_options(parser: pytest.Parser) -> None:
    """Declare the two options."""
    parser.addoption("--note-passed", action="store_true", help="note which tests of the device passed")
    parser.addoption("--skip-passed", action="store_true", help="leave out what was noted")


def register(config: pytest.Config) -> None:
    """Register what the options ask for."""
    if config.getoption("--note-passed"):
        config.pluginmanager.register(Noting(is_worker=hasattr(config, "workerinput")))
    if config.getoption("--skip-passed"):
        config.pluginmanager.register(Skipping())


def _line(item: pytest.Item) -> str:
    """A test's line in the notes."""
    room = TESTS / item.path.relative_to(TESTS).parts[0]
    below = item.path.relative_to(room).parts
    # Tests of the device run one another's files, those of one client do not.
    is_of_a_client = room.name == "clients" and len(below) > 1
    return f"{state_of_tests(room / below[0] if is_of_a_client else room)} {item.nodeid}"


class Skipping:
    """The plugin that leaves tests out."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what was noted."""
        passed = names()
        left = [item for item in items if may_count(item.path) and _line(item) in passed]
        config.hook.pytest_deselected(items=left)
        out = set(left)
        items[:] = [item for item in items if item not in out]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Nothing left to run is no failure."""
        if names() and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK


class Noting:
    """The plugin that notes; with workers, they judge, and the process that reports writes."""

    def __init__(self, is_worker: bool) -> None:
        self.is_worker = is_worker
        self.passed: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Nothing of this test has been left out yet."""
        quick.shortened.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """Say of a test that has run whether it ran whole."""
        yield
        if may_count(item.path) and not quick.shortened and not quick.takes_fewer_examples(item):
            item.user_properties.append((_WHOLE, _line(item)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note it."""
        if report.when == "call" and report.passed:
            self.passed |= {str(line) for name, line in report.user_properties if name == _WHOLE}

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        if not self.is_worker:
            note(self.passed)
