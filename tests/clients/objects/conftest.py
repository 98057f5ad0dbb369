# SPDX-License-Identifier: MIT OR Apache-2.0
"""Fixtures that the tests of the code objects share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from clients.objects.launch import Memory

os.environ.setdefault("FMHA_EMU_QUIET", "1")  # findings are expected, and asserted


@pytest.fixture
def memory() -> Iterator[Memory]:
    """Device memory, given back after the test."""
    m = Memory()
    yield m
    m.free()
