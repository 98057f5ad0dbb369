# SPDX-License-Identifier: MIT OR Apache-2.0
"""Collect what the page of evidence shows: ``--out FILE`` runs the build and writes JSON.

native/tools/evidence.sh runs it, with the tests' modules on the path.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ["PYFA_ROCM_DEVICE"] = "emulator"

from archs import read_archs
from built import MORE_CHECKS

from benchmarks.evidence import accuracy, clock, errors, findings, measured, pages, traffic
from pyfa_rocm._runtime import library, paths
from pyfa_rocm.clock.cards import CARDS

ROOT = Path(__file__).resolve().parents[2]
# Rows of each card that are timed again.
AGAIN = 2


def command(*arguments: str, **environment: str) -> Any:
    """Return what a command of the package prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "pyfa_rocm", *arguments],
        cwd=ROOT, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    return json.loads(done.stdout)


def prove(archs: list[str], jobs: int) -> list[Any]:
    """Return the reports of `pyfa-rocm prove` on a device of each arch."""
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda arch: command("prove", "--json", FMHA_EMU_ARCH=arch), archs))


def sha256(path: Path) -> str:
    """Return a file's hash."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def git(*arguments: str) -> str:
    """Return what git prints; "" outside of a repository."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def versions(build: dict[str, Any]) -> dict[str, Any]:
    """Return what was built, from which sources, and the hashes of it."""
    info = command("info", "--json")
    device = Path(info["runtime"]["path"])
    files = {path.name: sha256(path) for path in (paths.library_path().resolve(), device.resolve())}
    return {
        "versions": info["versions"], "compiler": build["compiler"], "ck": build["ck_version"],
        "kernel_set": build["kernel_set"], "archs": build["archs"], "files": files,
        "commit": git("rev-parse", "HEAD"), "date": git("show", "-s", "--format=%cs", "HEAD"),
        "changed": bool(git("status", "--porcelain", "--untracked-files=no")),
    }  # fmt: skip


def peaks() -> dict[str, tuple[int, int]]:
    """Return the compute units and the clock of each card that the clock models."""
    cards = [card for arch in read_archs().archs for card in arch.cards]
    found = {}
    for name, words in CARDS.items():
        constants = next(card.constants for card in cards if words in card.name)
        found[name] = constants["compute_units"].value, constants["clock_khz"].value
    return found


def held_out() -> list[dict[str, str]]:
    """Return the tables of docs/clock.md over all published rows, which take hours."""
    forward = pages.tables(pages.part("clock.md", "MI300X", "Forward"))[0]
    backward = pages.tables(pages.part("clock.md", "MI300X", "Backward"))[-1]
    mi355x = pages.tables(pages.part("clock.md", "MI355X"))[-1]
    texts = {"MI300X, forward": forward, "MI300X, backward": backward, "MI355X": mi355x}
    return [{"title": title, "text": text} for title, text in texts.items()]


def held_out_mean() -> dict[str, float]:
    """Return the mean error of AITER's forward kernels on an MI300X, from that page."""
    table = pages.tables(pages.part("clock.md", "MI300X", "Forward"))[0]
    error, rows = pages.mean_of_rows(table, "AITER")
    return {"error": error, "rows": rows}


def engines() -> list[dict[str, str]]:
    """Return the tables that the tests of engines wrote into their pages."""
    found = {"vLLM": "vllm.md", "SGLang": "sglang.md", "ONNX Runtime": "onnxruntime.md"}
    return [{"name": name, "page": page, "text": pages.recorded(page)} for name, page in found.items()]


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--errors", type=Path, required=True, metavar="DIR", help="where tests keep errors")
    parser.add_argument("--measured", type=Path, metavar="FILE", help="what first-day wrote on a card")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args()
    build = json.loads(library.build_info_json())
    jobs = args.jobs
    result: dict[str, Any] = {}
    steps: dict[str, Callable[[], Any]] = {
        "versions": lambda: versions(build),
        "kernels": lambda: errors.collect(build["kernels"], args.errors, jobs, MORE_CHECKS),
        "proofs": lambda: prove(build["archs"], jobs),
        "accuracy": accuracy.collect,
        "traffic": traffic.collect,
        "clock": lambda: clock.collect(peaks(), jobs, AGAIN),
        "findings": findings.collect,
        "held_out": held_out,
        "held_out_mean": held_out_mean,
        "unknown": lambda: pages.bullets(pages.part("clock.md", "What it cannot know")),
        "engines": engines,
    }
    for name, step in steps.items():
        begin = time.monotonic()
        result[name] = step()
        print(f"evidence: {name}, {time.monotonic() - begin:.1f} s", flush=True)
    parts = [kernel for kernel in build["kernels"] if kernel["family"] == errors.PARTS]
    result["parts"] = len(parts)
    result["measured"] = measured.read(args.measured) if args.measured else None
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
