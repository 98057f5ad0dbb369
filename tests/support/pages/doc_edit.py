# SPDX-License-Identifier: MIT OR Apache-2.0
"""Changes to files as the pages show them: a ``diff`` block without line numbers.

Each line begins with a blank (it is in the file before and after), a plus (it is added) or a minus (it is
removed). A line of ``...`` separates changes that are far from each other. The old lines must be in the
file exactly once, so that a page that no longer fits the tree fails its test.
"""

from __future__ import annotations

from pathlib import Path

from pages.doc_blocks import Block

_BEFORE, _AFTER = " -", " +"


def hunks(text: str) -> list[list[str]]:
    """The changes of a block, each as its lines."""
    found: list[list[str]] = [[]]
    for line in text.splitlines():
        if line == "...":
            found.append([])
        else:
            found[-1].append(line)
    return found


def _side(lines: list[str], signs: str) -> str:
    return "".join(f"{line[1:]}\n" for line in lines if line[:1] in signs or not line)


def apply(block: Block, root: Path, *, undo: bool = False) -> None:
    """Change the file that a block names, below `root`; with `undo`, take the change back.

    A block that only adds lines makes a file that is not there.
    """
    path = root / block.value
    signs = (_AFTER, _BEFORE) if undo else (_BEFORE, _AFTER)
    for lines in hunks(block.text):
        strange = [line for line in lines if line and line[0] not in " +-"]
        assert not strange, (
            f"{block.place}: expected lines that begin with a blank, + or -, got {strange[0]!r}"
        )
        old, new = (_side(lines, side) for side in signs)
        if not old:
            assert not path.exists(), f"{block.place}: {block.value} is there already: expected a line of it"
            path.write_text(new, encoding="utf-8")
            continue
        text = path.read_text(encoding="utf-8")
        count = f"\n{text}".count(f"\n{old}")
        assert count == 1, f"{block.place}: {block.value} has this {count} times, expected once:\n{old}"
        path.write_text(f"\n{text}".replace(f"\n{old}", f"\n{new}")[1:], encoding="utf-8")
