# SPDX-License-Identifier: MIT OR Apache-2.0
"""Code that the modules share: checks of inputs, and stand-ins for flash-attn's autograd functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from pyfa_rocm.errors import InvalidArgumentError
from pyfa_rocm.torch._tensors import require_tensors

__all__ = ["applied", "number", "require_inputs"]


def require_inputs(dims: str, **tensors: torch.Tensor) -> None:
    """Raise unless these are tensors of dimensions that are named so, the last of them not empty."""
    require_tensors(**tensors)
    count = dims.count(",") + 1
    for name, x in tensors.items():
        if x.dim() != count:
            raise InvalidArgumentError(
                f"{name}: got shape {tuple(x.shape)}, expected {count} dimensions {dims}"
            )
        if not x.shape[-1]:
            raise InvalidArgumentError(f"{name}: got shape {tuple(x.shape)}, expected hdim above 0")


def number(length: Any) -> Any:
    """Return a length as a number, which some callers have as a tensor."""
    return length.item() if isinstance(length, torch.Tensor) else length


def applied(name: str, function: Callable[..., Any]) -> type:
    """Return a class whose `apply` calls a public function by position, without naming its defaults.

    flash-attn's functions also take, last, whether gradients are enabled, which torch knows itself.
    """
    count = len(inspect.signature(function).parameters)

    def apply(*values: Any) -> Any:
        return function(*values[:count])

    doc = f"Its `apply` is `{function.__name__}`: gradients are recorded there."
    return type(name, (), {"__doc__": doc, "__module__": function.__module__, "apply": staticmethod(apply)})
