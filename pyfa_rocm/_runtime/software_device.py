# SPDX-License-Identifier: MIT OR Apache-2.0
"""The software device's functions that are no part of HIP: fmha_emu_..., through ctypes."""

from __future__ import annotations

import ctypes
import json
from typing import Any

from pyfa_rocm._runtime import hip
from pyfa_rocm.errors import HipError

__all__ = ["failure", "json_of", "library"]


def library() -> ctypes.CDLL:
    """Return the software device; HipError if the HIP runtime in use is that of a GPU."""
    runtime = hip.runtime()
    if not runtime.emulated:
        raise HipError(
            f"profile: the HIP runtime is {runtime.path}, expected the software device "
            "(PYFA_ROCM_DEVICE=emulator)"
        )
    return ctypes.CDLL(runtime.path)


def failure(name: str, status: int) -> HipError:
    """Return the exception for the status of a function, with the device's own words."""
    tell = library().fmha_emu_last_error
    tell.restype = ctypes.c_char_p
    words = tell().decode(errors="replace")
    return HipError(f"{hip.failure(name, status)}: {words}")


def json_of(function: Any, *args: Any) -> Any:
    """Call a function that gives text to a buffer and returns the bytes needed, or an error below 0."""
    size = 0
    while True:
        buffer = ctypes.create_string_buffer(max(size, 1))
        needed = function(*args, buffer, ctypes.c_size_t(size))
        if needed < 0:
            raise failure(function.__name__, -needed)
        if needed <= size:
            return json.loads(buffer.value)
        size = needed
