# SPDX-License-Identifier: MIT OR Apache-2.0
"""`benchmarks.training_step`: a model trains through the library as through eager attention."""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pyfa_rocm

ROOT = Path(__file__).resolve().parents[3]


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program on the package that is tested, which may be the wheel's."""
    package = Path(pyfa_rocm.__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.training_step", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{package}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_training(tmp_path: Path) -> None:
    """Two backends apart, what ran, and 50 steps whose losses are eager's within what bfloat16 allows."""
    report, picture = tmp_path / "step.json", tmp_path / "curve.svg"
    done = _run(
        tmp_path, "--backends", "pyfa_rocm", "eager", "--preset", "tiny", "--warmup", "1", "--steps", "2",
        "--output-json", str(report), "--plot", str(picture),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(report.read_text())
    assert result["preset"] == "tiny"
    assert (result["config"]["warmup"], result["config"]["steps"], result["config"]["layers"]) == (1, 2, 2)
    ours, eager = result["runs"]
    assert (ours["backend"], eager["backend"]) == ("pyfa_rocm", "eager")
    assert (ours["symbol"], eager["symbol"]) == ("pyfa_rocm.torch.flash_attn_func", "training_model.eager")
    # Neither process has seen the other's code.
    assert (ours["imported"], eager["imported"]) == (["pyfa_rocm"], [])
    families = [re.findall("fmha_(fwd|bwd)_", name) for name in ours["kernels"]]
    assert sorted({family for (family,) in families}) == ["bwd", "fwd"]
    for run in (ours, eager):
        assert run["tokens_per_second"] == pytest.approx(2 * 128 * run["steps_per_second"])
        assert run["steps_per_second"] == pytest.approx(1 / run["median_step_seconds"])
        assert run["peak_bytes"] > 2**20
        assert 0 < run["loss"] < math.log(64) + 1
    for name, ratio in result["ratios"].items():
        assert ratio == pytest.approx(ours[name] / eager[name])
    curve = result["curve"]
    assert set(curve["losses"]) == {"pyfa_rocm", "eager"}
    exact, losses = curve["eager_float32"], curve["losses"]["pyfa_rocm"]
    assert len(losses) == len(exact) == 50
    assert losses[-1] < 0.5 * losses[0]  # it has learnt
    furthest = max(abs(a - b) for a, b in zip(losses, exact, strict=True))
    spread = max(abs(a - b) for a, b in zip(curve["losses"]["eager"], exact, strict=True))
    assert 0 < furthest <= 2 * spread < 0.01
    assert curve["ok"] is True
    assert "distance from eager float32" in picture.read_text()
    assert "equal within what the type allows" in done.stdout
    if result["simulated"]:
        assert "simulated on this CPU" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--backends", "sdpa", "sdpa"], ["--backends", "sdpa twice"]),
        (["--backends", "sdpa", "flash_attn"], ["flash_attn needs the package flash-attn"]),
        (["--steps", "0"], ["--steps: got 0", "1 or more"]),
        (["--heads", "3"], ["--d-model: got 128", "3 heads"]),
        (["--plot", "curve.png", "--curve-steps", "0"], ["--plot", "no loss curves"]),
        (["--plot", "curve.pdf"], ["--plot", "curve.pdf", ".png or .svg"]),
        (["--preset", "mi300x"], ["--preset mi300x: torch has no card here"]),
        (["--output-json", "/nonexistent/x.json"], ["--output-json", "folder"]),
    ],
    ids=lambda x: "-".join(x[-2:]),
)
def test_refused(
    arguments: list[str],
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT)])  # behind the package that is tested
    training_step = importlib.import_module("benchmarks.training_step")
    monkeypatch.setattr(sys, "argv", ["training_step.py", "--preset", "tiny", *arguments])
    with pytest.raises(SystemExit) as caught:
        training_step.main()
    assert caught.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    for word in words:
        assert word in printed.err
