# SPDX-License-Identifier: MIT OR Apache-2.0
"""torch as if it had a card: a stream, and tensors "there", in the software device's memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from ml_dtypes import bfloat16

import pyfa_rocm
from pyfa_rocm import DeviceArray
from pyfa_rocm._runtime import hip


class CardTensor(torch.Tensor):
    """A tensor "on cuda:0", as a ROCm build calls it, on an array of the device."""

    array: DeviceArray

    @staticmethod
    def __new__(cls, array: DeviceArray) -> CardTensor:
        dtype = getattr(torch, array.dtype.name)
        tensor: CardTensor = torch.Tensor._make_wrapper_subclass(
            cls, array.shape, strides=array.strides, dtype=dtype, device="cuda:0"
        )
        tensor.array = array
        return tensor

    def data_ptr(self) -> int:
        return self.array.data

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Allow only our operators, and call those registered for "CUDA"."""
        assert func.namespace == "pyfa_rocm", func
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
        return func.redispatch(keys, *args, **(kwargs or {}))


class CurrentStream:
    """torch.cuda.current_stream of a ROCm build."""

    def __init__(self) -> None:
        self.stream = pyfa_rocm.Stream()
        self.asked: list[object] = []

    def __call__(self, device: object = None) -> Any:
        self.asked.append(device)
        return self

    @property
    def cuda_stream(self) -> int:
        return self.stream.handle


class Allocator:
    """torch.empty of a ROCm build: it has memory already, so that it may be called during capture."""

    def __init__(self) -> None:
        self.empty = torch.empty
        self.pools = {
            dtype: DeviceArray.empty((2**21,), str(dtype).removeprefix("torch."))
            for dtype in (torch.bfloat16, torch.float32, torch.uint8)
        }
        self.taken = 0

    def __call__(self, shape: Any, *, dtype: torch.dtype, device: Any) -> torch.Tensor:
        if torch.device(device).type != "cuda":
            return self.empty(shape, dtype=dtype, device=device)
        shape = shape if isinstance(shape, tuple) else (shape,)
        start, self.taken = self.taken, self.taken + -(-math.prod(shape) // 512) * 512
        return CardTensor(self.pools[dtype][start : start + math.prod(shape)].reshape(*shape))

    def full(self, stream: CurrentStream, shape: Any, value: float, **options: Any) -> torch.Tensor:
        """torch.full: filled on the current stream, by pairs of elements of 16 bits."""
        x = self(shape, **options)
        if not isinstance(x, CardTensor):
            return x.fill_(value)
        word = np.float32(value).view(np.int32)
        assert value == 0 or x.dtype == torch.float32
        nbytes = x.array.nbytes
        hip.call("hipMemsetD32Async", x.array.data, int(word), nbytes // 4, stream.stream.handle)
        return x


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[CurrentStream]:
    """Have torch say that it was built for ROCm, allocate on the device, and have a stream of its own."""
    stream, allocator = CurrentStream(), Allocator()
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(torch, "empty", allocator)
    monkeypatch.setattr(torch, "full", partial(allocator.full, stream))
    monkeypatch.setattr(
        torch, "zeros", lambda shape, **options: allocator.full(stream, shape, 0.0, **options)
    )
    monkeypatch.setattr(torch.cuda, "current_stream", stream)
    yield stream
    stream.stream.close()


def on_card(tensor: torch.Tensor) -> CardTensor:
    """A copy of a tensor on the device."""
    numbers = tensor.contiguous()
    if tensor.dtype == torch.bfloat16:
        return CardTensor(DeviceArray.from_numpy(numbers.view(torch.int16).numpy().view(bfloat16)))
    return CardTensor(DeviceArray.from_numpy(numbers.numpy()))


def replayed(card: CurrentStream, call: Any) -> Any:
    """Capture a call's work, run the graph, and return its result; a call before loads the kernel."""
    call()
    card.stream.synchronize()
    card.asked.clear()
    hip.call("hipStreamBeginCapture", card.stream.handle, hip.module().hipStreamCaptureMode(0))
    result = call()
    graph = hip.call("hipStreamEndCapture", card.stream.handle)
    executable = hip.call("hipGraphInstantiateWithFlags", graph, 0)
    hip.call("hipGraphLaunch", executable, card.stream.handle)
    card.stream.synchronize()
    hip.call("hipGraphExecDestroy", executable)
    hip.call("hipGraphDestroy", graph)
    assert card.asked == [torch.device("cuda:0")]
    return result
