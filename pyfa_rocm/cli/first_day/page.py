# SPDX-License-Identifier: MIT OR Apache-2.0
"""The report of `first-day` as a page: measured times beside the clock's ranges, alone in one file."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

from pyfa_rocm.cli.first_day.judge import middle
from pyfa_rocm.cli.first_day.text import has_no_times

__all__ = ["page"]

Result = dict[str, Any]
_PARTS = {
    "published": "Problems of which others published times",
    "choices": "The library's choices",
    "decode": "Decoding over a paged cache",
}
_WIDE, _HIGH = 200, 16
_STYLE = """
:root { color-scheme: light dark; --paper: #fdfdfb; --ink: #1c1f24; --muted: #626a75; --grid: #e3e5e8;
  --range: #a9c4ea; --point: #b3261e; --good: #176b3a; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171b; --ink: #e8eaed; --muted: #a2abb6;
  --grid: #2c323a; --range: #35578a; --point: #ff8a80; --good: #63d391; --bad: #ff8a80; } }
body { margin: 0 auto; max-width: 72rem; padding: 1rem 1.25rem 2rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin: 2rem 0 .3rem; }
p, li { max-width: 46rem; } .muted { color: var(--muted); font-size: .875rem; }
.good { color: var(--good); } .bad { color: var(--bad); } code { overflow-wrap: anywhere; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .875rem; }
th, td { text-align: left; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--grid);
  white-space: nowrap; }
.n { text-align: right; font-variant-numeric: tabular-nums; }
td:first-child, td:last-child { white-space: normal; min-width: 9rem; }
@media (max-width: 44rem) { th:nth-child(n+5), td:nth-child(n+5) { display: none; }
  td:first-child { min-width: 0; }
  th, td { padding-right: .5rem; } table svg { width: 5.5rem; height: auto; } }
svg { display: block; } svg rect { fill: var(--range); } svg line { stroke: var(--point); stroke-width: 3; }
"""


def _of(part: str, steps: dict[str, Result]) -> dict[str, Result]:
    return {name: x for name, x in steps.items() if name.partition(" ")[0] == part}


def _rates(name: str, result: Result, steps: dict[str, Result]) -> tuple[float | None, float, float] | None:
    """Return what the library's choice does a second: measured, and the ends of the clock's range."""
    chosen = result["candidates"][0]
    modelled = chosen["modelled"]
    for row in steps.get(f"model {name}", {}).get("candidates", []):
        if row["kernel"] == chosen["kernel"]:
            modelled = row["modelled"]
    work = result["work"] / 1e12
    seconds = chosen["measured"]
    if seconds is None and modelled is None:
        return None
    low, high = (work / modelled["high"], work / modelled["low"]) if modelled else (0.0, 0.0)
    return None if seconds is None else work / seconds, low, high


def _bar(measured: float | None, low: float, high: float, most: float) -> str:
    """Draw a range as a bar, and what was measured as a line across it."""
    scale = _WIDE / most
    width = max(1.0, (high - low) * scale)
    drawn = f'<rect x="{low * scale:.1f}" y="3" width="{width:.1f}" height="10"/>' if high else ""
    if measured is not None:
        at = min(measured * scale, _WIDE - 1.5)
        drawn += f'<line x1="{at:.1f}" x2="{at:.1f}" y1="0" y2="{_HIGH}"/>'
    size = f'width="{_WIDE}" height="{_HIGH}" viewBox="0 0 {_WIDE} {_HIGH}"'
    return f'<svg {size} aria-hidden="true">{drawn}</svg>'


def _times(part: str, steps: dict[str, Result]) -> Iterator[str]:
    """Yield a table: of each problem the library's choice, and how far it is from the fastest kernel."""
    found = {name: x for name, x in _of(part, steps).items() if x.get("candidates")}
    rates = {name: rate for name, x in found.items() if (rate := _rates(name, x, steps)) is not None}
    if not rates:
        return
    most = max(max(rate[0] or 0.0, rate[2]) for rate in rates.values())
    unit, digits = ("TB/s", 2) if part == "decode" else ("TFLOPS", 0)
    yield f"<h2>{_PARTS[part]}</h2>"
    yield f"<p>{unit} of the library's choice. A bar is the clock's range, a line what was measured.</p>"
    yield '<div class="wide"><table><thead><tr><th>problem</th><th class="n">measured</th>'
    yield '<th class="n">clock</th><th>both</th><th class="n">time, fastest = 1</th><th>kernel</th>'
    yield "</tr></thead>"
    for name, (measured, low, high) in rates.items():
        rows = found[name]["candidates"]
        known = [seconds for row in rows if (seconds := middle(row)) is not None]
        own = middle(rows[0])
        ratio = f"{own / min(known):.2f}" if own is not None and known else ""
        shown = "" if measured is None else f"{measured:.{digits}f}"
        span = f"{low:.{digits}f} to {high:.{digits}f}" if high else ""
        yield (
            f"<tr><td>{escape(name.partition(' ')[2])}</td>"
            f'<td class="n">{shown}</td><td class="n">{span}</td>'
            f'<td>{_bar(measured, low, high, most)}</td><td class="n">{ratio}</td>'
            f"<td><code>{escape(rows[0]['kernel'])}</code></td></tr>"
        )
    yield "</table></div>"


def page(document: Result, report: str) -> str:
    """Return the page: who was measured, the verdict, what disagrees, the times, and the report in words.

    Parameters
    ----------
    document : dict
        The content of the results' file.
    report : str
        The report for a terminal.
    """
    about, steps = document["identity"], document["steps"]
    title = f"pyfa_rocm {about['library_version']} on {about['device']}"
    verdict, kind = ("All results are right.", "good") if document["ok"] else ("Results are WRONG.", "bad")
    lines = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta http-equiv="Content-Security-Policy" ',
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>",
        f'<p><b class="{kind}">{verdict}</b>',
    ]
    if document["times"] == "modelled":
        clock = "does not know this card" if has_no_times(document) else "says how long a card would take"
        lines.append(
            f"<b>Nothing here was measured on a card:</b> the software device ran it, and its clock {clock}."
        )
    if document["left"]:
        lines.append(f"{len(document['left'])} steps are left.")
    lines.append("</p><h2>What disagrees</h2>")
    if not document["disagreements"]:
        lines.append("<p>Nothing.</p>")
    else:
        lines.append("<ul>")
        for found in sorted(document["disagreements"], key=lambda x: not x["correctness"]):
            mark = '<b class="bad">WRONG</b> ' if found["correctness"] else ""
            lines.append(
                f'<li>{mark}{escape(found["text"])} <span class="muted">{escape(found["step"])}</span></li>'
            )
        lines.append("</ul>")
    for part in _PARTS:
        lines += _times(part, steps)
    lines += ["<h2>The report</h2>", f'<div class="wide"><pre class="muted">{escape(report)}</pre></div>']
    lines.append(
        '<p class="muted">Written by <code>pyfa-rocm first-day</code>. This file loads nothing.</p>'
        "</body></html>"
    )
    return "\n".join(lines) + "\n"
