# SPDX-License-Identifier: MIT OR Apache-2.0
"""Puts an engine on the software device, before anything imports it."""

from __future__ import annotations

import os

# As in tests/conftest.py, and before anything imports NumPy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["PYFA_ROCM_DEVICE"] = "emulator"

import pytest
from plugins import passed


def pytest_addoption(parser: pytest.Parser) -> None:
    passed.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    passed.register(config)
