# SPDX-License-Identifier: MIT OR Apache-2.0
"""Any fields in `fmha_bwd_params`: an error that names one, or the gradients of what they say."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import philox
import pytest
from arena import HOST, REGION, Arena, Bytes, Path, Tried, changed, paths, tame, try_field, try_fields
from built import this_arch
from hypothesis import given, settings
from hypothesis import strategies as st
from plugins import hypothesis_profile
from reference import gradients, numerics_of

import pyfa_rocm
from pyfa_rocm import AbiMismatchError, Bias, BwdParams, FwdParams, InvalidArgumentError, Lse, Strided
from pyfa_rocm._call.backward import bwd_to_c
from pyfa_rocm._runtime import library
from pyfa_rocm._runtime.library import check
from pyfa_rocm.array import dtype_of

EXAMPLES = hypothesis_profile.EXAMPLES // 5
BATCH, SEQLEN_Q, SEQLEN_K, NHEAD_Q, NHEAD_K, HDIM = 2, 40, 50, 4, 2, 64
TENSORS = ("q", "k", "v", "o", "dout", "dq", "dk", "dv")
INPUTS = ("q", "k", "v", "o", "lse", "dout")
# The workspace has five regions more, one of them behind the last name.
NAMES = (*TENSORS, "lse", "slopes", "bias", "workspace", *("more " + n for n in "1234"))
# Pointers to lengths, whose memory cannot be any, and what only other tests set up.
NOT_HERE = {
    "cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k", "total_q", "total_k", "philox_seed_offset",
    "randval", "dbias", "bias",
}  # fmt: skip
WORDS = re.compile(
    r"dtype|batch|seqlen|nhead|hdim|softmax_scale|mask|window_|\bq\b|\bk\b|\bv\b|\bo\b|dout|\bd[qkv]\b|lse"
    r"|softcap|bias|alibi|p_drop|philox|kernel|workspace|accumulate|deterministic|flags|params|descale|total_|sinks"
)


def _params(arena: Arena, also: str = "") -> BwdParams:
    """A causal problem, with slopes or a bias if told."""

    def dense(name: str, seqlen: int, heads: int) -> Strided:
        return Strided(arena.address(name), seqlen * heads * HDIM, heads * HDIM, HDIM)

    of_q = {name: dense(name, SEQLEN_Q, NHEAD_Q) for name in ("q", "o", "dout", "dq")}
    of_k = {name: dense(name, SEQLEN_K, NHEAD_K) for name in ("k", "v", "dk", "dv")}
    forward = FwdParams(
        dtype="float16", batch=BATCH, seqlen_q=SEQLEN_Q, seqlen_k=SEQLEN_K, nhead_q=NHEAD_Q, nhead_k=NHEAD_K,
        hdim_q=HDIM, hdim_v=HDIM, softmax_scale=0.125, mask="causal",
        lse=Lse(arena.address("lse"), NHEAD_Q * SEQLEN_Q, SEQLEN_Q),
        q=of_q["q"], k=of_k["k"], v=of_k["v"], o=of_q["o"],
        alibi_slopes=arena.address("slopes") if also == "slopes" else 0,
        bias=Bias(arena.address("bias"), 0, 0, 56) if also == "bias" else None,
    )  # fmt: skip
    return BwdParams(
        fwd=forward, dout=of_q["dout"], dq=of_q["dq"], dk=of_k["dk"], dv=of_k["dv"],
        workspace=arena.address("workspace"), workspace_bytes=6 * REGION,
    )  # fmt: skip


def _arena() -> Arena:
    arena = Arena(NAMES)
    arena.fill("lse", 4 + np.random.default_rng(9).standard_normal(REGION // 4), np.float32)
    arena.fill("slopes", np.full(REGION // 4, 0.25), np.float32)
    arena.upload()
    return arena


def _places(p: BwdParams) -> dict[str, tuple[int, Any, tuple[int, ...], tuple[int, ...]]]:
    """Address, type, shape and strides of each tensor that an accepted call looks at."""
    f, own = p.fwd, dtype_of(p.fwd.dtype)
    grad = dtype_of(p.grad_dtype or f.dtype)
    rows_q, rows_k = (f.batch, f.seqlen_q, f.nhead_q), (f.batch, f.seqlen_k, f.nhead_k)
    shapes = {"q": (*rows_q, f.hdim_q), "k": (*rows_k, f.hdim_q), "v": (*rows_k, f.hdim_v)}
    shapes |= {"o": (*rows_q, f.hdim_v), "dout": (*rows_q, f.hdim_v)}
    found: dict[str, Any] = {}
    for name, shape in {"dq": shapes["q"], "dk": shapes["k"], "dv": shapes["v"]}.items():
        strided = getattr(p, name)
        found[name] = (strided.data, grad, shape, (*strided[1:], 1))
    if 0 in (*rows_q, f.seqlen_k):  # then no input is looked at
        return found
    for name, shape in shapes.items():
        strided = p.dout if name == "dout" else getattr(f, name)
        found[name] = (strided.data, own, shape, (*strided[1:], 1))
    assert isinstance(f.lse, Lse)
    found["lse"] = (f.lse.data, np.float32, (f.batch, f.nhead_q, f.seqlen_q), (*f.lse[1:], 1))
    if f.alibi_slopes:
        strides = (f.alibi_stride_batch, 1)
        found["alibi_slopes"] = (f.alibi_slopes, np.float32, (f.batch, f.nhead_q), strides)
    if f.bias is not None and f.bias.data:
        scores = (f.batch, f.nhead_q, f.seqlen_q, f.seqlen_k)
        found["bias"] = (f.bias.data, own, scores, (*f.bias[1:], 1))
    return found


def _gradients(p: BwdParams, tensors: dict[str, Any]) -> dict[str, Any]:
    """Return the oracle's; NaN bounds, which judge nothing, where numbers are out of all range."""
    f = p.fwd
    options: dict[str, Any] = {"causal": f.mask.startswith("causal"), "top_left": f.mask.endswith("top_left")}
    if f.mask.startswith("window"):
        options["window_size"] = (f.window_left, f.window_right)
    options |= {name: tensors[name] for name in ("alibi_slopes", "bias") if name in tensors}
    if f.softcap:
        options["softcap"] = f.softcap
    if f.p_drop:
        rows = [
            philox.random_bytes(f.philox_seed, f.philox_offset, f.nhead_q, f.seqlen_q, f.seqlen_k, b)
            for b in range(f.batch)
        ]
        options["keep"] = np.stack(rows) <= philox.keep_at_most(f.p_drop)
        options["keep_scale"] = philox.keep_scale(f.p_drop)
    with np.errstate(all="ignore"):
        return gradients(
            *(tensors[name] for name in INPUTS),
            softmax_scale=f.softmax_scale,
            numerics=numerics_of(f.dtype, arch=this_arch()),
            **options,
        )


def _expected(arena: Arena, p: BwdParams) -> Callable[[Bytes, Any], None] | None:
    """Return the judge of a call; None if it must be refused, since a pointer is to no memory of a device."""
    places, nbytes = _places(p), pyfa_rocm.fmha_bwd_workspace_bytes(p)
    if nbytes:
        places["workspace"] = (p.workspace, np.uint8, (nbytes,), (1,))
    start = int(arena.device.data)
    if not all(
        start <= at < start + arena.host.size for at, _, shape, _ in places.values() if 0 not in shape
    ):
        return None
    tensors = {name: arena.view(*place) for name, place in places.items()}
    judged = tame(*(tensors[name] for name in INPUTS if name in tensors)) and p.fwd.softmax_scale < 2
    want = _gradients(p, tensors) if "q" in tensors else {}

    def judge(after: Bytes, may_differ: Any) -> None:
        for name in ("dq", "dk", "dv"):
            got, before = arena.view(*places[name], of=after), tensors[name].astype(np.float64)
            arena.mark(may_differ, places[name][0], got)
            if not got.size:
                continue
            value = (want[name].value if want else 0) + (before if p.accumulate else 0)
            bound = want[name].bound_in(got.dtype.name) if want else np.zeros(())
            bound = bound + (np.abs(value) * 2.0**-7 if p.accumulate else 0)
            if judged and np.isfinite(bound).all() and np.abs(value).max() < 1e4:
                assert (np.abs(got.astype(np.float64) - value) <= bound).all(), name
        if nbytes:
            arena.mark(may_differ, p.workspace, tensors["workspace"])

    return judge


@pytest.fixture(scope="module")
def arena() -> Arena:
    return _arena()


@pytest.fixture(scope="module")
def tried(arena: Arena) -> Tried:
    return Tried(
        arena, pyfa_rocm.fmha_bwd, pyfa_rocm.fmha_bwd_supported, lambda p: _expected(arena, p), WORDS
    )


FIELDS = [path for path in paths(_params(_arena())) if not NOT_HERE & set(path)]


def test_the_base_is_accepted(arena: Arena, tried: Tried) -> None:
    assert tried(_params(arena))


@pytest.mark.parametrize("path", FIELDS, ids=".".join)
def test_each_field(tried: Tried, path: Path) -> None:
    """Every field at every one of its values."""
    try_field(tried, _params, path, ())


@pytest.mark.parametrize("data", [0, 2, HOST.ctypes.data], ids=["null", "no_memory", "of_the_host"])
@pytest.mark.parametrize("name", ["bias", "alibi_slopes"])
def test_no_memory_of_a_bias(arena: Arena, tried: Tried, name: str, data: int) -> None:
    """NULL is no slopes; all else is refused."""
    value = Bias(data, 1, 2, 3) if name == "bias" else data
    assert tried(changed(_params(arena), ("fwd", name), value)) == (data == 0)


@settings(max_examples=EXAMPLES)
@given(data=st.data(), also=st.sampled_from(["", "slopes", "bias"]))
def test_several_fields(tried: Tried, data: st.DataObject, also: str) -> None:
    try_fields(tried, partial(_params, also=also), data, FIELDS, ())


@pytest.mark.parametrize("size", [0, 4, 8, 100, 2**31])
@pytest.mark.parametrize("whose", ["params", "fwd"])
def test_struct_size_of_no_version(arena: Arena, whose: str, size: int) -> None:
    ffi, lib = library.load()
    params, forward = bwd_to_c(_params(arena))
    (params if whose == "params" else forward).struct_size = size
    with pytest.raises(AbiMismatchError, match=f"struct_size.*{size}"):
        check(lib.fmha_bwd(params, ffi.NULL))
    with pytest.raises(AbiMismatchError, match=f"struct_size.*{size}"):
        check(lib.fmha_bwd_supported(params))
    assert np.array_equal(arena.device.to_numpy(), arena.host)


@pytest.mark.parametrize("tail", [0, 1])
def test_struct_from_the_future(arena: Arena, tail: int) -> None:
    """A longer struct is taken if what this library does not know is zero, else refused."""
    ffi, lib = library.load()
    base, _forward = bwd_to_c(_params(arena))
    known = ffi.sizeof("fmha_bwd_params")
    longer = ffi.new("char[]", known + 16)
    ffi.memmove(longer, base, known)
    params = ffi.cast("fmha_bwd_params *", longer)
    params.struct_size = known + 16
    longer[known + 8] = bytes([tail])
    if tail == 0:
        check(lib.fmha_bwd_supported(params))
        return
    with pytest.raises(AbiMismatchError, match=f"struct_size.*{known + 16}"):
        check(lib.fmha_bwd(params, ffi.NULL))
    assert np.array_equal(arena.device.to_numpy(), arena.host)


def test_no_struct(arena: Arena) -> None:
    ffi, lib = library.load()
    params, _forward = bwd_to_c(_params(arena))
    with pytest.raises(InvalidArgumentError, match=r"params.*NULL"):
        check(lib.fmha_bwd(ffi.NULL, ffi.NULL))
    params.fwd = ffi.NULL
    with pytest.raises(InvalidArgumentError, match=r"fwd.*NULL"):
        check(lib.fmha_bwd(params, ffi.NULL))
    params, _forward = bwd_to_c(_params(arena))
    params.reserved = 1
    with pytest.raises(InvalidArgumentError, match="reserved"):
        check(lib.fmha_bwd(params, ffi.NULL))
