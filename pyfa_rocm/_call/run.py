# SPDX-License-Identifier: MIT OR Apache-2.0
"""Running a call by its plan, on arrays of any library: DeviceArrays come back."""

from __future__ import annotations

from typing import Any

from pyfa_rocm._call.optional import OptionalArguments
from pyfa_rocm._call.plan import Plan
from pyfa_rocm._call.probabilities import run_with_probabilities
from pyfa_rocm._call.results import packed_results
from pyfa_rocm._runtime.tensor import as_tensor
from pyfa_rocm.array import DeviceArray
from pyfa_rocm.device import enter_device, leave_device
from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["described", "run", "run_on_device"]


def described(q: Any, k: Any, v: Any, out: Any, handle: int) -> tuple[Any, Any, Any, Any]:
    """Return the arrays of a call as Tensors or DeviceArrays; out may be None, and stays so.

    DeviceArrays are marked as used on the stream: mark_used would be a call more for each.
    """
    if type(q) is not DeviceArray:
        q = as_tensor(q, "q", handle)
    elif q._buffer.used_on != handle:
        q._buffer.use(handle)
    if type(k) is not DeviceArray:
        k = as_tensor(k, "k", handle)
    elif k._buffer.used_on != handle:
        k._buffer.use(handle)
    if type(v) is not DeviceArray:
        v = as_tensor(v, "v", handle)
    elif v._buffer.used_on != handle:
        v._buffer.use(handle)
    if out is None:
        return q, k, v, None
    if type(out) is DeviceArray:
        buffer = out._buffer
        if buffer.used_on != handle:
            buffer.use(handle)
        buffer.written_on = handle
    else:
        out = as_tensor(out, "out", handle)
        if out.readonly:
            raise InvalidArgumentError("out: got a read-only array, expected one that may be written")
    return q, k, v, out


def run(
    plan: Plan, q: Any, k: Any, v: Any, out: Any, to: Any, optional: OptionalArguments | None, handle: int
) -> Any:
    """Allocate what was not given, launch, and return what the public function returns.

    `q`, `k`, `v` and `to` are as `described` returns them; `to` is what is written, `out` what the caller
    called it, both None if it is to be allocated. The plan must have asked, and its device be current.
    """
    lse = workspace = None
    if plan.packed:
        to, lse = packed_results(plan.o, plan.lse, to, handle)
        out = to if out is None else out
    else:
        if to is None:
            out = to = DeviceArray.allocate(plan.o, handle)
        if plan.lse is not None:
            lse = DeviceArray.allocate(plan.lse, handle)
    if plan.workspace is not None:
        workspace = DeviceArray.allocate(plan.workspace, handle)
    plan.launch(
        q.address, k.address, v.address, to.address, 0 if lse is None else lse.address,
        0 if workspace is None else workspace.address, optional, handle,
    )  # fmt: skip
    return out if lse is None else (out, lse)


def run_on_device(
    plan: Plan, q: Any, k: Any, v: Any, out: Any, to: Any, optional: OptionalArguments | None, handle: int
) -> Any:
    """Like `run`, for plans that are not direct: on their device, asked first, maybe with probabilities."""
    previous = enter_device(plan.o.device)
    try:
        if not plan.asked:
            plan.ask(q.address, k.address, v.address, 0 if to is None else to.address, optional)
        if plan.s_dmask is not None:
            return run_with_probabilities(plan, q, k, v, out, to, optional, handle)
        return run(plan, q, k, v, out, to, optional, handle)
    finally:
        leave_device(previous)
