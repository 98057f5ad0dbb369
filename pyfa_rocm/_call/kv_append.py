# SPDX-License-Identifier: MIT OR Apache-2.0
"""What an append to a KV cache can be told: the C structs', field for field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from pyfa_rocm._call.by_name import set_dtype, struct_of
from pyfa_rocm._call.params import Strided
from pyfa_rocm._runtime import library

__all__ = ["Cache", "CacheScale", "CacheTensor", "KvAppendParams", "Rotary", "kv_append_to_c"]


class CacheTensor(NamedTuple):
    """Keys or values (pages, page_size, nhead_k, hdim): device address, and strides in elements."""

    data: int
    stride_page: int
    stride_token: int
    stride_head: int


class CacheScale(NamedTuple):
    """Float32 scales (pages or sequences, nhead_k): device address, and strides in elements."""

    data: int
    stride_page: int
    stride_head: int


@dataclass(slots=True)
class Cache:
    """A KV cache: ``fmha_cache`` of fmha_rocm.h, field for field.

    Attributes
    ----------
    dtype : {"float16", "bfloat16", "float8_e4m3fnuz"}
        Of the keys and values.
    pages, page_size : int
        Pages that there are, and tokens of each, a power of two; without pages batch elements and tokens.
    k, v : CacheTensor, optional
        The keys and values.
    block_table, stride_block_table, max_pages : int
        Address of int32 (batch, max_pages), the pages of each sequence, and its stride; 0: there is none.
    kv_indptr, kv_indices, indices : int
        Or addresses of int32 (batch + 1) and (indices): sequence b has pages kv_indptr[b] up to
        kv_indptr[b + 1] of kv_indices.
    cache_batch_idx : int
        Without pages: address of int32 (batch), the batch element of each sequence; 0: its own number.
    k_scale, v_scale : CacheScale, optional
        What elements of "float8_e4m3fnuz" are to be multiplied with.
    scale_per_page : bool
        Whether the scales are by page, not by sequence.
    """

    dtype: str
    pages: int
    page_size: int
    k: CacheTensor | None = None
    v: CacheTensor | None = None
    block_table: int = 0
    stride_block_table: int = 0
    max_pages: int = 0
    kv_indptr: int = 0
    kv_indices: int = 0
    indices: int = 0
    cache_batch_idx: int = 0
    k_scale: CacheScale | None = None
    v_scale: CacheScale | None = None
    scale_per_page: bool = False


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
        Of the tables: that of the call, which None means, or "float32".
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
        Of q, k and v.
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
        Addresses of a number for each token: where it goes, and where it stands for rotary; 0: after
        seqused_k.
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


def kv_append_to_c(p: KvAppendParams) -> tuple[Any, Any]:
    """Return parameters as a new ``fmha_kv_append_params *``, and what must live as long as it is used."""
    ffi, _ = library.load()
    c = struct_of("fmha_kv_append_params", p, _fields(KvAppendParams))
    set_dtype(c, "dtype", p.dtype)
    if p.rotary is not None:
        rotary = p.rotary
        c.rotary.cos, c.rotary.sin = ffi.cast("void *", rotary.cos), ffi.cast("void *", rotary.sin)
        for name in ("positions", "stride_position", "dim", "interleaved"):
            setattr(c.rotary, name, int(getattr(rotary, name)))
        set_dtype(c.rotary, "dtype", rotary.dtype)
    if p.cache is None:
        return c, None
    cache = struct_of("fmha_cache", p.cache, _fields(Cache))
    set_dtype(cache, "dtype", p.cache.dtype)
    c.cache = cache
    return c, cache


def _fields(kind: Any) -> tuple[str, ...]:
    """Return the names of the fields that `struct_of` fills."""
    return tuple(name for name in kind.__dataclass_fields__ if name not in _ELSEWHERE)
