# SPDX-License-Identifier: MIT OR Apache-2.0
"""A HIP program in gfx950's small floats, compiled by clang 20: narrowing under scales, scaled products.

The expected values use ml_dtypes' small floats, not our own model of them.
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
from ..support.toolchain import CLANG20

SOURCE = Path(__file__).with_name("scaled_products.hip")
KINDS = {
    "fp8": ml_dtypes.float8_e4m3fn,
    "bf8": ml_dtypes.float8_e5m2,
    "fp6": ml_dtypes.float6_e2m3fn,
    "bf6": ml_dtypes.float6_e3m2fn,
    "fp4": ml_dtypes.float4_e2m1fn,
}
# Whatever is larger, in units of the scale, is the largest; of 8 bits it would be infinite or NaN.
MOST = {"fp8": 448, "bf8": 57344, "fp6": 7.5, "bf6": 28, "fp4": 6}
PRODUCTS = (
    *("fp8_fp8_16", "fp4_fp4_16", "fp8_fp4_16", "bf6_bf8_16"),
    *("fp8_bf8_32", "fp4_fp4_32", "fp6_fp8_32", "fp4_bf6_32"),
)
Array = NDArray[np.float64]


@pytest.mark.skipif(bool(os.environ.get("FMHA_EMU_ARCH")), reason="already the inner run")
@pytest.mark.skipif(not CLANG20.exists(), reason="no clang 20: `make toolchain`, without a ROCm")
def test_compiled_by_clang20(tmp_path: Path) -> None:
    """The next test, in a process that plays gfx950."""
    out = tmp_path / "products.co"
    options = ("-x", "hip", "-std=c++20", "-O2", "--offload-arch=gfx950", "-nogpuinc", "-nogpulib")
    only = ("--cuda-device-only", "--no-gpu-bundle-output", "-c", str(SOURCE), "-o", str(out))
    subprocess.run([CLANG20, *options, *only], check=True)
    said = run_as("gfx950", f"{__file__}::test_products", FMHA_TEST_PRODUCTS=str(out))
    assert f"{len(PRODUCTS)} passed" in said


def _narrowed(x: Array, scale: Array, kind: str) -> Array:
    """Numbers as `kind` holds them under the scales of their blocks of 32."""
    power = np.repeat(scale, 32, 1)
    units = np.clip(x / power, -MOST[kind], MOST[kind]).astype(np.float32)
    return np.asarray(units.astype(KINDS[kind]).astype(np.float64) * power)


@pytest.mark.skipif("FMHA_TEST_PRODUCTS" not in os.environ, reason="run by test_compiled_by_clang20")
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str) -> None:
    """Within one rounding of the accumulator a product; of FP4, whose sums f32 holds, exactly."""
    first, second, size = name.split("_")
    m = int(size)
    k = 2048 // m
    rng = np.random.default_rng(m + len(first + second))
    x, y = (rng.normal(0, 2, (m, k)).astype(np.float32) for _ in range(2))
    scales = [rng.integers(125, 130, (m, k // 32)).astype(np.uint8) for _ in range(2)]
    powers = [np.ldexp(1.0, s.astype(int) - 127) for s in scales]
    c = rng.integers(-99, 100, (m, m)).astype(np.float32)
    a, b = _narrowed(x, powers[0], first), _narrowed(y, powers[1], second).T
    bound = k * 2.0**-24 * (np.abs(a) @ np.abs(b) + np.abs(c)) * (name[:7] != "fp4_fp4")
    buffers = [hip.Buffer.of(v) for v in (x, y, *scales, c, np.zeros_like(c))]
    module = hip.Module(Path(os.environ["FMHA_TEST_PRODUCTS"]).read_bytes())
    module.launch(name, struct.pack("<6Q", *(v.address for v in buffers)), block=(64, 1, 1))
    got = buffers[-1].read(np.float32).reshape(m, m)
    assert (np.abs(got - (a @ b + c)) <= bound).all(), np.abs(got - (a @ b + c)).max()
