# SPDX-License-Identifier: MIT OR Apache-2.0
"""The pages' examples for Triton run."""

from __future__ import annotations

from pathlib import Path

import pytest
from clients.client_pages import pages_with, run_page


@pytest.mark.parametrize("page", pages_with("run: triton"))
def test_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the arch that the page says, not the one of these tests."""
    monkeypatch.delenv("FMHA_EMU_ARCH", raising=False)
    run_page(page, "run: triton", tmp_path)
