# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lay out in this Python environment what CuPy wants of a ROCm: `rocm`, and a `hipcc` beside Python.

    PYTHONPATH=tests python -m clients.with_cupy.cupy_setup

The libraries are stubs, but for libhiprtc, which compiles CuPy's kernels (hiprtc.c) with the clang, HIP
headers and bitcode of this project's build.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

from clients import hiprtc_setup, stubs

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


def main() -> int:
    """Lay it out, and say where."""
    shutil.rmtree(ROCM, ignore_errors=True)
    stubs.build(ROCM / "lib", [package("cupy"), package("cupy_backends")])
    hiprtc_setup.hiprtc(ROCM / "lib")
    header = ROCM / "include" / "thrust" / "detail" / "config" / "namespace.h"
    header.parent.mkdir(parents=True)
    header.write_text(NAMESPACE)
    hiprtc_setup.hipcc(BINARIES, ROCM / "include")
    print(ROCM)
    return 0


if __name__ == "__main__":
    sys.exit(main())
