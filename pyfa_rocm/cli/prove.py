# SPDX-License-Identifier: MIT OR Apache-2.0
"""Run forward passes, say exactly what ran where, and check them against float64."""

from __future__ import annotations

import argparse
import json
import platform
import textwrap
from typing import Any

from pyfa_rocm import emulator, fmha
from pyfa_rocm._runtime import hip, library, paths
from pyfa_rocm.cli import features
from pyfa_rocm.cli.backends import BACKENDS, Array, Backend
from pyfa_rocm.cli.trial import Trial, judge, kernel_params, to_json
from pyfa_rocm.device import current_device, describe, runtime

# Ragged, grouped-query and causal, so that padding, head mapping and the mask all matter.
PROBLEM = Trial(batch=1, seqlen=200, nhead_q=4, nhead_k=2, hdim=128, dtype="bfloat16", causal=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` takes."""
    functions = ", ".join(f"{name}: {backend.function}" for name, backend in BACKENDS.items())
    parser.add_argument(
        "--backend",
        choices=tuple(BACKENDS),
        default="numpy",
        help=f"the path to prove, by its public function (default numpy; {functions})",
    )


def _run(backend: Backend, problem: Trial) -> tuple[Array, Array, list[str] | None]:
    """Run a problem; also what the software device says was launched meanwhile. A GPU does not say: None."""
    backend.load()
    if not runtime().emulated:
        return *backend.run(problem), None
    with emulator.profile() as profile:
        o, lse = backend.run(problem)
    return o, lse, [launch.kernel for launch in profile.launches]


def _versions(backend: Backend) -> dict[str, str | None]:
    return {
        "python": platform.python_version(),
        "libfmha_rocm": library.version(),
        "hip_runtime": str(hip.call("hipRuntimeGetVersion")),
        **backend.versions(),
    }


def report(problem: Trial, name: str = "numpy") -> dict[str, Any]:
    """Prove a backend: say what ran where, and how right it was.

    The kernel is the one that the library says it takes. On the software device it also has to be the one
    that was launched, and the only one. Features are tried through the plain functions, for "numpy".
    """
    backend = BACKENDS[name]
    o, lse, launched = _run(backend, problem)
    in_use, device, kernel = (
        runtime(),
        describe(current_device()),
        fmha.fmha_fwd_kernel(kernel_params(problem)),
    )
    errors = judge(problem, o, lse, kernel)
    build = json.loads(library.build_info_json())
    proofs = list(features.prove()) if name == "numpy" else []
    as_said = launched is None or launched == [kernel.name]
    return {
        "ok": errors.ok and as_said and all(proof.ok for proof in proofs),
        "backend": name,
        "function": backend.function,
        "versions": _versions(backend),
        "device": device.name,
        "arch": device.arch,
        "emulated": in_use.emulated,
        "hip_runtime": in_use.path,
        "library": str(paths.library_path()),
        "kernel_set": build["kernel_set"],
        "kernel_filter": build["kernel_filter"],
        "kernel": kernel.name,
        "launched": launched,
        "pipeline": kernel.pipeline,
        "candidate_count": kernel.candidate_count,
        "code_object_sha256": kernel.sha256,
        "problem": vars(problem),
        "o_max_error": errors.o,
        "o_bound": errors.o_bound,
        "o_max_error_over_tolerance": errors.o_ratio,
        "lse_max_error": errors.lse,
        "lse_bound": errors.lse_bound,
        "lse_max_error_over_tolerance": errors.lse_ratio,
        "features": [proof._asdict() | {"shape": proof.shape._asdict(), "ok": proof.ok} for proof in proofs],
    }


def _feature_text(proof: dict[str, Any]) -> str:
    verdict = "right" if proof["ok"] else "WRONG"
    ratios = f"O {proof['o_ratio']:.2f}, LSE {proof['lse_ratio']:.2f} of the tolerance"
    return f"  {proof['feature']:22} {verdict}: {ratios}"


def not_built_text(result: dict[str, Any]) -> str:
    """Which features this build has no kernel for and where to get them; "" if it has them all."""
    missing = [proof["feature"] for proof in result["features"] if proof["reason"]]
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
    if launched is not None and launched != [name]:
        return f"{name}; WRONG: the device was asked to run {', '.join(launched) or 'nothing'}"
    return f"{name} (pipeline {result['pipeline']}, first of {result['candidate_count']} that can do it)"


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
    ran = [proof for proof in result["features"] if not proof["reason"]]
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
            f"problem       {shape}, {p['dtype']}, {mask}",
            f"O error       {_error_text(result, 'o')}",
            f"LSE error     {_error_text(result, 'lse')}",
            *features,
            f"result        {'right' if result['ok'] else 'WRONG'}",
        ]
    )


def run(args: argparse.Namespace) -> int:
    """Prove it; 0 if right, else 1."""
    result = report(PROBLEM, args.backend)
    print(to_json(result) if args.json else describe_text(result))
    return 0 if result["ok"] else 1
