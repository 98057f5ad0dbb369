# SPDX-License-Identifier: MIT OR Apache-2.0
"""Running a call by its plan, on arrays of any library: DeviceArrays come back."""

from __future__ import annotations

from typing import Any

from pyfa_rocm._call.optional import OptionalArguments
from pyfa_rocm._call.plan import Plan
from pyfa_rocm._call.probabilities import run_with_probabilities
from pyfa_rocm._runtime.tensor import as_tensor
from pyfa_rocm.array import DeviceArray
from pyfa_rocm.device import enter_device, leave_device
from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["described", "run", "run_on_device"]


def described(q: Any, k: Any, v: Any, out: Any, handle: int) -> tuple[Any, Any, Any, Any]:
    """Return the arrays of a call as DeviceArrays or Tensors; out may be None, and stays so."""
    if type(q) is not DeviceArray:
        q = as_tensor(q, "q", handle)
    if type(k) is not DeviceArray:
        k = as_tensor(k, "k", handle)
    if type(v) is not DeviceArray:
        v = as_tensor(v, "v", handle)
    if out is not None and type(out) is not DeviceArray:
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
    if to is None:
        out = to = DeviceArray.allocate(plan.o)
    if plan.lse is not None:
        lse = DeviceArray.allocate(plan.lse)
    if plan.workspace is not None:
        workspace = DeviceArray.allocate(plan.workspace)
    plan.launch(
        q.data, k.data, v.data, to.data, 0 if lse is None else lse.data,
        0 if workspace is None else workspace.data, optional, handle,
    )  # fmt: skip
    if type(to) is DeviceArray:
        to.mark_written(handle)
    if lse is None:
        return out
    lse.mark_written(handle)
    return out, lse


def run_on_device(
    plan: Plan, q: Any, k: Any, v: Any, out: Any, to: Any, optional: OptionalArguments | None, handle: int
) -> Any:
    """Like `run`, for plans that are not direct: on their device, asked first, maybe with probabilities."""
    previous = enter_device(plan.o.device)
    try:
        if not plan.asked:
            plan.ask(q.data, k.data, v.data, 0 if to is None else to.data, optional)
        if plan.s_dmask is not None:
            return run_with_probabilities(plan, q, k, v, out, to, optional, handle)
        return run(plan, q, k, v, out, to, optional, handle)
    finally:
        leave_device(previous)
