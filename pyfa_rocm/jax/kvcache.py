# SPDX-License-Identifier: MIT OR Apache-2.0
"""`flash_attn_with_kvcache` for JAX: attention over a KV cache, and what is new in it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pyfa_rocm._call.numbers import to_integer
from pyfa_rocm._call.params import Options
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError
from pyfa_rocm.jax._cache_operands import cached_batch, decode_call
from pyfa_rocm.jax._operands import Arrays, require_static
from pyfa_rocm.jax._primitive import alike, bind
from pyfa_rocm.jax.kv_append import append

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
    sinks: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    scale_per_page: bool = False,
    kernel: int = 0,
) -> Any:
    """Attention over a KV cache, with flash-attention's arguments; caches that are written are returned.

    With `k` and `v` the new tokens are stored first, after `cache_seqlens`, and seen by `q`. The caches that
    are returned have the memory of those given if the compiled function may take it: if it is given them by
    ``donate_argnums``, or has made them itself, as a loop does. Else XLA copies them.

    Arrays may be traced, lengths and pages too; every other argument is known while tracing.

    Parameters
    ----------
    q : array, (batch, seqlen_q, nhead_q, hdim)
        Queries, the last tokens of their sequences; float16 or bfloat16.
    k_cache : array, (pages, page_size, nhead_k, hdim) or (batch_cache, seqlen_cache, nhead_k, hdim)
        Keys, of q's dtype or float8_e4m3fnuz. With `block_table` the former, page_size a power of two.
    v_cache : array
        Values: as `k_cache`, with hdim_v.
    k, v : array, (batch, seqlen_new, nhead_k, hdim), optional
        New keys and values.
    rotary_cos, rotary_sin : array, (positions, rotary_dim / 2), optional
        Of q's dtype, or float32; only with `k`. The new keys are rotated by their places in the sequence, as
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
        Parts that the keys of a sequence are dealt to, at most 128; 0: the library's choice.
    return_softmax_lse : bool
        Whether to return the log-sum-exp too.
    sinks : array, float32 (nhead_q), optional
        A logit of each query head that takes part in the softmax and has no value.
    k_scale, v_scale : array, float32 (batch or pages, nhead_k), optional
        What elements of an 8-bit cache are to be multiplied with. None: 1.
    scale_per_page : bool
        Whether scales are by page, not by sequence.
    kernel : int
        0: the library's choice; n: the n-th candidate.

    Returns
    -------
    out : array, (batch, seqlen_q, nhead_q, hdim_v)
        A query row that sees no key gives 0.
    lse : array, float32 (batch, nhead_q, seqlen_q)
        Natural logarithm; only with `return_softmax_lse`.
    k_cache, v_cache : array
        The cache with the new tokens; only with `k`.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, NotImplementedError, jax.errors.JaxRuntimeError
        As in `flash_attn_func`. What no kernel does is an UnsupportedError when the call is compiled, which
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
        softmax_scale=softmax_scale, causal=causal, window_size=window_size, softcap=softcap, kernel=kernel,
        alibi_slopes=alibi_slopes, return_lse=return_softmax_lse,
    )  # fmt: skip
    num_splits = _num_splits(num_splits)
    lengths = _lengths(cache_seqlens, cached_batch(q))
    new = {"k": k, "v": v, "rotary_cos": rotary_cos, "rotary_sin": rotary_sin}
    where = {"block_table": block_table, "cache_batch_idx": cache_batch_idx}
    scales = {"k_scale": k_scale, "v_scale": v_scale}
    written: tuple[Any, ...] = ()
    if _require_new(new, lengths):
        at_places = causal or any(side >= 0 for side in window_size)
        (k_cache, v_cache), q = _append(
            q, lengths, {**new, **where, **scales, "k_cache": k_cache, "v_cache": v_cache}, at_places,
            rotary_interleaved, scale_per_page,
        )  # fmt: skip
        lengths = lengths + k.shape[1]
        written = (k_cache, v_cache)
    arrays = {
        "q": q, "k_cache": k_cache, "v_cache": v_cache, "alibi_slopes": alibi_slopes, "sinks": sinks,
        "cache_seqlens": lengths, "cache_leftpad": cache_leftpad, **where, **scales,
    }  # fmt: skip
    return _unpacked((*_attend(arrays, options, num_splits, scale_per_page), *written))


def attend_paged(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: int,
    options: Options,
    *,
    block_table: Any,
    seqused_k: Any,
) -> list[Any]:
    """Attention of packed queries over pages: `flash_attn_varlen_func` with a block table.

    The lengths of keys are `seqused_k`, or what `cu_seqlens_k` says. Of the options, only those of attention
    over a cache are taken.
    """
    refused = {
        "dropout_p": options.dropout_p, "bias": options.bias, "top_left": options.top_left,
        "out_dtype": options.out_dtype,
    }  # fmt: skip
    for name, value in refused.items():
        if value is not None and value is not False and value != 0:
            raise UnsupportedError(
                f"{name}: got a value with block_table, expected none: attention over pages is without; "
                "gather keys and values for a call without block_table"
            )
    batch = cached_batch(q, cu_seqlens_q)
    if seqused_k is None:
        if getattr(cu_seqlens_k, "shape", None) != (batch + 1,):
            raise InvalidArgumentError(
                f"cu_seqlens_k: got {_described(cu_seqlens_k)}, expected int32 ({batch + 1},), or None with "
                "seqused_k"
            )
        seqused_k = jnp.diff(jnp.asarray(cu_seqlens_k)).astype(jnp.int32)
    arrays = {
        "q": q, "k_cache": k, "v_cache": v, "alibi_slopes": options.alibi_slopes, "cache_seqlens": seqused_k,
        "block_table": block_table, "cu_seqlens_q": cu_seqlens_q,
    }  # fmt: skip
    return _attend(arrays, options, 0, False, to_integer("max_seqlen_q", max_seqlen_q))


def _attend(
    arrays: dict[str, Any],
    options: Options,
    num_splits: int,
    scale_per_page: bool,
    max_seqlen_q: int | None = None,
) -> list[Any]:
    operands = Arrays()
    for name, array in arrays.items():
        if array is None and name in ("q", "k_cache", "v_cache"):
            raise TypeError(f"{name}: got NoneType, expected a JAX or NumPy array")
        operands.add(name, array)
    call = decode_call(
        operands, options, num_splits=num_splits, scale_per_page=bool(scale_per_page),
        max_seqlen_q=max_seqlen_q,
    )  # fmt: skip
    return bind(call, alike(operands.values()))


def _append(
    q: Any,
    lengths: Any,
    arrays: dict[str, Any],
    at_places: bool,
    rotary_interleaved: bool,
    scale_per_page: bool,
) -> tuple[tuple[Any, Any], Any]:
    """Store the new tokens; return the caches, and q rotated if there is rotary.

    Queries go with the keys if there are as many, and stand where these do. They are `at_places` of their
    own, or all at that of the first.
    """
    flags = {"rotary_interleaved": rotary_interleaved, "scale_per_page": scale_per_page}
    rotary = {name: arrays[name] for name in ("rotary_cos", "rotary_sin")}
    rotates = arrays["rotary_cos"] is not None
    together = rotates and q.shape[1] == arrays["k"].shape[1] and (at_places or q.shape[1] == 1)
    k_cache, v_cache, *rotated = append(**flags, **arrays, cache_seqlens=lengths, q=q if together else None)
    if together:
        (q,) = rotated
    elif rotates:
        positions = None if at_places else jnp.broadcast_to(lengths[:, None], q.shape[:2])
        (q,) = append(**flags, q=q, cache_seqlens=lengths, positions=positions, **rotary)
    return (k_cache, v_cache), q


def _options(**options: Any) -> Options:
    require_static({name: value for name, value in options.items() if name != "alibi_slopes"})
    return Options(**options)


def _num_splits(num_splits: Any) -> int:
    require_static({"num_splits": num_splits})
    return to_integer("num_splits", num_splits)


def _lengths(cache_seqlens: Any, batch: int) -> Any:
    """Return the lengths as an array, or None."""
    if isinstance(cache_seqlens, (int, np.integer)):
        return jnp.full((batch,), to_integer("cache_seqlens", cache_seqlens), jnp.int32)
    if cache_seqlens is None or not isinstance(cache_seqlens, (jax.Array, np.ndarray)):
        return cache_seqlens
    if cache_seqlens.shape != (batch,) or cache_seqlens.dtype != jnp.int32:
        raise InvalidArgumentError(
            f"cache_seqlens: got {_described(cache_seqlens)}, expected an integer or int32 ({batch},)"
        )
    return jnp.asarray(cache_seqlens)


def _require_new(new: dict[str, Any], lengths: Any) -> bool:
    """Check what belongs together, and return whether there are new tokens."""
    if (new["k"] is None) != (new["v"] is None):
        missing = "k" if new["k"] is None else "v"
        raise InvalidArgumentError(f"{missing}: got None, expected both k and v, or neither")
    if new["k"] is not None:
        if lengths is None:
            raise InvalidArgumentError("cache_seqlens: got None, expected lengths with k: where it is to go")
        shape = getattr(new["k"], "shape", ())
        if len(shape) != 4:
            raise InvalidArgumentError(
                f"k: got {_described(new['k'])}, expected (batch, seqlen_new, nhead_k, hdim)"
            )
        return True
    for name in ("rotary_cos", "rotary_sin"):
        if new[name] is not None:
            raise InvalidArgumentError(f"{name}: got an array, expected None without k")
    return False


def _described(x: Any) -> str:
    shape, dtype = getattr(x, "shape", None), getattr(x, "dtype", None)
    return type(x).__name__ if shape is None else f"{dtype} {shape}"


def _unpacked(results: tuple[Any, ...]) -> Any:
    return results[0] if len(results) == 1 else results
