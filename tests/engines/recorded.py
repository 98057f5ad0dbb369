# SPDX-License-Identifier: MIT OR Apache-2.0
"""Rows of a page's table that tests have measured; with PYFA_ROCM_RECORD=1 they write them."""

from __future__ import annotations

import os
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
BEGIN, END = "<!-- recorded: begin -->\n", "\n<!-- recorded: end -->"


def row(page: str, name: str, *cells: str) -> None:
    """Assert that a page has a row of this name, whose numbers may be another machine's; or write it."""
    path = DOCS / page
    text = path.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    shown, behind = rest.split(END)
    line, found = f"| {' | '.join((name, *cells))} |\n", rf"(?m)^\| {re.escape(name)} \|.*\n"
    if os.environ.get("PYFA_ROCM_RECORD") == "1":
        shown = re.sub(found, line, shown) if re.search(found, shown) else shown + line
        path.write_text(f"{before}{BEGIN}{shown}{END}{behind}", encoding="utf-8")
    assert re.search(found, shown), f"docs/{page} has no row {name}: PYFA_ROCM_RECORD=1 writes it"
