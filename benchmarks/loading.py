# SPDX-License-Identifier: MIT OR Apache-2.0
"""How long it takes to load the library, and to have a kernel ready, in fresh processes.

`load_ms` is the library's own dlopen, without Python; `query_ms` the first call that reads its tables, which
chooses a kernel; `prepare_ms` unpacks that kernel's code object and gives it to the HIP runtime, here the
software device, which decodes it. Each is the median of some processes, and the least.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

ROUNDS = 9
# Keys: the first takes a short tile of Composable Kernel, the other our own kernel.
PROBLEMS = {"short": 128, "long": 8192}


def child(seqlen: int) -> dict[str, float]:
    """Measure in this process, which has not loaded the library yet."""
    os.environ["PYFA_ROCM_DEVICE"] = "emulator"
    import ctypes

    from pyfa_rocm._runtime import paths

    path = str(paths.library_path())
    begin = time.perf_counter()
    ctypes.CDLL(path)
    loaded = time.perf_counter()
    from pyfa_rocm import fmha
    from pyfa_rocm.clock.subjects import ProblemArrays
    from pyfa_rocm.oracle.problem import Problem

    params = ProblemArrays(Problem(1, 4, 4, seqlen, 128, False)).params()
    asked = time.perf_counter()
    fmha.fmha_fwd_kernel(params)
    known = time.perf_counter()
    fmha.fmha_fwd_prepare(params)
    ready = time.perf_counter()
    return {
        "load_ms": 1e3 * (loaded - begin),
        "query_ms": 1e3 * (known - asked),
        "prepare_ms": 1e3 * (ready - known),
    }


def main() -> None:
    """Print the times of each problem."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object, and nothing else")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(child(args.child)))
        return
    result = {}
    for name, seqlen in PROBLEMS.items():
        command = [sys.executable, "-m", "benchmarks.loading", "--child", str(seqlen)]
        rounds = [
            json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(ROUNDS)
        ]
        for key in rounds[0]:
            values = [one[key] for one in rounds]
            result[f"{name}_{key}"] = round(statistics.median(values), 2)
            result[f"{name}_{key}_best"] = round(min(values), 2)
    if args.json:
        print(json.dumps(result, indent=2))
        return
    for name, value in result.items():
        print(f"{name:28} {value}")


if __name__ == "__main__":
    main()
