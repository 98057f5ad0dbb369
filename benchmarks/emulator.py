# SPDX-License-Identifier: MIT OR Apache-2.0
"""Speed of the software device: one workgroup of the d128 forward kernel on one core, unchecked and checked.

The time of a step of the main loop (a 128-query workgroup against 128 keys) is the slope between a short and
a long key sequence, so that start-up, prologue and epilogue do not count. Run it with nothing else running.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import json
import math
import os
import statistics
import sys

os.environ["PYFA_ROCM_DEVICE"] = "emulator"
os.environ["FMHA_EMU_THREADS"] = "1"

import numpy as np

import pyfa_rocm as fa
from pyfa_rocm.device import runtime
from pyfa_rocm.oracle.params import candidates

DTYPES = {"bfloat16": fa.bfloat16, "float16": np.dtype(np.float16)}
TILE = 128
HDIM = 128
SHORT, LONG = 4, 36  # tiles of keys
MACS_PER_TILE = 2 * TILE * TILE * HDIM  # Q K^T and P V


class LaunchStats(ctypes.Structure):
    """fmha_emu_launch_stats of native/emulator/hip/launch.cc."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in ("workgroups", "waves", "instructions", "mfma_macs", "nanoseconds")
    ]


@functools.cache
def candidate(dtype: str, tiles: int) -> int:
    """Return the number of the best kernel with the tile measured; small problems may get a shorter one."""
    rows = fa.Strided(0, 0, HDIM, HDIM)
    params = fa.FwdParams(
        dtype=dtype, batch=1, seqlen_q=TILE, seqlen_k=tiles * TILE, nhead_q=1, nhead_k=1, hdim_q=HDIM,
        hdim_v=HDIM, softmax_scale=1.0, q=rows, k=rows, v=rows, o=rows,
    )  # fmt: skip
    for kernel in candidates(params, fa.fmha_fwd_kernel):
        if (kernel.tile_m, kernel.tile_n) == (TILE, TILE):
            return params.kernel
    raise RuntimeError(f"this build has no {dtype} kernel with tiles of {TILE} queries and keys")


def measure(library: ctypes.CDLL, dtype: str, tiles: int) -> LaunchStats:
    """Run one workgroup over `tiles` x 128 keys and return what the device counted."""
    rng = np.random.default_rng(0)
    q, k, v = (
        fa.DeviceArray.from_numpy(rng.standard_normal((1, rows, 1, HDIM)).astype(DTYPES[dtype]))
        for rows in (TILE, tiles * TILE, tiles * TILE)
    )
    out = fa.flash_attn_func(q, k, v, softmax_scale=1 / math.sqrt(HDIM), kernel=candidate(dtype, tiles))
    out.to_numpy()
    stats = LaunchStats()
    library.fmha_emu_last_launch_stats(ctypes.byref(stats))
    return stats


def slopes(library: ctypes.CDLL, dtype: str, repeats: int, checks: str) -> tuple[list[float], float]:
    """Nanoseconds a tile, `repeats` times, and instructions a tile; `checks` as in FMHA_EMU_CHECKS."""
    os.environ["FMHA_EMU_CHECKS"] = checks  # the device reads it at each launch
    times, instructions = [], 0.0
    for _ in range(repeats):
        short, long = measure(library, dtype, SHORT), measure(library, dtype, LONG)
        times.append((long.nanoseconds - short.nanoseconds) / (LONG - SHORT))
        instructions = (long.instructions - short.instructions) / (LONG - SHORT)
    return times, instructions


def benchmark(dtype: str, repeats: int) -> dict[str, float | str]:
    """Medians over `repeats` of the slope between the short and the long sequence."""
    library = ctypes.CDLL(runtime().path)
    library.fmha_emu_isa_level.restype = ctypes.c_char_p
    times, instructions = slopes(library, dtype, repeats, "none")
    checked, _ = slopes(library, dtype, repeats, "")  # those that run by default
    ns = statistics.median(times)
    return {
        "dtype": dtype,
        "host_isa": library.fmha_emu_isa_level().decode(),
        "ms_per_tile_d128": ns / 1e6,
        "ms_per_tile_d128_min": min(times) / 1e6,
        "ms_per_tile_d128_max": max(times) / 1e6,
        "ms_per_tile_d128_checked": statistics.median(checked) / 1e6,
        "ms_per_tile_d128_checked_min": min(checked) / 1e6,
        "ms_per_tile_d128_checked_max": max(checked) / 1e6,
        "wave_instructions_per_tile": instructions,
        "wave_instructions_per_second": instructions / ns * 1e9,
        "gmac_per_second": MACS_PER_TILE / ns,
    }


def main() -> int:
    """Print the table, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object, and nothing else")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="bfloat16")
    parser.add_argument("--repeats", type=int, default=9)
    args = parser.parse_args()
    if args.repeats < 1:
        parser.error(f"argument --repeats: expected at least 1, got {args.repeats}")
    result = benchmark(args.dtype, args.repeats)
    if args.json:
        print(json.dumps(result, indent=2))
    else:
        for name, value in result.items():
            print(f"{name:32} {value if isinstance(value, str) else f'{value:.4g}'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
