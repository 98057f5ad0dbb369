# SPDX-License-Identifier: MIT OR Apache-2.0
"""The examples in Python on the pyfa_rocm that is installed."""

from __future__ import annotations

import pytest
from python_examples import PROGRAMS, run_program


@pytest.mark.parametrize("name", PROGRAMS)
def test_example(name: str) -> None:
    code, output = run_program(name)
    assert (code, output.splitlines()[-1]) == (0, "right"), output
