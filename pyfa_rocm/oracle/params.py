# SPDX-License-Identifier: MIT OR Apache-2.0
"""A problem as the library's parameters, for its raw layer, and as arguments of its functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyfa_rocm._call.backward import BwdParams
from pyfa_rocm._call.call import Call
from pyfa_rocm._call.checks import check, params_of
from pyfa_rocm._call.params import FwdParams, Options
from pyfa_rocm._runtime.tensor import contiguous
from pyfa_rocm.array import DeviceArray
from pyfa_rocm.oracle.problem import Problem

__all__ = ["backward_params", "forward_params", "options_on_device"]


def forward_params(problem: Problem, **arrays: DeviceArray) -> FwdParams:
    """Describe the forward pass of a problem by the checks of the public functions.

    `arrays` have the names of those functions' arguments, and lse, which is contiguous; packed ones are
    without batch. q, k, v and out lie contiguous at address 0 if they are not given: enough for questions
    about kernels. Lengths, slopes and a bias have to be given.
    """
    device = arrays["q"].device if arrays else 0
    longest, first = (max(problem.lengths), 1) if problem.lengths else (None, 0)
    shapes = {"q": problem.q_shape, "k": problem.k_shape, "v": problem.v_shape}
    layouts = {name: contiguous(shape[first:], problem.dtype, device) for name, shape in shapes.items()}
    starts = contiguous((len(problem.lengths) + 1,), "int32", device)
    layouts |= {"cu_seqlens_q": starts, "cu_seqlens_k": starts}
    layouts |= {name: x.layout for name, x in arrays.items()}
    call = Call(
        q=layouts["q"], k=layouts["k"], v=layouts["v"], out=layouts.get("out"), arrays=layouts,
        max_seqlen_q=longest, max_seqlen_k=longest, options=Options(**problem.options(), return_lse=True),
    )  # fmt: skip
    params, _, _ = params_of(call, check(call))
    for name, x in arrays.items():
        field = "o" if name == "out" else name
        old = getattr(params, field)
        setattr(params, field, x.data if old == 0 else old._replace(data=x.data))
    return params


def backward_params(problem: Problem) -> BwdParams:
    """Describe the backward pass of a problem without addresses."""
    fwd = forward_params(problem)
    return BwdParams(fwd=fwd, dout=fwd.o, dq=fwd.q, dk=fwd.k, dv=fwd.v)


def options_on_device(problem: Problem) -> dict[str, Any]:
    """Return the problem's options for the public functions."""
    put = DeviceArray.from_numpy
    return {name: put(x) if isinstance(x, np.ndarray) else x for name, x in problem.options().items()}
