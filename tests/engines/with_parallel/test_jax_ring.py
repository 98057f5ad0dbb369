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

from pyfa_rocm.jax.context_parallel import context_parallel_attn_func, local_rows

PROBLEMS = [
    Problem((64,), 2), Problem((64,), 4, nhead_k=1), Problem((64,), 8, dtype="bfloat16"),
    Problem((64,), 4, zigzag=False, window_size=(20, 0)), Problem((64,), 1, 4, nhead_k=2),
    Problem((64,), 2, 2, causal=False), Problem((64,), 2, 4, nhead_k=2, window_size=(9, 7), causal=False),
]  # fmt: skip


def attend(problem: Problem, compiled: bool = True) -> Any:
    """Return the whole output, the log-sum-exp, and the gradients, in the order of rows."""
    devices = np.array(jax.devices()[: problem.rings * problem.heads])
    mesh = Mesh(devices.reshape(problem.rings, problem.heads), ("ring", "ulysses"))
    order = local_rows(sum(problem.lengths), rings=problem.rings, heads=problem.heads, zigzag=problem.zigzag)
    q, k, v, dout = (jnp.asarray(to_numpy(x))[None, order] for x in problem.tensors())
    rows = P(None, ("ring", "ulysses"))
    local = partial(
        context_parallel_attn_func, **problem.options, zigzag=problem.zigzag, return_lse=True,
        ring="ring" if problem.rings > 1 else None, ulysses="ulysses" if problem.heads > 1 else None,
    )  # fmt: skip
    call = jax.shard_map(
        local, mesh=mesh, in_specs=(rows,) * 3, out_specs=(rows, P(None, None, ("ring", "ulysses")))
    )

    def all_of_it(q: Any, k: Any, v: Any) -> Any:
        (out, lse), pull = jax.vjp(call, q, k, v)
        return out, lse, *pull((dout, jnp.zeros_like(lse)))

    out, lse, *grads = (jax.jit(all_of_it) if compiled else all_of_it)(q, k, v)
    arrays = [out[0], lse[0], *(x[0] for x in grads)]
    return [(torch.from_numpy(order), *(to_torch(np.array(x)) for x in arrays))]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda x: f"{x.rings}x{x.heads}")
def test_devices(problem: Problem) -> None:
    judge(problem, attend(problem))


def test_same_bits() -> None:
    first, second = (attend(PROBLEMS[1])[0] for _ in range(2))
    assert all(to_numpy(a).tobytes() == to_numpy(b).tobytes() for a, b in zip(first, second, strict=True))


def test_refused() -> None:
    with pytest.raises(ValueError, match="ulysses: got 8 devices for 4 heads of q and 2 of k"):
        attend(Problem((64,), 1, 8))
    with pytest.raises(ValueError, match="ring, ulysses: got None, expected an axis of the mesh"):
        attend(Problem((64,), 1, 1))
