# SPDX-License-Identifier: MIT OR Apache-2.0
"""The tests of the drop-in for flash-attn share these: tensors, and judgement of gradients."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import reference
import torch
from backward import judge_gradient

LENGTHS = (30, 0, 70)


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def starts(lengths: tuple[int, ...]) -> torch.Tensor:
    return torch.tensor((0, *np.cumsum(lengths)), dtype=torch.int32)


def as_numpy(x: torch.Tensor) -> Any:
    """Return an array; bfloat16, which NumPy lacks, becomes float32 with the same values."""
    x = x.detach()
    return (x.float() if x.dtype == torch.bfloat16 else x).numpy()


def judge_gradients(
    got: Any,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dout: torch.Tensor,
    **options: Any,
) -> None:
    """Compare dq, dk and dv with float64's from these O and LSE, within the derived bounds."""
    dtype = str(q.dtype).removeprefix("torch.")
    numerics = reference.numerics_of(dtype, arch="gfx942")
    want = reference.gradients(*map(as_numpy, (q, k, v, out, lse, dout)), numerics=numerics, **options)
    for (name, exact), x in zip(want.items(), got, strict=True):
        assert x is not None
        judge_gradient(name, exact, as_numpy(x), str(x.dtype).removeprefix("torch."))


def judge_packed(
    got: Any,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    dout: torch.Tensor,
    cu_q: torch.Tensor,
    cu_k: torch.Tensor,
    **options: Any,
) -> None:
    """Like `judge_gradients`, of each sequence by itself."""
    for of_q, of_k in zip(itertools.pairwise(cu_q.tolist()), itertools.pairwise(cu_k.tolist()), strict=True):
        rows, keys = slice(*of_q), slice(*of_k)
        if rows.start == rows.stop or keys.start == keys.stop:
            continue
        dq, dk, dv = (x[None, at] for x, at in zip(got, (rows, keys, keys), strict=True))
        judge_gradients(
            (dq, dk, dv), q[None, rows], k[None, keys], v[None, keys], out[None, rows], lse[None, :, rows],
            dout[None, rows], **options,
        )  # fmt: skip
