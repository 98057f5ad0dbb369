# SPDX-License-Identifier: MIT OR Apache-2.0
"""Fixtures that the tests of graphs share."""

from __future__ import annotations

import ctypes as c
from collections.abc import Iterator

import pytest

from .support import hip
from .support.streams import Stream, module


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
