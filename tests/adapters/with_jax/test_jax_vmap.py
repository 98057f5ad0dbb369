# SPDX-License-Identifier: MIT OR Apache-2.0
"""pyfa_rocm.jax under vmap: any axes of any operands, nested, each element judged against float64."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from adapters.with_jax import jax_cases  # noqa: F401  # isort: skip  # before jax
import jax
import jax.numpy as jnp
import numpy as np
import philox
import pytest
from built import candidates, this_arch
from cases import DTYPES, Bias, Case, Dropout, judge
from cases_types import Array
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import attention, numerics_of

from pyfa_rocm.jax import flash_attn_func, flash_attn_varlen_func
from pyfa_rocm.jax._traced import Batching, Dim, fold, split_strides

DTYPE = "bfloat16"


@dataclass(frozen=True)
class Level:
    """A vmap: its size, and the axis of each operand that it maps, None for none."""

    size: int
    axes: dict[str, int | None]


@dataclass(frozen=True)
class Mapped:
    """An unmapped problem's shapes and options, and the vmaps around it, innermost first."""

    shapes: dict[str, tuple[int, ...]]
    options: dict[str, Any]
    levels: tuple[Level, ...]
    seed: int

    def arrays(self) -> dict[str, Array]:
        rng = np.random.default_rng(self.seed)
        arrays = {}
        for name, shape in self.shapes.items():
            full = list(shape)
            for level in self.levels:
                if (axis := level.axes[name]) is not None:
                    full.insert(axis, level.size)
            if name == "philox":
                arrays[name] = rng.integers(0, 2**32, full, np.uint32)
            elif name == "alibi_slopes":
                arrays[name] = np.exp2(-rng.uniform(0, 8, full)).astype(np.float32)
            else:
                dtype = np.float32 if name == "sinks" else DTYPES[DTYPE]
                arrays[name] = rng.standard_normal(full, np.float32).astype(dtype)
        return arrays

    def element(self, name: str, array: Array, index: tuple[int, ...]) -> Array:
        """The operand of one element; the index is outermost first, as in the result."""
        for level, i in zip(reversed(self.levels), index, strict=True):
            if (axis := level.axes[name]) is not None:
                array = array.take(i, axis)
        return array

    def indices(self) -> Iterator[tuple[int, ...]]:
        return product(*(range(level.size) for level in reversed(self.levels)))


@st.composite
def mapped(draw: st.DrawFn) -> Mapped:
    batch, nhead_k, ratio = draw(st.integers(1, 2)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    rows, keys, nhead = draw(st.integers(1, 70)), draw(st.integers(1, 90)), nhead_k * ratio
    shapes: dict[str, tuple[int, ...]] = {
        "q": (batch, rows, nhead, 64),
        "k": (batch, keys, nhead_k, 64),
        "v": (batch, keys, nhead_k, 64),
    }
    feature = draw(st.sampled_from(("none", "none", "bias", "alibi", "sinks", "dropout")))
    options: dict[str, Any] = {"causal": draw(st.booleans())}
    if feature == "bias":
        one = st.booleans()
        shapes["bias"] = (*(n if draw(one) else 1 for n in (batch, nhead, rows)), keys)
    elif feature == "alibi":
        shapes["alibi_slopes"] = (batch, nhead) if draw(st.booleans()) else (nhead,)
    elif feature == "sinks":
        shapes["sinks"] = (nhead,)
    elif feature == "dropout":
        shapes["philox"] = (4,)
        options["dropout_p"] = 0.25
    levels: list[Level] = []
    for depth in range(draw(st.integers(1, 2))):
        axes = {n: draw(st.none() | st.integers(0, len(s) + depth - 1)) for n, s in shapes.items()}
        # A mapped axis of an array that an inner vmap does not map has one place less to be in.
        axes = {
            n: a if a is None else min(a, len(shapes[n]) + sum(x.axes[n] is not None for x in levels))
            for n, a in axes.items()
        }
        if all(axis is None for axis in axes.values()):
            axes["q"] = 0
        levels.append(Level(draw(st.integers(1, 3)), axes))
    return Mapped(shapes, options, tuple(levels), draw(st.integers(0, 2**32 - 1)))


def want(problem: Mapped, arrays: dict[str, Array], index: tuple[int, ...]) -> Any:
    """The oracle's answer to one element."""
    one: dict[str, Any] = {name: problem.element(name, array, index) for name, array in arrays.items()}
    extra: dict[str, Any] = {}
    if "philox" in one:
        seed, offset = np.ascontiguousarray(one.pop("philox")).view(np.uint64).tolist()
        (batch, rows, nhead, _), keys = problem.shapes["q"], problem.shapes["k"][1]
        chance = problem.options["dropout_p"]
        random = [philox.random_bytes(seed, offset, nhead, rows, keys, b) for b in range(batch)]
        extra = {
            "keep": np.stack(random) <= philox.keep_at_most(chance),
            "keep_scale": philox.keep_scale(chance),
        }
    numerics = numerics_of(DTYPE, DTYPE, arch=this_arch())
    return attention(**one, causal=problem.options["causal"], numerics=numerics, **extra)


def has_kernel(problem: Mapped) -> bool:
    batch, rows, nhead, hdim = problem.shapes["q"]
    _, keys, nhead_k, _ = problem.shapes["k"]
    case = Case(
        batch, rows, keys, nhead_k, nhead // nhead_k, hdim, DTYPE, causal=problem.options["causal"],
        bias=Bias() if "bias" in problem.shapes else None, alibi=1 if "alibi_slopes" in problem.shapes else 0,
        dropout=Dropout(0.25) if "philox" in problem.shapes else None, sinks="sinks" in problem.shapes,
    )  # fmt: skip
    return bool(candidates(case))


@settings(max_examples=60)
@given(problem=mapped(), compiled=st.booleans())
def test_random(problem: Mapped, compiled: bool) -> None:
    if not has_kernel(problem):
        return
    arrays = problem.arrays()
    names = list(arrays)

    def call(*xs: Any) -> Any:
        return flash_attn_func(**dict(zip(names, xs, strict=True)), return_lse=True, **problem.options)

    for level in problem.levels:
        call = jax.vmap(call, in_axes=tuple(level.axes[name] for name in names))
    o, lse = (jax.jit(call) if compiled else call)(*map(jnp.asarray, arrays.values()))
    for index in problem.indices():
        judge(want(problem, arrays, index), np.asarray(o[index]), np.asarray(lse[index]))


def inputs(*sizes: int, heads: int = 2) -> list[jax.Array]:
    rng = np.random.default_rng(1)
    return [jnp.asarray(rng.standard_normal((*sizes, heads, 64), np.float32), jnp.bfloat16) for _ in range(3)]


@pytest.mark.parametrize(
    ("in_axes", "launches"),
    [(0, 1), (1, 2), (3, 2), (4, 1), ((0, None, None), 2), ((0, None, 0), 2), ((None, 2, None), 2)],
)
def test_without_copies(in_axes: Any, launches: int) -> None:
    """Only a last axis is moved, and only what cannot be one batch takes more than one launch."""
    q, k, v = inputs(6, 2, 33)  # mapped 6, batch 2
    if isinstance(in_axes, int):
        placed = [jnp.moveaxis(x, 0, in_axes) for x in (q, k, v)]
        axes = (in_axes,) * 3
    else:
        axes = in_axes
        placed = [x[0] if a is None else jnp.moveaxis(x, 0, a) for x, a in zip((q, k, v), axes, strict=True)]
    plain: Any = partial(flash_attn_func, causal=True)
    call = jax.jit(jax.vmap(plain, in_axes=axes))
    program = call.lower(*placed).compile().as_text()
    assert ("transpose" in program or "copy" in program) == (in_axes == 4)
    assert _launches(call, placed) == launches
    o = call(*placed)
    for i in range(6):
        one = [x if a is None else x.take(i, a) for x, a in zip(placed, axes, strict=True)]
        assert np.array_equal(o[i], plain(*one))


def _launches(call: Any, arrays: list[jax.Array]) -> int:
    counts = call.lower(*arrays).as_text().partition("repeat_counts = dense<")[2].partition(">")[0]
    return int(np.prod(np.array(eval(counts))))


def test_batch_of_one_is_folded() -> None:
    """A model written for one sequence can be mapped: the mapped axis becomes the batch, wherever it is."""
    q, k, v = inputs(5, 1, 40)
    for axis, kv in product((0, 1, 2, 3), (0, None)):
        in_axes = (axis, kv, kv)
        arrays = [jnp.moveaxis(q, 0, axis), *(x if kv == 0 else x[0] for x in (k, v))]
        call = jax.jit(jax.vmap(flash_attn_func, in_axes=in_axes))
        assert _launches(call, arrays) == 1
        o = call(*arrays)
        for i in range(5):
            keys, values = (x[i] if kv == 0 else x[0] for x in (k, v))
            assert np.array_equal(o[i], flash_attn_func(q[i], keys, values))


def test_dropout_is_that_of_each_element() -> None:
    """As a loop would have it: one philox for all, or one each, by value or in memory."""
    q, k, v = inputs(3, 2, 40)
    seeds = jnp.arange(12, dtype=jnp.uint32).reshape(3, 4)
    each = jax.vmap(lambda q, k, v, x: flash_attn_func(q, k, v, 0.4, philox=x))(q, k, v, seeds)
    shared = jax.vmap(lambda q, k, v: flash_attn_func(q, k, v, 0.4, philox=(3, 4)))(q, k, v)
    for i in range(3):
        assert np.array_equal(each[i], flash_attn_func(q[i], k[i], v[i], 0.4, philox=seeds[i]))
        assert np.array_equal(shared[i], flash_attn_func(q[i], k[i], v[i], 0.4, philox=(3, 4)))


@pytest.mark.parametrize("in_axes", [(0, 0, 0, 0), (1, None, None, 0), (2, 1, 0, None), (None, None, 0, 1)])
def test_varlen(in_axes: tuple[int | None, ...]) -> None:
    """Sequences' lengths mapped or not; rows of none are 0 in each element."""
    q, k, v = (x[:, 0] for x in inputs(3, 1, 70))
    lengths = jnp.array([[0, 20, 70], [0, 0, 33], [0, 64, 65]], jnp.int32)
    placed = [
        x[0] if axis is None else jnp.moveaxis(x, 0, axis)
        for x, axis in zip((q, k, v, lengths), in_axes, strict=True)
    ]

    def call(q: Any, k: Any, v: Any, cu: Any) -> Any:
        return flash_attn_varlen_func(q, k, v, cu, cu, 70, 70, causal=True, return_lse=True)

    o, lse = jax.jit(jax.vmap(call, in_axes=in_axes))(*placed)
    for i in range(3):
        one = [x if axis is None else x.take(i, axis) for x, axis in zip(placed, in_axes, strict=True)]
        end = int(one[3][-1])
        for got, expected in zip((o[i], lse[i]), call(*one), strict=True):
            assert np.array_equal(got, expected)
        assert (o[i, end:] == 0).all()
        assert jnp.isneginf(lse[i, :, end:]).all()


def test_of_nothing() -> None:
    q, k, v = inputs(2, 1, 10)
    assert jax.vmap(flash_attn_func)(q[:0], k[:0], v[:0]).shape == (0, 1, 10, 2, 64)


@given(st.data())
def test_strides_reach_every_element_once(data: st.DataObject) -> None:
    """Folding changes how elements are counted, and not which they are."""
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    buffers = []
    for _ in range(data.draw(st.integers(1, 4))):
        order = data.draw(st.permutations(range(len(sizes))))
        held = [n for n in order if data.draw(st.booleans())]
        at = tuple(held.index(d) if d in held else None for d in range(len(sizes)))
        buffers.append(split_strides([sizes[d] for d in held] + [8], at)[0])
    dims = [Dim(n, tuple(b[i] for b in buffers)) for i, n in enumerate(sizes)]
    folded = fold(dims, len(buffers))
    assert _addresses(dims) == _addresses([folded.batch, *folded.repeats])
    assert folded.batch.size == max(dim.size for dim in (folded.batch, *folded.repeats))


def _addresses(dims: list[Dim]) -> list[tuple[int, ...]]:
    places = product(*(range(dim.size) for dim in dims))
    count = len(dims[0].strides)
    return sorted(
        tuple(sum(i * dim.strides[b] for i, dim in zip(place, dims, strict=True)) for b in range(count))
        for place in places
    )


def test_a_batch_is_at_most_what_the_library_takes() -> None:
    halves = [Dim(40000, (40000,)), Dim(40000, (1,))]
    assert fold(halves, 1) == Batching(halves[1], [halves[0]])
    assert fold([Dim(300, (200,)), Dim(200, (1,))], 1) == Batching(Dim(60000, (1,)), [])
