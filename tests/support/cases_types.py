# SPDX-License-Identifier: MIT OR Apache-2.0
"""One description of a forward problem. The same one serves the raw functions and flash-attention's."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from pyfa_rocm._call import params
from pyfa_rocm.array import dtype_of

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
DTYPES: dict[str, np.dtype[Any]] = {name: dtype_of(name) for name in params.DTYPES}
UNLIMITED = 2**63 - 1


@dataclass(frozen=True)
class Layout:
    """How a 4-d tensor lies in its buffer, for q, k, v, o (batch, seqlen, nhead, hdim).

    `order` lists the first three dimensions from the slowest to the fastest; `gaps` is what the buffer has
    more than the tensor in each of the four; `start` elements lie before it.
    """

    order: tuple[int, ...] = (0, 1, 2)
    gaps: tuple[int, ...] = (0, 0, 0, 0)
    start: int = 64

    def view(self, buffer: Any, shape: tuple[int, ...]) -> Any:
        """View of a 1-d array (NumPy's or ours) that holds `size(shape)` elements."""
        full = self._full(shape)
        block = buffer[self.start : self.start + math.prod(full)].reshape(*full)
        block = block.transpose(*(self.order.index(dim) for dim in range(3)), 3)
        return block[tuple(slice(0, n) for n in shape)]

    def size(self, shape: tuple[int, ...]) -> int:
        """Elements of the buffer, with room behind as there is in front."""
        return 2 * self.start + math.prod(self._full(shape))

    def _full(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        full = [n + gap for n, gap in zip(shape, self.gaps, strict=True)]
        return (*(full[dim] for dim in self.order), full[3])


@dataclass(frozen=True)
class Varlen:
    """Packed sequences. With `slack`, each has so many rows more than are in use: seqused is given."""

    lengths_q: tuple[int, ...]
    lengths_k: tuple[int, ...]
    slack_q: tuple[int, ...] | None = None
    slack_k: tuple[int, ...] | None = None

    @cached_property
    def cu_q(self) -> tuple[int, ...]:
        return _starts(self.lengths_q, self.slack_q)

    @cached_property
    def cu_k(self) -> tuple[int, ...]:
        return _starts(self.lengths_k, self.slack_k)


def _in_use(starts: tuple[int, ...], lengths: tuple[int, ...]) -> Bools:
    """Return which rows belong to a sequence; `starts` has their total behind the last."""
    begins = np.array(starts[:-1], np.int64)
    change = np.zeros(starts[-1] + 1, np.int64)
    np.add.at(change, begins, 1)
    np.add.at(change, begins + np.array(lengths, np.int64), -1)
    return np.asarray(change.cumsum()[:-1] > 0)


def _starts(lengths: tuple[int, ...], slack: tuple[int, ...] | None) -> tuple[int, ...]:
    slots = lengths if slack is None else [n + m for n, m in zip(lengths, slack, strict=True)]
    return tuple(accumulate(slots, initial=0))


@dataclass(frozen=True)
class Dropout:
    """Dropout: by value or from device memory, with or without the random bytes stored."""

    p: float
    seed: int = 7
    offset: int = 0
    on_device: bool = False
    randval: bool = False


@dataclass(frozen=True)
class Bias:
    """An elementwise bias: which of batch, head and row it has (else it is broadcast), and how it lies."""

    dims: tuple[bool, bool, bool] = (True, True, True)
    layout: Layout = Layout()
    infinities: bool = False


@dataclass(frozen=True)
class Case:
    """A forward problem. `window` is flash-attention's window_size; `seed` makes the data.

    With `varlen`, batch is its number of sequences, and seqlen_q and seqlen_k are the upper bounds given.
    hdim_v 0 is hdim; o_dtype "" is dtype; alibi is the number of dimensions of the slopes, all of them
    `slope` if that is not 0; sinks says whether heads have them; broadcast_kv says whether batches, and
    heads, share one K and V by strides of 0. top_left aligns ALiBi too, mask or none.
    """

    batch: int
    seqlen_q: int
    seqlen_k: int
    nhead_k: int
    ratio: int
    hdim: int
    dtype: str
    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    top_left: bool = False
    lse: bool = True
    scale: float | None = None
    layouts: tuple[Layout, ...] = (Layout(), Layout(), Layout(), Layout())
    seed: int = 0
    hdim_v: int = 0
    o_dtype: str = ""
    softcap: float = 0.0
    bias: Bias | None = None
    alibi: int = 0
    slope: float = 0.0
    varlen: Varlen | None = None
    dropout: Dropout | None = None
    descale: tuple[float, float, float] = (1.0, 1.0, 1.0)
    broadcast_kv: tuple[bool, bool] = (False, False)
    kernel: int = 0
    sinks: bool = False

    @property
    def nhead_q(self) -> int:
        return self.nhead_k * self.ratio

    @property
    def total_q(self) -> int:
        return self.varlen.cu_q[-1] if self.varlen else self.seqlen_q

    @property
    def total_k(self) -> int:
        return self.varlen.cu_k[-1] if self.varlen else self.seqlen_k

    @property
    def slots(self) -> int:
        """First dimension of the tensors: packed sequences lie one after the other in one."""
        return 1 if self.varlen else self.batch

    @property
    def out_dtype(self) -> str:
        return self.o_dtype or self.dtype

    @property
    def q_shape(self) -> tuple[int, int, int, int]:
        return self.slots, self.total_q, self.nhead_q, self.hdim

    @property
    def k_shape(self) -> tuple[int, int, int, int]:
        return self.slots, self.total_k, self.nhead_k, self.hdim

    @property
    def v_shape(self) -> tuple[int, int, int, int]:
        return *self.k_shape[:3], self.hdim_v or self.hdim

    @property
    def o_shape(self) -> tuple[int, int, int, int]:
        return *self.q_shape[:3], self.hdim_v or self.hdim

    @property
    def bias_shape(self) -> tuple[int, int, int, int]:
        assert self.bias is not None
        full = (self.slots, self.nhead_q, self.total_q)
        return *(n if has else 1 for n, has in zip(full, self.bias.dims, strict=True)), self.seqlen_k  # type: ignore[return-value]

    @property
    def slopes_shape(self) -> tuple[int, int]:
        return self.batch if self.alibi == 2 else 1, self.nhead_q

    @property
    def masked(self) -> bool:
        return self.causal or self.window != (-1, -1)

    def sequences(self) -> Iterator[tuple[int, int, slice, slice]]:
        """Yield each batch entry's index, its slot, and its rows of q and of k there."""
        if self.varlen is None:
            for b in range(self.batch):
                yield b, b, slice(0, self.seqlen_q), slice(0, self.seqlen_k)
            return
        packed = self.varlen
        rows = zip(packed.cu_q[:-1], packed.lengths_q, packed.cu_k[:-1], packed.lengths_k, strict=True)
        for b, (q, n, k, m) in enumerate(rows):
            yield b, 0, slice(q, q + n), slice(k, k + m)

    def rows_in_use(self) -> tuple[Bools, Bools]:
        """Return which rows of q and of k belong to a sequence."""
        packed = self.varlen
        if packed is None:
            return np.ones(self.total_q, np.bool_), np.ones(self.total_k, np.bool_)
        return _in_use(packed.cu_q, packed.lengths_q), _in_use(packed.cu_k, packed.lengths_k)

    def inputs(self) -> list[Array]:
        """q, k, v from a normal distribution."""
        rng = np.random.default_rng(self.seed)
        shapes = (self.q_shape, self.k_shape, self.v_shape)
        q, k, v = (rng.standard_normal(shape, np.float32).astype(DTYPES[self.dtype]) for shape in shapes)
        for x in (k, v):
            if self.broadcast_kv[0]:
                x[...] = x[:1]
            if self.broadcast_kv[1]:
                x[...] = x[:, :, :1]
        return [q, k, v]

    def bias_data(self) -> Array:
        """The bias; with infinities, every eighth key hidden, and one row of eight altogether."""
        assert self.bias is not None
        rng = np.random.default_rng((self.seed, 1))
        data = 2 * rng.standard_normal(self.bias_shape, np.float32)
        if self.bias.infinities:
            data[rng.random(data.shape) < 1 / 8] = -np.inf
            data[rng.random(data.shape[:3]) < 1 / 8] = -np.inf
        return data.astype(DTYPES[self.dtype])

    def slopes(self) -> Array:
        """ALiBi slopes (batch or 1, nhead_q)."""
        if self.slope:
            return np.full(self.slopes_shape, self.slope, np.float32)
        rng = np.random.default_rng((self.seed, 2))
        return np.exp2(-rng.uniform(0, 8, self.slopes_shape)).astype(np.float32)

    def sink_data(self) -> Array:
        """Sinks (nhead_q): most are like scores, and some far above them, far below, or none."""
        rng = np.random.default_rng((self.seed, 3))
        kinds = rng.choice([0.0, 60.0, -300.0, -np.inf], self.nhead_q, p=(0.55, 0.15, 0.15, 0.15))
        return (kinds + 3 * rng.standard_normal(self.nhead_q)).astype(np.float32)

    def mask_fields(self) -> dict[str, Any]:
        """Mask and window as the raw layer takes them."""
        return mask_fields(self.causal, self.window, self.top_left)


def mask_fields(causal: bool, window: tuple[int, int], top_left: bool = False) -> dict[str, Any]:
    """Mask and window as the raw layer takes them."""
    left, right = window
    if causal:
        right = 0
    if left < 0 and right < 0 and not top_left:
        return {"mask": "none"}
    suffix = "_top_left" if top_left else ""
    if left < 0 and causal:
        return {"mask": "causal" + suffix}
    sides = {"window_left": left, "window_right": right}
    return {"mask": "window" + suffix, **{n: UNLIMITED if x < 0 else x for n, x in sides.items()}}
