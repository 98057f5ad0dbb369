# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lay out in this Python environment what CuPy wants of a ROCm: `rocm`, and a `hipcc` beside Python.

    PYTHONPATH=tests python -m clients.with_cupy.cupy_setup

The libraries are stubs, but for libhiprtc, which compiles CuPy's kernels (hiprtc.c) with the clang, HIP
headers and bitcode of this project's build.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from clients import stubs

CLIENTS = Path(__file__).resolve().parents[1]
BUILD = CLIENTS.parents[1] / "build" / "release"
BINARIES = Path(sys.prefix) / "bin"
ROCM = Path(sys.prefix) / "rocm"
# All that CuPy's kernels want of rocThrust: what its complex numbers stand in.
NAMESPACE = """#pragma once
#define THRUST_NAMESPACE_BEGIN namespace thrust {
#define THRUST_NAMESPACE_END }
"""


def package(name: str) -> Path:
    """The folder of an installed package, which is not imported: it would not load yet."""
    spec = importlib.util.find_spec(name)
    assert spec is not None, f"{name} is not installed in {sys.prefix}"
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0])


def of_build(variable: str) -> str:
    """Return the value of a CMake variable of the build."""
    match = re.search(rf"^{variable}:\w+=(.+)$", (BUILD / "CMakeCache.txt").read_text(), re.M)
    assert match, f"{variable} is not in the cache of {BUILD}"
    return match[1]


def hipcc() -> str:
    """A script that is clang, told where the parts are."""
    parts = (
        *(f"--{name}={of_build('FMHA_HIP_PATH')}" for name in ("rocm-path", "hip-path")),
        f"--rocm-device-lib-path={of_build('FMHA_BITCODE')}",
        # Else the code has a mark of its file's name, and CuPy takes each process for another compiler.
        "-fuse-cuid=none",
        # For CuPy, which asks hipcc for its folders in a way in which clang leaves out HIP's own.
        *("-isystem", f"{of_build('FMHA_HIP_PATH')}/include", "-isystem", str(ROCM / "include")),
    )
    return f'#!/bin/sh\nexec {shlex.join([of_build("FMHA_DEVICE_COMPILER"), *parts])} "$@"\n'


def hiprtc(folder: Path) -> None:
    """Build libhiprtc against the software device, under the names by which it may be asked for."""
    library, device = folder / "libhiprtc.so.7", BUILD / "emulator" / "libamdhip64.so.6"
    command = ["gcc", "-std=gnu11", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-D__HIP_PLATFORM_AMD__"]
    command += ["-isystem", f"{of_build('FMHA_HIP_PATH')}/include", str(CLIENTS / "hiprtc.c"), str(device)]
    subprocess.run([*command, "-o", str(library)], check=True)
    for name in ("libhiprtc.so", "libhiprtc.so.6"):
        (folder / name).symlink_to(library.name)


def main() -> int:
    """Lay it out, and say where."""
    shutil.rmtree(ROCM, ignore_errors=True)
    stubs.build(ROCM / "lib", [package("cupy"), package("cupy_backends")])
    hiprtc(ROCM / "lib")
    header = ROCM / "include" / "thrust" / "detail" / "config" / "namespace.h"
    header.parent.mkdir(parents=True)
    header.write_text(NAMESPACE)
    (BINARIES / "hipcc").write_text(hipcc())
    (BINARIES / "hipcc").chmod(0o755)
    print(ROCM)
    return 0


if __name__ == "__main__":
    sys.exit(main())
