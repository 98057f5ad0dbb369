# SPDX-License-Identifier: MIT OR Apache-2.0
"""`first-day`: its file, a second run, what disagrees, and a card, for which the software device stands."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import pyfa_rocm
from benchmarks.published.points import points
from pyfa_rocm import HipError, InvalidArgumentError
from pyfa_rocm.cli import main
from pyfa_rocm.cli.bench.decode_trial import DecodeTrial
from pyfa_rocm.cli.first_day import command, sizes, text, timing
from pyfa_rocm.cli.first_day.judge import disagreements, judgement
from pyfa_rocm.cli.first_day.machine import Sensors, under_load
from pyfa_rocm.cli.first_day.record import SCHEMA, Record
from pyfa_rocm.cli.first_day.workloads import Attention, Decode, Workload, from_json
from pyfa_rocm.oracle import forced
from pyfa_rocm.oracle.forced.outcome import repeated
from pyfa_rocm.oracle.problem import Problem

emulated = pytest.mark.skipif("config.getoption('--device') == 'gpu'", reason="of the software device")
TINY = Attention(Problem(1, 1, 1, 128, 64, True), "forward")
KERNELS = "merge_fp32_fp16$|kv_append_fp16_fp16$|bwd_dot_fp16"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Next to nothing is run."""
    day = replace(
        sizes.software_device(),
        forced=forced.Sizes(longest=20, most_heads=2, runs=2),
        published=(TINY,),
        choices=(),
        decode=(Decode(DecodeTrial.of(1, 64, 2, 1, 64, 16, "bfloat16")),),
        load=TINY,
        calls=2,
    )
    monkeypatch.setattr(sizes, "software_device", lambda: day)
    monkeypatch.setattr(sizes, "card", lambda _: day)


def _run(path: Path, *more: str) -> int:
    parts = "kernels,published,decode,overhead,clocks,model"
    return main.main(["first-day", "--out", str(path), "--steps", parts, "--kernels", KERNELS, *more])


def _document(path: Path) -> dict[str, Any]:
    """Return a file of the command, after it has been validated."""
    document: dict[str, Any] = json.loads(path.read_text())
    schema = json.loads(SCHEMA.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(document)
    return document


@emulated
def test_a_second_run_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything that is done stays; an interrupted step is no failure, and runs again."""
    path = tmp_path / "day.json"
    once: Callable[..., bool] = command._once
    begun: list[str] = []

    def stop_at_decode(step: Any, record: Record) -> bool:
        begun.append(step.name)
        if step.part == "decode" and begun.count(step.name) == 1:
            step = replace(step, run=_interrupt)
        return once(step, record)

    monkeypatch.setattr(command, "_once", stop_at_decode)
    assert _run(path) == 130
    half = _document(path)
    assert [name.partition(" ")[0] for name in half["steps"]] == ["kernels", "kernels", "published"]
    assert half["attempts"] == {}
    capsys.readouterr()
    assert _run(path) == 0
    out, err = capsys.readouterr()
    assert f"{path} has 3 of 6 steps" in err
    assert len(begun) == 4 + 3
    document = _document(path)
    assert (document["ok"], document["complete"], document["times"]) == (True, True, "modelled")
    assert {name: document["steps"][name] for name in half["steps"]} == half["steps"]
    assert list(document["not_forced"]) == ["fmha_bwd_dot_fp16"]
    assert not any(x["correctness"] for x in document["disagreements"])
    assert "nothing here was measured on a card" in " ".join(out.split())
    assert "all results are right. Everything is in" in out
    page = path.with_suffix(".html").read_text()
    assert "Nothing here was measured on a card" in page
    assert str(TINY) in page
    timed = document["steps"][f"published {TINY}"]["candidates"]
    assert all(0 < row["modelled"]["low"] <= row["modelled"]["high"] for row in timed)
    for columns in (40, 80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        lines = text.report(document, path, "").replace(str(path), "FILE").splitlines()
        widest = min(max(columns - 1, text.NARROWEST), text.WIDEST)
        assert max(map(len, lines)) <= widest, columns
    assert _run(path, "--json") == 0
    assert json.loads(capsys.readouterr().out) == document
    assert len(begun) == 4 + 3


@emulated
def test_a_card_that_the_clock_does_not_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no times, which is no failure, and the report says so."""

    def no_constants(*_: object, **__: object) -> Any:
        raise HipError("fmha_emu_timing: the clock has no constants of an AMD Radeon RX 6900 XT")

    monkeypatch.setattr(timing, "launch_times", no_constants)
    path = tmp_path / "day.json"
    assert _run(path) == 0
    document = _document(path)
    assert (document["ok"], document["complete"], document["disagreements"]) == (True, True, [])
    assert document["steps"]["clocks"]["modelled_hz"] is None
    rows = document["steps"][f"published {TINY}"]["candidates"]
    assert rows
    assert all(row["modelled"] is None for row in rows)
    assert "none: the software device's clock has no constants" in " ".join(capsys.readouterr().out.split())


def _interrupt(_: object) -> dict[str, Any]:
    raise KeyboardInterrupt


@emulated
def test_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Times are HIP's, and the clock of another process stands beside them. Here they can but disagree."""
    monkeypatch.setattr(timing, "has_card", lambda: True)
    path = tmp_path / "day.json"
    assert _run(path, "--kernels", "merge_fp32_fp16$") == 0
    document = _document(path)
    assert (document["times"], document["complete"]) == ("measured", True)
    result, model = (document["steps"][f"{before}published {TINY}"] for before in ("", "model "))
    assert all(row["measured"] > 0 and row["modelled"] is None for row in result["candidates"])
    assert result["candidates"][0]["kernel"] in [row["kernel"] for row in model["candidates"]]
    assert model["card"] == document["identity"]["device"]
    page = path.with_suffix(".html").read_text()
    assert "Nothing here was measured" not in page
    assert len(re.findall(r"<rect [^>]*/><line ", page)) >= 2  # a range, and what was measured
    assert not re.search(r"<(script|link|img|iframe)|url\(|@import|https?:", page)
    constants = document["steps"]["model constants"]["constants"]
    assert constants["launch_seconds"]["fast"] < constants["launch_seconds"]["slow"]
    assert {x["kind"] for x in document["disagreements"]} >= {"range"}
    assert "outside the clock's range" in capsys.readouterr().out


def test_what_disagrees() -> None:
    """Each kind, and whether correctness is at stake."""
    kernel = {"kernel": "k", "problem": "p", "runs": 2, "reason": ""}
    right = kernel | {"shares": {"o": 1.0}, "right": True, "same_bits": True, "same_bits_promised": True}
    work = {"workload": {}, "unit": "flops", "work": 1.0, "repeat": 10, "reason": ""}
    rows = [{"kernel": name, "measured": x, "modelled": None} for name, x in (("a", 1.06), ("b", 1.0))]
    steps: dict[str, Any] = {
        "kernels k 0": right,
        "kernels k 1": right | {"shares": {"o": None}, "right": False},
        "kernels k 2": right | {"same_bits": False},
        "kernels k 3": right | {"same_bits": False, "same_bits_promised": False},
        "kernels l 0": {"kernel": "l", "reason": "not offered"},
        "kernels m 0": {"died": 2},
        "kernels n 0": {"failed": "HipError: illegal address"},
        "published x": work | {"candidates": rows},
        "published y": work | {"candidates": [rows[0] | {"measured": 1.04}, rows[1]]},
        "decode z": {"unsupported": "no kernel"},
        "model published x": {
            "of": "published x",
            "candidates": [{"kernel": "a", "modelled": {"low": 1.0, "high": 1.05}}],
        },
        "clocks": {"sensors": {"clock_hz": {"median": 1.5e9}}},
        "overhead": {"launch": {"measured": 9e-6}},
        "model constants": {
            "constants": {"launch_seconds": {"fast": 2e-6, "slow": 8e-6}},
            "modelled_hz": {"low": 1.4e9, "high": 1.6e9},
        },
    }
    found = disagreements(steps)
    assert [(x["kind"], x["step"], x["correctness"]) for x in found] == [
        ("error", "kernels k 1", True),
        ("bits", "kernels k 2", True),
        ("not offered", "kernels l 0", False),
        ("died", "kernels m 0", True),
        ("failed", "kernels n 0", True),
        ("choice", "published x", False),
        ("range", "model published x", False),
        ("range", "model constants", False),
    ]
    assert "NaN" in found[0]["text"]
    assert judgement(steps, [*steps, "prove"])["left"] == ["prove"]
    assert not judgement(steps, [])["ok"]


def test_a_step_that_kills_the_process_is_tried_twice(tmp_path: Path) -> None:
    path, identity = tmp_path / "day.json", {"device": "x", "library_sha256": "0"}
    for _ in range(2):
        assert Record(path, identity).begin("prove")
    record = Record(path, identity)
    assert not record.begin("prove")
    assert Record(path, identity).steps == {"prove": {"died": 2}}
    with pytest.raises(InvalidArgumentError, match=r"another library_sha256 \(0\)"):
        Record(path, identity | {"library_sha256": "1"})
    assert not Record(path, identity | {"library_sha256": "1"}, fresh=True).steps
    path.write_text("[]")
    with pytest.raises(InvalidArgumentError, match="no file of first-day"):
        Record(path, identity)


def test_sensors(tmp_path: Path) -> None:
    """The sensors lie as the driver lays them out; a missing one is left out."""
    folder = tmp_path / "hwmon" / "hwmon3"
    folder.mkdir(parents=True)
    (folder / "freq1_input").write_text("2100000000\n")
    (folder / "power1_input").write_text("650000000\n")
    (folder / "temp1_input").write_text("no number")
    sensors = Sensors(tmp_path)
    assert sensors.read() == {"clock_hz": 2.1e9, "power_watts": 650.0}
    found = under_load(sensors, lambda: None, 0.1)
    assert found["power_watts"]["low"] == found["power_watts"]["high"] == 650.0
    assert found["clock_hz"]["readings"] >= 1


def _row(name: str) -> forced.Row:
    arch = pyfa_rocm.devices()[0].arch
    kernels = json.loads(pyfa_rocm._runtime.library.build_info_json())["kernels"]
    return next(row for row in kernels if (row["name"], row["arch"]) == (name, arch))


def test_a_wrong_kernel_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that writes nothing is beyond every bound, and one that changes its mind has other bits."""
    row, few = _row("fmha_merge_fp32_fp16"), forced.Sizes(8, 1, 2)
    assert forced.run(row, 0, few).right
    assert forced.run(row, 0, few) == forced.run(row, 0, few)
    monkeypatch.setattr("pyfa_rocm.fmha.fmha_merge", lambda params: None)
    outcome = forced.run(row, 0, few)
    assert not outcome.right
    assert all(np.isnan(share) for share in outcome.shares.values())
    bits = iter((np.zeros(3), np.array([0.0, -0.0, 0.0])))
    assert repeated(lambda: {"o": next(bits)}, 2)[1] is False


def test_published_problems_were_published() -> None:
    published = {(point.direction, str(point.shape), point.shape.dtype) for point in points()}
    for workload in sizes._published(instinct=True):
        assert (workload.direction, str(workload.problem), workload.problem.dtype) in published
    workloads: tuple[Workload, ...] = (TINY, *sizes._decode())
    assert all(from_json(json.loads(json.dumps(x.as_json()))) == x for x in workloads)


@pytest.mark.parametrize("arguments", [
    ("--steps", "prove,nothing"), ("--kernels", "("), ("--minutes", "0"), ("--out", "/nowhere/day.json"),
])  # fmt: skip
def test_refusals(arguments: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main.main(["first-day", *arguments])
    except SystemExit as error:
        status = int(error.code or 0)
    assert status == 2
    assert arguments[0] in capsys.readouterr().err
