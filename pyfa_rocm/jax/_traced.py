# SPDX-License-Identifier: MIT OR Apache-2.0
"""A call as JAX traces it, and the attributes of the custom call that it becomes.

A mapped call is one launch of the kernel, or as few as its layout allows, without a copy. JAX hands over
contiguous arrays, with the axes that ``vmap`` maps anywhere but last. Each such axis is a dimension with a
stride in every array, 0 if the array is not mapped; so is the call's own batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from pyfa_rocm._call.backward import BwdParams, bwd_to_c
from pyfa_rocm._call.c_struct import fill, new
from pyfa_rocm._call.optional import ADDRESS_FIELDS
from pyfa_rocm._call.params import Bias, FwdParams, Lse, Strided
from pyfa_rocm._runtime import library
from pyfa_rocm.array import dtype_of
from pyfa_rocm.errors import FmhaError
from pyfa_rocm.fmha import fmha_bwd_workspace_bytes, fmha_fwd_workspace_bytes
from pyfa_rocm.jax._library import BACKWARD, FORWARD

__all__ = [
    "WORKSPACE_ALIGN",
    "Axes",
    "Batching",
    "Buffer",
    "CustomCall",
    "Dim",
    "Result",
    "TracedCall",
    "buffers_of",
    "custom_call",
    "fwd_words",
    "names_of",
    "repeat_attributes",
    "words",
    "workspace_bytes",
]

# Where the axes are in an operand that vmap maps, outermost first; None: it is not mapped there.
Axes = tuple["int | None", ...]
Shape = tuple[int, ...]
Strides = tuple[int, ...]

# The operand of each gradient. That of the bias is computed if it is asked for.
_GRADIENTS = {"dq": "q", "dk": "k", "dv": "v"}
_BACKWARD = ("dout", *_GRADIENTS, "dbias")
# Operands that hold neither elements nor biases: a few numbers, that are not the batch's own.
_NUMBERS = frozenset(ADDRESS_FIELDS) - {"bias"}


class Result(NamedTuple):
    """A result of a custom call."""

    name: str
    shape: Shape
    dtype: str


def names_of(results: Sequence[Result]) -> tuple[str, ...]:
    """Return the names of results."""
    return tuple(result.name for result in results)


def words(c: Any) -> npt.NDArray[np.int64]:
    """Return the bytes of a C struct."""
    ffi, _ = library.load()
    return np.frombuffer(bytes(ffi.buffer(c)), np.int64)


def fwd_words(params: FwdParams) -> npt.NDArray[np.int64]:
    """Return the bytes of parameters as a C struct."""
    _, view = new()
    fill(view, params)
    return np.frombuffer(bytes(view), np.int64)


class TracedCall(NamedTuple):
    """An unmapped call of either pass, hashable.

    Attributes
    ----------
    names : tuple of str
        The operands, by their names of the public functions. One that is named like a result is the memory
        that becomes that of the result.
    fields : tuple of (str, value)
        The numbers among FwdParams's fields, and of the results' and operands' types.
    results : tuple of Result
        "o", and "lse" if it is wanted; or the gradients.
    deterministic : bool
        Whether dQ is to have the same bits from run to run.
    """

    names: tuple[str, ...]
    fields: tuple[tuple[str, Any], ...]
    results: tuple[Result, ...]
    deterministic: bool = False

    @property
    def target(self) -> str:
        """Name of the custom call."""
        return BACKWARD if self.is_backward else FORWARD

    def custom_call(
        self, sizes: Shape, axes: Sequence[Axes], operands: Sequence[tuple[Shape, int]]
    ) -> CustomCall:
        """Return what the custom call is told, as `custom_call`."""
        return custom_call(self, sizes, axes, operands)

    @property
    def is_backward(self) -> bool:
        """Tell whether it gives gradients."""
        return "dout" in self.names

    @property
    def packed(self) -> bool:
        """Tell whether sequences are packed: arrays then have no dimension of batches."""
        return "cu_seqlens_q" in self.names

    def with_lse(self) -> TracedCall:
        """Return a forward call with the log-sum-exp, which the backward pass needs."""
        *batch, rows, nhead, _ = self.results[0].shape
        shape = (nhead, rows) if self.packed else (*batch, nhead, rows)
        return self._replace(results=(self.results[0], Result("lse", shape, "float32")))

    def backward(self, shapes: Mapping[str, Shape], *, dbias: bool) -> TracedCall:
        """Return the call that gives a forward call's gradients, for operands of these shapes.

        Its operands are dout, those of the forward call, and what that gave: o and lse.
        """
        dtype, wanted = dict(self.fields)["dtype"], _GRADIENTS | ({"dbias": "bias"} if dbias else {})
        gradients = tuple(Result(name, shapes[of], dtype) for name, of in wanted.items())
        return self._replace(names=("dout", *self.names, "o", "lse"), results=gradients)


class Buffer(NamedTuple):
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
        if self.name not in _NUMBERS:
            return self.repeated[0]
        return self.strides[0] if self.name == "alibi_slopes" and len(self.shape) == 2 else 0


def _buffer(name: str, shape: Shape, axes: Axes) -> Buffer:
    mapped, strides = split_strides(shape, axes)
    return Buffer(name, mapped, tuple(n for axis, n in enumerate(shape) if axis not in axes), strides)


class CustomCall(NamedTuple):
    """The attributes of a custom call, and its workspace.

    Attributes
    ----------
    attributes : dict
        As native/jax/fmha_rocm_jax.h explains them.
    workspace_bytes : int
        Above 0: the call has one more result, uint8 of that many.
    """

    attributes: dict[str, npt.NDArray[np.int64]]
    workspace_bytes: int


def custom_call(
    problem: TracedCall, sizes: Shape, axes: Sequence[Axes], operands: Sequence[tuple[Shape, int]]
) -> CustomCall:
    """Return what the custom call is told.

    Parameters
    ----------
    problem : TracedCall
        The call, without the mapped axes.
    sizes : tuple of int
        Sizes of the mapped axes, outermost first. They come first in the results, too.
    axes : sequence of Axes
        Mapped axes of each operand.
    operands : sequence of (shape, bytes of an element)
        With the mapped axes.

    Raises
    ------
    FmhaError
        If the library refuses a backward call; the message is its own.
    """
    buffers, itemsizes = buffers_of(problem.names, problem.results, sizes, axes, operands)
    batching = _batching(problem, sizes, buffers)
    structs, nbytes = _structs(problem, buffers, batching.batch)
    return CustomCall(structs | repeat_attributes(batching.repeats, itemsizes, nbytes), nbytes)


def buffers_of(
    names: Sequence[str],
    results: Sequence[Result],
    sizes: Shape,
    axes: Sequence[Axes],
    operands: Sequence[tuple[Shape, int]],
) -> tuple[list[Buffer], list[int]]:
    """Return the buffers of a custom call, operands and then results, and the bytes of their elements."""
    own: Axes = tuple(range(len(sizes)))
    buffers = [_buffer(name, shape, of) for name, (shape, _), of in zip(names, operands, axes, strict=True)]
    itemsizes = [itemsize for _, itemsize in operands]
    for name, shape, dtype in results:
        buffers.append(_buffer(name, (*sizes, *shape), own))
        itemsizes.append(dtype_of(dtype).itemsize)
    return buffers, itemsizes


def repeat_attributes(
    repeats: Sequence[Dim], itemsizes: Sequence[int], workspace_bytes: int
) -> dict[str, npt.NDArray[np.int64]]:
    """Return the attributes that say how often the problem is repeated; a workspace is the last buffer."""
    steps = [
        [stride * itemsize for stride, itemsize in zip(dim.strides, itemsizes, strict=True)]
        for dim in repeats or [Dim(1, (0,) * len(itemsizes))]
    ]
    if workspace_bytes:
        steps = [[*of_buffers, 0] for of_buffers in steps]
    return {
        "repeat_counts": np.array([dim.size for dim in repeats] or [1], np.int64),
        "repeat_steps": np.array(steps, np.int64).reshape(-1),
    }


def _structs(
    problem: TracedCall, buffers: list[Buffer], batch: Dim
) -> tuple[dict[str, npt.NDArray[np.int64]], int]:
    """Return the C structs as attributes, and the bytes of the buffer for the workspace."""
    forward, gradients = _tensors(problem, buffers, batch)
    fwd = FwdParams(**(dict(problem.fields) | {"batch": batch.size} | forward))
    if not problem.is_backward:
        return _forward_structs(problem, fwd, len(buffers))
    structs = {"params": fwd_words(fwd)}
    bwd = BwdParams(
        fwd=fwd, grad_dtype=problem.results[0].dtype, deterministic=problem.deterministic, **gradients
    )
    nbytes = workspace_bytes(bwd)
    if nbytes:
        nbytes += WORKSPACE_ALIGN
        bwd = replace(bwd, workspace=len(buffers) + 1)
    ffi, _ = library.load()
    c, _fwd = bwd_to_c(bwd)
    c.fwd = ffi.NULL
    structs["bwd_params"] = words(c)
    return structs, nbytes


def _forward_structs(
    problem: TracedCall, fwd: FwdParams, buffers: int
) -> tuple[dict[str, npt.NDArray[np.int64]], int]:
    """Return what `_structs` does, for a forward pass."""
    # The lengths of packed sequences are not known: no keys are shared.
    nbytes = 0 if problem.packed else _fwd_workspace_bytes(fwd)
    if nbytes:
        nbytes += WORKSPACE_ALIGN
        fwd = replace(fwd, workspace=buffers + 1)
    return {"params": fwd_words(fwd)}, nbytes


# The library's alignment; XLA aligns to less, so the buffer is larger by as much.
WORKSPACE_ALIGN = 256
# An address beyond whatever may be at the others of a question: what is written must not overlap them.
_FAR = 1 << 46


def _askable(fwd: FwdParams) -> FwdParams:
    """Return parameters that have numbers of buffers in place of addresses as a question to the library.

    An array that is there needs an address, aligned as the library asks.
    """
    fields = [field for name, field in ADDRESS_FIELDS.items() if name in _NUMBERS]
    other = {field: getattr(fwd, field) * WORKSPACE_ALIGN for field in fields}
    if fwd.bias is not None:
        other["bias"] = fwd.bias._replace(data=fwd.bias.data * WORKSPACE_ALIGN)
    tensors = {name: getattr(fwd, name)._replace(data=0) for name in ("q", "k", "v", "o")}
    _, lib = library.load()
    return replace(fwd, **tensors, **other, flags=int(lib.FMHA_NO_MEMORY_CHECK))


def _fwd_workspace_bytes(fwd: FwdParams) -> int:
    """Return the workspace that a forward call is faster with, 0 if it is refused or there is no device.

    The call itself says why.
    """
    jax.default_backend()  # has JAX open its HIP runtime first
    lse = fwd.lse and fwd.lse._replace(data=_FAR)
    try:
        return fmha_fwd_workspace_bytes(replace(_askable(fwd), lse=lse))
    except FmhaError:
        return 0


def workspace_bytes(bwd: BwdParams) -> int:
    """Return the workspace of a backward call that has numbers of buffers in place of addresses.

    The device is asked, so a HIP runtime is chosen: JAX's own, if it has opened one.

    Raises
    ------
    FmhaError
        The library refuses the call, or has no device.
    """
    jax.default_backend()  # has JAX open its HIP runtime first
    fwd = _askable(bwd.fwd)
    lse = fwd.lse and fwd.lse._replace(data=0)
    gradients = {name: getattr(bwd, name)._replace(data=0) for name in ("dout", *_GRADIENTS)}
    if bwd.dbias is not None:
        gradients["dbias"] = bwd.dbias._replace(data=_FAR)
    asked = replace(bwd, fwd=replace(fwd, lse=lse), **gradients, flags=fwd.flags)
    return fmha_bwd_workspace_bytes(asked)


def _batching(problem: TracedCall, sizes: Shape, buffers: list[Buffer]) -> Batching:
    """Fold where that changes nothing.

    Packed sequences are not folded; nor is dropout, whose numbers depend on the batch's index; nor are mapped
    sinks, which a batch shares; nor is a gradient that is summed over the batch, which must not be repeated.
    """
    fields = dict(problem.fields)
    mapped = [Dim(size, tuple(buffer.mapped[i] for buffer in buffers)) for i, size in enumerate(sizes)]
    own = Dim(fields["batch"], tuple(0 if problem.packed else buffer.batch_stride for buffer in buffers))
    summed = any(buffer.name == "dbias" and buffer.batch_stride == 0 for buffer in buffers)
    own_sinks = any(buffer.name == "sinks" and any(buffer.mapped) for buffer in buffers)
    if problem.packed or fields["p_drop"] > 0 or own_sinks or (summed and own.size > 1):
        return Batching(own, mapped)
    return fold([*mapped, own], len(buffers))


def _tensors(problem: TracedCall, buffers: list[Buffer], batch: Dim) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the fields of FwdParams and of BwdParams with the numbers of buffers in place of addresses.

    A result and the operand that becomes its memory have the result's number, which comes later.
    """
    forward: dict[str, Any] = {}
    gradients: dict[str, Any] = {}
    for number, (buffer, stride) in enumerate(zip(buffers, batch.strides, strict=True), 1):
        inner = buffer.repeated if problem.packed else buffer.repeated[1:]
        if buffer.name in _NUMBERS:
            forward[ADDRESS_FIELDS[buffer.name]] = number
        elif buffer.name == "lse":
            forward["lse"] = Lse(number, stride, *inner)
        else:
            to = gradients if buffer.name in _BACKWARD else forward
            kind = Bias if buffer.name in ("bias", "dbias") else Strided
            to[buffer.name] = kind(number, stride, *inner)
        if buffer.name == "alibi_slopes":
            forward["alibi_stride_batch"] = stride
    return forward, gradients


# The limit of some of the C library's kernels.
_MOST_BATCHES = 65535


class Dim(NamedTuple):
    """A dimension of repetition: its size, and its stride in each buffer of the call."""

    size: int
    strides: Strides


class Batching(NamedTuple):
    """The dimensions as a kernel takes them: its batch, and those repeated around it, outermost first."""

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

    Neighbours are one dimension if in every buffer the outer stride is the inner one times its size. The
    largest of the rest is the batch: it may have any strides.

    Parameters
    ----------
    dims : sequence of Dim
        Outermost first.
    buffers : int
        Number of strides that each has.

    Returns
    -------
    Batching
        It has as many elements as `dims`.
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
