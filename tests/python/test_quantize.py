# SPDX-License-Identifier: MIT OR Apache-2.0
"""fmha_quantize against float64: every kernel, scale, rotation, layout and odd number."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from built import DTYPE_OF, Row, drawn, every, fp8, other_fp8, rows, this_arch
from cases_place import Placed, bits
from cases_types import DTYPES, Array, Layout
from hypothesis import given, settings
from hypothesis import strategies as st
from plugins import errors, hypothesis_profile
from strict import forgiven

import pyfa_rocm
from pyfa_rocm import (
    Descale,
    DeviceArray,
    InvalidArgumentError,
    QuantizeParams,
    UnsupportedError,
    flash_attn_quantize,
)

_U = 2.0**-24
LEAST_SCALE = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Quantization:
    """A problem. `out_dtype` "": it is only rotated. `spread`: how much heads differ in size."""

    dtype: str = "bfloat16"
    out_dtype: str = "float8_e4m3fnuz"
    batch: int = 2
    seqlen: int = 37
    nhead: int = 4
    hdim: int = 64
    unit: str | None = "head"
    heads: int = 1
    block: int = 0
    hadamard: bool = False
    layouts: tuple[Layout, Layout] = (Layout(), Layout())
    spread: float = 3.0
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def blocks(self) -> int:
        return -(-self.seqlen // self.block) if self.block else 1

    @property
    def scales_shape(self) -> tuple[int, int, int]:
        return (1, 1, 1) if self.unit == "tensor" else (self.batch, self.nhead // self.heads, self.blocks)


def finfo(dtype: Any) -> Any:
    """Return facts of any float type."""
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def hadamard(n: int) -> Array:
    """The orthonormal matrix, by its definition: the sign is that of the bits that two numbers share."""
    numbers = np.arange(n)
    bits = np.unpackbits((numbers[:, None] & numbers[None]).astype(">u2").view(np.uint8), axis=-1)
    shared = bits.reshape(n, n, 16).sum(-1)
    matrix: Array = (1 - 2.0 * (shared % 2)) / np.sqrt(n)
    return matrix


class Quantizing:
    """A quantisation's arrays, on both sides; `data`: x, else normal numbers."""

    def __init__(self, case: Quantization, data: Array | None = None, scales: Array | None = None) -> None:
        self.case = case
        shape = (case.batch, case.seqlen, case.nhead, case.hdim)
        if data is None:
            rng = np.random.default_rng(case.seed)
            sizes = np.exp2(case.spread * rng.standard_normal((case.batch, 1, case.nhead, 1)))
            data = rng.standard_normal(shape) * sizes
        self.x = data.astype(DTYPES[case.dtype])
        self.given = scales
        out_dtype = DTYPES[case.out_dtype or case.dtype]
        self.placed = Placed.put(case.layouts[0], shape, self.x.dtype, self.x)
        self.out = Placed.put(case.layouts[1], shape, out_dtype, None)
        held = np.full(case.scales_shape, np.nan, np.float32) if scales is None else scales
        self.scales = DeviceArray.from_numpy(held.astype(np.float32))

    def params(self) -> QuantizeParams:
        """The raw function's arguments, without a workspace."""
        case = self.case
        _, groups, blocks = case.scales_shape
        has_scales = case.unit is not None
        return QuantizeParams(
            dtype=case.dtype, out_dtype=case.out_dtype or case.dtype, batch=case.batch, seqlen=case.seqlen,
            nhead=case.nhead, hdim=case.hdim, x=self.placed.strided(), out=self.out.strided(),
            descale=Descale(self.scales.data, groups * blocks, blocks, 1) if has_scales else None,
            scale_unit=case.unit, heads_per_scale=case.heads if case.unit in ("head", "block") else 0,
            block_tokens=case.block, given=self.given is not None, hadamard=case.hadamard, **case.options,
        )  # fmt: skip

    def run(self) -> tuple[Array, Array]:
        """Return out and the scales, after checking that nothing else was written."""
        params = self.params()
        nbytes = pyfa_rocm.fmha_quantize_workspace_bytes(params)
        if nbytes:
            workspace = DeviceArray.from_numpy(np.full(nbytes, 0xFF, np.uint8))
            params.workspace, params.workspace_bytes = workspace.data, nbytes
        self.placed.watch(holds_input=True)
        self.out.watch(holds_input=False)
        with forgiven():
            pyfa_rocm.fmha_quantize(params)
            pyfa_rocm.synchronize()
        assert self.placed.unchanged(), "x was written"
        return self.out.take(), self.scales.to_numpy()

    def rotated(self) -> tuple[Array, Array]:
        """Return what is quantised, in float64, and how far the kernel may be off before a last factor."""
        x = self.x.astype(np.float64)
        x[np.abs(x) < LEAST_SCALE] = 0
        if not self.case.hadamard:
            return x, np.zeros_like(x)
        n = self.case.hdim
        with np.errstate(invalid="ignore"):
            y = x @ hadamard(n)
        off = np.log2(n) * _U * np.abs(x).sum(-1, keepdims=True) / np.sqrt(n)
        return y, np.broadcast_to(off, y.shape)

    def by_scale(self, elements: Array) -> Array:
        """Elements (batch, groups, blocks, all that share a scale); what a last block lacks is 0."""
        case = self.case
        if case.unit == "tensor":
            return elements.reshape(1, 1, 1, -1)
        block = case.block or case.seqlen
        padded = np.zeros((case.batch, case.blocks * block, case.nhead, case.hdim))
        padded[:, : case.seqlen] = elements
        groups = case.nhead // case.heads
        split: Array = padded.reshape(case.batch, case.blocks, block, groups, case.heads, case.hdim)
        together: Array = split.transpose(0, 3, 1, 2, 4, 5)
        return together.reshape(case.batch, groups, case.blocks, -1)

    def of_elements(self, scales: Array) -> Array:
        """Scales (batch, groups, blocks) of each element of x."""
        case = self.case
        if case.unit == "tensor":
            return np.broadcast_to(scales.reshape(1, 1, 1, 1), self.x.shape)
        block = case.block or case.seqlen
        of_heads = np.repeat(scales, case.heads, axis=1)
        repeated: Array = np.repeat(of_heads, block, axis=2)[:, :, : case.seqlen]
        by_token: Array = repeated.transpose(0, 2, 1)[..., None]
        return by_token

    def judge(self, out: Array, scales: Array) -> None:
        """Assert that scales and elements are as near to float64 as float32 and one rounding leave them."""
        y, off = self.rotated()
        if self.case.unit is None:
            self._judge_elements(out.astype(np.float64), y, off, DTYPES[self.case.dtype])
            return
        dtype = DTYPES[self.case.out_dtype]
        most = float(finfo(dtype).max)
        if self.given is None:
            finite = np.isfinite(y)
            largest = self.by_scale(np.where(finite, np.abs(y), 0)).max(-1)
            slack = self.by_scale(np.where(finite, off, 0)).max(-1) + 3 * _U * largest
            want = np.where(largest < LEAST_SCALE, 1, np.maximum(largest / most, LEAST_SCALE))
            apart = np.abs(scales - want)
            assert (apart <= slack / most + _U * want).all(), f"scales are off by {apart.max()} of {want}"
        divided = self.of_elements(scales.astype(np.float64))
        with np.errstate(invalid="ignore"):
            want = np.where(np.isnan(y), np.nan, np.clip(y / divided, -most, most))
        self._judge_elements(out.astype(np.float64), want, off / divided, dtype)

    @staticmethod
    def _judge_elements(got: Array, want: Array, off: Array, dtype: Any) -> None:
        assert np.array_equal(np.isnan(got), np.isnan(want)), "NaN are others"
        info = finfo(dtype)
        finite = np.isfinite(want)
        bound = np.abs(want) * (1 + 4 * _U) + off
        with np.errstate(divide="ignore", invalid="ignore"):
            exponent = np.floor(np.log2(np.maximum(bound, float(info.smallest_normal))))
        half = np.exp2(exponent) * float(info.eps) / 2
        limit = half + off + 4 * _U * np.abs(want)
        errors.tell("out", got[finite], want[finite], limit[finite])
        wrong = finite & ~(np.abs(got - np.where(finite, want, 0)) <= limit)
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0])
            raise AssertionError(
                f"out{list(at)} = {got[at]}, expected {want[at]} +- {limit[at]}; {wrong.sum()} are"
            )


EXAMPLES = hypothesis_profile.EXAMPLES // 8
pytestmark = pytest.mark.skipif(
    not any(row["arch"] == this_arch() for row in rows("quantize")), reason="this arch has no such kernels"
)
BASE = Quantization(out_dtype=fp8())
UNITS: list[dict[str, Any]] = [
    {"unit": "tensor"},
    {"unit": "head"},
    {"unit": "head", "heads": 2},
    {"unit": "block", "block": 16},
    {"unit": "block", "block": 5, "heads": 4},
]


def run(case: Quantization, **arrays: Any) -> tuple[Any, Any]:
    """Run a case, judge it, and return out and the scales."""
    quantizing = Quantizing(case, **arrays)
    results = quantizing.run()
    quantizing.judge(*results)
    return results


@every("quantize")
@pytest.mark.parametrize("rotated", [False, True])
def test_every_kernel(row: Row, rotated: bool) -> None:
    dtype, out = DTYPE_OF[row["dtype"]], DTYPE_OF[row["o_dtype"]]
    seqlen = int(drawn(row).integers(1, 400))
    case = replace(BASE, dtype=dtype, out_dtype=out, seqlen=seqlen, hadamard=rotated)
    if dtype == out:
        case = replace(case, out_dtype="", unit=None, hadamard=True, hdim=256 if rotated else 128)
    quantizing = Quantizing(case)
    assert pyfa_rocm.fmha_quantize_kernel(quantizing.params()).name == row["name"]
    quantizing.judge(*quantizing.run())


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize("hdim", [8, 64, 72, 128, 256, 512])
def test_units(unit: dict[str, Any], hdim: int) -> None:
    rotated = hdim in (8, 64, 128, 256)
    run(replace(BASE, hdim=hdim, hadamard=rotated, **unit))
    run(replace(BASE, hdim=hdim, dtype="float16", seqlen=1, spread=1, **unit))


@pytest.mark.parametrize("unit", ["tensor", "head"])
def test_many_chunks(unit: str) -> None:
    """Workgroups wait for each other's maximum, and give the same bits whatever their order."""
    case = replace(BASE, seqlen=2000, nhead=3, hdim=128, unit=unit, hadamard=True)
    first, second = run(case), run(case)
    for x, y in zip(first, second, strict=True):
        assert np.array_equal(bits(x), bits(y))
    assert pyfa_rocm.fmha_quantize_workspace_bytes(Quantizing(case).params()) == 64 * (
        2 if unit == "tensor" else 1 + case.batch * case.nhead
    )
    assert pyfa_rocm.fmha_quantize_kernel(Quantizing(case).params()).step_count == 2


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_random(data: st.DataObject) -> None:
    """Any sizes, layouts and scales."""
    draw = data.draw
    unit = draw(st.sampled_from(("tensor", "head", "block")))
    nhead = draw(st.integers(1, 6))
    heads = draw(st.sampled_from([n for n in range(1, nhead + 1) if nhead % n == 0]))
    rotated = draw(st.booleans())
    hdim = 2 ** draw(st.integers(3, 8)) if rotated else 8 * draw(st.integers(1, 64))
    gaps = st.tuples(*[st.integers(0, 2)] * 3, st.sampled_from((0, 8, 16)))
    layouts = tuple(Layout(tuple(draw(st.permutations((0, 1, 2)))), draw(gaps)) for _ in range(2))
    run(
        replace(
            BASE, dtype=draw(st.sampled_from(("float16", "bfloat16"))), batch=draw(st.integers(1, 4)),
            seqlen=draw(st.integers(1, 300)), nhead=nhead, hdim=hdim, unit=unit, layouts=layouts,  # type: ignore[arg-type]
            heads=1 if unit == "tensor" else heads, block=draw(st.integers(1, 320)) if unit == "block" else 0,
            hadamard=rotated, spread=draw(st.sampled_from((0.0, 1.0))), seed=draw(st.integers(0, 2**20)),
        )
    )  # fmt: skip


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize("rotated", [False, True])
def test_odd_numbers(unit: dict[str, Any], rotated: bool) -> None:
    """NaN, infinities, zeros, and numbers so small that their scale would be none."""
    case = replace(BASE, batch=3, hadamard=rotated, **unit)
    data = np.random.default_rng(5).standard_normal((3, case.seqlen, case.nhead, case.hdim))
    data[0, 3, 1, 7], data[0, 20, 0, 0], data[0, 21, 3, 5] = np.nan, np.inf, -np.inf
    data[1] = 0
    data[2] *= 1e-39
    out, scales = run(case, data=data)
    assert np.isfinite(scales).all()
    assert (scales > 0).all()
    if unit["unit"] != "tensor":
        assert (scales[1] == 1).all()
        assert (out[1].astype(np.float32) == 0).all()
    run(case, data=np.full(data.shape, np.nan))


def test_given_scales() -> None:
    """Elements beyond the largest number are limited to it."""
    for unit in UNITS:
        case = replace(BASE, hadamard=True, spread=0.0, **unit)
        scales = np.random.default_rng(3).uniform(1e-3, 1e-2, case.scales_shape)
        quantizing = Quantizing(case, scales=scales)
        out, kept = quantizing.run()
        quantizing.judge(out, kept)
        assert np.array_equal(kept, scales.astype(np.float32))
        assert np.abs(out.astype(np.float32)).max() == largest(fp8())


def largest(dtype: str) -> float:
    """The largest number of an 8-bit float."""
    return {"float8_e4m3fnuz": 240.0, "float8_e4m3fn": 448.0}[dtype]


def test_twice_rotated() -> None:
    """The rotation is its own inverse, and the matrix orthonormal."""
    assert np.allclose(hadamard(64) @ hadamard(64), np.eye(64))
    x = np.random.default_rng(1).integers(-8, 8, (1, 5, 2, 64)).astype(np.float16)
    once, none = flash_attn_quantize(DeviceArray.from_numpy(x), scale_unit=None, hadamard=True)
    assert none is None
    twice, _ = flash_attn_quantize(once, scale_unit=None, hadamard=True)
    assert np.array_equal(twice.to_numpy(), x)  # sums of few bits, over 8: exact


@pytest.mark.parametrize("unit", ["tensor", "head", "block"])
@pytest.mark.parametrize("packed", [False, True])
def test_public(unit: str, packed: bool) -> None:
    """The public function: shapes of scales, arrays given and made."""
    x = np.random.default_rng(2).standard_normal((1, 50, 4, 64)).astype(DTYPES["bfloat16"])
    tokens: dict[str, Any] = {"block_tokens": 16} if unit == "block" else {}
    array = DeviceArray.from_numpy(x[0] if packed else x)
    out, scales = flash_attn_quantize(array, scale_unit=unit, hadamard=True, **tokens)
    shape = {"tensor": (1,), "head": (1, 4), "block": (1, 4, 4)}[unit]
    assert scales.shape == (shape[1:] if packed and unit != "tensor" else shape)
    quantizing = Quantizing(
        replace(BASE, batch=1, seqlen=50, unit=unit, hadamard=True, block=tokens.get("block_tokens", 0)), x
    )
    quantizing.judge(out.to_numpy().reshape(x.shape), scales.to_numpy().reshape(quantizing.case.scales_shape))
    again, same = flash_attn_quantize(
        array, scale_unit=unit, hadamard=True, descale=scales, out=out, **tokens
    )
    assert again is out
    assert same is scales
    with pytest.raises(InvalidArgumentError, match="out_descale: got an array, expected None with descale"):
        flash_attn_quantize(array, scale_unit=unit, descale=scales, out_descale=scales, **tokens)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"hdim": 12}, UnsupportedError, "hdim = 12: quantise kernels take multiples of 8 up to 512"),
        ({"hdim": 520}, UnsupportedError, "hdim = 520: quantise kernels take multiples of 8 up to 512"),
        ({"hdim": 48, "hadamard": True}, UnsupportedError, "hdim = 48 with hadamard: quantise kernels"),
        ({"dtype": "float32"}, UnsupportedError, "dtype = fp32: this build has no such kernel"),
        ({"out_dtype": other_fp8()}, UnsupportedError, "out_dtype = "),
        ({"scale_unit": None}, InvalidArgumentError, "scale_unit = 0: expected FMHA_SCALE_TENSOR (1)"),
        ({"scale_unit": "row"}, InvalidArgumentError, "scale_unit: got 'row', expected 'tensor'"),
        ({"heads_per_scale": 3}, InvalidArgumentError, "heads_per_scale = 3: expected a divisor of"),
        ({"block_tokens": 3}, InvalidArgumentError, "block_tokens = 3: expected 0 without FMHA_SCALE_BLOCK"),
        ({"scale_unit": "block"}, InvalidArgumentError, "block_tokens = 0: expected 1 or more"),
        ({"scale_unit": "tensor"}, InvalidArgumentError, "heads_per_scale = 1: expected 0 with FMHA_"),
        ({"descale": None}, InvalidArgumentError, "descale.data"),
        ({"out_dtype": "bfloat16"}, InvalidArgumentError, "scale_unit = 2: expected 0 with out_dtype"),
        ({"kernel": 2}, UnsupportedError, "kernel = 2: expected 0"),
        ({"nhead": 70000}, UnsupportedError, "nhead = 70000: quantise kernels take at most 65535"),
        ({"batch": 1 << 23}, UnsupportedError, "batch = 8388608: quantise kernels take at most 8388607"),
    ],
    ids=str,
)  # fmt: skip
def test_refusals(change: dict[str, Any], error: type[Exception], said: str) -> None:
    params = replace(Quantizing(BASE).params(), **change)
    with pytest.raises(error) as caught:
        pyfa_rocm.fmha_quantize(params)
    assert said in str(caught.value)


@pytest.mark.parametrize("change", [{"batch": 0}, {"seqlen": 0}, {"nhead": 0}], ids=str)
def test_nothing_to_do(change: dict[str, Any]) -> None:
    params = replace(Quantizing(BASE).params(), **change)
    pyfa_rocm.fmha_quantize(params)
    pyfa_rocm.fmha_quantize_prepare(params)
    assert pyfa_rocm.fmha_quantize_kernel(params).step_count == 0
    assert pyfa_rocm.fmha_quantize_workspace_bytes(params) == 0


@pytest.mark.parametrize("unit", ["tensor", "head", "block"])
@pytest.mark.parametrize("shape", [(1, 0, 2, 64), (0, 3, 2, 64), (0, 2, 64)], ids=str)
def test_scales_of_nothing(shape: tuple[int, ...], unit: str) -> None:
    """They are 1, and not what memory held before."""
    DeviceArray.from_numpy(np.full(2, 1234.5, np.float32))
    x = DeviceArray.empty(shape, "float16")
    _, descale = flash_attn_quantize(x, scale_unit=unit, block_tokens=4 if unit == "block" else None)
    assert np.all(descale.to_numpy() == 1)
    assert unit != "tensor" or descale.shape == (1,)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"out_dtype": "foo"}, "out_dtype: got foo, expected float8_e4m3fnuz or float8_e4m3fn with"),
        ({"out_dtype": "float16"}, "out_dtype: got float16, expected float8"),
        (
            {"scale_unit": None, "hadamard": True, "out_dtype": "float8_e4m3fn"},
            "out_dtype: got float8_e4m3fn, expected float16 with scale_unit=None",
        ),
        ({"block_tokens": -1, "scale_unit": "block"}, "block_tokens: got -1, expected 1 or more"),
        ({"block_tokens": 0, "scale_unit": "block"}, "block_tokens: got 0, expected 1 or more"),
    ],
    ids=str,
)
def test_refusals_of_python(change: dict[str, Any], said: str) -> None:
    """They name the function's own arguments."""
    x = DeviceArray.empty((1, 4, 2, 64), "float16")
    with pytest.raises(InvalidArgumentError) as caught:
        flash_attn_quantize(x, **change)
    assert str(caught.value).startswith(said)


def test_an_output_of_a_wrong_type() -> None:
    x, out = (DeviceArray.empty((1, 4, 2, 64), "float16") for _ in range(2))
    with pytest.raises(InvalidArgumentError, match="out: got float16, expected float8_e4m3fnuz or"):
        flash_attn_quantize(x, out=out)
