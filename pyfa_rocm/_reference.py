# SPDX-License-Identifier: MIT OR Apache-2.0
"""The oracle: attention in float64 NumPy with every feature, and how far a kernel may be from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]

# Unit roundoff (half an ulp of 1), explicit mantissa bits, and smallest ulp of the 16-bit types.
_UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8}
_MANTISSA_BITS = {"float16": 10, "bfloat16": 7}
_SMALLEST_ULP = {"float16": 2.0**-24, "bfloat16": 2.0**-133}

# Bound on |LSE - float64|, absolute.
LSE_TOLERANCE = 1e-5
# Factor on the derived bound of O, for what is done in float32: see the notes of `attention`.
O_SLACK = 1.5


@dataclass(frozen=True)
class Expected:
    """What a forward pass should give.

    Attributes
    ----------
    o : array, float64 (batch, seqlen_q, nhead_q, hdim_v)
        Attention; 0 for a row that sees no key.
    lse : array, float64 (batch, nhead_q, seqlen_q)
        Log-sum-exp of the masked, scaled scores; -inf for such a row.
    o_tolerance : array, float64, as o
        How far each element of a kernel's O may be from `o`.
    o_variance : array, float64, as o
        Expected square of that distance, for averages over many rows.
    """

    o: Float64
    lse: Float64
    o_tolerance: Float64
    o_variance: Float64


def visible(
    seqlen_q: int, seqlen_k: int, *, causal: bool = False, window_size: tuple[int, int] = (-1, -1),
    top_left: bool = False,
) -> npt.NDArray[np.bool_]:  # fmt: skip
    """Return which keys each query sees, bool (seqlen_q, seqlen_k), as flash-attention defines it."""
    left, right = window_size
    if causal:
        right = 0
    own = np.arange(seqlen_q)[:, None] + (0 if top_left else seqlen_k - seqlen_q)
    column = np.arange(seqlen_k)[None, :]
    mask = np.ones((seqlen_q, seqlen_k), bool)
    if left >= 0:
        mask &= column >= own - left
    if right >= 0:
        mask &= column <= own + right
    return mask


def ulp(x: Float64, dtype: str) -> Float64:
    """Distance between neighbouring numbers of a 16-bit type in the binade of |x|."""
    _, exponent = np.frexp(x)  # |x| in [2^(exponent-1), 2^exponent)
    spacing = np.ldexp(1.0, exponent - 1 - _MANTISSA_BITS[dtype])
    return np.asarray(np.where(x == 0, 0.0, spacing)).clip(min=_SMALLEST_ULP[dtype])


def attention(
    q: Array, k: Array, v: Array, *, softmax_scale: float | None = None, causal: bool = False,
    window_size: tuple[int, int] = (-1, -1), top_left: bool = False, dtype: str | None = None,
) -> Expected:  # fmt: skip
    """Attention in float64, and the tolerance of a kernel with 16-bit P.

    Parameters
    ----------
    q, k, v : array, (batch, seqlen, nhead, hdim)
        Inputs as the kernel gets them, in their own 16-bit type. nhead of q is a multiple of that of k.
    softmax_scale, causal, window_size
        As in `flash_attn_func`.
    top_left : bool
        Whether a mask is aligned top-left instead of bottom-right.
    dtype : {"float16", "bfloat16"}, optional
        Type of the kernel's P and O; q's by default.

    Returns
    -------
    Expected
        O, LSE, and the tolerance of O.

    Notes
    -----
    **The tolerance of O.** A kernel keeps P = exp(s - m) in float32, m being the row's maximum so far, and
    sums it in float32 to l. For the product with V it rounds P to its 16-bit type, to nearest, so each P is
    off by at most u = 2^-11 (fp16) or 2^-8 (bf16) of itself; in fp16 also by 2^-25 absolute, half its
    smallest subnormal, at a scale where the row's largest P is 1. With the exact p = P / l,

        |dO| <= sum_j (u * p_j + 2^-25 / l) * |v_j|        (the second term in fp16 alone)

    O itself is rounded once: at most one ulp (half of one, but O may round into the next binade). The bound
    is taken element by element and is worst case: it assumes nothing about how errors average out.

    What is left is the float32 arithmetic. Products of 16-bit numbers are exact in it; the sums over hdim
    and keys, exp2, and rescaling at a new maximum each lose some 2^-23 relative, and an error e of a scaled
    score is a relative error e of its P. All of it stays below half of the bound above while scores are
    moderate (|s| below 2^9 in bf16, 2^6 in fp16): that half is O_SLACK.

    **The expected error of O.** Rounding errors are spread evenly, so that of P has variance u^2 p^2 / 3 at
    most (it depends on the significand) and that of O ulp^2 / 12, and they are independent. `o_variance` is
    their sum: the mean square error over many rows must not exceed it by more than O_SLACK squared, and the
    mean error must be 0 within what that variance allows. This is far tighter than the worst case, which lets
    a biased rounding of P pass.
    """
    dtype = q.dtype.name if dtype is None else dtype
    batch, seqlen_q, nhead_q, hdim = q.shape
    scale = 1.0 / math.sqrt(hdim) if softmax_scale is None else softmax_scale
    group = nhead_q // k.shape[2]
    mask = visible(seqlen_q, k.shape[1], causal=causal, window_size=window_size, top_left=top_left)
    o = np.zeros((batch, seqlen_q, nhead_q, v.shape[3]))
    bound = np.zeros_like(o)
    variance = np.zeros_like(o)
    lse = np.full((batch, nhead_q, seqlen_q), -np.inf)
    for b in range(batch):
        for h in range(nhead_q):
            o[b, :, h], lse[b, h], bound[b, :, h], variance[b, :, h] = _head(
                q[b, :, h], k[b, :, h // group], v[b, :, h // group], scale, mask, dtype
            )
    spacing = ulp(o, dtype)
    return Expected(o, lse, O_SLACK * (spacing + bound), spacing**2 / 12 + variance)


def _head(
    q: Array, k: Array, v: Array, scale: float, mask: npt.NDArray[np.bool_], dtype: str
) -> tuple[Float64, Float64, Float64, Float64]:
    """Return O and LSE of one head, and the bound and variance of what rounding P does to O."""
    if k.shape[0] == 0:
        zero = np.zeros((q.shape[0], v.shape[1]))
        return zero, np.full(q.shape[0], -np.inf), zero, zero
    q, k, v = q.astype(np.float64), k.astype(np.float64), v.astype(np.float64)
    scores = np.where(mask, scale * (q @ k.T), -np.inf)
    seen = mask.any(axis=1)
    maximum = np.where(seen, scores.max(axis=1), 0.0)
    p = np.exp(scores - maximum[:, None])
    total = np.where(seen, p.sum(axis=1), 1.0)
    with np.errstate(divide="ignore"):
        lse = np.where(seen, maximum + np.log(total), -np.inf)
    p /= total[:, None]
    unit, size = _UNIT[dtype], np.abs(v)
    bound = unit * (p @ size)
    variance = unit**2 / 3 * (p**2 @ size**2)
    if dtype == "float16":
        bound += 2.0**-25 / total[:, None] * (mask.astype(np.float64) @ size)
        variance += (2.0**-25 / total[:, None]) ** 2 / 3 * (mask.astype(np.float64) @ size**2)
    return p @ v, lse, bound, variance
