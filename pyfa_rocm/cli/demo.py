# SPDX-License-Identifier: MIT OR Apache-2.0
"""Show that results are right, and compare memory traffic with standard attention over sequence lengths."""

from __future__ import annotations

import argparse
import math
import sys
import textwrap
import time
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from pyfa_rocm.cli import prove, traffic
from pyfa_rocm.oracle.problem import Problem
from pyfa_rocm.oracle.trial import is_right, repeats, to_json
from pyfa_rocm.oracle.trial import run as run_problem

SEQLENS = (128, 256, 512, 1024)
PROBLEM = Problem(batch=1, seqlen=SEQLENS[0], nhead_q=2, nhead_k=2, hdim=128, dtype="bfloat16", causal=True)
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


def _standard_inputs(problem: Problem) -> list[Float32]:
    group = problem.nhead_q // problem.nhead_k
    q, k, v = (x.astype(np.float32).transpose(0, 2, 1, 3) for x in problem.inputs())
    return [np.ascontiguousarray(x) for x in (q, k.repeat(group, axis=1), v.repeat(group, axis=1))]


def measure_standard(problem: Problem) -> tuple[float, int]:
    """Return seconds and peak bytes of standard attention for a problem.

    The bytes are measured, not computed: tracemalloc sees every array NumPy allocates. Time is taken in a
    run without it. Inputs count, as they do for ours; here all is float32, since NumPy has no 16-bit matmul.
    """
    inputs = _standard_inputs(problem)
    seconds = math.inf
    for _ in range(repeats()):
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
    errors = outcome.errors
    gradients = [errors[name].ratio for name in ("dq", "dk", "dv") if name in errors]
    standard_seconds, standard_bytes = measure_standard(problem)
    return {
        "seqlen": seqlen,
        "seconds": outcome.seconds,
        "standard_seconds": standard_seconds,
        "peak_bytes": outcome.peak_bytes,
        "standard_peak_bytes": standard_bytes,
        "max_difference": errors["o"].error,
        "o_bound": errors["o"].bound,
        "o_max_error_over_tolerance": errors["o"].ratio,
        "lse_max_error": errors["lse"].error,
        "gradients_max_error_over_tolerance": max(gradients) if gradients else None,
        "traffic": traffic.measure(problem),
        "ok": is_right(errors),
    }


def _verdict(ok: bool) -> str:
    return "right" if ok else "WRONG"


def _share(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.0%}"


def _columns(texts: Iterable[str]) -> str:
    """One column a result, as wide as its name asks."""
    pairs = zip(texts, prove.FEATURE_RESULTS.values(), strict=True)
    return "".join(f"{text:>{max(5, len(name) + 1)}}" for text, name in pairs)


def _proof_line(feature: str, shape: dict[str, Any], ratios: list[float | None], ok: bool) -> str:
    dims = dict.fromkeys((shape["hdim_q"], shape["hdim_v"]))
    shares = _columns(map(_share, ratios))
    return (
        f"  {feature:21} {shape['dtype']:15} {shape['seqlen_q']:7} x {shape['seqlen_k']:4}  "
        f"{', '.join(map(str, dims)):>8}{shares}  {_verdict(ok)}"
    )


def proof_table(proof: dict[str, Any]) -> str:
    """Return a table of the results, and of how much of its tolerance each used up at most."""
    whole = Problem(**proof["problem"]).extents()
    whole_ratios = [proof.get(f"{name}_max_error_over_tolerance") for name in prove.FEATURE_RESULTS]
    lines = [
        f"  {'problem':21} {'type':15} queries x keys  head dim{_columns(prove.FEATURE_RESULTS.values())}",
        _proof_line("causal", whole, whole_ratios, all(x is None or x <= 1 for x in whole_ratios)),
    ]
    for row in proof["features"]:
        if prove.has_run(row):
            ratios = [row[f"{name}_ratio"] for name in prove.FEATURE_RESULTS]
            lines.append(_proof_line(row["feature"], row["shape"], ratios, row["ok"]))
    return "\n".join(lines)


def _other_types(proof: dict[str, Any]) -> str:
    """Return which gradients were proved in another type."""
    rows = [
        f"{row['feature']} ({row['gradient_dtype']})"
        for row in proof["features"]
        if row["gradient_dtype"] not in (None, row["shape"]["dtype"])
    ]
    return f"Gradients in another type: {'; '.join(rows)}." if rows else ""


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
    lines = [
        f"        {top}{'error of O':>22}{'gradients':>12}",
        f"  seqlen{names}  {'largest':>10}{'bound':>10}{'largest':>12}",
    ]
    for row in rows:
        cells = "".join("  " + "".join(f"{x:>10}" for x in group) for group in _cost_columns(row).values())
        gradients = _share(row["gradients_max_error_over_tolerance"])
        errors = f"{row['max_difference']:10.4f}{row['o_bound']:10.4f}{gradients:>12}"
        lines.append(f"  {row['seqlen']:6}{cells}  {errors}  {_verdict(row['ok'])}")
    return "\n".join(lines)


def _print_proof(proof: dict[str, Any]) -> None:
    how = ": this CPU executes its machine code" if proof["emulated"] else ""
    print(f"Device: {proof['device']}{how}.\n")
    print("Against float64: the largest error of each result, as a share of the element's tolerance.\n")
    print(proof_table(proof))
    if others := _other_types(proof):
        print("\n" + textwrap.fill(others, WIDTH))
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
