# SPDX-License-Identifier: MIT OR Apache-2.0
"""The operators ``torch.ops.pyfa_rocm.fmha_…``, for each kind of device.

Tensors on a ROCm device are used where they are; those on the CPU are lent to the software device; and
tensors without memory, for tracing, get the same checks and results without elements.

The operators are defined with `torch.library.Library` rather than `torch.library.custom_op`, whose wrappers
make the way to a kernel three times as long (measured: 17 µs against 6).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from pyfa_rocm._call.call import Call
from pyfa_rocm._call.checks import check, output_dtype, require_output
from pyfa_rocm._call.lengths import require_packed
from pyfa_rocm._call.numbers import to_integer
from pyfa_rocm._call.optional import ADDRESS_FIELDS, DESCALES, OptionalArguments
from pyfa_rocm._call.params import FwdParams
from pyfa_rocm._call.plan import Plan, Plans, find, make
from pyfa_rocm._call.probabilities import random_bytes, randval_at
from pyfa_rocm._runtime import host_memory
from pyfa_rocm._runtime.tensor import Layout, Tensor
from pyfa_rocm.array import DeviceArray
from pyfa_rocm.device import enter_device, leave_device, use_device
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError
from pyfa_rocm.fmha import fmha_fwd as launch_fwd
from pyfa_rocm.torch import _flops, _vmap
from pyfa_rocm.torch._derivatives import refused_in_a_graph, require_no_derivative
from pyfa_rocm.torch._probabilities import signed_probabilities
from pyfa_rocm.torch._schema import LENGTHS, SCHEMAS, Arguments, Lengths, is_plain, options_of_operator
from pyfa_rocm.torch._tensors import (
    describe,
    device_index,
    dtype_name,
    dtype_named,
    known_lengths,
    remedied,
    require_one_device,
    symbolic,
)

__all__ = [
    "Invocation",
    "allocate_workspace",
    "define",
    "fmha_fwd",
    "fmha_fwd_out",
    "fmha_varlen_fwd",
    "fmha_varlen_fwd_out",
    "forward_kernels",
    "invocation_of",
    "library",
    "new_lse",
    "new_out",
    "run_with_s_dmask",
    "stream_handle",
]

_Tensors = dict[str, "torch.Tensor | None"]
_UINT64 = 2**64 - 1
_plans: Plans = {}
# Plans of calls on a card without optional tensors, by what torch says of q, k and v: looking them up takes a
# microsecond, and describing such a call ten. Forgotten as a whole when there are many.
_quick_plans: dict[tuple[Any, ...], Plan] = {}
_MOST_QUICK_PLANS = 512


@dataclass
class Invocation:
    """An operator's arguments, by name.

    Attributes
    ----------
    tensors : dict
        All tensors by the names of their arguments, q first.
    arguments : Arguments
        The options; see `_schema`.
    lengths : Lengths or None
        Where packed sequences are; None: they are not packed.
    with_probabilities : bool
        Whether the probabilities are wanted too.
    """

    tensors: _Tensors
    arguments: Any
    lengths: Any
    with_probabilities: bool = False

    def described(self, describe_one: Callable[[torch.Tensor], Tensor]) -> dict[str, Tensor]:
        """Describe the tensors that there are."""
        return {name: describe_one(x) for name, x in self.tensors.items() if x is not None}

    def call(self, described: dict[str, Tensor]) -> Call:
        """Return the call as the public functions of `pyfa_rocm` would have made it."""
        out_dtype = self.arguments.out_dtype
        options = options_of_operator(
            self.arguments, None if out_dtype is None else dtype_name(out_dtype), self.with_probabilities
        )
        read = ADDRESS_FIELDS if options.dropout_p else ADDRESS_FIELDS.keys() - {"philox"}
        q, k, v = (described[name].layout for name in "qkv")
        return Call(
            q=q,
            k=k,
            v=v,
            out=described["out"].layout if "out" in described else None,
            options=options,
            arrays={name: x.layout for name, x in described.items() if name in read},
            max_seqlen_q=None if self.lengths is None else self.lengths.max_seqlen_q,
            max_seqlen_k=None if self.lengths is None else self.lengths.max_seqlen_k,
        )

    def require_lengths(self) -> None:
        """Raise if lengths in host memory do not fit the tensors. Their shapes have been checked."""
        if self.lengths is None or not (host := known_lengths(self.tensors)):
            return
        longest = {"q": self.lengths.max_seqlen_q, "k": self.lengths.max_seqlen_k}
        totals = {side: x.shape[0] for side in "qk" if (x := self.tensors[side]) is not None}
        given = [name for name, x in self.tensors.items() if x is not None]
        require_packed(host, given, totals, longest)

    def optional(self, described: dict[str, Tensor]) -> OptionalArguments:
        """Return the optional arguments of a call on tensors with memory."""
        a, optional = self.arguments, OptionalArguments(0)
        for name, tensor in described.items():
            if name in ADDRESS_FIELDS and name != "philox":
                optional.add(name, tensor)
        if a.dropout_p:
            seeds = (a.philox_seed & _UINT64, a.philox_offset & _UINT64)
            optional.add_philox(described.get("philox", seeds), a.dropout_p)
        for name in DESCALES:
            optional.add_descale(name, getattr(a, name))
        return optional

    def key(self, described: dict[str, Tensor], optional: OptionalArguments) -> tuple[Any, ...]:
        """Return what a plan depends on."""
        numbers = self.arguments._replace(
            bias=None, alibi_slopes=None, sinks=None, philox=None, philox_seed=0, philox_offset=0,
            q_descale=None, k_descale=None, v_descale=None, out_dtype=str(self.arguments.out_dtype),
        )  # fmt: skip
        lengths = None if self.lengths is None else (self.lengths.max_seqlen_q, self.lengths.max_seqlen_k)
        inputs = tuple((name, described[name].layout) for name in ("q", "k", "v", "out") if name in described)
        return (inputs, tuple(numbers), lengths, self.with_probabilities, optional.key)


def invocation_of(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None, lengths: Any, arguments: Any
) -> Invocation:
    tensors: _Tensors = {
        "q": q,
        "k": k,
        "v": v,
        "out": out,
        "bias": arguments.bias,
        "alibi_slopes": arguments.alibi_slopes,
        "sinks": arguments.sinks,
        "philox": arguments.philox,
    }
    if lengths is not None:
        tensors |= {name: getattr(lengths, name) for name, kind in LENGTHS.items() if "Tensor" in kind}
    return Invocation(tensors, arguments, lengths)


def _planned(invocation: Invocation) -> tuple[Plan, dict[str, Tensor], OptionalArguments]:
    """Check everything but addresses; return the plan, and what the call gives it."""
    index = device_index(invocation.tensors)
    described = invocation.described(lambda x: describe(x, index))
    optional = invocation.optional(described)
    key = invocation.key(described, optional)
    plan = find(_plans, key)
    if plan is None:
        call = invocation.call(described)
        if invocation.lengths is not None:
            call.max_seqlen_q = to_integer("max_seqlen_q", call.max_seqlen_q)
            call.max_seqlen_k = to_integer("max_seqlen_k", call.max_seqlen_k)
        plan = make(_plans, key, call)
    invocation.require_lengths()
    return plan, described, optional


# Implementations for tensors with memory.


def _run(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None, lengths: Any, arguments: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Enqueue a call on the current stream, and return O, which is `out` if given, and the log-sum-exp.

    The log-sum-exp has no elements if it is not wanted.
    """
    try:
        return _run_planned(q, k, v, out, lengths, arguments)
    except InvalidArgumentError as error:
        raise remedied(error) from None


def _run_planned(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None, lengths: Any, arguments: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Look for a plan, make it if there is none, and launch."""
    key = None
    if lengths is None and out is None and q.is_cuda and is_plain(arguments):
        key = (
            q.device, k.device, v.device, q.dtype, k.dtype, v.dtype, q.shape, k.shape, v.shape, q.stride(),
            k.stride(), v.stride(), arguments,
        )  # fmt: skip
        plan = _quick_plans.get(key)
        if plan is not None:
            return _enqueue(plan, q, k, v, None, None)
    plan, _, optional = _planned(invocation_of(q, k, v, out, lengths, arguments))
    launch = _enqueue if q.is_cuda else _lend
    result = launch(plan, q, k, v, out, optional)
    if key is not None:
        if len(_quick_plans) >= _MOST_QUICK_PLANS:
            _quick_plans.clear()
        _quick_plans[key] = plan
    return result


def _enqueue(
    plan: Plan,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor | None,
    optional: OptionalArguments | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Allocate what was not given, and launch on the current stream of q's device."""
    previous = enter_device(plan.o.device)
    try:
        return _launch(plan, q, k, v, out, optional, stream_handle(q))
    finally:
        leave_device(previous)


def _lend(
    plan: Plan,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor | None,
    optional: OptionalArguments | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Allocate what was not given, lend it all to the software device, and wait for that."""
    out = _new_out(plan, q) if out is None else out
    lse = _new_lse(plan, q)
    extents = plan.extents(
        q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), lse.data_ptr() if plan.lse else 0, optional
    )
    with host_memory.registered(extents):
        return _launch(plan, q, k, v, out, optional, 0, lse)


def _launch(
    plan: Plan,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor | None,
    optional: OptionalArguments | None,
    handle: int,
    lse: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = q.data_ptr(), k.data_ptr(), v.data_ptr()
    if not plan.asked:
        plan.ask(*inputs, 0 if out is None else out.data_ptr(), optional)
    if out is None:
        out = _new_out(plan, q)
    if lse is None:
        lse = _new_lse(plan, q)
    workspace = None if plan.workspace is None else allocate_workspace(plan.workspace, q)
    plan.launch(
        *inputs,
        out.data_ptr(),
        lse.data_ptr() if plan.lse else 0,
        0 if workspace is None else workspace.address,
        optional,
        handle,
    )
    return out, lse


def _new_out(plan: Plan, q: torch.Tensor) -> torch.Tensor:
    return new_out(plan.o.shape, dtype_named(plan.o.dtype, "out_dtype"), q.device, plan.packed)


def _new_lse(plan: Plan, q: torch.Tensor) -> torch.Tensor:
    return new_lse(plan.lse.shape if plan.lse else (0,), q.device, plan.packed)


def new_out(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, packed: bool) -> torch.Tensor:
    """Allocate O or a gradient, by torch: its allocator knows the streams, and captures.

    Packed sequences may leave rows that are of none, which the kernels do not write. They are to be 0: a NaN
    that was left in the memory would spread to all that is made of the whole tensor.
    """
    return (torch.zeros if packed else torch.empty)(shape, dtype=dtype, device=device)


def new_lse(shape: tuple[int, ...], device: torch.device, packed: bool) -> torch.Tensor:
    """Allocate a log-sum-exp, likewise; rows of no sequence are -inf. Without elements it is not wanted."""
    if packed and shape != (0,):
        return torch.full(shape, -math.inf, dtype=torch.float32, device=device)
    return torch.empty(shape, dtype=torch.float32, device=device)


def allocate_workspace(layout: Layout, q: torch.Tensor) -> Tensor | DeviceArray:
    """Allocate a workspace, which may be dropped once the call is enqueued.

    torch's allocator and ours hand it out again only for later work of the stream.
    """
    if not q.is_cuda:
        return DeviceArray.allocate(layout, 0)
    memory = torch.empty(layout.shape, dtype=torch.uint8, device=q.device)
    return Tensor(memory.data_ptr(), layout, False, memory)


def stream_handle(q: torch.Tensor) -> int:
    return int(torch.cuda.current_stream(q.device).cuda_stream)


def run_with_s_dmask(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None, lengths: Any, arguments: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return O, the log-sum-exp and the probabilities, which are computed where the tensors are."""
    invocation = invocation_of(q, k, v, out, lengths, arguments)
    require_no_derivative(invocation.tensors, "probabilities have no gradient; call with tensor.detach()")
    invocation.with_probabilities = True
    plan, _, optional = _planned(invocation)
    if out is None:
        out = _new_out(plan, q)
    lse = _new_lse(plan, q)
    results = {"o": out, "lse": lse}
    if (layout := random_bytes(plan)) is not None:
        results["randval"] = torch.empty(layout.shape, dtype=torch.uint8, device=q.device)
    if q.is_cuda:
        with use_device(plan.o.device):
            p = _launch_with_random_bytes(plan, (q, k, v), results, optional, stream_handle(q))
    else:
        addresses = q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), lse.data_ptr()
        extents = plan.extents(*addresses, optional)
        extents += [(x.data_ptr(), x.nbytes) for name, x in results.items() if name == "randval"]
        with host_memory.registered(extents):
            p = _launch_with_random_bytes(plan, (q, k, v), results, optional, 0)
    assert plan.s_dmask is not None
    tensors = {name: x for name, x in (invocation.tensors | results).items() if x is not None}
    return out, lse, signed_probabilities(p, plan.s_dmask, tensors)


def _launch_with_random_bytes(
    plan: Plan,
    inputs: tuple[torch.Tensor, ...],
    results: dict[str, torch.Tensor],
    optional: OptionalArguments,
    handle: int,
) -> FwdParams:
    """Launch a call that stores its log-sum-exp and, if it drops, its random bytes; return its parameters."""
    q, k, v = (x.data_ptr() for x in inputs)
    if not plan.asked:
        plan.ask(q, k, v, results["o"].data_ptr(), optional)
    p = plan.params_at(q, k, v, optional)
    assert p.lse is not None
    p = replace(
        p, o=p.o._replace(data=results["o"].data_ptr()), lse=p.lse._replace(data=results["lse"].data_ptr())
    )
    if "randval" in results:
        layout = random_bytes(plan)
        assert layout is not None
        p = replace(p, randval=randval_at(layout, results["randval"].data_ptr()))
    if plan.workspace is not None:
        workspace = allocate_workspace(plan.workspace, inputs[0])
        p = replace(p, workspace=workspace.address, workspace_bytes=plan.workspace.shape[0])
    launch_fwd(p, handle)
    return p


# Implementations for tensors without memory: tracing.


def _trace(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor | None, lengths: Any, arguments: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Check a call, and return O and the log-sum-exp as the real one would, without their elements.

    The checks are those of the real call, but for addresses. Sizes may be symbols, and so may seeds, whose
    values nothing here looks at.
    """
    try:
        invocation = invocation_of(q, k, v, out, lengths, arguments)
        require_one_device(invocation.tensors)
        call = invocation.call(invocation.described(symbolic))
        for name in DESCALES:
            OptionalArguments(0).add_descale(name, getattr(arguments, name))
        checked = check(call)
        dtype = output_dtype(call.out, call.options.out_dtype, call.q)
        if call.out is not None:
            require_output(call.out, checked.o, dtype, call.options.out_dtype, call.q)
    except InvalidArgumentError as error:
        raise remedied(error) from None
    except UnsupportedError as error:
        raise refused_in_a_graph(error) from error
    if out is None:
        out = torch.empty(checked.o, dtype=dtype_named(dtype, "out_dtype"), device=q.device)
    lse = torch.empty(checked.lse if arguments.return_lse else 0, dtype=torch.float32, device=q.device)
    return out, lse


# The operators.

_Kernel = Callable[[Any, Any, Any, Any, Any, Any], tuple[torch.Tensor, torch.Tensor]]
_NAMESPACE = "pyfa_rocm"
library = torch.library.Library(_NAMESPACE, "DEF")


def _kernels(kernel: _Kernel) -> dict[str, Callable[..., Any]]:
    """Return the functions behind the operators, by name."""
    count = len(LENGTHS)

    def fmha_fwd(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        return kernel(q, k, v, None, None, Arguments(*rest))

    def fmha_fwd_out(q: Any, k: Any, v: Any, out: Any, *rest: Any) -> Any:
        return kernel(q, k, v, out, None, Arguments(*rest))[1]

    def fmha_varlen_fwd(q: Any, k: Any, v: Any, *rest: Any) -> Any:
        return kernel(q, k, v, None, Lengths(*rest[:count]), Arguments(*rest[count:]))

    def fmha_varlen_fwd_out(q: Any, k: Any, v: Any, out: Any, *rest: Any) -> Any:
        return kernel(q, k, v, out, Lengths(*rest[:count]), Arguments(*rest[count:]))[1]

    functions = (fmha_fwd, fmha_fwd_out, fmha_varlen_fwd, fmha_varlen_fwd_out)
    return {function.__name__: function for function in functions}


# The compiler may not change strides on the way: rows have to stay contiguous, and copies cost. Older
# versions of torch can only be told to keep the order of strides.
_STRIDES = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)


def define(
    schemas: dict[str, str],
    run: dict[str, Callable[..., Any]],
    trace: dict[str, Callable[..., Any]],
    *,
    counted: bool = True,
) -> None:
    """Make operators known to torch, all but their derivatives, which `_autograd` has.

    `run` are their kernels on tensors with memory, `trace` on those without, by name. For those that are
    `counted`, q, k and v say how many operations they are.
    """
    for name, schema in schemas.items():
        library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag, _STRIDES))
    for key in ("CPU", "CUDA"):
        for name, function in run.items():
            library.impl(name, function, key)
    for name, function in trace.items():
        packet = getattr(getattr(torch.ops, _NAMESPACE), name)
        _vmap.register(library, packet.default)
        if counted:
            _flops.register(packet)
        torch.library.register_fake(f"{_NAMESPACE}::{name}", function, lib=library)


forward_kernels = _kernels(_run)
define(SCHEMAS, forward_kernels, _kernels(_trace))
_ops = getattr(torch.ops, _NAMESPACE)
fmha_fwd = _ops.fmha_fwd.default
fmha_fwd_out = _ops.fmha_fwd_out.default
fmha_varlen_fwd = _ops.fmha_varlen_fwd.default
fmha_varlen_fwd_out = _ops.fmha_varlen_fwd_out.default
