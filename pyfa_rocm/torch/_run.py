# SPDX-License-Identifier: MIT OR Apache-2.0
"""The operators on tensors with memory: on a ROCm device where they are, else on the software device."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from pyfa_rocm import _host, attention, varlen
from pyfa_rocm._plan import Plan, Plans, Request, plan_of
from pyfa_rocm._probabilities import run_with_probabilities
from pyfa_rocm._tensor import Tensor
from pyfa_rocm.device import enter_device, leave_device
from pyfa_rocm.torch._call import request_of, tensors_of
from pyfa_rocm.torch._schema import Lengths, Options
from pyfa_rocm.torch._tensors import describe, device_index, dtype_named, require_no_grad

__all__ = ["probabilities", "run"]

_dense_plans: Plans = {}
_varlen_plans: Plans = {}


def run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None, lengths: Lengths | None,
    options: Options,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Enqueue a call on the current stream, and return O, which is `out` if given, and the log-sum-exp.

    The log-sum-exp has no elements if it is not wanted.
    """
    request, plan = _prepare(q, k, v, out, lengths, options, with_probabilities=False)
    index = plan.o.device
    if out is None:
        out = _empty(plan, q)
    lse = torch.empty(plan.lse.shape if plan.lse else 0, dtype=torch.float32, device=q.device)
    to, lse_to = describe(out, index), describe(lse, index) if plan.lse else None

    def launch(handle: int) -> None:
        plan.run(request.q, request.k, request.v, to, to, lse_to, request.optional, handle)

    _on_device(q, request, (to,) if lse_to is None else (to, lse_to), launch)
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
    results: list[torch.Tensor] = []

    def launch(handle: int) -> None:
        _, *arrays = run_with_probabilities(plan, request, to, to, handle)
        results.extend(torch.from_numpy(array.to_numpy()).to(q.device) for array in arrays)

    _on_device(q, request, (to,), launch)
    lse, s_dmask = results
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
        tensors,
        lambda tensor: describe(tensor, index),
        lengths,
        options,
        with_probabilities=with_probabilities,
    )
    if lengths is None:
        return request, plan_of(_dense_plans, attention.make_plan, request)
    return request, plan_of(_varlen_plans, varlen.make_plan, request)


def _empty(plan: Plan, q: torch.Tensor) -> torch.Tensor:
    """Allocate O, by torch: its allocator knows the streams, and captures."""
    return torch.empty(plan.o.shape, dtype=dtype_named(plan.o.dtype, "out_dtype"), device=q.device)


def _on_device(
    q: torch.Tensor, request: Request, outputs: tuple[Tensor, ...], launch: Callable[[int], None]
) -> None:
    """Call `launch` with the stream, the device being current and able to use the memory."""
    memory: AbstractContextManager[Any] = nullcontext()
    if q.device.type == "cpu":
        optional = () if request.optional is None else request.optional.arrays.values()
        memory = _host.registered((request.q, request.k, request.v, *outputs, *optional))
        handle = 0
    else:
        handle = torch.cuda.current_stream(q.device).cuda_stream
    previous = enter_device(request.q.layout.device)
    try:
        with memory:
            launch(handle)
    finally:
        leave_device(previous)
