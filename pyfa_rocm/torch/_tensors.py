# SPDX-License-Identifier: MIT OR Apache-2.0
"""torch tensors -> what the rest of the package understands; nothing is copied."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch

from pyfa_rocm._runtime import host_memory
from pyfa_rocm._runtime.tensor import Layout, Tensor, layout_of
from pyfa_rocm.device import current_device
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError

__all__ = [
    "describe", "device_index", "dtype_name", "dtype_named", "require_no_grad", "require_one_device",
    "require_tensors", "symbolic",
]  # fmt: skip


@functools.cache
def dtype_name(dtype: torch.dtype) -> str:
    """Return our name of a type of torch's, which is NumPy's if it has the type."""
    return str(dtype).removeprefix("torch.")


def dtype_named(name: str, argument: str) -> torch.dtype:
    """Return torch's type of a name, which this argument gave."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise InvalidArgumentError(f"{argument}: got {name!r}, expected the name of a type")
    return dtype


def require_tensors(**tensors: Any) -> None:
    """Raise unless all are torch's."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name}: got {type(tensor).__name__}, expected a torch.Tensor")


def describe(tensor: torch.Tensor, device: int) -> Tensor:
    """Describe a tensor that is on this device."""
    layout = layout_of(tuple(tensor.shape), tensor.stride(), dtype_name(tensor.dtype), device)
    return Tensor(tensor.data_ptr(), layout, False, None)


def symbolic(tensor: torch.Tensor) -> Tensor:
    """Describe a tensor without memory, whose sizes may be symbols."""
    return Tensor(0, Layout(tuple(tensor.shape), tensor.stride(), dtype_name(tensor.dtype), 0), False, None)


def require_one_device(tensors: Mapping[str, torch.Tensor | None]) -> torch.device:
    """Raise unless all tensors are where the first, q, is; return where that is."""
    device = None
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if device is None:
            device = tensor.device
        elif tensor.device != device:
            raise InvalidArgumentError(f"{name}: got a tensor on {tensor.device}, expected {device} as q")
    assert device is not None
    return device


def device_index(tensors: Mapping[str, torch.Tensor | None]) -> int:
    """Return the HIP device that computes with these tensors; all are on one device, or it is an error."""
    device = require_one_device(tensors)
    if device.type == "cuda":
        _require_rocm_build(device)
        return int(device.index)
    host_memory.require_software_device("q", "a CPU tensor")
    return current_device()


def _require_rocm_build(device: torch.device) -> None:
    if torch.version.hip is None:
        raise InvalidArgumentError(
            f"q: got a tensor on {device} of a PyTorch built for CUDA {torch.version.cuda}, expected one on "
            "an AMD GPU: install PyTorch for ROCm"
        )


def require_no_grad(tensors: Mapping[str, torch.Tensor | None]) -> None:
    """Raise if a result would have to have a gradient."""
    if not torch.is_grad_enabled():
        return
    for name, tensor in tensors.items():
        if tensor is not None and tensor.requires_grad:
            raise UnsupportedError(
                f"{name}: got a tensor with requires_grad=True, expected one without: there is no backward "
                "pass yet; call under torch.no_grad(), or with tensor.detach()"
            )
