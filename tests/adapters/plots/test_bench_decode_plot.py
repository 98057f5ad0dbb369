# SPDX-License-Identifier: MIT OR Apache-2.0
"""The pictures of `bench decode`, which need matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pyfa_rocm.cli import main
from pyfa_rocm.cli.bench import decode_plot as bench_decode_plot

ARGUMENTS = ["--batches", "1,2", "--contexts", "100,1024", "--groups", "1,4", "--hdim", "64"]


@pytest.mark.parametrize("suffix", [".png", ".SVG"])
def test_counts_drawn(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"picture{suffix}"
    assert main.main(["bench", "decode", *ARGUMENTS, "--plot", str(path)]) == 0
    assert "decode, batch 2" in capsys.readouterr().out
    drawn = path.read_bytes()
    assert len(drawn) > 5000
    if suffix == ".png":
        assert drawn.startswith(b"\x89PNG\r\n")
        return
    text = drawn.decode()
    for words in (
        "batch 1",
        "batch 2",
        "context 1k",
        "aim without splits: 1.02",
        "aim: 1.3 or more",
        "not times",
    ):
        assert words in text
    assert "TB/s" not in text


def _timed() -> dict[str, Any]:
    """Return results as a card would give them; one problem ran out of memory."""
    rows = [
        {
            "batch": batch,
            "context": context,
            "group": group,
            "nhead_k": 8,
            "hdim": 128,
            "page_size": 16,
            "dtype": "bfloat16",
            "bytes_per_s": 4e12 * context / (context + 5000 / batch),
            "counted": None,
            "reason": "out of memory" if (batch, context) == (64, 131072) else "",
        }
        for batch in (1, 64)
        for group in (1, 8)
        for context in (1024, 131072)
    ]
    return {"device": "a card", "emulated": False, "repeat": 10, "rows": rows}


def test_times_drawn(tmp_path: Path) -> None:
    """A line for each group; the same picture twice."""
    first, second = tmp_path / "1.svg", tmp_path / "2.svg"
    for path in (first, second):
        bench_decode_plot.draw(_timed(), path)
    text = first.read_text()
    assert text == second.read_text()
    for words in (
        "Speed of decoding: TB/s",
        "a card, bfloat16",
        "Median of 10 calls",
        "group 8",
        "128k",
        "batch 64",
    ):
        assert words in text
