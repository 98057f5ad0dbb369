# SPDX-License-Identifier: MIT OR Apache-2.0
"""The operators on tensors with memory: on a ROCm device where they are, else on the software device."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from pyfa_rocm import attention, varlen
from pyfa_rocm._call.plan import Plan, Plans, Request, plan_of
from pyfa_rocm._call.probabilities import run_with_probabilities
from pyfa_rocm._runtime import host_memory
from pyfa_rocm._runtime.tensor import Tensor
from pyfa_rocm.device import enter_device, leave_device, use_device
from pyfa_rocm.torch._call import request_of, tensors_of
from pyfa_rocm.torch._schema import Lengths, Options
from pyfa_rocm.torch._tensors import describe, device_index, dtype_named, require_no_grad

__all__ = ["probabilities", "run"]

_dense_plans: Plans = {}
_varlen_plans: Plans = {}
# Plans of calls on a card without optional tensors, by what torch says of q, k and v: looking them up takes a
# microsecond, and describing such a call ten. Forgotten as a whole when there are many.
_quick_plans: dict[tuple[Any, ...], Plan] = {}
_MOST_QUICK_PLANS = 512


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None, lengths: Lengths | None,
    options: Options,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Enqueue a call on the current stream, and return O, which is `out` if given, and the log-sum-exp.

    The log-sum-exp has no elements if it is not wanted.
    """
    key = None
    if lengths is None and out is None and q.is_cuda and options.is_plain:
        key = (
            q.device, k.device, v.device, q.dtype, k.dtype, v.dtype, q.shape, k.shape, v.shape, q.stride(),
            k.stride(), v.stride(), options,
        )  # fmt: skip
        plan = _quick_plans.get(key)
        if plan is not None:
            require_no_grad({"q": q, "k": k, "v": v})
            return _enqueue(plan, q, k, v, None, None)
    request, plan = _prepare(q, k, v, out, lengths, options, with_probabilities=False)
    result = _enqueue(plan, q, k, v, out, request)
    if key is not None:
        if len(_quick_plans) >= _MOST_QUICK_PLANS:
            _quick_plans.clear()
        _quick_plans[key] = plan
    return result


def _enqueue(
    plan: Plan, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None,
    request: Request | None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Allocate what was not given, and launch. Without a request there are no optional tensors."""
    if out is None:
        out = _empty(plan, q)
    lse = torch.empty(plan.lse.shape if plan.lse else 0, dtype=torch.float32, device=q.device)
    optional = None if request is None else request.optional
    addresses = q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), lse.data_ptr() if plan.lse else 0
    if request is not None and not q.is_cuda:
        with host_memory.registered(_memory(request, out, lse)):
            plan.launch(*addresses, optional, 0)
        return out, lse
    previous = enter_device(plan.o.device)
    try:
        plan.launch(*addresses, optional, _stream(q))
    finally:
        leave_device(previous)
    return out, lse


def probabilities(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None, lengths: Lengths | None,
    options: Options,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return O, the log-sum-exp and the probabilities; waits for the device, and computes on the host."""
    request, plan = _prepare(q, k, v, out, lengths, options, with_probabilities=True)
    if out is None:
        out = _empty(plan, q)
    to = describe(out, plan.o.device)
    compute = partial(run_with_probabilities, plan, request, to, to)
    if q.is_cuda:
        with use_device(plan.o.device):
            _, *arrays = compute(_stream(q))
    else:
        with host_memory.registered(_memory(request, out)):
            _, *arrays = compute(0)
    lse, s_dmask = (torch.from_numpy(array.to_numpy()).to(q.device) for array in arrays)
    return out, lse, s_dmask


def _prepare(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None, lengths: Lengths | None,
    options: Options, *, with_probabilities: bool,
) -> tuple[Request, Plan]:  # fmt: skip
    """Check everything but addresses."""
    tensors = tensors_of(q, k, v, out, lengths, options)
    require_no_grad(tensors)
    index = device_index(tensors)
    request = request_of(
        tensors, lambda x: describe(x, index), lengths, options, with_probabilities=with_probabilities
    )
    if lengths is None:
        return request, plan_of(_dense_plans, attention.make_plan, request)
    return request, plan_of(_varlen_plans, varlen.make_plan, request)


def _empty(plan: Plan, q: torch.Tensor) -> torch.Tensor:
    """Allocate O, by torch: its allocator knows the streams, and captures."""
    return torch.empty(plan.o.shape, dtype=dtype_named(plan.o.dtype, "out_dtype"), device=q.device)


def _stream(q: torch.Tensor) -> int:
    return int(torch.cuda.current_stream(q.device).cuda_stream)


def _memory(request: Request, *outputs: torch.Tensor) -> list[Tensor]:
    """Return all that a call reads and writes."""
    optional = () if request.optional is None else request.optional.arrays.values()
    written = [describe(x, request.q.layout.device) for x in outputs]
    return [request.q, request.k, request.v, *optional, *written]
