# SPDX-License-Identifier: MIT OR Apache-2.0
"""WMMA, or what stands in for it, against what the compiler makes of plain loops, and both against NumPy.

The program is of native/kernels/hip/common/wmma.h, whose layouts our kernels for Radeon take: were one of
them wrong, here or in the software device, the products would differ.
"""

from __future__ import annotations

import os
import struct
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from inner import run_as
from numpy.typing import NDArray

from ..support import hip
from ..support.toolchain import CLANG20, OF_CLANG20, ROOT, compiler

SOURCE = Path(__file__).with_name("wmma_products.hip")
HEADERS = ROOT / "build/toolchain/hip"
ARCHS = ("gfx1030", "gfx1100", "gfx1152", "gfx1153", "gfx1201")
TYPES = {"Fp16": np.float16, "Bf16": ml_dtypes.bfloat16}
SIZE = 16


def _compile(arch: str, out: Path) -> None:
    subprocess.run(
        [
            *(compiler(arch), "-x", "hip", "-std=c++20", "-O2", f"--offload-arch={arch}"),
            *("--cuda-device-only", "--no-gpu-bundle-output", "-nogpulib", "-mcumode", "-ffp-contract=off"),
            *(f"--rocm-path={HEADERS}", f"--hip-path={HEADERS}", "-I", str(ROOT / "native/kernels")),
            *("-c", str(SOURCE), "-o", str(out)),
        ],
        check=True,
    )


@pytest.mark.skipif(bool(os.environ.get("FMHA_EMU_ARCH")), reason="already the inner run")
@pytest.mark.skipif(not HEADERS.exists(), reason="no HIP headers of the toolchain: `make toolchain`")
@pytest.mark.parametrize("arch", ARCHS)
def test_archs(arch: str, tmp_path: Path) -> None:
    """Run the next test as each arch: a process has one."""
    if arch in OF_CLANG20 and not CLANG20.exists():
        pytest.skip("no clang 20: `make toolchain`, without a ROCm")
    code_object = tmp_path / "products.co"
    _compile(arch, code_object)
    said = run_as(arch, f"{__file__}::test_products", FMHA_TEST_PRODUCTS=str(code_object))
    assert f"{len(TYPES)} passed" in said


@pytest.mark.skipif("FMHA_TEST_PRODUCTS" not in os.environ, reason="run by test_archs")
@pytest.mark.parametrize("name", TYPES)
def test_products(name: str) -> None:
    """Small whole numbers, which every sum holds exactly: the same bits three times."""
    rng = np.random.default_rng(1)
    module = hip.Module(Path(os.environ["FMHA_TEST_PRODUCTS"]).read_bytes())
    a, b = (rng.integers(-2, 3, (SIZE, SIZE)).astype(TYPES[name]) for _ in range(2))
    c = rng.integers(-9, 10, (SIZE, SIZE)).astype(np.float32)
    d = a.astype(np.float32) @ b.astype(np.float32) + c
    want = d, a.astype(np.float32) @ d
    for kind in ("wmma", "loops"):
        for got, expected in zip(_run(module, f"{kind}_{name}", a, b, c), want, strict=True):
            np.testing.assert_array_equal(got, expected, kind)


def _run(module: hip.Module, kernel: str, *inputs: NDArray[np.generic]) -> list[NDArray[np.generic]]:
    buffers = [hip.Buffer.of(array) for array in inputs] + [hip.Buffer(4 * SIZE * SIZE) for _ in range(2)]
    module.launch(kernel, struct.pack("<5Q", *(x.address for x in buffers)), block=(32, 1, 1))
    results = [x.read(np.float32).reshape(SIZE, SIZE) for x in buffers[-2:]]
    for buffer in buffers:
        buffer.free()
    return results
