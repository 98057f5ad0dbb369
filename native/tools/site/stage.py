# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lay out what Sphinx reads: ``stage.py OUT`` writes the pages of the site into that folder.

The pages under docs are written for GitHub, and have nothing in them that only Sphinx knows. Here

- each page gets its place on the site (`docname`), with the README, CONTRIBUTING, CHANGELOG and the examples;
- a link to another file of the repository becomes ``source:PATH``, and conf.py makes a page of that file;
- the lists of docs/index.md become the site's contents, a caption a heading;
- docstrings become pages (api_pages.py).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[3]
INDEX = "docs/index.md"
# Pages that lie elsewhere, and a folder whose page is made.
PLACES = {
    "README.md": "overview",
    "CONTRIBUTING.md": "contributing",
    "CHANGELOG.md": "changelog",
    "pyfa_rocm": "api/index",
}
# A block of code, a piece of code in a line, or the target of a link
_PARTS = re.compile(
    r"^(`{3,})[^`\n]*\n.*?^\1$|(`+)(?!`).+?(?<!`)\2(?!`)|(?<=\]\()(?P<target>[^()\s]+)(?=\))", re.S | re.M
)
_ITEM = re.compile(r"^- \[(?P<title>[^\]]+)\]\((?P<target>[^()\s]+)\)", re.M)


def docname(path: str) -> str | None:
    """Return the place on the site of a page of the repository; None if it is none."""
    if path in PLACES:
        return PLACES[path]
    pure = PurePosixPath(path)
    if pure.suffix == ".md" and pure.parts[0] == "docs":
        return str(pure.relative_to("docs").with_suffix(""))
    if pure.parts[0] == "examples" and pure.name == "README.md" and len(pure.parts) == 3:
        return f"examples/{pure.parts[1]}"
    return None


def pages() -> list[str]:
    """Return all pages that have text, relative to the root."""
    found = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").glob("*/README.md")]
    found += [ROOT / path for path in PLACES if path.endswith(".md")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def target_of(page: str, link: str) -> tuple[str, str]:
    """Return what a link of a page leads to, relative to the root, and its anchor, with ``#``."""
    path, sign, anchor = link.partition("#")
    folder = posix_dirname(page)
    return (os.path.normpath(os.path.join(folder, path)) if path else page), sign + anchor


def posix_dirname(path: str) -> str:
    """Return the folder of a path, "" for the root."""
    return path.rpartition("/")[0]


def link_on_site(page: str, link: str) -> str:
    """Return what a link of a page is on the site.

    Raises
    ------
    ValueError
        It leads to nothing, or to a folder that has no page.
    """
    if re.match(r"[a-z]+:", link):
        return link
    path, anchor = target_of(page, link)
    there = docname(path)
    if there is None:
        if not (ROOT / path).is_file():
            raise ValueError(f"{page}: a link to {link}: expected a page or a file of the repository")
        return f"source:{path}"
    here = docname(page)
    if there == here:
        return anchor
    suffix = ".rst" if there.startswith("api/") else ".md"
    return os.path.relpath(there + suffix, posix_dirname(here or "") or ".") + anchor


def on_site(page: str, text: str) -> str:
    """Return the text of a page with the site's links."""

    def replace(match: re.Match[str]) -> str:
        return link_on_site(page, match["target"]) if match["target"] else match[0]

    return _PARTS.sub(replace, text)


def contents(text: str) -> str:
    """Return the site's contents: what docs/index.md lists under each heading."""
    made = []
    for section in re.split(r"^## ", text, flags=re.M)[1:]:
        items = [(item["title"], target_of(INDEX, item["target"])[0]) for item in _ITEM.finditer(section)]
        entries = [f"{title} </{docname(path)}>" for title, path in items]
        head = ["```{toctree}", ":hidden:", f":caption: {section.partition(chr(10))[0]}", ""]
        made.append("\n".join([*head, *entries, "```"]))
    return "\n\n".join(made)


def main() -> int:
    """Write them."""
    import api_pages

    out = Path(sys.argv[1])
    shutil.rmtree(out, ignore_errors=True)
    for page in pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        made = on_site(page, text)
        if page == INDEX:
            made += f"\n{contents(text)}\n"
        if page == "README.md":  # whose title is the project's
            made = made.replace("# pyfa_rocm\n", "# Overview\n", 1)
        path = out / f"{docname(page)}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made, encoding="utf-8")
    api_pages.write(ROOT, out / "api")
    return 0


if __name__ == "__main__":
    sys.exit(main())
