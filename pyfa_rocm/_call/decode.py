# SPDX-License-Identifier: MIT OR Apache-2.0
"""The parameters of attention over a KV cache: DecodeParams are the C struct's, field for field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyfa_rocm._call.by_name import require_class, struct_of
from pyfa_rocm._call.c_struct import to_c
from pyfa_rocm._call.cache import Cache, cache_to_c
from pyfa_rocm._call.params import FwdParams

__all__ = ["DecodeParams", "decode_to_c"]


@dataclass(slots=True)
class DecodeParams:
    """Arguments of attention over a KV cache: ``fmha_decode_params`` of fmha_rocm.h, field for field.

    Attributes
    ----------
    fwd : FwdParams
        The attention itself. Its `k` and `v` are not looked at; `seqlen_k` is the longest sequence, and
        `seqused_k` the address of the lengths.
    cache : Cache
        Where keys and values are.
    leftpad_k : int
        Address of int32 (batch): tokens at the beginning of each sequence that are no keys; 0: none.
    sinks : int
        Address of float32 (nhead_q): logits without a value; 0: none.
    num_splits : int
        Parts into which the keys are divided; 0: the library's choice.
    seqlen_new : int
        Tokens that an earlier append on the stream adds to each of `fwd.seqused_k`'s lengths.
    lse_base : int
        0: the LSE is a natural logarithm; 1: to base 2.
    kernel : int
        0: the library's choice; n: the n-th candidate of `fmha_decode_kernel`.
    workspace, workspace_bytes : int
        Address and size of device memory for intermediate results; `fmha_decode_workspace_bytes` says how
        much.
    flags : int
        Bits of the C ABI, 0 or `FMHA_NO_MEMORY_CHECK`.
    """

    fwd: FwdParams
    cache: Cache
    leftpad_k: int = 0
    sinks: int = 0
    num_splits: int = 0
    seqlen_new: int = 0
    lse_base: int = 0
    kernel: int = 0
    workspace: int = 0
    workspace_bytes: int = 0
    flags: int = 0


_FIELDS = tuple(name for name in DecodeParams.__dataclass_fields__ if name not in ("fwd", "cache"))


def decode_to_c(p: DecodeParams) -> tuple[Any, Any]:
    """Return parameters as a new ``fmha_decode_params *``, and what must live as long as it is used."""
    require_class("params", p, DecodeParams)
    c = struct_of("fmha_decode_params", p, _FIELDS)
    fwd, cache = to_c(p.fwd), cache_to_c(p.cache)
    c.fwd, c.cache = fwd, cache
    return c, (fwd, cache)
