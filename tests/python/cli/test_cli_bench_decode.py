# SPDX-License-Identifier: MIT OR Apache-2.0
"""`bench decode`: what it counts, how that compares with what must be, times, pictures, and refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import pyfa_rocm
from pyfa_rocm.cli import main
from pyfa_rocm.cli.bench import decode as bench_decode
from pyfa_rocm.cli.bench import text as bench_text
from pyfa_rocm.cli.bench.decode_rates import rates
from pyfa_rocm.cli.bench.decode_trial import DecodeTrial
from pyfa_rocm.device import current_device, describe

SMALL = ("--batches", "1,2", "--contexts", "300", "--groups", "4", "--hdim", "64")
emulated = pytest.mark.skipif("config.getoption('--device') == 'gpu'", reason="of the software device")


def _json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main.main(["bench", "decode", "--json", *arguments]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


@emulated
@pytest.mark.parametrize("page_size", ["1", "16", "128"])
def test_traffic_and_instructions(page_size: str, capsys: pytest.CaptureFixture[str]) -> None:
    """K and V are read once a group, and compute units have instructions to spare: what decode must show."""
    arguments = ("--contexts", "1024", "--groups", "1,4,8,16", "--page-size", page_size)
    for splits in ("1", "0"):
        rows = _json(capsys, *arguments, "--splits", splits, "--batches", "2")["rows"]
        assert [row["group"] for row in rows] == [1, 4, 8, 16]
        for row in rows:
            counted, least = row["counted"], 2 * 2 * 1024 * 2 * 128 * 2 + 2 * 2 * 2 * row["group"] * 128 * 2
            assert row["least_bytes"] == least
            assert least <= counted["unsplit_ratio"] * least
            assert counted["unsplit_ratio"] <= 1.02
            assert counted["mfmas"] == 2 * 2 * (1024 // 16) * (2 * 128 // 16)  # MFMA or WMMA of 16 x 16 x 16
            assert counted["times_hbm"] >= 1.3
            assert (row["splits"] == 1) == (splits == "1") == (len(counted["launches"]) == 1)
            assert (counted["hbm_ratio"] == counted["unsplit_ratio"]) == (splits == "1")
            assert 0 < row["max_difference"] < 0.01
            assert (row["milliseconds"], row["bytes_per_s"]) == (None, None)


@emulated
def test_rate() -> None:
    """The arithmetic, by hand: an MI300X has 1216 SIMDs, an instruction takes 4 cycles and an MFMA 16."""
    arch = describe(current_device()).arch
    by_hand = {
        "gfx942": (4 * 20 + 16 * 10, 1216 * 2.1e9, 5.3e12),
        "gfx1100": (20 + 32 * 10, 192 * 2.5e9, 0.96e12),
        "gfx1201": (20 + 16 * 10, 128 * 2.97e9, 0.64e12),
    }
    if arch not in by_hand:
        pytest.skip(f"no arithmetic by hand for {arch}")
    cycles, rate, bandwidth = by_hand[arch]
    assert rates(arch).full(1000, 30, 10) == pytest.approx(1000 / cycles * rate)
    assert rates(arch).memory_bytes_per_s == bandwidth


@emulated
def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["bench", "decode", *SMALL]) == 0
    text = capsys.readouterr().out
    assert "Counts of the software device, not times" in text
    assert "decode, batch 2" in text
    assert "TB/s\n" not in text
    assert max(map(len, text.splitlines())) <= bench_text.WIDTH


def test_times(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The way of a card, which any HIP runtime can take."""
    monkeypatch.setattr(bench_decode, "runtime", lambda: replace(pyfa_rocm.runtime(), emulated=False))
    result = _json(capsys, *SMALL, "--repeat", "3")
    assert (result["kind"], result["repeat"]) == ("times", 3)
    for row in result["rows"]:
        assert row["counted"] is None
        assert row["bytes_per_s"] == pytest.approx(row["least_bytes"] / row["milliseconds"] * 1e3)
        assert 0 < row["max_difference"] < 0.01
    assert main.main(["bench", "decode", *SMALL, "--repeat", "3"]) == 0
    assert "Time: median of 3 calls, by HIP events" in capsys.readouterr().out


def test_no_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["bench", "decode", *SMALL, "--hdim", "1024"]) == 1
    assert "hdim_q = 1024" in capsys.readouterr().out


def test_sizes_of_a_card() -> None:
    """All of the issue's range."""
    sizes = bench_decode.CARD
    assert (min(sizes.batches), max(sizes.batches)) == (1, 64)
    assert (min(sizes.contexts), max(sizes.contexts)) == (1024, 131072)
    assert DecodeTrial(64, 64, 8, 1, 128, False, seqlen_k=131072).kv_bytes == 2**35


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--contexts", "0"], ["--contexts", "'0'", "1 or more"]),
        (["--page-size", "24"], ["--page-size", "24", "power of two"]),
        (["--splits", "129"], ["num_splits = 129", "128"]),
        (["--plot", "picture.pdf"], ["--plot", "picture.pdf", ".png or .svg"]),
    ],
    ids=str,
)
def test_refused(arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = main.main(["bench", "decode", *SMALL, *arguments])
    except SystemExit as error:
        status = int(error.code or 0)
    assert status == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    for word in words:
        assert word in printed.err
