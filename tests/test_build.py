# SPDX-License-Identifier: MIT OR Apache-2.0
"""The build's own programs: catalogue, kernel report, and what the build at hand wrote with them."""

from __future__ import annotations

import hashlib
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ROOT / "native" / "tools"
BUILD = ROOT / "build" / "release"
BLOCK = """
[[kernels]]
family = "fwd"
source = "fwd.hip"
set = "default"
arch = ["gfx90a", "gfx942"]
dtype = "bf16"
hdim = [[64, 64], [128, 128]]
mask = false
pad = [false, true]
"""


def list_kernels(
    tmp_path: Path, catalogue: str, kernel_set: str = "full", targets: str = "gfx942"
) -> subprocess.CompletedProcess[str]:
    """Run catalogue.py over a catalogue of the test's own."""
    (tmp_path / "catalogue.toml").write_text(catalogue)
    command = [sys.executable, str(TOOLS / "catalogue.py"), str(tmp_path / "catalogue.toml")]
    command += ["--set", kernel_set, "--targets", targets, "--out", str(tmp_path / "out")]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def rows(tmp_path: Path) -> set[str]:
    """What catalogue.py wrote, as <arch>/<name>."""
    return {
        str(path.relative_to(tmp_path / "out")).removesuffix(".row.json")
        for path in (tmp_path / "out").rglob("*.row.json")
    }


def test_block_stands_for_every_combination(tmp_path: Path) -> None:
    assert list_kernels(tmp_path, BLOCK, "default", "gfx942").returncode == 0
    names = ("fmha_fwd_bf16_d64", "fmha_fwd_bf16_d64_pad", "fmha_fwd_bf16_d128", "fmha_fwd_bf16_d128_pad")
    assert rows(tmp_path) == {f"gfx942/{name}" for name in names}


@pytest.mark.parametrize(("kernel_set", "count"), [("ci", 0), ("default", 8), ("full", 8)])
def test_sets_nest(tmp_path: Path, kernel_set: str, count: int) -> None:
    assert list_kernels(tmp_path, BLOCK, kernel_set, "gfx90a,gfx942").returncode == 0
    assert len(rows(tmp_path)) == count


@pytest.mark.parametrize(
    ("catalogue", "targets", "said"),
    [
        (BLOCK + BLOCK, "gfx942", "block 2 makes fmha_fwd_bf16_d64 for gfx90a a second time"),
        (BLOCK.replace("bf16", "fp8"), "gfx942", "dtype is 'fp8', expected one of fp16, bf16"),
        (BLOCK.replace('set = "default"', ""), "gfx942", "missing set"),
        (BLOCK + "tile_m = 128", "gfx942", "unknown key tile_m"),
        (BLOCK, "gfx906", "FMHA_GPU_TARGETS: got gfx906, expected some of gfx90a, gfx942"),
    ],
)
def test_catalogue_says_what_is_wrong(tmp_path: Path, catalogue: str, targets: str, said: str) -> None:
    result = list_kernels(tmp_path, catalogue, targets=targets)
    assert result.returncode == 1
    assert said in result.stderr


def support_table(tmp_path: Path, catalogue: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run support_table.py over a catalogue of the test's own and tmp_path/README.md."""
    (tmp_path / "catalogue.toml").write_text(catalogue)
    command = [sys.executable, str(TOOLS / "support_table.py"), *arguments]
    command += [str(tmp_path / "catalogue.toml"), str(tmp_path / "README.md")]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_support_table(tmp_path: Path) -> None:
    """Lines that differ in one thing become one; what has a narrower kernel stands by itself."""
    readme = tmp_path / "README.md"
    # From the repository's own: the marks.
    marks = [
        line for line in (ROOT / "README.md").read_text().splitlines(True) if "<!-- support-table" in line
    ]
    readme.write_text("above\n" + marks[0] + "old\n" + marks[1] + "below\n")
    masked = BLOCK.replace("mask = false", "mask = true").replace("[false, true]", "false")
    masked = masked.replace('"default"', '"full"').replace(', "gfx942"', "")
    assert support_table(tmp_path, BLOCK + masked, "--check").returncode == 1
    assert support_table(tmp_path, BLOCK + masked).returncode == 0
    assert support_table(tmp_path, BLOCK + masked, "--check").returncode == 0
    text = readme.read_text()
    assert text.startswith("above\n")
    assert text.endswith("below\n")
    cells = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"
    ]
    tile = "multiples of the kernel's key tile"
    assert cells[2:] == [
        ["forward", "gfx90a, gfx942", "bf16", "64, 128", "none", "any", "default"],
        [
            "forward",
            "gfx90a",
            "bf16",
            "64, 128",
            "causal (top left, bottom right), sliding window",
            tile,
            "full",
        ],
    ]


def test_support_table_needs_its_marks(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("no marks\n")
    result = support_table(tmp_path, BLOCK)
    assert result.returncode == 1
    assert "expected one line '<!-- support-table" in result.stderr
    assert (tmp_path / "README.md").read_text() == "no marks\n"


def test_same_catalogue_rewrites_nothing(tmp_path: Path) -> None:
    list_kernels(tmp_path, BLOCK)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.*")}
    list_kernels(tmp_path, BLOCK)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.*")} == before


@pytest.mark.parametrize("resource", ["vgpr_spills", "sgpr_spills", "scratch_bytes"])
def test_spills_need_a_reason(monkeypatch: pytest.MonkeyPatch, resource: str) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))
    module = importlib.import_module("report")

    uses: dict[str, Any] = {"vgpr_spills": 0, "sgpr_spills": 0, "scratch_bytes": 0}
    row = {"arch": "gfx942", "name": "kernel", "allow_scratch": None, **uses}
    assert module.complaint(row) is None
    assert f"kernel: {resource} 4; expected none" in module.complaint(row | {resource: 4})
    assert module.complaint(row | {resource: 4, "allow_scratch": "measured faster"}) is None


def test_build_report_describes_the_code_objects() -> None:
    report = json.loads((BUILD / "kernels.json").read_text())
    assert report["kernels"]
    for kernel in report["kernels"]:
        image = (BUILD / "kernels" / kernel["arch"] / f"{kernel['name']}.co").read_bytes()
        assert hashlib.sha256(image).hexdigest() == kernel["sha256"]
        assert kernel["kernarg_bytes"] >= 136
        assert kernel["block_size"] % 64 == 0
        # Each step multiplies tile_m x tile_n x hdim twice; a 32x32x16 step is two MFMAs of one of the waves.
        steps = 2 * kernel["tile_m"] * kernel["tile_n"] * kernel["hdim_q"] // (32 * 32 * 8)
        assert kernel["main_loop"]["mfma"] == steps // (kernel["block_size"] // 64)
