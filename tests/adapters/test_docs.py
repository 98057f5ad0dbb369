# SPDX-License-Identifier: MIT OR Apache-2.0
"""Code blocks of the pages that need torch, JAX or transformers: those marked `run: adapters`."""

from __future__ import annotations

from pathlib import Path

import installed
import pytest
from doc_blocks import blocks, pages
from doc_run import Page

WITH_FRAMEWORKS = [page for page in pages() if any(b.kind == "run: adapters" for b in blocks(page))]


@pytest.mark.parametrize("page", WITH_FRAMEWORKS)
def test_page(page: str, tmp_path: Path) -> None:
    """In order, with the outputs that stand below them."""
    state = Page(tmp_path, lambda: installed.install(tmp_path / "prefix"))
    before = ""
    for block in blocks(page):
        if block.kind == "run: adapters" or (block.kind == "output" and before == "run: adapters"):
            state.run(block)
        before = before if block.kind == "output" else block.kind
