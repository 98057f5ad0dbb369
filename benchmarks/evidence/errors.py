# SPDX-License-Identifier: MIT OR Apache-2.0
"""How far each kernel is from float64, as the tests that force it have judged it.

`make test-full` leaves that in build/release/errors (tests/support/plugins/errors.py). A record counts if its
code object is the library's. Kernels without one are tested here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "python"
# Tests that force a kernel: those of the mark every_kernel, and those of kernels that come prebuilt.
EVERY = ("every_kernel", "backward", "decode", "decode_caches", "merge", "kv_append", "quantize")
PREBUILT = ("prebuilt", "prebuilt_backward")
# Names on the command line of pytest; for more, all tests of an arch run.
MOST_NAMES = 40
# No test forces these: they run before and after a backward kernel, and are judged by its gradients.
PARTS = "bwd_parts"

Kernel = dict[str, Any]


def _key(kernel: Kernel) -> tuple[str, str]:
    return kernel["arch"], kernel["name"]


def _add(total: Kernel, more: Kernel) -> None:
    """Add what another process has seen of a kernel."""
    for name in ("tests", "failed"):
        total[name] += more[name]
    for result, found in more["results"].items():
        if result not in total["results"]:
            total["results"][result] = found
            continue
        mine = total["results"][result]
        mine["counts"] = [a + b for a, b in zip(mine["counts"], found["counts"], strict=True)]
        for name in ("elements", "squares"):
            mine[name] += found[name]
        if not found["worst"] <= mine["worst"]:
            mine |= {name: found[name] for name in ("worst", "error", "bound")}


def read(folder: Path, kernels: list[Kernel]) -> dict[tuple[str, str], Kernel]:
    """Return the records of these kernels, by arch and name, of all processes together."""
    sums = {_key(kernel): kernel["sha256"] for kernel in kernels}
    found: dict[tuple[str, str], Kernel] = {}
    for path in sorted(folder.glob("*.json")):
        for record in json.loads(path.read_text()):
            key = _key(record)
            if sums.get(key) != record["sha256"]:
                continue
            if key in found:
                _add(found[key], record)
            else:
                found[key] = record
    return found


def missing(kernels: list[Kernel], found: dict[tuple[str, str], Kernel]) -> list[Kernel]:
    """Return the kernels that have no record of a test."""
    tested = {key for key, record in found.items() if record["tests"] + record["failed"]}
    return [kernel for kernel in kernels if kernel["family"] != PARTS and _key(kernel) not in tested]


def _files(names: tuple[str, ...]) -> list[str]:
    return [str(path) for name in names for path in TESTS.rglob(f"test_{name}.py")]


def _runs(kernels: list[Kernel]) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Yield runs of pytest: the variables that choose the card, and the arguments."""
    for arch in sorted({kernel["arch"] for kernel in kernels}):
        of_arch = [kernel for kernel in kernels if kernel["arch"] == arch]
        names = [kernel["name"] for kernel in of_arch]
        chosen = ["-k", " or ".join(names)] if len(names) <= MOST_NAMES else []
        compiled = any(kernel["origin"] != "aiter" for kernel in of_arch)
        if compiled:
            every = [*chosen] if chosen else ["-k", "not other_archs"]
            yield {"FMHA_EMU_ARCH": arch}, ["-m", "every_kernel", *every, *_files(EVERY)]
        cards = {units for kernel in of_arch for units in kernel.get("compute_units") or [0]}
        if compiled and not any(kernel["origin"] == "aiter" for kernel in of_arch):
            continue
        tests = ["-k", "test_lengths or test_packed", *_files(PREBUILT)]
        yield {"FMHA_EMU_ARCH": arch}, tests
        if 80 in cards:  # an MI308X's
            yield {"FMHA_EMU_ARCH": arch, "FMHA_EMU_CARD": "AMD Instinct MI308X"}, tests


def run_tests(kernels: list[Kernel], folder: Path, jobs: int, checks: dict[str, dict[str, str]]) -> None:
    """Test kernels, so that they have records; `checks`: variables by arch."""
    for variables, arguments in _runs(kernels):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", str(jobs)]
        environment = variables | checks.get(variables["FMHA_EMU_ARCH"], {})
        environment |= {"PYFA_ROCM_KEEP_ERRORS": str(folder), "PYFA_ROCM_DEVICE": "emulator"}
        print(f"evidence: {len(kernels)} kernels have no record; testing", *variables.values(), flush=True)
        done = subprocess.run(
            [*command, *arguments],
            cwd=ROOT,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode not in (0, 5):  # 5: there was no such test
            print(done.stdout + done.stderr, file=sys.stderr)


def collect(
    kernels: list[Kernel], folder: Path, jobs: int, checks: dict[str, dict[str, str]]
) -> list[Kernel]:
    """Return a record for each kernel that tests force.

    Raises
    ------
    RuntimeError
        The tests of some kernel did not run.
    """
    if without := missing(kernels, read(folder, kernels)):
        run_tests(without, folder, jobs, checks)
    found = read(folder, kernels)
    if without := missing(kernels, found):
        names = ", ".join(f"{kernel['arch']} {kernel['name']}" for kernel in without[:10])
        raise RuntimeError(f"{len(without)} kernels have no record of a test: {names}")
    return [found[key] for key in sorted(found)]
