# SPDX-License-Identifier: MIT OR Apache-2.0
"""The oracle of the backward pass: gradients in float64 NumPy, and how far a kernel may be from them.

**Formulas.** With S the scores as forward has them, P = exp(S - LSE) of the LSE given, M dropout's
zeros and factor, O as given, and D = rowsum(dO * O):

    dV = (P * M)^T dO,    dS = P * (M * (dO V^T) - D),    dQ = scale * dS K,    dK = scale * dS^T Q

dK and dV are the sums over a group of query heads. dS is the gradient of a bias, too. With softcap c, dQ and
dK are made of dS times tanh's derivative, 1 - (S / c)^2.

**Roundings of a kernel** (E, SIGMAS and RMS_SLACK are `rounding.py`'s). S, P, dP = dO V^T, D and dS are
float32; P * M without dropout's factor, which follows, and dS are rounded to the inputs' type for the last
three products, which accumulate in float32; the sums are rounded once to the gradients' type.

- P: relative error e of the score (`rounding.py`), of the LSE's factor log2(e), and of exp2: no maximum is
  involved, but a score and an LSE each rounded once scaled: e + 2 E (|S| + |LSE|) + 2 E.
- Softcap: errors of the product of q and k pass through tanh multiplied by its derivative t'; tanh itself is
  off by 10 E, S by c times that, and t' by 2 |tanh| times tanh's error, and 4 E.
- dP and D are dot products over hdim_v: chains, taken as random walks of SIGMAS deviations.
- dS = P (M dP - D): e of P relative, those of dP and D times P, and 3 E of |P| (|M dP| + |D|).
- float32 inputs: P and dS are multiplied as they are, so that nothing but the sums is rounded after them.
- Rounding to 16 bits: half an ulp of 1, relative, or half the smallest subnormal number, or all of a number
  that the matrix unit flushes. It flushes such numbers of Q, K, V and dO too: so does the oracle, but for D.
- float32 numbers below 2^-126 are taken for 0, P among them: kernels are compiled so.
- The gradient of a bias is dS as it is in float32, or a sum of it in float32 where the bias is broadcast.
- The last products are chains over rows or keys: of their terms' root mean square and the sum's own size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from pyfa_rocm.oracle.reference import distance, flushed, visible
from pyfa_rocm.oracle.rounding import MANTISSA_BITS, SIGMAS, Numerics, smallest_normal, smallest_ulp, ulp

__all__ = ["Gradient", "gradients"]

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
_E = 2.0**-24
_FLUSHED = 2.0**-126


@dataclass(frozen=True)
class Gradient:
    """One gradient: its value, the bound of a kernel's error, and a bound of the error's variance.

    The last rounding, to the type in which it is stored, is in neither: see `bound_in`.
    """

    value: Float64
    bound: Float64
    variance: Float64

    def bound_in(self, dtype: str) -> Float64:
        """Return how far each element may be off once it is stored."""
        return self.bound + ulp(self.value, dtype) + _FLUSHED

    def summed(self, axes: tuple[int, ...]) -> Gradient:
        """Return the sum over these axes, which are kept, added up in float32."""
        n = math.prod(self.value.shape[axis] for axis in axes)
        if n == 1:
            return self
        value, bound, variance, squares = (
            x.sum(axis=axes, keepdims=True) for x in (self.value, self.bound, self.variance, self.value**2)
        )
        chain = _E * math.sqrt(n / 3) * (np.sqrt(squares) + np.abs(value))
        return Gradient(value, bound + SIGMAS * chain + _E * np.abs(value), variance + chain**2)

    def variance_in(self, dtype: str) -> Float64:
        """Return the variance of an element's error once it is stored."""
        return self.variance + ulp(self.value, dtype) ** 2 / 12


@dataclass(frozen=True)
class _Rounded:
    """A matrix (rows, keys) that a kernel rounds to 16 bits: value, and bound and variance of its error."""

    value: Float64
    bound: Float64
    variance: Float64

    def times(self, other: Float64, factor: float) -> tuple[Float64, Float64, Float64]:
        """Return value, bound and variance of factor * value @ other, accumulated in float32."""
        product, size = self.value @ other, np.abs(other)
        squares = self.value**2 @ size**2
        chain = SIGMAS / math.sqrt(3) * _E * math.sqrt(other.shape[0]) * (np.sqrt(squares) + np.abs(product))
        bound = self.bound @ size + chain + 2 * _E * np.abs(product)
        return (
            factor * product,
            abs(factor) * bound,
            factor**2 * (self.variance @ size**2 + (chain / SIGMAS) ** 2),
        )

    def scaled(self, factor: float) -> tuple[Float64, Float64, Float64]:
        """Return value, bound and variance of factor * value, which is float32."""
        value = factor * self.value
        return value, abs(factor) * self.bound + _E * np.abs(value), factor**2 * self.variance

    @property
    def transposed(self) -> _Rounded:
        return _Rounded(self.value.T, self.bound.T, self.variance.T)


def _rounded(value: Float64, bound: Float64, numerics: Numerics) -> _Rounded:
    """Round to the matrix unit's type what is already off by `bound`, which is SIGMAS deviations."""
    dtype = numerics.p_dtype
    if dtype == "float32":
        return _Rounded(value, bound + _FLUSHED, (bound / SIGMAS) ** 2)
    relative, smallest = 2.0 ** -MANTISSA_BITS[dtype] * np.abs(value), smallest_ulp(dtype) * (value != 0)
    worst = bound + 0.5 * relative + 0.5 * smallest + _FLUSHED
    variance = (bound / SIGMAS) ** 2 + (relative**2 + smallest**2) / 12
    if numerics.flushes:
        lost = np.where(np.abs(value) < smallest_normal(dtype), np.abs(value), 0.0)
        worst, variance = worst + lost, variance + lost**2
    return _Rounded(value, worst, variance)


def _dot_error(a: Float64, b: Float64, product: Float64) -> Float64:
    """Bound of the error of a product a @ b^T accumulated in float32, see `rounding.py`."""
    n = a.shape[1]
    size = np.sqrt(a**2 @ b.T**2)
    chain = math.sqrt(n / 2) * size + math.sqrt(n / 3) * np.abs(product)
    return np.asarray(SIGMAS / math.sqrt(3) * _E * chain)


@dataclass(frozen=True)
class _Scores:
    """Scores of a head, what multiplies their gradient, and bounds of both's errors."""

    value: Float64
    slope: Float64
    error: Float64
    slope_error: Float64


def _scores(q: Float64, k: Float64, scale: float, softcap: float, add: Float64 | None) -> _Scores:
    """Scores as they are subtracted from: their own rounding is left to the subtraction."""
    plain = scale * (q @ k.T)
    error = scale * _dot_error(q, k, plain / scale) + 5 * _E * np.abs(plain)
    slope, slope_error = np.ones_like(plain), np.zeros_like(plain)
    if softcap:
        tanh = np.tanh(plain / softcap)
        plain, slope = softcap * tanh, 1 - tanh**2
        error = error * slope + 10 * _E * softcap
        slope_error = 2 * np.abs(tanh) * error / softcap + 4 * _E
    if add is None:
        return _Scores(plain, slope, error, slope_error)
    return _Scores(plain + add, slope, error + 5 * _E * _size(add), slope_error)


def _size(x: Float64) -> Float64:
    return np.where(np.isfinite(x), np.abs(x), 0.0)


def _row_sums(o: Float64, dout: Float64) -> tuple[Float64, Float64]:
    """Return D, and a bound of its error: each lane adds up hdim / 16 products, and then lanes are joined."""
    products = dout * o
    d = products.sum(axis=1, keepdims=True)
    chain = math.sqrt(o.shape[1]) * np.sqrt((products**2).sum(axis=1, keepdims=True))
    return d, SIGMAS / math.sqrt(3) * _E * chain + 2 * _E * np.abs(d)


def _head(
    q: Float64, k: Float64, v: Float64, d: Float64, d_error: Float64, dout: Float64, lse: Float64,
    scale: float, softcap: float, mask: npt.NDArray[np.bool_], add: Float64 | None, kept: Float64,
    keep_scale: float, numerics: Numerics,
) -> dict[str, tuple[Float64, Float64, Float64]]:  # fmt: skip
    """Gradients of one query head, and of its scores: value, bound and variance of each."""
    scores = _scores(q, k, scale, softcap, add)
    seen = mask & np.isfinite(lse)[:, None]
    row_lse = np.where(np.isfinite(lse), lse, 0.0)[:, None]
    p = np.where(seen, np.exp(np.where(seen, scores.value - row_lse, -np.inf)), 0.0)
    e = scores.error + 2 * _E * (_size(scores.value) + np.abs(row_lse) + 1)
    dp = dout @ v.T
    dp_error = _dot_error(dout, v, dp)
    weighted = kept * keep_scale
    unscaled = weighted * dp - d
    ds = p * unscaled * scores.slope
    ds_error = p * np.abs(unscaled) * scores.slope_error + p * scores.slope * (
        e * np.abs(unscaled) + weighted * dp_error + d_error + 3 * _E * (np.abs(weighted * dp) + np.abs(d))
    )
    ds_error = ds_error + np.minimum(p, _FLUSHED) * scores.slope * np.abs(unscaled)
    # dropout's factor is applied to the sums: what is rounded is dS / factor.
    p_matrix = _rounded(p * kept, p * kept * e, numerics)
    ds_matrix = _rounded(ds / keep_scale, ds_error / keep_scale, numerics)
    unrounded = _rounded(ds / keep_scale, ds_error / keep_scale, replace(numerics, p_dtype="float32"))
    return {
        "dq": ds_matrix.times(k, scale * keep_scale),
        "dk": ds_matrix.transposed.times(q, scale * keep_scale),
        "dv": p_matrix.transposed.times(dout, keep_scale),
        "dbias": unrounded.scaled(keep_scale),
    }


def gradients(
    q: Array, k: Array, v: Array, o: Array, lse: Array, dout: Array, *, numerics: Numerics,
    softmax_scale: float | None = None, causal: bool = False, window_size: tuple[int, int] = (-1, -1),
    top_left: bool = False, max_seqlen_k: int | None = None, alibi_slopes: Array | None = None,
    softcap: float = 0.0, bias: Array | None = None, keep: npt.NDArray[np.bool_] | None = None,
    keep_scale: float = 1.0,
) -> dict[str, Gradient]:  # fmt: skip
    """Gradients of attention in float64, and the tolerance of a kernel.

    Parameters
    ----------
    q, k, v : array, (batch, seqlen, nhead, hdim)
        Inputs of the forward pass, in their own type.
    o, lse, dout : array
        Its results, (batch, seqlen_q, nhead_q, hdim_v) and float32 (batch, nhead_q, seqlen_q), as the kernel
        gets them, and the gradient of O.
    numerics : Numerics
        How the kernel rounds: `p_dtype` is the type of q, k, v.
    softmax_scale, causal, window_size, top_left, max_seqlen_k, alibi_slopes, softcap, bias, keep, keep_scale
        As in `attention`.

    Returns
    -------
    dict
        "dq", "dk" and "dv": Gradients, shaped like q, k, v. With a bias also "dbias", (batch, nhead_q,
        seqlen_q, seqlen_k): where it is broadcast, its gradient is the sum (`Gradient.summed`).
    """
    batch, seqlen_q, nhead_q, hdim = q.shape
    seqlen_k, group = k.shape[1], nhead_q // k.shape[2]
    scale = 1.0 / math.sqrt(hdim) if softmax_scale is None else softmax_scale
    mask = visible(
        seqlen_q,
        seqlen_k,
        causal=causal,
        window_size=window_size,
        top_left=top_left,
        max_seqlen_k=max_seqlen_k,
    )
    away = np.abs(distance(seqlen_q, seqlen_k, top_left=top_left)).astype(np.float64)
    slopes = None if alibi_slopes is None else np.broadcast_to(alibi_slopes, (batch, nhead_q))
    shapes = {"dq": q.shape, "dk": k.shape, "dv": v.shape}
    if bias is not None:
        shapes["dbias"] = (batch, nhead_q, *mask.shape)
        bias = np.broadcast_to(bias, shapes["dbias"])
    unflushed = dout
    if numerics.flushes:  # what matrix instructions multiply, but not D
        q, k, v, dout = (flushed(x, smallest_normal(numerics.p_dtype)) for x in (q, k, v, dout))
    sums = {name: [np.zeros(shape) for _ in range(3)] for name, shape in shapes.items()}
    for b, h in np.ndindex(batch, nhead_q):
        q_h, o_h, dout_h = (x[b, :, h].astype(np.float64) for x in (q, o, dout))
        d, d_error = _row_sums(o_h, unflushed[b, :, h].astype(np.float64))
        k_h, v_h = (x[b, :, h // group].astype(np.float64) for x in (k, v))
        add = None if bias is None else bias[b, h].astype(np.float64)
        head = _head(
            q_h, k_h, v_h, d, d_error, dout_h, lse[b, h].astype(np.float64), scale, softcap, mask,
            add if slopes is None else -float(slopes[b, h]) * away,
            np.ones(mask.shape) if keep is None else keep[b, h].astype(np.float64), keep_scale, numerics,
        )  # fmt: skip
        at: dict[str, Any] = {"dq": (b, slice(None), h), "dbias": (b, h)}
        for name, parts in sums.items():
            for total, part in zip(parts, head[name], strict=True):
                total[at.get(name, (b, slice(None), h // group))] += part
    return {name: Gradient(*parts) for name, parts in sums.items()}
