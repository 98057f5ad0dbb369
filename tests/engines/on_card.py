# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tensors that claim to be on a card and have the software device's memory; graphs as torch.cuda has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from ml_dtypes import bfloat16

from pyfa_rocm import DeviceArray
from pyfa_rocm._runtime import hip

VIEWS = ("__getitem__", "expand", "flatten", "reshape", "split", "transpose", "unsqueeze", "view")


class OnCard(torch.Tensor):
    """A tensor "on cuda:0" on an array of the device, and its views; torch computes nothing with it."""

    array: DeviceArray
    like: torch.Tensor

    @staticmethod
    def __new__(cls, array: DeviceArray, like: torch.Tensor) -> OnCard:
        tensor: OnCard = torch.Tensor._make_wrapper_subclass(
            cls, like.shape, strides=like.stride(), storage_offset=like.storage_offset(), dtype=like.dtype,
            device="cuda:0",
        )  # fmt: skip
        tensor.array, tensor.like = array, like
        return tensor

    def data_ptr(self) -> int:
        return int(self.array.data + self.like.storage_offset() * self.like.element_size())

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make views without a device's driver, which torch for CPUs does not have."""
        if func.__name__ not in VIEWS:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        array, found = args[0].array, func(args[0].like, *args[1:], **(kwargs or {}))
        return cls(array, found) if isinstance(found, torch.Tensor) else [cls(array, x) for x in found]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call those of our operators that are registered for "CUDA"."""
        assert func.namespace == "pyfa_rocm", func
        keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)
        return func.redispatch(keys, *args, **(kwargs or {}))


def to_numpy(x: torch.Tensor) -> Any:
    return x.view(torch.int16).numpy().view(bfloat16) if x.dtype == torch.bfloat16 else x.numpy()


def on_card(x: torch.Tensor) -> OnCard:
    return OnCard(DeviceArray.from_numpy(to_numpy(x)), x.to("meta"))


class HipGraph:
    """torch.cuda.CUDAGraph of a ROCm build, on the software device."""

    executable: Any

    def __init__(self) -> None:
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1
        hip.call("hipGraphLaunch", self.executable, torch.cuda.current_stream().cuda_stream)


@contextmanager
def hip_capture(graph: HipGraph, pool: object, stream: Any) -> Iterator[None]:
    """torch.cuda.graph of a ROCm build. The pool is torch's allocator's: here `card` has memory already."""
    handle = stream.cuda_stream
    hip.call("hipStreamBeginCapture", handle, hip.module().hipStreamCaptureMode(0))
    yield
    recorded = hip.call("hipStreamEndCapture", handle)
    graph.executable = hip.call("hipGraphInstantiateWithFlags", recorded, 0)
    hip.call("hipGraphDestroy", recorded)
