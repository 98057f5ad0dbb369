# SPDX-License-Identifier: MIT OR Apache-2.0
"""The progress that a long command shows, and the tests that a quick run takes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from emulator.support import toolchain
from plugins import order, passed, quick

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


def test_what_a_whole_run_repeats_is_left_to_it() -> None:
    """One case of a test stays, none that forces a kernel, and all whose notes count there."""

    def items(file: str, function: str, **params: Any) -> list[Any]:
        return [
            SimpleNamespace(
                name=f"{function}[{value}]", originalname=function, path=quick.TESTS / file,
                get_closest_marker=lambda name: None, callspec=SimpleNamespace(params=params),
            )
            for value in "abc"
        ]  # fmt: skip

    every = items("device.py", "test_a") + items("ours.py", "test_b") + items("ours.py", "test_c", row=0)
    assert quick.choose(every, None) == every
    left: list[Any] = quick.choose(every, lambda path: path.name == "device.py")
    assert [item.originalname for item in left] == ["test_a"] * 3 + ["test_b"]


def test_what_forces_a_kernel() -> None:
    """A test with the mark, or of a row of the catalogue."""

    def item(mark: bool = False, **params: Any) -> Any:
        callspec = SimpleNamespace(params=params)
        return SimpleNamespace(get_closest_marker=lambda name: mark or None, callspec=callspec)

    assert quick.forces_a_kernel(item(mark=True))
    assert quick.forces_a_kernel(item(row={"name": "a kernel"}))
    assert not quick.forces_a_kernel(item(arch="gfx942"))
    assert not quick.forces_a_kernel(SimpleNamespace(get_closest_marker=lambda name: None))  # type: ignore[arg-type]


def test_what_passed_is_left_out(tmp_path: Path) -> None:
    """The device's own tests do not run twice while they and it stay the same, others while the tree does."""
    of_device, of_tree = "tests/emulator/isa/test_mad.py", "tests/python/test_tensor.py"
    always = "tests/build/test_version.py"
    notes = tmp_path / "pyfa_rocm" / "passed"

    def last_line(tests: list[str], *options: str) -> str:
        command = [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", *tests, *options]
        environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path)}
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stdout
        return done.stdout.splitlines()[-1]

    both = ("--note-passed", "--skip-passed")
    assert "deselected" not in last_line([of_device, of_tree, always], "--quick", *both)
    noted = {}
    for file in notes.iterdir():
        state, *names, end = file.read_text().splitlines()
        assert (state, end) == (file.name, "end")
        noted[names[0].split()[-1].partition("::")[0]] = len(names)
    assert set(noted) == {of_device, of_tree}
    before = {file: file.read_text() for file in notes.iterdir()}
    assert f" {sum(noted.values())} deselected" in last_line([of_device, of_tree, always], "--quick", *both)
    assert {file: file.read_text() for file in notes.iterdir()} == before
    # Without --quick a test may do more.
    assert f" {noted[of_device]} deselected" in last_line([of_device, of_tree], *both)
    assert last_line([of_device], *both).startswith(f"{noted[of_device]} deselected")  # which is no failure


def test_a_state_is_all_that_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file, a variable or the device that differs is another state; the oldest states are forgotten."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(passed, "_MOST_STATES", 4)
    file = tmp_path / "file"
    file.write_text("a")
    monkeypatch.setattr(passed, "_files", lambda: iter([ROOT / "CMakeLists.txt"]))
    states = []
    for change in (
        lambda: None,
        lambda: monkeypatch.setattr(passed, "_files", lambda: iter([ROOT / "README.md"])),
        lambda: monkeypatch.setenv("FMHA_EMU_ARCH", "gfx942"),
        lambda: monkeypatch.setenv("FMHA_TEST_EXAMPLES", "7"),
        lambda: monkeypatch.setenv("PYFA_ROCM_EMULATOR", str(file)),
        lambda: file.write_text("b"),
    ):
        change()
        toolchain.emulator_path.cache_clear()
        passed.state.cache_clear()
        states.append(passed.state())
        passed.note(passed.state(), {"a test"})
        assert passed.names(passed.state()) == {"a test"}
        passed.note(passed.state(), {"another"})
        assert passed.names(passed.state()) == {"a test", "another"}
    assert len(set(states)) == len(states)
    assert len(list(passed.folder().iterdir())) == 4
    noted = passed.folder() / passed.state()
    whole = noted.read_text()
    for damaged in (whole[:-3], whole[1:], "", "\udcff"):
        noted.write_bytes(damaged.encode(errors="surrogateescape"))
        assert passed.names(passed.state()) == set()
    monkeypatch.undo()
    toolchain.emulator_path.cache_clear()
    passed.state.cache_clear()


def test_what_decides_a_folder_of_tests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its files, modules that they import, and theirs; not those of tests that never count."""
    monkeypatch.setattr(passed, "ROOT", tmp_path)
    monkeypatch.setattr(passed, "TESTS", tmp_path / "tests")
    texts = {
        "emulator/isa/test_a.py": "from shared import a",
        "emulator/test_of_kernels.py": "import pyfa_rocm\nimport cases",
        "support/shared.py": "run('worker.py')",
        "support/worker.py": "",
        "support/cases.py": "",
        "clients/with_b/test_b.py": "",
        "clients/with_c/test_c.py": "",
    }
    files = {name: tmp_path / "tests" / name for name in texts}
    for name, path in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(texts[name])

    def states() -> list[str]:
        for cached in (passed.state_of_tests, passed.may_count):
            cached.cache_clear()
        return [passed.state_of_tests(tmp_path / "tests" / room) for room in ("emulator", "clients/with_b")]

    before = states()
    changed = {}
    for name, path in files.items():
        path.write_text(texts[name] + "\n")
        changed[name] = [a != b for a, b in zip(states(), before, strict=True)]
        path.write_text(texts[name])
    assert states() == before
    of_the_device = {
        "emulator/isa/test_a.py",
        "emulator/test_of_kernels.py",
        "support/shared.py",
        "support/worker.py",
    }
    assert {name for name, (emulator, _) in changed.items() if emulator} == of_the_device
    assert {name for name, (_, client) in changed.items() if client} == {"clients/with_b/test_b.py"}


def test_notes_without_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is noted where nothing can be written."""
    (tmp_path / "pyfa_rocm").write_text("a file")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    passed.note(passed.state(), {"a test"})
    assert passed.names(passed.state()) == set()


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
