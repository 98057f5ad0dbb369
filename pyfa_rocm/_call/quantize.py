# SPDX-License-Identifier: MIT OR Apache-2.0
"""The parameters of the quantiser: QuantizeParams are the C struct's, field for field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from pyfa_rocm._call.by_name import require_class, set_dtype, struct_of
from pyfa_rocm._call.params import Strided
from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["SCALE_UNITS", "Descale", "QuantizeParams", "quantize_to_c", "require_unit"]

# By name: the constants of fmha_scale_unit.
SCALE_UNITS = {"tensor": 1, "head": 2, "block": 3}


class Descale(NamedTuple):
    """Scales, float32 (batch, nhead / heads_per_scale, blocks): device address, and strides in elements."""

    data: int
    stride_batch: int
    stride_head: int
    stride_block: int


@dataclass(slots=True)
class QuantizeParams:
    """Arguments of the quantiser: ``fmha_quantize_params`` of fmha_rocm.h, field for field.

    Attributes
    ----------
    dtype : {"float16", "bfloat16"}
        Type of x.
    out_dtype : str
        Type of out: the device's 8-bit float; or `dtype`, to rotate x only.
    batch, seqlen, nhead, hdim : int
        Sizes. Packed sequences are one batch of all their rows.
    x, out : Strided
        The numbers to quantise, and the place for the result.
    descale : Descale, optional
        The place of the scales, which are written, or read; None: `out_dtype` has none.
    scale_unit : {"tensor", "head", "block"}, optional
        The elements that share a scale; None: there are no scales.
    heads_per_scale : int
        Heads that share one; 0: 1.
    block_tokens : int
        Tokens that share one, with "block".
    given : bool
        True: `descale` is read.
    hadamard : bool
        True: rows are rotated first.
    kernel : int
        0: the library's choice; n: the n-th candidate of `fmha_quantize_kernel`.
    workspace, workspace_bytes : int
        Address and size of device memory; `fmha_quantize_workspace_bytes` says how much.
    flags : int
        Bits of the C ABI, 0 or `FMHA_NO_MEMORY_CHECK`.
    """

    dtype: str
    out_dtype: str
    batch: int
    seqlen: int
    nhead: int
    hdim: int
    x: Strided
    out: Strided
    descale: Descale | None = None
    scale_unit: str | None = None
    heads_per_scale: int = 0
    block_tokens: int = 0
    given: bool = False
    hadamard: bool = False
    kernel: int = 0
    workspace: int = 0
    workspace_bytes: int = 0
    flags: int = 0


_NAMED = ("dtype", "out_dtype", "scale_unit")
_FIELDS = tuple(name for name in QuantizeParams.__dataclass_fields__ if name not in _NAMED)


def quantize_to_c(p: QuantizeParams) -> Any:
    """Return parameters as a new ``fmha_quantize_params *``."""
    require_class("params", p, QuantizeParams)
    c = struct_of("fmha_quantize_params", p, _FIELDS)
    set_dtype(c, "dtype", p.dtype)
    set_dtype(c, "out_dtype", p.out_dtype)
    require_unit(p.scale_unit)
    if p.scale_unit is not None:
        c.scale_unit = SCALE_UNITS[p.scale_unit]
    return c


def require_unit(unit: object) -> None:
    """Raise unless a value says what shares a scale, or None: nothing has one."""
    if unit is None or (isinstance(unit, str) and unit in SCALE_UNITS):
        return
    expected = ", ".join(map(repr, SCALE_UNITS))
    raise InvalidArgumentError(f"scale_unit: got {unit!r}, expected {expected} or None")
