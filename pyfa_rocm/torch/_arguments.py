# SPDX-License-Identifier: MIT OR Apache-2.0
"""Arguments of the public functions as the operators take them."""

from __future__ import annotations

from typing import Any

import torch

from pyfa_rocm._call.numbers import to_integer
from pyfa_rocm.errors import InvalidArgumentError
from pyfa_rocm.torch._tensors import dtype_named

__all__ = ["length", "output_type", "window"]


def window(window_size: Any) -> tuple[int, int]:
    """Return the two sides of a window."""
    try:
        left, right = window_size
        if int(left) != left or int(right) != right:
            raise ValueError("not integers")
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"window_size: got {window_size!r}, expected two integers") from error
    return int(left), int(right)


def length(name: str, value: Any) -> Any:
    """Return a bound of lengths, which may be a symbol."""
    return value if isinstance(value, (int, torch.SymInt, torch.Tensor)) else to_integer(name, value)


def output_type(out_dtype: torch.dtype | str | None) -> torch.dtype | None:
    """Return the type that an output is to have; None: nobody says."""
    return dtype_named(out_dtype, "out_dtype") if isinstance(out_dtype, str) else out_dtype
