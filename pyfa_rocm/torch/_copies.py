# SPDX-License-Identifier: MIT OR Apache-2.0
"""Copies, for the functions that take what the kernels cannot read."""

from __future__ import annotations

import torch

from pyfa_rocm._call.numbers import HDIM_MULTIPLE

__all__ = ["readable"]

_ALIGNMENT_BYTES = 16


def readable(x: torch.Tensor) -> torch.Tensor:
    """Return a (..., hdim) tensor as kernels can read it: itself, or a copy, which zeros may make wider.

    The last dimension is contiguous and a multiple of 8 long; addresses of rows are multiples of 16 bytes.
    """
    hdim = x.shape[-1]
    missing = -hdim % HDIM_MULTIPLE if hdim else HDIM_MULTIPLE
    if missing:
        return torch.nn.functional.pad(x, (0, missing)).contiguous()
    rows = zip(x.shape[:-1], x.stride()[:-1], strict=True)
    aligned = all(n <= 1 or stride * x.itemsize % _ALIGNMENT_BYTES == 0 for n, stride in rows)
    if aligned and x.stride(-1) == 1 and _start_bytes(x) % _ALIGNMENT_BYTES == 0:
        return x
    return x.clone(memory_format=torch.contiguous_format)


def _start_bytes(x: torch.Tensor) -> int:
    """Return the address of the first element, or something like it of a tensor that has none to be seen."""
    if torch.compiler.is_compiling():
        return 0  # a graph is made for any address; the library checks it
    try:
        return int(x.data_ptr())
    except RuntimeError:  # of tensors inside torch.func's transforms, and of fake ones
        return int(x.storage_offset()) * int(x.itemsize)
