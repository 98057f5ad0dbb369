# SPDX-License-Identifier: MIT OR Apache-2.0
"""Kernels that XLA compiles and kernels in JAX's wheels, on the software device, against NumPy.

All numbers are integers so small that no sum is rounded, whatever its order, so results are equal.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

Array = np.ndarray[Any, Any]


def integers(*shape: int, dtype: Any = np.float32, most: int = 4) -> Array:
    """Numbers from -most to most."""
    return np.random.default_rng(1).integers(-most, most + 1, shape).astype(dtype)


def same(function: Callable[..., Any], reference: Callable[..., Any], *arrays: Array) -> None:
    """Compare JAX's function, compiled, with NumPy's."""
    got = jax.jit(function)(*(jnp.asarray(x) for x in arrays))
    want = reference(*arrays)
    assert np.array_equal(np.asarray(got).astype(want.dtype), want)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int8"])
@pytest.mark.parametrize("shape", [(100, 70, 90), (256, 512, 128), (1, 64, 33)])
def test_product(dtype: str, shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    a, b = integers(m, k, dtype=dtype), integers(k, n, dtype=dtype)
    wide = np.int32 if dtype == "int8" else np.float32
    same(
        lambda a, b: lax.dot(a, b, preferred_element_type=wide),
        lambda a, b: a.astype(wide) @ b.astype(wide),
        a,
        b,
    )


@pytest.mark.parametrize("axis", [0, 1, None])
def test_reductions(axis: int | None) -> None:
    x = integers(130, 1000)
    same(lambda x: x.sum(axis), lambda x: x.sum(axis), x)
    same(lambda x: jnp.argmax(x, axis), lambda x: np.argmax(x, axis), x)


def test_scans() -> None:
    x = integers(20, 900, dtype=np.int32)
    same(lambda x: jnp.cumsum(x, 1), lambda x: np.cumsum(x, 1), x)
    steps = integers(5, 32, 32, most=1)
    same(
        lambda x: lax.scan(lambda carry, a: (carry + a.T @ jnp.eye(32), None), x[0] * 0, x)[0],
        lambda x: x.sum(0).T,
        steps,
    )


def test_moves() -> None:
    x, index = integers(513, 130), np.random.default_rng(2).integers(0, 100, 3000)
    same(lambda x: x.T + 1, lambda x: x.T + 1, x)
    same(lambda x, i: x[i], lambda x, i: x[i], x, index)
    same(
        lambda i: jnp.zeros(100, jnp.int32).at[i].add(1), lambda i: np.bincount(i, minlength=100), index
    )  # atomics


def test_control() -> None:
    """XLA reads numbers back, and decides on the host which branch or loop runs."""
    assert jax.jit(lambda n: lax.while_loop(lambda x: x < n, lambda x: x + 3, 0))(100) == 102
    doubled = jax.jit(lambda p, x: lax.cond(p, lambda x: x * 2, lambda x: x, x))
    assert [doubled(p, 5).item() for p in (True, False)] == [10, 5]


SORT = "import jax.numpy as jnp, numpy as np; print(np.asarray(jnp.sort(jnp.arange(1000)[::-1]))[:3])"


def test_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding: XLA's sort in LDS has barriers without a fence, so that LLVM waits for no store before them.

    An older way to emit them had one (ROCm/tensorflow-upstream, pull request 2272). Top-k of few numbers is
    this sort. The device does stores in the program's order, so without the check the result is right.
    """
    done = subprocess.run(
        [sys.executable, "-c", SORT], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode != 0
    assert "LDS race" in done.stderr
    assert "kernel sort" in done.stderr
    monkeypatch.setenv("FMHA_EMU_CHECKS", "-lds-race")
    x = integers(3, 1000, dtype=np.int32, most=10**6)
    same(lambda x: jnp.sort(x, 1), lambda x: np.sort(x, 1), x)
    same(lambda x: lax.top_k(x, 8)[0], lambda x: -np.sort(-x, 1)[:, :8], x)


def test_sort_of_a_bundle() -> None:
    """From 16384 numbers on: hipCUB's radix sort, in the plug-in's compressed offload bundles."""
    same(jnp.sort, np.sort, integers(70000, dtype=np.int32, most=10**6))


def test_top_k_of_a_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding: the wave that merges the others' best reads for waves that are not there, and drops that."""
    monkeypatch.setenv("FMHA_EMU_CHECKS", "-lds-unwritten")
    x = integers(2, 20000, most=10**6)
    same(lambda x: lax.top_k(x, 8)[0], lambda x: -np.sort(-x, 1)[:, :8], x)


def test_random_bits_of_a_bundle() -> None:
    """The kernel for Threefry in the second wheel gives what XLA's gives."""
    bits = []
    for own_kernel in (False, True):
        with jax.threefry_partitionable(False), jax._src.config.threefry_gpu_kernel_lowering(own_kernel):
            bits.append(np.asarray(jax.jit(lambda key: jax.random.bits(key, (1000,)))(jax.random.key(7))))
    assert np.array_equal(bits[0], bits[1])
    assert len(set(bits[0].tolist())) > 990


def test_pivots_of_a_bundle() -> None:
    pivots = jnp.array([[2, 2, 3, 3], [0, 3, 2, 3]], jnp.int32)
    assert lax.linalg.lu_pivots_to_permutation(pivots, 4).tolist() == [[2, 0, 3, 1], [0, 3, 2, 1]]
