# SPDX-License-Identifier: MIT OR Apache-2.0
"""The software device as a Radeon: suites of the library's calls; test_every_kernel has every kernel."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ..support.kernels import built_for
from ..support.toolchain import ROOT

SUITES = (
    ("test_forward.py",),
    ("test_varlen.py",),
    ("test_backward.py", "-k", "every or questions"),
    ("test_merge.py",),
    ("test_kv_append.py",),
    ("test_decode.py",),
    ("test_decode_caches.py",),
    ("test_decode_wrong.py",),
    ("test_with_kvcache.py",),
    ("test_cli_bench_decode.py", "-k", "traffic or rate"),
)


@pytest.mark.skipif(bool(os.environ.get("FMHA_EMU_ARCH")), reason="already the inner run")
@pytest.mark.parametrize("arch", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite[0])
def test_suite(arch: str, suite: tuple[str, ...]) -> None:
    """Clean with every check on, as a card of another family."""
    if not built_for(arch):
        pytest.skip(f"the library was built without kernels for {arch}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", f"tests/python/{suite[0]}", *suite[1:]],
        env=os.environ | {"FMHA_EMU_ARCH": arch}, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
