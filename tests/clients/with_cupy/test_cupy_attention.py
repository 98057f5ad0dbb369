# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention on CuPy's arrays and current stream.

A stream that the software device holds back shows which stream a call went to: what was enqueued there has
not happened until it is released.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
import pytest
import reference
from cases_judge import judge

import pyfa_rocm as p
from pyfa_rocm.device import current_stream

SHAPE = (2, 70, 2, 128)


class Only:
    """A view of a CuPy array with one of its two interfaces, of a type derived from CuPy's."""

    def __new__(cls, array: cupy.ndarray, interface: str) -> Any:
        def hidden(_: object) -> Any:
            raise AttributeError

        kind = type("Derived", (cupy.ndarray,), {interface: property(hidden)})
        return kind(array.shape, array.dtype, memptr=array.data, strides=array.strides)


WRAPS: dict[str, Callable[[Any], Any]] = {
    "dlpack": lambda x: Only(x, "__cuda_array_interface__"),
    "cuda_array_interface": lambda x: Only(x, "__dlpack__"),
    "both": lambda x: x,
}


def hold(stream: int, *, release: bool = False) -> None:
    device = ctypes.CDLL(p.runtime().path)
    function = device.fmha_emu_stream_release if release else device.fmha_emu_stream_hold
    assert function(ctypes.c_void_p(stream)) == 0


def attend(current: Any, wrap: Callable[[Any], Any], **options: Any) -> tuple[Any, Any]:
    """Attention on a held-back stream, after its inputs were copied there; return result and reference."""
    rng = np.random.default_rng(3)
    hosts = [rng.standard_normal(SHAPE, np.float32).astype(np.float16) for _ in range(3)]
    *arrays, out = (cupy.empty(SHAPE, np.float16) for _ in range(4))
    hold(current.ptr)
    try:
        with current:
            for array, host in zip(arrays, hosts, strict=True):
                array.set(host)
            result = p.flash_attn_func(*map(wrap, arrays), out=out, **options)
            assert result is out
    finally:
        hold(current.ptr, release=True)
    current.synchronize()
    return out, reference.attention(*hosts, numerics=reference.numerics_of("float16", arch="gfx942"))


@pytest.mark.parametrize("non_blocking", [False, True])
@pytest.mark.parametrize("wrap", WRAPS)
def test_current_stream(wrap: str, non_blocking: bool) -> None:
    """The kernel goes behind the copies of its inputs, though nothing but CuPy knows their stream."""
    stream = cupy.cuda.Stream(non_blocking=non_blocking)
    out, want = attend(stream, WRAPS[wrap])
    with stream:
        judge(want, cupy.asnumpy(out), None)


@pytest.mark.parametrize("wrap", WRAPS)
def test_another_stream_waits(wrap: str) -> None:
    """A stream given in the call wins, and is made to wait for CuPy's, in both protocols."""
    with p.Stream() as ours:
        out, want = attend(cupy.cuda.Stream(non_blocking=True), WRAPS[wrap], stream=ours)
        ours.synchronize()
        judge(want, cupy.asnumpy(out), None)


def test_null_and_per_thread_streams() -> None:
    """CuPy's default, HIP's null stream; and 2, hipStreamPerThread, which DLPack cannot say on ROCm."""
    out, want = attend(cupy.cuda.Stream.null, WRAPS["both"])
    judge(want, cupy.asnumpy(out), None)
    array = cupy.zeros(SHAPE, np.float16)
    for stream in (1, 2):
        out = p.flash_attn_func(array, array, array, stream=stream)
        p.synchronize()
        assert not out.to_numpy().any()


def test_results_are_on_the_same_stream() -> None:
    """An output allocated here is written where q's library works, so that library needs no wait."""
    stream = cupy.cuda.Stream(non_blocking=True)
    array = cupy.empty(SHAPE, np.float16)
    packed = cupy.empty((3, *SHAPE), np.float16).transpose(1, 2, 0, 3, 4)
    kv = packed[:, :, :2]
    with stream:
        assert current_stream(array) == stream.ptr
        results = [
            p.flash_attn_func(array, array, array),
            p.flash_attn_qkvpacked_func(packed),
            p.flash_attn_kvpacked_func(array, kv),
        ]
    assert current_stream(array) == 0
    assert {out._buffer.written_on for out in results} == {stream.ptr}
    for out in results:
        out.to_numpy()


def test_varlen_results_are_on_the_same_stream() -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    rows, kv, qkv = (cupy.empty((60, *parts, 2, 128), np.float16) for parts in ((), (2,), (3,)))
    starts = cupy.empty((3,), np.int32)
    starts.set(np.array([0, 20, 60], np.int32))
    with stream:
        results = [
            p.flash_attn_varlen_func(rows, rows, rows, starts, starts, 40, 40),
            p.flash_attn_varlen_qkvpacked_func(qkv, starts, 40),
            p.flash_attn_varlen_kvpacked_func(rows, kv, starts, starts, 40, 40),
        ]
    assert {out._buffer.written_on for out in results} == {stream.ptr}
    for out in results:
        out.to_numpy()


def test_other_libraries_have_the_null_stream() -> None:
    """Whatever CuPy does meanwhile."""
    array = p.DeviceArray.from_numpy(np.zeros(SHAPE, np.float16))
    with cupy.cuda.Stream():
        assert p.flash_attn_func(array, array, array)._buffer.written_on == 0
        assert current_stream(np.zeros(3)) == 0
