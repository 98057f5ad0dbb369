# SPDX-License-Identifier: MIT OR Apache-2.0
"""The parameters of a backward pass: BwdParams are the C struct's, field for field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyfa_rocm._call.by_name import pointer, require_class
from pyfa_rocm._call.c_struct import to_c
from pyfa_rocm._call.numbers import NOT_OF_C
from pyfa_rocm._call.params import DTYPES, Bias, FwdParams, Strided
from pyfa_rocm._runtime import library
from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["BwdParams", "bwd_to_c"]


@dataclass(slots=True)
class BwdParams:
    """Arguments of a backward pass: ``fmha_bwd_params`` of fmha_rocm.h, field for field.

    Attributes
    ----------
    fwd : FwdParams
        The forward call, with `o` and `lse` as it wrote them: they are only read. `lse` is required.
    dout : Strided
        Gradient of O, of O's shape and dtype.
    dq, dk, dv : Strided
        Where to write the gradients, shaped like q, k and v.
    grad_dtype : str, optional
        Type of dq, dk, dv and dbias: "float32", or None for the type of `fwd`.
    accumulate : bool
        Whether the gradients are added to what dq, dk, dv and dbias hold.
    deterministic : bool
        Whether dQ has the same bits from run to run.
    kernel : int
        0: the library's choice; n: the n-th candidate of `fmha_bwd_kernel`.
    workspace, workspace_bytes : int
        Address and size of device memory for intermediate results; `fmha_bwd_workspace_bytes` says how much.
    flags : int
        Bits of the C ABI, 0 or `FMHA_NO_MEMORY_CHECK`.
    dbias : Bias, optional
        Where to write the gradient of the bias; a stride of 0 sums over its dimension. None: not wanted.
    """

    fwd: FwdParams
    dout: Strided
    dq: Strided
    dk: Strided
    dv: Strided
    grad_dtype: str | None = None
    accumulate: bool = False
    deterministic: bool = False
    kernel: int = 0
    workspace: int = 0
    workspace_bytes: int = 0
    flags: int = 0
    dbias: Bias | None = None


def bwd_to_c(p: BwdParams) -> tuple[Any, Any]:
    """Return parameters as a new ``fmha_bwd_params *``, and what must live as long as it is used."""
    ffi, lib = library.load()
    require_class("params", p, BwdParams)
    fwd = to_c(p.fwd)
    c = ffi.new("fmha_bwd_params *")
    c.struct_size = ffi.sizeof("fmha_bwd_params")
    if p.grad_dtype is not None:
        if not isinstance(p.grad_dtype, str) or p.grad_dtype not in DTYPES:
            raise InvalidArgumentError(
                f"grad_dtype: got {p.grad_dtype!r}, expected None or one of {', '.join(DTYPES)}"
            )
        c.grad_dtype = getattr(lib, DTYPES[p.grad_dtype])
    c.fwd = fwd
    try:
        for name in ("dout", "dq", "dk", "dv", "dbias") if p.dbias else ("dout", "dq", "dk", "dv"):
            field, value = getattr(c, name), getattr(p, name)
            field.data = pointer(ffi, value.data)
            for stride in ("stride_batch", "stride_seqlen", "stride_head"):
                setattr(field, stride, getattr(value, stride))
        for name in ("accumulate", "deterministic", "kernel", "workspace_bytes", "flags"):
            setattr(c, name, int(getattr(p, name)))
        c.workspace = pointer(ffi, p.workspace)
    except NOT_OF_C as error:
        raise InvalidArgumentError(f"params: got {p!r}, expected values of the C struct ({error})") from error
    return c, fwd
