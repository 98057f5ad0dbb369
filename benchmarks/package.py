# SPDX-License-Identifier: MIT OR Apache-2.0
"""The cost of a wheel: its size by part, and the times of `import pyfa_rocm` and of a build.

    package.py WHEEL                 size, and the import of the installed package
    package.py --build DIR           builds the wheel first, into DIR, and measures that too
    package.py --build DIR --kernels-from BUILD      likewise, with kernels of another build

The wheel is installed without its dependencies into a folder of its own, and imported by this interpreter,
which has to have them. Import times are of whole processes, less those of an empty one: the median, and the
best. Memory is that of the largest process of the build, at its peak.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PARTS = {  # by the beginning of a file's name: the first that fits
    "kernels_and_host_bytes": "pyfa_rocm/lib/libfmha_rocm.so",
    "jax_bytes": "pyfa_rocm/lib/libfmha_rocm_jax",
    "software_device_bytes": "pyfa_rocm/lib/fmha_rocm/emulator/",
    "headers_and_packages_bytes": ("pyfa_rocm/include/", "pyfa_rocm/lib/cmake/", "pyfa_rocm/lib/pkgconfig/"),
    "python_bytes": "pyfa_rocm/",
    "metadata_bytes": "",
}
ROUNDS = 9


def sizes(wheel: Path) -> dict[str, int]:
    """Bytes of the wheel, and unpacked by part."""
    found = {"wheel_bytes": wheel.stat().st_size, "unpacked_bytes": 0} | dict.fromkeys(PARTS, 0)
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            part = next(name for name, begin in PARTS.items() if entry.filename.startswith(begin))
            found[part] += entry.file_size
            found["unpacked_bytes"] += entry.file_size
    return found


def milliseconds(code: str, folder: Path) -> list[float]:
    """Wall-clock times of fresh interpreters that run this, after one that fills the caches."""
    environment = os.environ | {"PYTHONPATH": str(folder)}
    taken = []
    for _ in range(ROUNDS + 1):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=folder)
        taken.append(1e3 * (time.perf_counter() - begin))
    return taken[1:]


def imports(wheel: Path) -> dict[str, Any]:
    """How long importing the package takes, and its first use, which brings in NumPy."""
    with tempfile.TemporaryDirectory() as place:
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--target",
            place,
            str(wheel),
        ]
        subprocess.run(command, check=True)
        empty = milliseconds("pass", Path(place))
        result: dict[str, Any] = {"python": sys.version.split()[0]}
        uses = {
            "import": "import pyfa_rocm",
            "first_use": "import pyfa_rocm; pyfa_rocm.flash_attn_func",
            "numpy": "import numpy",
        }
        for name, code in uses.items():
            taken = milliseconds(code, Path(place))
            result[f"{name}_ms"] = round(statistics.median(taken) - statistics.median(empty), 1)
            result[f"{name}_ms_best"] = round(min(taken) - min(empty), 1)
    return result


def build(folder: Path, kernels: Path | None) -> tuple[Path, dict[str, Any]]:
    """Build the wheel, with the build's own output on stderr, and what that took."""
    command = [str(ROOT / "native" / "tools" / "wheel" / "build_wheel.sh"), "--out", str(folder)]
    if kernels is not None:
        command += ["--kernels-from", str(kernels)]
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=sys.stderr)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cost = {
        "build_seconds": round(time.perf_counter() - begin, 1),
        "build_cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "build_peak_mbytes": used.ru_maxrss // 1024,
        "build_kernels_compiled": kernels is None,
    }
    return next(folder.glob("pyfa_rocm-*.whl")), cost


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("wheel", type=Path, nargs="?", help="a wheel file")
    parser.add_argument("--build", type=Path, metavar="DIR", help="build the wheel, into this folder")
    parser.add_argument("--kernels-from", type=Path, metavar="BUILD", help="with --build: take these kernels")
    parser.add_argument("--json", action="store_true", help="print one JSON object, and nothing else")
    arguments = parser.parse_args()
    if (arguments.wheel is None) == (arguments.build is None):
        parser.error("expected either a wheel file or --build DIR")
    cost: dict[str, Any] = {}
    wheel = arguments.wheel
    if arguments.build is not None:
        wheel, cost = build(arguments.build, arguments.kernels_from)
    result = {"wheel": wheel.name, **sizes(wheel), **imports(wheel), **cost}
    if arguments.json:
        print(json.dumps(result, indent=2))
        return 0
    for name, value in result.items():
        print(f"{name:28} {value:,}" if name.endswith("_bytes") else f"{name:28} {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
