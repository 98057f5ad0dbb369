# SPDX-License-Identifier: MIT OR Apache-2.0
"""Our own forward kernel, native/kernels/hip/fwd/fwd_pingpong.h: what is its own, against float64.

That it does what every forward kernel does is tested by test_every_kernel.py and test_matrix.py.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from built import DTYPE_OF, Row, rows, this_arch
from cases import (
    Case,
    Layout,
    Placement,
    Varlen,
    expected,
    forced,
    judge,
    numerics_by,
    run_raw,
    run_shared,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from plugins import hypothesis_profile

import pyfa_rocm
from pyfa_rocm import DeviceArray, FwdParams, Strided
from pyfa_rocm._runtime import hip

OURS = [row for row in rows() if row["origin"] == "hip" and row["arch"] == this_arch()]
EXAMPLES = hypothesis_profile.EXAMPLES // 20
DTYPES = {"bf16": "bfloat16", "fp16": "float16"}
ROWS, SLACK = 256, 8  # of a workgroup; powers of two by which the reference may lag at most
LARGE_CAP = 800.0  # leaves scores of some hundred apart
# gfx90a has head dim 512 only, which test_every_kernel.py tests.
pytestmark = pytest.mark.skipif(not OURS or this_arch() == "gfx90a", reason="this build has none")


def _name(row: Row) -> str:
    return str(row["name"])


BATCHED = [row for row in OURS if not row["group"]]


def _case(row: Row, seqlen_q: int, seqlen_k: int) -> Case:
    return Case(
        batch=2, seqlen_q=seqlen_q, seqlen_k=seqlen_k, nhead_k=2, ratio=2, hdim=row["hdim_q"],
        hdim_v=row["hdim_v"], dtype=DTYPE_OF[row["dtype"]], lse=True,
        alibi=2 if row["bias"] == "alibi" else 0, softcap=LARGE_CAP if row["softcap"] else 0.0,
        o_dtype="" if row["dtype"] == row["o_dtype"] else DTYPE_OF[row["o_dtype"]],
    )  # fmt: skip


@pytest.mark.parametrize("blocks", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("row", BATCHED, ids=_name)
def test_blocks(row: Row, blocks: int) -> None:
    """Any number of blocks of keys: the first, the last and the one before are apart from the loop."""
    n = row["tile_n"]
    for seqlen_k in (blocks * n, blocks * n - 1, (blocks - 1) * n + 1):
        run_raw(forced(_case(row, 33, seqlen_k), row["name"]))


@pytest.mark.parametrize("row", BATCHED, ids=_name)
@pytest.mark.parametrize("step", [0.5, SLACK - 0.1, SLACK + 0.1, 2 * SLACK, -SLACK, 40.0])
def test_rising_scores(row: Row, step: float) -> None:
    """The maximum of each block lies so many powers of two above that of the block before."""
    n, blocks = row["tile_n"], 5
    case = _case(row, 40, blocks * n - 3)
    _judge_rise(row, case, case.inputs(), np.arange(case.seqlen_k) // n * step)


@pytest.mark.parametrize("row", [row for row in BATCHED if row["dtype"] == "fp16"], ids=_name)
def test_lag_is_bounded(row: Row) -> None:
    """However large a row's sum is, P is at most 2^SLACK: fp16 has no 2^16.3."""
    case = replace(_case(row, 40, 8192 + 6400 + 64), batch=1, nhead_k=1, ratio=1, slope=1e-5)
    inputs = case.inputs()
    inputs[0][...] = 0
    _judge_rise(row, case, inputs, np.repeat([0, SLACK - 0.1, 16.3], [8192, 6400, 64]))


def _judge_rise(row: Row, case: Case, inputs: list[np.ndarray], rise: np.ndarray) -> None:
    """Judge a kernel where a key's scores lie so many powers of two higher than those of the inputs."""
    q, k, v = inputs
    # A dim of its own for the rise: the same for all rows, so that their scores rise together.
    scale = case.hdim**-0.5 * np.log2(np.e)
    q[..., 0] = 16
    k[..., 0] = (rise / (16 * scale))[None, :, None]
    placement = Placement(forced(case, row["name"]), [q, k, v])
    kernel = pyfa_rocm.fmha_fwd_kernel(placement.params())
    pyfa_rocm.fmha_fwd(placement.params())
    o, lse = placement.results()
    judge(expected(case, [q, k, v], numerics_by(kernel, case)), o, lse)


@pytest.mark.parametrize("heads", [1, 3, 8, 16])
@pytest.mark.parametrize("row", [row for row in OURS if row["hdim_q"] == 128], ids=_name)
def test_heads_of_xcds(row: Row, heads: int) -> None:
    """Heads that divide by the XCDs, and others: each is done, once, and in the place of its own."""
    seqlen_q = row["tile_m"] + 5
    case = replace(_case(row, seqlen_q, 70), nhead_k=heads, ratio=1, batch=1)
    if row["group"]:
        case = replace(case, batch=2, varlen=Varlen((seqlen_q, 9), (33, 70)))
    info = pyfa_rocm.fmha_fwd_kernel(Placement(forced(case, row["name"])).params())
    parts = 8 if heads * case.batch % 8 == 0 else 1
    assert info.grid == (parts, 2, heads * case.batch // parts)
    run_raw(forced(case, row["name"]))


@st.composite
def problems(draw: st.DrawFn, scores: bool = True) -> Case:
    features: dict[str, Any] = draw(st.one_of(st.just({}), st.sampled_from(SCORES))) if scores else {}
    chunks = st.integers(1, 32 if scores and not features else 16)
    if scores and "softcap" not in features and draw(st.integers(0, 7)) == 0:
        chunks = st.integers(33, 64)  # `ci` has a softcap of head dim 512 for packed sequences only
    orders = [Layout((0, 1, 2)), Layout((0, 2, 1)), Layout((1, 0, 2)), Layout((0, 1, 2), (0, 2, 1, 64), 208)]
    return Case(
        batch=draw(st.integers(1, 3)), seqlen_q=draw(st.integers(1, 600)), seqlen_k=draw(st.integers(1, 500)),
        nhead_k=draw(st.integers(1, 3)), ratio=draw(st.integers(1, 3)), hdim=8 * draw(chunks),
        hdim_v=8 * draw(chunks), dtype=draw(st.sampled_from(list(DTYPES.values()))),
        lse=draw(st.booleans()), causal=draw(st.booleans()), top_left=draw(st.booleans()),
        window=draw(st.sampled_from(((-1, -1), (0, 0), (70, 3), (-1, 20), (200, -1)))),
        layouts=(*(draw(st.sampled_from(orders)) for _ in range(3)), draw(st.sampled_from(orders[:3]))),
        scale=draw(st.sampled_from((None, 0.02, 0.5))), seed=draw(st.integers(0, 2**32)),
        sinks=draw(st.booleans()),
        **features,
    )  # fmt: skip


SCORES: tuple[dict[str, Any], ...] = (
    {}, {"alibi": 1}, {"alibi": 2}, {"alibi": 1, "slope": -0.3}, {"alibi": 1, "slope": 7.0}, {"softcap": 0.5},
    {"softcap": 5.0}, {"softcap": 50.0},
)  # fmt: skip


def _of_this_build(case: Case) -> tuple[Case, str]:
    """Return a case and its kernel's name; with the other dtype, if this build has only its kernel.

    An odd number of rows takes a tile of 64 rows, if there is one.
    """
    bias = "alibi" if case.alibi else "none"
    able = [row for row in BATCHED if row["dtype"] in DTYPES and row["mask"] and row["bias"] == bias]
    able = [row for row in able if row["hdim_q"] >= case.hdim and row["hdim_v"] >= case.hdim_v]
    able = [row for row in able if row["softcap"] == (case.softcap > 0) and not _name(row).endswith("dma")]
    tile_m = 64 if case.seqlen_q % 2 else ROWS

    def distance(row: Row) -> tuple[int, bool, bool]:
        return row["hdim_q"] + row["hdim_v"], DTYPES[row["dtype"]] != case.dtype, row["tile_m"] != tile_m

    row = min(able, key=distance)
    return replace(case, dtype=DTYPES[row["dtype"]]), _name(row)


@settings(max_examples=EXAMPLES)
@given(case=problems())
def test_random(case: Case) -> None:
    run_raw(forced(*_of_this_build(case)), orders=("reverse", "random:1", "random:2"))


@pytest.mark.skipif(this_arch() != "gfx942", reason="on gfx950 all kernels have K by DMA")
@settings(max_examples=EXAMPLES)
@given(case=problems(scores=False))
def test_keys_by_dma(case: Case) -> None:
    """K by DMA changes no bit; the device's checks would find a load that has not arrived in time."""
    case = replace(case, dtype="bfloat16")
    results = []
    for tag in ("pingpong", "pingpong_dma"):
        placement = Placement(forced(case, f"fmha_fwd_bf16_d128_mask_pad_{tag}"))
        pyfa_rocm.fmha_fwd(placement.params())
        results.append(placement.results())
    for by_register, by_dma in zip(*results, strict=True):
        np.testing.assert_array_equal(by_register, by_dma)


def _shared(**fields: Any) -> Case:
    """A problem of few row tiles and many keys."""
    plain: dict[str, Any] = {
        "batch": 1, "seqlen_q": 300, "seqlen_k": 2100, "nhead_k": 1, "ratio": 1, "hdim": 128,
        "dtype": "bfloat16", "lse": True,
    }  # fmt: skip
    return Case(**(plain | fields))


# Rows that see keys of some parts only, or none; tiles that see none; grouped heads; heads that XCDs share.
SHARED = {
    "plain": _shared(),
    "causal": _shared(seqlen_q=600, ratio=3, dtype="float16", causal=True),
    "top_left": _shared(batch=2, seqlen_q=1100, hdim=64, ratio=2, causal=True, top_left=True),
    "no_keys": _shared(seqlen_q=2600, seqlen_k=2048, hdim=64, causal=True),
    "window": _shared(seqlen_q=1100, seqlen_k=3000, ratio=2, window=(1200, 3)),
    "heads_of_xcds": _shared(seqlen_q=40, ratio=8, hdim=64, hdim_v=40, dtype="float16"),
    "latent": _shared(ratio=2, hdim=192, hdim_v=128, causal=True),
    "wide": _shared(hdim=256, hdim_v=216, causal=True),
    "sinks": _shared(seqlen_q=40, ratio=8, hdim=64, sinks=True),
    "sinks_no_keys": _shared(seqlen_q=2600, seqlen_k=2048, hdim=64, causal=True, sinks=True, seed=1),
    "order": _shared(batch=2, nhead_k=2, layouts=(*(Layout((0, 2, 1)),) * 3, Layout((1, 0, 2))), lse=False),
}


@pytest.mark.parametrize("name", SHARED)
def test_shared_keys(name: str) -> None:
    """Workgroups that divide the keys of a tile: right, in a workspace of their own, the same each time."""
    case = SHARED[name]
    _, inputs, results = run_shared(case)
    judge(expected(case, inputs), *results)


@pytest.mark.parametrize("name", SHARED)
def test_shared_keys_without_workspace(name: str) -> None:
    """The same problems, if the caller gives none: done by a kernel that needs none."""
    placement = Placement(SHARED[name])
    pyfa_rocm.fmha_fwd(placement.params())
    judge(expected(SHARED[name], placement.inputs), *placement.results())


def test_shared_keys_of_last_tiles() -> None:
    """Tiles that fill a round are whole, those behind them are not: a launch for each, and the merge."""
    units = pyfa_rocm.devices()[0].compute_units
    tensor = Strided(0, 0, 2 * 64, 64)
    info = pyfa_rocm.fmha_fwd_kernel(
        FwdParams(
            dtype="bfloat16", batch=1, seqlen_q=256 * units // 2 + 256, seqlen_k=8192, nhead_q=2, nhead_k=2,
            hdim_q=64, hdim_v=64, softmax_scale=0.125, q=tensor, k=tensor, v=tensor, o=tensor,
        )
    )  # fmt: skip
    assert info.pipeline == "pingpong"
    assert info.step_count == 3


@settings(max_examples=max(EXAMPLES // 8, 1))
@given(case=problems(), more=st.integers(1100, 2500))
def test_random_shared_keys(case: Case, more: int) -> None:
    """As test_random, but with keys enough to divide, and the kernel that the library chooses."""
    case, _ = _of_this_build(case)
    run_raw(replace(case, seqlen_k=case.seqlen_k + more, batch=1), orders=("reverse", "random:1"))


@pytest.mark.parametrize(("batch", "nhead_q", "causal"), [(4, 64, False), (8, 32, True)])
def test_is_chosen(batch: int, nhead_q: int, causal: bool) -> None:
    """The library takes it where it is fastest, and says why."""
    if pyfa_rocm.devices()[0].compute_units != 304:
        pytest.skip("the numbers are of an MI300X")
    n, d = 8192, 128

    def tensor(nhead: int) -> Strided:
        return Strided(0, n * nhead * d, nhead * d, d)

    info = pyfa_rocm.fmha_fwd_kernel(
        FwdParams(
            dtype="bfloat16", batch=batch, seqlen_q=n, seqlen_k=n, nhead_q=nhead_q, nhead_k=8, hdim_q=d,
            hdim_v=d, softmax_scale=d**-0.5, mask="causal" if causal else "none", q=tensor(nhead_q),
            k=tensor(8), v=tensor(8), o=tensor(nhead_q),
        )
    )  # fmt: skip
    assert info.name == f"fmha_fwd_bf16_d128_{'mask_' * causal}pad_pingpong"
    assert info.why.startswith("least time by the estimate")


@pytest.mark.parametrize("dimension", ["batch", "seqlen"])
def test_strides_of_64_bits(dimension: str) -> None:
    """Batches 8 GiB apart, and rows whose head takes 5 GB: other kernels count in 32 bits."""
    batch, seqlen_q, seqlen_k, d = (2, 40, 90, 64) if dimension == "batch" else (1, 300, 650, 128)
    steps = {"batch": (1 << 32, d, d), "seqlen": (0, (1 << 22) - 8, d)}[dimension]
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((batch, n, 1, d), np.float32) for n in (seqlen_q, seqlen_k, seqlen_k))
    inputs = [x.astype(np.float16) for x in (q, k, v)]
    arrays = [_scattered(x, steps) for x in (*inputs, np.zeros_like(inputs[0]))]
    at_q, at_k, at_v, at_o = (Strided(x.data, *steps) for x in arrays)
    params = FwdParams(
        dtype="float16", batch=batch, seqlen_q=seqlen_q, seqlen_k=seqlen_k, nhead_q=1, nhead_k=1, hdim_q=d,
        hdim_v=d, softmax_scale=d**-0.5, mask="causal", q=at_q, k=at_k, v=at_v, o=at_o,
    )  # fmt: skip
    assert pyfa_rocm.fmha_fwd_kernel(params).pipeline == "pingpong"
    pyfa_rocm.fmha_fwd(params)
    pyfa_rocm.synchronize()
    case = Case(
        batch=batch, seqlen_q=seqlen_q, seqlen_k=seqlen_k, nhead_k=1, ratio=1, hdim=d, dtype="float16",
        causal=True,
    )  # fmt: skip
    judge(expected(case, inputs), _gathered(arrays[3], steps, inputs[0].shape), None)


def _scattered(x: np.ndarray, steps: tuple[int, int, int]) -> DeviceArray:
    """Put a (batch, seqlen, 1, hdim) array into memory at these strides."""
    device = DeviceArray.empty((_place(steps, x.shape[0] - 1, x.shape[1] - 1) + x.shape[3],), x.dtype)
    kind = hip.module().hipMemcpyKind.hipMemcpyHostToDevice
    for b, s in np.ndindex(x.shape[:2]):
        row = np.ascontiguousarray(x[b, s, 0])
        hip.call("hipMemcpy", device.data + 2 * _place(steps, b, s), row.ctypes.data, row.nbytes, kind)
    return device


def _gathered(device: DeviceArray, steps: tuple[int, int, int], shape: tuple[int, ...]) -> np.ndarray:
    """Read it back."""
    x = np.empty(shape, np.float16)
    kind = hip.module().hipMemcpyKind.hipMemcpyDeviceToHost
    for b, s in np.ndindex(shape[:2]):
        row = x[b, s, 0]
        hip.call("hipMemcpy", row.ctypes.data, device.data + 2 * _place(steps, b, s), row.nbytes, kind)
    return x


def _place(steps: tuple[int, int, int], batch: int, row: int) -> int:
    return batch * steps[0] + row * steps[1]
