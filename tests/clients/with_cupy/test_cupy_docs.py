# SPDX-License-Identifier: MIT OR Apache-2.0
"""The pages' examples for CuPy run."""

from __future__ import annotations

from pathlib import Path

import pytest
from clients.client_pages import pages_with, run_page


@pytest.mark.parametrize("page", pages_with("run: cupy"))
def test_page(page: str, tmp_path: Path) -> None:
    run_page(page, "run: cupy", tmp_path)
