# SPDX-License-Identifier: MIT OR Apache-2.0
"""The picture of `bench decode`: a column for each batch."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from pyfa_rocm.cli.bench.decode_text import by_batch
from pyfa_rocm.cli.bench.plot import FAINT, INK, STYLE, length, save
from pyfa_rocm.cli.bench.plot_heading import finish
from pyfa_rocm.cli.bench.text import Row

__all__ = ["draw", "figure_of"]

COLORS = ("#d1495b", "#2e6f95", "#e1a43b", "#5f8a5b", "#7b5ea7", "#9aa5b1")
MOST_RATIO, LEAST_HEADROOM = 1.02, 1.3
COUNTED_LABELS = (
    f"HBM bytes over the least\n(aim without splits: {MOST_RATIO})",
    f"rate at full issue over HBM's\n(aim: {LEAST_HEADROOM} or more)",
)


def _series(members: list[Row], line: str, place: str, value: Any) -> dict[int, dict[int, Any]]:
    """Return numbers by what makes a series and by the place on the axis."""
    found: dict[int, dict[int, Any]] = {}
    for row in members:
        if not row["reason"]:
            found.setdefault(row[line], {})[row[place]] = value(row)
    return found


def _bars(axes: Any, members: list[Row], key: str, below: str = "") -> None:
    """Draw what was counted by group, a bar for each context; `key` faintly above `below`."""
    series = _series(members, "context", "group", lambda row: row["counted"])
    groups = list(dict.fromkeys(row["group"] for row in members))
    width = 0.8 / max(1, len(series))
    for place, (context, values) in enumerate(series.items()):
        at = [i + (place - (len(series) - 1) / 2) * width for i, n in enumerate(groups) if n in values]
        counts = [values[n] for n in groups if n in values]
        style = {"color": COLORS[place % len(COLORS)], "width": width * 0.92}
        bars = axes.bar(at, [x[key] for x in counts], alpha=0.35 if below else 1, zorder=3, **style)
        texts = [f"{x[key]:.3f}" if below else f"{x[key]:.2f}" for x in counts]
        axes.bar_label(bars, texts, padding=2, fontsize=6.5, color=INK)
        axes.bar(
            at, [x[below or key] for x in counts], label=f"context {length(context)}", zorder=3.5, **style
        )
    axes.set_xticks(range(len(groups)), [str(n) for n in groups])
    axes.set_xlabel("query heads a key head")


def _limit(axes: Any, at: float) -> None:
    axes.axhline(at, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=4)


def _counts(columns: Any, members: list[Row], batch: int) -> None:
    """Fill two panels: traffic, and the rate at full issue."""
    traffic, rate = columns
    _bars(traffic, members, "hbm_ratio", below="unsplit_ratio")
    traffic.set_title(f"batch {batch}", loc="left", fontsize=10.5, fontweight="bold", color=INK, pad=8)
    most = max((row["counted"]["hbm_ratio"] for row in members if not row["reason"]), default=1.0)
    traffic.set_ylim(0.98, max(1.05, traffic.get_ylim()[1], 1 + 1.2 * (most - 1)))
    _limit(traffic, MOST_RATIO)
    _bars(rate, members, "times_hbm")
    rate.set_ylim(0)
    _limit(rate, LEAST_HEADROOM)


def _times(columns: Any, members: list[Row], batch: int) -> None:
    """Fill a panel: TB/s over the context, a line for each group."""
    (axes,) = columns
    series = _series(members, "group", "context", lambda row: row["bytes_per_s"] / 1e12)
    for (group, values), color in zip(series.items(), COLORS, strict=False):
        axes.plot(
            list(values), list(values.values()), marker="o", markersize=4, color=color, label=f"group {group}"
        )
    contexts = sorted({row["context"] for row in members})
    axes.set_xscale("log", base=2)
    axes.set_xticks(contexts, [length(n) for n in contexts])
    axes.minorticks_off()
    axes.set_xlabel("context")
    axes.set_title(f"batch {batch}", loc="left", fontsize=10.5, fontweight="bold", color=INK, pad=8)


def _heading(result: dict[str, Any]) -> tuple[str, str]:
    row = result["rows"][0]
    what = f"{row['dtype']}, head dim {row['hdim']}, {row['nhead_k']} key heads, pages of {row['page_size']}"
    if result["emulated"]:
        return "Decoding: traffic and issue, counted", (
            f"{what}. Counts of the software device, not times; faint: what splits add."
        )
    return "Speed of decoding: TB/s (more is better)", (
        f"{result['device']}, {what}. Median of {result['repeat']} calls, by HIP events."
    )


def figure_of(result: dict[str, Any]) -> Any:
    """Return the picture of what `bench decode` measured; drawn within STYLE."""
    emulated, panels = result["emulated"], by_batch(result["rows"])
    labels = COUNTED_LABELS if emulated else ("TB/s",)
    size = (max(9.0, 4.6 * len(panels)), 0.4 + 2.9 * len(labels))
    figure = import_module("matplotlib.figure").Figure(figsize=size)
    all_axes = figure.subplots(len(labels), len(panels), squeeze=False, sharey="row")
    for column, (batch, members) in enumerate(panels.items()):
        (_counts if emulated else _times)(all_axes[:, column], members, batch)
    if not emulated:
        all_axes[0, 0].set_ylim(0)
    for row, label in zip(all_axes, labels, strict=True):
        row[0].set_ylabel(label)
    for axes in all_axes.flat:
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(length=0)
        axes.grid(axis="y", color=FAINT, linewidth=0.8, zorder=0)
    finish(figure, all_axes, *_heading(result), fontsize=9)
    return figure


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw what `bench decode` measured."""
    with import_module("matplotlib").rc_context(STYLE):
        save(figure_of(result), path)
