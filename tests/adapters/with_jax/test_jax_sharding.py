# SPDX-License-Identifier: MIT OR Apache-2.0
"""pyfa_rocm.jax on four devices: sharded over batch and heads, and what a partitioner makes of it unasked."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from adapters.with_jax import jax_cases  # isort: skip  # before jax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from built import nearest
from cases import Bias, Case
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from pyfa_rocm.jax import flash_attn_func, flash_attn_varlen_func, philox_of_key

BASE = Case(4, 50, 70, 4, 2, 64, "bfloat16", causal=True, seed=8)
FEATURES: list[dict[str, Any]] = [
    {},
    {"bias": Bias()},
    {"bias": Bias((False, True, True))},
    {"alibi": 1},
    {"alibi": 2},
]
ARRAY, LSE = P("batch", None, "heads"), P("batch", "heads")


def mesh(*sizes: int) -> Mesh:
    devices = np.array(jax.devices())
    assert devices.size == 4
    return Mesh(devices.reshape(sizes), ("batch", "heads"))


@pytest.mark.parametrize("sizes", [(4, 1), (2, 2), (1, 4)])
@pytest.mark.parametrize("feature", FEATURES, ids=str)
def test_batch_and_heads(sizes: tuple[int, int], feature: dict[str, Any]) -> None:
    """Each device has whole groups of heads; judged against float64 as a whole."""
    case = jax_cases.in_jax(nearest(replace(BASE, **feature)))
    arrays, options = jax_cases.arguments(case)
    specs = dict.fromkeys("qkv", ARRAY)
    if case.bias is not None:
        specs["bias"] = P("batch" if case.bias.dims[0] else None, "heads")
    if case.alibi:
        specs["alibi_slopes"] = P("batch", "heads") if case.alibi == 2 else P("heads")
    sharded = jax.shard_map(
        lambda x: flash_attn_func(**x, **options),
        mesh=mesh(*sizes),
        in_specs=(specs,),
        out_specs=(ARRAY, LSE),
    )
    o, lse = jax.jit(sharded)(arrays)
    assert len(o.sharding.device_set) == 4
    jax_cases.judge_result(case, case.inputs(), np.asarray(o), np.asarray(lse))


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("compiled", [True, False])
def test_compiled_or_not(check_vma: bool, compiled: bool) -> None:
    arrays, options = jax_cases.arguments(BASE)
    call: Any = partial(flash_attn_func, **options)
    sharded = jax.shard_map(
        call, mesh=mesh(2, 2), in_specs=(ARRAY,) * 3, out_specs=(ARRAY, LSE), check_vma=check_vma
    )
    got = (jax.jit(sharded) if compiled else sharded)(*arrays.values())
    for a, b in zip(got, call(*arrays.values()), strict=True):
        assert np.array_equal(a, b)


def test_fewer_heads_of_k_than_devices() -> None:
    """K and V are on every device, which takes the heads that its own of q read."""
    case = replace(BASE, nhead_k=2, ratio=4, lse=False)
    arrays, options = jax_cases.arguments(case)
    q, k, v = arrays.values()

    def local(q: Any, k: Any, v: Any) -> Any:
        group = jax.lax.axis_index("heads") // 2
        k, v = (jax.lax.dynamic_slice_in_dim(x, group, 1, 2) for x in (k, v))
        return flash_attn_func(q, k, v, **options)

    spec = P(None, None, "heads")
    sharded = jax.shard_map(local, mesh=mesh(1, 4), in_specs=(spec, P(), P()), out_specs=spec)
    o = jax.jit(sharded)(q, k, v)
    jax_cases.judge_result(case, case.inputs(), np.asarray(o), None)


@jax_cases.needs_collectives
def test_operands_that_differ_along_other_axes() -> None:
    """JAX keeps book of that, to know what a sum over a mesh axis is."""
    (q, k, v), call = jax_cases.arguments(BASE)[0].values(), partial(flash_attn_func, causal=True)

    def summed(q: Any, k: Any, v: Any) -> Any:
        o = call(q, k[:2], v[:2]).astype(jnp.float32)
        return jax.lax.psum(o, "batch")

    sharded = jax.shard_map(summed, mesh=mesh(2, 2), in_specs=(P("batch"), P(), P()), out_specs=P())
    o = jax.jit(sharded)(q, k, v)
    parts = [call(q[half], k[:2], v[:2]).astype(jnp.float32) for half in (slice(0, 2), slice(2, 4))]
    assert np.array_equal(o, parts[0] + parts[1])


def test_mapped_and_sharded() -> None:
    (q, k, v), call = jax_cases.arguments(BASE)[0].values(), partial(flash_attn_func, causal=True)
    spec = P(None, "batch", None, "heads")
    mapped = jax.vmap(call, in_axes=(0, None, None))
    sharded = jax.shard_map(mapped, mesh=mesh(2, 2), in_specs=(spec, ARRAY, ARRAY), out_specs=spec)
    o = jax.jit(sharded)(jnp.stack([q, -q]), k, v)
    for got, x in zip(o, (q, -q), strict=True):
        assert np.array_equal(got, call(x, k, v))


def test_packed_sequences() -> None:
    """Only heads: which rows are whose is every device's business."""
    q, k, v = (x.reshape(-1, *x.shape[2:]) for x in jax_cases.arguments(BASE)[0].values())
    cu_q, cu_k = jnp.array([0, 50, 60, 180], jnp.int32), jnp.array([0, 60, 60, 270], jnp.int32)
    call: Any = partial(
        flash_attn_varlen_func, max_seqlen_q=120, max_seqlen_k=210, causal=True, return_lse=True
    )
    spec = P(None, "heads")
    sharded = jax.shard_map(
        call, mesh=mesh(1, 4), in_specs=(spec, spec, spec, P(), P()), out_specs=(spec, P("heads"))
    )
    for got, want in zip(jax.jit(sharded)(q, k, v, cu_q, cu_k), call(q, k, v, cu_q, cu_k), strict=True):
        assert np.array_equal(got, want)


def test_random_numbers_of_each_device() -> None:
    """With the device's index folded in, no two draw the same."""
    x = jnp.ones((1, 64, 4, 64), jnp.bfloat16)

    def local(x: Any, key: Any) -> Any:
        own = jax.random.fold_in(key, jax.lax.axis_index("heads"))
        return flash_attn_func(x, x, x, 0.5, philox=philox_of_key(own))

    spec = P(None, None, "heads")
    sharded = jax.shard_map(local, mesh=mesh(1, 4), in_specs=(spec, P()), out_specs=spec)
    o = np.asarray(jax.jit(sharded)(x, jax.random.key(1)))
    assert len({o[:, :, head].tobytes() for head in range(4)}) == 4


@jax_cases.needs_collectives
def test_the_partitioner_gathers() -> None:
    """Sharded arrays are gathered without shard_map: slower, and right."""
    (q, k, v), call = jax_cases.arguments(BASE)[0].values(), partial(flash_attn_func, causal=True)
    want = call(q, k, v)
    placed = [jax.device_put(x, NamedSharding(mesh(2, 2), ARRAY)) for x in (q, k, v)]
    assert np.array_equal(jax.jit(call)(*placed), want)
    assert np.array_equal(call(*placed), want)
