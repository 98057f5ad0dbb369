# SPDX-License-Identifier: MIT OR Apache-2.0
"""Arrays of any library, as addresses and layouts that are ready on a stream."""

from __future__ import annotations

from typing import Any

from pyfa_rocm._runtime.tensor import Tensor, as_tensor
from pyfa_rocm.array import DeviceArray
from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["Array", "to_read", "to_write"]

Array = DeviceArray | Tensor


def to_read(array: Any, name: str, handle: int) -> Array:
    """Return an array of any library as one with address and layout, in use on the stream."""
    if type(array) is DeviceArray:
        array.mark_used(handle)
        return array
    return as_tensor(array, name, handle)


def to_write(array: Any, name: str, handle: int) -> Array:
    """Like `to_read`, of what is about to be written."""
    ready = to_read(array, name, handle)
    if isinstance(ready, DeviceArray):
        ready.mark_written(handle)
    elif ready.readonly:
        raise InvalidArgumentError(f"{name}: got a read-only array, expected one that may be written")
    return ready
