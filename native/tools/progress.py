# SPDX-License-Identifier: MIT OR Apache-2.0
"""Run a build or ctest, and show how far it is: ``progress.py WHAT COMMAND...``.

On a terminal that is a bar; elsewhere it is a line every ten seconds. Either has what is done of how much,
the step that ended last, and how long the rest may take. Whatever else the command says, warnings and
errors above all, is passed on.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator

from tqdm import tqdm

# "[12/340] Compiling kernels gfx942/merge (3 of 80)", " 12/63 Test #12: native.select ....   Passed  0.1 sec"
NINJA = re.compile(r"\[(?P<done>\d+)/(?P<total>\d+)\] (?P<step>.*)")
CTEST = re.compile(r"\s*(?P<done>\d+)/(?P<total>\d+) Test\s+#\d+: (?P<step>\S+) \.+   Passed .*")
CTEST_BEGINS = re.compile(r"\s+Start\s+\d+: .*")
SECONDS_BETWEEN_LINES = 10
WIDTH = 118


def lines_of(command: list[str]) -> Iterator[str]:
    """Yield what a command prints; fail as it fails."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        for line in process.stdout:
            yield line.rstrip("\n")
    if process.returncode:
        sys.exit(process.returncode)


def short(step: str) -> str:
    """Return the subject of a step: its last path or word, which names a kernel or a source file."""
    return re.sub(r"^.*CMakeFiles/\S+?\.dir/", "", step).removeprefix("Compiling kernels ")[:60]


def show(what: str, command: list[str]) -> None:
    """Run the command and show its progress."""
    terminal = sys.stderr.isatty()
    began = told = time.monotonic()
    with tqdm(desc=what, total=1, disable=not terminal, leave=False, ncols=WIDTH, unit="step") as bar:
        for line in lines_of(command):
            found = NINJA.fullmatch(line) or CTEST.fullmatch(line)
            if not found:
                if not CTEST_BEGINS.fullmatch(line):
                    tqdm.write(line, file=sys.stdout)
                continue
            done, total, step = int(found["done"]), int(found["total"]), short(found["step"])
            now = time.monotonic()
            if terminal:
                bar.total, bar.n = total, done
                bar.set_postfix_str(step, refresh=now - told > 0.1)
            elif now - told < SECONDS_BETWEEN_LINES and done < total:
                continue
            else:
                meter = tqdm.format_meter(done, total, now - began, WIDTH, what, unit="step", postfix=step)
                print(meter, flush=True)
            told = now


if __name__ == "__main__":
    show(sys.argv[1], sys.argv[2:])
