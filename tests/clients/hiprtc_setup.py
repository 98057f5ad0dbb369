# SPDX-License-Identifier: MIT OR Apache-2.0
"""Builds hiprtc.c, and writes the hipcc that it runs: clang, HIP headers and bitcode of this project's build.

    PYTHONPATH=tests python -m clients.hiprtc_setup FOLDER

lays both out in FOLDER/lib and FOLDER/bin.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

CLIENTS = Path(__file__).resolve().parent
BUILD = CLIENTS.parents[1] / "build" / "release"


def of_build(variable: str) -> str:
    """Return the value of a CMake variable of the build."""
    match = re.search(rf"^{variable}:\w+=(.+)$", (BUILD / "CMakeCache.txt").read_text(), re.M)
    assert match, f"{variable} is not in the cache of {BUILD}"
    return match[1]


def hipcc(folder: Path, *includes: Path) -> None:
    """Write a script that is clang, told where the parts are."""
    parts = (
        *(f"--{name}={of_build('FMHA_HIP_PATH')}" for name in ("rocm-path", "hip-path")),
        f"--rocm-device-lib-path={of_build('FMHA_BITCODE')}",
        # Else the code has a mark of its file's name, and CuPy takes each process for another compiler.
        "-fuse-cuid=none",
        # For CuPy, which asks hipcc for its folders in a way in which clang leaves out HIP's own.
        *(x for path in (f"{of_build('FMHA_HIP_PATH')}/include", *includes) for x in ("-isystem", str(path))),
    )
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "hipcc"
    script.write_text(f'#!/bin/sh\nexec {shlex.join([of_build("FMHA_DEVICE_COMPILER"), *parts])} "$@"\n')
    script.chmod(0o755)


def hiprtc(folder: Path) -> None:
    """Build libhiprtc against the software device, under the names by which it may be asked for."""
    library, device = folder / "libhiprtc.so.7", BUILD / "emulator" / "libamdhip64.so.6"
    command = ["gcc", "-std=gnu11", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-D__HIP_PLATFORM_AMD__"]
    command += ["-D_GNU_SOURCE", "-isystem", f"{of_build('FMHA_HIP_PATH')}/include"]
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run([*command, str(CLIENTS / "hiprtc.c"), str(device), "-o", str(library)], check=True)
    for name in ("libhiprtc.so", "libhiprtc.so.6"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(library.name)


def main() -> int:
    """Lay them out."""
    folder = Path(sys.argv[1])
    hiprtc(folder / "lib")
    hipcc(folder / "bin")
    return 0


if __name__ == "__main__":
    sys.exit(main())
