# SPDX-License-Identifier: MIT OR Apache-2.0
"""`pyfa-rocm demo`: what it prints, and that `make demo` builds what it runs."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pyfa_rocm
from pyfa_rocm.cli import demo, main, prove, traffic
from pyfa_rocm.oracle import features, trial
from pyfa_rocm.oracle.params import backward_params, forward_params
from pyfa_rocm.oracle.problem import Problem

ROOT = Path(__file__).resolve().parents[3]


def test_demo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["demo", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["ok"] is True
    assert [row["seqlen"] for row in result["rows"]] == list(demo.SEQLENS)
    assert demo.SEQLENS[0] == 128
    assert demo.SEQLENS[-1] == 1024
    for row in result["rows"]:
        # Heads of 128: q, k, v, O in 16 bits, and the LSE; of each part O and LSE in float32.
        heads = demo.PROBLEM.nhead_q
        rows = row["seqlen"] * heads
        parts, rest = divmod(row["peak_bytes"] - rows * (128 * 2 * 4 + 4), rows * (128 * 4 + 4))
        assert parts in range(9)
        assert rest == 0
        # At the very least the scores are there at once, in float32.
        assert row["standard_peak_bytes"] >= heads * 4 * row["seqlen"] ** 2
        # Scores and probabilities, in 16 bits, are written only by standard attention.
        ours, standard = (row["traffic"][who] for who in ("ours", "standard"))
        tensor = rows * 128 * 2
        of_parts = parts * rows * (128 * 4 + 4)
        # A line of the parts that is written by two workgroups may go to memory twice.
        assert 0 <= ours["hbm_write_bytes"] - (tensor + rows * 4) <= 2 * of_parts
        assert standard["hbm_write_bytes"] == tensor + 2 * heads * 2 * row["seqlen"] ** 2
        # Besides, three lines of 128 bytes of kernel arguments, and as many of the launch that merges parts.
        most = 3 * tensor + of_parts + (6 if parts else 3) * 128
        assert 0 < standard["hbm_read_bytes"] <= ours["hbm_read_bytes"] <= most
    assert main.main(["demo"]) == 0
    _check_demo_text(capsys.readouterr().out, result)


def _check_demo_text(text: str, result: dict[str, Any]) -> None:
    """A newcomer sees shapes, errors and bounds, traffic, and what the times mean."""
    proof, rows = result["prove"], result["rows"]
    assert max(map(len, text.splitlines())) <= demo.WIDTH
    assert text.endswith("\n\nall right\n")
    assert "WRONG" not in text
    ran = [x for x in proof["features"] if prove.has_run(x)]
    assert len(re.findall(r" right$", text, re.M)) == 1 + len(ran) + len(rows) + 1  # and the last line
    for x in ran:
        line = next(line for line in text.splitlines() if line.startswith(f"  {x['feature']} "))
        shape = x["shape"]
        assert re.search(rf" {shape['dtype']} +{shape['seqlen_q']} x +{shape['seqlen_k']} ", line)
        for name in prove.FEATURE_RESULTS:
            ratio = x[f"{name}_ratio"]
            assert ("-" if ratio is None else f"{ratio:.0%}") in line.split()
    for row in rows:
        line = next(line for line in text.splitlines() if line.startswith(f"  {row['seqlen']:6} "))
        gradients = f"{row['gradients_max_error_over_tolerance']:.0%}"
        assert line.split()[-4:] == [
            f"{row['max_difference']:.4f}", f"{row['o_bound']:.4f}", gradients, "right",
        ]  # fmt: skip
        if row["traffic"]:
            assert re.search(
                rf" {row['traffic']['ours']['hbm_bytes'] / 2**20:.2f} +"
                rf"{row['traffic']['standard']['hbm_bytes'] / 2**20:.2f} ",
                line,
            )
    if proof["emulated"]:
        assert "\nHBM traffic: our accesses are counted" in text
        assert f" s for seqlen {rows[-1]['seqlen']}. The software device simulates every instruction" in text


def test_demo_on_a_gpu_shows_times(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A GPU does not tell its traffic, and its times mean something."""
    monkeypatch.setattr(demo, "SEQLENS", (128,))
    monkeypatch.setattr(traffic, "measure", lambda _: None)
    assert main.main(["demo"]) == 0
    text = capsys.readouterr().out
    assert "time, ms" in text
    assert "HBM" not in text


# Forward passes for which only Composable Kernel has kernels, at twenty seconds each, in the demo's build.
LEFT_TO_A_WHOLE_BUILD = {"bias, head dim 72", "float32"}


def made(variable: str) -> str:
    """The value of a variable of the Makefile."""
    command = ["make", "--silent", f"--eval=show: ; @echo '$({variable})'", "show"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def launched(problem: Problem) -> Iterator[str]:
    """The kernels that can do a problem forward, the library's choice first; none if there is none."""
    for number in itertools.count(1):
        with pyfa_rocm.emulator.profile() as profile:
            try:
                features._forward(problem, number)
            except pyfa_rocm.UnsupportedError:
                return
        (launch,) = profile.launches
        yield launch.kernel


def able_by_name(kernel_of: Callable[[Any], Any], params: Any) -> list[str]:
    """The kernels that can do a problem, the library's choice first."""
    count = kernel_of(params).candidate_count
    return [kernel_of(replace(params, kernel=number)).name for number in range(1, count + 1)]


def gradient_kernels(problem: Problem) -> Iterator[str]:
    """The kernels that can do a problem's gradients, in any of the types in which the demo tries them."""
    keep = features._forward(problem)[2] if problem.dropout_p else None
    for dtype in features._GRADIENT_TYPES.get(problem.dtype, (problem.dtype,)):
        for number in itertools.count(1):
            with pyfa_rocm.emulator.profile() as profile:
                try:
                    features._backward(replace(problem, dtype=dtype), keep, number)
                except pyfa_rocm.UnsupportedError:
                    break
            yield from (x.kernel for x in profile.launches if not re.search("_bwd_(dot|sum|bias)_", x.kernel))


def test_make_demo_builds_what_the_demo_runs() -> None:
    """The filter in the Makefile: forward what compiles in seconds, and gradients of all but 8 bits."""
    chosen = re.compile(made("DEMO_KERNELS"))
    if not pyfa_rocm.runtime().emulated:
        pytest.skip("a GPU does not say what was launched")
    for name, problem in features.FEATURES.items():
        able = list(launched(problem))
        built = any(map(chosen.search, able))
        assert built == (name not in LEFT_TO_A_WHOLE_BUILD) or not able, (name, able)
        gradients = gradient_kernels(problem)
        first = next(gradients, None)
        assert first is None or any(map(chosen.search, itertools.chain([first], gradients))), name
    report = json.loads((ROOT / "build/kernels.json").read_text())
    rows = [kernel for kernel in report["kernels"] if kernel["arch"] == pyfa_rocm.devices()[0].arch]
    for family in ("bwd_parts", "merge"):
        names = [row["name"] for row in rows if (row["family"], row["origin"]) == (family, "hip")]
        assert names
        assert all(map(chosen.search, names)), names
    assert sum(row["origin"] == "ck" and bool(chosen.search(row["name"])) for row in rows) <= 1
    by_symbol = {kernel["symbol"] or kernel["name"]: kernel for kernel in report["kernels"]}
    for problem in (prove.PROBLEM, demo.PROBLEM):
        forward = able_by_name(pyfa_rocm.fmha_fwd_kernel, forward_params(problem))
        assert any(map(chosen.search, forward)), forward
        if problem is demo.PROBLEM:
            backward = able_by_name(pyfa_rocm.fmha_bwd_kernel, backward_params(problem))
            assert any(map(chosen.search, backward)), backward
        with pyfa_rocm.emulator.profile() as profile:
            trial.run(problem)
        ran = [by_symbol[launch.kernel] for launch in profile.launches]
        parts = [kernel["name"] for kernel in ran if kernel["family"] == "bwd_parts"]
        assert len(parts) >= (0 if trial.no_gradients(problem) else 1)
        assert all(map(chosen.search, parts)), parts
