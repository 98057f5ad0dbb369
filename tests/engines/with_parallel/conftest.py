# SPDX-License-Identifier: MIT OR Apache-2.0
"""Groups of 2, 4 and 8 processes, which start once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from engines.with_parallel.ranks import Ranks


@pytest.fixture(scope="session")
def ranks() -> Iterator[Callable[[int], Ranks]]:
    """Return the group of so many processes."""
    found: dict[int, Ranks] = {}
    with ExitStack() as stack:

        def of(size: int) -> Ranks:
            if size not in found:
                found[size] = stack.enter_context(Ranks(size))
            return found[size]

        yield of
