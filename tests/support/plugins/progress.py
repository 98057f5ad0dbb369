# SPDX-License-Identifier: MIT OR Apache-2.0
"""How far a run of tests is: a line every ten seconds, in place of a dot a test."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tqdm import tqdm

SECONDS_BETWEEN_LINES = 10


class Progress:
    """The plugin, for the process that reports."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.total = self.done = self.failed = 0
        self.began = self.told = time.monotonic()

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the tests, which without workers are this process's own."""
        self.begin(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Count the tests, as a worker tells them."""
        self.begin(len(ids))

    def begin(self, total: int) -> None:
        """Start the clock."""
        self.total = total
        self.began = self.told = time.monotonic()

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Print no dot for what passed or was skipped."""
        if report.passed and report.when == "call":
            return "passed", "", "PASSED"
        return ("skipped", "", "SKIPPED") if report.skipped else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count it, and say how far all is."""
        self.failed += report.failed
        self.done += report.when == "teardown"
        now = time.monotonic()
        if now - self.told < SECONDS_BETWEEN_LINES:
            return
        self.told = now
        reporter: Any = self.config.pluginmanager.get_plugin("terminalreporter")
        failed = f", {self.failed} FAILED" if self.failed else ""
        meter = tqdm.format_meter(self.done, self.total, now - self.began, 100, "tests", unit="test")
        reporter.ensure_newline()
        reporter.write_line(meter + failed)
