# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lines above the panels of a picture, one below the other, and labels that do not touch each other."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from itertools import combinations
from typing import Any

__all__ = ["finish"]

# Inches: beside all text, above the heading, and below each line.
_MARGIN, _TOP, _GAP = 0.12, 0.16, 0.09
_FAINT_INK = "#5b6b79"
# Labels on end need room above the tallest bar.
_ROOM_ON_END = 1.25


class _Page:
    """A figure in inches from its upper left corner."""

    def __init__(self, figure: Any) -> None:
        self.figure = figure
        self.renderer = (
            import_module("matplotlib.backends.backend_agg").FigureCanvasAgg(figure).get_renderer()
        )

    def box(self, artist: Any) -> Any:
        """Where an artist is, in inches from the lower left corner."""
        return artist.get_window_extent(self.renderer).transformed(self.figure.dpi_scale_trans.inverted())

    def width(self) -> float:
        return float(self.figure.get_figwidth()) - 2 * _MARGIN

    def lines(self, words: str, **style: Any) -> Any:
        """A text that is broken where the page ends. It has no place yet."""
        text = self.figure.text(0, 0, "", va="top", ha="left", **style)
        lines: list[str] = []
        for word in words.split():
            text.set_text(f"{lines[-1]} {word}" if lines else word)
            if lines and self.box(text).width <= self.width():
                lines[-1] = text.get_text()
            else:
                lines.append(word)
        text.set_text("\n".join(lines))
        return text

    def legend(self, names: dict[str, Any], fontsize: int) -> Any:
        """A legend of as few rows as fit the page."""
        for columns in range(len(names), 0, -1):
            legend = self.figure.legend(
                names.values(), names.keys(), loc="upper left", ncols=columns, frameon=False, borderpad=0,
                borderaxespad=0, fontsize=fontsize, handlelength=1.0, handleheight=1.0,
            )  # fmt: skip
            if columns == 1 or self.box(legend).width <= self.width():
                break
            legend.remove()
        return legend

    def overlap(self, texts: Iterable[Any]) -> bool:
        boxes = [self.box(text) for text in texts if text.get_visible() and text.get_text()]
        return any(a.overlaps(b) for a, b in combinations(boxes, 2))


def _names(all_axes: Any) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for axes in all_axes.flat:
        names |= {label: mark for mark, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    return names


def _turn_labels(page: _Page, row: Any) -> None:
    """Put the labels of a row of panels on end where they would touch; the panels share an axis."""
    if any(page.overlap(axes.texts) for axes in row):
        for label in (label for axes in row for label in axes.texts):
            label.set_rotation(90)
        low, high = row[0].get_ylim()
        row[0].set_ylim(low, low + (high - low) * _ROOM_ON_END)
    for axes in row:
        if page.overlap(axes.get_xticklabels()):
            axes.tick_params(axis="x", labelrotation=90)


def finish(figure: Any, all_axes: Any, head: str, sub: str, fontsize: int) -> None:
    """Put heading, what was measured, and a legend for all panels above them; the figure grows by these.

    Parameters
    ----------
    figure, all_axes : Figure, array of Axes
        As high as the panels want to be.
    head, sub : str
        The heading, and the line below it; both are broken where the figure ends.
    fontsize : int
        Size of the text in the legend.
    """
    page = _Page(figure)
    parts = [
        page.lines(head, fontsize=14, fontweight="bold"),
        page.lines(sub, fontsize=9.5, color=_FAINT_INK),
    ]
    movers = [part.set_position for part in parts]
    if names := _names(all_axes):
        parts.append(page.legend(names, fontsize))
        movers.append(parts[-1].set_bbox_to_anchor)
    heights = [page.box(part).height for part in parts]
    above = _TOP + sum(heights) + _GAP * len(parts)
    height = figure.get_figheight() + above
    figure.set_figheight(height)
    at = _TOP
    for move, its in zip(movers, heights, strict=True):
        move((_MARGIN / figure.get_figwidth(), 1 - at / height))
        at += its + _GAP
    rect = (0, 0, 1, 1 - above / height)
    figure.tight_layout(rect=rect, h_pad=1.6, w_pad=1.4)
    for row in all_axes:
        _turn_labels(page, row)
    figure.tight_layout(rect=rect, h_pad=1.6, w_pad=1.4)
