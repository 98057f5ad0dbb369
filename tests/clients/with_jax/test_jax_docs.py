# SPDX-License-Identifier: MIT OR Apache-2.0
"""The pages' examples for JAX for ROCm run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from clients.client_pages import pages_with, run_page


@pytest.mark.parametrize("page", pages_with("run: jax"))
def test_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the variables that the page sets, and without those of these tests."""
    for name in (
        "JAX_PLATFORMS",
        "ROCM_PATH",
        "XLA_FLAGS",
        "XLA_PYTHON_CLIENT_PREALLOCATE",
        "FMHA_EMU_DEVICES",
    ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    run_page(page, "run: jax", tmp_path)
