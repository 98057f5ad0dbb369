# SPDX-License-Identifier: MIT OR Apache-2.0
"""A batched problem as one call of the kernel, or as few as its layout allows, without a copy.

JAX hands over arrays that are contiguous, with the axes that ``vmap`` maps anywhere but last. Each such axis
is a dimension with a stride in every array, 0 if the array is not mapped; so is the problem's own batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Batching", "Dim", "fold", "split_strides"]

# Of the C library.
_MOST_BATCHES = 65535

Strides = tuple[int, ...]


class Dim(NamedTuple):
    """A dimension of repetition: its size, and its stride in each buffer of the call."""

    size: int
    strides: Strides


class Batching(NamedTuple):
    """What the dimensions came to: the kernel's batch, and what is repeated around it, outermost first."""

    batch: Dim
    repeats: list[Dim]


def split_strides(shape: Sequence[int], mapped: Sequence[int | None]) -> tuple[Strides, Strides]:
    """Return the strides of a contiguous array: of the mapped axes (None: 0), and of the others in order."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    outer = tuple(0 if axis is None else strides[axis] for axis in mapped)
    return outer, tuple(stride for axis, stride in enumerate(strides) if axis not in mapped)


def fold(dims: Sequence[Dim], buffers: int) -> Batching:
    """Fold dimensions into one batch where all strides allow, and repeat along the rest.

    Neighbours are one dimension if in every buffer the outer stride is the inner one times its size. Of what
    is left, the largest is the batch: it may have any strides.

    Parameters
    ----------
    dims : sequence of Dim
        Outermost first.
    buffers : int
        How many strides each has.

    Returns
    -------
    Batching
        Of as many elements as `dims`.
    """
    folded: list[Dim] = []
    for inner in (dim for dim in reversed(dims) if dim.size != 1):
        outer, last = inner, folded[-1] if folded else None
        if (
            last is not None
            and outer.size * last.size <= _MOST_BATCHES
            and all(s == last.size * t for s, t in zip(outer.strides, last.strides, strict=True))
        ):
            folded[-1] = Dim(outer.size * last.size, last.strides)
        else:
            folded.append(outer)
    if not folded:
        return Batching(Dim(1, (0,) * buffers), [])
    candidates = [dim for dim in folded if dim.size <= _MOST_BATCHES] or folded
    batch = max(candidates, key=lambda dim: dim.size)
    at = folded.index(batch)
    return Batching(batch, [dim for i, dim in enumerate(reversed(folded)) if i != len(folded) - 1 - at])
