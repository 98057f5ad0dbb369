# SPDX-License-Identifier: MIT OR Apache-2.0
"""`dot_product_attention`: that of ``jax.nn``, by these kernels."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from pyfa_rocm._call.numbers import HDIM_MULTIPLE, positive_scale, to_float
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError
from pyfa_rocm.jax.attention import flash_attn_func
from pyfa_rocm.jax.varlen import flash_attn_varlen_func

__all__ = ["dot_product_attention"]


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: None = None,
    return_residual: bool = False,
) -> Any:
    """Attention with the arguments and the meaning of ``jax.nn.dot_product_attention``.

    Parameters
    ----------
    query : array, (batch, seqlen_q, nhead_q, hdim) or (seqlen_q, nhead_q, hdim)
        Float16, bfloat16 or float32. A head dim that is no multiple of 8 is padded, in a copy.
    key, value : array, (batch, seqlen_k, nhead_k, hdim) or (seqlen_k, nhead_k, hdim)
        In query's dtype. nhead_q is a multiple of nhead_k.
    bias : array, optional
        Added to the scaled scores, in query's dtype. Up to 4 dimensions, broadcast to
        (batch, nhead_q, seqlen_q, seqlen_k).
    mask : array, optional, bool
        True takes part; shapes as of bias. It is handed to the kernel as a bias, which takes memory for each
        pair of query and key; the arguments that follow do not, without `bias` and `mask`.
    scale : float, optional
        Factor on the scores; ``1 / sqrt(hdim)`` by default.
    is_causal : bool
        Query i sees the keys 0 to i: aligned top-left, unlike in `flash_attn_func`.
    query_seq_lengths, key_value_seq_lengths : array, optional, int32 (batch)
        How many rows of each batch are in use, from the first. Output of the others is 0.
    local_window_size : int or (int, int), optional
        Query i sees the keys from i - left to i + right; one number: both.
    implementation : None
        Keeps its place: this is the one.
    return_residual : bool
        Whether to return the log-sum-exp too.

    Returns
    -------
    out : array, of query's shape
        A query row that sees no key gives 0, for which ``jax.nn`` averages all values.
    residual : array, query's dtype, (batch, seqlen_q, nhead_q) or (seqlen_q, nhead_q)
        Only with `return_residual`; -inf for a row that sees no key.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, NotImplementedError, jax.errors.JaxRuntimeError
        As in `flash_attn_func`, whose messages call query, key and value q, k and v.

    Notes
    -----
    query, key, value and bias have gradients, as far as `flash_attn_func` has them for what this comes to.

    Source: `flash_attn_func`, and `flash_attn_varlen_func` for lengths, both with ``top_left=True``.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from pyfa_rocm.jax import dot_product_attention
    >>> query, key, value = (jnp.ones((1, 64, 2, 128), jnp.bfloat16) for _ in range(3))
    >>> dot_product_attention(query, key, value, is_causal=True).shape
    (1, 64, 2, 128)
    """
    _require_none(implementation)
    q, k, v = (_with_batch(x, name) for x, name in ((query, "query"), (key, "key"), (value, "value")))
    if value.shape != key.shape:
        raise InvalidArgumentError(f"value: got shape {value.shape}, expected {key.shape} as key")
    lengths = (query_seq_lengths, key_value_seq_lengths)
    for name, array in zip(("query_seq_lengths", "key_value_seq_lengths"), lengths, strict=True):
        _require_lengths(name, array, q.shape[0])
    q, scale = _scaled(q, scale)
    missing = -q.shape[-1] % HDIM_MULTIPLE
    q, k, v = (jnp.pad(x, ((0, 0), (0, 0), (0, 0), (0, missing))) if missing else x for x in (q, k, v))
    left, right = _window(local_window_size)
    # A left side as wide as all keys is unlimited to flash-attention, though it hides keys of rows beyond it.
    at_least = None
    if k.shape[1] <= left < q.shape[1] - 1:
        at_least, left = left, -1
    options: dict[str, Any] = {
        "softmax_scale": scale,
        "causal": is_causal,
        "window_size": (left, right),
        "top_left": True,
        "return_lse": return_residual,
    }
    if bias is None and mask is None and at_least is None and any(x is not None for x in lengths):
        results = _by_lengths(q, k, v, *lengths, options)
    else:
        scores = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
        seen = _seen(mask, lengths, at_least, scores)
        results = flash_attn_func(q, k, v, bias=_bias(bias, seen, scores, q.dtype), **options)
    out, *lse = results if return_residual else (results,)
    out = out[..., : query.shape[-1]].reshape(query.shape)
    if not return_residual:
        return out
    # Packed sequences have an LSE without batches: (nhead, total).
    rows = lse[0].swapaxes(-1, -2)
    return out, rows.astype(out.dtype).reshape(query.shape[:-1])


def _require_none(implementation: Any) -> None:
    if implementation is not None:
        raise UnsupportedError(
            f"implementation: got {implementation!r}, expected None: pyfa_rocm has one; "
            "jax.nn.dot_product_attention has 'xla'"
        )


def _with_batch(x: Any, name: str) -> Any:
    """Return an array with a batch, which is optional."""
    shape = getattr(x, "shape", None)
    if shape is None:
        raise TypeError(f"{name}: got {type(x).__name__}, expected a JAX or NumPy array")
    if len(shape) not in (3, 4):
        raise InvalidArgumentError(
            f"{name}: got shape {shape}, expected (batch, seqlen, nhead, hdim), or without batch"
        )
    return x if len(shape) == 4 else x[None]


def _require_lengths(name: str, array: Any, batch: int) -> None:
    if array is not None and (array.shape != (batch,) or array.dtype != jnp.int32):
        raise InvalidArgumentError(f"{name}: got {array.dtype} {array.shape}, expected int32 ({batch},)")


def _scaled(q: Any, scale: Any) -> tuple[Any, float]:
    """Return q and a scale that kernels take, above 0, for the same scores."""
    if isinstance(scale, jax.core.Tracer):
        raise InvalidArgumentError("scale: got a traced value, expected a Python value: multiply query by it")
    return positive_scale(q, 1 / math.sqrt(q.shape[-1] or 1) if scale is None else to_float("scale", scale))


def _window(size: Any) -> tuple[int, int]:
    """Return a window as `flash_attn_func` takes it."""
    if size is None:
        return (-1, -1)
    pair = (size, size) if isinstance(size, int) else size
    if not isinstance(pair, (tuple, list)) or len(pair) != 2 or any(n < 0 for n in pair):
        raise InvalidArgumentError(
            f"local_window_size: got {size!r}, expected an integer from 0, or two (left, right)"
        )
    return (pair[0], pair[1])


def _by_lengths(q: Any, k: Any, v: Any, used_q: Any, used_k: Any, options: dict[str, Any]) -> Any:
    """Compute sequences that fill a part of their rows, packed; nothing is computed of the others."""
    batch, seqlen_q = q.shape[:2]
    starts = jnp.arange(batch + 1, dtype=jnp.int32)
    rows_q, rows_k, rows_v = (x.reshape(-1, *x.shape[2:]) for x in (q, k, v))
    return flash_attn_varlen_func(
        rows_q, rows_k, rows_v, starts * seqlen_q, starts * k.shape[1], seqlen_q, k.shape[1],
        seqused_q=used_q, seqused_k=used_k, **options,
    )  # fmt: skip


def _seen(mask: Any, lengths: tuple[Any, Any], left: int | None, scores: tuple[int, ...]) -> list[Any]:
    """Return masks, all of which a key has to be seen by, with the dimensions of the scores."""
    rows, columns = (jnp.arange(n) for n in scores[2:])
    seen = []
    if mask is not None:
        if mask.dtype != jnp.bool_:
            raise InvalidArgumentError(
                f"mask: got dtype {mask.dtype}, expected bool; what is added is the bias"
            )
        seen.append(_with_scores(mask, "mask", scores))
    if left is not None:
        seen.append((columns[None] >= rows[:, None] - left)[None, None])
    for used, at in zip(lengths, (rows[:, None], columns[None]), strict=True):
        if used is not None:
            seen.append(at < used[:, None, None, None])
    return seen


def _bias(bias: Any, seen: list[Any], scores: tuple[int, ...], dtype: Any) -> Any:
    """Return all that is added to the scores, (batch, nhead, seqlen_q, seqlen_k) or 1; None: nothing."""
    if bias is None and not seen:
        return None
    added = jnp.zeros((), dtype) if bias is None else _within_range(_with_scores(bias, "bias", scores), dtype)
    for one in seen:
        added = jnp.where(one, added, -math.inf).astype(dtype)
    return jnp.broadcast_to(added, (*added.shape[:-1], scores[-1]))


def _within_range(bias: Any, dtype: Any) -> Any:
    """Return a bias in which only what is infinite counts as that; its gradient is that of the given one.

    The kernels multiply it by log2(e) in float32, where the least bfloat16 and float32 would become -inf.
    """
    bias = bias.astype(dtype)
    most = jnp.finfo(dtype).max
    if most < jnp.finfo(jnp.float32).max / 4:
        return bias
    excess = jnp.where(jnp.isinf(bias), 0, bias - jnp.clip(bias, -most / 2, most / 2))
    return bias - jax.lax.stop_gradient(excess)


def _with_scores(x: Any, name: str, scores: tuple[int, ...]) -> Any:
    """Return an array with the dimensions of the scores, some of size 1."""
    x = jnp.asarray(x)
    x = x.reshape((1,) * (4 - x.ndim) + x.shape)
    if x.ndim != 4 or any(n not in (1, size) for n, size in zip(x.shape, scores, strict=True)):
        raise InvalidArgumentError(
            f"{name}: got shape {x.shape}, expected one that can be broadcast to {scores}"
        )
    return x
