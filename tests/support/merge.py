# SPDX-License-Identifier: MIT OR Apache-2.0
"""Merges of partial outputs: how one is described, put on the device, run, and judged by float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from cases_judge import within
from cases_place import Placed
from cases_types import DTYPES, Array, Layout
from strict import forgiven, read_only

import pyfa_rocm
from pyfa_rocm import Lse, LseParts, MergeParams, Parts
from pyfa_rocm.oracle.merging import merged


@dataclass(frozen=True)
class Merge:
    """A merge. `inner`: parts lie inside of a batch. `spread`: standard deviation of the LSEs.

    `empty` is the chance of a part to have no key for a row; `layouts` are those of the parts and the result.
    """

    parts: int
    batch: int
    seqlen: int
    nhead: int
    hdim: int
    dtype: str = "float16"
    o_dtype: str = ""
    base2: bool = False
    accumulate: bool = False
    inner: bool = False
    empty: float = 0.2
    spread: float = 3.0
    layouts: tuple[Layout, Layout] = (Layout(), Layout())
    seed: int = 0

    @property
    def out_dtype(self) -> str:
        return self.o_dtype or self.dtype


class Merging:
    """A merge's tensors on the device."""

    def __init__(self, case: Merge, lses: Array | None = None) -> None:
        """Take other LSEs (parts, batch, nhead, seqlen) than the case's, if they are given."""
        self.case = case
        rng = np.random.default_rng((case.seed, case.parts, case.hdim))
        count = case.parts + case.accumulate
        shape = (case.batch, case.seqlen, case.nhead, case.hdim)
        if lses is None:
            lses = rng.normal(0, case.spread, (count, case.batch, case.nhead, case.seqlen))
            lses[rng.random(lses.shape) < case.empty] = -np.inf
        self.lses = lses.astype(np.float32)
        values = rng.standard_normal((count, *shape), np.float32)
        self.values: list[Array] = [x.astype(DTYPES[case.dtype]) for x in values]
        if case.accumulate:
            self.values[-1] = values[-1].astype(DTYPES[case.out_dtype])
        self._put(shape)

    def _put(self, shape: tuple[int, ...]) -> None:
        case, (of_parts, of_o) = self.case, self.case.layouts
        read = self.lses[: case.parts].transpose(0, 1, 3, 2)[..., None] != -np.inf
        self.o_parts = self._stacked(of_parts, np.stack(self.values[: case.parts]), read)
        gaps = (of_parts.gaps[0], of_parts.gaps[2], of_parts.gaps[1], 0)
        self.lse_parts = self._stacked(
            Layout((0, 1, 2), gaps), self.lses[: case.parts][..., None], np.bool_(True)
        )
        before: tuple[Array, Array] | tuple[None, None] = (None, None)
        if case.accumulate:
            before = (self.values[-1], self.lses[-1][..., None])
        self.o = Placed.put(of_o, shape, DTYPES[case.out_dtype], before[0])
        lse_shape = (case.batch, case.nhead, case.seqlen, 1)
        gaps = (of_o.gaps[0], of_o.gaps[2], of_o.gaps[1], 0)
        self.lse = Placed.put(Layout((0, 1, 2), gaps), lse_shape, "float32", before[1])

    def _stacked(self, layout: Layout, data: Array, used: Any) -> Placed:
        """Put a 5-d array on the device, its parts and batches being one dimension of it."""
        used = np.broadcast_to(used, data.shape)
        if self.case.inner:
            data, used = data.swapaxes(0, 1), used.swapaxes(0, 1)
        shape = (self.case.parts * self.case.batch, *data.shape[2:])
        return Placed.put(layout, shape, data.dtype, data.reshape(shape), used.reshape(shape))

    def _steps(self, stride: int) -> tuple[int, int]:
        """Strides of parts and of batches, of that of both."""
        if self.case.inner:
            return stride, stride * self.case.parts
        return stride * self.case.batch, stride

    def params(self) -> MergeParams:
        """Arguments of the raw functions."""
        case = self.case
        parts, lses, lse = self.o_parts.array, self.lse_parts.array, self.lse.array
        return MergeParams(
            dtype=case.dtype, o_dtype=case.o_dtype or None, parts=case.parts, batch=case.batch,
            seqlen=case.seqlen, nhead=case.nhead, hdim=case.hdim, base2=case.base2,
            accumulate=case.accumulate, o=self.o.strided(), lse=Lse(lse.data, *lse.strides[:2]),
            o_parts=Parts(parts.data, *self._steps(parts.strides[0]), *parts.strides[1:3]),
            lse_parts=LseParts(lses.data, *self._steps(lses.strides[0]), lses.strides[1]),
        )  # fmt: skip

    def run(self) -> tuple[Array, Array]:
        """Enqueue, wait, and return O and LSE, after checking that nothing else was written."""
        inputs, outputs = (self.o_parts, self.lse_parts), (self.o, self.lse)
        for placed in inputs:
            placed.watch(holds_input=True)
        for placed in outputs:
            placed.watch(holds_input=self.case.accumulate)
        with forgiven(), read_only((x.buffer.data, x.host.nbytes) for x in inputs):
            pyfa_rocm.fmha_merge(self.params())
            pyfa_rocm.synchronize()
        assert all(placed.unchanged() for placed in inputs)
        return self.o.take(), self.lse.take()[..., 0]

    def judge(self, got: tuple[Array, Array]) -> None:
        """Assert that O and LSE are within the bounds."""
        case = self.case
        want = merged(self.values, self.lses, case.base2, case.out_dtype)
        for name, x, (value, bound) in zip(("o", "lse"), got, want, strict=True):
            within(name, x, value, bound)


def run_merge(case: Merge) -> tuple[Array, Array]:
    """Run a case through fmha_merge, judge it, and return O and LSE."""
    merging = Merging(case)
    got = merging.run()
    merging.judge(got)
    return got
