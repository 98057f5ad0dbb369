# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention in float64, forward and backward, with what rounding may do to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

EPS32 = 2.0**-23
# Relative error of one conversion from float32: half a step of the type, and a whole one for truncation.
ROUNDING = {"rtne": 2.0**-8, "rtna": 2.0**-8, "rtz": 2.0**-7, "fp16": 2.0**-11, "fp16_rtz": 2.0**-10}


@dataclass
class Forward:
    """Attention of (batch, rows, heads, dim) operands, in float64, with K and V repeated to Q's heads."""

    q: Array
    k: Array
    v: Array
    scale: float
    visible: Array  # (rows, keys)

    def __post_init__(self) -> None:
        self.q, self.k, self.v = (x.astype(np.float64) for x in (self.q, self.k, self.v))
        group = self.q.shape[2] // self.k.shape[2]
        self.k, self.v = np.repeat(self.k, group, 2), np.repeat(self.v, group, 2)
        s = np.einsum("bqhd,bkhd->bhqk", self.q, self.k) * self.scale
        s = np.where(self.visible, s, -np.inf)
        self.empty: Array = np.logical_not(self.visible.any(1))  # rows that see nothing
        highest = np.where(self.empty[:, None], 0, s.max(-1, keepdims=True))
        e = np.exp(s - highest)
        total = e.sum(-1, keepdims=True)
        self.p: Array = e / np.where(total == 0, 1, total)
        with np.errstate(divide="ignore"):
            self.lse: Array = (highest + np.log(total))[..., 0]
        self.o: Array = np.einsum("bhqk,bkhd->bqhd", self.p, self.v)

    def score_error(self) -> float:
        """How far a score may be off: products are exact in float32, sums round once a term."""
        terms = self.q.shape[-1] + 4
        size = np.einsum("bqhd,bkhd->bhqk", np.abs(self.q), np.abs(self.k)).max() * abs(self.scale)
        return float(terms * EPS32 / 2 * size)

    def o_error(self, unit: float, out_unit: float | None = None) -> Array:
        """How far O may be off, element by element.

        P is rounded to the operands' type (a relative error of `unit` each), and O at the end. The scores'
        error changes numerator and denominator; sums of as many terms as there are keys round in float32.
        """
        weight = np.einsum("bhqk,bkhd->bqhd", self.p, np.abs(self.v))
        sums: float = 2 * self.score_error() + (2 * self.k.shape[1] + 8) * EPS32
        last = unit if out_unit is None else out_unit
        return np.asarray((unit + sums) * weight + last * np.abs(self.o))

    def lse_error(self) -> Array:
        """How far LSE may be off: the scores', a sum's, and the last steps of exp2 and log2."""
        size = np.where(np.isinf(self.lse), 0, np.abs(self.lse))
        return np.asarray(self.score_error() + (self.k.shape[1] + 8) * EPS32 + 2 * EPS32 * size)

    def backward(self, do: Array) -> tuple[Array, Array, Array, Array]:
        """D (batch, heads, rows), dQ, and dK and dV of each head of Q."""
        d = np.einsum("bqhd,bqhd->bhq", self.o, do)
        dp = np.einsum("bqhd,bkhd->bhqk", do, self.v)
        ds = self.p * (dp - d[..., None]) * self.scale
        dq = np.einsum("bhqk,bkhd->bqhd", ds, self.k)
        dk = np.einsum("bhqk,bqhd->bkhd", ds, self.q)
        return d, dq, dk, np.einsum("bhqk,bqhd->bkhd", self.p, do)


def causal(rows: int, keys: int, bottom_right: bool) -> Array:
    """Return the keys that each row sees under a causal mask that counts from either corner."""
    shift = keys - rows if bottom_right else 0
    return np.arange(keys)[None, :] <= np.arange(rows)[:, None] + shift


def relative_rms(got: Array, want: Array) -> float:
    """Root mean square of the error, relative to that of what is wanted."""
    return float(np.sqrt(((got - want) ** 2).mean() / (want**2).mean()))
