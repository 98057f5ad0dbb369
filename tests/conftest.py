# SPDX-License-Identifier: MIT OR Apache-2.0
"""Chooses the device before anything binds a HIP runtime."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

# The oracle's matrix products are small: BLAS threads would only wait for each other, and for other workers.
# Said before anything imports NumPy.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from pathlib import Path

import pytest
from plugins import (
    errors,
    heap,
    hypothesis_profile,  # noqa: F401
    passed,
)
from plugins.order import costly_first
from plugins.progress import Progress
from plugins.quick import Quick


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        choices=("emulator", "gpu"),
        default="emulator",
        help="where kernels run (default: emulator)",
    )
    parser.addoption(
        "--quick", action="store_true", help="run the part of the tests that tests/quick.ini says"
    )
    parser.addoption(
        "--budget", type=float, default=0, metavar="SECONDS", help="with --quick: begin no test after that"
    )
    parser.addoption(
        "--full-follows",
        action="store_true",
        help="with --quick: leave to the whole run that follows what it would run again: tests that force "
        "one kernel, and all but one case of others",
    )
    passed.add_options(parser)
    parser.addoption(
        "--soak",
        type=float,
        default=6,
        metavar="SECONDS",
        help="how long random calls run whose memory must not grow (default: 6)",
    )


def pytest_configure(config: pytest.Config) -> None:
    heap.keep_freed()
    os.environ["PYFA_ROCM_DEVICE"] = config.getoption("--device")
    from pyfa_rocm.array import memory

    # So that the software device sees each array come and go: fresh memory, and none once it is gone.
    memory.most_kept_bytes = 0
    if config.getoption("--quick"):
        counts_there = passed.may_count if config.getoption("--full-follows") else None
        config.pluginmanager.register(Quick(config.getoption("--budget"), counts_there))
    is_worker = hasattr(config, "workerinput")
    if folder := os.environ.get(errors.VARIABLE):
        config.pluginmanager.register(errors.Keeping(Path(folder)))
    passed.register(config)
    if not is_worker and config.get_verbosity() <= 0:
        config.pluginmanager.register(Progress(config))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest."""
    items[:] = costly_first(items)


def pytest_collection_finish() -> None:
    """Spare the garbage collector what lives as long as the tests: modules, and thousands of tests."""
    gc.collect()
    gc.freeze()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """On a GPU leave out the emulator's own tests: a process may have one HIP runtime."""
    gpu = config.getoption("--device") == "gpu"
    return True if gpu and collection_path.name == "emulator" else None


def pytest_report_header(config: pytest.Config) -> str:
    return f"pyfa_rocm device: {config.getoption('--device')}"


@pytest.fixture
def takes_ctrl_c() -> Iterator[None]:
    """Ctrl-C interrupts, even if this program's parent ignored SIGINT, as shells do for background jobs."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def device_kind(request: pytest.FixtureRequest) -> str:
    """Where kernels run: "emulator" or "gpu"."""
    return str(request.config.getoption("--device"))
