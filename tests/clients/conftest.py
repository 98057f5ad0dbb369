# SPDX-License-Identifier: MIT OR Apache-2.0
"""Puts a client on the software device, before anything imports it."""

from __future__ import annotations

import ctypes
import importlib.util
import os

# As in tests/conftest.py, and before anything imports NumPy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["PYFA_ROCM_DEVICE"] = "emulator"

import pytest
from plugins import (
    hypothesis_profile,  # noqa: F401
    passed,
)

HAS_JAX = importlib.util.find_spec("jax_rocm7_plugin") is not None

if HAS_JAX:
    from clients.with_jax import jax_setup

    os.environ |= jax_setup.ENVIRONMENT | {"FMHA_EMU_DEVICES": "4", "FMHA_EMU_TRACK_INITIALIZED": "1"}


def pytest_addoption(parser: pytest.Parser) -> None:
    passed.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """The loader's path is fixed when a process starts."""
    passed.register(config)
    if not HAS_JAX:
        return
    try:
        ctypes.CDLL("libamdhip64.so.7")
    except OSError as error:
        pytest.exit(f"run these tests with `pyfa-rocm device -- pytest ...`: {error}", returncode=2)
