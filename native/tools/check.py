# SPDX-License-Identifier: MIT OR Apache-2.0
"""Check what changed since a commit, in about a minute: ``check.py --build BUILD [--since HEAD]``.

Style and types of the changed files, a build of what depends on them, and the tests of their rooms, those
of kernels that include a changed header among them. It says what it chose, and what it had no time for.
`make test` runs tests of everything.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUDGET_SECONDS = 45  # of the tests
MOST_KERNELS = 8  # whose tests are run
LLVM = 19
# Folders of tests that have a command of their own
APART = ("adapters", "clients", "conda", "engines", "evidence", "site")
# Tests of what lies in a room, by the first pattern that matches: paths for pytest, an expression for ctest.
ROOMS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("native/emulator/isa/*", ("tests/emulator/isa", "tests/emulator/code/test_coverage.py"), "wave32"),
    ("native/emulator/image/*", ("tests/emulator/code/test_bundles.py",), ""),
    ("native/emulator/code/*", ("tests/emulator/code",), "opcode_map"),
    ("native/emulator/check/*", ("tests/emulator/check",), "wave64"),
    ("native/emulator/model/*", ("tests/emulator/model", "tests/python/clock/test_profile.py"), "time_"),
    ("native/emulator/*", ("tests/emulator/hip", "tests/python/runtime/test_runtime.py"), "runtime_emulator"),
    ("native/kernels/hip/*", (), "features|plan"),
    ("native/kernels/args/*", ("tests/python/forward/test_forward.py",), "."),
    (
        "native/kernels/*.toml",
        ("tests/build/test_build.py", "tests/build/test_backward_catalogue.py"),
        "select",
    ),
    ("native/kernels/*", ("tests/python/forward/test_forward.py",), "select|plan|features"),
    ("native/host/origins/*", ("tests/python/forward/test_forward.py",), "select|plan|features|bwd_whole"),
    (
        "native/host/*",
        ("tests/python/forward/test_bad_input.py", "tests/python/forward/test_forward.py"),
        ".",
    ),
    ("native/include/*", ("tests/build/test_abi.py", "tests/build/test_abi_page.py"), "header|hpp"),
    ("native/jax/*", (), "jax"),
    ("native/onnxruntime/*", (), ""),
    ("native/archs.toml", ("tests/build/test_build.py", "tests/build/test_targets_and_jobs.py"), "select"),
    ("native/*", ("tests/build",), ""),
    ("pyfa_rocm/oracle/*", ("tests/python/test_reference.py", "tests/python/test_structure.py"), ""),
    ("pyfa_rocm/clock/*", ("tests/python/clock/test_clock_points.py", "tests/python/test_structure.py"), ""),
    ("benchmarks/published/*", ("tests/python/clock/test_clock_points.py",), ""),
    (
        "pyfa_rocm/cli/*",
        (
            "tests/python/cli/test_cli.py",
            "tests/python/cli/test_cli_demo.py",
            "tests/python/test_structure.py",
        ),
        "",
    ),
    ("pyfa_rocm/*", ("tests/python/test_structure.py", "tests/python/test_functions.py"), ""),
    ("tests/c_abi/*", (), "."),
    ("docs/*", ("tests/docs/test_docs.py", "tests/docs/test_messages.py"), ""),
    ("README.md", ("tests/docs/test_docs.py",), ""),
    ("*.toml", ("tests/build/test_pinned.py",), ""),
)
# Files that people read: prose.py reads their comments.
PROSE = (
    ".py", ".cc", ".c", ".h", ".hpp", ".hip", ".rs", ".md", ".sh", ".cmake", "CMakeLists.txt", ".toml",
    ".yml", "Makefile",
)  # fmt: skip
# Files with tests of every kernel, by family.
KERNEL_TESTS = {
    "fwd": "forward/test_every_kernel.py",
    "bwd": "backward/test_backward.py",
    "bwd_parts": "backward/test_backward.py",
    "decode": "cached/test_decode.py",
    "kv_append": "cached/test_kv_append.py",
    "merge": "cached/test_merge.py",
    "quantize": "test_quantize.py",
}


def output(*command: str) -> list[str]:
    """The lines that a command prints."""
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def changed(since: str) -> list[str]:
    """Files that differ from a commit and exist, and those that git does not know yet."""
    names = output("git", "diff", "--name-only", since)
    names += output("git", "ls-files", "--others", "--exclude-standard")
    return sorted({name for name in names if (ROOT / name).is_file()})


def tests_of(names: Iterable[str]) -> tuple[list[str], str]:
    """The tests of files: paths for pytest, and an expression for ctest."""
    paths: dict[str, None] = {}
    native: dict[str, None] = {}
    for name in names:
        if re.fullmatch(r"tests/.*/test_\w+\.py", name) and name.split("/")[1] not in APART:
            paths[name] = None
        elif name.startswith(("tests/support/", "tests/emulator/support/")):
            word = re.compile(rf"\b(import|from)\b.*\b{Path(name).stem}\b")
            users = (p for p in (ROOT / "tests").rglob("test_*.py") if word.search(p.read_text()))
            found_in = [p.relative_to(ROOT) for p in list(users)[:6]]
            paths |= dict.fromkeys(str(p) for p in found_in if p.parts[1] not in APART)
        for pattern, found, programs in ROOMS:
            if fnmatch(name, pattern):
                paths |= dict.fromkeys(found)
                native |= dict.fromkeys(filter(None, programs.split("|")))
                break
        named = f"test_{Path(name).stem.removeprefix('_')}.py"
        if name.startswith("pyfa_rocm/"):
            paths |= dict.fromkeys(str(p.relative_to(ROOT)) for p in (ROOT / "tests" / "python").rglob(named))
    return list(paths), "" if not native else "." if "." in native else "|".join(native)


def kernels_of(names: Iterable[str], build: Path) -> list[dict[str, str]]:
    """Kernels of the build that include one of the files, a few of them: of each arch and family first."""
    headers = tuple(name for name in names if name.startswith("native/kernels/"))
    found: dict[tuple[str, str], list[dict[str, str]]] = {}
    for path in sorted((build / "kernels").glob("*/*.co.d")):
        words = path.read_text().split()
        if not any(word.endswith(headers) for word in words):
            continue
        rows = json.loads(path.with_name(path.name.removesuffix(".co.d") + ".rows.json").read_text())
        for row in rows:
            found.setdefault((row["arch"], row["family"]), []).append(row)
    chosen: list[dict[str, str]] = []
    while found and len(chosen) < MOST_KERNELS:
        for key in list(found):
            chosen.append(found[key].pop(0))
            if not found[key]:
                del found[key]
    return chosen[:MOST_KERNELS]


class Report:
    """Runs commands, and keeps what failed."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def run(self, what: str, *command: str, env: dict[str, str] | None = None) -> None:
        """Run a command, say how long it took, and remember it if it fails."""
        began = time.monotonic()
        words = [f"{name}={value}" for name, value in (env or {}).items()]
        done = subprocess.run(["env", *words, *command], cwd=ROOT, check=False)
        status = "ok" if done.returncode in (0, 5) else "FAILED"  # 5: pytest found no test
        print(f"check: {what}: {status}, {time.monotonic() - began:.0f} s", flush=True)
        if status == "FAILED":
            self.failed.append(what)


def style(report: Report, names: list[str]) -> None:
    """Style and prose of the changed files, and types if one is Python."""
    python = [name for name in names if name.endswith(".py")]
    cxx = [name for name in names if name.endswith((".cc", ".h", ".hpp", ".hip", ".c"))]
    tools = ROOT / "build" / "venv" / "bin"
    if python:
        report.run("ruff", str(tools / "ruff"), "check", "-q", *python)
        report.run("format", str(tools / "ruff"), "format", "-q", "--check", *python)
        if any(name.startswith(("pyfa_rocm/", "tests/", "benchmarks/published/")) for name in python):
            report.run("mypy", str(tools / "mypy"), "--no-error-summary")
    prose = [name for name in names if name.endswith(PROSE)]
    if prose:
        lint = ROOT / "native" / "tools" / "lint"
        report.run("prose", sys.executable, str(lint / "prose.py"), *prose)
    if cxx:
        report.run("clang-format", f"clang-format-{LLVM}", "--dry-run", "--Werror", *cxx)


def main() -> int:
    """Choose, check, say what failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--since", default="HEAD")
    parser.add_argument("--jobs", default="2")
    args = parser.parse_args()
    build = args.build.resolve()
    names = changed(args.since)
    if not names:
        print(f"check: nothing differs from {args.since}")
        return 0
    if not (build / "build.ninja").exists():
        print("check: there is no build yet: run `make demo` or `make test` first", file=sys.stderr)
        return 1
    kernels = kernels_of(names, build)
    paths, programs = tests_of(names)
    print(f"check: {len(names)} files; tests of {', '.join(paths) or 'no room'}; {len(kernels)} kernels")
    report = Report()
    style(report, names)
    if (
        any(name.startswith("native/") or name.endswith(("CMakeLists.txt", ".cmake")) for name in names)
        or programs
    ):
        progress = str(ROOT / "native" / "tools" / "progress.py")
        build_all = ("cmake", "--build", str(build), "--parallel", args.jobs)
        report.run("build", sys.executable, progress, "building", *build_all)
    if programs and not report.failed:
        chosen = (
            "-R",
            programs,
            "-E",
            "fuzz|concurrency",
            "--output-on-failure",
            "--parallel",
            args.jobs,
            "-Q",
        )
        report.run("native tests", "ctest", "--test-dir", str(build), *chosen)
    pytest = [sys.executable, "-m", "pytest", "-q", "--no-header", "--quick", f"--budget={BUDGET_SECONDS}"]
    for arch in sorted({row["arch"] for row in kernels}) if not report.failed else ():
        rows = [row for row in kernels if row["arch"] == arch]
        files = sorted({f"tests/python/{KERNEL_TESTS[row['family']]}" for row in rows})
        named = " or ".join(f"({row['name']}-" + f" or {row['name']}])" for row in rows)
        report.run(f"kernels of {arch}", *pytest, "-m", "every_kernel", "-k", named, *files,
                   env={"FMHA_EMU_ARCH": arch})  # fmt: skip
    if paths and not report.failed:
        report.run("tests", *pytest, "-n", args.jobs, "--dist", "worksteal", *paths)
    print(f"check: {'FAILED: ' + ', '.join(report.failed) if report.failed else 'all right'}")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
