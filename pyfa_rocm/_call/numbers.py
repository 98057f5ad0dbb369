# SPDX-License-Identifier: MIT OR Apache-2.0
"""Numbers given as arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyfa_rocm.errors import InvalidArgumentError

__all__ = [
    "HDIM_MULTIPLE",
    "NOT_OF_C",
    "can_drop",
    "operations",
    "positive_scale",
    "to_float",
    "to_integer",
    "truth",
]

# Head dims that the kernels take are multiples of this.
HDIM_MULTIPLE = 8
# Python, cffi and NumPy raise these for a value that a field of a C struct cannot hold.
NOT_OF_C = (AttributeError, KeyError, OverflowError, TypeError, ValueError)


def can_drop(p_drop: float) -> bool:
    """Tell whether dropout with a chance drops anything: it keeps all if it is 1 to keep, in float32."""
    return bool(np.float32(1.0 - float(np.float32(p_drop))) < 1)


def operations(pairs: int, nhead: int, hdim_q: int, hdim_v: int, *, backward: bool) -> int:
    """Return the operations of so many pairs of a query and a key in each head, as the field counts them.

    Forward makes S and O; backward S, dQ and dK, and dP and dV: of a multiplication and an addition each.
    """
    return 2 * nhead * pairs * (3 * hdim_q + 2 * hdim_v if backward else hdim_q + hdim_v)


def positive_scale(query: Any, scale: float) -> tuple[Any, float]:
    """Return query and a scale above 0, as the kernels need it, that give the same scores."""
    if scale < 0:
        return -query, -scale
    return (query, scale) if scale else (query * 0, 1.0)


def to_float(name: str, value: Any) -> float:
    """Return a number as a float."""
    try:
        if isinstance(value, (str, bytes)):  # which float would read
            raise TypeError("not a number")
        return float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"{name}: got {value!r}, expected a number") from error


def to_integer(name: str, value: Any, least: int = 0) -> int:
    """Return an integer, not below `least`."""
    try:
        number = int(value)
        if number != value:
            raise ValueError("not an integer")
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"{name}: got {value!r}, expected an integer") from error
    if number < least:
        raise InvalidArgumentError(f"{name}: got {number}, expected {least} or more")
    return number


def truth(name: str, value: Any) -> bool:
    """Return whether an option is on. An array of several elements, for one, does not say."""
    try:
        return bool(value)
    except (TypeError, ValueError) as error:
        raise InvalidArgumentError(f"{name}: got {value!r}, expected True or False") from error
