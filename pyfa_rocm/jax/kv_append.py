# SPDX-License-Identifier: MIT OR Apache-2.0
"""`flash_attn_kv_append` for JAX: new keys and values into a cache, which is handed over and returned."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from pyfa_rocm._call.lengths import require_appended
from pyfa_rocm._call.numbers import to_integer
from pyfa_rocm.errors import InvalidArgumentError
from pyfa_rocm.jax._cached import traced_append
from pyfa_rocm.jax._operands import Arrays, require_static
from pyfa_rocm.jax._primitive import alike, bind

__all__ = ["append", "flash_attn_kv_append"]


def flash_attn_kv_append(
    k_cache: Any,
    v_cache: Any,
    k: Any,
    v: Any,
    cache_seqlens: Any = None,
    *,
    q: Any = None,
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
) -> tuple[Any, ...]:
    """Like `pyfa_rocm.flash_attn_kv_append`, but of JAX arrays: the caches that are written are returned.

    The results have the memory of `k_cache` and `v_cache` if the compiled function may take it: if it is
    given them by ``donate_argnums``, or has made them itself, as a loop does. Else XLA copies them.

    Parameters
    ----------
    k_cache, v_cache : array, (pages, page_size, nhead_k, hdim) or (batch_cache, seqlen_cache, nhead_k, hdim)
        The cache, of k's dtype or the device's 8-bit float; or vectorised, as in
        `pyfa_rocm.flash_attn_with_kvcache`.
    k, v, cache_seqlens, rotary_cos, rotary_sin, rotary_interleaved, positions
        As in `pyfa_rocm.flash_attn_kv_append`.
    q : array, (batch, seqlen_new, nhead_q, hdim) or (total, nhead_q, hdim), optional
        New queries, to be rotated.
    block_table, kv_indptr, kv_indices, cache_batch_idx, slots, cu_seqlens, max_seqlen
        As in `pyfa_rocm.flash_attn_kv_append`.
    k_scale, v_scale, scale_per_page
        As in `pyfa_rocm.flash_attn_kv_append`.

    Returns
    -------
    k_cache, v_cache : array
        The cache with the new tokens; only if there is one.
    q : array
        The rotated queries; only if `q` was given. Rows of no sequence are as they were.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, NotImplementedError, jax.errors.JaxRuntimeError
        As in `flash_attn_func`.

    Notes
    -----
    Under ``jax.vmap`` the kernel is launched once for each index of a mapped axis, within one custom call; a
    cache that is not mapped is copied for each.

    Source: ``fmha_kv_append`` of native/include/fmha_rocm.h, called by native/jax.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from pyfa_rocm.jax import flash_attn_kv_append
    >>> cache = jnp.zeros((2, 64, 1, 32), jnp.float16)
    >>> new = jnp.ones((2, 1, 1, 32), jnp.float16)
    >>> k_cache, v_cache = flash_attn_kv_append(cache, cache, new, new, jnp.array([3, 10], jnp.int32))
    >>> jnp.argwhere(k_cache[..., 0, 0]).tolist()
    [[0, 3], [1, 10]]
    """
    return append(
        rotary_interleaved=rotary_interleaved, scale_per_page=scale_per_page, max_seqlen=max_seqlen,
        k_cache=k_cache, v_cache=v_cache, k=k, v=v, q=q, cache_seqlens=cache_seqlens, rotary_cos=rotary_cos,
        rotary_sin=rotary_sin, positions=positions, block_table=block_table, kv_indptr=kv_indptr,
        kv_indices=kv_indices, cache_batch_idx=cache_batch_idx, slots=slots, cu_seqlens=cu_seqlens,
        k_scale=k_scale, v_scale=v_scale,
    )  # fmt: skip


def append(
    *, rotary_interleaved: bool, scale_per_page: bool, max_seqlen: int | None = None, **arrays: Any
) -> tuple[Any, ...]:
    """Run or trace an append of arrays by name, and return what it writes: the caches, and q."""
    flags = {"rotary_interleaved": rotary_interleaved, "scale_per_page": scale_per_page}
    require_static(flags | {"max_seqlen": max_seqlen})
    operands = Arrays()
    for name, array in arrays.items():
        operands.add(name, array)
    for name in ("slots", "positions"):
        layout = operands.layouts.get(name)
        if layout and layout.dtype == "int64" and jax.dtypes.canonicalize_dtype(np.int64) != np.int64:
            raise InvalidArgumentError(
                f"{name}: got dtype int64, expected int32: JAX has 64 bits with jax_enable_x64 only"
            )
    options = {
        "max_seqlen": None if max_seqlen is None else to_integer("max_seqlen", max_seqlen),
        "interleaved": bool(rotary_interleaved),
        "scale_per_page": bool(scale_per_page),
    }
    call = traced_append(operands.layouts, tuple(options.items()))
    if host := operands.known_lengths:
        require_appended(host, operands.shapes, options["max_seqlen"])
    return tuple(bind(call, alike(operands.values())))
