# SPDX-License-Identifier: MIT OR Apache-2.0
"""The documentation as a site, in a browser: whole, legible, found by its search, on a phone and on a desk.

`make site` makes the site and runs this. PYFA_ROCM_PICTURES=FOLDER keeps pictures to look at.
"""

from __future__ import annotations

import functools
import http.server
import os
import re
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

import pytest
from pages.chromium import Chromium

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "site" / "html"
LOOK = (Path(__file__).parent / "look_site.js").read_text()
SIZES = {"desk": (1440, 900), "tablet": (820, 1180), "phone": (390, 844)}
# Each size, and dark once: boxes are where they are in light.
VIEWS = [*((size, "light") for size in SIZES), ("phone", "dark")]
PAGES = sorted(path.relative_to(SITE).with_suffix("").as_posix() for path in SITE.rglob("*.html"))
# Shown as they are in the repository, each laid out like the others: two stand for all
SOURCES = [page for page in PAGES if page.startswith("source/")]
LOOKED_AT = [page for page in PAGES if page not in SOURCES[2:]]
# The front page of the repository tells everybody what the project is; the search has no text.
FOR_NOBODY = ("overview", "search")
FINDINGS = ("scrolls", "wide", "overlaps", "tiny", "faint")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """One browser for all tests."""
    found = Chromium(tmp_path_factory.mktemp("browser"))
    yield found
    found.close()


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the site, in silence."""

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where the site is served on this machine."""
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Handler, directory=str(SITE))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def file_of(page: str) -> Path:
    return SITE / f"{page}.html"


@pytest.mark.parametrize("page", LOOKED_AT)
def test_page(page: str, browser: Chromium) -> None:
    """Nothing overlaps, is cut, too small or too faint; nothing scrolls but tables and code; no network."""
    browser.open(file_of(page), *SIZES["desk"], "light")
    assert not browser.named("Runtime.exceptionThrown")
    assert [entry["entry"]["text"] for entry in browser.named("Log.entryAdded")] == []
    asked = [event["request"]["url"] for event in browser.named("Network.requestWillBeSent")]
    assert [url for url in asked if not url.startswith((SITE.as_uri(), "data:"))] == []
    for size, scheme in VIEWS:
        browser.resize(*SIZES[size], scheme)
        found: dict[str, Any] = browser.evaluate(LOOK)
        if folder := os.environ.get("PYFA_ROCM_PICTURES"):
            browser.picture(Path(folder) / f"{page.replace('/', '_')}-{size}-{scheme}.png")
        assert {what: found[what] for what in FINDINGS if found[what]} == {}, (size, scheme)
        assert (found["paper"] < 0.1) == (scheme == "dark")
    assert found["title"].endswith("pyfa_rocm " + version())
    assert page in FOR_NOBODY or found["first"].startswith("This page is for ")
    assert page == "search" or found["headings"] == 1


def version() -> str:
    text = (ROOT / "native" / "include" / "fmha_rocm.h").read_text()
    return ".".join(re.findall(r"^#define FMHA_VERSION_(?:MAJOR|MINOR|PATCH) +(\d+)", text, re.M))


@pytest.mark.parametrize(
    ("style", "finding"),
    [
        ("width: 3000px", "wide"),
        ("width: 3000px", "scrolls"),
        ("margin-bottom: -60px", "overlaps"),
        ("font-size: 5px", "tiny"),
        ("color: #ddd", "faint"),
    ],
)
def test_findings_are_found(style: str, finding: str, browser: Chromium) -> None:
    """The test above would notice each."""
    browser.open(file_of("start/python-user"), *SIZES["phone"], "light")
    browser.evaluate(f"document.querySelector('article p').style.cssText = '{style}'")
    found = browser.evaluate(LOOK)
    assert found[finding]


def results(browser: Chromium) -> list[str]:
    """Return what a search has found, once it has ended."""
    browser.wait_for("document.querySelector('#search-results ul.search li') !== null")
    browser.wait_for("/found|finished/.test(document.querySelector('#search-results').innerText)")
    script = "[...document.querySelectorAll('#search-results li > a')].map((x) => x.getAttribute('href'))"
    found: list[str] = browser.evaluate(script)
    return [re.split("[#?]", link)[0] for link in found]


@pytest.mark.parametrize(
    ("word", "page"),
    [
        ("softcap", "kernels/fwd_pingpong.html"),
        ("hipErrorLaunchTimeOut", "software-device.html"),
        ("flash_attn_varlen_func", "api/pyfa_rocm.html"),
        ("fmha_decode_prepare", "c-abi.html"),
    ],
)
def test_search_from_disk(word: str, page: str, browser: Chromium) -> None:
    browser.open(file_of("search"), *SIZES["desk"], "light", f"?q={word}")
    assert page in results(browser)


def test_search_of_what_is_served(address: str, browser: Chromium) -> None:
    """The field on a page leads to results with the text around the word, and asks nobody else."""
    browser.visit(f"{address}/index.html", *SIZES["desk"], "light", offline=False)
    browser.events.clear()
    browser.evaluate("document.querySelector('.sidebar-search').value = 'perfetto'")
    browser.evaluate("document.querySelector('.sidebar-search-container').submit()")
    browser.wait_for("location.pathname === '/search.html' && document.readyState === 'complete'")
    assert "performance.html" in results(browser)
    text = browser.wait_for("(document.querySelector('#search-results p.context') || {}).innerText")
    assert "Perfetto" in text
    asked = [event["request"]["url"] for event in browser.named("Network.requestWillBeSent")]
    assert [url for url in asked if not url.startswith((address, "data:"))] == []


class Links(HTMLParser):
    """The targets of a page, and where its links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note them."""
        self.ids.update(value for name, value in attrs if name == "id" and value)
        self.links.update(value for name, value in attrs if name in ("href", "src") and value)


def test_links() -> None:
    """Each link leads to a file of the site and to something on it, none to a place of this machine."""
    texts = {page: file_of(page).read_text(encoding="utf-8") for page in PAGES}
    assert [page for page, text in texts.items() if str(ROOT) in text] == []
    found = {page: Links(text) for page, text in texts.items()}
    broken = []
    for page, here in found.items():
        for link in here.links:
            address, anchor = urldefrag(link)
            if re.match("[a-z]+:", address):
                continue
            path = (file_of(page).parent / unquote(address.partition("?")[0])).resolve()
            path = path if address else file_of(page)
            there = found.get(path.relative_to(SITE).with_suffix("").as_posix()) if path.exists() else None
            if not path.is_file() or (there and anchor and unquote(anchor) not in there.ids):
                broken.append(f"{page}: {link}")
    assert broken == []
    assert sum(len(here.links) for here in found.values()) > 1000


def test_every_reader_has_a_first_page(browser: Chromium) -> None:
    """The first screen of the site names all five."""
    browser.open(file_of("index"), *SIZES["phone"], "light")
    links = "[...document.querySelectorAll('#begin-here a.reference')]"
    places: list[float] = browser.evaluate(f"{links}.map((x) => x.getBoundingClientRect().bottom)")
    assert len(places) == 5
    assert max(places) < SIZES["phone"][1]
