# SPDX-License-Identifier: MIT OR Apache-2.0
"""Plans of backward calls: checked, filled C structs that lack only the addresses.

As `plan` has them of forward.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pyfa_rocm._call.backward import BwdParams, bwd_to_c
from pyfa_rocm._call.c_struct import fields_of
from pyfa_rocm._call.call import Call, Checked
from pyfa_rocm._call.checks import (
    bias_strides,
    check,
    lse_strides,
    output_dtype,
    params_of,
    require_like,
    require_output,
    strided,
)
from pyfa_rocm._call.optional import ADDRESS_FIELDS, OptionalArguments
from pyfa_rocm._call.plan import keep
from pyfa_rocm._runtime import hip, library
from pyfa_rocm._runtime.tensor import Layout, contiguous
from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["BwdCall", "BwdPlan", "BwdPlans", "check_bwd", "make_bwd"]

# The field of a C struct for the address of a tensor, by the tensor's name in the public functions.
_FORWARD = {"q": "q.data", "k": "k.data", "v": "v.data", "out": "o.data", "lse": "lse.data"}
_BACKWARD = {name: f"{name}.data" for name in ("dout", "dq", "dk", "dv", "dbias")}
# More than the C library says.
_MOST_EXTENTS = 32
# Addresses that nothing uses, of what is there but not yet known where: to be read, and to be written, which
# is to overlap nothing.
_ANYWHERE, _ELSEWHERE = 2**8, 2**60


@dataclass(slots=True, kw_only=True)
class BwdCall:
    """A backward call without addresses.

    Attributes
    ----------
    forward : Call
        The forward call, with `out`.
    dout, lse : Layout
        Layouts of the gradient of O, and of the log-sum-exp.
    gradients : dict
        The gradients that are wanted by name, dq, dk and dv always: their layouts; None: to be allocated.
    grad_dtype : str or None
        Type of gradients that are to be allocated; None: that of the others, or q's.
    accumulate, deterministic, kernel
        As in `BwdParams`.
    """

    forward: Call
    dout: Layout
    lse: Layout
    gradients: dict[str, Layout | None]
    grad_dtype: str | None = None
    accumulate: bool = False
    deterministic: bool = False
    kernel: int = 0

    def gradient_shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape that each gradient has to have."""
        call = self.forward
        shapes = {"dq": call.q.shape, "dk": call.k.shape, "dv": call.v.shape}
        if "dbias" in self.gradients:
            if "bias" not in call.arrays:
                raise InvalidArgumentError("dbias: got a gradient to compute, expected None without bias")
            shapes["dbias"] = call.arrays["bias"].shape
        return shapes

    def gradient_dtype(self) -> str:
        """Check the type of the gradients, and return it."""
        q, named = self.forward.q, self.grad_dtype
        given = {name: layout for name, layout in self.gradients.items() if layout is not None}
        if named is not None and not isinstance(named, (str, type, np.dtype)):
            raise InvalidArgumentError(f"grad_dtype: got {named!r}, expected None, {q.dtype} or float32")
        if self.accumulate and len(given) < len(self.gradients):
            missing = next(name for name in self.gradients if name not in given)
            raise InvalidArgumentError(f"{missing}: got None, expected an array to accumulate in")
        dtype = next(iter(given.values())).dtype if given else named or q.dtype
        if dtype not in (q.dtype, "float32"):
            name = next(iter(given), "grad_dtype")
            raise InvalidArgumentError(f"{name}: got dtype {dtype}, expected {q.dtype} or float32")
        if named not in (None, dtype):
            raise InvalidArgumentError(f"grad_dtype: got {named!r}, expected None or {dtype} as dq")
        for name, shape in self.gradient_shapes().items():
            if name in given:
                require_like(name, given[name], shape, dtype, name[1:], q)
        return dtype


class BwdPlan:
    """Backward calls of one kind.

    Attributes
    ----------
    params : BwdParams
        All but the addresses, which are 0, and the numbers that OptionalArguments has.
    gradients : dict
        Layouts of the gradients, by name.
    packed : bool
        Whether there may be rows of no sequence, which the kernels leave as they are.
    device : int
        Where it runs.
    workspace : Layout or None
        Layout of a call's workspace, once `ask` has asked; None: it needs none.
    asked : bool
        Whether `ask` has succeeded.
    """

    __slots__ = (
        "_arrays",
        "_idle",
        "_places",
        "asked",
        "device",
        "gradients",
        "packed",
        "params",
        "workspace",
    )

    def __init__(self, params: BwdParams, gradients: dict[str, Layout], forward: Call) -> None:
        hip.runtime()
        self.params = params
        self.gradients = gradients
        self.packed = forward.max_seqlen_q is not None
        self.device = forward.q.device
        self._arrays = tuple(forward.arrays)
        self.workspace: Layout | None = None
        self.asked = False
        self._places = _places()
        # Structs whose addresses may be overwritten: a call takes one, so calls at a time have one each.
        self._idle: list[_Block] = []

    def ask(self, addresses: Mapping[str, int], optional: OptionalArguments) -> None:
        """Have the C library check a call before anything is allocated for it, and say its workspace.

        The device must be current; `addresses` are of the tensors that there are, by name.
        """
        ffi, lib = library.load()
        block = self._placed(addresses, optional)
        allocated_later = "dbias" in self.gradients and "dbias" not in addresses
        if allocated_later:  # NULL would say that it is not wanted
            block.c.dbias.data = ffi.cast("void *", _ELSEWHERE)
            block.c.flags = lib.FMHA_NO_MEMORY_CHECK
        nbytes = ffi.new("int64_t *")
        library.check(lib.fmha_bwd_workspace_bytes(block.c, nbytes))
        if not allocated_later:
            self._idle.append(block)
        self.workspace = contiguous((int(nbytes[0]),), "uint8", self.device) if nbytes[0] else None
        self.asked = True

    def require_supported(self) -> None:
        """Raise if no kernel does these calls on the current device; nothing has to have an address yet."""
        lib = library.load()[1]
        block = _Block(replace(self.params, flags=lib.FMHA_NO_MEMORY_CHECK))
        for name in self._arrays:
            block.forward[self._places.forward[ADDRESS_FIELDS[name]]] = _ANYWHERE
        if "dbias" in self.gradients:
            block.backward[self._places.backward["dbias.data"]] = _ELSEWHERE
        library.check(lib.fmha_bwd_supported(block.c))

    def launch(
        self, addresses: Mapping[str, int], workspace: int, optional: OptionalArguments, handle: int
    ) -> None:
        """Launch on these addresses; the device must be current. `workspace` is 0 if none is wanted."""
        ffi, lib = library.load()
        block = self._placed(addresses, optional)
        if self.workspace is not None:
            block.backward[self._places.backward["workspace"]] = workspace
            block.backward[self._places.backward["workspace_bytes"]] = self.workspace.shape[0]
        library.check(lib.fmha_bwd(block.c, ffi.cast("void *", handle) if handle else ffi.NULL))
        self._idle.append(block)

    def extents(self, addresses: Mapping[str, int], optional: OptionalArguments) -> list[tuple[int, int]]:
        """Return address and bytes of all memory that a call reads or writes, its workspace aside."""
        ffi, lib = library.load()
        block = self._placed(addresses, optional)
        extents, count = ffi.new("fmha_extent[]", _MOST_EXTENTS), ffi.new("int32_t *")
        library.check(lib.fmha_bwd_extents(block.c, extents, _MOST_EXTENTS, count))
        self._idle.append(block)
        return [(int(ffi.cast("uintptr_t", x.data)), x.bytes) for x in extents[0 : count[0]]]

    def _placed(self, addresses: Mapping[str, int], optional: OptionalArguments) -> _Block:
        """Return a struct with the addresses and numbers of a call; those of tensors not given are 0."""
        block = self._idle.pop() if self._idle else _Block(self.params)
        for name, index in self._places.forward_tensors:
            block.forward[index] = addresses.get(name, 0)
        for name, index in self._places.backward_tensors:
            block.backward[index] = addresses.get(name, 0)
        for index, word in optional.words:
            block.forward[index] = word
        return block


class _Block:
    """A C struct, the forward one in it, and the memory of both as 64-bit words."""

    __slots__ = ("_fwd", "backward", "c", "forward")

    def __init__(self, params: BwdParams) -> None:
        ffi = library.load()[0]
        self.c, self._fwd = bwd_to_c(params)
        self.forward = memoryview(ffi.buffer(self._fwd)).cast("Q")
        self.backward = memoryview(ffi.buffer(self.c)).cast("Q")


class _Places:
    """Where the addresses are in the two structs, in words of 64 bits: by field, and of the tensors."""

    def __init__(self) -> None:
        self.forward, self.backward = (
            {name: offset // 8 for name, offset, code in fields_of(struct) if code in "qQ"}
            for struct in ("fmha_fwd_params", "fmha_bwd_params")
        )
        self.forward_tensors = [(name, self.forward[field]) for name, field in _FORWARD.items()]
        self.backward_tensors = [
            (name, self.backward[field]) for name, field in _BACKWARD.items() if field in self.backward
        ]


@functools.cache
def _places() -> _Places:
    """Return the places, read from the header once."""
    return _Places()


def check_bwd(call: BwdCall) -> tuple[Checked, str]:
    """Check everything but addresses; return what forward's checks do, and the type of the gradients.

    Sizes may be symbols: only shapes are made of them.
    """
    forward, out = call.forward, call.forward.out
    assert out is not None
    checked = check(forward)
    require_output(out, checked.o, output_dtype(out, forward.options.out_dtype, forward.q), None, forward.q)
    require_like("dout", call.dout, checked.o, out.dtype, "out", forward.q)
    require_like("lse", call.lse, checked.lse, "float32", "q", forward.q)
    return checked, call.gradient_dtype()


def make_bwd(plans: BwdPlans, key: tuple[Any, ...], call: BwdCall) -> BwdPlan:
    """Check a call, and return a new plan of its kind, kept for further calls with this key."""
    checked, dtype = check_bwd(call)
    params, _, _ = params_of(call.forward, checked)
    layouts = {
        name: call.gradients[name] or contiguous(shape, dtype, call.forward.q.device)
        for name, shape in call.gradient_shapes().items()
    }
    bwd_params = BwdParams(
        fwd=replace(params, lse=lse_strides(call.lse)), dout=strided(call.dout), dq=strided(layouts["dq"]),
        dk=strided(layouts["dk"]), dv=strided(layouts["dv"]), grad_dtype=dtype,
        accumulate=bool(call.accumulate), deterministic=bool(call.deterministic), kernel=call.kernel,
        dbias=bias_strides(layouts["dbias"]) if "dbias" in layouts else None,
    )  # fmt: skip
    plan = BwdPlan(bwd_params, layouts, call.forward)
    keep(plans, key, plan)
    return plan


BwdPlans = dict[tuple[Any, ...], BwdPlan]
