# SPDX-License-Identifier: MIT OR Apache-2.0
"""native/estimates.toml: the header made of it, and what benchmarks/selector.py writes into it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import estimates
import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "native" / "estimates.toml"


def test_the_header_has_every_number() -> None:
    tables = estimates.read_estimates(FILE)
    text = estimates.header(tables, None)
    found = {name: int(number) for name, number in re.findall(r"int64_t (\w+) = (\d+);", text)}
    for numbers in tables.values():
        for name, number in numbers.items():
            assert f"  int64_t {name} = {number};" in text
    assert found.keys() == {name for numbers in tables.values() for name in numbers}


def test_numbers_from_the_environment() -> None:
    text = estimates.header({"forward": {"latency": 5}, "decode": {"rows": 7}}, "forward")
    assert 'FromEnvironment latency = {"forward.latency"};' in text
    assert "int64_t rows = 7;" in text


@pytest.mark.parametrize("number", ["0", "-3", "1.5", "true", '"5"'])
def test_a_number_that_is_none(tmp_path: Path, number: str) -> None:
    file = tmp_path / "estimates.toml"
    file.write_text(f"[forward]\nlatency = {number}\n")
    with pytest.raises(SystemExit, match=r"forward\.latency: got .*, expected an integer above 0"):
        estimates.read_estimates(file)


def test_the_selector_writes_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only these and the date change, comments stay, and other tables keep numbers of the same name."""
    monkeypatch.setenv("PYFA_ROCM_DEVICE", "emulator")  # which the program itself would leave set
    selector: Any = importlib.import_module("benchmarks.selector")
    before = FILE.read_text()
    after = selector.written(before, {"rows_of_a_load": 77, "latency": 1}, "2001-02-03")
    changed = [
        pair for pair in zip(before.splitlines(), after.splitlines(), strict=True) if len(set(pair)) > 1
    ]
    assert [new.partition("  #")[0] for _, new in changed] == [
        "# By benchmarks/selector.py, 2001-02-03.",
        "rows_of_a_load = 77",
        "latency = 1",
    ]
    with pytest.raises(SystemExit, match="expected one line that gives nothing"):
        selector.written(before, {"nothing": 1}, "2001-02-03")
