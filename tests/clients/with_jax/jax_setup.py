# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lets JAX for ROCm run where there is neither ROCm nor a GPU: run it once, with the Python that has JAX.

It adds to that Python's environment
- stubs of the ROCm libraries that JAX's need, in the folder in which ROCm's own wheels would have them;
- a package around JAX's plug-ins. JAX asks Linux's driver for AMD GPUs whether there is one, and loads no
  plug-in for ROCm unless there is; with it, any libamdhip64 that can be opened will do;
- a ROCM_PATH with the device's bitcode, of which XLA's compiler takes functions such as sin.

ENVIRONMENT is what a program needs beside the software device.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path

from clients import stubs

ROCM = Path(sys.prefix) / "rocm"
BUILD = Path(__file__).resolve().parents[3] / "build" / "release"

ENVIRONMENT = {
    "JAX_PLATFORMS": "rocm,cpu",  # the first must be there: if it is not, no program runs on the CPU instead
    "ROCM_PATH": str(ROCM),
    # Memory as it is needed: in chunks of 2 MiB or more, whose bounds are those that the device checks.
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    # Products by XLA's own kernels, as rocBLAS and hipBLASLt are stubs. To find the fastest takes a minute.
    "XLA_FLAGS": "--xla_gpu_enable_cublaslt=false --xla_gpu_cublas_fallback=false "
    "--xla_gpu_experimental_autotune_backends=TRITON --xla_gpu_autotune_level=0",
}

PLUGINS = '''"""By pyfa_rocm's jax_setup.py: JAX's plug-ins, and a GPU for them to find."""

import ctypes
import pkgutil

from jax._src import hardware_utils

__path__ = pkgutil.extend_path(__path__, __name__)


def _num_available_amd_gpus(stop_at=None):
    try:
        ctypes.CDLL("libamdhip64.so.7")
    except OSError:
        return 0
    return 1


hardware_utils.num_available_amd_gpus = _num_available_amd_gpus
'''


def bitcode() -> Path:
    """Return the folder of the bitcode that the build compiles kernels with."""
    cache = BUILD / "CMakeCache.txt"
    match = re.search(r"^FMHA_BITCODE:\w+=(.+)$", cache.read_text(), re.M)
    assert match, f"FMHA_BITCODE is not in {cache}"
    return Path(match[1])


def main() -> int:
    """Add all of it, and say where."""
    site = Path(sysconfig.get_path("purelib"))
    wheels = [site / "jax_plugins", site / "jax_rocm7_plugin"]
    if missing := [str(path) for path in wheels if not path.is_dir()]:
        print(
            f"jax_setup.py: got a Python without {', '.join(missing)}, expected JAX for ROCm", file=sys.stderr
        )
        return 2
    libraries = stubs.build(site / "_rocm_sdk_core" / "lib", wheels)
    (wheels[0] / "__init__.py").write_text(PLUGINS)
    (ROCM / "amdgcn").mkdir(parents=True, exist_ok=True)
    link = ROCM / "amdgcn" / "bitcode"
    link.unlink(missing_ok=True)
    link.symlink_to(bitcode())
    print(f"{len(libraries)} stubs in {libraries[0].parent}, bitcode in {link}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
