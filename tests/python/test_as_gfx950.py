# SPDX-License-Identifier: MIT OR Apache-2.0
"""Suites of 8-bit floats and of caches on a software device that plays gfx950, whose kernels are others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from built import rows

ROOT = Path(__file__).parents[2]
ARCH = "gfx950"
# What test_every_kernel.py runs as each arch
LEFT_OUT = ("-m", "not every_kernel")
SUITES = (
    ("test_dtypes.py", "-k", "fp8"),
    ("test_kv_append.py",),
    ("test_decode_caches.py",),
)


@pytest.mark.skipif(bool(os.environ.get("FMHA_EMU_ARCH")), reason="already the inner run")
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite[0])
def test_suite(suite: tuple[str, ...], device_kind: str) -> None:
    """Clean with every check on."""
    if device_kind == "gpu":
        pytest.skip("a GPU has one arch")
    if ARCH not in {row["arch"] for row in rows("kv_append")}:
        pytest.skip(f"the library was built without kernels for {ARCH}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *LEFT_OUT, f"tests/python/{suite[0]}", *suite[1:]],
        env=os.environ | {"FMHA_EMU_ARCH": ARCH, "FMHA_TEST_EXAMPLES": "200"},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout
