# SPDX-License-Identifier: MIT OR Apache-2.0
"""Decoding over a paged cache, and its result of a head in float64: what `bench decode` measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pyfa_rocm import fmha
from pyfa_rocm._call.cache import Cache, CacheTensor
from pyfa_rocm._call.decode import DecodeParams
from pyfa_rocm._call.params import Strided
from pyfa_rocm._runtime import hip
from pyfa_rocm.array import DeviceArray, dtype_of
from pyfa_rocm.oracle.params import forward_params
from pyfa_rocm.oracle.problem import Problem

__all__ = ["DecodeTrial", "Decoding"]

# Tokens that are drawn; a larger pool repeats them, as drawing gigabytes would take minutes.
_DRAWN = 1 << 14


@dataclass(frozen=True)
class DecodeTrial(Problem):
    """A problem of one query of each sequence, its keys being in pages."""

    page_size: int = 16
    num_splits: int = 0

    @classmethod
    def of(
        cls, batch: int, context: int, group: int, nhead_k: int, hdim: int, page_size: int, dtype: str,
        num_splits: int = 0,
    ) -> DecodeTrial:  # fmt: skip
        """Describe it by the sizes of its cache; `group` query heads share a key head."""
        sizes = (batch, nhead_k * group, nhead_k, 1, hdim, False, dtype)
        return cls(*sizes, seqlen_k=context, page_size=page_size, num_splits=num_splits)

    @property
    def group(self) -> int:
        """Query heads that share a key head."""
        return self.nhead_q // self.nhead_k

    @property
    def kv_bytes(self) -> int:
        """Bytes of the keys and values in use, in 16 bits."""
        return 2 * 2 * self.batch * self.seqlen_k * self.nhead_k * self.hdim

    @property
    def least_bytes(self) -> int:
        """These and those of q and o: what must be read or written."""
        return self.kv_bytes + 2 * 2 * self.batch * self.nhead_q * self.hdim

    def as_json(self) -> dict[str, Any]:
        """See Problem."""
        return super().as_json() | {
            "context": self.seqlen_k,
            "group": self.group,
            "num_splits": self.num_splits,
        }


class Decoding:
    """A problem's arrays on the device: pages of one pool, dealt out in a random order."""

    def __init__(self, trial: DecodeTrial) -> None:
        self.trial = trial
        rng = np.random.default_rng(trial.seed)
        self._each = -(-trial.seqlen_k // trial.page_size)
        pages = trial.batch * self._each
        self._table = rng.permutation(pages).astype(np.int32).reshape(trial.batch, self._each)
        shape = (min(_DRAWN, pages * trial.page_size), trial.nhead_k, trial.hdim)
        dtype = dtype_of(trial.dtype)
        self._k, self._v = (rng.standard_normal(shape, np.float32).astype(dtype) for _ in range(2))
        self._q = rng.standard_normal(trial.q_shape, np.float32).astype(dtype)
        self._held = [
            DeviceArray.from_numpy(x)
            for x in (self._q, self._table, np.full(trial.batch, trial.seqlen_k, np.int32))
        ]
        self._held += [self._pool(x, pages) for x in (self._k, self._v)]
        self._o = DeviceArray.empty(self._q.shape, dtype)
        self.params = self._params(pages)
        self._workspace: DeviceArray | None = None
        self.make_room()

    def _pool(self, tokens: npt.NDArray[np.generic], pages: int) -> DeviceArray:
        """Put tokens on the device, again and again until all pages have some."""
        trial = self.trial
        pool = DeviceArray.empty((pages * trial.page_size, *tokens.shape[1:]), tokens.dtype)
        kind = hip.module().hipMemcpyKind.hipMemcpyHostToDevice
        for at in range(0, pool.nbytes, tokens.nbytes):
            nbytes = min(tokens.nbytes, pool.nbytes - at)
            hip.call("hipMemcpy", pool.data + at, tokens.ctypes.data, nbytes, kind)
        return pool

    def _params(self, pages: int) -> DecodeParams:
        trial = self.trial
        q, table, lengths, *pools = self._held
        row = trial.nhead_k * trial.hdim
        k, v = (CacheTensor(x.data, trial.page_size * row, row, trial.hdim) for x in pools)
        fwd = forward_params(trial, q=q, out=self._o, seqused_k=lengths)
        fwd.k = fwd.v = Strided(0, 0, 0, 0)
        cache = Cache(
            trial.dtype, pages, trial.page_size, k=k, v=v, block_table=table.data,
            stride_block_table=self._each, max_pages=self._each,
        )  # fmt: skip
        return DecodeParams(fwd, cache, num_splits=trial.num_splits)

    def make_room(self) -> None:
        """Allocate the workspace of the kernel that `params` asks for."""
        nbytes = fmha.fmha_decode_workspace_bytes(self.params)
        self._workspace = DeviceArray.empty((nbytes,), np.uint8) if nbytes else None
        self.params.workspace = 0 if self._workspace is None else self._workspace.data
        self.params.workspace_bytes = nbytes

    @property
    def splits(self) -> int:
        """Return the parts into which the keys are divided."""
        info = fmha.fmha_decode_kernel(self.params)
        return info.grid[0] // -(-self.trial.group // info.tile_m)

    @property
    def split_bytes(self) -> int:
        """Bytes of the parts' float32 O and LSE, each written once and read once by the merge."""
        trial = self.trial
        rows = trial.batch * trial.nhead_q
        return 2 * 4 * self.splits * rows * (trial.hdim + 1) if self.splits > 1 else 0

    def run(self) -> None:
        """Enqueue it."""
        fmha.fmha_decode(self.params)

    def first_head_distance(self) -> float:
        """Return how far O of the first sequence's first head is from float64, at most."""
        trial = self.trial
        at = np.arange(trial.seqlen_k)
        token = (
            self._table[0, at // trial.page_size].astype(np.int64) * trial.page_size + at % trial.page_size
        )
        k, v = (x[token % len(x), 0].astype(np.float64) for x in (self._k, self._v))
        scores = k @ self._q[0, 0, 0].astype(np.float64) * trial.hdim**-0.5
        p = np.exp(scores - scores.max())
        got = self._o.to_numpy()[0, 0, 0].astype(np.float64)
        return float(np.abs(got - p @ v / p.sum()).max())
