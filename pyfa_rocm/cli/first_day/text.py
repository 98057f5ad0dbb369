# SPDX-License-Identifier: MIT OR Apache-2.0
"""The report of `first-day`, for people: as wide as the terminal, up to a page."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyfa_rocm.cli.first_day.judge import FASTER, middle

__all__ = ["has_no_times", "report"]

Result = dict[str, Any]
NARROWEST, WIDEST = 60, 104
_MOST_LISTED = 20
# Characters of the two columns of numbers.
_NUMBERS = 25
# Families whose bounds leave room; those of the others are one rounding, which some element always needs.
_SUMS = ("fwd", "bwd", "decode")
_KINDS = {
    "error": "beyond the bound",
    "bits": "other bits",
    "died": "died",
    "failed": "failed",
    "choice": "choice",
    "range": "outside the clock's range",
    "not offered": "not offered",
}


def _wrapped(first: str, rest: str, width: int) -> str:
    """Return a line, and its further lines below its text."""
    return textwrap.fill(
        rest, width, initial_indent=first, subsequent_indent=" " * len(first), break_on_hyphens=False
    )


def _of(part: str, steps: dict[str, Result]) -> dict[str, Result]:
    return {name: x for name, x in steps.items() if name.partition(" ")[0] == part}


_NO_TIMES = "none: the software device's clock has no constants of this card"


def has_no_times(document: Result) -> bool:
    """Tell whether the software device ran it, and its clock does not know the card."""
    clocks = document["steps"].get("clocks", {})
    return document["times"] == "modelled" and clocks.get("modelled_hz", 0) is None


def _about(document: Result, width: int) -> Iterator[str]:
    about = document["identity"]
    name, arch = about["device"], about["arch"]
    device = name if arch in name else f"{name} ({arch})"
    yield _wrapped("device     ", f"{device}, {about['compute_units']} compute units", width)
    library = f"{about['library_version']}, kernel set {about['kernel_set']}"
    yield _wrapped("library    ", f"{library}, sha256 {about['library_sha256'][:16]}", width)
    yield _wrapped("driver     ", about["driver"][:40], width)
    meaning = {
        "measured": "measured by HIP events, beside the range of the software device's clock",
        "modelled": "modelled by the software device's clock: nothing here was measured on a card",
    }
    said = _NO_TIMES if has_no_times(document) else meaning[document["times"]]
    yield _wrapped("times      ", said, width)


def _kernels(steps: dict[str, Result], width: int) -> Iterator[str]:
    rows = [x for x in steps.values() if x.get("shares")]
    if not rows:
        return
    wrong = [x for x in rows if not x["right"]]
    shares = [
        (share, x["kernel"])
        for x in rows
        if x["family"] in _SUMS
        for share in x["shares"].values()
        if share is not None
    ]
    kernels = len({x["kernel"] for x in rows})
    same = [x for x in rows if x["same_bits"]]
    verdict = f"{len(wrong)} WRONG" if wrong else "right"
    text = f"{kernels} kernels, {len(rows)} random problems: {verdict}"
    if shares:
        text += "; the largest error is {:.2f} of its bound ({})".format(*max(shares))
    yield _wrapped("kernels    ", text, width)
    promised = [x for x in rows if x["same_bits_promised"]]
    kept = sum(x["same_bits"] for x in promised)
    text = f"{kept} of {len(promised)} problems with that promise had the same bits in each run"
    if len(promised) < len(rows):
        text += f", and {len(same) - kept} of {len(rows) - len(promised)} without"
    yield _wrapped("bits       ", text, width)


def _speed(row: Result, result: Result, modelled: Result | None) -> tuple[str, str]:
    """Return TFLOPS or TB/s: measured, and the clock's range."""
    work = result["work"] / 1e12
    seconds, span = row["measured"], modelled
    digits = 0 if result["unit"] == "flops" else 2
    measured = "" if seconds is None else f"{work / seconds:.{digits}f}"
    ends = "" if span is None else f"{work / span['high']:.{digits}f} to {work / span['low']:.{digits}f}"
    return measured, ends


def _times(part: str, document: Result, width: int) -> Iterator[str]:
    """Yield a table: of each problem the library's choice."""
    steps = document["steps"]
    rows: list[tuple[str, tuple[str, str] | None, str]] = []
    for name, result in _of(part, steps).items():
        title = name.partition(" ")[2]
        if not result.get("candidates"):
            reason = result.get("reason") or result.get("unsupported") or result.get("failed") or "died"
            rows.append((title, None, reason))
            continue
        chosen = result["candidates"][0]
        model = {
            row["kernel"]: row["modelled"] for row in steps.get(f"model {name}", {}).get("candidates", [])
        }
        span = chosen["modelled"] or model.get(chosen["kernel"])
        rows.append((title, _speed(chosen, result, span), chosen["kernel"]))
    if not rows:
        return
    unit = "TB/s" if part == "decode" else "TFLOPS"
    wide = max(len(title) for title, _, _ in rows)
    # Numbers go below their problem where there is no room beside it.
    below = wide + _NUMBERS + 2 > width
    wide = 0 if below else wide
    start = 2 + wide + _NUMBERS + 2
    named = all(speeds is None or start + len(words) <= width for _, speeds, words in rows)
    yield ""
    yield f"{part}, {unit} of the library's choice"
    yield f"  {'':{wide}}{'measured':>10}{'clock':>15}"
    for name, speeds, words in rows:
        title = "" if below else name
        if below:
            yield f"  {name}"
        if speeds is None:
            yield _wrapped(f"  {title:{wide}}  ", words, width)
            continue
        line = f"  {title:{wide}}{speeds[0] or '-':>10}{speeds[1] or '-':>15}"
        yield f"{line}  {words}" if named else line


def _choices(document: Result, width: int) -> Iterator[str]:
    """Yield how the library's choices did over all problems."""
    ratios = []
    for part in ("published", "choices", "decode"):
        for result in _of(part, document["steps"]).values():
            times = [middle(row) for row in result.get("candidates", [])]
            known = [seconds for seconds in times if seconds is not None]
            if known and times[0] is not None:
                ratios.append(times[0] / min(known))
    if ratios:
        near = sum(ratio <= FASTER for ratio in ratios)
        text = (
            f"{near} of {len(ratios)} are at most 5 % slower than the fastest candidate; the worst takes "
            f"{max(ratios):.2f} times as long"
        )
        yield ""
        yield _wrapped("choices    ", text, width)


def _overhead(document: Result, width: int) -> Iterator[str]:
    result = document["steps"].get("overhead", {})
    if "launch" in result:
        text = (
            f"fmha_fwd {result['fmha_fwd_microseconds']:.1f} us, flash_attn_func "
            f"{result['flash_attn_func_microseconds']:.1f} us, from Python, of this machine's time"
        )
        if result["launch"]["measured"] is not None:
            text += f"; from launch to launch {result['launch']['measured'] * 1e6:.2f} us"
        yield _wrapped("a call     ", text, width)
    result = document["steps"].get("clocks", {})
    if "peak_hz" not in result:
        return
    text = f"peak {result['peak_hz'] / 1e6:.0f} MHz"
    hz, sensors = result["modelled_hz"], result["sensors"]
    hz = hz or document["steps"].get("model constants", {}).get("modelled_hz")
    if "clock_hz" in sensors:
        text += f"; under load {sensors['clock_hz']['median'] / 1e6:.0f} MHz, measured"
    elif document["times"] == "measured":
        text += "; the driver tells no clock"
    if hz:
        text += f"; {hz['low'] / 1e6:.0f} to {hz['high'] / 1e6:.0f} MHz by the software device's clock"
    if "power_watts" in sensors:
        text += f"; {sensors['power_watts']['median']:.0f} W"
    yield _wrapped("clock      ", text, width)


def _disagreements(found: list[Result], width: int) -> Iterator[str]:
    yield ""
    if not found:
        yield "Nothing disagrees."
        return
    yield f"What disagrees ({len(found)}):"
    ordered = sorted(found, key=lambda x: not x["correctness"])
    wrong = sum(x["correctness"] for x in found)
    for x in ordered[: max(wrong, _MOST_LISTED)]:
        mark = "WRONG, " if x["correctness"] else ""
        yield _wrapped("  ", f"{mark}{_KINDS[x['kind']]}: {x['text']} [{x['step']}]", width)
    if len(found) > max(wrong, _MOST_LISTED):
        yield f"  and {len(found) - max(wrong, _MOST_LISTED)} more, which are in the file"


def report(document: Result, path: Path, why: str) -> str:
    """Return the report; `why` says why steps are left, if any are."""
    width = min(WIDEST, max(NARROWEST, shutil.get_terminal_size((WIDEST, 24)).columns - 1))
    steps = document["steps"]
    lines = [*_about(document, width), ""]
    if "report" in steps.get("prove", {}):
        lines.append(f"prove      {'right' if steps['prove']['report']['ok'] else 'WRONG'}")
    lines += _kernels(_of("kernels", steps), width)
    if document["not_forced"]:
        others = f"{len(document['not_forced'])} kernels cannot be asked for here: the file says why"
        lines.append(_wrapped("           ", others, width))
    lines += _overhead(document, width)
    for part in ("published", "choices", "decode"):
        lines += _times(part, document, width)
    lines += _choices(document, width)
    lines += _disagreements(document["disagreements"], width)
    lines.append("")
    if document["left"]:
        left = f"{len(document['left'])} steps are left ({why}): the same command goes on with them."
        lines.append(_wrapped("", left, width))
    verdict = "all results are right" if document["ok"] else "RESULTS ARE WRONG"
    shown = f"{verdict}. Everything is in {path}, and {path.with_suffix('.html')} shows it."
    lines.append(_wrapped("", shown, width))
    return "\n".join(lines)
