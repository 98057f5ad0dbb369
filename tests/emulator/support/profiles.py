# SPDX-License-Identifier: MIT OR Apache-2.0
"""Helpers that the tests of the profile share."""

from __future__ import annotations

import ctypes as c
import json
from typing import Any

from . import hip

LINE = 128


def text(name: str, *args: Any) -> Any:
    """The JSON that one of fmha_emu_profile and its kin gives."""
    function = getattr(hip.lib(), name)
    size = function(*args, None, c.c_size_t(0))
    assert size > 0
    buffer = c.create_string_buffer(size)
    assert function(*args, buffer, c.c_size_t(size)) == size
    return json.loads(buffer.value)
