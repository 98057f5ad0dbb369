# SPDX-License-Identifier: MIT OR Apache-2.0
"""Show that results are right, and compare memory traffic with standard attention over sequence lengths."""

from __future__ import annotations

import argparse
import math
import sys
import textwrap
import time
import tracemalloc
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from pyfa_rocm.cli import prove, traffic
from pyfa_rocm.cli.features import Shape
from pyfa_rocm.cli.trial import REPEATS, Trial, to_json
from pyfa_rocm.cli.trial import run as run_problem

SEQLENS = (128, 256, 384, 512, 768, 1024)
PROBLEM = Trial(batch=1, seqlen=SEQLENS[0], nhead_q=4, nhead_k=4, hdim=128, dtype="bfloat16", causal=True)
WIDTH = 104
SOFTWARE_TIME = (
    "The software device simulates every instruction and checks every memory access: its times tell how long "
    "a test takes, and nothing about a GPU."
)
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
    problem = replace(PROBLEM, seqlen=seqlen)
    outcome = run_problem(problem)
    standard_seconds, standard_bytes = measure_standard(problem)
    return {
        "seqlen": seqlen,
        "seconds": outcome.seconds,
        "standard_seconds": standard_seconds,
        "peak_bytes": outcome.peak_bytes,
        "standard_peak_bytes": standard_bytes,
        "max_difference": outcome.errors.o,
        "o_bound": outcome.errors.o_bound,
        "o_max_error_over_tolerance": outcome.errors.o_ratio,
        "lse_max_error": outcome.errors.lse,
        "traffic": traffic.measure(problem),
        "ok": outcome.errors.ok,
    }


def _verdict(ok: bool) -> str:
    return "right" if ok else "WRONG"


def _proof_line(feature: str, shape: Shape, o_ratio: float, lse_ratio: float) -> str:
    dims = dict.fromkeys((shape.hdim_q, shape.hdim_v))
    return (
        f"  {feature:21}  {shape.dtype:15}  {shape.seqlen_q:7} x {shape.seqlen_k:4}  "
        f"{', '.join(map(str, dims)):>8}  {o_ratio:6.0%}  {lse_ratio:6.0%}  "
        f"{_verdict(o_ratio <= 1 and lse_ratio <= 1)}"
    )


def proof_table(proof: dict[str, Any]) -> str:
    """What was computed, and how much of the tolerance each result used up at most."""
    p = proof["problem"]
    whole = Shape(p["dtype"], p["seqlen"], p["seqlen"], p["hdim"], p["hdim"])
    ratios = (proof[f"{what}_max_error_over_tolerance"] for what in ("o", "lse"))
    lines = [
        f"  {'problem':21}  {'type':15}  queries x keys  head dim       O     LSE",
        _proof_line("causal", whole, *ratios),
    ]
    for row in proof["features"]:
        if not row["reason"]:
            lines.append(_proof_line(row["feature"], Shape(**row["shape"]), row["o_ratio"], row["lse_ratio"]))
    return "\n".join(lines)


def _cost_columns(row: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Groups of columns: HBM traffic, or time on a GPU, which does not tell its traffic; then memory."""
    mib = 2**20
    sizes = (f"{row['peak_bytes'] / mib:.2f}", f"{row['standard_peak_bytes'] / mib:.2f}")
    if row["traffic"] is None:
        return {"time, ms": (f"{1e3 * row['seconds']:.3f}",), "peak memory, MiB": sizes}
    moved = tuple(f"{row['traffic'][who]['hbm_bytes'] / mib:.2f}" for who in ("ours", "standard"))
    return {"HBM traffic, MiB": moved, "peak memory, MiB": sizes}


def table(rows: list[dict[str, Any]]) -> str:
    """Costs and errors over sequence lengths."""
    heads = ("ours", "standard")
    groups = {title: len(cells) for title, cells in _cost_columns(rows[0]).items()}
    top = "".join(f"{title:>{10 * count + 2}}" for title, count in groups.items())
    names = "".join("  " + "".join(f"{name:>10}" for name in heads[:count]) for count in groups.values())
    lines = [f"        {top}{'error of O':>22}", f"  seqlen{names}  {'largest':>10}{'bound':>10}"]
    for row in rows:
        cells = "".join("  " + "".join(f"{x:>10}" for x in group) for group in _cost_columns(row).values())
        errors = f"{row['max_difference']:10.4f}{row['o_bound']:10.4f}"
        lines.append(f"  {row['seqlen']:6}{cells}  {errors}  {_verdict(row['ok'])}")
    return "\n".join(lines)


def _print_proof(proof: dict[str, Any]) -> None:
    how = ": this CPU executes its machine code" if proof["emulated"] else ""
    print(f"Device: {proof['device']}{how}.\n")
    print("Against float64: the largest error of O and LSE, as a share of the element's tolerance.\n")
    print(proof_table(proof))
    if missing := prove.not_built_text(proof):
        print("\n" + textwrap.fill(f"Not built: {missing}.", WIDTH))
    print(flush=True)


def _print_rows(rows: list[dict[str, Any]], emulated: bool) -> None:
    p, last = PROBLEM, rows[-1]
    shape = f"batch {p.batch}, {p.nhead_q} heads, head dim {p.hdim}, {p.dtype}, causal"
    print(f"Against standard attention, which stores all scores and probabilities:\n{shape}\n")
    print(table(rows) + "\n")
    if last["traffic"] is not None:
        print(textwrap.fill(f"HBM traffic: {traffic.MEANING}", WIDTH))
    print("Peak memory: standard attention's is that of NumPy in float32.")
    if emulated:
        seconds = f"Time: {last['seconds']:.1f} s for seqlen {last['seqlen']}. {SOFTWARE_TIME}"
        print(textwrap.fill(seconds, WIDTH))


def run(args: argparse.Namespace) -> int:
    """Prove, measure, print; 0 if every result is within tolerance, else 1."""
    proof = prove.report(prove.PROBLEM)
    if not args.json:
        _print_proof(proof)
    bar = tqdm(SEQLENS, desc="comparing", unit="length", file=sys.stderr, leave=False)
    rows = [measure(seqlen) for seqlen in bar]
    ok = bool(proof["ok"]) and all(row["ok"] for row in rows)
    if args.json:
        print(to_json({"ok": ok, "prove": proof, "rows": rows}))
        return 0 if ok else 1
    _print_rows(rows, bool(proof["emulated"]))
    print("\nall right" if ok else "\nWRONG results: `pyfa-rocm prove` says more")
    return 0 if ok else 1
