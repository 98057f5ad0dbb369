# SPDX-License-Identifier: MIT OR Apache-2.0
"""A call as JAX traces it, and the attributes of the custom call that it becomes.

A mapped call is one launch of the kernel, or as few as its layout allows, without a copy. JAX hands over
contiguous arrays, with the axes that ``vmap`` maps anywhere but last. Each such axis is a dimension with a
stride in every array, 0 if the array is not mapped; so is the call's own batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyfa_rocm._call.c_struct import fill, new
from pyfa_rocm._call.optional import ADDRESS_FIELDS
from pyfa_rocm._call.params import Bias, FwdParams, Lse, Strided
from pyfa_rocm.array import dtype_of

__all__ = ["RESULTS", "Axes", "TracedCall", "attributes"]

# Where the axes are in an operand that vmap maps, outermost first; None: it is not mapped there.
Axes = tuple["int | None", ...]
Shape = tuple[int, ...]
Strides = tuple[int, ...]

# Names of the results. Operands of these names are the memory that becomes that of the results.
RESULTS = ("o", "lse")


class TracedCall(NamedTuple):
    """An unmapped call, hashable.

    Attributes
    ----------
    names : tuple of str
        The operands, by their names of the public functions, and RESULTS.
    fields : tuple of (str, value)
        The numbers among FwdParams's fields.
    o_shape, o_dtype, lse_shape
        The results; lse_shape None: no LSE.
    """

    names: tuple[str, ...]
    fields: tuple[tuple[str, Any], ...]
    o_shape: Shape
    o_dtype: str
    lse_shape: Shape | None

    @property
    def packed(self) -> bool:
        """Whether sequences are packed: arrays then have no dimension of batches."""
        return "cu_seqlens_q" in self.names

    @property
    def results(self) -> list[tuple[Shape, np.dtype[Any]]]:
        """Shapes and dtypes of O, and of the LSE if it is wanted."""
        o = (self.o_shape, dtype_of(self.o_dtype))
        return [o] if self.lse_shape is None else [o, (self.lse_shape, np.dtype(np.float32))]


class _Buffer(NamedTuple):
    """A buffer of the custom call: strides of the mapped axes; sizes and strides of the others."""

    name: str
    mapped: Strides
    shape: Shape
    strides: Strides

    @property
    def repeated(self) -> Strides:
        """Strides of the array's own dimensions but the last, 0 where a size of 1 is broadcast."""
        return tuple(0 if n == 1 else s for n, s in zip(self.shape[:-1], self.strides[:-1], strict=True))

    @property
    def batch_stride(self) -> int:
        """Stride from one batch of the problem's own to the next, if it has batches."""
        if self.name in ("q", "k", "v", "bias", *RESULTS):
            return self.repeated[0]
        return self.strides[0] if self.name == "alibi_slopes" and len(self.shape) == 2 else 0


def _buffer(name: str, shape: Shape, axes: Axes) -> _Buffer:
    mapped, strides = split_strides(shape, axes)
    return _Buffer(name, mapped, tuple(n for axis, n in enumerate(shape) if axis not in axes), strides)


def attributes(
    problem: TracedCall, sizes: Shape, axes: Sequence[Axes], operands: Sequence[tuple[Shape, int]]
) -> dict[str, npt.NDArray[np.int64]]:
    """Return the attributes of the custom call, which native/jax/fmha_rocm_jax.h explains.

    Parameters
    ----------
    problem : TracedCall
        What is asked for, but for the mapped axes.
    sizes : tuple of int
        Of the mapped axes, outermost first. They come first in the results, too.
    axes : sequence of Axes
        Of each operand.
    operands : sequence of (shape, bytes of an element)
        With the mapped axes.
    """
    own: Axes = tuple(range(len(sizes)))
    shapes = [shape for shape, _ in operands]
    buffers = [_buffer(*x) for x in zip(problem.names, shapes, axes, strict=True)]
    itemsizes = [itemsize for _, itemsize in operands]
    for name, (shape, dtype) in zip(RESULTS, problem.results, strict=False):
        buffers.append(_buffer(name, (*sizes, *shape), own))
        itemsizes.append(dtype.itemsize)
    batching = _batching(problem, sizes, buffers)
    _, view = new()
    fill(view, _fwd_params(problem, buffers, batching.batch))
    steps = [
        [stride * itemsize for stride, itemsize in zip(dim.strides, itemsizes, strict=True)]
        for dim in batching.repeats or [Dim(1, (0,) * len(buffers))]
    ]
    return {
        "params": np.frombuffer(bytes(view), np.int64),
        "repeat_counts": np.array([dim.size for dim in batching.repeats] or [1], np.int64),
        "repeat_steps": np.array(steps, np.int64).reshape(-1),
    }


def _batching(problem: TracedCall, sizes: Shape, buffers: list[_Buffer]) -> Batching:
    """Packed sequences are not folded, nor is dropout, whose numbers depend on the batch's index."""
    fields = dict(problem.fields)
    mapped = [Dim(size, tuple(buffer.mapped[i] for buffer in buffers)) for i, size in enumerate(sizes)]
    own = Dim(fields["batch"], tuple(0 if problem.packed else buffer.batch_stride for buffer in buffers))
    if problem.packed or fields["p_drop"] > 0:
        return Batching(own, mapped)
    return fold([*mapped, own], len(buffers))


def _fwd_params(problem: TracedCall, buffers: list[_Buffer], batch: Dim) -> FwdParams:
    """Return the parameters, with the numbers of buffers in place of addresses; a result has its own."""
    tensors: dict[str, Any] = {}
    for number, (buffer, stride) in enumerate(zip(buffers, batch.strides, strict=True), 1):
        inner = buffer.repeated if problem.packed else buffer.repeated[1:]
        if buffer.name in ADDRESS_FIELDS and buffer.name != "bias":
            tensors[ADDRESS_FIELDS[buffer.name]] = number
        elif buffer.name == "lse":
            tensors["lse"] = Lse(number, stride, *inner)
        elif buffer.name == "bias":
            tensors["bias"] = Bias(number, stride, *inner)
        else:
            tensors[buffer.name] = Strided(number, stride, *inner)
        if buffer.name == "alibi_slopes":
            tensors["alibi_stride_batch"] = stride
    return FwdParams(**(dict(problem.fields) | {"batch": batch.size} | tensors))


# Of the C library.
_MOST_BATCHES = 65535


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
