# SPDX-License-Identifier: MIT OR Apache-2.0
"""CuPy's arrays and current stream, by a stand-in for its public interface; torch's current stream.

A stream that the software device holds back shows which stream a call went to: what was enqueued there has
not happened until it is released.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import reference
import torch
from adapters import cupy_standin
from cases_judge import judge

import pyfa_rocm as p
from pyfa_rocm.device import current_stream

SHAPE = (2, 70, 2, 128)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    module = cupy_standin.module()
    monkeypatch.setitem(sys.modules, "cupy", module)
    yield module
    module.cuda.Stream.null.use()


class Only:
    """A view of a CuPy array with one of its two interfaces, of a type derived from CuPy's."""

    def __new__(cls, array: cupy_standin.ndarray, interface: str) -> Any:
        def hidden(_: object) -> Any:
            raise AttributeError

        kind = type("Derived", (cupy_standin.ndarray,), {interface: property(hidden)})
        return kind(array._memory)


WRAPS: dict[str, Callable[[Any], Any]] = {
    "dlpack": lambda x: Only(x, "__cuda_array_interface__"),
    "cuda_array_interface": lambda x: Only(x, "__dlpack__"),
    "both": lambda x: x,
}


def hold(stream: int, *, release: bool = False) -> None:
    device = ctypes.CDLL(p.runtime().path)
    function = device.fmha_emu_stream_release if release else device.fmha_emu_stream_hold
    assert function(ctypes.c_void_p(stream)) == 0


def attend(cupy: Any, current: Any, wrap: Callable[[Any], Any], **options: Any) -> tuple[Any, Any]:
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
def test_current_stream(cupy: Any, wrap: str, non_blocking: bool) -> None:
    """The kernel goes behind the copies of its inputs, though nothing but CuPy knows their stream."""
    stream = cupy.cuda.Stream(non_blocking=non_blocking)
    out, want = attend(cupy, stream, WRAPS[wrap])
    with stream:
        judge(want, cupy.asnumpy(out), None)


@pytest.mark.parametrize("wrap", WRAPS)
def test_another_stream_waits(cupy: Any, wrap: str) -> None:
    """A stream given in the call wins, and is made to wait for CuPy's, in both protocols."""
    with p.Stream() as ours:
        out, want = attend(cupy, cupy.cuda.Stream(non_blocking=True), WRAPS[wrap], stream=ours)
        ours.synchronize()
        judge(want, cupy.asnumpy(out), None)


def test_null_and_per_thread_streams(cupy: Any) -> None:
    """CuPy's default, HIP's null stream; and 2, hipStreamPerThread, which DLPack cannot say on ROCm."""
    out, want = attend(cupy, cupy.cuda.Stream.null, WRAPS["both"])
    judge(want, cupy.asnumpy(out), None)
    array = cupy.empty(SHAPE, np.float16)
    for stream in (1, 2):
        out = p.flash_attn_func(array, array, array, stream=stream)
        p.synchronize()
        assert not out.to_numpy().any()


def test_results_are_on_the_same_stream(cupy: Any) -> None:
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


def test_varlen_results_are_on_the_same_stream(cupy: Any) -> None:
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


def test_other_libraries_have_the_null_stream(cupy: Any) -> None:
    """Whatever CuPy does meanwhile."""
    array = p.DeviceArray.from_numpy(np.zeros(SHAPE, np.float16))
    with cupy.cuda.Stream():
        assert p.flash_attn_func(array, array, array)._buffer.written_on == 0
        assert current_stream(np.zeros(3)) == 0
        assert current_stream(torch.zeros(3)) == 0


@pytest.mark.parametrize("stream", [-1, True, "1", 2.0])
def test_stream_of_the_interface_is_checked(stream: object) -> None:
    memory = p.DeviceArray.from_numpy(np.zeros(SHAPE, np.float16))
    interface = memory.__cuda_array_interface__ | {"stream": stream}
    array = type("Array", (), {"__cuda_array_interface__": interface})()
    with pytest.raises(p.InvalidArgumentError, match="q: __cuda_array_interface__ has the stream"):
        p.flash_attn_func(array, array, array)


def test_torch_stream_of_the_tensors_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch has no GPU here: its public functions are asked as they would be with one."""
    asked = []

    class Tensor(torch.Tensor):
        is_cuda = property(lambda _: True)

    class Current:
        cuda_stream = 4711

    def current(device: Any) -> Current:
        asked.append(device)
        return Current()

    monkeypatch.setattr(torch.cuda, "current_stream", current)
    tensor = torch.zeros(3).as_subclass(Tensor)
    assert current_stream(tensor) == 4711
    assert asked == [tensor.device]


@pytest.mark.parametrize("q", [torch.nn.Linear(2, 2), torch.Size((1, 2)), torch.float16], ids=str)
def test_what_is_no_array_is_refused_as_such(q: Any) -> None:
    array = p.DeviceArray.from_numpy(np.zeros(SHAPE, np.float16))
    with pytest.raises(TypeError, match=r"q: got \w+, expected a pyfa_rocm\.DeviceArray or"):
        p.flash_attn_func(q, array, array)
