# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lay out in this Python environment what CuPy wants of a ROCm: `rocm`, and a `hipcc` beside Python.

    cupy_setup.py

The libraries are stubs, but for libhiprtc, which compiles CuPy's kernels (hiprtc.c) with the clang, HIP headers and
bitcode of this project's build.
"""

from __future__ import annotations

import importlib.util
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import stubs

HERE = Path(__file__).resolve().parent
TOOLCHAIN = HERE.parents[1] / "build" / "toolchain"
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


def hipcc() -> str:
    """A script that is clang, told where the parts are."""
    clang = shutil.which("clang++-19") or shutil.which("clang++")
    assert clang, "no clang++-19 on PATH: `make toolchain` installs it"
    parts = (
        *(f"--{name}={TOOLCHAIN / 'hip'}" for name in ("rocm-path", "hip-path")),
        f"--rocm-device-lib-path={TOOLCHAIN / 'bitcode'}",
        # In so many words too: without a card clang asks for none of HIP's headers by itself.
        *("-isystem", str(TOOLCHAIN / "hip" / "include"), "-isystem", str(ROCM / "include")),
    )
    return f'#!/bin/sh\nexec {shlex.join([clang, *parts])} "$@"\n'


def hiprtc(folder: Path, device: Path) -> None:
    """Build libhiprtc against the software device, under the names by which it may be asked for."""
    library = folder / "libhiprtc.so.7"
    command = ["gcc", "-std=gnu11", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-D__HIP_PLATFORM_AMD__"]
    command += [f"-isystem{TOOLCHAIN / 'hip' / 'include'}", str(HERE / "hiprtc.c"), str(device), "-o", str(library)]
    subprocess.run(command, check=True)
    for name in ("libhiprtc.so", "libhiprtc.so.6"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(library.name)


def main() -> int:
    """Lay it out, and say where."""
    sys.path.insert(0, str(HERE.parents[1]))
    from pyfa_rocm._runtime import paths

    shutil.rmtree(ROCM, ignore_errors=True)
    stubs.build(ROCM / "lib", [package("cupy"), package("cupy_backends")])
    hiprtc(ROCM / "lib", paths.emulator_path())
    header = ROCM / "include" / "thrust" / "detail" / "config" / "namespace.h"
    header.parent.mkdir(parents=True)
    header.write_text(NAMESPACE)
    (BINARIES / "hipcc").write_text(hipcc())
    (BINARIES / "hipcc").chmod(0o755)
    print(ROCM)
    return 0


if __name__ == "__main__":
    sys.exit(main())
