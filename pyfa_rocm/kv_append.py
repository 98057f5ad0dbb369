# SPDX-License-Identifier: MIT OR Apache-2.0
"""`flash_attn_kv_append`: new keys and values into a cache, rotated and quantised on the way."""

from __future__ import annotations

from typing import Any

from pyfa_rocm._call.arrays import Array, to_read, to_write
from pyfa_rocm._call.cache import Cache
from pyfa_rocm._call.cached import cache_at, cache_of
from pyfa_rocm._call.checks import require_like, strided
from pyfa_rocm._call.kv_append import KvAppendParams, Rotary, kv_append_to_c
from pyfa_rocm._call.numbers import to_integer
from pyfa_rocm._call.params import Strided
from pyfa_rocm._call.placed import Placed, Placeds, at_tags, find_or_make
from pyfa_rocm._runtime import library
from pyfa_rocm._runtime.tensor import Layout
from pyfa_rocm.device import enter_device, leave_device, stream_for
from pyfa_rocm.errors import InvalidArgumentError

__all__ = ["append_params", "append_plan", "flash_attn_kv_append"]

_plans: Placeds = {}
_INTEGERS = ("int32", "int64")


def flash_attn_kv_append(
    k_cache: Any,
    v_cache: Any,
    k: Any,
    v: Any,
    cache_seqlens: Any = None,
    *,
    q: Any = None,
    q_out: Any = None,
    rotary_cos: Any = None,
    rotary_sin: Any = None,
    rotary_interleaved: bool = True,
    positions: Any = None,
    block_table: Any = None,
    kv_indptr: Any = None,
    kv_indices: Any = None,
    cache_batch_idx: Any = None,
    slots: Any = None,
    cu_seqlens: Any = None,
    max_seqlen: int | None = None,
    k_scale: Any = None,
    v_scale: Any = None,
    scale_per_page: bool = False,
    stream: Any = None,
) -> Any:
    """Write new keys and values to a cache, and rotate new queries.

    Parameters
    ----------
    k_cache, v_cache : array, (pages, page_size, nhead_k, hdim) or (batch_cache, seqlen_cache, nhead_k, hdim)
        The cache, written: of k's dtype or the device's 8-bit float, the last dimension contiguous, in any
        layout; or vectorised, as in `flash_attn_with_kvcache`.
    k, v : array, (batch, seqlen_new, nhead_k, hdim) or (total, nhead_k, hdim)
        New keys and values, float16 or bfloat16. If these and k_cache and v_cache are None, only `q` is
        rotated.
    cache_seqlens : array, int32 (batch), optional
        Tokens in the cache before the call, which the new ones follow. Not written. None: 0.
    q : array, (batch, seqlen_new, nhead_q, hdim) or (total, nhead_q, hdim), optional
        New queries to rotate.
    q_out : array, optional
        Where to write the rotated queries, shaped like `q`. None: they overwrite `q`.
    rotary_cos, rotary_sin : array, (positions, rotary_dim / 2), optional
        Tables of k's dtype, or float32. None: nothing is rotated.
    rotary_interleaved : bool
        True: elements 2 i and 2 i + 1 are a pair. False: i and i + rotary_dim / 2 are.
    positions : array, int32 or int64 (batch, seqlen_new) or (total), optional
        Position of each token, for rotary. None: its place in the sequence.
    block_table : array, int32 (batch, max_pages), optional
        Pages of each sequence. A token without a page of the cache is not stored. None: the cache has no
        pages, or `slots` or `kv_indptr` is given.
    kv_indptr, kv_indices : array, int32 (batch + 1) and (indices), optional
        Instead of `block_table`: sequence b has the pages ``kv_indices[kv_indptr[b]:kv_indptr[b + 1]]``.
    cache_batch_idx : array, int32 (batch), optional
        Without pages: the element of the cache for each sequence. None: its own number.
    slots : array, int32 or int64 (batch, seqlen_new) or (total), optional
        Place of each token: token ``slot % page_size`` of page ``slot / page_size``. Below 0: not stored.
    cu_seqlens : array, int32 (batch + 1), optional
        First row of each packed sequence, and the end. Packed tokens without it are one sequence.
    max_seqlen : int, optional
        The most new tokens of a packed sequence. None: all.
    k_scale, v_scale : array, float32 (pages or batch, nhead_k), optional
        Factors on the elements of an 8-bit cache. None: 1.
    scale_per_page : bool
        True: scales are by page. False: by sequence.
    stream : object, optional
        As in `flash_attn_func`.

    Returns
    -------
    array or None
        `q_out`, or `q` if it was rotated in place.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `flash_attn_func`.

    Notes
    -----
    Source: ``fmha_kv_append`` of native/include/fmha_rocm.h and native/kernels/hip/decode/kv_append.h.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfa_rocm import DeviceArray, flash_attn_kv_append
    >>> k_cache, v_cache = (DeviceArray.from_numpy(np.zeros((2, 64, 1, 32), np.float16)) for _ in range(2))
    >>> k, v = (DeviceArray.from_numpy(np.ones((2, 1, 1, 32), np.float16)) for _ in range(2))
    >>> lengths = DeviceArray.from_numpy(np.array([3, 10], np.int32))
    >>> flash_attn_kv_append(k_cache, v_cache, k, v, lengths)
    >>> np.argwhere(k_cache.to_numpy()[..., 0, 0]).tolist()
    [[0, 3], [1, 10]]
    """
    handle = stream_for(stream, q if k is None else k)
    given = {
        "k": k, "v": v, "q": q, "rotary_cos": rotary_cos, "rotary_sin": rotary_sin, "positions": positions,
        "block_table": block_table, "kv_indptr": kv_indptr, "kv_indices": kv_indices,
        "cache_batch_idx": cache_batch_idx, "slots": slots,
        "cache_seqlens": cache_seqlens, "cu_seqlens": cu_seqlens, "k_scale": k_scale, "v_scale": v_scale,
    }  # fmt: skip
    arrays = {name: to_read(array, name, handle) for name, array in given.items() if array is not None}
    out = q if q_out is None else q_out
    written = {"k_cache": k_cache, "v_cache": v_cache, "q_out": out}
    arrays |= {name: to_write(x, name, handle) for name, x in written.items() if x is not None}
    plan = append_plan(arrays, max_seqlen, rotary_interleaved, scale_per_page)
    previous = enter_device(arrays["q" if k is None else "k"].layout.device)
    try:
        addresses = {name: array.address for name, array in arrays.items()}
        plan.launch(library.load()[1].fmha_kv_append, addresses, handle)
    finally:
        leave_device(previous)
    return out


def append_plan(
    arrays: dict[str, Array], max_seqlen: int | None, interleaved: bool, scale_per_page: bool
) -> Placed:
    """Look for the structs of a call by the layouts of its arrays, or check it and make them."""
    layouts = {name: array.layout for name, array in arrays.items()}

    def make(tags: dict[str, int]) -> tuple[Any, ...]:
        at = at_tags(layouts, tags)
        c, cache = kv_append_to_c(append_params(at, max_seqlen, interleaved, scale_per_page))
        return (c,) if cache is None else (c, cache)

    key = (tuple(layouts.items()), max_seqlen, interleaved, scale_per_page)
    return find_or_make(_plans, key, make, layouts)


def append_params(
    arrays: dict[str, Array], max_seqlen: int | None, interleaved: bool, scale_per_page: bool
) -> KvAppendParams:
    """Check shapes and types, and return the parameters of the C call."""
    if missing := _missing(arrays):
        raise InvalidArgumentError(
            f"{missing}: got None, expected k, v, k_cache and v_cache, or q and none of them"
        )
    stores = "k" in arrays
    k = arrays["k" if stores else "q"].layout
    if len(k.shape) not in (3, 4):
        raise InvalidArgumentError(
            f"{'k' if stores else 'q'}: got shape {k.shape}, expected 4 dimensions (batch, seqlen, nhead, "
            "hdim), or 3 (total, nhead, hdim)"
        )
    *tokens, nhead_k, hdim_q = k.shape
    packed = len(tokens) == 1 and "cu_seqlens" in arrays
    batch = arrays["cu_seqlens"].layout.shape[0] - 1 if packed else tokens[0] if len(tokens) == 2 else 1
    longest = tokens[-1] if max_seqlen is None else to_integer("max_seqlen", max_seqlen)
    if not packed and longest != tokens[-1]:  # more would be read behind k
        raise InvalidArgumentError(
            f"max_seqlen: got {longest}, expected None or {tokens[-1]} without cu_seqlens"
        )
    fields = _token_fields(arrays, tuple(tokens), batch, k) | _query_fields(arrays, tuple(tokens), k)
    hdim_v = hdim_q
    if stores:
        v = arrays["v"].layout
        hdim_v = v.shape[-1] if v.shape else 0
        require_like("v", v, (*tokens, nhead_k, hdim_v), k.dtype, "k", k)
        fields |= {"k": _strided(arrays["k"]), "v": _strided(arrays["v"])}
        fields["cache"] = _cache(arrays, batch, k, hdim_v, scale_per_page)
    return KvAppendParams(
        dtype=k.dtype, batch=batch, seqlen=longest, nhead_k=nhead_k, hdim_q=hdim_q, hdim_v=hdim_v,
        total=tokens[0] if packed else 0, rotary=_rotary(arrays, k, interleaved), **fields,
    )  # fmt: skip


def _missing(arrays: dict[str, Array]) -> str | None:
    """Return the name of a required array that is missing."""
    stored = ("k", "v", "k_cache", "v_cache")
    if not any(name in arrays for name in stored):
        return None if "q" in arrays else "q"
    return next((name for name in stored if name not in arrays), None)


def _strided(array: Array) -> Strided:
    return strided(array.layout)._replace(data=array.address)


def _query_fields(arrays: dict[str, Array], tokens: tuple[int, ...], k: Layout) -> dict[str, Any]:
    if "q" not in arrays:
        if "q_out" in arrays:
            raise InvalidArgumentError("q_out: got an array, expected None without q")
        return {}
    q, q_out = arrays["q"].layout, arrays["q_out"].layout
    nhead = q.shape[-2] if len(q.shape) > 1 else 0
    require_like("q", q, (*tokens, nhead, k.shape[-1]), k.dtype, "k", k)
    require_like("q_out", q_out, q.shape, k.dtype, "q", k)
    return {"nhead_q": nhead, "q": _strided(arrays["q"]), "q_out": _strided(arrays["q_out"])}


def _token_fields(arrays: dict[str, Array], tokens: tuple[int, ...], batch: int, k: Layout) -> dict[str, Any]:
    """Return the fields of the contiguous arrays that have an item for each token or sequence."""
    fields: dict[str, Any] = {}
    for name in ("slots", "positions"):
        if name in arrays:
            layout = arrays[name].layout
            dtype = layout.dtype if layout.dtype in _INTEGERS else "int32"
            _require_dense(name, layout, tokens, dtype, k)
            fields |= {name: arrays[name].address, f"{name}_int64": dtype == "int64"}
    for name, field, count in (
        ("cache_seqlens", "seqused_k", batch),
        ("cu_seqlens", "cu_seqlens", batch + 1),
    ):
        if name in arrays:
            _require_dense(name, arrays[name].layout, (count,), "int32", k)
            fields[field] = arrays[name].address
    return fields


def _require_dense(name: str, layout: Layout, shape: tuple[int, ...], dtype: str, k: Layout) -> None:
    require_like(name, layout, shape, dtype, "k", k)
    if len(shape) == 2 and shape[0] > 1 and layout.strides[0] != shape[1]:
        raise InvalidArgumentError(f"{name}: got strides {layout.strides}, expected a contiguous array")


def _rotary(arrays: dict[str, Array], k: Layout, interleaved: bool) -> Rotary | None:
    if "rotary_cos" not in arrays and "rotary_sin" not in arrays:
        return None
    for name, other in (("rotary_cos", "rotary_sin"), ("rotary_sin", "rotary_cos")):
        if name not in arrays:
            raise InvalidArgumentError(f"{name}: got None, expected an array as {other}")
    cos, sin = arrays["rotary_cos"].layout, arrays["rotary_sin"].layout
    if len(cos.shape) != 2:
        raise InvalidArgumentError(f"rotary_cos: got shape {cos.shape}, expected (positions, rotary_dim / 2)")
    require_like("rotary_cos", cos, cos.shape, "float32" if cos.dtype == "float32" else k.dtype, "k", k)
    require_like("rotary_sin", sin, cos.shape, cos.dtype, "rotary_cos", k)
    if sin.strides != cos.strides:
        raise InvalidArgumentError(f"rotary_sin: got strides {sin.strides}, expected {cos.strides}")
    return Rotary(
        cos=arrays["rotary_cos"].address,
        sin=arrays["rotary_sin"].address,
        positions=cos.shape[0],
        stride_position=cos.strides[0],
        dim=2 * cos.shape[1],
        dtype=cos.dtype,
        interleaved=bool(interleaved),
    )


def _cache(arrays: dict[str, Array], batch: int, k: Layout, hdim_v: int, scale_per_page: bool) -> Cache:
    layouts = {name: array.layout for name, array in arrays.items()}
    cache, *_ = cache_of(layouts, batch, k, scale_per_page, (k.shape[-2], hdim_v))
    return cache_at(cache, {name: array.address for name, array in arrays.items()})
