# SPDX-License-Identifier: MIT OR Apache-2.0
"""The picture of training_step.py: loss curves, and how far they are from eager float32's."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from pyfa_rocm.cli.bench.plot import FAINT, INK, STYLE, save

COLORS = {"pyfa_rocm": "#d1495b", "sdpa": "#2e6f95", "eager": "#9aa5b1", "flash_attn": "#e09f3e"}


def _prepare(axes: Any, title: str, ylabel: str) -> None:
    axes.set_title(title, loc="left", fontsize=10.5, fontweight="bold", color=INK, pad=8)
    axes.set_xlabel("step")
    axes.set_ylabel(ylabel)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(length=0)
    axes.grid(axis="y", color=FAINT, linewidth=0.8, zorder=0)
    axes.margins(x=0.02)
    axes.xaxis.get_major_locator().set_params(integer=True)


def figure_of(curve: dict[str, Any]) -> Any:
    """Return the picture of what `curves` gives; drawn within STYLE."""
    figures = import_module("matplotlib.figure")
    exact, config = curve["eager_float32"], curve["config"]
    steps = range(1, len(exact) + 1)
    figure = figures.Figure(figsize=(10, 4.3))
    left, right = figure.subplots(1, 2)
    left.plot(steps, exact, color=INK, linewidth=4.5, alpha=0.25, label="eager, float32")
    ours_last = sorted(curve["losses"].items(), key=lambda item: item[0] == "pyfa_rocm")
    for name, losses in ours_last:
        label = f"{name}, {config['dtype']}"
        left.plot(steps, losses, color=COLORS[name], linewidth=1.5, label=label)
        apart = [abs(a - b) for a, b in zip(losses, exact, strict=True)]
        right.plot(steps, apart, color=COLORS[name], linewidth=1.5, label=label)
    right.axhline(curve["allowed"], color=INK, linewidth=1, linestyle=(0, (4, 3)))
    right.annotate(
        "allowed: twice eager's largest", (len(exact), curve["allowed"]), ha="right", va="bottom",
        fontsize=8.5, color=INK, xytext=(0, 3), textcoords="offset points",
    )  # fmt: skip
    _prepare(left, "loss", "cross entropy")
    _prepare(right, "distance from eager float32", "difference of losses")
    right.set_ylim(0, 1.25 * max(curve["allowed"], *curve["largest_distance"].values()))
    left.legend(frameon=False, fontsize=9)
    head = f"{len(exact)} training steps, {config['layers']} layers, seqlen {config['seqlen']}"
    figure.text(0.012, 0.955, head, fontsize=14, fontweight="bold", va="center", color=INK)
    figure.tight_layout(rect=(0, 0, 1, 0.92), w_pad=2.5)
    return figure


def draw(curve: dict[str, Any], path: Path) -> None:
    """Draw what `curves` gives."""
    with import_module("matplotlib").rc_context(STYLE):
        save(figure_of(curve), path)
