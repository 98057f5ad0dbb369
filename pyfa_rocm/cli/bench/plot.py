# SPDX-License-Identifier: MIT OR Apache-2.0
"""The picture of `bench`: a panel for each direction, head dim and mask."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from pyfa_rocm.cli.bench.plot_heading import finish
from pyfa_rocm.cli.bench.text import Row, groups
from pyfa_rocm.errors import FmhaError, InvalidArgumentError

__all__ = ["check", "draw", "figure_of", "length", "save"]

SUFFIXES = (".png", ".svg")
COLORS = {
    "pyfa_rocm": "#d1495b",
    "torch SDPA": "#2e6f95",
    "torch eager": "#9aa5b1",
    "standard formula": "#9aa5b1",
}
INK, FAINT = "#22303c", "#dde3e8"
STYLE = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#b8c2cb",
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "none",
    "svg.hashsalt": "pyfa_rocm",
}


def check(path: Path) -> None:
    """Raise if a picture cannot be written there, before anything is measured.

    Raises
    ------
    InvalidArgumentError
        Its name has another suffix, or its folder is not there.
    FmhaError
        matplotlib is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidArgumentError(f"--plot: got {path}, expected a name that ends with .png or .svg")
    if not path.parent.is_dir():
        raise InvalidArgumentError(f"--plot: got {path}, expected a file in a folder that exists")
    try:
        import_module("matplotlib.figure")
    except ImportError as error:
        raise FmhaError(
            f"--plot needs matplotlib, which does not import ({error}): pip install 'pyfa-rocm[plot]'"
        ) from error


def save(figure: Any, path: Path) -> None:
    """Write a figure, as PNG or SVG by the name's suffix; the same figure gives the same bytes."""
    path = Path(path)
    kind = path.suffix.lower().lstrip(".")
    metadata = {"Date": None} if kind == "svg" else {"Software": None}
    try:
        figure.savefig(path, format=kind, dpi=160, facecolor="white", metadata=metadata)
    except OSError as error:
        raise FmhaError(f"--plot: cannot write {path}: {error.strerror}") from error


def _series(members: list[Row], emulated: bool) -> dict[str, dict[int, float]]:
    """Return what a panel shows, by name and sequence length: TFLOPS, or HBM bytes in MiB."""
    found: dict[str, dict[int, float]] = {}
    for row in members:
        if row["reason"]:
            continue
        if not emulated:
            found.setdefault(row["implementation"], {})[row["seqlen"]] = row["tflops"]
            continue
        for name, key in (("pyfa_rocm", "hbm_bytes"), ("standard formula", "standard_hbm_bytes")):
            found.setdefault(name, {})[row["seqlen"]] = row["counted"][key] / 2**20
    return found


def length(seqlen: int) -> str:
    """Write a length shortly."""
    return f"{seqlen // 1024}k" if seqlen >= 1024 and seqlen % 1024 == 0 else str(seqlen)


def _panel(axes: Any, key: tuple[str, int, bool], members: list[Row], emulated: bool) -> None:
    direction, hdim, causal = key
    series = _series(members, emulated)
    seqlens = list(dict.fromkeys(row["seqlen"] for row in members))
    width = 0.8 / max(1, len(series))
    for place, (name, values) in enumerate(series.items()):
        at = [i + (place - (len(series) - 1) / 2) * width for i, n in enumerate(seqlens) if n in values]
        heights = [values[n] for n in seqlens if n in values]
        bars = axes.bar(at, heights, width * 0.92, color=COLORS[name], label=name, zorder=3)
        if name == "pyfa_rocm" or not emulated:
            texts = [f"{height:.0f}" if height >= 10 else f"{height:.1f}" for height in heights]
        else:  # how many times as much as ours
            ours = series["pyfa_rocm"]
            texts = [f"{values[n] / ours[n]:.1f}x" for n in seqlens if n in values]
        crowded = len(series) * len(seqlens) > 12
        axes.bar_label(bars, texts, padding=2, fontsize=6.5 if crowded else 8, color=INK)
    axes.set_xticks(range(len(seqlens)), [length(n) for n in seqlens])
    axes.set_title(
        f"{direction} · head dim {hdim} · {'causal' if causal else 'no mask'}",
        loc="left",
        fontsize=10.5,
        fontweight="bold",
        color=INK,
        pad=8,
    )
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)
    axes.grid(axis="y", color=FAINT, linewidth=0.8, zorder=0)
    axes.margins(x=0.03, y=0.14)


def _heading(result: dict[str, Any]) -> tuple[str, str]:
    dtype = result["rows"][0]["dtype"]
    if result["emulated"]:
        return "Memory traffic of attention: HBM bytes, MiB (less is better)", (
            f"{result['device']}, {dtype}. Accesses are counted by the software device, caches modelled: "
            "these are no times."
        )
    return "Speed of attention: TFLOPS (more is better)", (
        f"{result['device']}, {dtype}. Median of {result['repeat']} calls, by HIP events."
    )


def figure_of(result: dict[str, Any]) -> Any:
    """Return the picture of what `bench` measured; drawn within STYLE."""
    panels = groups(result["rows"])
    directions = list(dict.fromkeys(key[0] for key in panels))
    columns = max(sum(key[0] == direction for key in panels) for direction in directions)
    size = (max(8.0, 3.7 * columns), 0.4 + 2.75 * len(directions))
    figure = import_module("matplotlib.figure").Figure(figsize=size)
    all_axes = figure.subplots(len(directions), columns, squeeze=False, sharey="row")
    for row, direction in zip(all_axes, directions, strict=True):
        mine = [(key, members) for key, members in panels.items() if key[0] == direction]
        for axes, (key, members) in zip(row, mine, strict=True):
            _panel(axes, key, members, result["emulated"])
        row[0].set_ylabel("MiB" if result["emulated"] else "TFLOPS")
    for axes in all_axes[-1]:
        axes.set_xlabel("sequence length")
    finish(figure, all_axes, *_heading(result), fontsize=10)
    return figure


def draw(result: dict[str, Any], path: Path) -> None:
    """Draw what `bench` measured."""
    with import_module("matplotlib").rc_context(STYLE):
        save(figure_of(result), path)
