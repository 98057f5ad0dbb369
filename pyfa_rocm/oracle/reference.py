# SPDX-License-Identifier: MIT OR Apache-2.0
"""The oracle: attention in float64 NumPy with every feature, and how far a kernel may be from it.

How the tolerances come about is told in `rounding.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pyfa_rocm.oracle.rounding import (
    Head,
    Numerics,
    lse_tolerance,
    numerics_of,
    o_errors,
    score_errors,
    sink_tolerance,
    smallest_normal,
)

__all__ = ["Expected", "attention", "distance", "flushed", "largest_share", "visible"]

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
_FAR = 600.0  # a sink that is so far above a row's scores leaves nothing of O, and its exponential is finite


@dataclass(frozen=True)
class Expected:
    """The right results of a forward pass, and their tolerances.

    Attributes
    ----------
    o : array, float64 (batch, seqlen_q, nhead_q, hdim_v)
        Attention; 0 for a row that sees no key.
    lse : array, float64 (batch, nhead_q, seqlen_q)
        Log-sum-exp of the masked, scaled scores and the head's sink; without one -inf for such a row.
    o_tolerance, lse_tolerance : array, float64, as o and as lse
        How far each element of a kernel's O and LSE may be from these.
    o_variance : array, float64, as o
        Bound on the variance of the error, for averages over many rows.
    o_bias : array, float64, as o
        Mean of the error.
    o_bias_slack : float
        How wrong that mean may be, relative to O.
    """

    o: Float64
    lse: Float64
    o_tolerance: Float64
    lse_tolerance: Float64
    o_variance: Float64
    o_bias: Float64
    o_bias_slack: float


def distance(seqlen_q: int, seqlen_k: int, *, top_left: bool = False) -> npt.NDArray[np.int64]:
    """Return how far key j is to the right of query i's own column, (seqlen_q, seqlen_k)."""
    own = np.arange(seqlen_q)[:, None] + (0 if top_left else seqlen_k - seqlen_q)
    return np.asarray(np.arange(seqlen_k)[None, :] - own)


def visible(
    seqlen_q: int,
    seqlen_k: int,
    *,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    top_left: bool = False,
    max_seqlen_k: int | None = None,
) -> npt.NDArray[np.bool_]:
    """Return which keys each query sees, bool (seqlen_q, seqlen_k), as flash-attention defines it.

    A side of the window that is `max_seqlen_k` (seqlen_k by default) or more is unlimited: it matters to rows
    that stand left of the first key or right of the last.
    """
    limit = seqlen_k if max_seqlen_k is None else max_seqlen_k
    left, right = (-1 if side >= limit else side for side in window_size)
    if causal:
        right = 0
    position = distance(seqlen_q, seqlen_k, top_left=top_left)
    mask = np.ones((seqlen_q, seqlen_k), bool)
    if left >= 0:
        mask &= position >= -left
    if right >= 0:
        mask &= position <= right
    return mask


def attention(
    q: Array, k: Array, v: Array, *, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), top_left: bool = False, max_seqlen_k: int | None = None,
    bias: Array | None = None, alibi_slopes: Array | None = None, softcap: float = 0.0,
    keep: npt.NDArray[np.bool_] | None = None, keep_scale: float = 1.0,
    descale: tuple[float, float, float] = (1.0, 1.0, 1.0), sinks: Array | None = None,
    numerics: Numerics | None = None,
) -> Expected:  # fmt: skip
    """Attention in float64, and the tolerance of a kernel.

    Parameters
    ----------
    q, k, v : array, (batch, seqlen, nhead, hdim)
        Inputs as the kernel gets them, in their own type. nhead of q is a multiple of that of k; hdim of v
        may be another.
    softmax_scale, causal, window_size, softcap
        As in `flash_attn_func`.
    top_left : bool
        Whether a mask, or ALiBi, is aligned top-left instead of bottom-right.
    max_seqlen_k : int, optional
        Window sides are compared with this number, see `visible`.
    bias : array, optional
        Added to the scaled scores; broadcast to (batch, nhead_q, seqlen_q, seqlen_k).
    alibi_slopes : array, optional
        (nhead_q) or (batch, nhead_q): -slope times the distance from the own column is added.
    keep : array, bool, optional
        (batch, nhead_q, seqlen_q, seqlen_k): what dropout keeps of P, times `keep_scale`.
    descale : (float, float, float)
        Factors on elements of q, k and v.
    sinks : array, optional
        (nhead_q): a score of each head that takes part in the softmax and has no value. No NaN, nor +inf.
    numerics : Numerics, optional
        How the kernel rounds; what the "qr_async" pipeline does with q's type by default.

    Returns
    -------
    Expected
        O, LSE, and their tolerances.
    """
    numerics = numerics_of(q.dtype.name) if numerics is None else numerics
    if numerics.flushes:
        q, k, v = (flushed(x, smallest_normal(numerics.p_dtype)) for x in (q, k, v))
    batch, seqlen_q, nhead_q, hdim = q.shape
    seqlen_k, group = k.shape[1], nhead_q // k.shape[2]
    scale = (1.0 / math.sqrt(hdim) if softmax_scale is None else softmax_scale) * descale[0] * descale[1]
    mask = visible(
        seqlen_q,
        seqlen_k,
        causal=causal,
        window_size=window_size,
        top_left=top_left,
        max_seqlen_k=max_seqlen_k,
    )
    sinks = np.full(nhead_q, -np.inf) if sinks is None else sinks.astype(np.float64)
    lse = np.full((batch, nhead_q, seqlen_q), -np.inf)
    lse_bound = np.zeros_like(lse)
    o, bound, variance, mean = (np.zeros((batch, seqlen_q, nhead_q, v.shape[3])) for _ in range(4))
    bias = None if bias is None else np.broadcast_to(bias, (batch, nhead_q, seqlen_q, seqlen_k))
    away = None
    if alibi_slopes is not None:
        alibi_slopes = np.broadcast_to(alibi_slopes, (batch, nhead_q))
        away = np.abs(distance(seqlen_q, seqlen_k, top_left=top_left)).astype(np.float64)
    for b, h in np.ndindex(batch, nhead_q):
        if seqlen_k == 0:
            lse[b, h], lse_bound[b, h] = sinks[h], sink_tolerance(float(sinks[h]), numerics)
            continue
        add = None if bias is None else bias[b, h].astype(np.float64)
        if alibi_slopes is not None and away is not None:
            add = -float(alibi_slopes[b, h]) * away
        head = _head(
            q[b, :, h].astype(np.float64), k[b, :, h // group].astype(np.float64),
            v[b, :, h // group].astype(np.float64) * descale[2], mask, scale, softcap, add,
            None if keep is None else keep[b, h], keep_scale, float(sinks[h]),
        )  # fmt: skip
        o[b, :, h], lse[b, h] = head.o, head.lse
        of_scores = score_errors(head, numerics)
        lse_bound[b, h] = lse_tolerance(head, numerics, of_scores)
        bound[b, :, h], variance[b, :, h], mean[b, :, h] = o_errors(head, numerics, of_scores)
    return Expected(o, lse, bound, lse_bound, variance, mean, numerics.bias_slack)


def flushed(x: Array, smallest: float) -> Array:
    """Return x with numbers below the smallest normal one as 0, as a matrix unit may take them."""
    return np.where(np.abs(x) < smallest, np.zeros_like(x), x)


def _head(
    q: Float64,
    k: Float64,
    v: Float64,
    mask: npt.NDArray[np.bool_],
    scale: float,
    softcap: float,
    add: Float64 | None,
    keep: npt.NDArray[np.bool_] | None,
    keep_scale: float,
    sink: float,
) -> Head:
    """Attention of one head, with what its rounding errors depend on."""
    scores = scale * (q @ k.T)
    products = scale * np.sqrt((q**2) @ (k**2).T)
    plain = scores
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    if add is not None:
        scores = scores + add
    scores = np.where(mask, scores, -np.inf)
    maximum = scores.max(axis=1)
    seen = ~np.isneginf(maximum)  # a bias of -inf hides a key as a mask does
    maximum = np.where(seen, maximum, 0.0)
    p = np.exp(scores - maximum[:, None])
    of_keys = np.where(seen, p.sum(axis=1), 1.0)
    of_sink = np.where(seen, np.exp(np.minimum(sink - maximum, _FAR)), 0.0)
    total = of_keys + of_sink
    p = p / total[:, None]
    weights = p if keep is None else np.where(keep, p * keep_scale, 0.0)
    lse = np.logaddexp(np.where(seen, maximum + np.log(of_keys), -np.inf), sink)
    return Head(
        v=v, p=p, weights=weights, total=total[:, None], maximum=maximum[:, None], o=weights @ v, lse=lse,
        scores=plain, products=products, add=add, softcap=softcap, keep_scale=keep_scale,
        hdim=q.shape[1], sink=sink, p_sink=of_sink / total,
    )  # fmt: skip


def largest_share(got: Array, want: Array, tolerance: Array) -> float:
    """Return the largest share of an element's tolerance that was used; an exact result uses none."""
    if not want.size:
        return 0.0
    with np.errstate(all="ignore"):  # whatever a broken kernel may give
        share = np.where(got == want, 0.0, np.abs(got.astype(np.float64) - want) / tolerance)
    return float(share.max())
