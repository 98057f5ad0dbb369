# SPDX-License-Identifier: MIT OR Apache-2.0
"""The examples in Python and Rust on the pyfa_rocm that is installed: a wheel is a prefix for Rust."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages.python_examples import FOLDER, PROGRAMS, run_program
from pages.rust_example import Cargo

import pyfa_rocm

PACKAGE = Path(pyfa_rocm.__file__).resolve().parent


@pytest.mark.parametrize("name", PROGRAMS)
def test_python(name: str) -> None:
    code, output = run_program(name)
    assert (code, output.splitlines()[-1]) == (0, "right"), output


@pytest.mark.skipif(
    not (PACKAGE / "lib").is_dir(), reason="a checkout: tests/docs/test_examples.py has an installed prefix"
)
def test_rust(tmp_path: Path) -> None:
    rust = FOLDER.parent / "rust"
    cargo = Cargo(rust, tmp_path, PACKAGE / "lib" / "fmha_rocm" / "emulator" / "libamdhip64.so.6")
    result = cargo("run", "--example", "attention", FMHA_ROCM_PREFIX=str(PACKAGE))
    assert (result.returncode, result.stdout.splitlines()[-1]) == (0, "right"), result.stdout + result.stderr
    assert str(PACKAGE) in result.stdout  # the wheel's software device
