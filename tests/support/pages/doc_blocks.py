# SPDX-License-Identifier: MIT OR Apache-2.0
"""Code blocks of the Markdown pages, and what runs them: of this test group and of tests/adapters.

A block runs by its language, the blocks of a page in order, in a folder of the page's own:

- ``python``: in one namespace a page. A comment behind a ``print`` at the margin is what it prints.
- ``c``, ``cpp``: compiled without a warning against an installed prefix, ``~/fmha``, and run.
- ``sh``: by bash, with ``pyfa-rocm`` and ``python`` on the PATH and the files of a checkout at hand.
- ``diff``: a change to a file (doc_edit.py), with a mark that names the file.
- ``json``, ``text``: only shown, with a mark that says what it is.

A comment right above a block says otherwise, or more: a mark of MARKS. A block that neither runs nor has a
known mark is a failure.
"""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
RUN_BY_LANGUAGE = ("python", "c", "cpp", "sh")
MARKS = {
    "output": "what the block before it printed; `...` stands for anything",
    "file": "a file of this name in the page's folder, for the blocks that follow",
    "part-of": "stands word for word in this file of the repository, which a test of its own runs",
    "drawing": "a drawing: what looks like a path in it is one, below this folder or the root",
    "message": "an error message that test_messages.py of tests/docs or tests/adapters provokes",
    "run: adapters": "runs in the second test group, which has torch, JAX and transformers",
    "run: cupy": "runs in the third test group, which has CuPy for ROCm on the software device",
    "run: triton": "runs in the third test group, which has Triton",
    "run: jax": "runs in the third test group, which has JAX for ROCm on the software device",
    "run: onnxruntime": "runs among the engines, which have ONNX Runtime",
    "run: onnxruntime build": "builds the library that those tests load: test_engines.sh does it so",
    "shown": "of a language that the tests have no compiler of",
    "run: attend": "a function that tests/docs/test_docs.py calls and judges against float64",
    "run: make": "targets of make: `make -n` knows them all",
    "run: examples": "of an example's page: tests/docs/test_examples.py builds and runs that example",
    "run: tree": "runs in a copy of the tree, after all changes of its page: tests/docs/test_adding.py",
    "run: sources": "only reads the sources: tests/docs/test_docs.py runs it at the root of the repository",
    "edit": "a change to this file, which tests/docs/test_adding.py makes in that copy",
    "again": "like edit, but of something that is there: that test takes it out first",
    "run: package": "for the wheel, which the second test group has installed: it runs what is not pip",
}
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)
_MARK = re.compile(r"<!-- ([\w-]+)(?:: ([^>]*?))? -->\n\Z")
_PRINT = re.compile(r"^print\(.*\)  # (.+)$", re.M)


@dataclass(frozen=True)
class Block:
    """A code block: where it is, its language, its mark ("" for none) and the mark's value, its text."""

    page: str
    line: int
    language: str
    mark: str
    value: str
    text: str

    @property
    def place(self) -> str:
        """For messages, and for tracebacks."""
        return f"{self.page}:{self.line}"

    @property
    def kind(self) -> str:
        """Key of MARKS, or the language if it runs by that, or ""."""
        whole = f"{self.mark}: {self.value}"
        if whole in MARKS:
            return whole
        if self.mark in MARKS:
            return self.mark
        return self.language if not self.mark and self.language in RUN_BY_LANGUAGE else ""


def pages() -> list[str]:
    """All pages for users, relative to the root."""
    found = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*/README.md")]
    return sorted(str(path.relative_to(ROOT)) for path in found)


def parse(page: str, markdown: str) -> Iterator[Block]:
    """Find the blocks of a page, in order."""
    for match in _FENCE.finditer(markdown):
        mark = _MARK.search(markdown, 0, match.start())
        line = markdown.count("\n", 0, match.start()) + 1
        yield Block(page, line, match[1], mark[1] if mark else "", (mark[2] or "") if mark else "", match[2])


def blocks(page: str) -> list[Block]:
    """Blocks of a page of the repository."""
    return list(parse(page, (ROOT / page).read_text(encoding="utf-8")))


def said_to_print(source: str) -> str:
    """Return what comments behind a block's prints say that it prints; "" where there are none."""
    return "".join(f"{text}\n" for text in _PRINT.findall(source))


def same_output(expected: str, got: str) -> bool:
    """Tell whether this was printed, `...` standing for anything, and white space being all one."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(expected, got, flags)


def require_output(block: Block, expected: str, got: str) -> None:
    """Fail unless a block printed what its page says."""
    assert same_output(expected, got), f"{block.place} says it prints\n{expected}\nand it printed\n{got}"
