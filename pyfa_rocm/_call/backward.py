# SPDX-License-Identifier: MIT OR Apache-2.0
"""The parameters of a backward pass: BwdParams are the C struct's, field for field."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from pyfa_rocm._call.by_name import require_class, set_dtype, struct_of
from pyfa_rocm._call.c_struct import to_c
from pyfa_rocm._call.params import Bias, FwdParams, Strided

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


_FIELDS = tuple(field.name for field in fields(BwdParams) if field.name not in ("fwd", "grad_dtype"))


def bwd_to_c(p: BwdParams) -> tuple[Any, Any]:
    """Return parameters as a new ``fmha_bwd_params *``, and what must live as long as it is used."""
    require_class("params", p, BwdParams)
    fwd = to_c(p.fwd)
    c = struct_of("fmha_bwd_params", p, _FIELDS)
    set_dtype(c, "grad_dtype", p.grad_dtype)
    c.fwd = fwd
    return c, fwd
