# SPDX-License-Identifier: MIT OR Apache-2.0
"""The plots of the page of evidence, as SVG whose colours are the page's variables."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

# Colours that stand for variables of the page's style, light or dark.
INK, MUTED, GRID = "#010101", "#020202", "#030303"
SERIES = ("#a10000", "#a20000", "#a30000", "#a40000", "#a50000", "#a60000")
OURS, CK, AITER, OTHER = SERIES[:4]
VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid"} | {
    colour: f"--c{number}" for number, colour in enumerate(SERIES, 1)
}
# Inches: as wide as a phone at 96 pixels to an inch, so that it need not be made smaller.
WIDE, NARROW = 4.0, 2.9
RESULTS = {"o": "O", "lse": "LSE", "dq": "dQ", "dk": "dK", "dv": "dV", "dbias": "dBias"}
SUBJECTS = {"pyfa_rocm": ("ours", OURS), "ck": ("Composable Kernel", CK)}

mpl.rcParams.update({
    "svg.fonttype": "none", "svg.hashsalt": "evidence", "figure.constrained_layout.use": True, "font.size": 9,
    "text.color": INK, "axes.edgecolor": MUTED, "axes.labelcolor": INK, "xtick.color": MUTED,
    "ytick.color": MUTED, "xtick.labelcolor": INK, "ytick.labelcolor": INK, "grid.color": GRID,
    "axes.grid": True, "axes.axisbelow": True, "axes.spines.top": False, "axes.spines.right": False,
    "axes.titlesize": 9.5, "axes.titlelocation": "left", "legend.frameon": False, "legend.fontsize": 8.5,
})  # fmt: skip


def svg(figure: Figure, words: str) -> str:
    """Return a figure as an SVG element that says in `words` what it shows."""
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL)
    for colour, variable in VARIABLES.items():
        text = text.replace(colour, f"var({variable})")
    used = set(re.findall(r"#([\w.-]+)", text))
    text = re.sub(r' id="([\w.-]+)"', lambda found: found[0] if found[1] in used else "", text)
    text = re.sub(
        r'<svg ([^>]*?)width="([\d.]+)pt" height="[\d.]+pt"', r'<svg \1data-width="\2"', text, count=1
    )
    label = words.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def axes(width: float, height: float, **options: Any) -> tuple[Figure, Any]:
    """Return a figure with one pair of axes."""
    figure = Figure(figsize=(width, height))
    return figure, figure.add_subplot(**options)


def subject(name: str) -> tuple[str, str]:
    """Return what a subject of the clock is called, and its colour."""
    return SUBJECTS.get(name, ("AITER", AITER))


def histograms(kernels: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a histogram of the share of its bound that each value of a result uses, for each result."""
    for result, name in RESULTS.items():
        found = [kernel["results"][result] for kernel in kernels if result in kernel["results"]]
        if not found:
            continue
        counts = np.array([x["counts"] for x in found]).sum(0)
        elements, worst = int(counts.sum()), max(x["worst"] for x in found)
        figure, ax = axes(NARROW, 1.75)
        edges = np.linspace(-1, 1, len(counts) + 1)
        ax.stairs(np.maximum(counts, 0.3), edges, fill=True, color=OURS, alpha=0.75, baseline=0.3)
        ax.set_yscale("log")
        ax.set_ylim(0.3, counts.max() * 3)
        ax.set_xlim(-1.06, 1.06)
        for side in (-1, 1):
            ax.axvline(side, color=AITER, linewidth=1.4)
        ax.set_xticks((-1, -0.5, 0, 0.5, 1), ("-bound", "", "0", "", "bound"))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}" if y in (1, 1e3, 1e6) else ""))
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.set_title(f"{name}: worst {worst:.2f} of its bound")
        yield svg(figure, f"{name}: {elements:,} values; the largest error is {worst:.2f} of its bound")


def by_arch(kernels: list[dict[str, Any]]) -> str:
    """Draw the largest share of a bound that each kernel uses: a dot a kernel, a line an arch."""
    archs = sorted({kernel["arch"] for kernel in kernels})
    figure, ax = axes(WIDE, 0.42 * len(archs) + 1.15)
    origins = {"ours": OURS, "Composable Kernel": CK, "AITER": AITER}
    dots: dict[str, list[tuple[float, float]]] = {label: [] for label in origins}
    for line, arch in enumerate(archs):
        of_arch = [kernel for kernel in kernels if kernel["arch"] == arch and kernel["results"]]
        for number, kernel in enumerate(of_arch):
            worst = max(x["worst"] for x in kernel["results"].values())
            label = {"ck": "Composable Kernel", "aiter": "AITER"}.get(kernel["origin"], "ours")
            dots[label].append((min(worst, 1.05), line + ((number * 0.618) % 1 - 0.5) * 0.62))
    for label, found in dots.items():
        if found:
            ax.plot(
                *zip(*found, strict=True), ".", color=origins[label], markersize=4, alpha=0.8, label=label
            )
    ax.axvline(1, color=AITER, linewidth=1.4)
    ax.set_xlim(0, 1.08)
    ax.set_ylim(len(archs) - 0.5, -0.5)
    ax.set_yticks(range(len(archs)), archs)
    ax.set_xlabel("largest error of a kernel, as a share of its bound")
    figure.legend(loc="outside upper left", ncols=3, markerscale=2, handletextpad=0, columnspacing=1)
    return svg(figure, "the largest error of each kernel, as a share of its bound, by arch")


def beside_others(rows: list[dict[str, Any]]) -> str:
    """Draw errors of ours and cuDNN's over those of FlashAttention-2: a dot a problem."""
    figure, ax = axes(WIDE, 2.6)
    names = ("o", "dq", "dk", "dv")
    for offset, which, colour, label in ((-0.17, "now", OURS, "ours"), (0.17, "cudnn", OTHER, "cuDNN")):
        for at, name in enumerate(names):
            pairs = [(row["errors"][name][which], row["errors"][name]["fa2"]) for row in rows]
            ratios = [a / b for a, b in pairs if a is not None]
            xs = at + offset + np.linspace(-0.11, 0.11, len(ratios))
            ax.plot(
                xs, ratios, "o", color=colour, markersize=3.6, alpha=0.8, label=label if at == 0 else None
            )
    ax.axhline(1, color=INK, linewidth=1)
    ax.set_xticks(range(len(names)), [RESULTS[name] for name in names])
    ax.set_ylabel("error over FlashAttention-2's")
    figure.legend(loc="outside upper left", ncols=2, handletextpad=0)
    return svg(figure, "errors of ours and of cuDNN over those of FlashAttention-2")


def traffic(rows: list[dict[str, Any]], direction: str) -> str:
    """Draw bytes that reach memory over lengths."""
    found = [row for row in rows if row["direction"] == direction]
    lengths = [row["seqlen"] for row in found]
    figure, ax = axes(WIDE, 2.7)
    lines = (
        ("standard attention", [row["standard"]["hbm_bytes"] for row in found], OTHER, "s--"),
        ("ours, counted", [row["ours"]["hbm_bytes"] for row in found], OURS, "o-"),
        ("each tensor once", [row["once"] for row in found], MUTED, ":"),
    )
    for label, values, colour, style in lines:
        ax.plot(lengths, np.array(values) / 1e6, style, color=colour, label=label, markersize=4)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(lengths, map(str, lengths))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.minorticks_off()
    ax.set_xlabel("queries and keys")
    ax.set_ylabel("MB to and from HBM")
    ax.set_title(direction)
    ax.legend(loc="upper left")
    ax.set_ylim(top=ax.get_ylim()[1] * 3)
    return svg(figure, f"bytes to and from memory over lengths, {direction}")


def roofline(card: dict[str, Any]) -> str:
    """Draw the roof of a card and the ranges of our kernels under it."""
    figure, ax = axes(WIDE, 2.8)
    peak, bandwidth = card["peak_tflops"], card["bandwidth"] / 1e12
    rows = [row for row in card["series"] if row["name"] == "pyfa_rocm"]
    most = max((row["intensity"] for row in rows), default=1000) * 2
    least = min(min((row["intensity"] for row in rows), default=100) / 2, peak / bandwidth / 3)
    xs = np.geomspace(least, most, 100)
    ax.plot(xs, np.minimum(peak, xs * bandwidth), color=INK, linewidth=1.4)
    for direction, colour, shift in (("forward", OURS, 0.955), ("backward", CK, 1.047)):
        found = [row for row in rows if row["direction"] == direction]
        x = [row["intensity"] * shift for row in found]
        low, high = (np.array([row["tflops"][end] for row in found]) for end in (0, 1))
        ax.vlines(x, low, high, color=colour, linewidth=4.5, label=direction)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(top=peak * 4)  # the legend has room above the roof
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel("operations a byte of q, k, v, O and gradients")
    ax.set_ylabel("TFLOPS")
    ax.set_title(f"{card['title']}: roof {peak:,.0f} TFLOPS, {bandwidth:.2g} TB/s")
    ax.legend(loc="upper left", ncols=2)
    return svg(figure, f"roofline of an {card['title']}, and modelled ranges of our kernels")


def ranges(card: dict[str, Any], direction: str) -> str:
    """Draw the modelled ranges of kernels by length, as bars whose line is the middle."""
    rows = [row for row in card["series"] if row["direction"] == direction]
    lengths = sorted({row["seqlen"] for row in rows})
    names = list(dict.fromkeys(subject(row["name"])[0] for row in rows))
    figure, ax = axes(WIDE, 0.16 * len(lengths) * (len(names) + 1) + 1.15)
    shown: dict[str, Any] = {}
    for row in rows:
        label, colour = subject(row["name"])
        y = lengths.index(row["seqlen"]) + (names.index(label) - (len(names) - 1) / 2) / (len(names) + 1)
        low, high = row["tflops"]
        shown[label] = ax.barh(y, high - low, 0.8 / (len(names) + 1), low, color=colour, alpha=0.8)
        middle = 2 / (1 / low + 1 / high)
        ax.plot(
            (middle, middle),
            (y - 0.4 / (len(names) + 1), y + 0.4 / (len(names) + 1)),
            color=INK,
            linewidth=1.3,
        )
    ax.set_yticks(range(len(lengths)), map(str, lengths))
    ax.set_ylim(len(lengths) - 0.5, -0.5)
    ax.set_xlim(left=0)
    ax.set_ylabel("queries and keys")
    ax.set_xlabel("TFLOPS by the clock, not measured")
    ax.grid(axis="y", visible=False)
    ax.set_title(f"{card['title']}, {direction}")
    if len(names) > 1:
        figure.legend(shown.values(), shown.keys(), loc="outside upper left", ncols=3, columnspacing=1)
    return svg(figure, f"modelled ranges on an {card['title']}, {direction}")


def published(card: dict[str, Any]) -> str:
    """Draw the clock's range over the speed that was published, for each published row that was timed."""
    figure, ax = axes(WIDE, 3.3)
    styles = {"forward": (OURS, "forward"), "backward": (OTHER, "backward")}
    most = max(max(row["published"], row["tflops"][1]) for row in card["points"]) * 1.05
    ax.plot((0, most), (0, most), color=INK, linewidth=1)
    for direction, (colour, label) in styles.items():
        rows = [row for row in card["points"] if row["direction"] == direction]
        x = [row["published"] for row in rows]
        low, high = ([row["tflops"][end] for row in rows] for end in (0, 1))
        ax.vlines(x, low, high, color=colour, linewidth=2.2, alpha=0.8, label=label if rows else None)
    ax.set_xlim(0, max(row["published"] for row in card["points"]) * 1.1)
    ax.set_ylim(0, most)
    ax.set_xlabel("published TFLOPS, measured on a card by others")
    ax.set_ylabel("range by the clock")
    ax.set_title(f"{card['title']}: a line a problem; right where it crosses")
    ax.legend(loc="upper left")
    return svg(figure, f"the clock's ranges over published speeds of an {card['title']}")


def all_of(data: dict[str, Any]) -> dict[str, Iterable[str]]:
    """Return the plots of the page, by section."""
    cards = data["clock"]
    return {
        "histograms": list(histograms(data["kernels"])),
        "by_arch": [by_arch(data["kernels"])],
        "accuracy": [beside_others(data["accuracy"])],
        "traffic": [traffic(data["traffic"], direction) for direction in ("forward", "backward")],
        "roofline": [roofline(card) for card in cards if card["series"]],
        "ranges": [
            ranges(card, direction)
            for card in cards
            if card["series"]
            for direction in ("forward", "backward")
        ],
        "published": [published(card) for card in cards if card["points"]],
    }
