# SPDX-License-Identifier: MIT OR Apache-2.0
"""Suites of 8-bit floats and of caches on a software device that plays gfx950, whose kernels are others."""

from __future__ import annotations

import os

import pytest
from built import rows
from inner import file_of_tests, run_as

ARCH = "gfx950"
SUITES = (
    ("test_dtypes.py", "-k", "fp8"),
    ("test_garbage_packed.py",),
    ("test_kv_append.py",),
    ("test_quantize.py",),
    ("test_decode_caches.py",),
    ("test_latent.py",),
)


@pytest.mark.skipif(bool(os.environ.get("FMHA_EMU_ARCH")), reason="already the inner run")
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite[0])
def test_suite(suite: tuple[str, ...], device_kind: str) -> None:
    """Clean with every check on."""
    if device_kind == "gpu":
        pytest.skip("a GPU has one arch")
    if ARCH not in {row["arch"] for row in rows("kv_append")}:
        pytest.skip(f"the library was built without kernels for {ARCH}")
    chosen = ("-m", "not every_kernel", file_of_tests(suite[0]), *suite[1:])
    assert " passed" in run_as(ARCH, *chosen, FMHA_TEST_EXAMPLES="100")
