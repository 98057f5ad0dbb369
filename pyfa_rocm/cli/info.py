# SPDX-License-Identifier: MIT OR Apache-2.0
"""Say what is in use: HIP runtime, devices, library, kernels, versions."""

from __future__ import annotations

import argparse
import json
import platform
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` takes."""
    parser.add_argument("--kernels", action="store_true", help="list the code objects too, a line each")


def _devices(devices: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each run of devices that are alike."""
    for about, alike in groupby(devices, key=lambda x: (x["name"], x["arch"], x["memory_bytes"])):
        name, arch, nbytes = about
        numbers = [device["index"] for device in alike]
        first = f"device {numbers[0]}" if len(numbers) == 1 else f"devices {numbers[0]}-{numbers[-1]}"
        yield f"{first:13} {name}, {arch}, {nbytes / 2**30:.1f} GiB"


def _objects(build: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each code object."""
    kernels = Counter(kernel["code_object"] for kernel in build["kernels"])
    for index, x in enumerate(build["code_objects"]):
        start = f"  {x['arch']}  {x['name']}  {kernels[index]} kernels"
        yield f"{start}  {x['bytes']} bytes  sha256 {x['sha256'][:16]}"


def _lines(info: dict[str, Any]) -> Iterator[str]:
    """Yield what people ask for: about ten lines, however many kernels there are."""
    in_use, build = info["runtime"], info["build"]
    kind = "software device" if in_use["emulated"] else "GPU"
    yield f"HIP runtime   {in_use['path']} ({kind}; {in_use['reason']})"
    yield from _devices(info["devices"])
    yield f"library       {info['library']}"
    yield f"built for     {', '.join(build['archs'])} by {build['compiler']}, CK {build['ck_version']}"
    yield "versions      " + ", ".join(f"{name} {value}" for name, value in info["versions"].items())
    objects, kernels = build["code_objects"], build["kernels"]
    size, packed = (sum(x[name] for x in objects) / 2**20 for name in ("bytes", "packed_bytes"))
    yield (
        f"kernels       {len(kernels)} (set {build['kernel_set']}) in {len(objects)} code objects, "
        f"{size:.2f} MiB, {packed:.2f} compressed"
    )
    families = Counter(kernel["family"] for kernel in kernels)
    yield "families      " + ", ".join(f"{name} {count}" for name, count in families.items())
    yield "more          --kernels lists the code objects; --json has what each kernel can do"


def run(args: argparse.Namespace) -> int:
    """Print what `collect` gathers."""
    info = collect()
    if args.json:
        print(json.dumps(info, indent=2))
        return 0
    lines = list(_lines(info))
    if args.kernels:
        lines[-1:] = _objects(info["build"])
    print("\n".join(lines))
    return 0
