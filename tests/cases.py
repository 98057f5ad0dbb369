# SPDX-License-Identifier: MIT OR Apache-2.0
"""One description of a forward problem, a way to draw random ones, and a way to run and judge one.

Every tensor lives inside a larger buffer filled with 0xFF bytes: NaN as an input, so that a kernel that reads
beyond its tensors gives NaN, and a canary around the outputs, which must stay as it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from reference import BIAS_SLACK, LSE_TOLERANCE, O_SLACK, Expected, attention
from strict import only_initialized, read_only

import pyfa_rocm
from pyfa_rocm import DeviceArray, FwdParams, Lse, Strided
from pyfa_rocm.device import describe

Array = npt.NDArray[Any]
DTYPES = {"float16": np.dtype(np.float16), "bfloat16": pyfa_rocm.bfloat16}
UNLIMITED = 2**31 - 1
# Workgroup-by-key tiles (128 x 128, hdim 128) of a random case at most: some 50 ms on the software device.
MAX_TILES = 48
# From so many rows on averages over them mean something.
MANY_ROWS = 256


@dataclass(frozen=True)
class Layout:
    """How a (batch, seqlen, nhead, hdim) tensor lies in its buffer.

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
class Case:
    """A forward problem. `window` is flash-attention's window_size; `seed` makes the data."""

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

    @property
    def nhead_q(self) -> int:
        return self.nhead_k * self.ratio

    @property
    def q_shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.seqlen_q, self.nhead_q, self.hdim

    @property
    def k_shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.seqlen_k, self.nhead_k, self.hdim

    def inputs(self) -> list[Array]:
        """q, k, v from a normal distribution."""
        rng = np.random.default_rng(self.seed)
        shapes = (self.q_shape, self.k_shape, self.k_shape)
        return [rng.standard_normal(shape, np.float32).astype(DTYPES[self.dtype]) for shape in shapes]

    def mask_fields(self) -> dict[str, Any]:
        """Mask and window as the raw layer takes them."""
        left, right = self.window
        if self.top_left:
            return {"mask": "causal_top_left"}
        if self.causal:
            right = 0
        if left < 0 and right < 0:
            return {"mask": "none"}
        if left < 0 and self.causal:
            return {"mask": "causal"}
        sides = {"window_left": left, "window_right": right}
        return {"mask": "window", **{name: UNLIMITED if n < 0 else n for name, n in sides.items()}}


def canary(size: int, dtype: npt.DTypeLike) -> Array:
    """A 1-d array of 0xFF bytes: NaN in every floating-point type."""
    return np.full(size * np.dtype(dtype).itemsize, 0xFF, np.uint8).view(dtype)


def bits(array: Array) -> Array:
    """The same bytes, which compare equal where NaNs would not."""
    return np.ascontiguousarray(array).view(np.uint8)


@dataclass
class Placed:
    """A tensor inside its canary-filled buffer, on both sides."""

    layout: Layout
    shape: tuple[int, ...]
    host: Array
    buffer: DeviceArray

    @classmethod
    def put(cls, layout: Layout, shape: tuple[int, ...], dtype: npt.DTypeLike, data: Array | None) -> Placed:
        host = canary(layout.size(shape), dtype)
        if data is not None:
            layout.view(host, shape)[...] = data
        return cls(layout, shape, host, DeviceArray.from_numpy(host))

    @property
    def array(self) -> DeviceArray:
        view = self.layout.view(self.buffer, self.shape)
        assert isinstance(view, DeviceArray)
        return view

    def strided(self) -> Strided:
        return Strided(self.array.data, *self.array.strides[:3])

    def watch(self, holds_input: bool) -> None:
        """Have the software device report a kernel that reads of the buffer what is not input."""
        written = np.zeros(self.host.size, np.bool_)
        self.layout.view(written, self.shape)[...] = holds_input
        only_initialized(self.buffer.data, self.host.nbytes, np.repeat(written, self.host.itemsize))

    def unchanged(self) -> bool:
        return bool(np.array_equal(bits(self.buffer.to_numpy()), bits(self.host)))

    def take(self) -> Array:
        """What was written to the tensor, after checking that nothing else was."""
        now = self.buffer.to_numpy()
        result = np.array(self.layout.view(now, self.shape))
        self.layout.view(now, self.shape)[...] = self.layout.view(self.host, self.shape)
        assert np.array_equal(bits(now), bits(self.host)), "bytes outside the output were written"
        return result


class Placement:
    """All tensors of a case on the device."""

    def __init__(self, case: Case, inputs: list[Array] | None = None) -> None:
        self.case = case
        self.inputs = case.inputs() if inputs is None else inputs
        dtype = DTYPES[case.dtype]
        shapes = (case.q_shape, case.k_shape, case.k_shape)
        self.q, self.k, self.v = (
            Placed.put(layout, shape, dtype, data)
            for layout, shape, data in zip(case.layouts[:3], shapes, self.inputs, strict=True)
        )
        self.o = Placed.put(case.layouts[3], case.q_shape, dtype, None)
        # The LSE has no fourth dimension; its gaps are those of O's batch and head.
        gaps = (case.layouts[3].gaps[0], case.layouts[3].gaps[2], 0, 0)
        self.lse = Placed.put(
            Layout((0, 1, 2), gaps), (case.batch, case.nhead_q, case.seqlen_q, 1), "float32", None
        )

    def params(self) -> FwdParams:
        case, lse = self.case, self.lse.array
        return FwdParams(
            dtype=case.dtype, batch=case.batch, seqlen_q=case.seqlen_q, seqlen_k=case.seqlen_k,
            nhead_q=case.nhead_q, nhead_k=case.nhead_k, hdim_q=case.hdim, hdim_v=case.hdim,
            softmax_scale=case.hdim**-0.5 if case.scale is None else case.scale,
            q=self.q.strided(), k=self.k.strided(), v=self.v.strided(), o=self.o.strided(),
            lse=Lse(lse.data, *lse.strides[:2]) if case.lse else None, **case.mask_fields(),
        )  # fmt: skip

    @contextmanager
    def watched(self) -> Iterator[None]:
        """On the software device, kernels launched inside may read the inputs alone and not write them."""
        for placed in (self.q, self.k, self.v):
            placed.watch(holds_input=True)
        for placed in (self.o, self.lse):
            placed.watch(holds_input=False)
        with read_only((placed.buffer.data, placed.host.nbytes) for placed in (self.q, self.k, self.v)):
            yield

    def unchanged(self) -> bool:
        """Whether the device's memory is what was put there, outputs included."""
        return all(placed.unchanged() for placed in (self.q, self.k, self.v, self.o, self.lse))

    def results(self) -> tuple[Array, Array | None]:
        """O and LSE, after checking that inputs and surroundings are as they were."""
        assert all(placed.unchanged() for placed in (self.q, self.k, self.v)), "an input was written"
        o, lse = self.o.take(), self.lse.take()[..., 0]
        if self.case.lse:
            return o, lse
        assert self.lse.unchanged(), "the LSE was written though it was not asked for"
        return o, None


def _multiplied(x: Array) -> Array:
    """What the device's matrix instructions make of an input: gfx90a's take denormals of f16 for 0.

    Source: MIOpen's documentation, "MI200 MFMA behavior specifics".
    """
    if x.dtype != np.float16 or describe(pyfa_rocm.current_device()).arch != "gfx90a":
        return x
    return np.where(np.abs(x) < np.finfo(np.float16).tiny, np.float16(0), x)


def expected(case: Case, inputs: list[Array]) -> Expected:
    """The oracle's answer to a case."""
    inputs = [_multiplied(x) for x in inputs]
    window = (-1, 0) if case.top_left else case.window
    return attention(
        *inputs, softmax_scale=case.scale, causal=case.causal, window_size=window, top_left=case.top_left
    )


def judge(want: Expected, o: Array, lse: Array | None) -> None:
    """Assert that a kernel's results are within tolerance, and rows without keys exact."""
    signed = o.astype(np.float64) - want.o
    error = np.abs(signed)
    worst = np.unravel_index(np.argmax(error / want.o_tolerance), error.shape) if error.size else ()
    assert (error <= want.o_tolerance).all(), (
        f"O{[int(i) for i in worst]} = {o[worst]}, expected {want.o[worst]} +- {want.o_tolerance[worst]}; "
        f"{(~(error <= want.o_tolerance)).sum()} of {error.size} elements are off"
    )
    empty = np.isneginf(want.lse).transpose(0, 2, 1)
    assert (o[empty].astype(np.float64) == 0).all(), "a row that sees no key is not 0"
    if (~empty).sum() >= MANY_ROWS:
        _judge_statistics(
            (signed - want.o_bias)[~empty], want.o[~empty], want.o_variance[~empty], BIAS_SLACK[o.dtype.name]
        )
    if lse is not None:
        with np.errstate(invalid="ignore"):  # -inf - -inf
            difference = np.where(lse == want.lse, 0.0, np.abs(lse - want.lse))
        assert (difference <= LSE_TOLERANCE).all(), f"LSE is off by {difference.max():.3g}"


def _judge_statistics(error: Array, o: Array, variance: Array, bias_slack: float) -> None:
    """Assert that errors are as small as rounding makes them on average, and have no more bias to or from 0.

    All are (rows, hdim); `error` is what is left when the expected bias is taken off. Errors of different
    rows are independent; within a row they share the errors of P, so that the variance of its sum of
    error * o is bounded by Cauchy and Schwarz alone.
    """
    rms, limit = (float(np.sqrt(x.mean())) for x in (error**2, variance))
    assert rms <= O_SLACK * limit, f"O is off by {rms:.3g} (RMS), expected {limit:.3g}"
    drift = (error * o).sum()
    deviation = np.sqrt(((o**2).sum(1) * variance.sum(1)).sum())
    allowed = 5 * deviation + bias_slack * (o**2).sum()
    assert abs(drift) <= allowed, f"O has a bias of {drift / (o**2).sum():.2g} of itself"


def run_raw(case: Case, stream: int = 0) -> None:
    """Run a case through fmha_fwd and judge it."""
    placement = Placement(case)
    with placement.watched():
        pyfa_rocm.fmha_fwd(placement.params(), stream)
    judge(expected(case, placement.inputs), *placement.results())


def run_flash(case: Case) -> None:
    """Run a case through flash_attn_func and judge it. Its LSE is an array of its own."""
    placement = Placement(replace(case, lse=False))
    with placement.watched():
        result = pyfa_rocm.flash_attn_func(
            placement.q.array, placement.k.array, placement.v.array, softmax_scale=case.scale,
            causal=case.causal, window_size=case.window, return_lse=case.lse, out=placement.o.array,
        )  # fmt: skip
    o, _ = placement.results()
    judge(expected(case, placement.inputs), o, result[1].to_numpy() if case.lse else None)


_EDGES = (
    1,
    2,
    15,
    16,
    17,
    31,
    32,
    33,
    63,
    64,
    65,
    127,
    128,
    129,
    191,
    192,
    255,
    256,
    257,
    384,
    512,
    599,
    600,
)
seqlens = st.integers(1, 600) | st.sampled_from(_EDGES)
layouts = st.builds(
    Layout,
    order=st.permutations((0, 1, 2)).map(tuple),
    gaps=st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 2), st.sampled_from((0, 8, 64))),
    start=st.sampled_from((8, 64, 200)),
)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Random cases, of a bounded number of tiles."""
    seqlen_q, seqlen_k = draw(seqlens), draw(seqlens)
    hdim = draw(st.sampled_from((64, 128)))
    budget = MAX_TILES // (math.ceil(seqlen_q / 128) * math.ceil(seqlen_k / 128))
    ratio = draw(st.integers(1, min(8, budget)))
    batch = draw(st.integers(1, min(3, budget // ratio)))
    nhead_k = draw(st.integers(1, min(3, budget // ratio // batch)))
    side = st.just(-1) | st.integers(0, 80) | st.integers(0, 650)
    kind = draw(st.sampled_from(("none", "causal", "top_left", "window", "causal_window")))
    return Case(
        batch=batch,
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        nhead_k=nhead_k,
        ratio=ratio,
        hdim=hdim,
        dtype=draw(st.sampled_from(("float16", "bfloat16"))),
        causal=kind in ("causal", "causal_window"),
        window=draw(st.tuples(side, side)) if "window" in kind else (-1, -1),
        top_left=kind == "top_left",
        lse=draw(st.booleans()),
        scale=draw(st.none() | st.sampled_from((0.02, 0.125, 0.3))),
        layouts=draw(st.tuples(layouts, layouts, layouts, layouts)),
        seed=draw(st.integers(0, 2**32 - 1)),
    )
