# SPDX-License-Identifier: MIT OR Apache-2.0
"""No text of a picture lies on another or beyond the edge, in the smallest picture and in a large one."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from text_boxes import tangled

from pyfa_rocm.cli.bench import decode_plot as bench_decode_plot
from pyfa_rocm.cli.bench import plot as bench_plot

# Not of the package, nor on the path of these tests.
_spec = spec_from_file_location(
    "training_plot", Path(__file__).resolve().parents[3] / "benchmarks" / "training_plot.py"
)
assert _spec is not None
assert _spec.loader is not None
training_plot = module_from_spec(_spec)
_spec.loader.exec_module(training_plot)

DEVICE = "AMD Instinct MI300X, software device of a machine with a long name (gfx942:sramecc+:xnack-)"
Figures = Callable[[dict[str, Any]], Any]


def _bench(directions: int, hdims: int, seqlens: int, emulated: bool) -> dict[str, Any]:
    """Numbers of four digits, of as many panels and bars."""
    names = ("pyfa_rocm",) if emulated else ("pyfa_rocm", "torch SDPA", "torch eager")
    rows = [
        {
            "implementation": name,
            "direction": direction,
            "hdim": 64 << h,
            "causal": causal,
            "seqlen": 512 << s,
            "dtype": "bfloat16",
            "tflops": 1000.0 + 16 * s,
            "counted": {"hbm_bytes": 2e9 + s, "standard_hbm_bytes": 5e10},
            "reason": "",
        }
        for direction in ("forward", "backward")[:directions]
        for h in range(hdims)
        for causal in (False, True)[:hdims]
        for s in range(seqlens)
        for name in names
    ]
    return {"device": DEVICE, "emulated": emulated, "repeat": 10, "rows": rows}


def _decode(batches: int, contexts: int, groups: int, emulated: bool) -> dict[str, Any]:
    counted = {"hbm_ratio": 1.123, "unsplit_ratio": 1.012, "times_hbm": 12.34}
    rows = [
        {
            "batch": 1 << b,
            "context": 1024 << c,
            "group": 1 << g,
            "nhead_k": 8,
            "hdim": 128,
            "page_size": 16,
            "dtype": "bfloat16",
            "bytes_per_s": 4e12,
            "counted": counted,
            "reason": "",
        }
        for b in range(batches)
        for g in range(groups)
        for c in range(contexts)
    ]
    return {"device": DEVICE, "emulated": emulated, "repeat": 10, "rows": rows}


def _training(steps: int, names: tuple[str, ...]) -> dict[str, Any]:
    exact = [10 / (1 + i) for i in range(steps)]
    return {
        "eager_float32": exact,
        "losses": {name: [x + 1e-3 for x in exact] for name in names},
        "allowed": 2e-3,
        "largest_distance": dict.fromkeys(names, 1e-3),
        "config": {"dtype": "bfloat16", "layers": 12, "seqlen": 1024},
    }


PICTURES: dict[str, tuple[Figures, dict[str, Any]]] = {
    "bench, counted, small": (bench_plot.figure_of, _bench(1, 1, 1, True)),
    "bench, counted, large": (bench_plot.figure_of, _bench(2, 2, 7, True)),
    "bench, timed, small": (bench_plot.figure_of, _bench(1, 1, 1, False)),
    "bench, timed, large": (bench_plot.figure_of, _bench(2, 2, 7, False)),
    "decode, counted, small": (bench_decode_plot.figure_of, _decode(1, 1, 1, True)),
    "decode, counted, large": (bench_decode_plot.figure_of, _decode(3, 4, 5, True)),
    "decode, timed, small": (bench_decode_plot.figure_of, _decode(1, 1, 1, False)),
    "decode, timed, large": (bench_decode_plot.figure_of, _decode(3, 8, 5, False)),
    "training, small": (training_plot.figure_of, _training(3, ("pyfa_rocm",))),
    "training, large": (training_plot.figure_of, _training(200, ("sdpa", "flash_attn", "pyfa_rocm"))),
}


@pytest.mark.parametrize("name", PICTURES)
def test_texts_are_apart(name: str) -> None:
    import matplotlib as mpl

    figure_of, result = PICTURES[name]
    with mpl.rc_context(bench_plot.STYLE):
        assert tangled(figure_of(result)) == []


def test_tangles_are_found() -> None:
    """The same checks find faults made on purpose: a text on another, and one that is cut."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3, 2))
    figure.text(0.1, 0.5, "one text")
    figure.text(0.2, 0.5, "another text")
    figure.text(0.9, 0.1, "a long text")
    assert tangled(figure) == ["'a long text' is cut", "'one text' on 'another text'"]


def test_nothing_that_ran() -> None:
    """A picture of reasons only has no legend."""
    result = _bench(1, 1, 2, False)
    for row in result["rows"]:
        row["reason"] = "out of memory"
    assert tangled(bench_plot.figure_of(result)) == []
