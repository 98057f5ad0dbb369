# SPDX-License-Identifier: MIT OR Apache-2.0
"""Keys and values in the pages of a pool, whose oracle is that of the same keys and values in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pyfa_rocm._call.cache import Cache, CacheScale, CacheTensor
from pyfa_rocm.array import DeviceArray, dtype_of
from pyfa_rocm.oracle.params import put

__all__ = ["PAGE_SIZE", "Pool"]

Array = npt.NDArray[Any]
PAGE_SIZE = 16
_VECTOR_BYTES = 16


class Pool:
    """Keys and values of some sequences in pages of a pool, dealt out in a random order.

    `vectors`: the cache is a vectorised one. `latent`: values are the first dims of the keys.
    """

    def __init__(
        self, rng: np.random.Generator, lengths: Sequence[int], nhead: int, hdims: tuple[int, int],
        dtype: str, vectors: bool = False, latent: bool = False,
    ) -> None:  # fmt: skip
        self.dtype, self.vectors, self.hdims, self.nhead = dtype, vectors, hdims, nhead
        counts = [-(-length // PAGE_SIZE) for length in lengths]
        self.pages = sum(counts)
        order = rng.permutation(self.pages).astype(np.int32)
        starts = np.cumsum([0, *counts])
        self.table = np.zeros((len(lengths), max(counts)), np.int32)
        for b, count in enumerate(counts):
            self.table[b, :count] = order[starts[b] : starts[b] + count]
        self.tokens: list[Array] = [
            rng.standard_normal((self.pages, PAGE_SIZE, nhead, hdim), np.float32).astype(dtype_of(dtype))
            for hdim in hdims
        ]
        self.scaled = dtype.startswith("float8")
        shape = (2, len(lengths), nhead)
        scale = rng.uniform(0.25, 2.0, shape) if self.scaled else np.ones(shape)
        self.scale: Array = scale.astype(np.float32)
        self.held: list[DeviceArray] = [put(self._laid_out(i)) for i in range(2)]
        if latent:
            self.tokens[1] = self.tokens[0][..., : hdims[1]]
            self.held[1] = self.held[0]
        self.held += [put(self.table), put(self.scale[0]), put(self.scale[1])]

    def _laid_out(self, which: int) -> Array:
        x = self.tokens[which]
        if not self.vectors:
            return x
        pages, size, nhead, hdim = x.shape
        if which == 0:
            vector = _VECTOR_BYTES // x.itemsize
            x = x.reshape(pages, size, nhead, hdim // vector, vector)
            return np.asarray(x.transpose(0, 2, 3, 1, 4))
        return np.asarray(x.transpose(0, 2, 3, 1))  # a vector of all tokens of a page

    def cache(self) -> Cache:
        """Describe it to the library."""
        k, v, table, *scales = self.held
        at_k, at_v = (
            CacheTensor(x.data, *((x.strides[0], 0, x.strides[1]) if self.vectors else x.strides[:3]))
            for x in (k, v)
        )
        fields: dict[str, Any] = {}
        if self.scaled:
            fields = {
                name: CacheScale(x.data, self.nhead, 1)
                for name, x in zip(("k_scale", "v_scale"), scales, strict=True)
            }
        if self.vectors:
            fields |= {"k_vector": _VECTOR_BYTES // self.tokens[0].itemsize, "v_vector": PAGE_SIZE}
        return Cache(
            self.dtype, self.pages, PAGE_SIZE, k=at_k, v=at_v,
            block_table=table.data, stride_block_table=self.table.shape[1], max_pages=self.table.shape[1],
            **fields,
        )  # fmt: skip

    def sequence(self, which: int, b: int, length: int) -> Array:
        """Return keys (0) or values (1) of a sequence in float64, (1, length, nhead, hdim)."""
        x = self.tokens[which][self.table[b]].reshape(-1, self.nhead, self.hdims[which])[None, :length]
        return np.asarray(x.astype(np.float64) * self.scale[which, b].astype(np.float64)[:, None])
