# SPDX-License-Identifier: MIT OR Apache-2.0
"""Registers the provider once, on a software device that checks all it can."""

from __future__ import annotations

import os
from pathlib import Path

os.environ |= {"FMHA_EMU_CHECKS": "all", "FMHA_EMU_TRACK_INITIALIZED": "1", "FMHA_EMU_DEVICES": "2"}

import onnxruntime
import pytest
from engines.with_onnxruntime.sessions import LIBRARY


def pytest_configure() -> None:
    """Say what to do if there is nothing to test."""
    if not Path(LIBRARY).exists():
        pytest.exit(f"no {LIBRARY}: build the target fmha_onnxruntime with FMHA_ONNXRUNTIME=ON", returncode=2)
    onnxruntime.register_execution_provider_library("fmha", LIBRARY)
