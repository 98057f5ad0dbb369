# SPDX-License-Identifier: MIT OR Apache-2.0
"""`flash_attn_with_kvcache`: attention over a KV cache, which it may append to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pyfa_rocm._call.arrays import Array, to_read, to_write
from pyfa_rocm._call.cached import REQUIRED, CachedOptions
from pyfa_rocm._call.cached_plan import CachedPlan, cached_plan
from pyfa_rocm._call.lengths import require_room
from pyfa_rocm._call.numbers import to_integer, truth
from pyfa_rocm._call.params import Options
from pyfa_rocm._call.results import packed_results
from pyfa_rocm._runtime import hip
from pyfa_rocm._runtime.tensor import Layout, Tensor, contiguous, layout_of
from pyfa_rocm.array import DeviceArray, dtype_of
from pyfa_rocm.device import enter_device, leave_device, stream_for
from pyfa_rocm.errors import InvalidArgumentError
from pyfa_rocm.kv_append import flash_attn_kv_append

__all__ = ["attend_cached", "flash_attn_with_kvcache", "longest_q", "require_new"]


def flash_attn_with_kvcache(
    q: Any,
    k_cache: Any,
    v_cache: Any,
    k: Any = None,
    v: Any = None,
    rotary_cos: Any = None,
    rotary_sin: Any = None,
    cache_seqlens: Any = None,
    cache_batch_idx: Any = None,
    cache_leftpad: Any = None,
    block_table: Any = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: Any = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
    *,
    kv_indptr: Any = None,
    kv_indices: Any = None,
    sinks: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    scale_per_page: bool = False,
    cu_seqlens_q: Any = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    kernel: int = 0,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Attention over a KV cache. If `k` and `v` are given, it stores them first, and `q` sees them.

    Parameters
    ----------
    q : array, (batch, seqlen_q, nhead_q, hdim), or (total_q, nhead_q, hdim) with `cu_seqlens_q`
        Queries, the last tokens of their sequences: float16 or bfloat16. Not written.
    k_cache : array, (pages, page_size, nhead_k, hdim) or (batch_cache, seqlen_cache, nhead_k, hdim)
        Keys, of q's dtype or whichever of float8_e4m3fnuz and float8_e4m3fn the device has, the last
        dimension contiguous, in any layout. With pages, page_size is a power of two. Or
        vectorised: (pages, nhead_k, hdim / x, page_size, x), x of 16 bytes.
    v_cache : array
        Values: as `k_cache`, with hdim_v. If that is vectorised: (pages, nhead_k, page_size / y, hdim_v, y),
        or (pages, nhead_k, hdim_v, page_size).
    k, v : array, (batch, seqlen_new, nhead_k, hdim), optional
        New keys and values, which the caches then hold. (`flash_attn_kv_append` stores packed ones.)
    rotary_cos, rotary_sin : array, (positions, rotary_dim / 2), optional
        Tables of q's dtype, or float32; only with `k`. New keys are rotated by their places in the sequence.
        Queries are too if `causal` or with a window; otherwise all of them by the place of the first new
        token.
    cache_seqlens : int or array, int32 (batch), optional
        Tokens in the cache, without the new ones. Not written. None: the cache is full; not with `k`. An
        integer for which the cache has no room is refused. If lengths are an
        array, tokens without room are not stored.
    cache_batch_idx : array, int32 (batch), optional
        The element of the cache for each sequence; only without pages. None: its own number.
    cache_leftpad : array, int32 (batch), optional
        Tokens at the beginning of each sequence that are not keys.
    block_table : array, int32 (batch, max_pages), optional
        Pages of each sequence; entries beyond its length do not matter. None: the cache has no pages, or
        `kv_indptr` lists them.
    softmax_scale, causal, window_size, softcap, alibi_slopes
        As in `flash_attn_func`.
    rotary_interleaved : bool
        True: elements 2 i and 2 i + 1 are a pair. False: i and i + rotary_dim / 2 are.
    num_splits : int
        Parts that share the keys of a sequence, at most 128. 0: the library's choice.
    return_softmax_lse : bool
        Also return the log-sum-exp.
    kv_indptr, kv_indices : array, int32 (batch + 1) and (indices), optional
        Instead of `block_table`: sequence b has the pages ``kv_indices[kv_indptr[b]:kv_indptr[b + 1]]``.
    sinks : array, float32 (nhead_q), optional
        A logit for each query head that takes part in the softmax and has no value vector.
    k_scale, v_scale : array, float32 (batch or pages, nhead_k), optional
        Factors on the elements of an 8-bit cache. None: 1.
    scale_per_page : bool
        True: scales are by page. False: by sequence.
    cu_seqlens_q : array, int32 (batch + 1), optional
        First row of each sequence of packed queries, and the end; not with `k`.
    max_seqlen_q, max_seqlen_k : int, optional
        Length of the longest packed queries (None: all rows), and the most tokens of a sequence with the new
        ones (None: the room in the cache). The library chooses splits by them.
    kernel : int
        0: the library's choice; n: the n-th candidate.
    out : array, optional
        Where to write O; as in `flash_attn_func`.
    stream : object, optional
        As in `flash_attn_func`.

    Returns
    -------
    out : array, shaped like q, with hdim_v
        `out` itself if given, else a new DeviceArray. A query row that sees no key gives 0. A row of no
        sequence is 0 in a new array, and unchanged in a given `out`.
    lse : DeviceArray, float32 (batch, nhead_q, seqlen_q) or (nhead_q, total_q)
        Natural logarithm, -inf for such rows; only with `return_softmax_lse`.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, HipError
        As in `flash_attn_func`. A refused call has stored nothing.

    Notes
    -----
    Source: ``fmha_decode`` and ``fmha_kv_append`` of native/include/fmha_rocm.h.

    Examples
    --------
    >>> import numpy as np
    >>> from pyfa_rocm import DeviceArray, flash_attn_with_kvcache
    >>> k_cache, v_cache = (DeviceArray.from_numpy(np.zeros((2, 64, 1, 64), np.float16)) for _ in range(2))
    >>> q = DeviceArray.from_numpy(np.ones((2, 1, 4, 64), np.float16))
    >>> k, v = (DeviceArray.from_numpy(np.ones((2, 1, 1, 64), np.float16)) for _ in range(2))
    >>> lengths = DeviceArray.from_numpy(np.array([0, 1], np.int32))
    >>> out = flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths)
    >>> out.to_numpy()[:, 0, 0, 0].round(3).tolist()
    [1.0, 1.0]
    """
    handle = stream_for(stream, q)
    options = Options(
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=window_size,
        softcap=softcap,
        kernel=kernel,
        alibi_slopes=alibi_slopes,
        return_lse=return_softmax_lse,
    )
    require_new(k, v, rotary_cos, rotary_sin, cache_seqlens, cu_seqlens_q)
    given = {
        "q": q,
        "k_cache": k_cache,
        "v_cache": v_cache,
        "block_table": block_table,
        "kv_indptr": kv_indptr,
        "kv_indices": kv_indices,
        "cache_batch_idx": cache_batch_idx,
        "cache_leftpad": cache_leftpad,
        "alibi_slopes": alibi_slopes,
        "sinks": sinks,
        "k_scale": k_scale,
        "v_scale": v_scale,
        "cu_seqlens_q": cu_seqlens_q,
    }
    arrays = {
        name: to_read(array, name, handle)
        for name, array in given.items()
        if array is not None or name in REQUIRED
    }
    if (lengths := _lengths(cache_seqlens, arrays["q"].layout, cu_seqlens_q, handle)) is not None:
        arrays["cache_seqlens"] = lengths
    new = [] if k is None else [to_read(k, "k", handle), to_read(v, "v", handle)]
    cached = CachedOptions(
        num_splits=to_integer("num_splits", num_splits),
        seqlen_new=_seqlen_new(new),
        scale_per_page=truth("scale_per_page", scale_per_page),
        max_seqlen_q=longest_q(max_seqlen_q, cu_seqlens_q, arrays["q"].layout),
        max_seqlen_k=None if max_seqlen_k is None else to_integer("max_seqlen_k", max_seqlen_k),
    )
    to = None if out is None else to_write(out, "out", handle)
    asked = arrays["q"]
    layouts = {name: x.layout for name, x in arrays.items()}
    if k is not None and rotary_cos is not None:
        layouts["q"] = contiguous(asked.layout.shape, asked.layout.dtype, asked.layout.device)
    plan = cached_plan(layouts, options, cached, None if to is None else to.layout)
    if isinstance(cache_seqlens, int):
        shapes = {name: layout.shape for name, layout in layouts.items()}
        require_room(cache_seqlens, cached.seqlen_new, shapes, cached.max_seqlen_k)
    store = None
    if k is not None:
        at_places = causal or any(side >= 0 for side in window_size)
        if rotary_cos is not None:
            rows = max(cached.seqlen_new, asked.layout.shape[1] if at_places else 1)
            require_positions(rotary_cos, cache_seqlens, rows)
            arrays["q"] = DeviceArray.allocate(layouts["q"], handle)
        rotary = {
            "rotary_cos": rotary_cos,
            "rotary_sin": rotary_sin,
            "rotary_interleaved": rotary_interleaved,
        }
        store = partial(_append, asked, arrays, new, rotary, cached, at_places=at_places, handle=handle)
    result, lse = attend_cached(plan, arrays, to, handle, store)
    result = result if out is None else out
    return (result, lse) if return_softmax_lse else result


def attend_cached(
    plan: CachedPlan,
    arrays: dict[str, Array],
    out: Array | None,
    handle: int,
    store: Callable[[], None] | None = None,
) -> tuple[Any, DeviceArray | None]:
    """Allocate the missing arrays, enqueue attention over a cache, and return O and the log-sum-exp.

    `store` enqueues the writes of the cache. It is called after the library has accepted the attention and
    all memory is allocated.
    """
    call = plan.call
    previous = enter_device(call.o.device)
    try:
        addresses = {name: array.address for name, array in arrays.items()}
        if out is not None:
            addresses["out"] = out.address
        layout = plan.workspace(addresses) if store is None else plan.ask(addresses)
        result: Any
        if call.packed:
            result, lse = packed_results(call.o, call.lse, out, handle)
        else:
            result = DeviceArray.allocate(call.o, handle) if out is None else out
            lse = None if call.lse is None else DeviceArray.allocate(call.lse, handle)
        addresses["out"] = result.address
        if lse is not None:
            addresses["lse"] = lse.address
        if layout is not None:
            workspace = DeviceArray.allocate(layout, handle)
            addresses["workspace"] = workspace.address
            addresses["workspace_bytes"] = layout.shape[0]
        if store is not None:
            store()
        plan.launch(addresses, handle)
    finally:
        leave_device(previous)
    return result, lse


def require_new(k: Any, v: Any, cos: Any, sin: Any, cache_seqlens: Any, cu_seqlens_q: Any) -> None:
    """Raise unless the arguments of new tokens are given together."""
    if (k is None) != (v is None):
        raise InvalidArgumentError(
            f"{'k' if k is None else 'v'}: got None, expected both k and v, or neither"
        )
    if k is None:
        for name, array in (("rotary_cos", cos), ("rotary_sin", sin)):
            if array is not None:
                raise InvalidArgumentError(f"{name}: got an array, expected None without k")
        return
    if cache_seqlens is None:
        raise InvalidArgumentError("cache_seqlens: got None, expected lengths with k: where it is to go")
    if cu_seqlens_q is not None:
        raise InvalidArgumentError(
            "k: got an array with cu_seqlens_q, expected None: flash_attn_kv_append stores packed tokens"
        )


def require_positions(cos: Any, cache_seqlens: Any, rows: int) -> None:
    """Raise if a length that the host knows leads beyond the tables of rotary.

    `rows` is the number of new tokens or queries, which take the places from there on. The host does not look
    at lengths on the device: the caller ensures that the tables have every position.
    """
    shape: tuple[int, ...] = getattr(cos, "shape", ())
    if not isinstance(cache_seqlens, int) or len(shape) != 2:
        return
    if cache_seqlens + rows > shape[0]:
        raise InvalidArgumentError(
            f"rotary_cos: got {shape[0]} positions, expected {cache_seqlens + rows} or more: cache_seqlens "
            f"{cache_seqlens}, and {rows} tokens"
        )


def longest_q(max_seqlen_q: Any, cu_seqlens_q: Any, q: Layout) -> int | None:
    """Return the longest of packed queries, by default all rows; None: they are not packed."""
    if cu_seqlens_q is None:
        if max_seqlen_q is not None:
            raise InvalidArgumentError(
                f"max_seqlen_q: got {max_seqlen_q}, expected None without cu_seqlens_q"
            )
        return None
    if max_seqlen_q is None:
        return q.shape[0] if q.shape else 0
    return to_integer("max_seqlen_q", max_seqlen_q)


def _lengths(cache_seqlens: Any, q: Layout, cu_seqlens_q: Any, handle: int) -> Array | None:
    """Return the lengths as an array on the device, or None."""
    if cache_seqlens is None:
        return None
    if not isinstance(cache_seqlens, int):
        return to_read(cache_seqlens, "cache_seqlens", handle)
    if cache_seqlens < 0:
        raise InvalidArgumentError(f"cache_seqlens: got {cache_seqlens}, expected 0 or more")
    if cu_seqlens_q is not None or not q.shape:
        raise InvalidArgumentError("cache_seqlens: got an integer, expected an array with cu_seqlens_q")
    previous = enter_device(q.device)
    try:
        lengths = DeviceArray.allocate(contiguous(q.shape[:1], "int32", q.device), handle)
        if q.shape[0]:
            hip.call("hipMemsetD32Async", lengths.address, cache_seqlens, q.shape[0], handle)
    finally:
        leave_device(previous)
    return lengths


def _seqlen_new(new: list[Array]) -> int:
    if not new:
        return 0
    shape = new[0].layout.shape
    if len(shape) != 4:
        raise InvalidArgumentError(f"k: got shape {shape}, expected (batch, seqlen_new, nhead_k, hdim)")
    return shape[1]


def _append(
    q: Array,
    arrays: dict[str, Array],
    new: list[Array],
    rotary: dict[str, Any],
    cached: CachedOptions,
    *,
    at_places: bool,
    handle: int,
) -> None:
    """Store the new tokens, and write q, rotated if there is rotary, to that of `arrays`.

    Queries go with the keys if there are as many, and stand where these do. They are `at_places` of their
    own, or all at that of the first. The cache is written last: what is refused before has not touched it.
    """
    rotated, lengths = arrays["q"], arrays["cache_seqlens"]
    stored = (arrays["k_cache"], arrays["v_cache"], *new, lengths)
    names = ("block_table", "kv_indptr", "kv_indices", "cache_batch_idx", "k_scale", "v_scale")
    where: dict[str, Any] = {name: arrays[name] for name in names if name in arrays}
    where |= {"scale_per_page": cached.scale_per_page, **rotary, "stream": handle}
    if rotary["rotary_cos"] is None:
        flash_attn_kv_append(*stored, **where)
        return
    seqlen_q = q.layout.shape[1]
    if seqlen_q == cached.seqlen_new and (at_places or seqlen_q == 1):
        flash_attn_kv_append(*stored, **where, q=q, q_out=rotated)
        return
    # Queries alone: all of them, or each as the first new token.
    parts = [(q, rotated)] if at_places else [(_token(q, i), _token(rotated, i)) for i in range(seqlen_q)]
    for one, one_out in parts:
        flash_attn_kv_append(None, None, None, None, lengths, q=one, q_out=one_out, **rotary, stream=handle)
    flash_attn_kv_append(*stored, **where)


def _token(q: Array, i: int) -> Tensor:
    layout = q.layout
    batch, _, nhead, hdim = layout.shape
    one = layout_of((batch, 1, nhead, hdim), layout.strides, layout.dtype, layout.device)
    return Tensor(q.address + i * layout.strides[1] * dtype_of(layout.dtype).itemsize, one, False, q)
