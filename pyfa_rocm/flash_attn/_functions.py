# SPDX-License-Identifier: MIT OR Apache-2.0
"""What stands for flash-attn's autograd functions, of which some programs call `apply`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["applied"]


def applied(name: str, function: Callable[..., Any]) -> type:
    """Return a class whose `apply` calls a public function by position, without naming its defaults.

    What flash-attn's functions take behind its arguments, whether gradients are enabled, torch knows itself.
    """
    count = len(inspect.signature(function).parameters)

    def apply(*values: Any) -> Any:
        return function(*values[:count])

    doc = f"Its `apply` is `{function.__name__}`: gradients are recorded there."
    return type(name, (), {"__doc__": doc, "__module__": function.__module__, "apply": staticmethod(apply)})
