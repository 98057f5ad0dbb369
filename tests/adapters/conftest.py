# SPDX-License-Identifier: MIT OR Apache-2.0
"""Puts these tests on the software device, and says which pyfa_rocm they test.

`make test-adapters` sets PYFA_ROCM_TEST_INSTALLED=1: then it has to be the installed one, never the source
tree's. Without it, `python -m pytest -c tests/adapters/pytest.ini tests/adapters` tests the checkout.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

# As in tests/conftest.py, and before anything imports NumPy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["PYFA_ROCM_DEVICE"] = "emulator"

import pytest
from plugins import (
    hypothesis_profile,  # noqa: F401
    passed,
)

import pyfa_rocm

PACKAGE = Path(pyfa_rocm.__file__).resolve().parent


def pytest_addoption(parser: pytest.Parser) -> None:
    passed.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    passed.register(config)
    if os.environ.get("PYFA_ROCM_TEST_INSTALLED") != "1":
        return
    chosen = [name for name in ("PYFA_ROCM_LIBRARY", "PYFA_ROCM_EMULATOR") if name in os.environ]
    if chosen:
        pytest.exit(f"these tests are of an installed pyfa_rocm; unset {' and '.join(chosen)}", returncode=2)
    if not PACKAGE.is_relative_to(Path(sys.prefix).resolve()):
        pytest.exit(
            f"these tests are of an installed pyfa_rocm; got {PACKAGE}, expected one below {sys.prefix}",
            returncode=2,
        )


def pytest_report_header() -> str:
    return f"pyfa_rocm {pyfa_rocm.__version__} in {PACKAGE}, on the software device"


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    """A process group of torch that has only this process."""
    from torch import distributed

    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    distributed.destroy_process_group()
