# SPDX-License-Identifier: MIT OR Apache-2.0
"""Any fields in `fmha_bwd_params`: an error that names one, or the gradients of what they say.

All tensors lie in one allocation. What the library accepts is read back out of the struct, field by field, in
NumPy, so that a field that has become another legal one is judged as well: its gradients against the
oracle's, and every byte outside of them against what it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import hypothesis_profile
import numpy as np
import numpy.typing as npt
import philox
import pytest
from built import this_arch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import gradients, numerics_of
from strict import forgiven

import pyfa_rocm
from pyfa_rocm import (
    AbiMismatchError,
    Bias,
    BwdParams,
    DeviceArray,
    FmhaError,
    FwdParams,
    InvalidArgumentError,
    Lse,
    Strided,
    UnsupportedError,
)
from pyfa_rocm._call.backward import bwd_to_c
from pyfa_rocm._runtime import library
from pyfa_rocm._runtime.library import check
from pyfa_rocm.array import dtype_of

EXAMPLES = hypothesis_profile.EXAMPLES // 5
BATCH, SEQLEN_Q, SEQLEN_K, NHEAD_Q, NHEAD_K, HDIM = 2, 40, 50, 4, 2, 64
REGION = 1 << 17
NAMES = ("q", "k", "v", "o", "dout", "lse", "slopes", "bias", "dq", "dk", "dv", "workspace")
TENSORS = ("q", "k", "v", "o", "dout", "dq", "dk", "dv")
SIZE = (len(NAMES) + 3) * REGION  # the last, the workspace, is larger
HOST = np.zeros(1 << 12, np.float16)
Bytes = npt.NDArray[np.uint8]

INTEGERS = [0, 1, -1, 2, 3, 7, 8, 64, 65536, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, -1.0, 1e-45, 0.01, 0.5, 1.0, float("inf"), float("-inf"), float("nan"), 3e38]
SIZES = ("batch", "seqlen_q", "seqlen_k", "nhead_q", "nhead_k", "hdim_q", "hdim_v")
WORDS = re.compile(
    r"dtype|batch|seqlen|nhead|hdim|softmax_scale|mask|window_|\bq\b|\bk\b|\bv\b|\bo\b|dout|\bd[qkv]\b|lse"
    r"|softcap|bias|alibi|p_drop|philox|kernel|workspace|accumulate|deterministic|flags|params|descale|total_"
)


class OutsideError(Exception):
    """A tensor leaves the arena."""


class Arena:
    """One allocation with a region for each tensor, filled with numbers that every type can read."""

    def __init__(self) -> None:
        rng = np.random.default_rng(9)
        self.host: Bytes = rng.standard_normal(SIZE // 2).astype(np.float16).view(np.uint8)
        lse = self.region("lse").view(np.float32)
        lse[:] = 4 + rng.standard_normal(lse.size)
        self.region("slopes").view(np.float32)[:] = 0.25
        self.device = DeviceArray.from_numpy(self.host)

    def region(self, name: str) -> Bytes:
        at = NAMES.index(name) * REGION
        return self.host[at : at + REGION]

    def address(self, name: str) -> int:
        return int(self.device.data) + NAMES.index(name) * REGION

    def view(self, data: int, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        """Return a tensor of the struct as a view of the host's copy; strides in elements."""
        return _view(self.host, data - int(self.device.data), np.dtype(dtype), shape, strides)


def _view(host: Bytes, at: int, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    if 0 in shape:
        return np.zeros(shape, dtype)
    steps = [0 if n == 1 else s * dtype.itemsize for n, s in zip(shape, strides, strict=True)]
    end = at + sum((n - 1) * s for n, s in zip(shape, steps, strict=True)) + dtype.itemsize
    if not 0 <= at < end <= host.size:
        raise OutsideError
    return np.ndarray(shape, dtype, host.data, at, steps)


def _params(arena: Arena) -> BwdParams:
    def dense(name: str, seqlen: int, heads: int) -> Strided:
        return Strided(arena.address(name), seqlen * heads * HDIM, heads * HDIM, HDIM)

    of_q = {name: dense(name, SEQLEN_Q, NHEAD_Q) for name in ("q", "o", "dout", "dq")}
    of_k = {name: dense(name, SEQLEN_K, NHEAD_K) for name in ("k", "v", "dk", "dv")}
    forward = FwdParams(
        dtype="float16", batch=BATCH, seqlen_q=SEQLEN_Q, seqlen_k=SEQLEN_K, nhead_q=NHEAD_Q, nhead_k=NHEAD_K,
        hdim_q=HDIM, hdim_v=HDIM, softmax_scale=0.125, mask="causal",
        lse=Lse(arena.address("lse"), NHEAD_Q * SEQLEN_Q, SEQLEN_Q),
        q=of_q["q"], k=of_k["k"], v=of_k["v"], o=of_q["o"],
    )  # fmt: skip
    return BwdParams(
        fwd=forward, dout=of_q["dout"], dq=of_q["dq"], dk=of_k["dk"], dv=of_k["dv"],
        workspace=arena.address("workspace"), workspace_bytes=4 * REGION,
    )  # fmt: skip


@dataclass(frozen=True)
class Field:
    """A field by its path, and values for it, as a function of the value that makes sense."""

    path: tuple[str, ...]
    values: Callable[[Any, Arena], list[Any]]


def _integers(value: int, _: Arena) -> list[Any]:
    return [*INTEGERS, value + 1, value - 1, value + 8, 2 * value, value // 2, -value]


def _addresses(value: int, arena: Arena) -> list[Any]:
    end = arena.address(NAMES[0]) + SIZE
    others = [arena.address(name) for name in NAMES]
    wrong = [0, 1, 2**64 - 16, HOST.ctypes.data, end - 16, end - 2 * REGION, value - 16]
    return [*wrong, *others, *(value + n for n in (1, 2, 4, 8, 16, 256))]


def _chosen(*values: Any) -> Callable[[Any, Arena], list[Any]]:
    return lambda *_: list(values)


def _fields() -> list[Field]:
    """Every field but those that name memory whose contents are lengths, which the library cannot see."""
    found = [Field(("fwd", name), _integers) for name in (*SIZES, "window_left", "window_right")]
    for name in TENSORS:
        owner = ("fwd", name) if name in "qkvo" else (name,)
        found += [Field((*owner, part), _integers) for part in Strided._fields[1:]]
        found.append(Field((*owner, "data"), _addresses))
    dtypes = _chosen("float16", "bfloat16", "float32", "float8_e4m3fnuz", "int8", None, 3)
    found += [
        Field(("fwd", "dtype"), dtypes),
        Field(("fwd", "o_dtype"), dtypes),
        Field(("grad_dtype",), dtypes),
        Field(
            ("fwd", "mask"),
            _chosen("none", "causal", "causal_top_left", "window", "window_top_left", "diagonal", None),
        ),
        Field(("fwd", "softmax_scale"), _chosen(*FLOATS)),
        Field(("fwd", "softcap"), _chosen(*FLOATS)),
        Field(("fwd", "p_drop"), _chosen(*FLOATS)),
        Field(("fwd", "q_descale"), _chosen(*FLOATS)),
        Field(("fwd", "lse", "data"), _addresses),
        Field(("fwd", "lse", "stride_batch"), _integers),
        Field(("fwd", "lse", "stride_head"), _integers),
        Field(("fwd", "alibi_slopes"), lambda _, arena: [0, arena.address("slopes"), HOST.ctypes.data, 2]),
        Field(("fwd", "alibi_stride_batch"), _integers),
        Field(
            ("fwd", "bias"),
            lambda _, arena: [
                Bias(arena.address("bias"), 0, 0, 56), Bias(HOST.ctypes.data, 0, 0, 0), Bias(0, 1, 2, 3),
            ],
        ),
        # Not looked at in the forward struct.
        Field(("fwd", "kernel"), _integers),
        Field(("fwd", "workspace"), _addresses),
        Field(("fwd", "workspace_bytes"), _integers),
        Field(("fwd", "flags"), _chosen(2, 2**63)),
        Field(("accumulate",), _integers),
        Field(("deterministic",), _integers),
        Field(("kernel",), _integers),
        Field(("workspace",), _addresses),
        Field(("workspace_bytes",), _integers),
        Field(("flags",), _chosen(2, 2**63, -1)),
    ]  # fmt: skip
    return found


FIELDS = _fields()


def _changed(owner: Any, path: tuple[str, ...], value: Any) -> Any:
    """Return an object with another value in the field at a path."""
    name, *rest = path
    if rest:
        value = _changed(getattr(owner, name), tuple(rest), value)
    fields: dict[str, Any] = {name: value}
    return owner._replace(**fields) if hasattr(owner, "_replace") else replace(owner, **fields)


def _tensors(arena: Arena, p: BwdParams) -> dict[str, Any]:
    """Return every tensor of an accepted struct: (batch, seqlen, nhead, hdim), or lse's."""
    f, grad = p.fwd, np.dtype(dtype_of(p.grad_dtype or p.fwd.dtype))
    own = np.dtype(dtype_of(f.dtype))
    rows_q, rows_k = (f.batch, f.seqlen_q, f.nhead_q), (f.batch, f.seqlen_k, f.nhead_k)
    shapes = {
        "q": (*rows_q, f.hdim_q), "k": (*rows_k, f.hdim_q), "v": (*rows_k, f.hdim_v),
        "o": (*rows_q, f.hdim_v),
    }  # fmt: skip
    shapes |= {"dout": shapes["o"], "dq": shapes["q"], "dk": shapes["k"], "dv": shapes["v"]}
    found = {}
    idle = 0 in (f.batch, f.nhead_q, f.seqlen_q, f.seqlen_k)  # then no input is looked at
    for name, shape in shapes.items():
        if idle and name not in ("dq", "dk", "dv"):
            found[name] = np.broadcast_to(np.zeros((), own), shape)
            continue
        strided = getattr(f if name in "qkvo" else p, name)
        dtype = grad if name in ("dq", "dk", "dv") else own
        found[name] = arena.view(strided.data, dtype, shape, (*strided[1:], 1))
    lse, of_lse = f.lse or Lse(0, 0, 0), (f.batch, f.nhead_q, f.seqlen_q)
    zeros = np.broadcast_to(np.zeros((), np.float32), of_lse)
    found["lse"] = zeros if idle else arena.view(lse.data, np.float32, of_lse, (*lse[1:], 1))
    if f.alibi_slopes and not idle:
        found["alibi_slopes"] = arena.view(
            f.alibi_slopes, np.float32, (f.batch, f.nhead_q), (f.alibi_stride_batch, 1)
        )
    if f.bias is not None and f.bias.data and not idle:
        scores = (f.batch, f.nhead_q, f.seqlen_q, f.seqlen_k)
        found["bias"] = arena.view(f.bias.data, own, scores, (*f.bias[1:], 1))
    return found


def _expected(p: BwdParams, tensors: dict[str, Any]) -> dict[str, Any]:
    """Return the oracle's gradients; NaN bounds, which judge nothing, where numbers are out of all range."""
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
    return gradients(
        *(tensors[name] for name in ("q", "k", "v", "o", "lse", "dout")), softmax_scale=f.softmax_scale,
        numerics=numerics_of(f.dtype, arch=this_arch()), **options,
    )  # fmt: skip


def _judge(arena: Arena, p: BwdParams, after: Bytes) -> None:
    """Check an accepted call: its gradients, if 16 bits can hold the numbers, and all other bytes."""
    before = arena.host
    tensors = _tensors(arena, p)
    held = [tensors[name].astype(np.float64) for name in ("q", "k", "v", "o", "dout", "lse")]
    tame = all(np.isfinite(x).all() and np.abs(x).max(initial=0) < 100 for x in held)
    may_differ = np.zeros(before.size, np.bool_)
    with np.errstate(all="ignore"):
        want = _expected(p, tensors)
    start = int(arena.device.data)
    for name in ("dq", "dk", "dv"):
        view, strided = tensors[name], getattr(p, name)
        if not view.size:
            continue
        place = (strided.data - start, view.dtype, view.shape, (*strided[1:], 1))
        got = _view(after, *place).astype(np.float64)
        for byte in range(view.dtype.itemsize):  # of each element
            steps = tuple(s if n > 1 else 0 for n, s in zip(view.shape, view.strides, strict=True))
            np.ndarray(view.shape, np.bool_, may_differ.data, place[0] + byte, steps)[...] = True
        value = want[name].value + (view.astype(np.float64) if p.accumulate else 0)
        bound = want[name].bound_in(view.dtype.name) + (np.abs(value) * 2.0**-7 if p.accumulate else 0)
        if tame and np.isfinite(bound).all() and np.abs(value).max() < 1e4 and p.fwd.softmax_scale < 2:
            assert (np.abs(got - value) <= bound).all(), name
    if p.workspace:
        at = p.workspace - start
        may_differ[max(at, 0) : max(at + pyfa_rocm.fmha_bwd_workspace_bytes(p), 0)] = True
    assert np.array_equal(before[~may_differ], after[~may_differ]), "other bytes were written"


@pytest.fixture(scope="module")
def arena() -> Arena:
    return Arena()


def _leaves_memory(arena: Arena, params: BwdParams) -> bool:
    """Whether a call that the library takes for right begins in the arena and ends outside.

    It asks HIP whose memory a pointer is, and not how far that goes: this is the caller's part.
    """
    try:
        pyfa_rocm.fmha_bwd_supported(params)
        nbytes = pyfa_rocm.fmha_bwd_workspace_bytes(params)
    except FmhaError:
        return False
    addresses = [getattr(params.fwd if name in "qkvo" else params, name).data for name in TENSORS]
    addresses += [params.fwd.lse.data] if params.fwd.lse else []
    start = int(arena.device.data)
    if not all(start <= address < start + arena.host.size for address in addresses):
        return False  # to be refused
    try:
        _tensors(arena, params)
    except OutsideError:
        return True
    return bool(nbytes) and params.workspace >= start and params.workspace + nbytes > start + arena.host.size


def _tried(arena: Arena, params: BwdParams) -> bool:
    """Call fmha_bwd and judge what comes of it; whether it was accepted. The arena is as before again."""
    if _leaves_memory(arena, params):
        return False
    refusal = ""
    try:
        with forgiven():
            pyfa_rocm.fmha_bwd(params)
            pyfa_rocm.synchronize()
    except (InvalidArgumentError, UnsupportedError) as error:
        refusal = str(error)
    after = arena.device.to_numpy()
    try:
        if not refusal:
            _judge(arena, params, after)
            return True
        assert WORDS.search(refusal), f"the message names no field: {refusal}"
        assert np.array_equal(after, arena.host), "something was written"
        return False
    finally:
        if not np.array_equal(after, arena.host):
            arena.device = DeviceArray.from_numpy(arena.host)


def test_the_base_is_accepted(arena: Arena) -> None:
    assert _tried(arena, _params(arena))


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: ".".join(field.path))
def test_each_field(arena: Arena, field: Field) -> None:
    """Every field at every one of its values."""
    count = len(_values(arena, _params(arena), field))
    outcomes = set()
    for i in range(count):
        params = _params(arena)  # anew: the arena moves when something was written
        value = _values(arena, params, field)[i]
        print(f"{'.'.join(field.path)} = {value!r}")
        outcomes.add(_tried(arena, _changed(params, field.path, value)))
    assert outcomes <= {True, False}


def _values(arena: Arena, params: BwdParams, field: Field) -> list[Any]:
    held: Any = params
    for name in field.path:
        held = getattr(held, name)
    return field.values(held, arena)


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_several_fields(arena: Arena, data: st.DataObject) -> None:
    params = _params(arena)
    for field in data.draw(st.lists(st.sampled_from(FIELDS), min_size=2, max_size=4)):
        try:
            values = _values(arena, params, field)
        except (AttributeError, TypeError):  # of what another field has become
            continue
        i = data.draw(st.integers(0, len(values) - 1))
        print(f"{'.'.join(field.path)} = {values[i]!r}")
        params = _changed(params, field.path, values[i])
    _tried(arena, params)


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
