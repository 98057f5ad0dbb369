# SPDX-License-Identifier: MIT OR Apache-2.0
"""An attention problem: what commands run, the oracle judges and the clock times.

A kernel over a cache has the problem's queries; its keys lie in a pool of pages (paged.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from pyfa_rocm import array
from pyfa_rocm._call.numbers import operations

__all__ = ["Problem"]

Array = npt.NDArray[Any]
Shape = tuple[int, int, int, int]


@dataclass(frozen=True)
class Problem:
    """The sizes of a problem, and its features; what is 0 or empty is not asked for.

    Attributes
    ----------
    batch, nhead_q, nhead_k, seqlen, hdim : int
        Sizes; `seqlen` is that of queries, and `hdim` that of q and k.
    causal, window_size, softcap, dropout_p, top_left
        As in `flash_attn_func`.
    dtype : str
        Type of q, k and v.
    seed : int
        Seed of the data.
    seqlen_k, hdim_v : int
        Those of keys and of v; 0: as `seqlen` and `hdim`.
    lengths, lengths_k : tuple of int
        Lengths of packed sequences, of queries and of keys; `lengths_k` empty: those of queries. `batch` is
        then 1, and `seqlen` and `seqlen_k` are their sums.
    alibi_slopes : tuple of float
        A slope for each query head.
    bias : bool
        True: each query head of each sequence has a bias of its own.
    descale : tuple of float
        Factors on elements of q, k and v in 8 bits.
    o_dtype : str
        Type of O; "": as the library has it by default.
    sinks : tuple of float
        A score without a value for each query head. The backward pass knows them by the LSE only.
    """

    batch: int
    nhead_q: int
    nhead_k: int
    seqlen: int
    hdim: int
    causal: bool
    dtype: str = "bfloat16"
    seed: int = 0
    seqlen_k: int = 0
    hdim_v: int = 0
    lengths: tuple[int, ...] = ()
    window_size: tuple[int, ...] = ()
    softcap: float = 0.0
    alibi_slopes: tuple[float, ...] = ()
    bias: bool = False
    dropout_p: float = 0.0
    descale: tuple[float, ...] = ()
    lengths_k: tuple[int, ...] = ()
    top_left: bool = False
    o_dtype: str = ""
    sinks: tuple[float, ...] = ()

    @property
    def q_shape(self) -> Shape:
        """Shape of q."""
        return self.batch, self.seqlen, self.nhead_q, self.hdim

    @property
    def k_shape(self) -> Shape:
        """Shape of k."""
        return self.batch, self.seqlen_k or self.seqlen, self.nhead_k, self.hdim

    @property
    def v_shape(self) -> Shape:
        """Shape of v."""
        return *self.k_shape[:3], self.hdim_v or self.hdim

    @property
    def o_shape(self) -> Shape:
        """Shape of O."""
        return *self.q_shape[:3], self.v_shape[3]

    @property
    def lse_shape(self) -> tuple[int, int, int]:
        """Shape of the log-sum-exp."""
        return self.batch, self.nhead_q, self.seqlen

    @property
    def longest(self) -> tuple[int, int]:
        """The most queries and the most keys of a sequence."""
        if not self.lengths:
            return self.seqlen, self.k_shape[1]
        return max(self.lengths), max(self.lengths_k or self.lengths)

    def inputs(self) -> tuple[Array, Array, Array]:
        """Return q, k, v (batch, seqlen, nhead, hdim) from a normal distribution, the same for a seed."""
        rng = np.random.default_rng(self.seed)
        q, k, v = (self._normal(rng, shape) for shape in (self.q_shape, self.k_shape, self.v_shape))
        return q, k, v

    def dout(self) -> Array:
        """Return a gradient of O, the same for a seed."""
        return self._normal(np.random.default_rng((self.seed, 1)), self.o_shape)

    def _normal(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return rng.standard_normal(shape, np.float32).astype(array.dtype_of(self.dtype))

    def options(self) -> dict[str, Any]:
        """Return the arguments that public functions and the oracle have in common; arrays on the host."""
        names = ("causal", "window_size", "softcap", "top_left")
        found = {name: x for name in names if (x := getattr(self, name))}
        if self.alibi_slopes:
            found["alibi_slopes"] = np.array(self.alibi_slopes, np.float32)
        if self.sinks:
            found["sinks"] = np.array(self.sinks, np.float32)
        if self.bias:
            batch = () if self.lengths else (self.batch,)
            shape = (*batch, self.nhead_q, self.seqlen, self.longest[1])
            found["bias"] = self._normal(np.random.default_rng((self.seed, 2)), shape)
        return found

    def starts(self, lengths: tuple[int, ...] = ()) -> npt.NDArray[np.int32]:
        """Return where each packed sequence, of queries by default, begins, and the end of the last."""
        return np.cumsum((0, *(lengths or self.lengths)), dtype=np.int32)

    def sequences(self) -> Iterator[tuple[slice, slice, slice]]:
        """Yield each sequence's place in the batch, its rows of queries and its rows of keys."""
        if not self.lengths:
            for b in range(self.batch):
                yield slice(b, b + 1), slice(0, self.seqlen), slice(0, self.k_shape[1])
            return
        ends = (pairwise(self.starts(lengths)) for lengths in (self.lengths, self.lengths_k))
        for rows, keys in zip(*ends, strict=True):
            yield slice(0, 1), slice(*rows), slice(*keys)

    def flops(self, direction: str = "forward") -> float:
        """Return the operations as the field counts them: half with a causal mask."""
        lengths = zip(self.lengths, self.lengths_k or self.lengths, strict=True)
        pairs = sum(m * n for m, n in lengths) or self.batch * self.seqlen * self.k_shape[1]
        found = operations(pairs, self.nhead_q, self.hdim, self.v_shape[3], backward=direction == "backward")
        return found * (0.5 if self.causal else 1)

    def as_json(self) -> dict[str, Any]:
        """Return it for a JSON object, without the features that are not asked for."""
        return {name: x for name, x in vars(self).items() if x or name in ("causal", "seed")}

    def extents(self) -> dict[str, Any]:
        """Return its type, and lengths and head dims of both sides, for a JSON object."""
        (_, seqlen_q, _, hdim_q), (_, seqlen_k, _, hdim_v) = self.q_shape, self.v_shape
        sizes = {"seqlen_q": seqlen_q, "seqlen_k": seqlen_k, "hdim_q": hdim_q, "hdim_v": hdim_v}
        return {"dtype": self.dtype} | sizes

    def __str__(self) -> str:
        mask = "causal" if self.causal else "no mask"
        keys = f"x{self.seqlen_k}" if self.seqlen_k else ""
        return f"b{self.batch} {self.nhead_q}/{self.nhead_k} s{self.seqlen}{keys} d{self.hdim} {mask}"
