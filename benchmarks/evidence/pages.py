# SPDX-License-Identifier: MIT OR Apache-2.0
"""Parts of the project's pages that the page of evidence repeats: their tables are not typed in twice."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def part(page: str, *headings: str) -> str:
    """Return the text below a heading of a page, without its subordinate headings' text.

    Each of `headings` is looked for below the one before it.

    Raises
    ------
    ValueError
        The page has no such heading.
    """
    lines = (DOCS / page).read_text().splitlines()
    for heading in headings:
        found = [i for i, line in enumerate(lines) if re.fullmatch(rf"#+ {re.escape(heading)}", line)]
        if not found:
            raise ValueError(f"docs/{page} has no heading {heading}")
        level = lines[found[0]].index(" ")
        rest = lines[found[0] + 1 :]
        end = next((i for i, line in enumerate(rest) if re.match(rf"#{{1,{level}}} ", line)), len(rest))
        lines = rest[:end]
    own = next((i for i, line in enumerate(lines) if re.match("#+ ", line)), len(lines))
    return "\n".join(lines[:own]).strip()


def tables(text: str) -> list[str]:
    """Return the tables of a text."""
    return [match.strip() for match in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE)]


def mean_of_rows(table: str, kernel: str) -> tuple[float, int]:
    """Return the mean error of a kernel from 2048 keys on, as a share, and of how many rows it is."""
    head, _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
    rows = [dict(zip(head, cells, strict=True)) for cells in lines]
    chosen = [row for row in rows if row["kernel"].startswith(kernel) and row["keys"].startswith("from ")]
    counts = [int(row["rows held out"]) for row in chosen]
    errors = [float(row["mean error"].rstrip(" %")) / 100 for row in chosen]
    return sum(n * error for n, error in zip(counts, errors, strict=True)) / sum(counts), sum(counts)


def recorded(page: str) -> str:
    """Return the table that a program wrote into a page."""
    text = (DOCS / page).read_text()
    (found,) = re.findall(r"<!-- recorded: begin -->\n(.*?)<!-- recorded: end -->", text, re.DOTALL)
    return str(found).strip()


def bullets(text: str) -> str:
    """Return the list of a text."""
    return text[text.index("- ") :].strip() if "- " in text else ""
