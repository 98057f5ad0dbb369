# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention of sequences cut among eight devices of JAX, forward and gradients, against float64."""

from __future__ import annotations

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from adapters.with_torch.torch_cases import to_numpy, to_torch
from engines.with_parallel.judge import judge
from engines.with_parallel.work import Problem
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from pyfa_rocm.jax.context_parallel import (
    context_parallel_attn_func,
    context_parallel_attn_varlen_func,
    local_rows,
)

PROBLEMS = [
    Problem((64,), 2), Problem((64,), 4, nhead_k=1), Problem((64,), 8, dtype="bfloat16"),
    Problem((64,), 4, zigzag=False, window_size=(20, 0)), Problem((64,), 1, 4, nhead_k=2),
    Problem((64,), 2, 2, causal=False), Problem((64,), 2, 4, nhead_k=2, window_size=(9, 7), causal=False),
]  # fmt: skip
PACKED = [
    Problem((50, 31), 2), Problem((7, 0, 83, 1), 4, nhead_k=1, dtype="bfloat16"),
    Problem((33, 40), 8, window_size=(20, 0), zigzag=False), Problem((29, 3), 1, 2),
    Problem((41, 24), 2, 4, nhead_k=4, causal=False), Problem((60, 5, 12), 4, 2, window_size=(9, 7)),
]  # fmt: skip


def attend(problem: Problem, compiled: bool = True, packed: bool = False) -> Any:
    """Return the whole output, the log-sum-exp, and the gradients, in the order of rows."""
    devices = np.array(jax.devices()[: problem.rings * problem.heads])
    mesh = Mesh(devices.reshape(problem.rings, problem.heads), ("ring", "ulysses"))
    cut: dict[str, Any] = {"rings": problem.rings, "heads": problem.heads, "zigzag": problem.zigzag}
    order = local_rows(problem.starts if packed else sum(problem.lengths), **cut)
    # A batch of one, unless rows are packed; rows of no sequence have numbers that must not matter.
    q, k, v, dout = (jnp.asarray(to_numpy(x))[order if packed else (None, order)] for x in problem.tensors())
    axes = ("ring", "ulysses")
    rows, lse_rows = (P(axes), P(None, axes)) if packed else (P(None, axes), P(None, None, axes))
    function: Any = context_parallel_attn_func
    if packed:
        function = partial(context_parallel_attn_varlen_func, cu_seqlens=problem.starts)
    local = partial(
        function, **problem.options, zigzag=problem.zigzag, return_lse=True,
        ring="ring" if problem.rings > 1 else None, ulysses="ulysses" if problem.heads > 1 else None,
    )  # fmt: skip
    call = jax.shard_map(local, mesh=mesh, in_specs=(rows,) * 3, out_specs=(rows, lse_rows))

    def all_of_it(q: Any, k: Any, v: Any) -> Any:
        (out, lse), pull = jax.vjp(call, q, k, v)
        return out, lse, *pull((dout, jnp.zeros_like(lse)))

    out, lse, *grads = (jax.jit(all_of_it) if compiled else all_of_it)(q, k, v)
    arrays = [np.array(x) for x in (out, lse.swapaxes(-1, -2), *grads)]
    arrays = arrays if packed else [x[0] for x in arrays]
    assert not any(x[order < 0].any() for x in (arrays[0], *arrays[2:]))
    assert np.isneginf(arrays[1][order < 0]).all()
    out, lse, *grads = (to_torch(x[order >= 0]) for x in arrays)
    return [(torch.from_numpy(order[order >= 0]), out, lse.T, *grads)]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda x: f"{x.rings}x{x.heads}")
def test_devices(problem: Problem) -> None:
    judge(problem, attend(problem))


@pytest.mark.parametrize("problem", PACKED, ids=lambda x: f"{x.rings}x{x.heads}")
def test_packed(problem: Problem) -> None:
    """Sequences of any lengths, which leave devices rows of no sequence."""
    judge(problem, attend(problem, packed=True))


def test_same_bits() -> None:
    first, second = (attend(PROBLEMS[1])[0] for _ in range(2))
    assert all(to_numpy(a).tobytes() == to_numpy(b).tobytes() for a, b in zip(first, second, strict=True))


def test_refused() -> None:
    with pytest.raises(ValueError, match="ulysses: got 8 devices for 4 heads of q and 2 of k"):
        attend(Problem((64,), 1, 8))
    with pytest.raises(ValueError, match="ring, ulysses: got None, expected an axis of the mesh"):
        attend(Problem((64,), 1, 1))
    x, mesh, rows = jnp.zeros((8, 2, 64), jnp.float16), Mesh(jax.devices()[:2], ("ring",)), P("ring")
    for starts, message in (
        ((1, 8), r"cu_seqlens: got \[1, 8\], expected first rows from 0 on"),
        ((0, 3, 9), r"q: got shape \(4, 2, 64\), expected \(5, nhead, hdim\): .* lengths \[3, 6\]"),
    ):
        call = partial(context_parallel_attn_varlen_func, cu_seqlens=starts, ring="ring")
        with pytest.raises(ValueError, match=message):
            jax.shard_map(call, mesh=mesh, in_specs=(rows,) * 3, out_specs=rows)(x, x, x)
