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

# Explicit mantissa bits, and smallest ulp, of the 16-bit types.
_MANTISSA_BITS = {"float16": 10, "bfloat16": 7}
_SMALLEST_ULP = {"float16": 2.0**-24, "bfloat16": 2.0**-133}
# The kernels round P to nearest in bf16 (native/kernels/fwd.hip), and toward zero in fp16, where CK packs two
# at a time by v_cvt_pkrtz_f16_f32.
_P_TOWARD_ZERO = {"float16": True, "bfloat16": False}

# Bound on |LSE - float64|, absolute.
LSE_TOLERANCE = 1e-5
# Factor on the derived bound of O, for what is done in float32: see the notes of `attention`.
O_SLACK = 1.5
# How far the mean error may be from o_bias, relative to O: see there too.
BIAS_SLACK = {"float16": 2.0**-13, "bfloat16": 0.0}


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
        Variance of the error, for averages over many rows.
    o_bias : array, float64, as o
        Mean of the error.
    """

    o: Float64
    lse: Float64
    o_tolerance: Float64
    o_variance: Float64
    o_bias: Float64


def visible(
    seqlen_q: int, seqlen_k: int, *, causal: bool = False, window_size: tuple[int, int] = (-1, -1),
    top_left: bool = False,
) -> npt.NDArray[np.bool_]:  # fmt: skip
    """Return which keys each query sees, bool (seqlen_q, seqlen_k), as flash-attention defines it."""
    left, right = window_size
    if right >= seqlen_k:  # flash-attention's rule; it matters to rows that stand left of the first key
        right = -1
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
    sums it in float32 to l. For the product with V it rounds P to its 16-bit type: to nearest in bf16, which
    is off by at most u = 2^-8 of P, and toward zero in fp16, off by at most u = 2^-10 of P, or by a smallest
    subnormal, 2^-24, at a scale where the row's largest P is 1. With the exact p = P / l,

        |dO| <= sum_j (u * p_j + 2^-24 / l) * |v_j|        (the second term in fp16 alone)

    O itself is rounded once: at most one ulp (half of one, but O may round into the next binade). The bound
    is taken element by element and is worst case: it assumes nothing about how errors average out.

    What is left is the float32 arithmetic. Products of 16-bit numbers are exact in it; the sums over hdim
    and keys, exp2, and rescaling at a new maximum each lose some 2^-23 relative, and an error e of a scaled
    score is a relative error e of its P. All of it stays below half of the bound above while scores are
    moderate (|s| below 2^9 in bf16, 2^7 in fp16): that half is O_SLACK.

    **The expected error of O.** Rounding errors are spread evenly over an ulp, so that of P has variance
    ulp^2 / 12 and that of O too, and they are independent: `o_variance` is their sum. Rounding P toward zero
    also takes half an ulp of it away on average: `o_bias`. Of the row's largest, exp(0) give or take float32
    rounding, it takes 2^-11 with a probability of 0 to 1/2, depending on the scores: 2^-13 on average is
    taken here, and BIAS_SLACK is how wrong that may be.
    (The ulp depends on m, which in the first tiles of a row may not be the final one taken here; the
    difference is without sign and small beside the variance.) Over many rows the mean square of what remains
    when the bias is taken off must not exceed the variance by more than O_SLACK squared, and its mean must be
    0 within what that variance allows. This is far tighter than the worst case, which lets a wrong rounding
    of P pass.
    """
    dtype = q.dtype.name if dtype is None else dtype
    batch, seqlen_q, nhead_q, hdim = q.shape
    scale = 1.0 / math.sqrt(hdim) if softmax_scale is None else softmax_scale
    group = nhead_q // k.shape[2]
    mask = visible(seqlen_q, k.shape[1], causal=causal, window_size=window_size, top_left=top_left)
    lse = np.full((batch, nhead_q, seqlen_q), -np.inf)
    o, bound, variance, bias = (np.zeros((batch, seqlen_q, nhead_q, v.shape[3])) for _ in range(4))
    for b, h in np.ndindex(batch, nhead_q):
        if k.shape[1] == 0:
            continue
        head_v = v[b, :, h // group].astype(np.float64)
        p, total, lse[b, h] = _softmax(q[b, :, h], k[b, :, h // group], scale, mask)
        o[b, :, h] = p @ head_v
        bound[b, :, h], variance[b, :, h], bias[b, :, h] = _p_errors(p, total, head_v, mask, dtype)
    spacing = ulp(o, dtype)
    return Expected(o, lse, O_SLACK * (spacing + bound), spacing**2 / 12 + variance, bias)


def _softmax(
    q: Array, k: Array, scale: float, mask: npt.NDArray[np.bool_]
) -> tuple[Float64, Float64, Float64]:
    """Return the probabilities of one head, the sums they were divided by (a column), and the LSE."""
    scores = np.where(mask, scale * (q.astype(np.float64) @ k.astype(np.float64).T), -np.inf)
    seen = mask.any(axis=1)
    maximum = np.where(seen, scores.max(axis=1), 0.0)
    p = np.exp(scores - maximum[:, None])
    total = np.where(seen, p.sum(axis=1), 1.0)
    lse = np.where(seen, maximum + np.log(total), -np.inf)
    return p / total[:, None], total[:, None], lse


def _p_errors(
    p: Float64, total: Float64, v: Float64, mask: npt.NDArray[np.bool_], dtype: str
) -> tuple[Float64, Float64, Float64]:
    """Return the bound, variance and mean of what rounding P does to O."""
    ulp_of_one, size = 2.0 ** -_MANTISSA_BITS[dtype], np.abs(v)
    toward_zero = _P_TOWARD_ZERO[dtype]
    bound = ulp_of_one * (1.0 if toward_zero else 0.5) * (p @ size)
    variance = ulp_of_one**2 / 12 * (p**2 @ size**2)
    if not toward_zero:
        return bound, variance, np.zeros_like(bound)
    smallest = _SMALLEST_ULP[dtype] / total * mask
    largest = p * total > 1.0 - 2.0**-24
    mean = -np.where(largest, BIAS_SLACK[dtype], ulp(p * total, dtype) / 2) / total * mask
    return bound + smallest @ size, variance + smallest**2 / 12 @ size**2, mean @ v
