# SPDX-License-Identifier: MIT OR Apache-2.0
"""Bad input: each gives its status and a message that names it, and no memory of the device is touched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cases import Case, Placement

import pyfa_rocm
from pyfa_rocm import (
    AbiMismatchError,
    DeviceArray,
    FmhaError,
    FwdParams,
    InvalidArgumentError,
    Lse,
    UnsupportedError,
    flash_attn_func,
)
from pyfa_rocm._call.c_struct import to_c
from pyfa_rocm._runtime import library
from pyfa_rocm._runtime.library import check

CASE = Case(batch=2, seqlen_q=40, seqlen_k=50, nhead_k=2, ratio=2, hdim=64, dtype="float16")
HOST = np.zeros(1 << 18, np.float16)
Change = Callable[[FwdParams], dict[str, Any]]


def _tensor(name: str, **fields: int) -> Change:
    return lambda p: {name: getattr(p, name)._replace(**fields)}


def _shifted(name: str, nbytes: int) -> Change:
    return lambda p: {name: getattr(p, name)._replace(data=getattr(p, name).data + nbytes)}


RAW: list[tuple[str, Change, type[FmhaError], list[str]]] = [
    *((f"null {n}", _tensor(n, data=0), InvalidArgumentError, [n, "NULL"]) for n in "qkvo"),
    *((f"misaligned {n}", _shifted(n, 2), InvalidArgumentError, [n, "aligned to 16"]) for n in "qkvo"),
    ("misaligned lse", _shifted("lse", 2), InvalidArgumentError, ["lse", "aligned to 4"]),
    *(
        (f"host {n}", _tensor(n, data=HOST.ctypes.data), InvalidArgumentError, [n, "device memory"])
        for n in ("q", "k", "v", "o", "lse")
    ),
    *(
        (f"negative {n}.{s}", _tensor(n, **{s: -64}), InvalidArgumentError, [f"{n}.{s}", "-64", "0 or more"])
        for n in "qkvo"
        for s in ("stride_batch", "stride_seqlen", "stride_head")
    ),
    (
        "odd stride",
        _tensor("k", stride_seqlen=132),
        InvalidArgumentError,
        ["k.stride_seqlen", "132", "multiple of 8"],
    ),
    ("huge stride", _tensor("v", stride_seqlen=2**31), UnsupportedError, ["v.stride_seqlen", str(2**31)]),
    ("rows of o overlap", _tensor("o", stride_seqlen=8), InvalidArgumentError, ["o.stride", "overlap"]),
    ("broadcast o", _tensor("o", stride_batch=0), InvalidArgumentError, ["o.stride_batch", "overlap"]),
    *(
        (
            f"o is {n}",
            lambda p, n=n: {"o": p.o._replace(data=getattr(p, n).data)},
            InvalidArgumentError,
            ["o is written", "overlaps"],
        )
        for n in "qkv"
    ),
    (
        "lse is o",
        lambda p: {"lse": Lse(p.o.data, 160, 40)},
        InvalidArgumentError,
        ["lse", "overlaps", "o"],
    ),
    ("hdim 0", lambda _: {"hdim_q": 0}, InvalidArgumentError, ["hdim_q", "0", "1 or more"]),
    (
        "hdim 60",
        lambda _: {"hdim_q": 60},
        UnsupportedError,
        ["hdim_q = 60", "nearest", "64", "zeros make the tensors fit"],
    ),
    ("heads", lambda _: {"nhead_q": 3}, InvalidArgumentError, ["nhead_q", "3", "multiple of nhead_k"]),
    ("no key heads", lambda _: {"nhead_k": 0}, InvalidArgumentError, ["nhead_k", "0"]),
    *(
        (f"negative {n}", lambda _, n=n: {n: -1}, InvalidArgumentError, [n, "-1"])
        for n in ("batch", "seqlen_q", "seqlen_k", "nhead_q", "nhead_k", "hdim_q", "hdim_v")
    ),
    ("huge seqlen", lambda _: {"seqlen_k": 2**40}, UnsupportedError, ["seqlen_k", str(2**40)]),
    ("beyond int64", lambda _: {"batch": 2**63}, InvalidArgumentError, ["batch", str(2**63)]),
    ("no integer", lambda _: {"batch": "two"}, InvalidArgumentError, ["batch", "two"]),
    ("dtype", lambda _: {"dtype": "int8"}, InvalidArgumentError, ["dtype", "int8", "bfloat16"]),
    ("mask", lambda _: {"mask": "diagonal"}, InvalidArgumentError, ["mask", "diagonal", "causal"]),
    *(
        (f"scale {x}", lambda _, x=x: {"softmax_scale": x}, InvalidArgumentError, ["softmax_scale", "finite"])
        for x in (0.0, float("inf"), float("nan"))
    ),
    *(
        (f"negative {n}", lambda _, n=n: {"mask": "window", n: -1}, InvalidArgumentError, [n, "-1"])
        for n in ("window_left", "window_right")
    ),
]


def _assert_refused(call: Callable[[], object], error: type[Exception], words: list[str]) -> None:
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error, f"{caught.value!r} is a {error.__name__} of another status"
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(("change", "error", "words"), [row[1:] for row in RAW], ids=[row[0] for row in RAW])
def test_raw(change: Change, error: type[FmhaError], words: list[str]) -> None:
    placement = Placement(CASE)
    params = placement.params()
    bad = replace(params, **change(params))
    _assert_refused(lambda: pyfa_rocm.fmha_fwd(bad), error, words)
    pyfa_rocm.synchronize()
    assert placement.unchanged()
    # The same answer when only asked, where addresses may be left out.
    if "NULL" in words:
        return
    _assert_refused(lambda: pyfa_rocm.fmha_fwd_kernel(bad), error, words)
    _assert_refused(lambda: pyfa_rocm.fmha_prepare(bad), error, words)


@pytest.mark.parametrize(
    ("hdim", "hint"), [(60, "columns of zeros"), (264, "hdim_q up to"), (1024, "hdim_q up to")]
)
def test_head_dim_without_a_kernel(hdim: int, hint: str) -> None:
    placement = Placement(replace(CASE, hdim=hdim))
    words = [f"hdim_q = {hdim}, hdim_v = {hdim}", "the nearest", hint]
    _assert_refused(lambda: pyfa_rocm.fmha_fwd(placement.params()), UnsupportedError, words)
    assert placement.unchanged()


def test_statuses_are_the_headers() -> None:
    """Exceptions carry the numbers that the C header gives the statuses."""
    _, lib = library.load()
    for cls, name in (
        (InvalidArgumentError, "INVALID_ARGUMENT"),
        (UnsupportedError, "UNSUPPORTED"),
        (pyfa_rocm.HipError, "HIP_ERROR"),
        (pyfa_rocm.InternalError, "INTERNAL"),
        (AbiMismatchError, "ABI_MISMATCH"),
    ):
        assert cls.status == getattr(lib, f"FMHA_{name}")


@pytest.mark.parametrize("size", [0, 8, 100, 2**31])
def test_struct_size_of_no_version(size: int) -> None:
    placement = Placement(CASE)
    ffi, lib = library.load()
    params = to_c(placement.params())
    params.struct_size = size
    _assert_refused(
        lambda: check(lib.fmha_fwd(params, ffi.NULL)),
        AbiMismatchError,
        ["struct_size", str(size), "expected"],
    )
    assert placement.unchanged()


@pytest.mark.parametrize("tail", [0, 1])
def test_struct_from_the_future(tail: int) -> None:
    """A longer struct is taken if what this library does not know is zero, else refused."""
    placement = Placement(CASE)
    ffi, lib = library.load()
    known = ffi.sizeof("fmha_fwd_params")
    longer = ffi.new("char[]", known + 16)
    ffi.memmove(longer, to_c(placement.params()), known)
    params = ffi.cast("fmha_fwd_params *", longer)
    params.struct_size = known + 16
    longer[known + 8] = bytes([tail])
    if tail == 0:
        check(lib.fmha_fwd(params, ffi.NULL))
        return
    words = ["struct_size", str(known + 16), str(known + 8)]
    _assert_refused(lambda: check(lib.fmha_fwd(params, ffi.NULL)), AbiMismatchError, words)
    assert placement.unchanged()


def test_null_params() -> None:
    ffi, lib = library.load()
    _assert_refused(lambda: check(lib.fmha_fwd(ffi.NULL, ffi.NULL)), InvalidArgumentError, ["params", "NULL"])


def _arrays() -> dict[str, Any]:
    shapes = {"q": (2, 40, 4, 64), "k": (2, 50, 2, 64), "v": (2, 50, 2, 64), "out": (2, 40, 4, 64)}
    return {name: DeviceArray.from_numpy(np.full(shape, 7, np.float16)) for name, shape in shapes.items()}


def _new(shape: tuple[int, ...], dtype: str = "float16") -> DeviceArray:
    return DeviceArray.empty(shape, dtype)


FLASH: list[tuple[str, Callable[[dict[str, Any]], dict[str, Any]], type[Exception], list[str]]] = [
    ("3-d q", lambda a: {"q": a["q"][0]}, InvalidArgumentError, ["q: got shape (40, 4, 64)", "4 dimensions"]),
    ("k batch", lambda a: {"k": a["k"][:1]}, InvalidArgumentError,
     ["k: got shape (1, 50, 2, 64)", "(2, 50, 2, 64)"]),
    ("v seqlen", lambda a: {"v": a["v"][:, :9]}, InvalidArgumentError,
     ["v: got shape (2, 9, 2, 64)", "fit k"]),
    ("v heads", lambda a: {"v": a["v"][:, :, :1]}, InvalidArgumentError, ["v: got shape (2, 50, 1, 64)"]),
    ("k hdim", lambda _: {"k": _new((2, 50, 2, 32))}, InvalidArgumentError,
     ["k: got shape (2, 50, 2, 32)", "(2, 50, 2, 64)"]),
    ("k dtype", lambda _: {"k": _new((2, 50, 2, 64), "bfloat16")}, InvalidArgumentError,
     ["k: got dtype bfloat16", "float16"]),
    ("int32", lambda _: {n: _new((2, 50, 2, 64), "int32") for n in "qkv"}, UnsupportedError,
     ["q: got dtype int32", "bfloat16"]),
    ("out shape", lambda _: {"out": _new((2, 40, 4, 128))}, InvalidArgumentError,
     ["out: got shape (2, 40, 4, 128)", "(2, 40, 4, 64)"]),
    ("out dtype", lambda _: {"out": _new((2, 40, 4, 64), "bfloat16")}, InvalidArgumentError,
     ["out: got dtype bfloat16"]),
    ("last dimension", lambda _: {"q": _new((2, 40, 64, 4)).transpose(0, 1, 3, 2)}, InvalidArgumentError,
     ["q: got stride 4 in the last dimension", "contiguous"]),
    ("numpy q", lambda _: {"q": np.zeros((2, 40, 4, 64), np.float16)}, InvalidArgumentError,
     ["q: got an array in CPU memory", "from_numpy"]),
    ("list", lambda _: {"v": [1.0]}, TypeError, ["v: got list", "__dlpack__"]),
    ("window", lambda _: {"window_size": 5}, InvalidArgumentError, ["window_size", "5", "two integers"]),
    ("stream", lambda _: {"stream": "fast"}, TypeError, ["stream: got str"]),
    ("heads", lambda a: {"q": a["q"][:, :, :3], "out": None}, InvalidArgumentError, ["nhead_q", "3"]),
    ("in place", lambda a: {"out": a["q"]}, InvalidArgumentError, ["o is written but overlaps q"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "error", "words"), [row[1:] for row in FLASH], ids=[row[0] for row in FLASH]
)
def test_flash(
    change: Callable[[dict[str, Any]], dict[str, Any]], error: type[Exception], words: list[str]
) -> None:
    arrays = _arrays()
    arguments = arrays | change(arrays)
    _assert_refused(lambda: flash_attn_func(**arguments), error, words)
    for array in arrays.values():
        assert (array.to_numpy() == 7).all()
