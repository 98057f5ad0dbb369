# SPDX-License-Identifier: MIT OR Apache-2.0
"""A self-attention problem: what commands run, the oracle judges and the clock times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pyfa_rocm import array

__all__ = ["Problem"]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Problem:
    """The sizes of a problem; `seqlen` is that of queries and keys, `hdim` that of q, k and v."""

    batch: int
    nhead_q: int
    nhead_k: int
    seqlen: int
    hdim: int
    causal: bool
    dtype: str = "bfloat16"
    seed: int = 0

    def inputs(self) -> tuple[Array, Array, Array]:
        """Return q, k and v (batch, seqlen, nhead, hdim) from a normal distribution, the same for a seed."""
        rng = np.random.default_rng(self.seed)
        heads = (self.nhead_q, self.nhead_k, self.nhead_k)
        q, k, v = (self._normal(rng, count) for count in heads)
        return q, k, v

    def dout(self) -> Array:
        """Return a gradient of O, the same for a seed."""
        return self._normal(np.random.default_rng((self.seed, 1)), self.nhead_q)

    def _normal(self, rng: np.random.Generator, heads: int) -> Array:
        shape = (self.batch, self.seqlen, heads, self.hdim)
        return rng.standard_normal(shape, np.float32).astype(array.dtype_of(self.dtype))

    def flops(self, direction: str = "forward") -> float:
        """Return the operations as the field counts them: half with a causal mask, 2.5 times backward."""
        forward = 4 * self.batch * self.nhead_q * self.seqlen**2 * self.hdim
        return forward * (0.5 if self.causal else 1) * (2.5 if direction == "backward" else 1)

    def __str__(self) -> str:
        mask = "causal" if self.causal else "no mask"
        return f"b{self.batch} {self.nhead_q}/{self.nhead_k} s{self.seqlen} d{self.hdim} {mask}"
