# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the tests of graphs share, and the order of the tests."""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterator
from pathlib import Path

import pytest

from .support import hip
from .support.streams import Stream, module

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the runs on gfx90a, each as long as a thousand other tests: a worker gets neighbours."""
    here = [i for i in items if i.path.is_relative_to(_HERE)]
    runs = [i for i in here if i.path.stem == "test_gfx90a"]
    others = [i for i in here if i.path.stem != "test_gfx90a"]
    if not runs or not others:
        return
    first, mine = items.index(here[0]), set(here)
    mixed = list(others)
    for n, run in enumerate(runs):
        mixed.insert(n + n * len(others) // len(runs), run)
    items[:] = [*items[:first], *mixed, *(i for i in items[first:] if i not in mine)]


@pytest.fixture
def stream() -> Iterator[Stream]:
    """A stream; the kernels are loaded, which is not permitted while it is captured."""
    module()
    s = Stream()
    yield s
    hip.recover()  # from a fault that was meant
    hip.lib().hipStreamEndCapture(s.pointer, c.byref(c.c_void_p()))
    hip.lib().hipGetLastError()
    s.destroy()
