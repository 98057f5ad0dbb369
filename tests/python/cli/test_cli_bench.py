# SPDX-License-Identifier: MIT OR Apache-2.0
"""`bench`: what it counts on the software device, what it does with times, and what it refuses."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from reference import Numerics, attention, gradients

import pyfa_rocm
from pyfa_rocm.cli import main
from pyfa_rocm.cli.bench import command as bench
from pyfa_rocm.cli.bench import plot as bench_plot
from pyfa_rocm.cli.bench import subjects as bench_subjects
from pyfa_rocm.cli.bench import text as bench_text
from pyfa_rocm.oracle.problem import Problem

SMALL = ("--seqlens", "64,200", "--hdims", "64", "--hidden", "128", "--tokens", "256")
emulated = pytest.mark.skipif("config.getoption('--device') == 'gpu'", reason="of the software device")


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main.main(["bench", "--json", *arguments]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@emulated
def test_counts(capsys: pytest.CaptureFixture[str]) -> None:
    """Both directions and masks of two lengths: operations, traffic, memory, and errors like the oracle's."""
    result = _json(capsys, *SMALL)
    assert (result["kind"], result["emulated"], result["repeat"]) == ("counts", True, None)
    rows = result["rows"]
    assert [(r["direction"], r["causal"], r["seqlen"], r["batch"]) for r in rows] == [
        (direction, causal, seqlen, batch)
        for causal in (False, True)
        for seqlen, batch in ((64, 4), (200, 1))
        for direction in ("forward", "backward")
    ]
    for row in rows:
        assert (row["implementation"], row["nhead_q"], row["reason"]) == ("pyfa_rocm", 2, "")
        # No time of the simulation passes for a card's.
        assert (row["milliseconds"], row["tflops"]) == (None, None)
        formula = 4 * row["batch"] * 2 * row["seqlen"] ** 2 * 64 / (2 if row["causal"] else 1)
        assert row["formula_flops"] == formula * (2.5 if row["direction"] == "backward" else 1)
        counted, dense = row["counted"], row["batch"] * row["seqlen"] * 2 * 64 * 2
        assert counted["matrix_flops"] >= row["formula_flops"]
        assert counted["instructions"] > 0
        # q, k, v and O; and backward dO, two kinds of O, and three gradients.
        tensors = 4 if row["direction"] == "forward" else 8
        assert counted["hbm_bytes"] >= tensors * dense
        assert counted["standard_hbm_bytes"] >= tensors * dense
        assert row["peak_bytes"] >= tensors * dense
        assert 0 < row["max_difference"] < 0.01
        assert any("_bwd_" in name for name in counted["launches"]) == (row["direction"] == "backward")


@emulated
def test_text_says_that_counts_are_no_times(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["bench", *SMALL, "--causal", "yes", "--direction", "forward"]) == 0
    text = capsys.readouterr().out
    assert "Counts of the software device, not times" in text
    assert "forward, head dim 64, causal" in text
    assert "backward," not in text
    assert "TFLOPS\n" not in text
    assert max(map(len, text.splitlines())) <= bench_text.WIDTH


def test_times(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The way of a card, which any HIP runtime can take: events, medians, TFLOPS by the formula."""
    monkeypatch.setattr(bench, "runtime", lambda: replace(pyfa_rocm.runtime(), emulated=False))
    result = _json(capsys, *SMALL, "--repeat", "3", "--causal", "no")
    assert (result["kind"], result["repeat"]) == ("times", 3)
    for row in result["rows"]:
        assert row["counted"] is None
        assert row["milliseconds"] > 0
        assert row["tflops"] == pytest.approx(row["formula_flops"] / row["milliseconds"] / 1e9)
    print(bench_text.tables(result))
    text = capsys.readouterr().out
    assert "Time: median of 3 calls, by HIP events" in text
    assert f"{result['rows'][0]['milliseconds']:.3f}" in text


def test_what_has_no_kernel_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise pyfa_rocm.UnsupportedError("no such kernel")

    monkeypatch.setattr("pyfa_rocm.backward.flash_attn_bwd", refuse)
    arguments = [*SMALL, "--causal", "no", "--seqlens", "64"]
    rows = _json(capsys, *arguments)["rows"]
    assert [(row["direction"], row["reason"]) for row in rows] == [
        ("forward", ""),
        ("backward", "no such kernel"),
    ]
    assert (rows[1]["peak_bytes"], rows[1]["counted"], rows[1]["max_difference"]) == (None, None, None)
    assert main.main(["bench", *arguments, "--direction", "backward"]) == 1
    assert "no such kernel" in capsys.readouterr().out


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seqlen", [1, 70, 600])
def test_reference(seqlen: int, causal: bool) -> None:
    """The blocked reference is the oracle's float64."""
    problem = Problem(2, 2, 2, seqlen, 16, causal, "float16")
    q, k, v = (x[:1, :, :1] for x in problem.inputs())
    dout, exact = problem.dout()[:1, :, :1], Numerics("float32", "float32")
    want = attention(q, k, v, causal=causal, numerics=exact)
    grads = gradients(q, k, v, want.o, want.lse, dout, causal=causal, numerics=exact)
    found = bench_subjects.head_reference(problem)
    np.testing.assert_allclose(found["o"], want.o[0, :, 0], rtol=1e-10, atol=1e-12)
    for name, gradient in grads.items():
        np.testing.assert_allclose(found[name], gradient.value[0, :, 0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seqlens", "128,0"], ["--seqlens", "'0'", "1 or more"]),
        (["--seqlens", "long"], ["--seqlens", "'long'"]),
        (["--repeat", "-1"], ["--repeat", "'-1'"]),
        (["--dtype", "int8"], ["--dtype", "int8", "float16"]),
        (["--hdims", "96", "--hidden", "128"], ["--hdims", "96", "divisor of the hidden dim 128"]),
        (["--plot", "picture.pdf"], ["--plot", "picture.pdf", ".png or .svg"]),
        (["--plot", "/nonexistent/picture.png"], ["--plot", "/nonexistent/picture.png", "folder"]),
    ],
    ids=lambda x: x[-1],
)
def test_refused(arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main.main(["bench", *arguments])
    except SystemExit as error:
        status = int(error.code or 0)
    assert status == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    for word in words:
        assert word in printed.err


def test_without_matplotlib(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Said before anything is measured, with what to install."""

    def absent(name: str) -> ModuleType:
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
        return importlib.import_module(name)

    monkeypatch.setattr(bench_plot, "import_module", absent)
    assert main.main(["bench", *SMALL, "--plot", str(tmp_path / "picture.png")]) == 2
    printed = capsys.readouterr()
    assert "pip install 'pyfa-rocm[plot]'" in printed.err
    assert list(tmp_path.iterdir()) == []
