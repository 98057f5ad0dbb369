# SPDX-License-Identifier: MIT OR Apache-2.0
"""The pictures of `bench`, which need matplotlib."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pyfa_rocm.cli import main
from pyfa_rocm.cli.bench import plot as bench_plot

SEQLENS = (128, 256, 2048)
ARGUMENTS = ["--seqlens", "64,128", "--hdims", "64", "--hidden", "64", "--tokens", "128"]


def _timed() -> dict[str, Any]:
    """Return results as a card would give them; one implementation ran out of memory."""
    rows = [
        {
            "implementation": name,
            "direction": direction,
            "hdim": hdim,
            "causal": causal,
            "seqlen": seqlen,
            "dtype": "float16",
            "tflops": 100.0 + seqlen / 16,
            "counted": None,
            "reason": "out of memory" if name == "torch eager" and seqlen == SEQLENS[-1] else "",
        }
        for direction in ("forward", "backward")
        for hdim in (64, 128)
        for causal in (False, True)
        for seqlen in SEQLENS
        for name in ("pyfa_rocm", "torch SDPA", "torch eager")
    ]
    return {"device": "a card", "emulated": False, "repeat": 10, "rows": rows}


@pytest.mark.parametrize("suffix", [".png", ".SVG"])
def test_counts_drawn(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"picture{suffix}"
    assert main.main(["bench", *ARGUMENTS, "--plot", str(path)]) == 0
    assert "forward, head dim 64, causal" in capsys.readouterr().out
    drawn = path.read_bytes()
    assert len(drawn) > 5000
    if suffix == ".png":
        assert drawn.startswith(b"\x89PNG\r\n")
        return
    text = drawn.decode()
    assert ">128<" in text
    shown = " ".join(re.findall(r">([^<>]*\S[^<>]*)<", text))  # long lines are broken
    for words in ("backward · head dim 64 · causal", "standard formula", "these are no times"):
        assert words in shown
    assert "TFLOPS" not in text


def test_times_drawn(tmp_path: Path) -> None:
    """A bar for each way that ran, and none for what did not; the same picture twice."""
    first, second = tmp_path / "1.svg", tmp_path / "2.svg"
    for path in (first, second):
        bench_plot.draw(_timed(), path)
    text = first.read_text()
    assert text == second.read_text()
    for words in (
        "Speed of attention: TFLOPS",
        "a card, float16",
        "torch SDPA",
        ">2k<",
        "Median of 10 calls",
    ):
        assert words in text
    # In each of 8 panels the longest has two bars, whose labels are 228.
    assert len(re.findall(r">228<", text)) == 8 * 2


def test_a_folder_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "picture.png"
    path.mkdir()
    assert main.main(["bench", *ARGUMENTS, "--direction", "forward", "--plot", str(path)]) == 2
    assert f"--plot: cannot write {path}: Is a directory" in capsys.readouterr().err
