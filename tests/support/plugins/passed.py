# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tests that need not run twice, in this clone or another.

`pytest --note-passed` notes which of them passed; `pytest --skip-passed` leaves those out. The notes lie in
the user's cache folder, in a file for each state: a hash of all that decides a test. There are two kinds.
Tests that use no kernel of this project depend on the software device, and on a folder of tests, whose hash
begins their line. All others depend on the whole tree: nothing of it may have changed since they passed.
Without a folder to write to nothing is noted, and all run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Generator, Iterable, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from emulator.support.syntax import kept
from emulator.support.toolchain import emulator_path
from plugins import errors, quick

TESTS = quick.TESTS
ROOT = TESTS.parent
_PASSED = "may be noted"  # a property of a report; its value is a state and the test's line in its file
# These tests look at results of a build, or at files outside of the tree.
_ALWAYS = ("build", "evidence", "site", "windows")
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
    *("pyfa_rocm/cli/device.py", "tests/clients/pytest.ini"),
)
# A module that is imported, or a program that is run
_IMPORT = re.compile(r"^\s*(?:from|import) +([\w, ]+)|\b(\w+)\.py\b", re.M)
_MOST_STATES = 64


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


def _of_device() -> Any:
    """The device, FMHA_ variables, and what this machine's CPU can do."""
    found = hashlib.sha256(emulator_path().read_bytes())
    found.update(repr(sorted(pair for pair in os.environ.items() if pair[0].startswith("FMHA_"))).encode())
    cpu = re.search(r"^flags.*$", Path("/proc/cpuinfo").read_text(), re.M)
    found.update(cpu[0].encode() if cpu else b"")
    return found


@cache
def state() -> str:
    """A hash of what decides every test of the device; empty if it is not built."""
    try:
        found = _of_device()
    except FileNotFoundError:
        return ""
    _add(found, _files())
    return str(found.hexdigest())


@cache
def state_of_tree(options: str) -> str:
    """A hash of what decides any test: each file of the tree, what was built, and Python's packages.

    It is empty if there is no build, or git does not say which files are the tree's.
    """
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    library = ROOT / "build" / "release" / "libfmha_rocm.so"
    if listed.returncode or not files or not library.is_file() or not state():
        return ""
    ours = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PYFA_ROCM_") and name != errors.VARIABLE
    }
    found = _of_device()
    _add(found, sorted(path for path in [*files, library] if path.is_file()))
    for value in ours.values():  # a wheel, or another library
        if Path(value).is_file():
            found.update(Path(value).read_bytes())
    packages = sorted({f"{one.name} {one.version}" for one in metadata.distributions()})
    said = [options, sys.version, packages, os.environ.get("PYTHONPATH", ""), sorted(ours.items())]
    found.update(repr(said).replace(str(ROOT), "").encode())
    return str(found.hexdigest())


@cache
def state_of_tests(room: Path) -> str:
    """A hash of what decides a folder's tests beside `state`: its files, and what they import."""
    files = {*_below(room), *room.parent.glob("*.py"), *room.parent.glob("*.c")}
    left = [f for f in files if f.suffix == ".py" and (not f.name.startswith("test_") or may_count(f))]
    while left:
        found = ",".join("".join(groups) for groups in _IMPORT.findall(left.pop().read_text()))
        names = {words.split()[0] for words in found.split(",") if words.strip()}
        more = {f for name in names for f in _shared(name)} - files
        files |= more
        left += more
    state = hashlib.sha256()
    _add(state, sorted(files))
    return state.hexdigest()[:16]


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


def names(of: str) -> set[str]:
    """The lines of what has passed in a state."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        lines = (folder() / of).read_text().splitlines()
        if lines[:1] == [of] and lines[-1:] == ["end"]:
            return set(lines[1:-1])
    return set()


def note(of: str, more: set[str]) -> None:
    """Add lines to a state's, and forget the oldest states."""
    with contextlib.suppress(OSError):
        kept.write(folder() / of, "\n".join([of, *sorted(names(of) | more), "end", ""]).encode())
        for old in sorted(folder().iterdir(), key=lambda path: -path.stat().st_mtime)[_MOST_STATES:]:
            old.unlink()


def add_options(parser: pytest.Parser) -> None:
    """Declare the two options, once: a run may have two groups of tests."""
    with contextlib.suppress(ValueError):
        parser.addoption("--note-passed", action="store_true", help="note which tests passed")
        parser.addoption("--skip-passed", action="store_true", help="leave out what was noted")


def register(config: pytest.Config) -> None:
    """Register what the options ask for; a card's state is not known."""
    if config.getoption("--device", "emulator") != "emulator" or config.pluginmanager.hasplugin(__name__):
        return
    if config.getoption("--note-passed"):
        config.pluginmanager.register(Noting(config, is_worker=hasattr(config, "workerinput")), __name__)
    if config.getoption("--skip-passed"):
        config.pluginmanager.register(Skipping())


def _of_device_alone(item: pytest.Item) -> tuple[str, str]:
    """A test's state and its line there, if it may count with the device's."""
    if not may_count(item.path):
        return "", ""
    room = TESTS / item.path.relative_to(TESTS).parts[0]
    below = item.path.relative_to(room).parts
    # Tests of the device run one another's files, those of one client do not.
    is_of_a_client = room.name == "clients" and len(below) > 1
    return state(), f"{state_of_tests(room / below[0] if is_of_a_client else room)} {item.nodeid}"


def _of_tree(item: pytest.Item) -> tuple[str, str]:
    """The same with the whole tree's. Tests that write down errors for the page of evidence always run."""
    parts = item.path.relative_to(TESTS).parts if item.path.is_relative_to(TESTS) else _ALWAYS
    if parts[0] in _ALWAYS or (os.environ.get(errors.VARIABLE) and errors.row_of(item)):
        return "", ""
    return _states(item.config)[1], str(item.nodeid)


def _states(config: pytest.Config) -> list[str]:
    """The states of a run: the device's, and the tree's with these options."""
    options = [config.getoption(name, None) for name in ("--quick", "--full-follows", "--soak")]
    return [state(), state_of_tree(repr(options))]


class Skipping:
    """The plugin that leaves tests out."""

    def __init__(self) -> None:
        self.has_left_out = False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, None, None]:
        """Leave out what was noted, after all other choices: fewer tests, and no others."""
        yield
        passed = cache(names)
        left = {
            item
            for item in items
            for of, line in (_of_device_alone(item), _of_tree(item))
            if of and line in passed(of)
        }
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]
        self.has_left_out = bool(left)
        if hasattr(config, "workeroutput"):
            config.workeroutput[__name__] = self.has_left_out

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Learn whether a worker has left something out."""
        self.has_left_out |= getattr(node, "workeroutput", {}).get(__name__, False)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Nothing left to run is no failure, if there was something."""
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.has_left_out:
            session.exitstatus = pytest.ExitCode.OK


class Noting:
    """The plugin that notes; with workers, they judge, and the process that reports writes."""

    def __init__(self, config: pytest.Config, is_worker: bool) -> None:
        self.is_worker = is_worker
        self.passed: dict[str, tuple[str, str]] = {}  # by test: a state, and the test's line there
        _states(config)  # as they are now: tests change variables, and people files

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Nothing of this test has been left out yet."""
        quick.shortened.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, None, None]:
        """Say of a test that has run where it may be noted."""
        yield
        whole = not quick.shortened and not quick.takes_fewer_examples(item)
        of, line = _of_device_alone(item) if whole and may_count(item.path) else _of_tree(item)
        if of:
            item.user_properties.append((_PASSED, f"{of} {line}"))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note it, unless what follows the test fails."""
        if report.failed:
            self.passed.pop(report.nodeid, None)
        for name, value in report.user_properties:
            if name == _PASSED and report.when == "call" and report.passed:
                of, _, line = str(value).partition(" ")
                self.passed[report.nodeid] = of, line

    def pytest_sessionfinish(self) -> None:
        """Write the files."""
        if self.is_worker:
            return
        for of in {of for of, _ in self.passed.values()}:
            note(of, {line for other, line in self.passed.values() if other == of})
