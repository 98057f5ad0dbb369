# SPDX-License-Identifier: MIT OR Apache-2.0
"""What the calls of one kind share: a checked, filled C struct that only addresses are missing from.

A call to a public function is mostly the same work as the call before: checking shapes, working out masks and
strides, filling a struct of some 500 bytes. A plan keeps its result. It is found by the layouts of the
tensors and the options of the call, so a call of a new kind makes a new plan, with every check; what depends
on an address is checked by the C library in each call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pyfa_rocm._call.optional import OptionalArguments
from pyfa_rocm._call.params import FwdParams, c_layout, fill, new
from pyfa_rocm._call.probabilities import run_with_probabilities
from pyfa_rocm._runtime import hip, library
from pyfa_rocm._runtime.tensor import Layout, as_tensor
from pyfa_rocm.array import DeviceArray
from pyfa_rocm.device import enter_device, leave_device
from pyfa_rocm.errors import InvalidArgumentError
from pyfa_rocm.fmha import fmha_fwd_supported

__all__ = ["Plan", "Plans", "Request", "call", "plan_of"]

# Plans a table holds at most. Sequence lengths that are never the same would fill it without end.
_MOST_PLANS = 512
# What an option may be for its plan to be kept: a key must not change once it is stored.
_IMMUTABLE = frozenset((type(None), bool, int, float, str, Layout))
_ALSO_IMMUTABLE = (type, np.dtype, np.generic)

# A C struct, and its memory as 64-bit words and as floats.
_Block = tuple[Any, "memoryview[int]", "memoryview[float]"]
Plans = dict[tuple[Any, ...], "Plan"]


class Plan:
    """Calls of one kind.

    Attributes
    ----------
    params : FwdParams
        All but the addresses, which are 0.
    o : Layout
        Of the output that is allocated if none is given.
    lse : Layout or None
        Of the log-sum-exp; None: not wanted.
    s_dmask : tuple of int or None
        Shape of the probabilities; None: not wanted.
    direct : bool
        Whether a call is `run` and nothing else: no other device can be current, no probabilities.
    """

    __slots__ = (
        "_call", "_cast", "_idle", "_k", "_lse", "_null", "_o", "_q", "_v", "direct", "lse", "o", "params",
        "s_dmask",
    )  # fmt: skip

    def __init__(
        self, params: FwdParams, o: Layout, lse: Layout | None, s_dmask: tuple[int, ...] | None
    ) -> None:
        hip.runtime()
        ffi, lib = library.load()
        self.params = params
        self.o = o
        self.lse = lse
        self._call = lib.fmha_fwd
        self._cast = ffi.cast
        self._null = ffi.NULL
        self.s_dmask = s_dmask
        self.direct = o.device == 0 and hip.has_one_device() and s_dmask is None
        # Structs that no call is using. A call takes one and puts it back: list.pop and append are atomic, so
        # no two threads ever fill the same one.
        self._idle: list[_Block] = []
        offsets = c_layout().offsets
        self._q, self._k, self._v, self._o, self._lse = (
            offsets[f"{name}.data"] // 8 for name in ("q", "k", "v", "o", "lse")
        )

    def _fresh(self) -> _Block:
        c, view = new()
        fill(view, self.params)
        return c, view.cast("Q"), view.cast("f")

    def run(
        self, q: Any, k: Any, v: Any, out: Any, to: Any, optional: OptionalArguments | None, handle: int
    ) -> Any:
        """Allocate what was not given, launch, and return what the public function returns.

        `q`, `k`, `v` and `to` are DeviceArrays or Tensors; `to` is what is written, `out` what the caller
        called it, both None if it is to be allocated.
        """
        lse = None
        if to is None:
            out = to = DeviceArray.allocate(self.o)
        if self.lse is not None:
            lse = DeviceArray.allocate(self.lse)
        self.launch(q.data, k.data, v.data, to.data, 0 if lse is None else lse.data, optional, handle)
        if type(to) is DeviceArray:
            to.mark_written(handle)
        if lse is None:
            return out
        lse.mark_written(handle)
        return out, lse

    def launch(
        self, q: int, k: int, v: int, o: int, lse: int, optional: OptionalArguments | None, handle: int
    ) -> None:
        """Launch on these addresses; the device must be current. `lse` is 0 if it is not wanted."""
        try:
            block = self._idle.pop()
        except IndexError:
            block = self._fresh()
        c, words, floats = block
        words[self._q] = q
        words[self._k] = k
        words[self._v] = v
        words[self._o] = o
        words[self._lse] = lse
        if optional is not None:
            for index, word in optional.words:
                words[index] = word
            for index, number in optional.floats:
                floats[index] = number
        status = self._call(c, self._cast("void *", handle) if handle else self._null)
        if status:
            library.check(status)
        self._idle.append(block)


@dataclass
class Request:
    """A call for which there is no plan yet.

    Attributes
    ----------
    q, k, v : DeviceArray or Tensor
        The inputs.
    o : Layout or None
        Of the output, if it was given.
    optional : OptionalArguments or None
        Further arrays and numbers.
    options : tuple
        What the function that makes the plan understands.
    """

    q: Any
    k: Any
    v: Any
    o: Layout | None
    optional: OptionalArguments | None
    options: tuple[Any, ...]

    def params(self, plan: Plan) -> FwdParams:
        """Return the plan's parameters with the addresses of this call, those of the outputs still 0."""
        p = plan.params
        return replace(
            p, q=p.q._replace(data=self.q.data), k=p.k._replace(data=self.k.data),
            v=p.v._replace(data=self.v.data), **({} if self.optional is None else self.optional.fields(p)),
        )  # fmt: skip


def call(
    plans: Plans, make_plan: Callable[[Request], Plan], inputs: tuple[Any, Any, Any], out: Any,
    optional: OptionalArguments | None, options: tuple[Any, ...], handle: int,
) -> Any:  # fmt: skip
    """Run a call by its plan, made now if there is none, and return what the public function returns."""
    q, k, v = inputs
    if type(q) is not DeviceArray:
        q = as_tensor(q, "q", handle)
    if type(k) is not DeviceArray:
        k = as_tensor(k, "k", handle)
    if type(v) is not DeviceArray:
        v = as_tensor(v, "v", handle)
    to = out
    if out is not None and type(out) is not DeviceArray:
        to = as_tensor(out, "out", handle)
        if to.readonly:
            raise InvalidArgumentError("out: got a read-only array, expected one that may be written")
    key = (
        q.layout, k.layout, v.layout, None if to is None else to.layout, options,
        None if optional is None else optional.key,
    )  # fmt: skip
    plan = _known(plans, key)
    if plan is not None and plan.direct:
        return plan.run(q, k, v, out, to, optional, handle)
    request = Request(q, k, v, None if to is None else to.layout, optional, options)
    known = plan is not None
    if plan is None:
        plan = make_plan(request)
    previous = enter_device(plan.o.device)
    try:
        if not known and (to is None or plan.lse is not None):
            fmha_fwd_supported(request.params(plan))  # so that nothing is allocated for a call that will fail
        if plan.s_dmask is not None:
            result = run_with_probabilities(plan, request, out, to, handle)
        else:
            result = plan.run(q, k, v, out, to, optional, handle)
    finally:
        leave_device(previous)
    if not known:
        _remember(plans, key, plan)
    return result


def plan_of(plans: Plans, make_plan: Callable[[Request], Plan], request: Request) -> Plan:
    """Return the plan of a call whose outputs are allocated elsewhere, made now if there is none."""
    optional = request.optional
    key = (
        request.q.layout, request.k.layout, request.v.layout, request.o, request.options,
        None if optional is None else optional.key,
    )  # fmt: skip
    plan = _known(plans, key)
    if plan is None:
        plan = make_plan(request)
        _remember(plans, key, plan)
    return plan


def _known(plans: Plans, key: tuple[Any, ...]) -> Plan | None:
    try:
        return plans.get(key)
    except TypeError:  # an option without a hash, a list for window_size say
        return None


def _remember(plans: Plans, key: tuple[Any, ...], plan: Plan) -> None:
    if _is_immutable(key):
        if len(plans) >= _MOST_PLANS:
            plans.clear()
        plans[key] = plan


def _is_immutable(key: tuple[Any, ...]) -> bool:
    for x in key:
        kind = type(x)
        if kind is tuple:
            if not _is_immutable(x):
                return False
        elif kind not in _IMMUTABLE and not isinstance(x, _ALSO_IMMUTABLE):
            return False
    return True
