# SPDX-License-Identifier: MIT OR Apache-2.0
"""Run a compiler and write down what it cost: ``compile.py COST.json COMMAND...``.

The file has CPU seconds, wall-clock seconds and peak memory; the build report sums them up.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path


def killed(program: str, number: int) -> str:
    """Say that a signal ended the compiler: it cannot say so itself."""
    text = f"compile.py: {program} was ended by signal {number} ({signal.strsignal(number)})"
    if number != signal.SIGKILL:
        return text
    return (
        f"{text}, as Linux does when memory runs out: compile fewer kernels at a time "
        "(make JOBS=1, or CMAKE_BUILD_PARALLEL_LEVEL=1)"
    )


def main() -> int:
    """Run it, and return its exit status or, as a shell does, 128 + the signal that ended it."""
    begin = time.monotonic()
    status = subprocess.run(sys.argv[2:], check=False).returncode
    if status < 0:
        print(killed(sys.argv[2], -status), file=sys.stderr)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cost = {
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 2),
        "wall_seconds": round(time.monotonic() - begin, 2),
        "peak_mbytes": used.ru_maxrss // 1024,
    }
    if status == 0:
        Path(sys.argv[1]).write_text(json.dumps(cost) + "\n")
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
