# SPDX-License-Identifier: MIT OR Apache-2.0
"""torch tensors and numbers -> what the rest of the package understands; only `autocast` copies."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import torch

from pyfa_rocm._call.lengths import LENGTHS
from pyfa_rocm._call.numbers import to_float
from pyfa_rocm._runtime import host_memory
from pyfa_rocm._runtime.tensor import Layout, Tensor, layout_of
from pyfa_rocm.device import current_device
from pyfa_rocm.errors import InvalidArgumentError, UnsupportedError

__all__ = [
    "FLOATS",
    "autocast",
    "describe",
    "device_index",
    "dtype_name",
    "dtype_named",
    "known_lengths",
    "real",
    "remedied",
    "require_one_device",
    "require_tensors",
    "symbolic",
]

FLOATS = (torch.float16, torch.bfloat16, torch.float32)


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
    """Raise unless all are torch's, and dense."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name}: got {type(tensor).__name__}, expected a torch.Tensor")
        if tensor.is_nested:
            raise UnsupportedError(
                f"{name}: got a nested tensor, expected a dense one: flash_attn_varlen_func takes the "
                "values() and, as int32, the offsets() of one whose layout is torch.jagged"
            )
        if tensor.layout is not torch.strided:
            raise UnsupportedError(
                f"{name}: got a tensor of layout {tensor.layout}, expected torch.strided: call to_dense()"
            )


def real(name: str, value: Any) -> Any:
    """Return a number as torch takes it for a float."""
    return value if isinstance(value, (int, float)) else to_float(name, value)


def autocast(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return what autocast would hand on, of an operator that it casts to its lower precision.

    Unlike torch, not of fp8, whose elements are nothing without their scales.
    """
    kind = tensors[0].device.type
    if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return tuple(x.to(dtype) if x.dtype in FLOATS else x for x in tensors)


# Complaints about q, k or v: an address, a stride, or the last dimension's stride.
_NOT_READABLE = re.compile(r"([qkv])(\.data = 0x|\.stride_\w+ = \d+: expected a multiple|: got stride )")


def remedied(error: InvalidArgumentError) -> InvalidArgumentError:
    """Return the error with what to call, if it is about a layout that a copy mends."""
    found = _NOT_READABLE.match(str(error))
    if found is None:
        return error
    name, what = found.groups()
    # Memory that is contiguous already is not copied by contiguous().
    call = f"{name}.clone()" if what.startswith(".data") else f"{name}.contiguous()"
    return InvalidArgumentError(f"{error}: pass {call}")


def describe(tensor: torch.Tensor, device: int) -> Tensor:
    """Describe a tensor that is on this device."""
    layout = layout_of(tuple(tensor.shape), tensor.stride(), dtype_name(tensor.dtype), device)
    return Tensor(tensor.data_ptr(), layout, False, None)


def symbolic(tensor: torch.Tensor) -> Tensor:
    """Describe a tensor without memory, whose sizes may be symbols."""
    return Tensor(0, Layout(tuple(tensor.shape), tensor.stride(), dtype_name(tensor.dtype), 0), False, None)


def known_lengths(tensors: Mapping[str, torch.Tensor | None]) -> dict[str, list[int]]:
    """Return the numbers of those of a call's lengths that are in host memory, by name."""
    return {
        name: x.tolist()
        for name in LENGTHS
        if (x := tensors.get(name)) is not None and x.device.type == "cpu"
    }


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
