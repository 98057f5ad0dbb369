# SPDX-License-Identifier: MIT OR Apache-2.0
"""The oracle of a merge of partial outputs, and how far a kernel may be from it.

How far rounding may take the result, E = 2^-24 being half an ulp of float32: with d_i = lse_i - max, its
rounding, log2(e), the product with it and v_exp_f32 make a weight w_i wrong by e_i = E (3 |d_i| + 3),
relative. A sum of n terms adds n E of what it is made of, one for the values and one for the weights; the
quotient and its product 4 E. Then O is rounded once. All of this is worst case:

    |dO| <= sum_i w_i |o_i| (e_i + (2 n + 4) E) / W + |O| sum_i w_i e_i / W + ulp(O) / 2

The LSE has the relative error of W, of the logarithm and its factor 4 E |ln W| + 2 E, and one rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pyfa_rocm.oracle.rounding import ulp

__all__ = ["merged"]

Array = npt.NDArray[Any]
_E = 2.0**-24


def merged(values: list[Array], lses: Array, base2: bool, dtype: str) -> list[tuple[Array, Array]]:
    """O and LSE in float64, each with its bound. LSEs (parts, batch, nhead, seqlen) are not +inf or NaN."""
    unit = np.log(2.0) if base2 else 1.0
    natural = lses.astype(np.float64).transpose(0, 1, 3, 2)[..., None] * unit
    largest = natural.max(axis=0)
    full = np.isfinite(largest)
    away = natural - np.where(full, largest, 0.0)
    w = np.exp(away)
    of_w = _E * (3 * np.abs(np.where(w > 0, away, 0.0)) + 3)
    total = np.where(full, w.sum(axis=0), 1.0)
    x = [np.where(weight > 0, value.astype(np.float64), 0.0) for weight, value in zip(w, values, strict=True)]
    o = sum(weight * value for weight, value in zip(w, x, strict=True)) / total
    sums = (2 * len(x) + 4) * _E
    size = sum(weight * np.abs(value) * (e + sums) for weight, value, e in zip(w, x, of_w, strict=True))
    of_total = (w * of_w).sum(axis=0) / total
    bound = size / total + np.abs(o) * of_total
    bound += ulp(np.abs(o) + bound, dtype) / 2
    with np.errstate(divide="ignore"):
        lse = (largest + np.log(w.sum(axis=0))) / unit
    log = np.abs(np.log(total))
    size = np.where(full, np.abs(lse), 0.0)
    of_lse = (of_total + len(x) * _E + 4 * _E * log + 2 * _E) / unit + _E * size
    return [(o, bound), (lse[..., 0].transpose(0, 2, 1), of_lse[..., 0].transpose(0, 2, 1))]
