# SPDX-License-Identifier: MIT OR Apache-2.0
"""Texts of a matplotlib figure that lie on one another or beyond its edge."""

from __future__ import annotations

from itertools import combinations
from typing import Any

__all__ = ["tangled"]

# Letters do not fill their box: two boxes may share a pixel's edge.
_PIXELS = 1.0


def _texts(figure: Any) -> list[Any]:
    from matplotlib.text import Text

    ticks = {
        label
        for axes in figure.axes
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim()))
        for tick in axis.get_major_ticks() + axis.get_minor_ticks()
        if not min(limits) <= tick.get_loc() <= max(limits)
        for label in (tick.label1, tick.label2)
    }  # which are made, but not drawn
    return [x for x in figure.findobj(Text) if x.get_visible() and x.get_text().strip() and x not in ticks]


def tangled(figure: Any) -> list[str]:
    """Name the pairs of texts that overlap, and the texts that the edge cuts."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    boxes = [(text.get_text(), text.get_window_extent(canvas.get_renderer())) for text in _texts(figure)]
    page = figure.bbox
    found = [
        f"{text!r} is cut"
        for text, box in boxes
        if box.x0 < page.x0 or box.y0 < page.y0 or box.x1 > page.x1 or box.y1 > page.y1
    ]
    for (one, a), (other, b) in combinations(boxes, 2):
        wide = min(a.x1, b.x1) - max(a.x0, b.x0)
        high = min(a.y1, b.y1) - max(a.y0, b.y0)
        if min(wide, high) > _PIXELS:
            found.append(f"{one!r} on {other!r}")
    return found
