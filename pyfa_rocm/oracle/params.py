# SPDX-License-Identifier: MIT OR Apache-2.0
"""A problem as the library's parameters, for its raw layer, and as arguments of its functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from pyfa_rocm._call.backward import BwdParams
from pyfa_rocm._call.call import Call
from pyfa_rocm._call.checks import check, params_of
from pyfa_rocm._call.optional import DESCALES
from pyfa_rocm._call.params import FwdParams, Options
from pyfa_rocm._runtime.tensor import contiguous
from pyfa_rocm.array import DeviceArray
from pyfa_rocm.fmha import KernelInfo
from pyfa_rocm.oracle.problem import Problem

__all__ = ["PHILOX", "backward_params", "candidates", "forward_params", "options_on_device", "put"]

# Seed and offset of dropout's random numbers; the seed has more than 32 bits.
PHILOX = (2**33 + 5, 77)


def forward_params(problem: Problem, **arrays: DeviceArray) -> FwdParams:
    """Describe the forward pass of a problem by the checks of the public functions.

    `arrays` have the names of those functions' arguments, and lse, which is contiguous; packed ones are
    without batch. q, k, v and out lie contiguous at address 0 if they are not given: enough for questions
    about kernels. Lengths, slopes and a bias have to be given.
    """
    device = arrays["q"].device if arrays else 0
    (longest_q, longest_k), first = (problem.longest, 1) if problem.lengths else ((None, None), 0)
    shapes = {"q": problem.q_shape, "k": problem.k_shape, "v": problem.v_shape}
    layouts = {name: contiguous(shape[first:], problem.dtype, device) for name, shape in shapes.items()}
    starts = contiguous((len(problem.lengths) + 1,), "int32", device)
    layouts |= {"cu_seqlens_q": starts, "cu_seqlens_k": starts}
    layouts |= {name: x.layout for name, x in arrays.items()}
    call = Call(
        q=layouts["q"], k=layouts["k"], v=layouts["v"], out=layouts.get("out"), arrays=layouts,
        max_seqlen_q=longest_q, max_seqlen_k=longest_k,
        options=Options(**problem.options(), out_dtype=problem.o_dtype or None, return_lse=True),
    )  # fmt: skip
    params, _, _ = params_of(call, check(call))
    for name, x in arrays.items():
        field = "o" if name == "out" else name
        old = getattr(params, field)
        setattr(params, field, x.data if old == 0 else old._replace(data=x.data))
    for name, factor in zip(DESCALES, problem.descale, strict=False):
        setattr(params, name, factor)
    if problem.dropout_p:
        params.p_drop, (params.philox_seed, params.philox_offset) = problem.dropout_p, PHILOX
    return params


def backward_params(problem: Problem, **arrays: DeviceArray) -> BwdParams:
    """Describe the backward pass of a problem, the arrays being those of `forward_params`.

    The gradients and dO lie like q, k, v and O, at address 0.
    """
    fwd = forward_params(problem, **arrays)
    dout, dq, dk, dv = (x._replace(data=0) for x in (fwd.o, fwd.q, fwd.k, fwd.v))
    return BwdParams(fwd, dout, dq, dk, dv)


def put(x: npt.NDArray[Any]) -> DeviceArray:
    """Copy an array to the device."""
    return DeviceArray.from_numpy(np.ascontiguousarray(x))


def options_on_device(problem: Problem) -> dict[str, Any]:
    """Return the problem's options for the public functions."""
    options = {name: put(x) if isinstance(x, np.ndarray) else x for name, x in problem.options().items()}
    return options | ({"dropout_p": problem.dropout_p, "philox": PHILOX} if problem.dropout_p else {})


def candidates(params: Any, info: Callable[[Any], KernelInfo]) -> Iterator[KernelInfo]:
    """Yield the kernels that can do a call, the library's choice first; `params.kernel` is then its number.

    `info` is `fmha_fwd_kernel` or its like for the family of the parameters.
    """
    params.kernel = 1
    for number in range(1, info(params).candidate_count + 1):
        params.kernel = number
        yield info(params)
