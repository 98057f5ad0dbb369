# SPDX-License-Identifier: MIT OR Apache-2.0
"""The operators ``torch.ops.pyfa_rocm.fmha_bwd``, ``fmha_varlen_bwd``, and those that write to given tensors.

As `_operators` has them of forward, whose options they take.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from pyfa_rocm._call.bwd_plan import BwdCall, BwdPlan, BwdPlans, check_bwd, make_bwd
from pyfa_rocm._call.checks import check, output_dtype
from pyfa_rocm._call.numbers import to_integer
from pyfa_rocm._call.optional import OptionalArguments
from pyfa_rocm._call.plan import find
from pyfa_rocm._runtime import host_memory
from pyfa_rocm._runtime.tensor import Tensor, contiguous
from pyfa_rocm.device import current_device, enter_device, leave_device
from pyfa_rocm.errors import HipError, InvalidArgumentError, UnsupportedError
from pyfa_rocm.torch._derivatives import refused_in_a_graph
from pyfa_rocm.torch._operators import (
    Invocation,
    allocate_workspace,
    define,
    invocation_of,
    new_out,
    stream_handle,
)
from pyfa_rocm.torch._schema import (
    BWD_SCHEMAS,
    LENGTHS,
    BwdArguments,
    BwdOutArguments,
    Lengths,
    forward_arguments,
)
from pyfa_rocm.torch._tensors import (
    describe,
    device_index,
    dtype_name,
    dtype_named,
    remedied,
    require_one_device,
    symbolic,
)

__all__ = ["backward_kernels", "require_supported"]

_Tensors = dict[str, "torch.Tensor | None"]
_NAMES = ("dq", "dk", "dv", "dbias")
_plans: BwdPlans = {}
# Calls in which `require_supported` found nothing, by what torch says of their tensors.
_supported: set[tuple[Any, ...]] = set()
_MOST_SUPPORTED = 512


class _Backward:
    """An operator's arguments, by name.

    Attributes
    ----------
    forward : Invocation
        The forward call, with `out`.
    results : dict
        `dout` and `lse`.
    gradients : dict
        Those that are wanted; None: to be allocated.
    arguments : BwdArguments or BwdOutArguments
        The options; see `_schema`.
    """

    __slots__ = ("arguments", "forward", "gradients", "results")

    def __init__(
        self,
        inputs: tuple[torch.Tensor, ...],
        given: tuple[torch.Tensor, ...] | None,
        lengths: Any,
        arguments: Any,
    ) -> None:
        dout, q, k, v, out, lse = inputs
        self.forward: Invocation = invocation_of(q, k, v, out, lengths, forward_arguments(arguments))
        self.results = {"dout": dout, "lse": lse}
        self.arguments = arguments
        self.gradients: _Tensors = dict(zip(_NAMES, given or (None, None, None), strict=False))
        if given is None:
            if arguments.bias_grad:
                self.gradients["dbias"] = None
        elif arguments.dbias is not None:
            self.gradients["dbias"] = arguments.dbias

    @property
    def tensors(self) -> _Tensors:
        """All tensors by the names of their arguments, q first."""
        return {**self.forward.tensors, **self.results, **self.gradients}

    def call(self, described: dict[str, Tensor]) -> BwdCall:
        """Return the call as `pyfa_rocm.flash_attn_bwd` would have made it."""
        a = self.arguments
        grad_dtype = getattr(a, "grad_dtype", None)
        given = {name: described[name].layout for name in self.gradients if name in described}
        return BwdCall(
            forward=self.forward.call(described),
            dout=described["dout"].layout,
            lse=described["lse"].layout,
            gradients={name: given.get(name) for name in self.gradients},
            grad_dtype=None if grad_dtype is None else dtype_name(grad_dtype),
            accumulate=getattr(a, "accumulate", False),
            deterministic=a.deterministic,
            kernel=a.candidate,
        )

    def planned(self) -> tuple[BwdPlan, dict[str, Tensor], OptionalArguments]:
        """Check everything but addresses; return the plan, and what the call gives it."""
        tensors = self.tensors
        index = device_index(tensors)
        described = {name: describe(x, index) for name, x in tensors.items() if x is not None}
        optional = self.forward.optional(described)
        a = self.arguments
        key = (
            self.forward.key(described, optional),
            tuple((name, described[name].layout) for name in ("dout", "lse", *_NAMES) if name in described),
            tuple(self.gradients),
            a.deterministic,
            a.candidate,
            str(getattr(a, "grad_dtype", None)),
            getattr(a, "accumulate", False),
        )
        plan = find(_plans, key)
        if plan is None:
            call = self.call(described)
            if self.forward.lengths is not None:
                for name in ("max_seqlen_q", "max_seqlen_k"):
                    setattr(call.forward, name, to_integer(name, getattr(call.forward, name)))
            plan = make_bwd(_plans, key, call)
        self.forward.require_lengths()
        return plan, described, optional

    def allocated(self, dtype: torch.dtype, shapes: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        """Return the four results of an operator, new where no gradient was given."""
        device, packed = self.results["dout"].device, self.forward.lengths is not None
        return tuple(
            x
            if (x := self.gradients.get(name)) is not None
            else new_out(shapes.get(name, (0,)), dtype, device, packed)
            for name in _NAMES
        )


# Implementations for tensors with memory.


def _run(
    inputs: tuple[torch.Tensor, ...], given: tuple[torch.Tensor, ...] | None, lengths: Any, arguments: Any
) -> tuple[torch.Tensor, ...]:
    """Enqueue a call on the current stream, and return dq, dk, dv and dbias."""
    try:
        backward = _Backward(inputs, given, lengths, arguments)
        plan, described, optional = backward.planned()
        shapes = {name: layout.shape for name, layout in plan.gradients.items()}
        dtype = dtype_named(str(plan.params.grad_dtype), "grad_dtype")
        q = inputs[1]
        previous = enter_device(plan.device)
        try:
            addresses = {name: x.data for name, x in described.items()}
            if not q.is_cuda:
                return _lend(plan, backward, dtype, shapes, addresses, optional)
            if not plan.asked:
                plan.ask(addresses, optional)
            results = backward.allocated(dtype, shapes)
            _launch(plan, q, addresses | _addresses(plan, results), optional, stream_handle(q))
            return results
        finally:
            leave_device(previous)
    except InvalidArgumentError as error:
        raise remedied(error) from None


def _lend(
    plan: BwdPlan,
    backward: _Backward,
    dtype: torch.dtype,
    shapes: dict[str, Any],
    addresses: dict[str, int],
    optional: OptionalArguments,
) -> tuple[torch.Tensor, ...]:
    """Allocate what was not given, lend it all to the software device, and wait for that."""
    results = backward.allocated(dtype, shapes)
    addresses = addresses | _addresses(plan, results)
    with host_memory.registered(plan.extents(addresses, optional)):
        if not plan.asked:
            plan.ask(addresses, optional)
        _launch(plan, results[0], addresses, optional, 0)
    return results


def _launch(
    plan: BwdPlan, like: torch.Tensor, addresses: dict[str, int], optional: OptionalArguments, handle: int
) -> None:
    workspace = None if plan.workspace is None else allocate_workspace(plan.workspace, like)
    plan.launch(addresses, 0 if workspace is None else workspace.address, optional, handle)


def _addresses(plan: BwdPlan, results: tuple[torch.Tensor, ...]) -> dict[str, int]:
    return {name: x.data_ptr() for name, x in zip(_NAMES, results, strict=True) if name in plan.gradients}


# Implementations for tensors without memory: tracing.


def _trace(
    inputs: tuple[torch.Tensor, ...], given: tuple[torch.Tensor, ...] | None, lengths: Any, arguments: Any
) -> tuple[torch.Tensor, ...]:
    """Check a call but for addresses, and return the gradients without their elements."""
    try:
        backward = _Backward(inputs, given, lengths, arguments)
        tensors = backward.tensors
        require_one_device(tensors)
        call = backward.call({name: symbolic(x) for name, x in tensors.items() if x is not None})
        _, dtype = check_bwd(call)
    except InvalidArgumentError as error:
        raise remedied(error) from None
    except UnsupportedError as error:
        raise refused_in_a_graph(error) from error
    return backward.allocated(dtype_named(dtype, "grad_dtype"), call.gradient_shapes())


# Questions that forward calls ask ahead of their backward ones.


def require_supported(
    inputs: tuple[torch.Tensor, ...], lengths: Any, arguments: Any, deterministic: bool, bias_grad: bool
) -> None:
    """Raise if no kernel has the gradients of a forward call; `inputs` are its q, k and v.

    Sizes that are symbols cannot be asked about: then the backward call says it.
    """
    optional = [getattr(arguments, name) for name in ("bias", "alibi_slopes", "philox")]
    tensors = [x for x in (*inputs, *optional, *(lengths or ())) if isinstance(x, torch.Tensor)]
    sizes = [n for x in tensors for n in (*x.shape, *x.stride())]
    lengths_max = () if lengths is None else (lengths.max_seqlen_q, lengths.max_seqlen_k)
    if not all(isinstance(n, int) for n in (*sizes, *lengths_max)):
        return
    key = (
        inputs[0].device,
        tuple(x.dtype for x in tensors),
        tuple(sizes),
        lengths_max,
        deterministic,
        bias_grad,
        tuple(x is None for x in (*optional, *(lengths or ()))),
        arguments._replace(
            bias=None, alibi_slopes=None, sinks=None, philox=None, philox_seed=0, philox_offset=0
        ),
    )
    if key in _supported:
        return
    _ask(inputs, lengths, arguments, deterministic, bias_grad)
    if len(_supported) >= _MOST_SUPPORTED:
        _supported.clear()
    _supported.add(key)


def _ask(
    inputs: tuple[torch.Tensor, ...], lengths: Any, arguments: Any, deterministic: bool, bias_grad: bool
) -> None:
    """Ask the library, on q's device, about a backward call with new gradients."""
    invocation = invocation_of(inputs[0], inputs[1], inputs[2], None, lengths, arguments)
    forward = invocation.call(invocation.described(symbolic))
    forward.options = replace(forward.options, kernel=0, out_dtype=None)
    checked = check(forward)
    dtype = output_dtype(None, None, forward.q)
    if arguments.out_dtype is not None and dtype_name(arguments.out_dtype) != dtype:
        raise UnsupportedError(
            f"out_dtype: got {arguments.out_dtype} for tensors that require gradients, expected "
            f"torch.{dtype} or None: cast the result"
        )
    forward.out = contiguous(checked.o, dtype, 0)
    lse = contiguous(checked.lse, "float32", 0)
    # A kernel must take a bias before it can have its gradient.
    calls = [
        BwdCall(
            forward=forward,
            dout=forward.out,
            lse=lse,
            gradients=dict.fromkeys(names),
            deterministic=deterministic,
        )
        for names in (_NAMES[:3], _NAMES)[: 2 if bias_grad else 1]
    ]
    device = inputs[0].device
    try:
        previous = enter_device(device.index if device.index is not None else current_device())
    except HipError:
        return  # traced where there is no device
    try:
        for call in calls:
            make_bwd({}, (), call).require_supported()
    except UnsupportedError as error:
        raise UnsupportedError(
            f"{error}; an input requires a gradient: call under torch.no_grad(), with tensor.detach(), or "
            "torch.nn.functional.scaled_dot_product_attention"
        ) from None
    finally:
        leave_device(previous)


# The operators.


def _kernels(kernel: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Return the functions behind the operators, by name."""
    count = len(LENGTHS)

    def fmha_bwd(dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, *rest: Any) -> Any:
        return kernel((dout, q, k, v, out, lse), None, None, BwdArguments(*rest))

    def fmha_bwd_out(dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, *rest: Any) -> None:
        kernel((dout, q, k, v, out, lse), rest[:3], None, BwdOutArguments(*rest[3:]))

    def fmha_varlen_bwd(dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, *rest: Any) -> Any:
        lengths, options = Lengths(*rest[:count]), rest[count:]
        return kernel((dout, q, k, v, out, lse), None, lengths, BwdArguments(*options))

    def fmha_varlen_bwd_out(dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, *rest: Any) -> None:
        lengths, options = Lengths(*rest[3 : 3 + count]), rest[3 + count :]
        kernel((dout, q, k, v, out, lse), rest[:3], lengths, BwdOutArguments(*options))

    functions = (fmha_bwd, fmha_bwd_out, fmha_varlen_bwd, fmha_varlen_bwd_out)
    return {function.__name__: function for function in functions}


backward_kernels = _kernels(_run)
define(BWD_SCHEMAS, backward_kernels, _kernels(_trace))
