# SPDX-License-Identifier: MIT OR Apache-2.0
"""The page of evidence in a browser: whole, legible, alone, on a phone and on a desk, light and dark.

`make evidence` writes the page and runs this. PYFA_ROCM_PICTURES=FOLDER keeps pictures to look at.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages.chromium import Chromium

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "evidence"
PAGE = FOLDER / "index.html"
LOOK = (Path(__file__).parent / "look.js").read_text()
SIZES = {"phone": (390, 844), "tablet": (820, 1180), "desk": (1440, 900)}
# WCAG's AAA for text, AA for notes and marks, and what it asks of lines.
TEXT, NOTES, LINES = 7.0, 4.5, 3.0


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    """All that was collected."""
    value: dict[str, Any] = json.loads((FOLDER / "evidence.json").read_text())
    return value


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """One browser for all tests."""
    found = Chromium(tmp_path_factory.mktemp("browser"))
    yield found
    found.close()


def _look(browser: Chromium, size: str, scheme: str) -> dict[str, Any]:
    browser.open(PAGE, *SIZES[size], scheme)
    if folder := os.environ.get("PYFA_ROCM_PICTURES"):
        browser.picture(Path(folder) / f"{size}-{scheme}.png")
        browser.picture(Path(folder) / f"{size}-{scheme}-whole.png", whole=True)
    found: dict[str, Any] = browser.evaluate(LOOK)
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_page(size: str, scheme: str, browser: Chromium, data: dict[str, Any]) -> None:
    """Nothing overlaps, is cut or too small; nothing was asked of a network; colours can be told apart."""
    found = _look(browser, size, scheme)
    assert not browser.named("Runtime.exceptionThrown")
    assert [entry["entry"]["text"] for entry in browser.named("Log.entryAdded")] == []
    asked = [event["request"]["url"] for event in browser.named("Network.requestWillBeSent")]
    assert asked == [PAGE.as_uri()]
    assert found["requests"] == []
    assert found["title"] == f"pyfa_rocm {data['versions']['versions']['pyfa_rocm']}: evidence"
    assert len(found["headings"]) == 6
    assert found["plots"] >= 5 + 1 + 1 + 2 + 3 * len(data["clock"])
    assert found["rows"] > len(data["kernels"])
    for what in ("empty", "overlaps", "cut", "tiny", "wide", "broken"):
        assert found[what] == [], what
    assert found["scrolls"] <= 0
    assert (found["paper"] < 0.1) == (scheme == "dark")
    contrasts = found["contrasts"]
    assert contrasts["ink"] >= TEXT
    assert min(contrasts[name] for name in ("muted", "good", "bad")) >= NOTES
    assert min(contrasts[f"c{number}"] for number in range(1, 5)) >= LINES


@pytest.mark.parametrize("size", ["tablet", "desk"])
def test_first_screen(size: str, browser: Chromium) -> None:
    """It says what was shown and what was not."""
    found = _look(browser, size, "light")
    assert found["missing"] < SIZES[size][1] / 2
    text = browser.evaluate("document.querySelector('header').innerText")
    assert "Nothing ran on a card" in text


def test_nothing_is_wrong(browser: Chromium, data: dict[str, Any]) -> None:
    """Each kernel of the library was tested and is right, and so is each feature; the page says so."""
    found = _look(browser, "desk", "light")
    assert found["bad"] == []
    assert [k["name"] for k in data["kernels"] if k["failed"] or not k["tests"]] == []
    worst = {
        k["name"]: x["worst"] for k in data["kernels"] for x in k["results"].values() if not x["worst"] <= 1
    }
    assert worst == {}
    assert [proof["arch"] for proof in data["proofs"] if not proof["ok"]] == []
    assert {proof["arch"] for proof in data["proofs"]} == set(data["versions"]["archs"])
    assert "all right" in browser.evaluate("document.body.innerText")


def test_page_is_alone(data: dict[str, Any]) -> None:
    """It has no script, names no other file to load, and no place of this machine."""
    text = PAGE.read_text()
    assert not re.search(r"<script|<link|<img|<iframe|@import|url\((?!#)", text)
    assert str(ROOT) not in text
    for digest in data["versions"]["files"].values():
        assert digest in text


def test_errors_beside_others_are_as_recorded(data: dict[str, Any]) -> None:
    """This build's errors are those that were recorded beside FlashAttention-2's, or smaller.

    The numbers drawn differ. An RMS over 131,072 normal values moves by less than a tenth. With outliers few
    values decide it, so those rows are only shown.
    """
    for row in (row for row in data["accuracy"] if row["inputs"] == "normal"):
        for name, errors in row["errors"].items():
            assert errors["now"] is None or errors["now"] <= 1.1 * errors["ours"], (row, name)
