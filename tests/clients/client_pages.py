# SPDX-License-Identifier: MIT OR Apache-2.0
"""Runs the code blocks of the pages that a client's tests are to run, by their mark."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from pages.doc_blocks import Block, blocks, pages
from pages.doc_run import Page

# Commands that native/tools/test_clients.sh has run before.
_INSTALLS = re.compile(r"pip install |PYTHONPATH=tests python -m clients\.\w+\.\w+_setup\b")


def pages_with(mark: str) -> list[str]:
    """Pages that have a block with this mark."""
    return [page for page in pages() if any(block.kind == mark for block in blocks(page))]


def installed_before(block: Block) -> Block:
    """Leave out the commands that the client's environment has run already."""
    lines = [line for line in block.text.splitlines(keepends=True) if not _INSTALLS.match(line)]
    return replace(block, text="".join(lines))


def run_page(page: str, mark: str, folder: Path) -> None:
    """Run a page's blocks with this mark, in order, with the files above and the outputs below them."""

    def prefix() -> Path:
        raise AssertionError(f"{page}: a block that needs an installed prefix, which this group has not")

    state, before = Page(folder, prefix), ""
    for block in blocks(page):
        if block.kind == "file":
            state.run(block)
        elif block.kind == mark or (block.kind == "output" and before == mark):
            state.run(installed_before(block))
        before = before if block.kind == "output" else block.kind
