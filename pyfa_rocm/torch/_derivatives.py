# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tell which derivatives of a call are wanted, and refuse those that do not exist.

Only the operators' kernels at the key "Autograd" see this. Further down, inside a transform of torch.func, a
tensor no longer says that it is differentiated, and the results would count as constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.autograd import forward_ad

from pyfa_rocm.errors import UnsupportedError

__all__ = ["refused_in_a_graph", "require_no_derivative", "require_no_tangent"]

_INSTEAD = "torch.nn.functional.scaled_dot_product_attention"


def refused_in_a_graph(error: UnsupportedError) -> Exception:
    """Return an error as the compiler passes it on.

    A NotImplementedError is swallowed there, message and all: taken as a fake kernel that is missing.
    """
    return RuntimeError(str(error)) if torch.compiler.is_compiling() else error


def require_no_derivative(arguments: Mapping[str, Any], why: str) -> None:
    """Raise if a result would have to have a gradient or a tangent; `why` it has none."""
    require_no_tangent(arguments)
    if not torch.is_grad_enabled():
        return
    for name, x in arguments.items():
        if isinstance(x, torch.Tensor) and x.requires_grad:
            raise UnsupportedError(
                f"{name}: got a tensor with requires_grad=True, or one that torch.func differentiates, "
                f"expected neither: {why}"
            )


def require_no_tangent(arguments: Mapping[str, Any]) -> None:
    """Raise if a result would have to have a tangent."""
    if forward_ad._current_level < 0:
        return
    for name, x in arguments.items():
        if isinstance(x, torch.Tensor) and forward_ad.unpack_dual(x).tangent is not None:
            raise UnsupportedError(
                f"{name}: got a tensor with a tangent, expected one without: pyfa_rocm has no forward-mode "
                f"derivatives yet; call with tensor.detach(), or {_INSTEAD}"
            )
