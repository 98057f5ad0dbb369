# SPDX-License-Identifier: MIT OR Apache-2.0
"""The forward pass against float64: fixed cases that matter, and random ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from built import candidates
from cases import Case, Layout, Placement, cases, expected, judge, run_flash, run_or_refused, run_raw
from hypothesis import given, settings
from plugins import hypothesis_profile

import pyfa_rocm
from pyfa_rocm import DeviceArray, Stream, flash_attn_func

BASE = Case(batch=2, seqlen_q=200, seqlen_k=333, nhead_k=2, ratio=2, hdim=128, dtype="bfloat16", seed=7)
# A second pass on another arch makes do with fewer.
EXAMPLES = hypothesis_profile.EXAMPLES
BSHD, BHSD, SBHD = Layout((0, 1, 2)), Layout((0, 2, 1)), Layout((1, 0, 2))


@settings(max_examples=EXAMPLES)
@given(case=cases(sinks=(False, True)))
def test_random_raw(case: Case) -> None:
    """fmha_fwd on any lengths, head dims, masks and layouts, whatever the order of waves."""
    run_or_refused(case, orders=("reverse", "random:1"))


@settings(max_examples=EXAMPLES)
@given(case=cases(sinks=(False, True)))
def test_random_flash(case: Case) -> None:
    """flash_attn_func on anything it takes: its mapping of masks, shapes and strides."""
    run_flash(case)


@pytest.mark.parametrize("ratio", range(1, 9))
def test_grouped_queries(ratio: int) -> None:
    run_raw(replace(BASE, batch=1, ratio=ratio, seqlen_q=130, seqlen_k=140, hdim=64))


@pytest.mark.parametrize("layout", [BSHD, BHSD, SBHD], ids=["bshd", "bhsd", "sbhd"])
def test_layouts(layout: Layout) -> None:
    run_flash(replace(BASE, layouts=(layout,) * 4))


def test_packed_qkv() -> None:
    """q, k and v as slices of one (batch, seqlen, 3, nhead, hdim) buffer."""
    rng = np.random.default_rng(3)
    host = rng.standard_normal((2, 150, 3, 2, 64), np.float32).astype(np.float16)
    packed = DeviceArray.from_numpy(host)
    q, k, v = (packed[:, :, i] for i in range(3))
    out = flash_attn_func(q, k, v, causal=True)
    case = replace(BASE, seqlen_q=150, seqlen_k=150, ratio=1, hdim=64, dtype="float16", causal=True)
    judge(expected(case, [host[:, :, i] for i in range(3)]), out.to_numpy(), None)


@pytest.mark.parametrize("shared", [(True, False), (False, True), (True, True)], ids=str)
def test_broadcast_keys(shared: tuple[bool, bool]) -> None:
    """Strides of 0: all batches, or all heads, share one K and V."""
    case = replace(BASE, batch=3, seqlen_q=70, seqlen_k=90, broadcast_kv=shared)
    run_raw(case)
    run_flash(case)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    "change",
    [
        {"seqlen_q": 300, "seqlen_k": 100, "causal": True},  # rows 0 to 199 stand left of the first key
        {"seqlen_q": 257, "seqlen_k": 1, "causal": True},
        {"seqlen_q": 300, "seqlen_k": 40, "window": (10, -1), "seed": 1},
        {"seqlen_q": 400, "seqlen_k": 60, "window": (0, 0)},
        {"seqlen_q": 400, "seqlen_k": 130, "window": (5, 3), "causal": True},
    ],
    ids=str,
)
def test_rows_without_keys(dtype: str, change: dict[str, object]) -> None:
    """O = 0 and LSE = -inf, exactly; judge() compares them so."""
    case = replace(BASE, dtype=dtype, **change)  # type: ignore[arg-type]
    if case.window != (10, -1):
        assert np.isneginf(expected(case, case.inputs()).lse).any()
    run_raw(case)
    run_flash(case)


def test_no_keys_at_all() -> None:
    """seqlen_k = 0: every row is one without keys."""
    run_raw(replace(BASE, seqlen_k=0))
    run_raw(replace(BASE, seqlen_k=0, causal=True))


@pytest.mark.parametrize("change", [{"batch": 0}, {"seqlen_q": 0}, {"nhead_k": 2, "ratio": 0}], ids=str)
def test_nothing_to_do(change: dict[str, int]) -> None:
    """An empty problem is no error and writes nothing."""
    placement = Placement(replace(BASE, **change))  # type: ignore[arg-type]
    pyfa_rocm.fmha_fwd(placement.params())
    assert placement.unchanged()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("value", [1.0, -2.0, 48.0])
def test_constant_v_is_exact(dtype: str, value: float) -> None:
    """The mean of equal values is that value: a biased rounding of P would move it."""
    case = replace(BASE, dtype=dtype, seqlen_q=64, seqlen_k=600)
    inputs = case.inputs()
    inputs[2][...] = value
    placement = Placement(case, inputs)
    pyfa_rocm.fmha_fwd(placement.params())
    o, _ = placement.results()
    relative = o.astype(np.float64) / value
    assert (relative == 1).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_large_scores(dtype: str, causal: bool) -> None:
    """With equal scores O is the mean of V, however large they are, or NaN, as the header announces."""
    case = replace(BASE, dtype=dtype, seqlen_q=65, seqlen_k=65, hdim=64, causal=causal, lse=True)
    if not candidates(case):
        pytest.skip("no such kernel in this library")
    inputs = case.inputs()
    v = inputs[2].astype(np.float64)
    seen = np.arange(1, 66)[:, None, None] if causal else 65
    mean = np.repeat((np.cumsum(v, 1) if causal else v.sum(1, keepdims=True)) / seen, case.ratio, axis=2)
    for value, right in ((300.0, True), (3000.0, True), (4700.0, True), (5000.0, False), (10000.0, False)):
        inputs[0][...] = inputs[1][...] = value  # rounded to the type
        score = float(inputs[0].flat[0]) ** 2 * case.hdim**0.5
        placement = Placement(case, inputs)
        params = placement.params()
        pyfa_rocm.fmha_fwd(params)
        o, lse = placement.results()
        assert lse is not None
        ours = pyfa_rocm.fmha_fwd_kernel(params).pipeline in ("pingpong", "wmma")
        if not (right or (ours and dtype == "bfloat16")):
            if ours and not np.isnan(lse).any():
                continue  # where the product with the scale is nearly a float32
            assert np.isnan(o.astype(np.float64)).all()
            assert np.isnan(lse).all()
            continue
        # P is the same for all keys, but rounded; so is O. The LSE is the score and a logarithm.
        half_ulp = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-19}[dtype]
        np.testing.assert_allclose(
            o.astype(np.float64), np.broadcast_to(mean, o.shape), rtol=2 * half_ulp, atol=1e-5
        )
        np.testing.assert_allclose(lse, score, rtol=(case.hdim / 2 + 3) * 2.0**-24, atol=np.log(65) + 0.01)


def test_window_that_hides_nothing() -> None:
    """A window wider than the keys is no window, whatever its size."""
    case = replace(BASE, seqlen_q=100, seqlen_k=100)
    results = []
    for window in ((-1, -1), (100, 100), (99, 2**31 - 1)):
        placement = Placement(replace(case, window=window))
        pyfa_rocm.fmha_fwd(placement.params())
        results.append(placement.results()[0].tobytes())
    assert results[0] == results[1] == results[2]


def test_repeatable() -> None:
    """The same call gives the same bits."""
    outs = []
    for _ in range(3):
        placement = Placement(BASE)
        pyfa_rocm.fmha_fwd(placement.params())
        outs.append(placement.results()[0].tobytes())
    assert len(set(outs)) == 1


def test_on_a_stream() -> None:
    with Stream() as stream:
        run_raw(BASE, stream.handle)
        q = DeviceArray.from_numpy(np.ones((1, 64, 1, 64), np.float16))
        out = flash_attn_func(q, q, q, stream=stream)
        stream.synchronize()
        assert (out.to_numpy() == 1).all()


def test_kernel_info_and_prepare() -> None:
    placement = Placement(BASE)
    params = placement.params()
    pyfa_rocm.fmha_fwd_supported(params)
    pyfa_rocm.fmha_prepare(params)
    kernel = pyfa_rocm.fmha_fwd_kernel(params)
    assert kernel.arch in (device.arch for device in pyfa_rocm.devices())
    assert len(kernel.sha256) == 64
    assert kernel.scratch_bytes == 0
    # One workgroup for each block of query rows, head and batch.
    blocks = -(-BASE.seqlen_q // kernel.tile_m)
    assert kernel.grid[0] * kernel.grid[1] * kernel.grid[2] == blocks * BASE.nhead_q * BASE.batch
