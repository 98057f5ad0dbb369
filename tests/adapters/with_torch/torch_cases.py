# SPDX-License-Identifier: MIT OR Apache-2.0
"""The cases of tests/support/cases.py on torch CPU tensors, through pyfa_rocm.torch.

As in tests/support/cases_place.py, every tensor lives in a larger buffer of NaN. A kernel may read only the
tensor itself, and nothing around an output may change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from built import candidates
from cases import DTYPES, Case, Layout, Placement, bits, canary, expected, judge
from cases_types import Array, Bools
from reference import Numerics, numerics_of
from strict import forgiven, only_initialized, read_only

import pyfa_rocm
from pyfa_rocm._call.optional import OptionalArguments
from pyfa_rocm._call.plan import Plan
from pyfa_rocm._runtime import hip
from pyfa_rocm.torch import flash_attn_func, flash_attn_varlen_func

_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def to_torch(host: Array) -> torch.Tensor:
    """A torch tensor on the memory of a C-contiguous array, of types that NumPy does not know too."""
    dtype = getattr(torch, host.dtype.name)
    return torch.from_numpy(host.view(_BITS[host.itemsize])).view(dtype)


def to_numpy(tensor: torch.Tensor) -> Array:
    """The other way, a copy."""
    name = str(tensor.dtype).removeprefix("torch.")
    dtype = DTYPES[name] if name in DTYPES else np.dtype(name)
    tensor = tensor.contiguous()
    same_bits: Array = tensor.view(getattr(torch, _BITS[dtype.itemsize].__name__)).numpy()
    return np.array(same_bits.view(dtype))


class Held:
    """A tensor inside its buffer of NaN. `used`: which elements are the tensor's."""

    def __init__(
        self, layout: Layout, shape: tuple[int, ...], data: Array | None, used: Bools | None, dtype: Any
    ) -> None:
        self.layout, self.shape = layout, shape
        self.host = canary(layout.size(shape), dtype)
        self.used = np.broadcast_to(True if used is None else used, shape)
        view = layout.view(self.host, shape)
        if data is not None:
            view[self.used] = data[self.used]
        self.before = self.host.copy()
        size = self.host.itemsize
        start = (view.__array_interface__["data"][0] - self.address) // size
        strides = tuple(n // size for n in view.strides)
        self.tensor = torch.as_strided(to_torch(self.host), shape, strides, start)

    @property
    def address(self) -> int:
        return int(self.host.ctypes.data)

    def watch(self, holds_input: bool) -> None:
        """Have the software device report a kernel that reads of the buffer what is not input."""
        written = np.zeros(self.host.size, np.bool_)
        if holds_input:
            self.layout.view(written, self.shape)[self.used] = True
        only_initialized(self.address, self.host.nbytes, np.repeat(written, self.host.itemsize))

    def unchanged(self) -> bool:
        return bool(np.array_equal(bits(self.host), bits(self.before)))

    def only_used_changed(self) -> bool:
        now = self.host.copy()
        view, before = (self.layout.view(x, self.shape) for x in (now, self.before))
        view[self.used] = before[self.used]
        return bool(np.array_equal(bits(now), bits(self.before)))


class TorchCase:
    """All tensors of a case as torch has them; `own_out`: O is allocated by the call."""

    def __init__(self, case: Case, *, own_out: bool = False) -> None:
        self.case, self.inputs, self.own_out = case, case.inputs(), own_out
        # The same case, on the device: what it is made of, and the kernel that serves it.
        self.placement = Placement(case, self.inputs)
        self.held: dict[str, Held] = {}
        for name, placed in self.placement.tensors.items():
            if name in ("lse", "randval") or (name == "o" and own_out):
                continue
            view = np.array(placed.layout.view(placed.host, placed.shape))
            data = None if name == "o" else view
            self.held[name] = Held(placed.layout, placed.shape, data, placed.used, placed.host.dtype)

    def tensor(self, name: str) -> torch.Tensor:
        """One as the public functions take it; K and V that are shared are expanded."""
        tensor = self.held[name].tensor
        if name in "kv" and any(self.case.broadcast_kv):
            shape = (self.case.slots, tensor.shape[1], self.case.nhead_k, tensor.shape[3])
            tensor = tensor.expand(shape)
        return tensor[0] if self.case.varlen is not None and name in "qkvo" else tensor

    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and keyword arguments of the public function."""
        case = self.case
        positional = tuple(self.tensor(name) for name in "qkv")
        named: dict[str, Any] = {
            "softmax_scale": case.scale,
            "causal": case.causal,
            "window_size": case.window,
            "softcap": case.softcap,
            "top_left": case.top_left,
            "return_lse": case.lse,
            **self._features(),
        }
        if not self.own_out:
            named["out"] = self.tensor("o")
        if case.varlen is not None:
            lengths = {
                "cu_q": "cu_seqlens_q",
                "cu_k": "cu_seqlens_k",
                "used_q": "seqused_q",
                "used_k": "seqused_k",
            }
            named |= {
                lengths[name]: held.tensor[0, 0, 0] for name, held in self.held.items() if name in lengths
            }
            named |= {"max_seqlen_q": case.seqlen_q, "max_seqlen_k": case.seqlen_k}
        return positional, named

    def _features(self) -> dict[str, Any]:
        case = self.case
        named: dict[str, Any] = {}
        if case.bias is not None:
            bias = self.held["bias"].tensor
            named["bias"] = bias if case.varlen is None else bias[0]
        if case.alibi:
            slopes = self.held["slopes"].tensor[0, :, 0]
            named["alibi_slopes"] = slopes if case.alibi == 2 else slopes[0]
        if case.sinks:
            named["sinks"] = self.held["sinks"].tensor[0, 0, 0]
        if (dropout := case.dropout) is not None:
            named["dropout_p"] = dropout.p
            values = (dropout.seed, dropout.offset)
            named["philox"] = self.held["philox"].tensor[0, 0, 0] if dropout.on_device else values
        for name, value in zip(("q_descale", "k_descale", "v_descale"), case.descale, strict=True):
            if value != 1.0:
                named[name] = value
        if case.o_dtype:
            named["out_dtype"] = getattr(torch, case.o_dtype)
        return named

    @property
    def function(self) -> Any:
        return flash_attn_func if self.case.varlen is None else flash_attn_varlen_func

    def run(self) -> tuple[Array, Array | None]:
        """Call the public function; return O and the log-sum-exp of the rows in use."""
        positional, named = self.arguments()
        with forgiven():
            result = self.function(*positional, **named)
        out, lse = result if self.case.lse else (result, None)
        if not self.own_out:
            assert out is named["out"]
        return self.of_rows_in_use(out, lse)

    def of_rows_in_use(self, out: torch.Tensor, lse: torch.Tensor | None) -> tuple[Array, Array | None]:
        rows = self.case.rows_in_use()[0]
        if self.case.varlen is not None:
            out, lse = out[None], None if lse is None else lse[None]
        return to_numpy(out)[:, rows], None if lse is None else to_numpy(lse)[..., rows]

    def judge(self, o: Array, lse: Array | None) -> None:
        """Assert that results are right, and that nothing else was written."""
        kernel = pyfa_rocm.fmha_fwd_kernel(self.placement.params())
        numerics = numerics_of(self.case.dtype, self.case.out_dtype, kernel.tile_n, kernel.arch)
        judge(expected(self.case, self.inputs, numerics), o, lse)
        for name, held in self.held.items():
            assert held.only_used_changed() if name == "o" else held.unchanged(), f"{name} was written"

    @contextmanager
    def watched(self) -> Iterator[None]:
        """The memory is the device's already; kernels inside may only read the inputs, not write them."""
        with pinned(*(held.host for held in self.held.values())):
            for name, held in self.held.items():
                held.watch(holds_input=name != "o")
            inputs = [held for name, held in self.held.items() if name != "o"]
            with read_only((held.address, held.host.nbytes) for held in inputs):
                yield


@contextmanager
def pinned(*buffers: Array) -> Iterator[None]:
    """Have the device know these host buffers."""
    addresses = [int(buffer.ctypes.data) for buffer in buffers]
    for address, buffer in zip(addresses, buffers, strict=True):
        hip.call("hipHostRegister", address, buffer.nbytes, 0)
    try:
        yield
    finally:
        for address in addresses:
            hip.call("hipHostUnregister", address)


@contextmanager
def kernels_that_run() -> Iterator[list[pyfa_rocm.KernelInfo]]:
    """Collect the kernels of the calls inside: errors are distributed as their pipelines make them."""
    found: list[pyfa_rocm.KernelInfo] = []
    launch = Plan.launch

    def asking(
        plan: Plan,
        q: int,
        k: int,
        v: int,
        o: int,
        lse: int,
        workspace: int,
        optional: OptionalArguments | None,
        handle: int,
    ) -> None:
        params = plan.params_at(q, k, v, optional)
        if params.lse is not None:
            params = replace(params, lse=params.lse._replace(data=lse))
        found.append(pyfa_rocm.fmha_fwd_kernel(params))
        launch(plan, q, k, v, o, lse, workspace, optional, handle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Plan, "launch", asking)
        yield found


def numerics_like(kernel: pyfa_rocm.KernelInfo, dtype: torch.dtype) -> Numerics:
    """How a kernel rounds that gives its inputs' type."""
    name = str(dtype).removeprefix("torch.")
    return numerics_of(name, None, kernel.tile_n, kernel.arch)


def is_known(address: int) -> bool:
    """Return whether the device knows the memory at this address."""
    return int(hip.call("hipPointerGetAttributes", address).device) >= 0


def run_or_refused(case: Case, *, own_out: bool, watched: bool) -> None:
    """Run a case and judge it, or see it refused where no kernel can do it."""
    problem = TorchCase(replace(case, dropout=_without_randval(case)), own_out=own_out)
    if not candidates(problem.case):
        with pytest.raises(pyfa_rocm.UnsupportedError):
            problem.run()
        assert all(held.unchanged() for held in problem.held.values())
        return
    if watched:
        with problem.watched():
            results = problem.run()
    else:
        results = problem.run()
    problem.judge(*results)


def _without_randval(case: Case) -> Any:
    return case.dropout and replace(case.dropout, randval=False)
