# SPDX-License-Identifier: MIT OR Apache-2.0
"""Say what is in use: HIP runtime, devices, library, kernels, versions."""

from __future__ import annotations

import argparse
import json
import platform
from typing import Any

import numpy as np

from pyfa_rocm import __version__
from pyfa_rocm._runtime import hip, library, paths
from pyfa_rocm.cli.backends import distribution_version
from pyfa_rocm.device import devices, runtime


def collect() -> dict[str, Any]:
    """Gather everything, binding a HIP runtime if none is bound."""
    in_use = runtime()
    build = json.loads(library.build_info_json())
    return {
        "versions": {
            "pyfa_rocm": __version__,
            "libfmha_rocm": library.version(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "hip-python": distribution_version("hip-python"),
            "hip_runtime": hip.call("hipRuntimeGetVersion"),
        },
        "library": str(paths.library_path()),
        "runtime": {
            "path": in_use.path,
            "path_in_library": library.hip_runtime_path(),
            "emulated": in_use.emulated,
            "reason": in_use.reason,
        },
        "devices": [vars(device) for device in devices()],
        "build": build,
    }


def run(args: argparse.Namespace) -> int:
    """Print what `collect` gathers."""
    info = collect()
    if args.json:
        print(json.dumps(info, indent=2))
        return 0
    in_use, build = info["runtime"], info["build"]
    kind = "software device" if in_use["emulated"] else "GPU"
    print(f"HIP runtime   {in_use['path']} ({kind}; {in_use['reason']})")
    for device in info["devices"]:
        gib = device["memory_bytes"] / 2**30
        print(f"device {device['index']}      {device['name']}, {device['arch']}, {gib:.1f} GiB")
    print(f"library       {info['library']}")
    print(f"built for     {', '.join(build['archs'])} by {build['compiler']}, CK {build['ck_version']}")
    print("versions      " + ", ".join(f"{name} {value}" for name, value in info["versions"].items()))
    objects, kernels = build["code_objects"], build["kernels"]
    size, packed = (sum(x[name] for x in objects) / 2**20 for name in ("bytes", "packed_bytes"))
    print(
        f"kernels       {len(kernels)} (set {build['kernel_set']}) in {len(objects)} code objects, "
        f"{size:.2f} MiB, {packed:.2f} compressed; --json has what each can do"
    )
    for index, x in enumerate(objects):
        count = sum(kernel["code_object"] == index for kernel in kernels)
        print(f"  {x['arch']}  {x['name']}  {count} kernels  {x['bytes']} bytes  sha256 {x['sha256'][:16]}")
    return 0
