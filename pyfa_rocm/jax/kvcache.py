# SPDX-License-Identifier: MIT OR Apache-2.0
"""`flash_attn_with_kvcache` for JAX: attention over a KV cache, and what is new in it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from pyfa_rocm._call.cached import CachedOptions, refuse_uncached
from pyfa_rocm._call.lengths import require_cached, require_room
from pyfa_rocm._call.numbers import to_integer
from pyfa_rocm._call.params import Options
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError
from pyfa_rocm.jax._cached import Fields, traced_decode
from pyfa_rocm.jax._operands import Arrays, require_static
from pyfa_rocm.jax._primitive import alike, bind
from pyfa_rocm.jax.kv_append import append
from pyfa_rocm.kvcache import longest_q, require_new, require_positions

__all__ = ["attend_paged", "flash_attn_with_kvcache"]


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
    hdim_v: int | None = None,
    base2: bool = False,
    kernel: int = 0,
) -> Any:
    """Attention over a KV cache, with flash-attention's arguments; caches that are written are returned.

    With `k` and `v` the new tokens are stored first, after `cache_seqlens`, and seen by `q`. The caches that
    are returned have the memory of those given if the compiled function may take it: if it is given them by
    ``donate_argnums``, or has made them itself, as a loop does. Else XLA copies them.

    Arrays may be traced, lengths and pages too; every other argument is known while tracing.

    Parameters
    ----------
    q : array, (batch, seqlen_q, nhead_q, hdim), or (total_q, nhead_q, hdim) with `cu_seqlens_q`
        Queries, the last tokens of their sequences; float16 or bfloat16.
    k_cache : array, (pages, page_size, nhead_k, hdim) or (batch_cache, seqlen_cache, nhead_k, hdim)
        Keys, of q's dtype or the device's 8-bit float. With pages, page_size is a power of two. Or
        vectorised, as in `pyfa_rocm.flash_attn_with_kvcache`.
    v_cache : array or None
        Values: as `k_cache`, with hdim_v. None: they are in `k_cache`, see `hdim_v`.
    k, v : array, (batch, seqlen_new, nhead_k, hdim), optional
        New keys and values.
    rotary_cos, rotary_sin : array, (positions, rotary_dim / 2), optional
        In q's dtype, or float32; only with `k`. The new keys are rotated by their places in the sequence, as
        are queries if `causal` or with a window; otherwise all queries by the place of the first new token.
    cache_seqlens : int or array, int32 (batch), optional
        Tokens in the cache, without the new ones. None: the cache is full; not with `k`.
    cache_batch_idx : array, int32 (batch), optional
        The element of the cache for each sequence; only without pages. None: its own number.
    cache_leftpad : array, int32 (batch), optional
        Tokens at the beginning of each sequence that are no keys.
    block_table : array, int32 (batch, max_pages), optional
        Pages of each sequence; entries beyond its length do not matter. None: the cache has no pages.
    softmax_scale, causal, window_size, softcap, alibi_slopes
        As in `flash_attn_func`.
    rotary_interleaved : bool
        Whether elements 2 i and 2 i + 1 are a pair; else i and i + rotary_dim / 2.
    num_splits : int
        Parts into which the keys of a sequence are divided, at most 128; 0: the library's choice.
    return_softmax_lse : bool
        Whether to return the log-sum-exp too.
    kv_indptr, kv_indices : array, int32 (batch + 1) and (indices), optional
        Instead of `block_table`: sequence b has the pages ``kv_indices[kv_indptr[b]:kv_indptr[b + 1]]``.
    sinks : array, float32 (nhead_q), optional
        A logit of each query head that takes part in the softmax and has no value.
    k_scale, v_scale : array, float32 (batch or pages, nhead_k), optional
        Factors on elements of an 8-bit cache. None: 1.
    scale_per_page : bool
        Whether scales are by page, not by sequence.
    cu_seqlens_q : array, int32 (batch + 1), optional
        First row of each sequence of packed queries, and the end; not with `k`.
    max_seqlen_q, max_seqlen_k : int, optional
        The longest of packed queries (None: all rows), and the most tokens of a sequence, new ones included
        (None: what the cache has room for): what splits are chosen by.
    hdim_v : int, optional
        With `v_cache` None: the first so many elements of each key are its value, as in latent attention; not
        with `k`, nor in a vectorised cache.
    base2 : bool
        Whether the log-sum-exp that is returned is to base 2, as `flash_attn_merge` takes it too.
    kernel : int
        0: the library's choice; n: the n-th candidate.

    Returns
    -------
    out : array, shaped like q, with hdim_v
        A query row that sees no key, or is of no sequence, gives 0.
    lse : array, float32 (batch, nhead_q, seqlen_q) or (nhead_q, total_q)
        Natural logarithm; only with `return_softmax_lse`.
    k_cache, v_cache : array
        The cache with the new tokens; only with `k`.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, NotImplementedError, jax.errors.JaxRuntimeError
        As in `flash_attn_func`. A call that no kernel does is an UnsupportedError when it is compiled, which
        takes a device: it is asked for the size of the workspace. Any derivative is a NotImplementedError.

    Notes
    -----
    Under ``jax.vmap`` the kernels are launched once for each index of a mapped axis, within one custom call;
    a cache that is written and not mapped is copied for each.

    Source: ``fmha_decode`` and ``fmha_kv_append`` of native/include/fmha_rocm.h, called by native/jax.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> from pyfa_rocm.jax import flash_attn_with_kvcache
    >>> cache = jnp.zeros((2, 64, 1, 64), jnp.float16)
    >>> q, new = jnp.ones((2, 1, 4, 64), jnp.float16), jnp.ones((2, 1, 1, 64), jnp.float16)
    >>> step = jax.jit(flash_attn_with_kvcache, donate_argnums=(1, 2))
    >>> lengths = jnp.array([3, 10], jnp.int32)
    >>> out, k_cache, v_cache = step(q, cache, cache + 0, new, new, cache_seqlens=lengths)
    >>> out.shape, jnp.argwhere(k_cache[..., 0, 0]).tolist()
    ((2, 1, 4, 64), [[0, 3], [1, 10]])
    """
    options = _options(
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=window_size,
        softcap=softcap,
        kernel=kernel,
        return_lse=return_softmax_lse,
    )
    static = {
        "num_splits": num_splits,
        "scale_per_page": scale_per_page,
        "max_seqlen_q": max_seqlen_q,
        "max_seqlen_k": max_seqlen_k,
        "hdim_v": hdim_v,
        "base2": base2,
    }
    require_static(static)
    if hdim_v is not None and k is not None:
        raise UnsupportedError(
            "k: got an array with hdim_v, expected None: store new keys in k_cache before, as by .at[].set()"
        )
    require_new(k, v, rotary_cos, rotary_sin, cache_seqlens, cu_seqlens_q)
    given = {
        "q": q,
        "k_cache": k_cache,
        "v_cache": v_cache,
        "alibi_slopes": alibi_slopes,
        "sinks": sinks,
        "cache_seqlens": _lengths(cache_seqlens, q, cu_seqlens_q),
        "cache_leftpad": cache_leftpad,
        "block_table": block_table,
        "kv_indptr": kv_indptr,
        "kv_indices": kv_indices,
        "cache_batch_idx": cache_batch_idx,
        "k_scale": k_scale,
        "v_scale": v_scale,
        "cu_seqlens_q": cu_seqlens_q,
    }
    arrays = _taken(given, () if hdim_v is None else ("v_cache",))
    cached = CachedOptions(
        num_splits=to_integer("num_splits", num_splits),
        scale_per_page=bool(scale_per_page),
        seqlen_new=0 if k is None else _seqlen_new(k),
        max_seqlen_q=longest_q(max_seqlen_q, cu_seqlens_q, arrays.layouts["q"]),
        max_seqlen_k=None if max_seqlen_k is None else to_integer("max_seqlen_k", max_seqlen_k),
        hdim_v=None if hdim_v is None else to_integer("hdim_v", hdim_v),
        base2=bool(base2),
    )
    call = traced_decode(arrays.layouts, options, cached)
    if isinstance(cache_seqlens, (int, np.integer)):
        require_room(int(cache_seqlens), cached.seqlen_new, arrays.shapes, cached.max_seqlen_k)
    require_cached(arrays.known_lengths, arrays.shapes, cached.seqlen_new, cached.max_seqlen_k)
    written: tuple[Any, ...] = ()
    if k is not None:
        new = {"k": k, "v": v, "rotary_cos": rotary_cos, "rotary_sin": rotary_sin}
        flags = {"rotary_interleaved": rotary_interleaved, "scale_per_page": scale_per_page}
        at_places = causal or any(side >= 0 for side in window_size)
        require_positions(rotary_cos, cache_seqlens, max(cached.seqlen_new, q.shape[1] if at_places else 1))
        written, rotated = _append(given, new, flags, at_places)
        arrays.arrays |= {"q": rotated, "k_cache": written[0], "v_cache": written[1]}
    results = (*bind(call, alike(arrays.values())), *written)
    return results[0] if len(results) == 1 else results


def attend_paged(arrays: dict[str, Any], max_seqlen_q: int, max_seqlen_k: int, options: Options) -> list[Any]:
    """Attention of packed queries over pages: `flash_attn_varlen_func` with a block table.

    Parameters
    ----------
    arrays : dict
        q, k_cache, v_cache, block_table, cu_seqlens_q, seqused_q, which is refused, and cu_seqlens_k or
        cache_seqlens; None is left out.
    max_seqlen_q, max_seqlen_k : int
        Upper bounds of the lengths.
    options : Options
        Options; any that attention over a cache lacks is refused.
    """
    refuse_uncached(options, arrays.pop("seqused_q"))
    if arrays["cache_seqlens"] is not None:
        arrays = arrays | {"cu_seqlens_k": None}
    taken = _taken(arrays | {"alibi_slopes": options.alibi_slopes, "sinks": options.sinks})
    cached = CachedOptions(
        max_seqlen_q=to_integer("max_seqlen_q", max_seqlen_q),
        max_seqlen_k=to_integer("max_seqlen_k", max_seqlen_k),
    )
    fields = _options(
        softmax_scale=options.softmax_scale,
        causal=options.causal,
        window_size=options.window_size,
        softcap=options.softcap,
        kernel=options.kernel,
        return_lse=options.wants_lse,
    )
    call = traced_decode(taken.layouts, fields, cached)
    require_cached(taken.known_lengths, taken.shapes, 0, cached.max_seqlen_k)
    return bind(call, alike(taken.values()))


def _taken(arrays: dict[str, Any], optional: tuple[str, ...] = ()) -> Arrays:
    """Return the arrays that there are."""
    taken = Arrays()
    for name, array in arrays.items():
        if array is None and name in ("q", "k_cache", "v_cache") and name not in optional:
            raise TypeError(f"{name}: got NoneType, expected a JAX or NumPy array")
        taken.add(name, array)
    return taken


def _append(
    given: dict[str, Any], new: dict[str, Any], flags: dict[str, bool], at_places: bool
) -> tuple[tuple[Any, Any], Any]:
    """Store the new tokens; return the caches, and q rotated if there is rotary.

    Queries go with the keys if there are as many, and stand where these do. They are `at_places` of their
    own, or all at that of the first.
    """
    names = (
        "k_cache",
        "v_cache",
        "cache_seqlens",
        "block_table",
        "kv_indptr",
        "kv_indices",
        "cache_batch_idx",
        "k_scale",
        "v_scale",
    )
    where = {name: given[name] for name in names}
    q, lengths = given["q"], given["cache_seqlens"]
    rotates = new["rotary_cos"] is not None or new["rotary_sin"] is not None
    together = rotates and q.shape[1] == new["k"].shape[1] and (at_places or q.shape[1] == 1)
    k_cache, v_cache, *rotated = append(**flags, **new, **where, q=q if together else None)
    if together:
        (q,) = rotated
    elif rotates:
        positions = None if at_places else jnp.broadcast_to(lengths[:, None], q.shape[:2])
        tables = {name: new[name] for name in ("rotary_cos", "rotary_sin")}
        (q,) = append(**flags, q=q, cache_seqlens=lengths, positions=positions, **tables)
    return (k_cache, v_cache), q


def _options(**options: Any) -> Fields:
    """Return options that are known while tracing, hashable."""
    require_static(options)
    if isinstance(options["window_size"], list):
        options["window_size"] = tuple(options["window_size"])
    return tuple(options.items())


def _lengths(cache_seqlens: Any, q: Any, cu_seqlens_q: Any) -> Any:
    """Return the lengths as an array, or None."""
    if not isinstance(cache_seqlens, (int, np.integer)):
        return cache_seqlens
    rows = q.shape if cu_seqlens_q is None else (cu_seqlens_q.shape[0] - 1,)
    return jnp.full(rows[:1], to_integer("cache_seqlens", cache_seqlens), jnp.int32)


def _seqlen_new(k: Any) -> int:
    shape = getattr(k, "shape", None)
    if shape is None or len(shape) != 4:
        got = type(k).__name__ if shape is None else f"shape {shape}"
        raise InvalidArgumentError(f"k: got {got}, expected (batch, seqlen_new, nhead_k, hdim)")
    return int(shape[1])
