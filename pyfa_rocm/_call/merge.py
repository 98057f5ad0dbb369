# SPDX-License-Identifier: MIT OR Apache-2.0
"""The parameters of a merge of partial outputs: MergeParams are the C struct's, field for field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from pyfa_rocm._call.by_name import require_class, set_dtype, struct_of
from pyfa_rocm._call.numbers import truth
from pyfa_rocm._call.params import Lse, Strided
from pyfa_rocm._runtime import library

__all__ = ["LseParts", "MergeParams", "Parts", "merge_to_c"]


class Parts(NamedTuple):
    """Partial outputs (parts, batch, seqlen, nhead, hdim): device address, and strides in elements."""

    data: int
    stride_part: int
    stride_batch: int
    stride_seqlen: int
    stride_head: int


class LseParts(NamedTuple):
    """Their log-sum-exps, float32 (parts, batch, nhead, seqlen): device address, and strides in elements."""

    data: int
    stride_part: int
    stride_batch: int
    stride_head: int


@dataclass(slots=True)
class MergeParams:
    """Arguments of a merge: ``fmha_merge_params`` of fmha_rocm.h, field for field.

    Attributes
    ----------
    dtype : {"float16", "bfloat16", "float32"}
        Type of the parts.
    parts, batch, seqlen, nhead, hdim : int
        Sizes. Packed sequences are one batch of all their rows.
    o_parts : Parts
        The partial outputs.
    lse_parts : LseParts
        Their log-sum-exps.
    o : Strided
        Where to write the merged output.
    lse : Lse, optional
        Where to write its log-sum-exp; None: not wanted.
    o_dtype : str, optional
        Type of o; None: `dtype`.
    base2 : bool
        Whether all log-sum-exps are of base 2, not natural.
    accumulate : bool
        True: o and lse hold one more part, and the result replaces it.
    kernel : int
        0: the library's choice; n: the n-th candidate of `fmha_merge_kernel`.
    flags : int
        Bits of the C ABI, 0 or `FMHA_NO_MEMORY_CHECK`.
    """

    dtype: str
    parts: int
    batch: int
    seqlen: int
    nhead: int
    hdim: int
    o_parts: Parts
    lse_parts: LseParts
    o: Strided
    lse: Lse | None = None
    o_dtype: str | None = None
    base2: bool = False
    accumulate: bool = False
    kernel: int = 0
    flags: int = 0


_FIELDS = (
    "parts", "batch", "seqlen", "nhead", "hdim", "o_parts", "lse_parts", "o", "lse", "accumulate", "kernel",
    "flags",
)  # fmt: skip


def merge_to_c(p: MergeParams) -> Any:
    """Return parameters as a new ``fmha_merge_params *``."""
    _, lib = library.load()
    require_class("params", p, MergeParams)
    base2 = truth("base2", p.base2)
    c = struct_of("fmha_merge_params", p, _FIELDS)
    set_dtype(c, "dtype", p.dtype)
    set_dtype(c, "o_dtype", p.o_dtype)
    c.lse_base = lib.FMHA_LSE_BASE2 if base2 else lib.FMHA_LSE_NATURAL
    return c
