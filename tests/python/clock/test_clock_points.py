# SPDX-License-Identifier: MIT OR Apache-2.0
"""The clock against published measurements, and `bench --model`."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from inner import emulated, program

from benchmarks.published import against as bench_against
from benchmarks.published import judge as judge_clock
from benchmarks.published.points import ATOMICS, Point, cards, points, sources
from pyfa_rocm import UnsupportedError, emulator
from pyfa_rocm._runtime import library
from pyfa_rocm.cli import main
from pyfa_rocm.cli.bench import command as bench
from pyfa_rocm.cli.bench import loop_plot as clock_loop
from pyfa_rocm.cli.bench import model as bench_model
from pyfa_rocm.clock import trace as clock_trace
from pyfa_rocm.clock.estimate import Estimate, estimate
from pyfa_rocm.clock.subjects import AiterForward, CompositeKernel, Ours, Subject, subjects
from pyfa_rocm.emulator import Range, Time
from pyfa_rocm.oracle.problem import Problem

# The promises of the clock: for AITER's kernels, for CK's, and for counters.
HELD_OUT, COMPOSITE_KERNEL, COUNTERS = 0.06, 0.20, 0.10
# The same for AITER's forward kernel on an MI355X, for which nothing is calibrated.
MI355X = 0.15
PEAK_HZ = 2.1e9  # of an MI300X
pytestmark = pytest.mark.skipif("config.getoption('--device') == 'gpu'", reason="of the software device")


def test_points() -> None:
    """The tables are whole, and each source and family of kernels has one row to calibrate on."""
    assert cards() == ("mi300x", "mi355x")
    found = [point for point in points() if point.card == "mi300x"]
    assert Counter(point.source for point in found) == {
        "aiter_readme": 94 * 3,
        "moonmath": 54,
        "attn_dsl_bench": 20,
    }
    assert set(sources()) == {point.source for point in found}
    calibration = Counter(
        (point.source, judge_clock.subject_name(point)) for point in found if point.role == "calibration"
    )
    assert calibration == {
        ("aiter_readme", "aiter rtna"): 1,
        ("aiter_readme", "aiter backward a32 rtz"): 1,
        ("moonmath", "aiter rtna"): 1,
        ("attn_dsl_bench", "aiter rtna"): 1,
        ("attn_dsl_bench", "ck"): 1,
    }
    # A time and a speed that two columns of a source both say: 1.7592e13 operations in 35.480 ms.
    last = next(point for point in reversed(found) if point.implementation == "aiter")
    assert last.tflops == pytest.approx(495.8, abs=0.1)
    assert last.seconds == pytest.approx(35.480257e-3)
    assert (last.matrix_busy, last.lds_busy) == pytest.approx((0.72087, 0.39669))
    # A source that times more than the kernel says so, and the bytes of the copy are counted.
    beside = {name: source["times"] != "kernel" for name, source in sources().items()}
    assert beside == {"aiter_readme": False, "moonmath": False, "attn_dsl_bench": True}
    copies = [point for point in found if point.implementation != "triton"]
    assert all((point.copied_bytes > 0) == beside[point.source] for point in copies)
    triton = [point for point in found if point.implementation == "triton"]
    assert {(point.role, point.copied_bytes, point.matrix_busy) for point in triton} == {
        ("held_out", 0, None)
    }
    # The speeds that the source gives beside its times.
    speeds = {(point.shape.hdim, point.shape.seqlen): round(point.tflops) for point in triton}
    keys = (1024, 2048, 4096, 8192, 16384)
    assert [speeds[64, n] for n in keys] == [103, 174, 234, 272, 301]
    assert [speeds[128, n] for n in keys] == [138, 216, 261, 318, 364]
    assert last.copied_bytes == 2 * 16 * 16 * 16384 * 128 * 2


def test_points_of_an_mi355x() -> None:
    """The other column of AITER's README: the same problems, all but one held out, and their largest."""
    of_card = {card: [point for point in points() if point.card == card] for card in cards()}
    found = of_card["mi355x"]
    assert {point.source for point in found} == {"aiter_readme"}
    fitted = [(point.shape, point.rounding) for point in found if point.role != "held_out"]
    assert fitted == [(ATOMICS, "a32")]
    same = [point for point in of_card["mi300x"] if point.source == "aiter_readme"]
    assert [(point.shape, point.direction) for point in found] == [
        (point.shape, point.direction) for point in same
    ]
    kinds = {"aiter", "aiter backward a16", "aiter backward a32"}
    assert {judge_clock.subject_name(point) for point in found} == kinds
    largest: dict[tuple[str, bool], Point] = {}
    for point in sorted(found, key=lambda point: point.tflops):
        largest[judge_clock.subject_name(point), point.shape.causal] = point
    long = Problem(1, 64, 8, 16384, 128, False)
    causal = replace(long, causal=True)
    assert {key: (point.shape, point.tflops) for key, point in largest.items()} == {
        ("aiter", False): (long, 1437.62),
        ("aiter", True): (replace(causal, nhead_k=4), 1398.14),
        ("aiter backward a16", False): (long, 1212.72),
        ("aiter backward a16", True): (causal, 1162.805),
        ("aiter backward a32", False): (long, 843.54),
        ("aiter backward a32", True): (replace(causal, nhead_k=4), 809.685),
    }


# With these values of clock_vector the middle of the clock's range meets the time of calibration.
ASKED = {"aiter_readme": 0.0504, "moonmath": 0.2466}


@pytest.mark.parametrize("source", ASKED)
def test_a_time_of_calibration_asks_for_its_clock(source: str) -> None:
    """The time needs, to first order, a clock below the one of the range's middle, by vector work."""
    if "aiter rtna" not in subjects():
        pytest.skip("this checkout's toolchain has no objects of AITER: CK did not come from its wheel")
    (point,) = (
        point
        for point in points()
        if (point.source, point.role, point.rounding) == (source, "calibration", "rtna")
    )
    found = estimate(subjects()["aiter rtna"], point.shape)
    constant = emulator.timing_constants()["clock_vector"]
    middle, clock = (constant["fast"] + constant["slow"]) / 2, (found.clock_hz.low + found.clock_hz.high) / 2
    missing = clock * (1 - found.middle_seconds / point.seconds)
    assert middle + missing / (PEAK_HZ * found.binds["vector"]) == pytest.approx(ASKED[source], abs=0.03)


def test_the_clock_falls_as_kernel_times_ask() -> None:
    """The range of clock_vector: mean and deviation of what the sources of kernel times ask for, by rows.

    A row of calibration stands for its source's rows of AITER's forward kernels.
    """
    rows = Counter(
        point.source
        for point in points()
        if (point.card, point.implementation, point.direction) == ("mi300x", "aiter", "forward")
    )
    weights = [rows[name] for name in ASKED]
    mean = sum(a * w for a, w in zip(ASKED.values(), weights, strict=True)) / sum(weights)
    square = sum((a - mean) ** 2 * w for a, w in zip(ASKED.values(), weights, strict=True)) / sum(weights)
    constant = emulator.timing_constants()["clock_vector"]
    assert (constant["fast"], constant["slow"]) == (
        round(mean - square**0.5, 2),
        round(mean + square**0.5, 2),
    )


def _estimate(seconds: float, events: dict[str, Any] | None = None) -> Estimate:
    one = Range(1, 2)
    time = Time("mi300x", one, Range(seconds, 2 * seconds), one, one, {}, 1, 1, 1, events)
    return Estimate("kernel", one, time.seconds, one, one, {"matrix": 0.5}, 1, time)


def test_judge() -> None:
    """Errors are of the middle of the range; rows of calibration and short ones do not count."""
    shape = Problem(1, 1, 1, 4096, 128, False)
    unit = shape.flops() / 1e12  # TFLOPS of a second
    point = Point("source", "mi300x", "aiter", "rtne", shape, "forward", unit, "held_out", matrix_busy=0.4)
    rows = [
        judge_clock.Judged(point, _estimate(0.8), ""),  # 0.8 to 1.6 s
        judge_clock.Judged(replace(point, rounding="rtz", tflops=2 * unit), _estimate(0.5), ""),
        judge_clock.Judged(replace(point, role="calibration"), _estimate(9), ""),
        judge_clock.Judged(replace(point, shape=replace(shape, seqlen=1024)), _estimate(9), ""),
        judge_clock.Judged(replace(point, implementation="ck", rounding=""), _estimate(0.6), ""),
        judge_clock.Judged(replace(point, direction="backward"), None, "no kernel"),
    ]
    assert [row.within for row in rows] == [True, True, False, False, True, False]
    assert rows[0].error == pytest.approx(0.2)
    assert rows[5].error is None
    summary = judge_clock.summary(rows[:2] + rows[4:])
    assert summary["held_out_error"] == pytest.approx((0.2 + 0.5) / 2)
    assert (summary["held_out_rows"], summary["held_out_within"], summary["ck_rows"]) == (2, 2, 1)
    assert summary["ck_error"] == pytest.approx(0.1)
    assert summary["matrix_error"] == pytest.approx(0.25)
    assert (summary["orders"], summary["orders_right"]) == (1, 1)
    assert judge_clock.summary(rows)["held_out_rows"] == 2
    assert summary["held_out_error_of_card"] is None
    cards = judge_clock.errors_of_cards([rows[0], replace(rows[1], point=replace(point, role="calibration"))])
    assert cards == pytest.approx([1.2 / 0.75 - 1, 0])
    swapped = [replace(rows[0], estimate=_estimate(0.1)), rows[1]]
    assert judge_clock.orders(swapped) == [(f"aiter {shape}", False)]
    assert judge_clock.summary([])["held_out_error"] is None
    bandwidth = emulator.timing_constants()["hbm_bandwidth"]
    copied = judge_clock.Judged(replace(point, copied_bytes=10**9), _estimate(0.8), "").seconds
    assert copied is not None
    assert copied.low == pytest.approx(0.8 + 1e9 / bandwidth["fast"])
    assert copied.high == pytest.approx(1.6 + 1e9 / bandwidth["slow"])


def _judged(*arguments: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Judge published points, print the table, and return its rows and the summary."""
    if "aiter rtna" not in subjects():
        pytest.skip("this checkout's toolchain has no objects of AITER: CK did not come from its wheel")
    result = program("-m", "benchmarks.clock", *arguments, "--json")
    for row in result["rows"]:
        if row["modelled"]:
            speed = row["modelled"]["tflops"]
            print(
                f"{row['source']:15}{row['implementation']:5}{row['rounding']:5}{row['shape']!s:110}"
                f"{row['tflops']:7.1f}{speed['low']:7.1f}{speed['high']:7.1f}{row['error']:+7.1%}"
            )
    summary: dict[str, Any] = result["summary"]
    print(summary)
    return result["rows"], summary


def test_held_out() -> None:
    """In every fifth published problem AITER's kernels meet the promise, and its times are in the range."""
    rows, summary = _judged("--every", "5")
    assert summary["held_out_rows"] >= 15
    assert summary["held_out_error"] <= HELD_OUT
    own = [row for row in rows if row["source"] == "aiter_readme" and row["shape"]["seqlen"] >= 2048]
    assert len(own) >= 10
    assert all(row["within"] for row in own)


def test_roundings_and_counters() -> None:
    """Whole sources agree: the order of roundings, CK's times, and busy units in long launches."""
    _, summary = _judged("--every", "1000", "--whole", "moonmath", "attn_dsl_bench")
    assert (summary["orders_right"], summary["orders"]) == (9, 9)
    assert summary["ck_rows"] == 3
    assert summary["ck_error"] <= COMPOSITE_KERNEL
    assert summary["matrix_error_of_long"] <= COUNTERS
    assert summary["lds_error_of_long"] <= COUNTERS


def test_model(capsys: pytest.CaptureFixture[str]) -> None:
    """Both directions and masks of one length: ranges, what binds, and a kernel's name."""
    small = ("--seqlens", "256", "--hdims", "64", "--hidden", "128", "--tokens", "512")
    assert main.main(["bench", "--json", "--model", "mi300x", *small]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["card"], result["kind"]) == ("mi300x", "model")
    rows = [row for row in result["rows"] if not row["reason"]]
    assert {(row["implementation"], row["direction"], row["causal"]) for row in rows} == {
        (name, direction, causal)
        for name in ("pyfa_rocm", "ck")
        for direction in ("forward", "backward")
        for causal in (False, True)
    }
    for row in rows:
        flops = Problem(2, 2, 2, 256, 64, row["causal"]).flops(row["direction"])
        for fast, slow in (("low", "high"), ("high", "low")):
            assert row["tflops"][slow] == pytest.approx(flops / row["seconds"][fast] / 1e12)
        assert 0 < row["seconds"]["low"] <= row["seconds"]["high"]
        assert 0 < row["binds"]["matrix"] < 1
        assert ("_bwd_" in row["kernel"]) == (row["direction"] == "backward")
        assert row["launches"] >= (2 if row["direction"] == "backward" else 1)
    assert main.main(["bench", "--model", "mi300x", *small, "--direction", "forward", "--causal", "no"]) == 0
    text = capsys.readouterr().out
    assert "A model, not a measurement" in text
    assert "matrix" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--against"], "--against: needs --model mi300x"),
        (["--trace", "t.json"], "--trace: needs --model mi300x"),
        (["--model", "mi300x", "--trace", "nowhere/t.json"], "a folder that exists"),
        (["--model", "mi300x", "--against", "--trace", "t.json"], "expected a table only"),
        (["--model", "mi300x", "--against", "--seqlens", "77"], "no published row of mi300x"),
        (["--model", "mi300x", "--aiter", "."], "expected a folder with fwd_hd128_bf16_rtna.co"),
        (["--peer", "moonmath"], "--peer: needs --model mi300x"),
        (["--model", "mi300x", "--peer", "nobody=."], "expected NAME=PATH, and for NAME a Python file"),
        (["--model", "mi300x", "--against", "--peer", "moonmath=."], "expected a checkout of moonmath-ai"),
    ],
)
def test_refusals(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Arguments that do not fit are refused before anything runs."""
    assert main.main(["bench", *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("card", "arch", "option", "words"),
    [
        ("rx7900xtx", "gfx1100", (), "expected a card with published points: mi300x, mi355x"),
        ("rx9070xt", "gfx1201", (), "expected a card with published points: mi300x, mi355x"),
        ("mi355x", "gfx950", ("--seqlens", "77"), "no published row of mi355x"),
        ("mi355x", "gfx950", ("--peer", "moonmath=."), "--peer moonmath: got Emulated AMD Instinct MI355X"),
        ("mi355x", "gfx950", ("--aiter", "."), "--aiter: got --model mi355x, expected mi300x"),
    ],
)
def test_refusals_of_cards(card: str, arch: str, option: tuple[str, ...], words: str) -> None:
    """A card has the points that were published of it, and the kernels that are for it."""
    ran = emulated("-m", "pyfa_rocm", "bench", "--model", card, "--against", *option, arch=arch)
    assert ran.returncode == 2
    assert words in ran.stderr


def test_an_installed_package_has_no_points(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """They are a checkout's; the command says so."""
    monkeypatch.setattr(bench_model, "_PUBLISHED", tmp_path / "benchmarks" / "published")
    assert main.main(["bench", "--model", "mi300x", "--against"]) == 2
    assert "--against: got the package in " in capsys.readouterr().err


def _arguments(*options: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    bench.add_arguments(parser)
    return parser.parse_args(options)


def test_against(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The rows are of the card that is asked for; one without a model says why, and has its other columns."""

    def timed(way: Subject, shape: Problem, direction: str) -> Estimate:
        if way.name == "aiter" and (shape.causal or direction == "backward"):
            raise UnsupportedError("it races")
        return _estimate(shape.flops(direction) * (1e-15 if way.name == "aiter" else 0.5e-15))

    monkeypatch.setattr(bench_against, "estimate", timed)
    ways = {way.name: way for way in (Ours(), CompositeKernel(), AiterForward())}
    options = ("--model", "mi355x", "--against", "--seqlens", "16384")
    assert bench_against.run(_arguments(*options, "--json"), ways) == 0
    result = json.loads(capsys.readouterr().out)
    assert list(result["sources"]) == ["aiter_readme"]
    assert {row["card"] for row in result["rows"]} == {"mi355x"}
    assert len(result["rows"]) == 4 * 3
    models = {row["measures"]: bool(row["modelled"]) for row in result["rows"] if not row["shape"]["causal"]}
    assert models == {"aiter": True, "aiter backward a16": False, "aiter backward a32": False}
    for row in result["rows"]:
        assert row["columns"]["ours"]
        assert row["columns"]["ck"]
        assert bool(row["reason"]) == (row["modelled"] is None)
    summary = result["summary"]
    assert summary["ours_over_aiter"] == pytest.approx(2)  # of the problem without a mask
    assert (summary["held_out_rows"], summary["backward_rows"]) == (2, 0)
    assert bench_against.run(_arguments(*options), ways) == 0
    text = capsys.readouterr().out
    assert "No model of aiter: it races" in text
    assert "No model of aiter backward a16: there is no aiter backward a16 here" in text


def test_against_on_an_mi355x() -> None:
    """AITER's largest published forward speeds are near the middle; ours and CK's are beside."""
    if "gfx950" not in json.loads(library.build_info_json())["archs"]:
        pytest.skip("the library was built without kernels for gfx950")
    options = ("--seqlens", "16384", "--direction", "forward")
    result = program(
        "-m", "pyfa_rocm", "bench", "--json", "--model", "mi355x", "--against", *options, arch="gfx950"
    )
    rows = result["rows"]
    assert [row["tflops"] for row in rows] == [1437.62, 1432.94, 1392.485, 1398.14]
    for row in rows:
        assert row["columns"]["ours"]["kernel"].startswith("fmha_fwd_bf16_d128")
        assert row["columns"]["ck"]["kernel"].startswith("fmha_fwd_bf16_d128")
        if row["shape"]["causal"]:
            assert "race for LDS" in row["reason"]
    if rows[0]["reason"]:
        pytest.skip(f"AITER's kernel: {rows[0]['reason']}")
    for row in rows[:2]:
        assert abs(row["error"]) <= MI355X
    assert result["summary"]["held_out_rows"] == 2
    assert result["summary"]["ours_over_aiter"] >= 1.05


def test_trace(tmp_path: Path) -> None:
    """The trace has every instruction of a compute unit, on its wave's line, and waits before it."""
    file = tmp_path / "trace.json"
    arguments = [
        "--seqlens",
        "256",
        "--hdims",
        "64",
        "--hidden",
        "64",
        "--tokens",
        "256",
        "--direction",
        "forward",
    ]
    result = program(
        "-m", "pyfa_rocm", "bench", "--json", "--model", "mi300x", "--trace", str(file), *arguments
    )
    assert result["rows"]
    trace = json.loads(file.read_text())
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert {event["cat"] for event in events} >= {"mfma", "valu", "lds", "wait"}
    for event in events:
        assert event["dur"] > 0
        assert event["ts"] >= 0
    # An in-order wave issues one instruction after the other.
    for wave in {event["tid"] for event in events}:
        starts = [event["ts"] for event in events if event["tid"] == wave and event["cat"] != "wait"]
        assert starts == sorted(starts)
    names = {
        event["tid"]: event["args"]["name"]
        for event in trace["traceEvents"]
        if event["name"] == "thread_name"
    }
    assert names == {wave: f"wave {wave}" for wave in names}
    assert len(names) >= 4


def test_loop() -> None:
    """The picture's lanes are those of one SIMD's waves and of its ports, cut to the window."""
    count = 100
    recorded = {
        "slot_cycles": 4,
        "wave": [0, 1] * (count // 2),
        "simd": [0, 1] * (count // 2),
        "slot": list(range(count)),
        "slots": [8] * count,
        "stalled": [2] * count,
        "reason": [0] * count,
        "instruction": [7] * count,
        "reasons": ["lds"],
        "instructions": {"7": {"pc": 0, "text": "v_mfma", "class": "mfma"}},
    }
    begin, end = clock_loop.window(recorded, cycles=40)
    assert (begin, end) == (49.5 - 5, 49.5 + 5)
    lanes = clock_loop.lanes(recorded, simd=0)
    assert {lane for lane, _ in lanes} == {"wave 0", "matrix port"}
    for spans in lanes.values():
        assert len(spans) == count // 2
    assert len(list(clock_trace.events(_estimate(1, recorded)))) == 2 * count + 4


def test_ours_over_aiter() -> None:
    """The low end: the worse of both problems and both ends, against AITER's better kernel to nearest."""
    seconds = {"pyfa_rocm": 1.0, "aiter rtna": 1.2, "aiter rtne": 1.1, "aiter rtz": 0.5}

    def clock(name: str, shape: Problem, direction: str = "forward") -> Estimate | None:
        del direction
        slower = 2 if shape.causal and name == "pyfa_rocm" else 1
        return _estimate(seconds[name] * slower) if name in seconds else None

    assert bench_against.ours_over_aiter(clock) == pytest.approx(1.1 / 2)
    del seconds["aiter rtna"], seconds["aiter rtne"]
    assert bench_against.ours_over_aiter(clock) is None
