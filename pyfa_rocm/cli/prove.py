# SPDX-License-Identifier: MIT OR Apache-2.0
"""Run forward and backward passes, say exactly what ran where, and check them against float64."""

from __future__ import annotations

import argparse
import json
import platform
import textwrap
from typing import Any

from pyfa_rocm import emulator, fmha
from pyfa_rocm._runtime import hip, library, paths
from pyfa_rocm.cli.backends import BACKENDS, Backend
from pyfa_rocm.device import current_device, describe, runtime
from pyfa_rocm.oracle import features
from pyfa_rocm.oracle.params import backward_params, forward_params
from pyfa_rocm.oracle.problem import Problem
from pyfa_rocm.oracle.trial import (
    Errors,
    Results,
    is_right,
    judge,
    no_gradients,
    to_json,
)

# Names of results in a report, and for people.
RESULTS = {"o": "O", "lse": "LSE", "dq": "dQ", "dk": "dK", "dv": "dV"}
FEATURE_RESULTS = RESULTS | {"dbias": "dBias"}
# Ragged, grouped-query and causal, so that padding, head mapping and the mask all matter.
PROBLEM = Problem(batch=1, seqlen=200, nhead_q=4, nhead_k=2, hdim=128, dtype="bfloat16", causal=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` takes."""
    functions = ", ".join(f"{name}: {backend.function}" for name, backend in BACKENDS.items())
    parser.add_argument(
        "--backend",
        choices=tuple(BACKENDS),
        default="numpy",
        help=f"the path to prove, by its public function (default numpy; {functions})",
    )


def _run(backend: Backend, problem: Problem) -> tuple[Results, str, list[str] | None]:
    """Run a problem: its results, why it has no gradients, and what the software device says was launched.

    A GPU does not say what was launched: None.
    """
    backend.load()
    reason = no_gradients(problem)
    if not runtime().emulated:
        return backend.run(problem, not reason), reason, None
    with emulator.profile() as profile:
        results = backend.run(problem, not reason)
    return results, reason, [launch.kernel for launch in profile.launches]


def _as_said(
    launched: list[str] | None,
    forward: fmha.KernelInfo,
    backward: fmha.KernelInfo | None,
    build: dict[str, Any],
) -> bool:
    """Tell whether the kernels that the library names were launched, each once and in this order.

    Around the backward kernel there may be the small ones of its family, no more than it has steps.
    """
    if launched is None:
        return True
    if backward is None:
        return launched == [forward.name]
    parts = {kernel["name"] for kernel in build["kernels"] if kernel["family"] == "bwd_parts"}
    around = [name for name in launched if name not in (forward.name, backward.name)]
    return (
        launched[:1] == [forward.name]
        and [launched.count(info.name) for info in (forward, backward)] == [1, 1]
        and set(around) <= parts
        and len(around) < backward.step_count
    )


def _versions(backend: Backend) -> dict[str, str | None]:
    return {
        "python": platform.python_version(),
        "libfmha_rocm": library.version(),
        "hip_runtime": str(hip.call("hipRuntimeGetVersion")),
        **backend.versions(),
    }


def report(problem: Problem, name: str = "numpy") -> dict[str, Any]:
    """Prove a backend: say what ran where, and how right it was.

    The kernels are those that the library says it takes. On the software device they also have to be those
    that were launched, each once. Features are tried through the plain functions, for "numpy".
    """
    backend = BACKENDS[name]
    results, reason, launched = _run(backend, problem)
    in_use, device = runtime(), describe(current_device())
    kernel = fmha.fmha_fwd_kernel(forward_params(problem))
    backward = None if reason else fmha.fmha_bwd_kernel(backward_params(problem))
    errors = judge(problem, results, kernel)
    build = json.loads(library.build_info_json())
    proofs = list(features.prove()) if name == "numpy" else []
    as_said = _as_said(launched, kernel, backward, build)
    return {
        "ok": is_right(errors) and as_said and all(proof.ok for proof in proofs),
        "backend": name,
        "function": backend.function,
        "backward_function": backend.backward,
        "versions": _versions(backend),
        "device": device.name,
        "arch": device.arch,
        "emulated": in_use.emulated,
        "hip_runtime": in_use.path,
        "library": str(paths.library_path()),
        "kernel_set": build["kernel_set"],
        "kernel_filter": build["kernel_filter"],
        "kernel": kernel.name,
        "backward_kernel": None if backward is None else backward.name,
        "backward_reason": reason,
        "launched": launched,
        "launched_as_said": as_said,
        "pipeline": kernel.pipeline,
        "candidate_count": kernel.candidate_count,
        "code_object_sha256": kernel.sha256,
        "backward_code_object_sha256": None if backward is None else backward.sha256,
        "problem": problem.as_json(),
        **_error_fields(errors),
        "features": [
            proof._asdict()
            | {"problem": proof.problem.as_json(), "shape": proof.problem.extents(), "ok": proof.ok}
            for proof in proofs
        ],
    }


def _error_fields(errors: Errors) -> dict[str, float | None]:
    """Return the fields of the report for errors; None for gradients that were not computed."""
    fields: dict[str, float | None] = {}
    for name in RESULTS:
        distance = errors.get(name)
        fields[f"{name}_max_error"] = None if distance is None else distance.error
        fields[f"{name}_bound"] = None if distance is None else distance.bound
        fields[f"{name}_max_error_over_tolerance"] = None if distance is None else distance.ratio
    return fields


def _feature_text(proof: dict[str, Any]) -> str:
    verdict = "right" if proof["ok"] else "WRONG"
    shares = [(text, proof[f"{name}_ratio"]) for name, text in FEATURE_RESULTS.items()]
    ratios = ", ".join(f"{text} {ratio:.2f}" for text, ratio in shares if ratio is not None)
    dtype = proof["gradient_dtype"]
    other = f" (gradients in {dtype})" if dtype not in (None, proof["shape"]["dtype"]) else ""
    return f"  {proof['feature']:22} {verdict}: {ratios} of the tolerance{other}"


def has_run(proof: dict[str, Any]) -> bool:
    """Tell whether a proof has any result."""
    return not proof["reason"] or proof["gradient_dtype"] is not None


def not_built_text(result: dict[str, Any]) -> str:
    """Return which features have no kernels in this build, and where to get them; "" if all have."""
    missing = [
        f"the forward pass of {proof['feature']}" if proof["gradient_dtype"] else proof["feature"]
        for proof in result["features"]
        if proof["reason"]
    ]
    forward_only = [
        proof["feature"] for proof in result["features"] if proof["gradient_reason"] and not proof["reason"]
    ]
    if result["backward_reason"]:
        forward_only.insert(0, "the problem")
    if forward_only:
        missing.append(f"gradients of {'; '.join(forward_only)}")
    if not missing:
        return ""
    kernel_set, chosen = result["kernel_set"], result["kernel_filter"]
    if chosen:
        rest = f"this build has only a part of the kernel set {kernel_set}; `make build` builds all of it"
    else:
        rest = f"the kernel set {kernel_set} has none for {result['arch']}; README.md lists what each set has"
    return f"{'; '.join(missing)} ({rest})"


def _device_text(result: dict[str, Any]) -> str:
    name, arch = result["device"], result["arch"]
    return name if arch in name else f"{name} ({arch})"  # the software device's name has it


def _kernel_text(result: dict[str, Any]) -> str:
    name, launched = result["kernel"], result["launched"]
    if not result["launched_as_said"]:
        return f"{name}; WRONG: the device was asked to run {', '.join(launched) or 'nothing'}"
    return f"{name} (pipeline {result['pipeline']}, first of {result['candidate_count']} that can do it)"


def _backward_lines(result: dict[str, Any]) -> list[str]:
    if result["backward_kernel"] is None:
        return []
    around = [] if result["launched"] is None else result["launched"][1:]
    others = dict.fromkeys(name for name in around if name != result["backward_kernel"])
    beside = f" (with {', '.join(others)})" if others else ""
    return [
        f"backward      {result['backward_function']}: {result['backward_kernel']}{beside}",
        f"code object   sha256 {result['backward_code_object_sha256']}",
    ]


def _error_text(result: dict[str, Any], what: str) -> str:
    return (
        f"{result[f'{what}_max_error']:.3g} from float64, the bound there is {result[f'{what}_bound']:.3g}; "
        f"at most {result[f'{what}_max_error_over_tolerance']:.2f} of any element's tolerance"
    )


def describe_text(result: dict[str, Any]) -> str:
    """The report for people."""
    p = result["problem"]
    shape = f"batch {p['batch']}, seqlen {p['seqlen']}, heads {p['nhead_q']}/{p['nhead_k']}, hdim {p['hdim']}"
    mask = "causal" if p["causal"] else "no mask"
    ran = [proof for proof in result["features"] if has_run(proof)]
    features = ["features", *map(_feature_text, ran)] if ran else []
    if missing := not_built_text(result):
        features += textwrap.wrap(missing, 110, initial_indent="not built     ", subsequent_indent=" " * 14)
    return "\n".join(
        [
            f"backend       {result['backend']}: {result['function']}",
            "versions      " + ", ".join(f"{name} {value}" for name, value in result["versions"].items()),
            f"device        {_device_text(result)}",
            f"HIP runtime   {result['hip_runtime']}",
            f"library       {result['library']}",
            f"kernel        {_kernel_text(result)}",
            f"code object   sha256 {result['code_object_sha256']}",
            *_backward_lines(result),
            f"problem       {shape}, {p['dtype']}, {mask}",
            *(
                f"{text + ' error':13} {_error_text(result, name)}"
                for name, text in RESULTS.items()
                if result[f"{name}_max_error"] is not None
            ),
            *features,
            f"result        {'right' if result['ok'] else 'WRONG'}",
        ]
    )


def run(args: argparse.Namespace) -> int:
    """Prove it; 0 if right, else 1."""
    result = report(PROBLEM, args.backend)
    print(to_json(result) if args.json else describe_text(result))
    return 0 if result["ok"] else 1
