# SPDX-License-Identifier: MIT OR Apache-2.0
"""Run forward passes, say exactly what ran where, and check them against float64."""

from __future__ import annotations

from typing import Any

from pyfa_rocm import _features, _lib
from pyfa_rocm._problem import Outcome, Problem, to_json
from pyfa_rocm._problem import run as run_problem
from pyfa_rocm.device import current_device, describe, runtime

# Ragged, grouped-query and causal, so that padding, head mapping and the mask all matter.
PROBLEM = Problem(batch=1, seqlen=200, nhead_q=4, nhead_k=2, hdim=128, dtype="bfloat16", causal=True)


def report(problem: Problem, outcome: Outcome) -> dict[str, Any]:
    """Say what ran where, and how right it was."""
    in_use, device = runtime(), describe(current_device())
    features = list(_features.prove())
    return {
        "ok": outcome.ok and all(proof.ok for proof in features),
        "device": device.name,
        "arch": device.arch,
        "emulated": in_use.emulated,
        "hip_runtime": in_use.path,
        "library": str(_lib.library_path()),
        "kernel": outcome.kernel.name,
        "pipeline": outcome.kernel.pipeline,
        "candidate_count": outcome.kernel.candidate_count,
        "code_object_sha256": outcome.kernel.sha256,
        "problem": vars(problem),
        "o_max_error": outcome.o_error,
        "o_max_error_over_tolerance": outcome.o_ratio,
        "lse_max_error": outcome.lse_error,
        "lse_max_error_over_tolerance": outcome.lse_ratio,
        "features": [proof._asdict() | {"ok": proof.ok} for proof in features],
    }


def _feature_text(proof: dict[str, Any]) -> str:
    name = f"{proof['feature']:22}"
    if proof["reason"]:
        return f"  {name} no kernel in this build"
    verdict = "right" if proof["ok"] else "WRONG"
    return f"  {name} {verdict}: O {proof['o_ratio']:.2f}, LSE {proof['lse_ratio']:.2f} of the tolerance"


def describe_text(result: dict[str, Any]) -> str:
    """The report for people."""
    p = result["problem"]
    shape = f"batch {p['batch']}, seqlen {p['seqlen']}, heads {p['nhead_q']}/{p['nhead_k']}, hdim {p['hdim']}"
    mask = "causal" if p["causal"] else "no mask"
    return "\n".join(
        [
            f"device        {result['device']} ({result['arch']})",
            f"HIP runtime   {result['hip_runtime']}",
            f"library       {result['library']}",
            f"kernel        {result['kernel']} (pipeline {result['pipeline']}, first of "
            f"{result['candidate_count']} that can do it)",
            f"code object   sha256 {result['code_object_sha256']}",
            f"problem       {shape}, {p['dtype']}, {mask}",
            f"O error       {result['o_max_error']:.3g} from float64, "
            f"{result['o_max_error_over_tolerance']:.2f} of the tolerance",
            f"LSE error     {result['lse_max_error']:.3g} from float64, "
            f"{result['lse_max_error_over_tolerance']:.2f} of the tolerance",
            "features",
            *map(_feature_text, result["features"]),
            f"result        {'right' if result['ok'] else 'WRONG'}",
        ]
    )


def run(as_json: bool) -> int:
    """Prove it; 0 if right, else 1."""
    result = report(PROBLEM, run_problem(PROBLEM))
    print(to_json(result) if as_json else describe_text(result))
    return 0 if result["ok"] else 1
