# SPDX-License-Identifier: MIT OR Apache-2.0
"""Prove it, then compare time, memory and result with standard attention over sequence lengths."""

from __future__ import annotations

import argparse
import math
import sys
import time
import tracemalloc
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from pyfa_rocm.cli import prove, traffic
from pyfa_rocm.cli.trial import REPEATS, Trial, to_json
from pyfa_rocm.cli.trial import run as run_problem

SEQLENS = (128, 256, 384, 512, 768, 1024)
Float32 = npt.NDArray[np.float32]


def standard_attention(q: Float32, k: Float32, v: Float32) -> Float32:
    """Causal attention as it is written down: all scores, then all probabilities, in float32 NumPy.

    Shapes (batch, nhead, seqlen, hdim), as many heads in k and v as in q.
    """
    scores = q @ k.swapaxes(-1, -2)
    scores *= np.float32(1 / math.sqrt(q.shape[-1]))
    seqlen = q.shape[2]
    scores[..., ~np.tri(seqlen, dtype=bool)] = -np.inf
    probabilities = np.exp(scores - scores.max(axis=-1, keepdims=True))
    probabilities /= probabilities.sum(axis=-1, keepdims=True)
    return np.asarray(probabilities @ v)


def _standard_inputs(problem: Trial) -> list[Float32]:
    group = problem.nhead_q // problem.nhead_k
    q, k, v = (x.astype(np.float32).transpose(0, 2, 1, 3) for x in problem.inputs())
    return [np.ascontiguousarray(x) for x in (q, k.repeat(group, axis=1), v.repeat(group, axis=1))]


def measure_standard(problem: Trial) -> tuple[float, int]:
    """Return seconds and peak bytes of standard attention for a problem.

    The bytes are measured, not computed: tracemalloc sees every array NumPy allocates. Time is taken in a
    run without it. Inputs count, as they do for ours; here all is float32, since NumPy has no 16-bit matmul.
    """
    inputs = _standard_inputs(problem)
    seconds = math.inf
    for _ in range(REPEATS):
        start = time.perf_counter()
        standard_attention(*inputs)
        seconds = min(seconds, time.perf_counter() - start)
    tracemalloc.start()
    try:
        standard_attention(*inputs)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return seconds, peak + sum(x.nbytes for x in inputs)


def measure(seqlen: int) -> dict[str, Any]:
    """Measure one row of the table."""
    problem = Trial(batch=1, seqlen=seqlen, nhead_q=4, nhead_k=4, hdim=128, dtype="bfloat16", causal=True)
    outcome = run_problem(problem)
    standard_seconds, standard_bytes = measure_standard(problem)
    return {
        "seqlen": seqlen,
        "seconds": outcome.seconds,
        "standard_seconds": standard_seconds,
        "peak_bytes": outcome.peak_bytes,
        "standard_peak_bytes": standard_bytes,
        "max_difference": outcome.errors.o,
        "o_max_error_over_tolerance": outcome.errors.o_ratio,
        "lse_max_error": outcome.errors.lse,
        "traffic": traffic.measure(problem),
        "ok": outcome.errors.ok,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The table for people."""
    lines = [
        "        |      time, ms      |  peak memory, MiB  |  HBM traffic, MiB  |   max difference",
        " seqlen |    ours   standard |    ours   standard |    ours   standard | from float64 | of limit",
    ]
    for row in rows:
        times = f"{1e3 * row['seconds']:8.1f}   {1e3 * row['standard_seconds']:8.1f}"
        sizes = f"{row['peak_bytes'] / 2**20:8.2f}   {row['standard_peak_bytes'] / 2**20:8.2f}"
        errors = f"{row['max_difference']:12.3g} | {row['o_max_error_over_tolerance']:6.2f}"
        traffic = row["traffic"]
        moved = "       -          -"
        if traffic is not None:
            ours, standard = (traffic[who]["hbm_bytes"] / 2**20 for who in ("ours", "standard"))
            moved = f"{ours:8.2f}   {standard:8.2f}"
        verdict = "" if row["ok"] else "  WRONG"
        lines.append(f"{row['seqlen']:7} | {times} | {sizes} | {moved} | {errors}{verdict}")
    return "\n".join(lines)


def run(args: argparse.Namespace) -> int:
    """Prove, measure, print; 0 if every result is within tolerance, else 1."""
    proof = prove.report(prove.PROBLEM)
    if not args.json:
        print(prove.describe_text(proof), flush=True)
    bar = tqdm(SEQLENS, desc="seqlen", unit="row", file=sys.stderr, leave=False)
    rows = [measure(seqlen) for seqlen in bar]
    ok = bool(proof["ok"]) and all(row["ok"] for row in rows)
    if args.json:
        print(to_json({"ok": ok, "prove": proof, "rows": rows}))
        return 0 if ok else 1
    problem = "bfloat16, causal, 1 x 4 heads, hdim 128; standard attention is NumPy's in float32 on the CPU"
    where = "the software device, so times are not a GPU's" if proof["emulated"] else proof["device"]
    print(f"\n{problem}; ours runs on {where}\n\n{table(rows)}\n")
    if rows and rows[-1]["traffic"] is not None:
        print(traffic.describe_text(rows[-1]["traffic"], rows[-1]["seqlen"]) + "\n")
    print("all right" if ok else "WRONG results")
    return 0 if ok else 1
