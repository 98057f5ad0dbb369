# SPDX-License-Identifier: MIT OR Apache-2.0
"""Code blocks of the pages that need torch, JAX, transformers or the wheel, by their marks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import installed
import pytest
from pages.doc_blocks import Block, blocks, pages
from pages.doc_run import Page

import pyfa_rocm.flash_attn

RUN_HERE = ("run: adapters", "run: package")
HAVE_SOME = [page for page in pages() if any(b.kind in RUN_HERE for b in blocks(page))]


def without_pip(block: Block) -> Block:
    """Leave out the commands that install the wheel: it is installed here."""
    lines = [line for line in block.text.splitlines(keepends=True) if not line.startswith("pip install ")]
    return replace(block, text="".join(lines))


@pytest.mark.parametrize("page", HAVE_SOME)
def test_page(page: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """In order, with the outputs that stand below them. The test uninstalls what a page installs."""
    state = Page(tmp_path, lambda: installed.install(tmp_path / "prefix"))
    before = ""
    request.addfinalizer(pyfa_rocm.flash_attn.uninstall)
    for block in blocks(page):
        if block.kind in RUN_HERE or (block.kind == "output" and before in RUN_HERE):
            state.run(without_pip(block) if block.kind == "run: package" else block)
        before = before if block.kind == "output" else block.kind
