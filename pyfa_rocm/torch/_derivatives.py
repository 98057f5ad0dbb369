# SPDX-License-Identifier: MIT OR Apache-2.0
"""Derivatives, of which there are none: what torch would differentiate is refused.

Only the operators' kernels at the key "Autograd" see this. Further down, inside a transform of torch.func, a
tensor no longer says that it is differentiated, and the results would count as constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.autograd import forward_ad

from pyfa_rocm.errors import UnsupportedError

__all__ = ["before_derivatives", "require_no_derivative"]

_BELOW = torch._C._after_autograd_keyset
_DEVICES = (torch._C.DispatchKey.CPU, torch._C.DispatchKey.CUDA)


def before_derivatives(operator: Any, run: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel of an operator at the key "Autograd": it refuses derivatives, and goes on.

    `run` is the operator's kernel on tensors with memory. It is called at once if it is the next: a second
    way through torch's dispatcher would take as long as the first.
    """
    names = [x.name for x in operator._schema.arguments]

    def kernel(keyset: torch._C.DispatchKeySet, *arguments: Any) -> Any:
        try:
            require_no_derivative(dict(zip(names, arguments, strict=False)))
        except UnsupportedError as error:
            if not torch.compiler.is_compiling():
                raise
            # A NotImplementedError is swallowed there, message and all.
            raise RuntimeError(str(error)) from error
        below = keyset & _BELOW
        if below.highestPriorityTypeId() in _DEVICES:
            return run(*arguments)
        return operator.redispatch(below, *arguments)

    return kernel


def require_no_derivative(arguments: Mapping[str, Any]) -> None:
    """Raise if a result would have to have a gradient or a tangent."""
    backward, forward = torch.is_grad_enabled(), forward_ad._current_level >= 0
    if not (backward or forward):
        return
    for name, x in arguments.items():
        if not isinstance(x, torch.Tensor):
            continue
        if backward and x.requires_grad:
            raise UnsupportedError(
                f"{name}: got a tensor with requires_grad=True, or one that torch.func differentiates, "
                "expected neither: pyfa_rocm has no backward pass yet; call under torch.no_grad(), with "
                "tensor.detach(), or torch.nn.functional.scaled_dot_product_attention"
            )
        if forward and forward_ad.unpack_dual(x).tangent is not None:
            raise UnsupportedError(
                f"{name}: got a tensor with a tangent, expected one without: pyfa_rocm has no forward-mode "
                "derivatives yet; call with tensor.detach(), or "
                "torch.nn.functional.scaled_dot_product_attention"
            )
