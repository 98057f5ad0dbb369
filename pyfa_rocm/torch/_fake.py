# SPDX-License-Identifier: MIT OR Apache-2.0
"""The operators on tensors without memory, for tracing: every check that needs no address, and the results.

The checks are those of the real call, made by the same functions. Sizes may be symbols.
"""

from __future__ import annotations

import torch

from pyfa_rocm import attention, varlen
from pyfa_rocm._call.arguments import output_dtype, require_output
from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.torch._call import request_of, tensors_of
from pyfa_rocm.torch._schema import Lengths, Options
from pyfa_rocm.torch._tensors import dtype_named, require_no_grad, require_one_device, symbolic

__all__ = ["run"]


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None, lengths: Lengths | None,
    options: Options,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Check a call, and return O and the log-sum-exp as the real one would, without their elements."""
    try:
        return _run(q, k, v, out, lengths, options)
    except UnsupportedError as error:
        if not torch.compiler.is_compiling():
            raise
        # A NotImplementedError is swallowed there, message and all: taken as a fake kernel that is missing.
        raise RuntimeError(str(error)) from error


def _run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None, lengths: Lengths | None,
    options: Options,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    tensors = tensors_of(q, k, v, out, lengths, options)
    require_no_grad(tensors)
    require_one_device(tensors)
    # Seeds may be symbols, too, which a graph must not be bound to the values of.
    request = request_of(tensors, symbolic, lengths, options._replace(philox_seed=0, philox_offset=0))
    checked = (attention if lengths is None else varlen).check(request)
    layout, out_dtype = request.q.layout, request.options[6]
    dtype = output_dtype(request.o, out_dtype, layout)
    if out is None:
        out = torch.empty(checked.o, dtype=dtype_named(dtype, "out_dtype"), device=q.device)
    elif request.o is not None:
        require_output(request.o, checked.o, dtype, out_dtype, layout)
    lse = torch.empty(checked.lse if options.return_lse else 0, dtype=torch.float32, device=q.device)
    return out, lse
