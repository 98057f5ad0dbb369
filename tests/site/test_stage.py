# SPDX-License-Identifier: MIT OR Apache-2.0
"""How the site's pages are laid out: links, contents and docstrings. It needs no Sphinx."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import api_pages
import pytest
import stage

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "site" / "html"
# Folders of the package that have no names for users
INNER = {"cli", "clock", "oracle"}


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("../python.md#arrays", "../python.md#arrays"),
        ("../../README.md", "../overview.md"),
        ("../../examples/c/README.md", "../examples/c.md"),
        ("../../pyfa_rocm", "../api/index.rst"),
        ("../../native/archs.toml", "source:native/archs.toml"),
        ("ck.md", "ck.md"),
        ("#here", "#here"),
        ("https://example.org/a.md", "https://example.org/a.md"),
    ],
)
def test_a_link_on_the_site(link: str, expected: str) -> None:
    assert stage.on_site("docs/kernels/wmma.md", f"See [it]({link}).") == f"See [it]({expected})."


def test_code_is_left_alone() -> None:
    text = "`[a](../x.md)` and\n```cpp\n[](int x) { return y[1](z.md); }\n```\n"
    assert stage.on_site("docs/python.md", text) == text


@pytest.mark.parametrize("link", ["../nowhere.md", "../tests"])
def test_a_link_to_nothing_is_an_error(link: str) -> None:
    with pytest.raises(ValueError, match=f"docs/python.md: a link to {link}: expected a page or a file"):
        stage.on_site("docs/python.md", f"[x]({link})")


def test_contents() -> None:
    """A caption a heading, with the names that the page gives."""
    made = stage.contents("# T\n\n## One\n\n- [A b](python.md): x\n- [C](../README.md): y\n\n## Two\n")
    first, second = made.split("\n\n```{toctree}")
    entries = ["A b </python>", "C </overview>"]
    assert first.splitlines()[1:] == [":hidden:", ":caption: One", "", *entries, "```"]
    assert ":caption: Two" in second


def test_every_page_has_its_own_place() -> None:
    places = [stage.docname(page) for page in stage.pages()]
    assert None not in places
    assert len(set(places)) == len(places)
    assert stage.docname("docs/start/python-user.md") == "start/python-user"
    assert stage.docname("native/archs.toml") is None


def test_every_adapter_has_a_page() -> None:
    folders = {path.parent.name for path in (ROOT / "pyfa_rocm").glob("[a-z]*/__init__.py")}
    assert {f"pyfa_rocm.{name}" for name in folders - INNER} <= set(api_pages.MODULES)


@pytest.mark.parametrize("name", api_pages.MODULES)
def test_every_public_name_is_on_its_page(name: str) -> None:
    package = api_pages.Package(ROOT)
    module = api_pages.NAMES_OF.get(name, name)
    text = (SITE / "api" / f"{name}.html").read_text(encoding="utf-8")
    names = [public for public in package.module(module).exported() if package.find(module, public)]
    assert names
    assert [public for public in names if f'id="{name}.{public}"' not in text] == []


def written(folder: Path, text: str) -> Any:
    (folder / "made.py").write_text(text)
    return api_pages.Package(folder)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = 1\n", "made: has no __all__"),
        ("__all__ = ['f']\ndef f(): pass\n", "made: f is public, and has no docstring"),
        ("__all__ = ['f']\n", "made: f is in __all__, and no statement defines or imports it"),
    ],
)
def test_what_is_missing_is_an_error(text: str, words: str, tmp_path: Path) -> None:
    package = written(tmp_path, text)

    def entries() -> list[tuple[str, str]]:
        return [api_pages.entry(package, "made", name) for name in package.module("made").exported()]

    with pytest.raises(ValueError, match=words):
        entries()


def test_signatures() -> None:
    source = "def f(self, a, /, b: int = 1, *, c=None) -> str: ...\ndef g(x): ...\n"
    first, second = ast.parse(source).body
    assert isinstance(first, ast.FunctionDef)
    assert isinstance(second, ast.FunctionDef)
    assert api_pages.signature(first, bound=True) == "(a, /, b: int=1, *, c=None) -> str"
    assert api_pages.signature(second) == "(x)"


def test_a_value_has_the_comment_above_it(tmp_path: Path) -> None:
    package = written(tmp_path, "__all__ = ['X']\n\n# How many\n# there are\nX = 3\n")
    kind, text = api_pages.entry(package, "made", "X")
    assert kind == "Values"
    assert text == ".. py:data:: X\n   :value: 3\n\n   How many\n   there are\n"
