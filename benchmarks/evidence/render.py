# SPDX-License-Identifier: MIT OR Apache-2.0
"""Write the page of evidence from what was collected: ``python -m benchmarks.evidence.render JSON HTML``.

native/tools/evidence.sh runs it, in build/evidence-venv.
"""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from benchmarks.evidence import plots

HERE = Path(__file__).resolve().parent
_MARKDOWN = MarkdownIt("commonmark").enable("table")


def markdown(text: str) -> Markup:
    """Return Markdown of the project's pages as HTML. Links to other pages become text."""
    html = _MARKDOWN.render(text)
    html = re.sub(r'<a href="(?!https?:)[^"]*">(.*?)</a>', r"\1", html, flags=re.DOTALL)
    return Markup(html.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>"))


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share in percent; a dash if there is none."""
    return "-" if value is None else f"{100 * value:.{digits}f} %"


def number(value: float | None, digits: int = 2) -> str:
    """Return a number; a dash if there is none."""
    return "-" if value is None else f"{value:.{digits}f}"


def many(value: float) -> str:
    """Return a count in a few letters."""
    for size, word in ((1e9, " billion"), (1e6, " million")):
        if value >= size:
            return f"{value / size:.3g}{word}"
    return f"{value:,.0f}"


def small(value: float | None) -> str:
    """Return an error as 2.3e-3."""
    if value is None:
        return "-"
    return re.sub(r"e-0?", "e-", f"{value:.2e}")


def totals(data: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of the first screen."""
    kernels, proofs = data["kernels"], data["proofs"]
    results = [result for kernel in kernels for result in kernel["results"].values()]
    worst = max(result["worst"] for result in results)
    failed = sum(kernel["failed"] for kernel in kernels)
    longest = {row["direction"]: row for row in data["traffic"]}  # the last of each
    saved = {key: row["standard"]["hbm_bytes"] / row["ours"]["hbm_bytes"] for key, row in longest.items()}
    wrong = [proof["arch"] for proof in proofs if not proof["ok"]]
    cells = [cell for table in data["engines"] for cell in table["text"].splitlines() if cell.startswith("|")]
    return {
        "kernels": len(kernels),
        "archs": len(data["versions"]["archs"]),
        "judged": sum(result["elements"] for result in results),
        "tests": sum(kernel["tests"] for kernel in kernels),
        "worst": worst,
        "typical": math.sqrt(sum(x["squares"] for x in results) / sum(x["elements"] for x in results)),
        "failed": failed,
        "right": not failed and worst <= 1 and not wrong,
        "saved": saved,
        "seqlens": {key: row["seqlen"] for key, row in longest.items()},
        "split": next(
            (r["seqlen"] for r in data["traffic"] if any("merge" in x for x in r["ours"]["launches"])), None
        ),
        "held_out": data["held_out_mean"],
        "engines": len(cells) - 2 * len(data["engines"]),
    }


def features(proofs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the features, each with the largest share of a bound by arch: a dash where it did not run."""
    names = list(dict.fromkeys(proof["feature"] for report in proofs for proof in report["features"]))
    rows = []
    for name in names:
        cells = []
        for report in proofs:
            (proof,) = (x for x in report["features"] if x["feature"] == name)
            shares = {
                key: proof[f"{key}_ratio"] for key in plots.RESULTS if proof.get(f"{key}_ratio") is not None
            }
            gradients = bool(proof["gradient_dtype"])
            cells.append(
                {
                    "worst": max(shares.values(), default=None),
                    "gradients": gradients,
                    "shares": shares,
                    "ok": proof["ok"],
                }
            )
        rows.append({"name": name, "cells": cells})
    return rows


def render(data: dict[str, Any]) -> str:
    """Return the page."""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": percent,
        "number": number,
        "many": many,
        "small": small,
        "markdown": markdown,
    }
    style = Markup((HERE / "style.css").read_text())
    drawn = {name: [Markup(text) for text in found] for name, found in plots.all_of(data).items()}
    page: str = environment.get_template("page.html.j2").render(
        data=data,
        style=style,
        plots=drawn,
        total=totals(data),
        features=features(data["proofs"]),
        names=plots.RESULTS,
    )
    return page


def main() -> None:
    """Write it."""
    source, target = map(Path, sys.argv[1:])
    target.write_text(render(json.loads(source.read_text())))


if __name__ == "__main__":
    main()
