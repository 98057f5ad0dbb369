# SPDX-License-Identifier: MIT OR Apache-2.0
"""What attention over a KV cache can be told: Cache and DecodeParams are the C structs, field for field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from pyfa_rocm._call.c_struct import to_c
from pyfa_rocm._call.params import DTYPES, FwdParams
from pyfa_rocm._runtime import library
from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["Cache", "CacheTensor", "DecodeParams", "cache_to_c", "decode_to_c"]


class CacheTensor(NamedTuple):
    """Keys or values (pages, page_size, nhead_k, hdim): device address, and strides (hdim's is 1)."""

    data: int
    stride_page: int
    stride_token: int
    stride_head: int


@dataclass(slots=True)
class Cache:
    """A KV cache: ``fmha_cache`` of fmha_rocm.h, field for field. Addresses are device addresses; 0 is NULL.

    Attributes
    ----------
    dtype : str
        Of the keys and values.
    k, v : CacheTensor
        The keys (pages, page_size, nhead_k, hdim_q) and values (pages, page_size, nhead_k, hdim_v).
    pages, page_size : int
        How many pages there are, and tokens of each: a power of two. Without pages: batch elements, and tokens
        of each.
    block_table, stride_block_table, max_pages : int
        Address of int32 (batch, max_pages), the pages of each sequence in order, and its stride.
    kv_indptr, kv_indices, indices : int
        Or: addresses of int32 (batch + 1), where each sequence begins in kv_indices, and of int32 (indices).
    cache_batch_idx : int
        Without pages: address of int32 (batch), the batch element of each sequence; 0: its own number.
    """

    dtype: str
    k: CacheTensor
    v: CacheTensor
    pages: int
    page_size: int
    block_table: int = 0
    stride_block_table: int = 0
    max_pages: int = 0
    kv_indptr: int = 0
    kv_indices: int = 0
    indices: int = 0
    cache_batch_idx: int = 0


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
        Parts that the keys are dealt to; 0: the library's choice.
    kernel : int
        0: the library's choice; n: the n-th candidate of `fmha_decode_kernel`.
    workspace, workspace_bytes : int
        Address and size of device memory for intermediate results; `fmha_decode_workspace_bytes` says how much.
    flags : int
        Bits of the C ABI, 0 or `FMHA_NO_MEMORY_CHECK`.
    """

    fwd: FwdParams
    cache: Cache
    leftpad_k: int = 0
    sinks: int = 0
    num_splits: int = 0
    kernel: int = 0
    workspace: int = 0
    workspace_bytes: int = 0
    flags: int = 0


def _set(ffi: Any, c: Any, values: Any, kinds: dict[str, Any]) -> None:
    """Write fields of the same names; addresses are given as numbers."""
    for name, field in kinds.items():
        value = getattr(values, name)
        setattr(c, name, ffi.cast("void *", value) if field.type.kind == "pointer" else int(value))


def _fill(c: Any, values: Any, skipped: tuple[str, ...]) -> None:
    ffi, _ = library.load()
    kinds = {name: field for name, field in ffi.typeof(c).item.fields if name not in skipped}
    try:
        _set(ffi, c, values, kinds)
    except (AttributeError, OverflowError, TypeError, ValueError) as error:
        raise InvalidArgumentError(f"params: got {values!r}, expected values of the C struct ({error})") from error


def cache_to_c(p: Cache) -> Any:
    """Return a cache as a new ``fmha_cache *``."""
    ffi, lib = library.load()
    c = ffi.new("fmha_cache *")
    c.struct_size = ffi.sizeof("fmha_cache")
    if p.dtype not in DTYPES:
        raise InvalidArgumentError(f"cache.dtype: got {p.dtype!r}, expected one of {', '.join(DTYPES)}")
    c.dtype = getattr(lib, DTYPES[p.dtype])
    for name in ("k", "v"):
        _fill(ffi.addressof(c, name), getattr(p, name), ())
    _fill(c, p, ("struct_size", "dtype", "k", "v"))
    return c


def decode_to_c(p: DecodeParams) -> tuple[Any, Any]:
    """Return parameters as a new ``fmha_decode_params *``, and what must live as long as it is used."""
    ffi, _ = library.load()
    fwd, cache = to_c(p.fwd), cache_to_c(p.cache)
    c = ffi.new("fmha_decode_params *")
    c.struct_size = ffi.sizeof("fmha_decode_params")
    c.fwd, c.cache = fwd, cache
    _fill(c, p, ("struct_size", "reserved", "fwd", "cache"))
    return c, (fwd, cache)
