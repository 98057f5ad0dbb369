# SPDX-License-Identifier: MIT OR Apache-2.0
"""tinygrad's HIP back end, which opens libamdhip64 with ctypes; its compiler, ROCm's comgr, is clang here."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from clients.rounding import U32, draw, eps, sum_bound

from pyfa_rocm._runtime import paths

# Before tinygrad is imported: HIP's file, the device, no kernels of other runs, no processes that compile.
# No matrix unit: with the features that HIP adds to an arch's name tinygrad takes a Radeon's for it.
os.environ |= {
    "HIP_PATH": str(paths.emulator_path()),
    "DEV": "HIP",
    "CACHELEVEL": "0",
    "PARALLEL": "0",
    "TC": "0",
}

from tinygrad import Tensor, TinyJit, dtypes
from tinygrad.device import Compiler
from tinygrad.runtime.support import compiler_amd

CMAKE_CACHE = Path(__file__).resolve().parents[3] / "build" / "release" / "CMakeCache.txt"


class Clang(Compiler):
    """The build's clang, in place of comgr."""

    def __init__(self, arch: str) -> None:
        self.arch = arch
        super().__init__(None)

    def compile(self, src: str) -> bytes:
        found = dict(re.findall(r"^FMHA_(\w+):\w+=(.*)$", CMAKE_CACHE.read_text(), re.M))
        parts = [f"--{name}-path={found['HIP_PATH']}" for name in ("rocm", "hip")]
        command = [found["DEVICE_COMPILER"], "-xhip", "-O3", f"--offload-arch={self.arch}", *parts, "-w"]
        command += [f"--rocm-device-lib-path={found['BITCODE']}", "-nogpuinc", "-nohipwrapperinc"]
        command += ["--cuda-device-only", "--no-gpu-bundle-output", "-", "-o", "-"]
        done = subprocess.run(command, input=src.encode(), capture_output=True, check=False)
        assert done.returncode == 0, f"{src}\n{done.stderr.decode()}"
        return done.stdout


@pytest.fixture(autouse=True)
def _clang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler_amd, "HIPCompiler", Clang)


def on_device(x: np.ndarray) -> Any:
    return Tensor(x, device="HIP")


def test_elementwise_and_reductions() -> None:
    x = np.random.default_rng(0).integers(-100, 100, (33, 65)).astype(np.int32)
    a = on_device(x)
    np.testing.assert_array_equal((a * 3 + a.T.contiguous().T).numpy(), x * 4)
    np.testing.assert_array_equal(a.sum(1).numpy(), x.sum(1))
    np.testing.assert_array_equal(a.max(0).numpy(), x.max(0))
    np.testing.assert_array_equal(a.argmax(1).numpy(), x.argmax(1))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_matmul(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    x, y = draw(rng, (64, 96), dtype), draw(rng, (96, 32), dtype)
    got = on_device(x).matmul(on_device(y), dtype=dtypes.float32).numpy()
    exact = x.astype(np.float64) @ y.astype(np.float64)
    size = np.abs(x).astype(np.float64) @ np.abs(y).astype(np.float64)
    # It rounds each product to the operands' type, and sums them in float32.
    product = eps(dtype) / 2 if dtype == np.float16 else 0
    assert np.all(np.abs(got - exact) <= (sum_bound(96) + product) * size)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool) -> None:
    rng = np.random.default_rng(2)
    q, k, v = (draw(rng, (1, 2, 48, 32), np.float32) for _ in range(3))
    got = on_device(q).scaled_dot_product_attention(on_device(k), on_device(v), is_causal=causal).numpy()
    exact = [x.astype(np.float64) for x in (q, k, v)]
    scores = exact[0] @ exact[1].swapaxes(2, 3) / np.sqrt(32)
    if causal:
        scores = np.where(np.triu(np.ones((48, 48), bool), 1), -np.inf, scores)
    powers = np.exp(scores - scores.max(3, keepdims=True))
    weights = powers / powers.sum(3, keepdims=True)
    # A score and the maximum are sums of 32 products; then come the power, two sums of 48 and the quotient.
    sizes = (np.abs(exact[0]) @ np.abs(exact[1]).swapaxes(2, 3)).max() / np.sqrt(32)
    error = 2 * (2 * (sum_bound(32) + 4 * U32) * sizes + sum_bound(48) + 4 * U32)
    assert np.all(np.abs(got - weights @ exact[2]) <= error * (weights @ np.abs(exact[2])))


def test_a_jitted_step() -> None:
    """The third call replays what the second one recorded."""

    @TinyJit
    def step(x: Any) -> Any:
        return ((x + 1) * 2).sum(0).realize()

    for n in range(4):
        got = step(on_device(np.full((5, 7), n, np.int32)).realize()).numpy()
        np.testing.assert_array_equal(got, np.full(7, (n + 1) * 2 * 5))


def test_bfloat16() -> None:
    x = draw(np.random.default_rng(3), (64,), ml_dtypes.bfloat16).astype(np.float32)
    got = (on_device(x).cast(dtypes.bfloat16) + 1).cast(dtypes.float32).numpy()
    assert np.all(np.abs(got - (x + 1)) <= eps(ml_dtypes.bfloat16) / 2 * np.abs(x + 1))
