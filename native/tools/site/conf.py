# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sphinx's configuration of the site; native/tools/site.sh runs it on what stage.py has laid out."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

# Sphinx makes millions of nodes and drops few: to look for dropped ones takes a quarter of its time.
gc.disable()

ROOT = Path(__file__).resolve().parents[3]
_HEADER = (ROOT / "native" / "include" / "fmha_rocm.h").read_text(encoding="utf-8")

project = "pyfa_rocm"
release = ".".join(re.findall(r"#define FMHA_VERSION_(?:MAJOR|MINOR|PATCH) +(\d+)", _HEADER))
html_title = f"{project} {release}"

extensions = ["myst_parser"]
# A page of GitHub's Markdown: headings have its anchors, and tables and bare lists its meaning.
myst_heading_anchors = 4
myst_url_schemes = {"http": None, "https": None, "mailto": None, "source": None}
myst_linkify_fuzzy_links = False
# A name in single backticks of a docstring: a link if it is the name of something, else code
default_role = "py:obj"
nitpicky = True
# Docstrings say `q`, and torch.Tensor, which have no page.
nitpick_ignore_regex = [("py:(class|obj|data|exc|func|mod)", ".*")]
python_maximum_signature_line_length = 88
python_display_short_literal_types = True
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_domain_indices = False
html_use_index = False
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": {"color-code-background": "#f4f5f7"},
}
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"

# Pygments' name of a file's language
LEXERS = {".h": "cpp", ".hpp": "cpp", ".cc": "cpp", ".py": "python", ".toml": "toml"}
SOURCE = "source:"


def resolve_sources(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Let links to files of the repository lead to the pages that show them."""
    for node in doctree.findall(nodes.reference):
        target = node.get("refuri", "")
        if target.startswith(SOURCE):
            path = target.removeprefix(SOURCE)
            node["refuri"] = app.builder.get_relative_uri(docname, f"source/{path}")
            node["internal"] = True


def note_sources(app: Sphinx, doctree: nodes.document) -> None:
    """Remember which files a page links to."""
    found = {node.get("refuri", "") for node in doctree.findall(nodes.reference)}
    _sources(app).update(uri.removeprefix(SOURCE) for uri in found if uri.startswith(SOURCE))


def _sources(app: Sphinx) -> set[str]:
    if not hasattr(app.env, "pyfa_rocm_sources"):
        app.env.pyfa_rocm_sources = set()
    found: set[str] = app.env.pyfa_rocm_sources
    return found


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield a page for each file that is linked to. The search leaves them out."""
    for path in sorted(_sources(app)):
        text = (ROOT / path).read_text(encoding="utf-8")
        lexer = LEXERS.get(Path(path).suffix, "text")
        shown = app.builder.highlighter.highlight_block(text, lexer)
        whom = "<p>This page is for those who followed a link: it shows a file of the repository.</p>"
        code = f'<div class="highlight-{lexer} notranslate">{shown}</div>'
        body = f"<section class='source'><h1>{path}</h1>\n{whom}{code}</section>"
        yield f"source/{path}", {"title": path, "body": body}, "page.html"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register what this file does."""
    app.connect("doctree-read", note_sources)
    app.connect("doctree-resolved", resolve_sources)
    app.connect("html-collect-pages", source_pages)
    return {"parallel_read_safe": False, "parallel_write_safe": False}
