# SPDX-License-Identifier: MIT OR Apache-2.0
"""The benchmarks run as the pages say. How fast they are is not tested."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
call_overhead: Any = importlib.import_module("benchmarks.call_overhead")


def _run(name: str, *arguments: str, cwd: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a benchmark in a checkout."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=cwd,
        env=inherited | more,
    )


def test_context_parallel() -> None:
    """A row for each layout, of ranges that add up."""
    done = _run("context_parallel")
    assert done.returncode == 0, done.stderr
    *_, ring, ulysses, both = done.stdout.splitlines()
    for row, name in ((ring, "ring 64"), (ulysses, "Ulysses 64"), (both, "ring 8 x Ulysses 8")):
        assert row.startswith(name)
        busy, waiting, together = (
            [float(x) for x in cell.split(" to ")] for cell in re.findall(r"[\d.]+ to [\d.]+", row)
        )
        assert 0 < busy[0] <= busy[1]
        assert together == pytest.approx([a + b for a, b in zip(busy, waiting, strict=True)], abs=0.2)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_emulator(dtype: str) -> None:
    done = _run("emulator", "--json", "--repeats", "1", "--dtype", dtype)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    ms, checked = result["ms_per_tile_d128"], result["ms_per_tile_d128_checked"]
    assert result == {
        "dtype": dtype,
        "host_isa": result["host_isa"],
        "ms_per_tile_d128": ms,
        "ms_per_tile_d128_min": ms,
        "ms_per_tile_d128_max": ms,
        "ms_per_tile_d128_checked": checked,
        "ms_per_tile_d128_checked_min": checked,
        "ms_per_tile_d128_checked_max": checked,
        "wave_instructions_per_tile": result["wave_instructions_per_tile"],
        # The two matrix products of 128 queries, 128 keys and a head dim of 128.
        "gmac_per_second": pytest.approx(2 * 128**3 / (ms * 1e6)),
        "wave_instructions_per_second": pytest.approx(result["wave_instructions_per_tile"] / ms * 1e3),
    }
    assert checked > 0
    assert result["host_isa"] in ("x86-64-v2", "x86-64-v3", "x86-64-v4")
    # There must be 512 matrix instructions of 32x32x8, and CK's loop has fewer than ten others for each.
    assert 512 < result["wave_instructions_per_tile"] < 5120


def test_emulator_refuses_no_repeats() -> None:
    done = _run("emulator", "--repeats", "0")
    assert done.returncode == 2
    assert "--repeats" in done.stderr
    assert "Traceback" not in done.stderr


def test_call_overhead() -> None:
    done = _run("call_overhead", "--json", "--without-flash-attn", "--rounds", "3", "--calls", "20")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    python = [f"{name}python_us" for name in ("", "decode_", "append_", "merge_")]
    for name in ("c_ns", "c_bare_ns", "c_pointer_query_ns", *python, "python_raw_us", "python_bare_us"):
        stem, unit = name.rsplit("_", 1)
        assert 0 < result[f"{stem}_q1_{unit}"] <= result[name] <= result[f"{stem}_q3_{unit}"], name
    # Asking about each of four tensors and launching costs more than one question, and more than the launch.
    assert result["c_ns"] > result["c_pointer_query_ns"]
    assert result["c_ns"] > result["c_bare_ns"]
    assert result["c_above_bare_ns"] == pytest.approx(result["c_ns"] - result["c_bare_ns"])
    assert result["python_us"] * 1e3 > result["c_ns"]
    assert "flash_attn_python_us" not in result


@pytest.mark.skipif(
    not (ROOT / "build" / "flash_attn" / "ready").is_file(),
    reason="flash-attn is not installed: running `python -m benchmarks.call_overhead` once does it",
)
def test_call_overhead_beside_flash_attn() -> None:
    done = _run("call_overhead", "--json", "--rounds", "3", "--calls", "20")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["flash_attn_python_us"] > 0
    assert result["flash_attn_varlen_python_us"] > 0
    ratio = result["flash_attn_python_us"] / result["python_us"]
    assert result["flash_attn_over_python"] == pytest.approx(ratio)


def test_call_overhead_says_what_could_not_be_fetched(tmp_path: Path) -> None:
    """There is an environment to make, and no package index to take from."""
    (tmp_path / "benchmarks").mkdir()
    for name in ("__init__.py", "call_overhead.py"):
        shutil.copy(ROOT / "benchmarks" / name, tmp_path / "benchmarks" / name)
    nowhere = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}
    done = _run("call_overhead", "--json", cwd=tmp_path, **nowhere)
    assert done.returncode == 1
    assert "pip could not install torch" in done.stderr
    assert "--without-flash-attn" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_call_overhead_takes_the_torch_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise one for CPUs: that for CUDA is several GB, of which nothing is measured."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert call_overhead.torch_requirement() == ()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert call_overhead.torch_requirement()[1:] == ("--extra-index-url", call_overhead.CPU_INDEX)


def test_call_overhead_knows_the_size_before_it_fetches(tmp_path: Path) -> None:
    wheel = tmp_path / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in (
            ("METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"),
            ("WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
            ("RECORD", ""),
        ):
            archive.writestr(f"tiny-1.0.dist-info/{name}", text)
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--find-links", str(tmp_path)]
    assert call_overhead.bytes_to_fetch(pip, ("tiny",)) == (wheel.stat().st_size, [wheel.name])


@pytest.mark.parametrize("argument", ["--rounds", "--calls"])
def test_call_overhead_refuses_none(argument: str) -> None:
    done = _run("call_overhead", argument, "0")
    assert done.returncode == 2
    assert argument in done.stderr
    assert "Traceback" not in done.stderr


def test_backward() -> None:
    """The problem that the page names: the gradients are right, and move less than the standard formula's."""
    done = _run("backward", "--json", "--repeats", "1")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    problem = result["problem"]
    assert [problem[name] for name in ("batch", "seqlen", "nhead_q", "hdim")] == [1, 512, 4, 128]
    assert problem["causal"] is True
    assert result["ok"] is True
    assert all(0 < ratio <= 1 for ratio in result["max_error_over_tolerance"].values())
    assert 0 < result["seconds"] < 60
    assert result["seconds_checked"] > 0
    # Five products of half of 512 x 512 scores, at the very least.
    assert result["matrix_flops"] >= 5 * 4 * 512 * 512 * 128
    assert result["wave_instructions"] > 0
    assert any("_bwd_fp16_d128" in name for name in result["launches"])
    assert result["standard_over_ours"] == result["standard_hbm_bytes"] / result["hbm_bytes"]
    assert result["hbm_bytes"] < result["standard_hbm_bytes"]


def test_backward_refuses_what_is_not_there() -> None:
    done = _run("backward", "--hdim", "1024")
    assert done.returncode == 2
    assert done.stderr.startswith("backward.py: ")
    assert "Traceback" not in done.stderr
    assert _run("backward", "--repeats", "0").returncode == 2


@pytest.fixture
def first_day(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("PYFA_ROCM_DEVICE", "emulator")  # which the program itself would leave set
    return importlib.import_module("benchmarks.first_day")


def test_first_day_fits_what_the_rows_determine(first_day: Any) -> None:
    """The first of three constants moves every row, the second none, and the third hardly any."""
    rng, noise = np.random.default_rng(0), 0.01
    alone = rng.uniform(0.2, 1.0, 20)
    slopes = np.stack([alone, np.zeros(20), alone * 1e-3], axis=1)
    errors = slopes @ np.array([0.3, 0.1, 0.2]) + rng.normal(0, noise, 20)
    found = first_day.fit(slopes, errors, noise)
    assert found.determined.tolist() == [True, False, False]
    assert found.places[0] == pytest.approx(0.8, abs=0.05)
    assert found.places[1:].tolist() == [0.5, 0.5]
    assert found.deviations[0] < 0.05 < found.deviations[1]


@pytest.mark.skipif("config.getoption('--device') == 'gpu'", reason="of the software device")
def test_first_day_finds_a_constant_again(
    first_day: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Times of the clock itself with a constant elsewhere; small problems take as long as a launch does."""
    clock = first_day.Clock(("launch_seconds", "atomic_bandwidth"))
    work = {"kind": "attention", "direction": "forward", "nhead_q": 1, "nhead_k": 1, "hdim": 64,
            "causal": False, "dtype": "bfloat16"}  # fmt: skip
    steps = {}
    for seqlen in (64, 128, 192):
        workload = work | {"batch": 1, "seqlen": seqlen}
        ready = first_day.from_json(workload).ready()
        measured = clock.seconds(ready, ready.kernels[0], {"launch_seconds": 0.9})
        row = {"kernel": ready.kernels[0], "measured": measured, "modelled": None}
        steps[f"choices {seqlen}"] = {"workload": workload, "candidates": [row]}
    rows = list(first_day.rows_of({"steps": steps}))
    found = first_day.fitted(rows, clock, 0.03)
    launch, atomics = (found["constants"][name] for name in clock.names)
    assert (launch["determined"], atomics["determined"]) == (True, False)
    assert launch["place"] == pytest.approx(0.9, abs=0.2)
    for errors in found["errors"].values():
        assert errors["after"] < errors["before"] / 2
    assert "atomic_bandwidth             not determined" in first_day.fit_text(found)
    file = tmp_path / "day.json"
    file.write_text(json.dumps({"steps": steps}))
    monkeypatch.setattr("sys.argv", ["first_day.py", str(file)])
    first_day.main()
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()[1:]] == ["64", "128", "192"]
