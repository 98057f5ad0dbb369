# SPDX-License-Identifier: MIT OR Apache-2.0
"""The order of the tests: those that cost much run first, so that pytest's workers end together."""

from __future__ import annotations

import os
from itertools import islice

import pytest
from plugins import quick


def costly_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests in equal parts for each worker, the costly ones of each at its beginning.

    Tests are costly if tests/quick.ini names them. A worker begins with a part of neighbours, and one that
    is done takes from another's end.
    """
    named = quick.cases_by_test()
    costly = [item for item in items if quick.name_of(item) in named]
    others = iter([item for item in items if quick.name_of(item) not in named])
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    ordered: list[pytest.Item] = []
    for worker in range(workers):
        ordered += costly[worker::workers]
        end = (worker + 1) * len(items) // workers
        ordered += islice(others, max(end - len(ordered), 0))
    return [*ordered, *others]
