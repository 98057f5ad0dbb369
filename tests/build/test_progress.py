# SPDX-License-Identifier: MIT OR Apache-2.0
"""The progress that a long command shows, and the tests that a quick run takes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from plugins import order, quick

ROOT = Path(__file__).resolve().parents[2]


def run(script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "native/tools/progress.py"), "building", "sh", "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_how_far_a_build_is() -> None:
    """The last line has the count and the step; what is no step is passed on, and so is the exit status."""
    done = run('echo "[1/2] Building a.o"; echo "a.cc:1: warning: b"; echo "[2/2] Linking c"; exit 3')
    assert done.returncode == 3
    warning, meter = done.stdout.splitlines()
    assert warning == "a.cc:1: warning: b"
    assert re.match(r"building: 100%\|.*\| 2/2 \[.*, Linking c\]$", meter)


def test_how_far_ctest_is() -> None:
    """A failure is passed on, what passed is not."""
    passed = "      Start 1: native.a\n1/2 Test #1: native.a ......   Passed    0.01 sec"
    failed = "2/2 Test #2: native.b ......***Failed    0.01 sec"
    done = run(f"printf '%s\\n' '{passed}' '{failed}'")
    assert done.stdout.splitlines() == [failed]


def test_each_entry_is_a_test() -> None:
    """Each entry of tests/quick.ini names a test."""
    for name, count in quick.cases_by_test().items():
        path, _, function = name.partition("::")
        assert re.search(rf"^def {function}\(", (quick.TESTS / path).read_text(), re.M), name
        assert count >= 0


def test_each_value_comes_first() -> None:
    """Three cases have all three values of both parameters; a second round begins with others."""
    items: list[Any] = [SimpleNamespace(name=f"test_x[{a}-{b}]") for a in "abc" for b in "xyz"]
    chosen = quick.spread(items, 3)
    assert sorted(item.name[7] for item in chosen) == list("abc")
    assert sorted(item.name[9] for item in chosen) == list("xyz")
    assert len({item.name for item in quick.spread(items, 9)}) == 9
    assert quick.spread(items, 0) == []


def test_what_passed_is_left_out(tmp_path: Path) -> None:
    """The software device's own tests do not run twice, as long as neither they nor the device change."""
    file = tmp_path / "passed.txt"
    tests = ["tests/emulator/isa/test_mad.py", "tests/build/test_version.py"]

    def last_line(*options: str) -> str:
        command = [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", *tests, *options]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
        return done.stdout.splitlines()[-1]

    first = last_line("--quick", "--note-passed", str(file))
    state, *names = file.read_text().splitlines()
    assert names
    assert all(name.startswith("tests/emulator/") for name in names)
    rest = last_line("--skip-passed", str(file))
    assert f"{len(names)} deselected" in rest
    assert "deselected" not in first
    file.write_text("\n".join([state[::-1], *names]))
    assert "deselected" not in last_line("--skip-passed", str(file))


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
@pytest.mark.parametrize(("costly", "cheap"), [(5, 16), (0, 3), (9, 2), (1, 0), (0, 0)])
def test_costly_tests_come_first(
    monkeypatch: pytest.MonkeyPatch, workers: int, costly: int, cheap: int
) -> None:
    """Every worker's part begins with its share of them, and no test is lost."""
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", str(workers))
    monkeypatch.setattr(quick, "cases_by_test", lambda: {"costly": 1})
    monkeypatch.setattr(quick, "name_of", lambda item: item.partition(" ")[0])
    items: Any = [f"cheap {n}" for n in range(cheap)] + [f"costly {n}" for n in range(costly)]
    ordered = order.costly_first(items)
    assert sorted(map(str, ordered)) == sorted(items)
    for worker in range(workers):
        share = len(range(worker, costly, workers))
        at = worker * len(items) // workers
        part = ordered[at : (worker + 1) * len(items) // workers]
        if costly <= cheap:
            assert [str(item).startswith("costly") for item in part] == [n < share for n in range(len(part))]
