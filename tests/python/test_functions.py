# SPDX-License-Identifier: MIT OR Apache-2.0
"""The public functions: what they hand to the C library, their views, defaults and results.

test_forward.py and its siblings test the kernels' results.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pyfa_rocm as p
from pyfa_rocm import (
    Bias,
    DeviceArray,
    FwdParams,
    InvalidArgumentError,
    Lse,
    RandVal,
    Strided,
    UnsupportedError,
    attention,
    varlen,
)
from pyfa_rocm._call import plan
from pyfa_rocm._call.c_struct import to_c
from pyfa_rocm._call.optional import OptionalArguments
from pyfa_rocm._call.plan import Plan
from pyfa_rocm._runtime import library

# flash-attention's own arguments, in its order (flash_attn_interface.py).
_DEFAULTS = {
    "dropout_p": 0.0, "softmax_scale": None, "causal": False, "window_size": (-1, -1), "softcap": 0.0,
    "alibi_slopes": None, "deterministic": False, "return_attn_probs": False,
}  # fmt: skip
_COMMON = list(_DEFAULTS)
SIGNATURES = {
    p.flash_attn_func: ["q", "k", "v", *_COMMON],
    p.flash_attn_qkvpacked_func: ["qkv", *_COMMON],
    p.flash_attn_kvpacked_func: ["q", "kv", *_COMMON],
    p.flash_attn_varlen_func: [
        "q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k", *_COMMON,
        "block_table",
    ],
    p.flash_attn_varlen_qkvpacked_func: ["qkv", "cu_seqlens", "max_seqlen", *_COMMON],
    p.flash_attn_varlen_kvpacked_func: [
        "q", "kv", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k", *_COMMON,
    ],
}  # fmt: skip
UNLIMITED = 2**31 - 1


def new(*shape: int, dtype: Any = np.float16) -> DeviceArray:
    return DeviceArray.from_numpy(np.ones(shape, dtype))


def normal(*shape: int, seed: int = 0, dtype: Any = np.float16) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return DeviceArray.from_numpy(values.astype(dtype))


class CaughtError(Exception):
    """Thrown instead of asking the C library; has what it would have been asked."""

    def __init__(self, params: FwdParams) -> None:
        self.params = params


@pytest.fixture
def params_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., FwdParams]:
    """Call a public function, and return what it would hand to the C library."""

    def refuse(plan: Plan, q: int, k: int, v: int, _o: int, optional: OptionalArguments | None) -> None:
        raise CaughtError(plan.params_at(q, k, v, optional))

    monkeypatch.setattr(Plan, "ask", refuse)
    monkeypatch.setattr(attention, "_plans", {})
    monkeypatch.setattr(varlen, "_plans", {})

    def call(function: Callable[..., Any], *args: Any, **options: Any) -> FwdParams:
        with pytest.raises(CaughtError) as caught:
            function(*args, **options)
        return caught.value.params

    return call


def test_every_field_reaches_the_c_struct() -> None:
    """Each has a value of its own, and is read back by the name the header gives it."""
    tensors = {name: Strided(*range(10 * i, 10 * i + 4)) for i, name in enumerate("qkvo", start=1)}
    params = FwdParams(
        dtype="float8_e4m3fnuz", batch=1, seqlen_q=2, seqlen_k=3, nhead_q=4, nhead_k=5, hdim_q=6, hdim_v=7,
        softmax_scale=0.5, **tensors, lse=Lse(50, 51, 52), mask="window_top_left", window_left=8,
        window_right=9, o_dtype="float32", softcap=1.5, bias=Bias(60, 61, 62, 63), alibi_slopes=70,
        alibi_stride_batch=71, cu_seqlens_q=80, cu_seqlens_k=81, seqused_q=82, seqused_k=83, total_q=84,
        total_k=85, p_drop=0.25, kernel=86, philox_seed=2**64 - 1, philox_offset=88, philox_seed_offset=89,
        randval=RandVal(90, 91, 92, 93), q_descale=2.5, k_descale=3.5, v_descale=4.5,
        workspace=94, workspace_bytes=95, flags=96, sinks=97,
    )  # fmt: skip
    ffi, lib = library.load()
    c = to_c(params)
    assert c.struct_size == ffi.sizeof("fmha_fwd_params")
    assert c.reserved == 0
    names = {name for name, _ in ffi.typeof("fmha_fwd_params").fields} - {"struct_size", "reserved"}
    assert names == {field.name for field in fields(FwdParams)}
    constants = {
        "dtype": lib.FMHA_FP8_E4M3_FNUZ,
        "o_dtype": lib.FMHA_FP32,
        "mask": lib.FMHA_MASK_WINDOW_TOP_LEFT,
    }

    def plain(value: Any) -> Any:
        if isinstance(value, ffi.CData) and ffi.typeof(value).kind == "pointer":
            return int(ffi.cast("uintptr_t", value))
        return value

    for name in names:
        want, got = getattr(params, name), getattr(c, name)
        if isinstance(want, tuple):
            for part in want._fields:  # type: ignore[attr-defined]
                assert plain(getattr(got, part)) == getattr(want, part), (name, part)
        else:
            assert plain(got) == constants.get(name, want), name


@pytest.mark.parametrize("function", SIGNATURES, ids=lambda f: f.__name__)
def test_signature_is_flash_attentions(function: Callable[..., Any]) -> None:
    parameters = inspect.signature(function).parameters
    positional = [n for n, x in parameters.items() if x.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    assert positional == SIGNATURES[function]
    assert {name: parameters[name].default for name in _COMMON} == _DEFAULTS


MASKS: list[tuple[dict[str, Any], str, int, int]] = [
    ({}, "none", 0, 0),
    ({"causal": True}, "causal", 0, 0),
    ({"causal": True, "top_left": True}, "causal_top_left", 0, 0),
    ({"top_left": True}, "none", 0, 0),
    ({"window_size": (3, 5)}, "window", 3, 5),
    ({"window_size": [3, 5]}, "window", 3, 5),
    ({"window_size": (3, 5), "top_left": True}, "window_top_left", 3, 5),
    ({"window_size": (-1, 5)}, "window", UNLIMITED, 5),
    ({"window_size": (3, -7)}, "window", 3, UNLIMITED),
    ({"window_size": (3, 2**40)}, "window", 3, UNLIMITED),
    ({"window_size": (-1, 0)}, "causal", 0, 0),
    ({"window_size": (3, 5), "causal": True}, "window", 3, 0),
    ({"window_size": (3, -1), "causal": True}, "window", 3, 0),
]


@pytest.mark.parametrize(("options", "mask", "left", "right"), MASKS)
def test_mask(params_of: Any, options: dict[str, Any], mask: str, left: int, right: int) -> None:
    q = new(1, 40, 2, 64)
    params = params_of(p.flash_attn_func, q, q, q, **options)
    assert (params.mask, params.window_left, params.window_right) == (mask, left, right)


def test_defaults(params_of: Any) -> None:
    """All that is not asked for is the C default."""
    q, kv = new(2, 40, 4, 64), new(2, 50, 2, 64)
    got = params_of(p.flash_attn_func, q, kv, kv, deterministic=True)
    assert got == FwdParams(
        "float16", 2, 40, 50, 4, 2, 64, 64, 0.125, Strided(q.data, *q.strides[:3]),
        Strided(kv.data, *kv.strides[:3]), Strided(kv.data, *kv.strides[:3]), Strided(0, *q.strides[:3]),
    )  # fmt: skip


def test_numbers(params_of: Any) -> None:
    q, v = new(1, 40, 2, 192), new(1, 40, 2, 128)
    params = params_of(
        p.flash_attn_func, q, q, v, 0.25, 0.5, softcap=30, philox=(2**64 - 1, 7), kernel=3, return_lse=True
    )
    assert (params.p_drop, params.softmax_scale, params.softcap) == (0.25, 0.5, 30.0)
    assert (params.philox_seed, params.philox_offset, params.philox_seed_offset) == (2**64 - 1, 7, 0)
    assert (params.kernel, params.hdim_q, params.hdim_v, params.o_dtype) == (3, 192, 128, None)
    assert params.lse == Lse(0, 80, 40)
    assert params.o == Strided(0, 40 * 2 * 128, 2 * 128, 128)


def test_philox_is_not_looked_at_without_dropout(params_of: Any) -> None:
    q = new(1, 40, 2, 64)
    assert params_of(p.flash_attn_func, q, q, q, philox="whatever").p_drop == 0


@pytest.mark.parametrize("dtype", [np.uint64, np.int64])
def test_philox_on_the_device(params_of: Any, dtype: Any) -> None:
    q, philox = new(1, 40, 2, 64), new(2, dtype=dtype)
    params = params_of(p.flash_attn_func, q, q, q, 0.1, philox=philox)
    assert (params.philox_seed, params.philox_seed_offset) == (0, philox.data)


@pytest.mark.parametrize(
    ("shape", "strides"),
    [
        ((2, 4, 40, 50), (4 * 40 * 50, 40 * 50, 50)),
        ((1, 4, 40, 50), (0, 40 * 50, 50)),
        ((2, 1, 40, 50), (40 * 50, 0, 50)),
        ((2, 4, 1, 50), (4 * 50, 50, 0)),
        ((1, 1, 1, 50), (0, 0, 0)),
    ],
)
def test_bias(params_of: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    q, kv, bias = new(2, 40, 4, 64), new(2, 50, 2, 64), new(*shape)
    assert params_of(p.flash_attn_func, q, kv, kv, bias=bias).bias == Bias(bias.data, *strides)


def test_alibi(params_of: Any) -> None:
    q = new(2, 40, 4, 64)
    for shape, stride in (((4,), 0), ((2, 4), 4)):
        slopes = new(*shape, dtype=np.float32)
        params = params_of(p.flash_attn_func, q, q, q, alibi_slopes=slopes)
        assert (params.alibi_slopes, params.alibi_stride_batch) == (slopes.data, stride)
        assert params.mask == "none"
        # A query's own column is the mask's: aligned top-left, there must be one.
        params = params_of(p.flash_attn_func, q, q, q, alibi_slopes=slopes, top_left=True)
        assert (params.mask, params.window_left, params.window_right) == (
            "window_top_left",
            UNLIMITED,
            UNLIMITED,
        )


def test_fp8(params_of: Any) -> None:
    q = new(1, 40, 2, 64, dtype=ml_dtypes.float8_e4m3fnuz)
    params = params_of(p.flash_attn_func, q, q, q, q_descale=0.5, v_descale=3)
    assert (params.dtype, params.o_dtype) == ("float8_e4m3fnuz", "bfloat16")
    assert (params.q_descale, params.k_descale, params.v_descale) == (0.5, 0.0, 3.0)
    for out_dtype in (np.float16, "float16", np.dtype("float16")):
        assert params_of(p.flash_attn_func, q, q, q, out_dtype=out_dtype).o_dtype == "float16"
    assert params_of(p.flash_attn_func, q, q, q, out_dtype=p.bfloat16).o_dtype == "bfloat16"
    out = new(1, 40, 2, 64, dtype=np.float32)
    assert params_of(p.flash_attn_func, q, q, q, out=out, return_lse=True).o_dtype == "float32"


def test_torch_dtypes_have_names(params_of: Any) -> None:
    class TorchDtype:
        def __repr__(self) -> str:
            return "torch.float32"

    q = new(1, 40, 2, 64, dtype=ml_dtypes.float8_e4m3fnuz)
    assert params_of(p.flash_attn_func, q, q, q, out_dtype=TorchDtype()).o_dtype == "float32"


def int32(*values: int) -> DeviceArray:
    return DeviceArray.from_numpy(np.array(values, np.int32))


def test_varlen(params_of: Any) -> None:
    q, k = new(90, 4, 64), new(120, 2, 64)
    cu_q, cu_k, used_q, used_k = int32(0, 30, 90), int32(0, 100, 120), int32(30, 50), int32(99, 20)
    bias, slopes = new(4, 1, 100), new(2, 4, dtype=np.float32)
    common = {"dtype": "float16", "batch": 2, "total_q": 90, "total_k": 120, "nhead_q": 4, "nhead_k": 2}
    params = params_of(
        p.flash_attn_varlen_func, q, k, k, cu_q, cu_k, 60, 100, causal=True, seqused_q=used_q,
        seqused_k=used_k, bias=bias, return_lse=True,
    )  # fmt: skip
    assert {name: getattr(params, name) for name in common} == common
    assert (params.seqlen_q, params.seqlen_k, params.mask) == (60, 100, "causal")
    assert (params.cu_seqlens_q, params.cu_seqlens_k) == (cu_q.data, cu_k.data)
    assert (params.seqused_q, params.seqused_k) == (used_q.data, used_k.data)
    assert params.bias == Bias(bias.data, 0, 100, 0)
    assert params.q == Strided(q.data, 0, 256, 64)
    assert params.lse == Lse(0, 0, 90)
    params = params_of(p.flash_attn_varlen_func, q, k, k, cu_q, cu_k, 60, 100, alibi_slopes=slopes)
    assert (params.alibi_slopes, params.alibi_stride_batch) == (slopes.data, 4)
    assert (params.seqused_q, params.seqused_k, params.lse) == (0, 0, None)


def test_varlen_without_rows(params_of: Any) -> None:
    """The C library takes a total of 0 for a forgotten one, unless the lengths say the same."""
    q, cu = new(0, 2, 64), int32(0, 0)
    params = params_of(p.flash_attn_varlen_func, q, q, q, cu, cu, 16, 16)
    assert (params.total_q, params.seqlen_q, params.seqlen_k) == (0, 0, 0)


def test_packed_are_views(params_of: Any) -> None:
    qkv, q, kv = new(2, 40, 3, 4, 64), new(2, 30, 4, 64), new(2, 40, 2, 2, 64)
    params = params_of(p.flash_attn_qkvpacked_func, qkv, 0.0, 0.5, True, (7, 7))
    strides = (40 * 3 * 256, 3 * 256, 64)
    assert params.q == Strided(qkv.data, *strides)
    assert params.k == Strided(qkv.data + 256 * 2, *strides)
    assert params.v == Strided(qkv.data + 512 * 2, *strides)
    assert (params.softmax_scale, params.mask, params.window_left) == (0.5, "window", 7)
    params = params_of(p.flash_attn_kvpacked_func, q, kv, top_left=True, causal=True)
    assert params.k == Strided(kv.data, 40 * 256, 256, 64)
    assert params.v == Strided(kv.data + 128 * 2, 40 * 256, 256, 64)
    assert (params.seqlen_q, params.seqlen_k, params.mask) == (30, 40, "causal_top_left")


def test_packed_varlen_are_views(params_of: Any) -> None:
    qkv, q, kv = new(90, 3, 4, 64), new(50, 4, 64), new(90, 2, 2, 64)
    cu, cu_q = int32(0, 30, 90), int32(0, 30, 50)
    params = params_of(p.flash_attn_varlen_qkvpacked_func, qkv, cu, 60, causal=True)
    assert [x.data - qkv.data for x in (params.q, params.k, params.v)] == [0, 512, 1024]
    assert (params.cu_seqlens_q, params.cu_seqlens_k) == (cu.data, cu.data)
    assert (params.seqlen_q, params.seqlen_k, params.total_q) == (60, 60, 90)
    params = params_of(p.flash_attn_varlen_kvpacked_func, q, kv, cu_q, cu, 30, 60)
    assert [x.data - kv.data for x in (params.k, params.v)] == [0, 256]
    assert (params.cu_seqlens_q, params.seqlen_k, params.total_k) == (cu_q.data, 60, 90)


def test_packed_results() -> None:
    qkv = normal(2, 70, 3, 2, 64)
    host = qkv.to_numpy()
    q, k, v = (DeviceArray.from_numpy(host[:, :, i]) for i in range(3))
    kv = DeviceArray.from_numpy(host[:, :, 1:])
    want = p.flash_attn_func(q, k, v, causal=True).to_numpy()
    assert p.flash_attn_qkvpacked_func(qkv, causal=True).to_numpy().tobytes() == want.tobytes()
    out = new(2, 70, 2, 64)
    assert p.flash_attn_kvpacked_func(q, kv, causal=True, out=out) is out
    assert out.to_numpy().tobytes() == want.tobytes()


def test_what_is_returned() -> None:
    q = normal(2, 70, 2, 64)
    out = p.flash_attn_func(q, q, q)
    pair = p.flash_attn_func(q, q, q, return_lse=True)
    triple = p.flash_attn_func(q, q, q, return_attn_probs=True, deterministic=True)
    assert isinstance(out, DeviceArray)
    assert [x.shape for x in pair] == [(2, 70, 2, 64), (2, 2, 70)]
    assert [x.shape for x in triple] == [(2, 70, 2, 64), (2, 2, 70), (2, 2, 70, 70)]
    assert {x.dtype for x in (*pair[1:], *triple[1:])} == {np.dtype(np.float32)}
    assert pair[0].to_numpy().tobytes() == triple[0].to_numpy().tobytes() == out.to_numpy().tobytes()
    assert pair[1].to_numpy().tobytes() == triple[1].to_numpy().tobytes()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"causal": True},
        {"causal": True, "top_left": True},
        {"window_size": (9, 3)},
        {"window_size": (20, 300), "softmax_scale": 0.3},
    ],
)
def test_probabilities(options: dict[str, Any]) -> None:
    """Rows sum to 1, or to 0 where no key is seen, and make O of V."""
    shapes = (2, 90, 4, 64), (2, 70, 2, 64), (2, 70, 2, 64)
    q, k, v = (normal(*shape, seed=i, dtype=p.bfloat16) for i, shape in enumerate(shapes))
    out, lse, s_dmask = p.flash_attn_func(q, k, v, return_attn_probs=True, **options)
    probabilities = s_dmask.to_numpy()
    empty = np.isneginf(lse.to_numpy())
    assert (probabilities >= 0).all()
    # The LSE is float32: off by some 1e-6, and the sum relative by as much.
    np.testing.assert_allclose(probabilities.sum(-1), np.where(empty, 0, 1), atol=1e-5)
    values = v.to_numpy().astype(np.float64).repeat(2, axis=2)
    # O and each probability are rounded to bfloat16, by up to 2^-8 of themselves; the rest is float32's.
    limit = 2.01 * 2.0**-8 * np.einsum("bhqk,bkhd->bqhd", probabilities, np.abs(values))
    error = np.einsum("bhqk,bkhd->bqhd", probabilities, values) - out.to_numpy().astype(np.float64)
    assert (np.abs(error) <= limit).all()


def test_a_plan_is_not_the_data() -> None:
    """Calls of one kind: each with its own inputs, output, stream and results."""
    arrays: list[list[Any]] = [[normal(1, 40, 2, 64, seed=3 * i + j) for j in range(3)] for i in range(4)]
    attention._plans.clear()
    want = [p.flash_attn_func(*three).to_numpy() for three in arrays]
    assert len(attention._plans) == 1
    attention._plans.clear()
    for three, right in zip(arrays, want, strict=True):
        attention._plans.clear()
        assert p.flash_attn_func(*three).to_numpy().tobytes() == right.tobytes()
    with p.Stream() as stream:
        out = new(1, 40, 2, 64)
        for three, right in zip(arrays, want, strict=True):
            p.flash_attn_func(*three, out=out, stream=stream)
            stream.synchronize()
            assert out.to_numpy().tobytes() == right.tobytes()


def test_addresses_are_checked_in_each_call() -> None:
    """A call is checked with its own addresses, though an equal one with others was right."""
    q = normal(1, 48, 2, 64)
    p.flash_attn_func(q, q, q, out=new(1, 48, 2, 64))
    with pytest.raises(InvalidArgumentError, match="o is written but overlaps q"):
        p.flash_attn_func(q, q, q, out=q)
    room = new(1 * 48 * 2 * 64 + 8)
    shifted = room[1 : 1 + 48 * 2 * 64].reshape(1, 48, 2, 64)
    with pytest.raises(InvalidArgumentError, match=r"q\.data.*aligned to 16"):
        p.flash_attn_func(shifted, q, q, out=new(1, 48, 2, 64))
    p.flash_attn_func(q, q, q, out=new(1, 48, 2, 64))


def test_options_that_may_change_are_not_remembered() -> None:
    class Scale:
        """A number that can be written to, as a tensor of no dimensions can."""

        value = 0.1

        def __float__(self) -> float:
            return self.value

    q, scale = normal(1, 40, 2, 64), Scale()
    attention._plans.clear()
    first = p.flash_attn_func(q, q, q, softmax_scale=scale).to_numpy()  # type: ignore[arg-type]
    scale.value = 0.3
    second = p.flash_attn_func(q, q, q, softmax_scale=scale).to_numpy()  # type: ignore[arg-type]
    assert not attention._plans
    assert second.tobytes() == p.flash_attn_func(q, q, q, softmax_scale=0.3).to_numpy().tobytes()
    assert first.tobytes() != second.tobytes()


def test_plans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_MOST_PLANS", 4)
    attention._plans.clear()
    for i in range(10):
        q = normal(1, 8 + i, 1, 64)
        p.flash_attn_func(q, q, q)
        assert len(attention._plans) <= 4


def test_threads_share_a_plan() -> None:
    """8 threads, one kind of call, data of their own: cffi lets go of the GIL while the C library runs."""
    arrays = [normal(1, 32, 1, 64, seed=i) for i in range(8)]
    want = [p.flash_attn_func(x, x, x).to_numpy().tobytes() for x in arrays]
    barrier, wrong = threading.Barrier(len(arrays)), list[int]()

    def work(i: int) -> None:
        barrier.wait()
        out = new(1, 32, 1, 64)
        with p.Stream() as stream:
            for _ in range(20):
                p.flash_attn_func(arrays[i], arrays[i], arrays[i], out=out, stream=stream)
                stream.synchronize()
                if out.to_numpy().tobytes() != want[i]:
                    wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(arrays))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_every_candidate_may_be_forced() -> None:
    q = normal(1, 128, 2, 64)
    x, o = Strided(q.data, *q.strides[:3]), Strided(0, *q.strides[:3])
    params = FwdParams("float16", 1, 128, 128, 2, 2, 64, 64, 0.125, x, x, x, o)
    chosen = p.fmha_fwd_kernel(params)
    assert (chosen.candidate, chosen.pipeline != "") == (1, True)
    assert chosen.candidate_count > 1 or chosen.arch != "gfx942"
    want = p.flash_attn_func(q, q, q).to_numpy().astype(np.float32)
    for n in range(1, chosen.candidate_count + 1):
        params.kernel = n
        assert p.fmha_fwd_kernel(params).candidate == n
        got = p.flash_attn_func(q, q, q, kernel=n).to_numpy().astype(np.float32)
        np.testing.assert_allclose(got, want, atol=2.0**-9)
    with pytest.raises(UnsupportedError, match="kernel"):
        p.flash_attn_func(q, q, q, kernel=chosen.candidate_count + 1)


def test_no_workspace_is_needed() -> None:
    q = normal(1, 128, 2, 64)
    x, o = Strided(q.data, *q.strides[:3]), Strided(0, *q.strides[:3])
    params = FwdParams("float16", 1, 128, 128, 2, 2, 64, 64, 0.125, x, x, x, o)
    assert p.fmha_fwd_workspace_bytes(params) == 0
    params.nhead_k = 3
    with pytest.raises(InvalidArgumentError, match="nhead"):
        p.fmha_fwd_workspace_bytes(params)


@pytest.mark.parametrize("return_attn_probs", [False, True])
def test_workspace_reaches_the_call(monkeypatch: pytest.MonkeyPatch, return_attn_probs: bool) -> None:
    """Asked for once a plan, allocated in each call, and handed over with its size."""
    asked: list[Any] = []
    seen: list[tuple[int, int]] = []
    ffi, lib = library.load()

    class Library:
        """The C library, whose forward pass is said to need a workspace."""

        def __getattr__(self, name: str) -> Any:
            return getattr(lib, name)

        def fmha_fwd_workspace_bytes(self, _params: Any, nbytes: Any) -> int:
            asked.append(nbytes)
            nbytes[0] = 4096
            return 0

        def fmha_fwd(self, params: Any, stream: Any) -> int:
            seen.append((int(ffi.cast("uintptr_t", params.workspace)), params.workspace_bytes))
            return int(lib.fmha_fwd(params, stream))

    monkeypatch.setattr(library, "load", lambda: (ffi, Library()))
    monkeypatch.setattr(attention, "_plans", {})
    q = normal(1, 40, 2, 64)
    for _ in range(3):
        p.flash_attn_func(q, q, q, return_attn_probs=return_attn_probs)
    assert len(asked) == 1
    assert [nbytes for _, nbytes in seen] == [4096] * 3
    assert all(address % 256 == 0 and address for address, _ in seen)
