# SPDX-License-Identifier: MIT OR Apache-2.0
"""The backward pass of one causal problem on the software device: b1 h4 s512 d128 unless told otherwise.

It prints how long the device took, unchecked and checked: how long a test takes, and nothing about a GPU. And
it prints what is counted: wave instructions, operations of the matrix unit, and the bytes that reach HBM,
beside those of the standard formula, which keeps P, dP and dS in memory (pyfa_rocm/cli/traffic.py).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from typing import Any

os.environ["PYFA_ROCM_DEVICE"] = "emulator"

import pyfa_rocm as fa
from pyfa_rocm.cli import traffic
from pyfa_rocm.oracle.problem import Problem
from pyfa_rocm.oracle.trial import is_right, run

CHECKS = {"seconds": "none", "seconds_checked": ""}  # as in FMHA_EMU_CHECKS: no checks, those by default


def seconds(problem: Problem, repeats: int, checks: str) -> float:
    """Median wall time of a backward pass, its kernels being loaded."""
    os.environ["FMHA_EMU_CHECKS"] = checks  # the device reads it at each launch
    q, k, v = (fa.DeviceArray.from_numpy(x) for x in problem.inputs())
    dout = fa.DeviceArray.from_numpy(problem.dout())
    out, lse = fa.flash_attn_func(q, k, v, causal=problem.causal, return_lse=True)
    taken = []
    for _ in range(repeats + 1):
        fa.synchronize()
        begin = time.perf_counter()
        fa.flash_attn_bwd(dout, q, k, v, out, lse, causal=problem.causal)
        fa.synchronize()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken[1:])


def benchmark(problem: Problem, repeats: int) -> dict[str, Any]:
    result: dict[str, Any] = {"device": fa.devices()[0].name, "problem": problem.as_json()}
    result |= {name: seconds(problem, repeats, checks) for name, checks in CHECKS.items()}
    moved = traffic.measure_backward(problem)
    assert moved is not None  # on the software device it is always known
    ours, standard = moved["ours"], moved["standard"]
    errors = run(problem).errors
    return result | {
        "launches": ours["launches"],
        "wave_instructions": ours["instructions"],
        "matrix_flops": ours["flops"],
        "hbm_bytes": ours["hbm_bytes"],
        "standard_hbm_bytes": standard["hbm_bytes"],
        "standard_over_ours": standard["hbm_bytes"] / ours["hbm_bytes"],
        "max_error_over_tolerance": {name: errors[name].ratio for name in ("dq", "dk", "dv")},
        "ok": is_right(errors),
    }


def main() -> int:
    """Print the table, or one JSON object; 1 if a gradient is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object, and nothing else")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--seqlen", type=int, default=512)
    parser.add_argument("--hdim", type=int, default=128)
    parser.add_argument("--dtype", choices=("float16", "bfloat16"), default="float16")
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    for name in ("batch", "heads", "seqlen", "hdim", "repeats"):
        if getattr(args, name) < 1:
            parser.error(f"argument --{name}: expected at least 1, got {getattr(args, name)}")
    problem = Problem(args.batch, args.heads, args.heads, args.seqlen, args.hdim, True, args.dtype)
    try:
        result = benchmark(problem, args.repeats)
    except fa.UnsupportedError as error:
        print(f"backward.py: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps(result, indent=2))
        return 0 if result["ok"] else 1
    for name, value in result.items():
        print(f"{name:26} {f'{value:.4g}' if isinstance(value, float) else value}")
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
