# SPDX-License-Identifier: MIT OR Apache-2.0
"""A KV cache as the C ABI describes it, field for field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from pyfa_rocm._call.by_name import require_class, set_dtype, struct_of

__all__ = ["Cache", "CacheScale", "CacheTensor", "cache_to_c"]


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
    dtype : {"float16", "bfloat16", "float8_e4m3fnuz", "float8_e4m3fn"}
        Type of the keys and values.
    pages, page_size : int
        Number of pages, and tokens of each, a power of two; without pages batch elements and their tokens.
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
        Factors on 8-bit elements.
    scale_per_page : bool
        Whether the scales are by page, not by sequence.
    k_vector, v_vector : int
        Vectors of a vectorised cache: each page and head is (hdim_q / k_vector, page_size, k_vector) of keys,
        and (page_size / v_vector, hdim_v, v_vector) of values; 0: head dims lie together.
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
    k_vector: int = 0
    v_vector: int = 0


def cache_to_c(cache: Cache) -> Any:
    """Return a cache as a new ``fmha_cache *``."""
    require_class("cache", cache, Cache)
    c = struct_of("fmha_cache", cache, tuple(x for x in Cache.__dataclass_fields__ if x != "dtype"))
    set_dtype(c, "dtype", cache.dtype)
    return c
