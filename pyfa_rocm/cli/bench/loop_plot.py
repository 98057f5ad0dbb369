# SPDX-License-Identifier: MIT OR Apache-2.0
"""A picture of a kernel's loop: what the waves of one SIMD issue, and how its ports fill."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from pyfa_rocm.cli.bench.plot import INK, STYLE, save
from pyfa_rocm.clock.estimate import Estimate

__all__ = ["draw", "window"]

# Cycles that a picture shows, from the middle of what was recorded.
CYCLES = 4000
PORTS = {
    "mfma": ("matrix", "#d1495b"),
    "valu": ("vector", "#2e6f95"),
    "transcendental": ("vector, transcendental", "#7fb2d1"),
    "lds": ("LDS", "#edae49"),
    "vmem_load": ("memory", "#66a182"),
    "vmem_store": ("memory", "#66a182"),
    "vmem_atomic": ("memory", "#66a182"),
}
WAIT = "#e8ecf0"
REST = ("scalar, sync", "#9aa5b1")
Span = tuple[float, float]


def window(recorded: dict[str, Any], cycles: int = CYCLES) -> Span:
    """Return the slots to show: in the middle, where a loop is steady."""
    first, last = min(recorded["slot"]), max(recorded["slot"])
    wide = min(cycles / recorded["slot_cycles"], last - first)
    middle = (first + last) / 2
    return middle - wide / 2, middle + wide / 2


def lanes(recorded: dict[str, Any], simd: int) -> dict[tuple[str, str], list[Span]]:
    """Return what to draw: (lane, colour) to spans of (start, length) in cycles from the window's start.

    Lanes are "wave n", and "matrix port" and "vector port", on which all waves' instructions lie.
    """
    begin, end = window(recorded)
    cycles, names = recorded["slot_cycles"], recorded["instructions"]
    found: dict[tuple[str, str], list[Span]] = {}
    columns = ("wave", "simd", "slot", "slots", "stalled", "instruction")
    for wave, on, slot, slots, stalled, instruction in zip(*(recorded[c] for c in columns), strict=True):
        if on != simd or not begin <= slot < end:
            continue
        kind = names[str(instruction)]["class"]
        label, colour = PORTS.get(kind, REST)
        span = ((slot - begin) * cycles, max(slots, 1) * cycles)
        if stalled:
            start = max(slot - stalled, begin)
            found.setdefault((f"wave {wave}", WAIT), []).append(
                ((start - begin) * cycles, (slot - start) * cycles)
            )
        found.setdefault((f"wave {wave}", colour), []).append(span)
        if label == "matrix":
            found.setdefault(("matrix port", colour), []).append(span)
        elif label.startswith("vector"):
            found.setdefault(("vector port", colour), []).append(span)
    return found


def draw(estimate: Estimate, problem: str, path: Path) -> None:
    """Draw the waves and ports of the first SIMD."""
    import_module("matplotlib.backends.backend_agg")
    matplotlib, figures = import_module("matplotlib"), import_module("matplotlib.figure")
    patches = import_module("matplotlib.patches")
    recorded = estimate.longest.events
    assert recorded is not None
    spans = lanes(recorded, simd=0)
    waves = sorted({lane for lane, _ in spans if lane.startswith("wave")}, key=lambda lane: int(lane[5:]))
    order = [*waves, "matrix port", "vector port"]
    with matplotlib.rc_context(STYLE):
        figure = figures.Figure(figsize=(13, 1.5 + 0.42 * len(order)))
        axes = figure.subplots()
        for (lane, colour), bars in spans.items():
            axes.broken_barh(bars, (order.index(lane) - 0.38, 0.76), facecolors=colour, linewidth=0)
        axes.set_yticks(range(len(order)), order)
        axes.invert_yaxis()
        axes.margins(x=0)
        axes.set_xlabel("cycles")
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
        keys = dict(PORTS.values()) | {REST[0]: REST[1], "waits": WAIT}
        marks = [patches.Patch(color=colour, label=label) for label, colour in keys.items()]
        head = f"{estimate.kernel}, {problem}: one SIMD, fast end of the clock"
        axes.set_title(head, loc="left", fontsize=11, fontweight="bold", color=INK, pad=26)
        axes.legend(
            handles=marks, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(marks), frameon=False,
            fontsize=9, handlelength=1.0, borderaxespad=0.2,
        )  # fmt: skip
        figure.tight_layout()
        save(figure, path)
