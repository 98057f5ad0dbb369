# SPDX-License-Identifier: MIT OR Apache-2.0
"""An append to a KV cache: KvAppendParams and Rotary are the C structs', field for field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyfa_rocm._call.by_name import require_class, set_dtype, set_fields, struct_of
from pyfa_rocm._call.cache import Cache, cache_to_c
from pyfa_rocm._call.params import Strided

__all__ = ["KvAppendParams", "Rotary", "kv_append_to_c"]


@dataclass(slots=True)
class Rotary:
    """Rotary position embedding: ``fmha_rotary`` of fmha_rocm.h, field for field.

    Attributes
    ----------
    cos, sin : int
        Addresses of tables (positions, dim / 2).
    positions, stride_position : int
        Their rows, and the elements from one to the next.
    dim : int
        Elements of a head that are rotated, the first ones.
    dtype : str, optional
        Type of the tables: "float32", or None for the type of the call.
    interleaved : bool
        Whether elements 2 i and 2 i + 1 are a pair; else i and i + dim / 2.
    """

    cos: int
    sin: int
    positions: int
    stride_position: int
    dim: int
    dtype: str | None = None
    interleaved: bool = False


@dataclass(slots=True)
class KvAppendParams:
    """Arguments of an append to a KV cache: ``fmha_kv_append_params`` of fmha_rocm.h, field for field.

    Attributes
    ----------
    dtype : {"float16", "bfloat16"}
        Type of q, k and v.
    batch, seqlen, nhead_k, hdim_q, hdim_v, nhead_q : int
        Sizes; seqlen is of the new tokens, an upper bound with `cu_seqlens`.
    cache : Cache, optional
        Where keys and values go; None only without them.
    q, q_out, k, v : Strided, optional
        New queries, where their rotation goes (None: it takes their place), new keys and values.
    cu_seqlens, total : int
        Address of int32 (batch + 1), the first row of each packed sequence and the end, and all rows.
    seqused_k : int
        Address of int32 (batch): tokens in the cache before the call; 0: none.
    slots, positions : int
        Addresses of a number for each token: its place in the cache, and its position for rotary; 0: both
        follow seqused_k.
    slots_int64, positions_int64 : bool
        Whether these are int64, not int32.
    rotary : Rotary, optional
        How queries and keys are rotated; None: not.
    kernel : int
        0: the library's choice; n: the n-th candidate of `fmha_kv_append_kernel`.
    flags : int
        Bits of the C ABI, 0 or `FMHA_NO_MEMORY_CHECK`.
    """

    dtype: str
    batch: int
    seqlen: int
    nhead_k: int
    hdim_q: int
    hdim_v: int
    nhead_q: int = 0
    cache: Cache | None = None
    q: Strided | None = None
    q_out: Strided | None = None
    k: Strided | None = None
    v: Strided | None = None
    cu_seqlens: int = 0
    total: int = 0
    seqused_k: int = 0
    slots: int = 0
    positions: int = 0
    slots_int64: bool = False
    positions_int64: bool = False
    rotary: Rotary | None = None
    kernel: int = 0
    flags: int = 0


_ELSEWHERE = ("dtype", "cache", "rotary")
_OF_ROTARY = tuple(name for name in Rotary.__dataclass_fields__ if name != "dtype")


def kv_append_to_c(p: KvAppendParams) -> tuple[Any, Any]:
    """Return parameters as a new ``fmha_kv_append_params *``, and what must live as long as it is used."""
    require_class("params", p, KvAppendParams)
    fields = tuple(name for name in KvAppendParams.__dataclass_fields__ if name not in _ELSEWHERE)
    c = struct_of("fmha_kv_append_params", p, fields)
    set_dtype(c, "dtype", p.dtype)
    if p.rotary is not None:
        require_class("rotary", p.rotary, Rotary)
        set_fields(c.rotary, "fmha_rotary", p.rotary, _OF_ROTARY, "rotary.")
        set_dtype(c.rotary, "dtype", p.rotary.dtype)
    if p.cache is None:
        return c, None
    cache = cache_to_c(p.cache)
    c.cache = cache
    return c, cache
