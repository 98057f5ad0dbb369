# SPDX-License-Identifier: MIT OR Apache-2.0
"""fmha_merge against float64: every kernel, special LSEs, layouts, and random problems."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from built import DTYPE_OF, Row, drawn, every, rows, this_arch
from cases import Layout, Placed, bits, layouts
from hypothesis import given, settings
from hypothesis import strategies as st
from merge import Merge, Merging, run_merge
from plugins import hypothesis_profile
from reference import Numerics, attention
from strict import wave_order

import pyfa_rocm
import pyfa_rocm.emulator
from pyfa_rocm import DeviceArray, InvalidArgumentError, Parts, UnsupportedError, flash_attn_merge
from pyfa_rocm._runtime import hip, library

EXAMPLES = hypothesis_profile.EXAMPLES // 8
BASE = Merge(parts=3, batch=2, seqlen=5, nhead=3, hdim=64)
TYPES = [(row["dtype"], row["o_dtype"]) for row in rows("merge") if row["arch"] == rows("merge")[0]["arch"]]


@every("merge")
@pytest.mark.parametrize("accumulate", [False, True])
def test_every_kernel(row: Row, accumulate: bool) -> None:
    case = replace(
        BASE, dtype=DTYPE_OF[row["dtype"]], o_dtype=DTYPE_OF[row["o_dtype"]], parts=6, accumulate=accumulate
    )
    assert pyfa_rocm.fmha_merge_kernel(Merging(case).params()).name == row["name"]
    run_merge(case)
    parts, batch, seqlen = (int(n) for n in drawn(row).integers(1, 20, 3))
    run_merge(replace(case, base2=True, hdim=40, parts=parts, batch=batch, seqlen=seqlen))


@pytest.mark.parametrize("hdim", [8, 24, 32, 96, 128, 256, 512, 520, 576])
@pytest.mark.parametrize("accumulate", [False, True])
def test_head_dims(hdim: int, accumulate: bool) -> None:
    run_merge(replace(BASE, hdim=hdim, dtype="float32", o_dtype="bfloat16", accumulate=accumulate))


@pytest.mark.parametrize("parts", [1, 2, 4, 5, 8, 9, 16, 33, 64, 128, 300])
def test_parts(parts: int) -> None:
    """Parts are like decode's splits: float32, most of them empty for some sequences."""
    run_merge(replace(BASE, parts=parts, dtype="float32", o_dtype="float16", hdim=128, empty=0.6))


@pytest.mark.parametrize("hdim", [8, 24, 72, 256, 576])
@pytest.mark.parametrize("parts", [16, 37, 130])
@pytest.mark.parametrize("accumulate", [False, True])
def test_groups(parts: int, hdim: int, accumulate: bool) -> None:
    """Parts dealt to groups of lanes, some of which have no column or fewer parts."""
    run_merge(replace(BASE, parts=parts, hdim=hdim, accumulate=accumulate, o_dtype="float32", base2=True))


def test_many_parts_of_few_rows_do_not_wait_for_each_other(device_kind: str) -> None:
    """A decode step of one sequence: a count, by which the kernel's own table is right."""
    if device_kind == "gpu":
        pytest.skip("a GPU counts nothing")
    merging = Merging(Merge(128, 1, 1, 8, 128, "float32", "bfloat16", empty=0.0))
    with pyfa_rocm.emulator.profile() as profile:
        pyfa_rocm.fmha_merge(merging.params())
    counted = profile.launches[0].counted
    assert counted.waves == 8
    # 128 parts in a group for each 16 lanes take two loads each, and the LSEs two for each turn of the lanes.
    lanes = library.known_archs()[this_arch()]["wave_size"]
    assert counted.instructions["vmem_load"] == 8 * (2 * 128 // (lanes // 16) + 2 * 128 // lanes)
    if lanes == 64:  # elsewhere hints to the pipeline are among them
        assert counted.instructions["sync"] < 8 * 100


@pytest.mark.parametrize("base2", [False, True])
@pytest.mark.parametrize("accumulate", [False, True])
def test_special_lses(base2: bool, accumulate: bool) -> None:
    """Parts that are empty, that weigh nothing, that outweigh all, and that are not numbers."""
    inf, nan = np.inf, np.nan
    rows = [
        [-inf, -inf, -inf],
        [-inf, -inf, 1.5],
        [2.5, -inf, -inf],
        [200.0, -200.0, -inf],
        [3e38, -3e38, 3e38],
        [-3e38, -3e38, -inf],
        [inf, 1.0, -inf],
        [inf, 3.0, inf],
        [nan, 1.0, 2.0],
    ]
    lses = np.repeat(np.array(rows, np.float32).T[:, None, None, :], 2, axis=2)
    case = replace(
        BASE, parts=3 - accumulate, accumulate=accumulate, batch=1, nhead=2, seqlen=len(rows), base2=base2
    )
    merging = Merging(case, lses)
    o, lse = merging.run()
    x = [value.astype(np.float64) for value in merging.values]
    mean = (x[0] + x[2]) / 2
    expected = [0 * x[0], x[2], x[0], x[0], mean, (x[0] + x[1]) / 2, x[0], mean]
    for i, value in enumerate(expected):
        # Halves of a sum of two numbers of float16 are rounded once.
        error = np.abs(o[0, i].astype(np.float64) - value[0, i])
        assert (error <= 2.0**-11 * np.abs(value[0, i]) + 2.0**-25).all(), rows[i]
    one = 1.0 if base2 else np.log(2.0)
    want = [-inf, 1.5, 2.5, 200.0, 3e38 + one, -3e38 + one, inf, inf]
    assert np.array_equal(lse[0, :, : len(want)], np.broadcast_to(np.array(want, np.float32), (2, len(want))))
    assert np.isnan(o[0, -1]).all()
    assert np.isnan(lse[0, :, -1]).all()


def test_parts_of_no_weight_are_not_read() -> None:
    """Not even far below the largest: NaN there would show, and the software device would find the read."""
    lses = np.full((2, 1, 3, 4), 300.0, np.float32)
    lses[1] = -300.0
    merging = Merging(replace(BASE, parts=2, batch=1, seqlen=4), lses)
    first_only = np.array([True, False])[:, None, None, None]
    values = np.stack([value[0] for value in merging.values])
    merging.o_parts = Placed.put(Layout(), values.shape, values.dtype, values, first_only)
    o, lse = merging.run()
    assert np.array_equal(bits(o), bits(merging.values[0]))
    assert (lse == 300.0).all()


@pytest.mark.parametrize(
    "change",
    [
        {"inner": True},
        {"layouts": (Layout((0, 2, 1)), Layout((1, 0, 2), (0, 3, 0, 8)))},
        {"layouts": (Layout((2, 1, 0), (0, 1, 1, 16)), Layout((2, 0, 1)))},
        {"batch": 1, "seqlen": 300, "nhead": 1},
        {"batch": 70, "seqlen": 1, "nhead": 5, "hdim": 32},
    ],
    ids=str,
)
@pytest.mark.parametrize("accumulate", [False, True])
def test_layouts(change: dict[str, Any], accumulate: bool) -> None:
    run_merge(replace(BASE, accumulate=accumulate, **change))


def test_strides_beyond_31_bits() -> None:
    """Parts 4 GiB apart. Only their rows are touched."""
    merging = Merging(replace(BASE, parts=2, batch=1, seqlen=1, nhead=1))
    far = DeviceArray.empty((2**31 + 128,), np.float16)
    for at, value in zip((0, 2**31 + 64), merging.values, strict=True):
        source = np.ascontiguousarray(value)
        kind = hip.module().hipMemcpyKind.hipMemcpyHostToDevice
        hip.call("hipMemcpy", far.data + 2 * at, source.ctypes.data, source.nbytes, kind)
    params = merging.params()
    pyfa_rocm.fmha_merge(replace(params, o_parts=Parts(far.data, 2**31 + 64, 0, 0, 0)))
    merging.judge((merging.o.take(), merging.lse.take()[..., 0]))


@pytest.mark.parametrize("change", [{"batch": 0}, {"seqlen": 0}, {"nhead": 0}], ids=str)
def test_nothing_to_merge(change: dict[str, int]) -> None:
    case = replace(BASE, **change)  # type: ignore[arg-type]
    run_merge(case)
    assert pyfa_rocm.fmha_merge_kernel(Merging(case).params()).step_count == 0


@pytest.mark.parametrize("schedule", ["reverse", "random:1"])
@settings(max_examples=EXAMPLES)
@given(
    sizes=st.tuples(*(st.integers(1, n) for n in (40, 3, 20, 5, 20))),
    types=st.sampled_from(TYPES),
    where=st.tuples(layouts, layouts),
    flags=st.tuples(*[st.booleans()] * 3),
    spread=st.sampled_from((0.0, 1.0, 30.0)),
    seed=st.integers(0, 2**20),
)
def test_random(
    schedule: str,
    sizes: tuple[int, ...],
    types: tuple[str, str],
    where: tuple[Layout, Layout],
    flags: tuple[bool, ...],
    spread: float,
    seed: int,
) -> None:
    """Any sizes, types, layouts and LSEs, with waves in any order: results in place of a part included."""
    parts, batch, seqlen, nhead, eights = sizes
    base2, accumulate, inner = flags
    dtype, o_dtype = (DTYPE_OF[name] for name in types)
    case = Merge(
        parts, batch, seqlen, nhead, 8 * eights, dtype, o_dtype, base2=base2, accumulate=accumulate,
        inner=inner, spread=spread, layouts=where, seed=seed,
    )  # fmt: skip
    with wave_order(schedule):
        run_merge(case)


def test_parts_of_attention() -> None:
    """Attention over thirds of the keys, merged, is attention over all, rows without keys included."""
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((2, n, 2, 16)) for n in (7, 9, 9))
    exact = Numerics("float32", "float32")
    want = attention(q, k, v, numerics=exact, softmax_scale=0.5, causal=True, top_left=True)
    outs, lses = [], []
    for first in (0, 3, 6):
        # Keys from `first` on: row i sees key j if first + j <= i, which is a window of the rest.
        part = attention(
            q[:, first:],
            k[:, first : first + 3],
            v[:, first : first + 3],
            numerics=exact,
            softmax_scale=0.5,
            causal=True,
            top_left=True,
        )
        out, lse = np.full(want.o.shape, np.nan), np.full(want.lse.shape, -np.inf)
        out[:, first:], lse[..., first:] = part.o, part.lse
        outs.append(out.astype(np.float32))
        lses.append(lse.astype(np.float32))
    out, lse = flash_attn_merge(*(DeviceArray.from_numpy(np.stack(x)) for x in (outs, lses)))
    # Parts and LSEs were rounded to float32 once: as much as the merge itself does, which is some E.
    assert np.abs(out.to_numpy() - want.o).max() < 40 * 2.0**-24 * np.abs(v).max()
    assert np.abs(lse.to_numpy() - want.lse).max() < 40 * 2.0**-24


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("accumulate", [False, True])
def test_public_function(packed: bool, accumulate: bool) -> None:
    """flash_attn_merge: its shapes, strides and defaults."""
    case = replace(BASE, batch=1 if packed else 2, accumulate=accumulate, o_dtype="float32", seqlen=8)
    merging = Merging(case)
    at = (slice(None), 0) if packed else (slice(None),)
    shape = (case.parts, case.batch)
    outs = merging.o_parts.array.reshape(*shape, *merging.o.shape[1:])
    lses = merging.lse_parts.array.reshape(*shape, *merging.lse.shape[1:3])
    given: dict[str, Any] = {}
    if accumulate:
        given = {
            "out": merging.o.array[at[1:]],
            "lse": merging.lse.array.reshape(*merging.lse.shape[:3])[at[1:]],
        }
    out, lse = flash_attn_merge(outs[at], lses[at], out_dtype="float32", accumulate=accumulate, **given)
    assert out.layout.dtype == "float32"
    if accumulate:
        assert out is given["out"]
        assert lse is given["lse"]
    o_shape, lse_shape = merging.o.shape, merging.lse.shape[:3]
    merging.judge((out.to_numpy().reshape(o_shape), lse.to_numpy().reshape(lse_shape)))


_REFUSALS: list[Any] = [
    ({"parts": 0}, InvalidArgumentError, "parts = 0: expected 1 or more"),
    ({"hdim": 12}, UnsupportedError, "hdim = 12: merge kernels take multiples of 8"),
    ({"dtype": "float8_e4m3fnuz"}, UnsupportedError, "it has: fp16, bf16, fp32"),
    ({"o_dtype": "bfloat16"}, UnsupportedError, "of parts of dtype = fp16 merge kernels make: fp16, fp32"),
    ({"seqlen": -1}, InvalidArgumentError, "seqlen = -1: expected 0 or more"),
    ({"nhead": 2**40}, UnsupportedError, "one call merges at most 67108863 rows"),
    ({"kernel": 2}, UnsupportedError, "kernel = 2: expected 0"),
    ({"dtype": "int8"}, InvalidArgumentError, "dtype: got 'int8', expected one of float16"),
    ({"parts": 1.5}, InvalidArgumentError, "parts: got 1.5"),
    ({"lse": None, "accumulate": True}, InvalidArgumentError, "lse.data = NULL: expected a device pointer"),
]


@pytest.mark.parametrize(("change", "error", "said"), _REFUSALS, ids=str)
def test_refusals(change: dict[str, Any], error: type[Exception], said: str) -> None:
    merging = Merging(BASE)
    with pytest.raises(error) as caught:
        pyfa_rocm.fmha_merge(replace(merging.params(), **change))
    assert said in str(caught.value)
    assert merging.o.unchanged()


@pytest.mark.parametrize(
    ("field", "change", "said"),
    [
        ("o_parts", {"stride_part": -8}, "o_parts.stride_part = -8: expected 0 or more"),
        ("o_parts", {"stride_part": 1004}, "o_parts.stride_part = 1004: expected a multiple of 8 elements"),
        ("o_parts", {"stride_head": 68}, "o_parts.stride_head = 68: expected a multiple of 8 elements"),
        ("lse_parts", {"data": 0}, "lse_parts.data = NULL: expected a device pointer"),
        ("o", {"stride_seqlen": 0}, "o.stride_seqlen = 0: its elements overlap one another"),
        ("lse", {"stride_head": 2}, "lse.stride_head = 2: its elements overlap one another"),
    ],
    ids=str,
)
def test_refused_tensors(field: str, change: dict[str, int], said: str) -> None:
    params = Merging(BASE).params()
    setattr(params, field, getattr(params, field)._replace(**change))
    with pytest.raises(InvalidArgumentError) as caught:
        pyfa_rocm.fmha_merge(params)
    assert said in str(caught.value)


def test_result_may_not_lie_in_a_part() -> None:
    """In place is `accumulate`: a part that is also the result is not among the parts."""
    params = Merging(BASE).params()
    params.o = params.o._replace(data=params.o_parts.data)
    with pytest.raises(InvalidArgumentError, match="o is written but overlaps o_parts"):
        pyfa_rocm.fmha_merge(params)
    pyfa_rocm.fmha_merge_supported(Merging(BASE).params())
    pyfa_rocm.fmha_merge_prepare(Merging(BASE).params())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"outs": np.zeros((2, 3, 8), np.float32)}, "outs: got shape (2, 3, 8), expected 5 dimensions"),
        ({"outs": np.zeros((0, 1, 4, 3, 8), np.float32)}, "expected 1 part or more"),
        ({"lses": np.zeros((2, 1, 4, 3), np.float32)}, "lses: got shape (2, 1, 4, 3), expected (2, 1, 3, 4)"),
        ({"lses": np.zeros((2, 1, 3, 4), np.float16)}, "lses: got dtype float16, expected float32"),
        ({"out": np.zeros((1, 4, 3, 16), np.float32)}, "out: got shape (1, 4, 3, 16), expected (1, 4, 3, 8)"),
        ({"accumulate": True}, "out: got None, expected an array to accumulate in"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_refused_arguments(arguments: dict[str, Any], said: str) -> None:
    arrays: dict[str, Any] = {
        "outs": np.zeros((2, 1, 4, 3, 8), np.float32),
        "lses": np.zeros((2, 1, 3, 4), np.float32),
    } | arguments
    arrays = {n: DeviceArray.from_numpy(x) if isinstance(x, np.ndarray) else x for n, x in arrays.items()}
    with pytest.raises(InvalidArgumentError) as caught:
        flash_attn_merge(**arrays)
    assert said in str(caught.value)


def test_a_type_that_there_is_not() -> None:
    """The message names the function's argument."""
    outs, lses = DeviceArray.empty((2, 1, 4, 2, 64), "float32"), DeviceArray.empty((2, 1, 2, 4), "float32")
    with pytest.raises(InvalidArgumentError, match=r"^out_dtype: got 'foo', expected one of float16"):
        flash_attn_merge(outs, lses, out_dtype="foo")
