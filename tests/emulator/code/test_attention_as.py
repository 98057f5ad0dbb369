# SPDX-License-Identifier: MIT OR Apache-2.0
"""The software device as other cards: suites of the library's calls; test_every_kernel has every kernel."""

from __future__ import annotations

import os

import pytest
from built import MORE_CHECKS
from inner import file_of_tests, run_as

from ..support.kernels import built_for

OF_RADEON = (
    ("test_forward.py",),
    ("test_varlen.py",),
    ("test_backward.py", "-k", "questions"),
    ("test_garbage.py",),
    ("test_garbage_packed.py",),
    ("test_merge.py",),
    ("test_many_batches.py",),
    ("test_kv_append.py",),
    ("test_decode.py",),
    ("test_decode_caches.py",),
    ("test_decode_wrong.py",),
    ("test_with_kvcache.py",),
    ("test_cli_bench_decode.py", "-k", "traffic or rate"),
)
# gfx1030 shares all but the products with gfx1100: a few seconds of each.
OF_GFX1030 = (
    ("test_forward.py", "-k", "flash or grouped or without_keys or large_scores"),
    ("test_backward.py", "-k", "questions"),
    ("test_decode_caches.py",),
    ("test_with_kvcache.py",),
)
OF_GFX90A = (
    *(("test_forward.py",), ("test_backward.py",), ("test_many_batches.py",), ("test_strict.py",)),
    *(("test_capture.py",), ("test_check_schedule.py",)),
)
# Our own kernels and AITER's
OF_GFX950 = (
    *(("test_pingpong.py",), ("test_pingpong_error.py",), ("test_pingpong_scores.py",)),
    *(("test_prebuilt.py",), ("test_prebuilt_backward.py",)),
)
# Random problems: gfx942 does 400 of a suite.
RUNS = [
    *((arch, suite, "150") for suite in OF_RADEON for arch in ("gfx1100", "gfx1201")),
    ("gfx1201", ("test_quantize.py",), "150"),  # gfx1100 has no 8-bit floats
    *(("gfx1030", suite, "16") for suite in OF_GFX1030),
    *(("gfx90a", suite, "60") for suite in OF_GFX90A),
    *(("gfx950", suite, "400") for suite in OF_GFX950),
]


@pytest.mark.skipif(bool(os.environ.get("FMHA_EMU_ARCH")), reason="already the inner run")
@pytest.mark.parametrize(
    ("arch", "suite", "examples"), RUNS, ids=[f"{arch}-{suite[0]}" for arch, suite, _ in RUNS]
)
def test_suite(arch: str, suite: tuple[str, ...], examples: str) -> None:
    """Clean with every check on, as a card of another family; test_every_kernel.py plays each by itself."""
    if not built_for(arch):
        pytest.skip(f"the library was built without kernels for {arch}")
    environment = {"FMHA_TEST_EXAMPLES": examples} | MORE_CHECKS.get(arch, {})
    out = run_as(arch, "-m", "not every_kernel", file_of_tests(suite[0]), *suite[1:], **environment)
    assert " passed" in out, out
