# SPDX-License-Identifier: MIT OR Apache-2.0
"""How far rounding may take a kernel's O and LSE from float64: every tolerance is derived here, once.

**Roundings.** A kernel computes scores, P = exp(s - m) with m the row's maximum so far, and the sum l of
P in float32; rounds P to its P type for the product with V; accumulates O in float32; and rounds O / l once
to its own type. E = 2^-24 below: a float32 operation is off by at most E relative.

**P.** Rounded to nearest, a P is off by at most u, half an ulp of 1, relative, or, below the type's normal
numbers, by half a smallest subnormal, at a scale where the row's largest P is `p_scale`; where subnormals are
flushed, by all of itself. This is taken element by element and worst case:

    |dO| <= sum_j (u * w_j + smallest / (l * p_scale)) * |v_j|,    w = P / l, with dropout's zeros and factor

**O.** One rounding: at most one ulp (half of one, but O may round into the next binade).

**float32 in the scores.** With x_j the scaled product of q and k_j before softcap, bias or ALiBi, an error
e_j of a score is a relative error e_j of its P, and to first order

    |dO| <= sum_j w_j * e_j * |v_j| + |O| * sum_j p_j * e_j

  - Points: each of scaling, adding, the factor log2(e) and exp2's argument rounds a number no larger than the
    sum S_j of what is added up, |x_j| + |bias or ALiBi|: 5 E S_j. exp2 itself: 2 E. Where exp2's argument
    has `p_scale` in it, it is larger by that one's logarithm: E ln(p_scale).
  - The row's maximum m is rounded once scaled. A key tile that raises it rescales by exp2 of a difference of
    two of these: 4 E (|m| + 1). The error of an early tile with a far
    smaller m is scaled down by its own exp(m_old - m): hence the 1. Rescaling l and O: 3 E a tile.
  - Softcap: CK has tanh(y) = 1 - 2 * rcp(exp2(2 log2(e) y) + 1). exp2 and its argument give at most 2 E of
    tanh, the sum 2 E, rcp and its factor 4 E, the difference 1 E, the multiplication 1 E: 10 E softcap.
    Errors of x pass through it multiplied by its derivative, at most 1. Our forward kernel for Instinct has a
    polynomial of odd powers for y up to 0.3: 3 E for its fit, and less than 2 E for its roundings.
  - The dot product over hdim is a chain of n additions. Worst case is n E sum|q_d k_d|, which nothing comes
    near. Roundings are independent and spread evenly: of variance (E S_t)^2 / 3 for a partial sum S_t. Terms
    of random sign make S_t a walk with S_n at its end: sum_t S_t^2 is n/2 sum (q_d k_d)^2 from the walk and
    n/3 S_n^2 from the drift. SIGMAS standard deviations are taken, which chance exceeds once in 5e8.

**float32 in the sums.** l: a chain of tile_n / 2 (its lanes' own) plus one a tile, of no more than l. O: one
of seqlen_k, of no more than its root mean square growth sqrt(sum (w_j v_j)^2) and |O| together. The division
and what O is multiplied with: 4 E |O|.

**LSE.** sum_j p_j e_j as above, the error of l relative, and 3 E |m| + 2 E |ln l| + 3 E for the logarithm,
its factor and the sum.

**A sink.** It enters where the sums are finished: with M the larger of m and the sink, l becomes l exp(m - M)
+ exp(sink - M), and O is multiplied with exp(m - M) too. The sink's factor log2(e) and its product, m, the
difference of the two and exp2 make exp(sink - m) wrong by 3 E |sink| + 2 E |m| + 4 E, relative, which changes
O and exp(LSE) by the sink's share of the softmax of that. The additional product is E |O|. Where the sink is
far above, the factor on O, or O itself, may be below 2^-126, which is taken for 0. M takes the place of m in
the LSE's logarithm, factor and sum, which has `p_scale` in it as exp2's argument has: E ln(p_scale).

**Averages.** Over many rows the mean square of the error, less its mean, must not exceed the variance by more
than RMS_SLACK squared, and its mean must be the expected one within what the variance allows. This is far
tighter than the worst case, which lets a wrong rounding of P pass. Rounding errors are spread evenly over an
ulp: variance ulp^2 / 12. float32's part is its bound with one standard deviation instead of SIGMAS and points
divided by sqrt(3). Rounding to nearest has no mean, but for P below half the smallest number, which vanish.
A row's largest P is dropout's factor itself, give or take float32 rounding, the same in all rows: what it is
rounded by is worked out.

For fp8 numbers are not spread evenly over an ulp as wide as 2^-3. With a density f(p) the mean of the
error is ulp^2 / 12 * f'/f, and p f'/f of exponentials of scores of some units is up to 6: 2^-7 of P, which is
`bias_slack`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from pyfa_rocm._call.params import CATALOGUE_TYPES
from pyfa_rocm._runtime import library
from pyfa_rocm.array import dtype_of

Float64 = npt.NDArray[np.float64]

_FACTS = {name: ml_dtypes.finfo(dtype_of(name)) for name in CATALOGUE_TYPES}  # type: ignore[no-untyped-call]
# Explicit mantissa bits, and the distance between subnormals.
MANTISSA_BITS = {name: int(facts.nmant) for name, facts in _FACTS.items()}
_SMALLEST_ULP = {name: float(facts.smallest_subnormal) for name, facts in _FACTS.items()}
_E = 2.0**-24
_FLUSHED = 2.0**-126
# How far P of a row's largest score, exp(0), and its product with dropout's factor may be off.
_FLOAT32_NOISE = 2.0**-22
SIGMAS = 6.0
# Factor on the root mean square, for samples of some hundred rows.
RMS_SLACK = 1.5
# How far the mean error may be from the expected one, relative to O.
_BIAS_SLACK_FP8 = 2.0**-7


@dataclass(frozen=True)
class Numerics:
    """How a kernel rounds.

    Attributes
    ----------
    p_dtype, o_dtype : str
        Types that P and O are rounded to.
    p_scale : float
        Factor on P before it is rounded.
    tile_n : int
        Keys of a main-loop step.
    raised : bool
        True: the exponential that gives P has `p_scale` in its argument.
    flushes : bool
        Whether the matrix instructions take subnormal numbers of P's type, in Q, K, V and P, for 0.
    """

    p_dtype: str
    o_dtype: str
    p_scale: float = 1.0
    tile_n: int = 64
    flushes: bool = False
    raised: bool = False

    @property
    def bias_slack(self) -> float:
        """How far O's mean error may be from the expected one, relative to O."""
        return _BIAS_SLACK_FP8 if self.p_dtype.startswith("float8") else 0.0


# Kernels multiply P with this before they round it to an 8-bit float: the type's largest number.
P_SCALES = {name: float(facts.max) for name, facts in _FACTS.items() if facts.bits == 8}
_PINGPONG = "pingpong"  # kernels that take the power of two below it


def _types(arch: str, which: str) -> list[str]:
    """Return some of the types of an arch, by the catalogue's names; none of an unknown arch."""
    facts = library.known_archs().get(arch)
    return [] if facts is None else list(facts[which])


def fp8_of(arch: str) -> str | None:
    """Return the 8-bit float that an arch computes with."""
    own = _types(arch, "dtypes")
    return next((dtype for dtype in P_SCALES if CATALOGUE_TYPES[dtype] in own), None)


def numerics_of(
    dtype: str,
    o_dtype: str | None = None,
    tile_n: int = 64,
    arch: str | None = None,
    pipeline: str = "",
) -> Numerics:
    """Return how the kernels of an input type round; `pipeline` is that of `fmha.KernelInfo`.

    The library knows the types whose subnormals an arch's matrix instructions flush; without an arch none are
    flushed.
    """
    p_scale, raised = P_SCALES.get(dtype, 1.0), dtype in P_SCALES and pipeline == _PINGPONG
    return Numerics(
        p_dtype=dtype,
        o_dtype=dtype if o_dtype is None else o_dtype,
        p_scale=2.0 ** math.floor(math.log2(p_scale)) if raised else p_scale,
        raised=raised,
        tile_n=tile_n,
        flushes=arch is not None and CATALOGUE_TYPES[dtype] in _types(arch, "matrix_flushes"),
    )


def smallest_ulp(dtype: str) -> float:
    """Return the distance between subnormal numbers of a type."""
    return _SMALLEST_ULP[dtype]


def smallest_normal(dtype: str) -> float:
    """Return the smallest normal number of a type."""
    return float(_SMALLEST_ULP[dtype] * 2.0 ** MANTISSA_BITS[dtype])


@dataclass(frozen=True)
class Head:
    """Attention of one head, and what its errors depend on. Rows are queries.

    Attributes
    ----------
    v : array (seqlen_k, hdim_v)
    p, weights : array (seqlen_q, seqlen_k)
        Probabilities, and what multiplies V: the same, or with dropout.
    total, maximum : array (seqlen_q, 1)
        Sum of exp(s - maximum), and the row's largest score.
    o, lse : array (seqlen_q, hdim_v) and (seqlen_q)
    scores, products : array (seqlen_q, seqlen_k)
        Scaled product of q and k, and the root of the sum of squares it is made of.
    add : array (seqlen_q, seqlen_k), optional
        Bias or ALiBi.
    sink : float
        A score without a value, which `total` counts; -inf: none.
    p_sink : array (seqlen_q)
        Its probability.
    """

    v: Float64
    p: Float64
    weights: Float64
    total: Float64
    maximum: Float64
    o: Float64
    lse: Float64
    scores: Float64
    products: Float64
    add: Float64 | None
    softcap: float
    keep_scale: float
    hdim: int
    sink: float
    p_sink: Float64

    @property
    def sink_error(self) -> Float64:
        """The relative error of O and of exp(LSE) by a sink's."""
        if math.isinf(self.sink):
            return np.zeros_like(self.p_sink)
        return self.p_sink * _E * (3 * abs(self.sink) + 2 * np.abs(self.maximum[:, 0]) + 4) + _E


def ulp(x: Any, dtype: str) -> Float64:
    """Distance between neighbouring numbers of a type in the binade of |x|."""
    _, exponent = np.frexp(x)  # |x| in [2^(exponent-1), 2^exponent)
    spacing = np.ldexp(1.0, exponent - 1 - MANTISSA_BITS[dtype])
    return np.asarray(np.where(x == 0, 0.0, spacing)).clip(min=_SMALLEST_ULP[dtype])


def o_errors(
    head: Head, numerics: Numerics, of_scores: tuple[Float64, Float64]
) -> tuple[Float64, Float64, Float64]:
    """Return the bound, variance and mean of O's error; `of_scores` is that of `score_errors`."""
    spacing = ulp(head.o, numerics.o_dtype)
    squares = head.weights**2 @ head.v**2
    bound, variance, mean = _p_errors(head, numerics, squares)
    chains, points = _float32_errors(head, numerics, of_scores, squares)
    usual = chains + points / math.sqrt(3)
    return spacing + bound + SIGMAS * chains + points, spacing**2 / 12 + variance + usual**2, mean


def lse_tolerance(head: Head, numerics: Numerics, of_scores: tuple[Float64, Float64]) -> Float64:
    """Return the bound of the LSE's error; 0 where it is -inf. `of_scores` is that of `score_errors`."""
    chains, points = of_scores
    scores = (head.p * (SIGMAS * chains + points)).sum(axis=1)
    of_l = SIGMAS / math.sqrt(3) * _E * math.sqrt(_l_chain(head, numerics)) + 3 * _tiles(head, numerics) * _E
    seen = np.isfinite(head.lse)
    most = np.maximum(head.maximum[:, 0], head.sink)
    size = 3 * np.abs(most) + 2 * np.abs(np.where(seen, head.lse, 0.0) - most) + 3
    if not math.isinf(head.sink):
        size += _of_scale(numerics)
    return np.asarray(np.where(seen, scores + head.sink_error + of_l + size * _E, 0.0))


def sink_tolerance(sink: float, numerics: Numerics) -> float:
    """Return the bound of the LSE's error in a row that sees no key: 0 without a sink."""
    return 0.0 if math.isinf(sink) else (3 * abs(sink) + 3 + _of_scale(numerics)) * _E


def _of_scale(numerics: Numerics) -> float:
    """Return the logarithm of what exponentials have in their argument."""
    return math.log(numerics.p_scale) if numerics.raised else 0.0


def _tiles(head: Head, numerics: Numerics) -> int:
    keys: int = head.p.shape[1]
    return math.ceil(keys / numerics.tile_n)


def _l_chain(head: Head, numerics: Numerics) -> float:
    return float(min(head.p.shape[1], numerics.tile_n / 2 + _tiles(head, numerics)))


def score_errors(head: Head, numerics: Numerics) -> tuple[Float64, Float64]:
    """Return the standard deviation of |e_j| by chains of roundings, and the bound by single roundings."""
    size = np.abs(head.scores)
    chain = math.sqrt(head.hdim / 6) * head.products + math.sqrt(head.hdim) / 3 * size
    points = 5 * (size if head.add is None else size + np.abs(_finite(head.add)))
    if head.softcap:
        slope = 1 - np.tanh(head.scores / head.softcap) ** 2
        chain, points = chain * slope, points * slope + 10 * head.softcap
    of_row = 4 * (np.abs(head.maximum) + 1) + 2 + _of_scale(numerics)
    return _E * chain, _E * (points + of_row)


def _float32_errors(
    head: Head, numerics: Numerics, of_scores: tuple[Float64, Float64], squares: Float64
) -> tuple[Float64, Float64]:
    """Return what float32 does to O: the standard deviation by chains, the bound by single roundings."""
    v, o = np.abs(head.v), np.abs(head.o)
    chains, points = (
        (head.weights * e) @ v + o * np.einsum("ij,ij->i", head.p, e)[:, None] for e in of_scores
    )
    size = np.sqrt(squares) + o
    chain = math.sqrt(head.p.shape[1]) * size + math.sqrt(_l_chain(head, numerics)) * o
    scaling = (4 + 3 * _tiles(head, numerics)) * (o + size)
    points += o * head.sink_error[:, None]
    if not math.isinf(head.sink):
        points += _FLUSHED * (1 + o * head.total * numerics.p_scale)
    return chains + _E / math.sqrt(3) * chain, points + _E * scaling


def _p_errors(head: Head, numerics: Numerics, squares: Float64) -> tuple[Float64, Float64, Float64]:
    """Return the bound, variance and mean of what rounding P does to O."""
    if numerics.p_dtype == "float32":
        zero = np.zeros_like(head.o)
        return zero, zero, zero
    size, weights, dtype = np.abs(head.v), head.weights, numerics.p_dtype
    ulp_of_one = 2.0 ** -MANTISSA_BITS[dtype]
    unit = 1.0 / (head.total * numerics.p_scale)
    smallest = _SMALLEST_ULP[dtype] * unit
    of_size, of_squares = _sums(weights > 0, size)
    bound = 0.5 * (ulp_of_one * (weights @ size) + smallest * of_size)
    variance = (ulp_of_one**2 * squares + smallest**2 * of_squares) / 12
    p = weights / unit  # what is rounded
    lost = np.where(p < _SMALLEST_ULP[dtype] / 2, p, 0.0)
    top = head.keep_scale * numerics.p_scale
    if taken := _taken_from_top(top, numerics):
        lost[p > top * (1.0 - _FLOAT32_NOISE)] = taken
    if numerics.flushes:
        flushed = p < smallest_normal(dtype)
        bound += np.where(flushed, weights, 0.0) @ size
        lost = np.where(flushed, p, lost)
    mean = (lost * unit) @ head.v if lost.any() else np.zeros_like(head.o)
    return bound, variance, -mean


def _sums(seen: npt.NDArray[np.bool_], size: Float64) -> tuple[Float64, Float64]:
    """Return the sums of `size` and of its squares over the keys that a row sees."""
    first, count = seen.argmax(axis=1), seen.sum(axis=1)
    last = seen.shape[1] - 1 - seen[:, ::-1].argmax(axis=1)
    if ((count == 0) | (last - first + 1 == count)).all():  # neighbours, which takes no product
        upto = np.zeros((2 * size.shape[1], len(size) + 1))
        np.hstack([size, size**2]).T.cumsum(axis=1, out=upto[:, 1:])
        sums = (upto[:, first + count] - upto[:, first]).T
    else:
        sums = seen.astype(np.float64) @ np.hstack([size, size**2])
    return sums[:, : size.shape[1]], sums[:, size.shape[1] :]


def _taken_from_top(top: float, numerics: Numerics) -> float:
    """Return what rounding takes from a row's largest P, before it is rounded."""
    spacing = float(ulp(np.float64(top), numerics.p_dtype))
    return top - round(top / spacing) * spacing


def _finite(x: Float64) -> Float64:
    return np.where(np.isfinite(x), x, 0.0)
