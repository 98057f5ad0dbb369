# SPDX-License-Identifier: MIT OR Apache-2.0
"""pyfa_rocm.jax.flash_attn_merge: numbers, what accumulates in place, maps, shards, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from adapters.with_jax import jax_cases  # noqa: F401  # isort: skip  # before jax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases_place import bits
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from merge import Merge, Merging

from pyfa_rocm import InvalidArgumentError
from pyfa_rocm.jax import flash_attn_func, flash_attn_merge

BASE = Merge(parts=3, batch=2, seqlen=8, nhead=4, hdim=64)


def arguments(merging: Merging, packed: bool = False) -> dict[str, Any]:
    """The arrays of a merge, as JAX's."""
    case = merging.case
    values = [x[0] if packed else x for x in merging.values]
    lses = merging.lses[:, 0] if packed else merging.lses
    arrays = {"outs": jnp.stack(values[: case.parts]), "lses": jnp.asarray(lses[: case.parts])}
    if case.accumulate:
        arrays |= {"out": jnp.asarray(values[-1]), "lse": jnp.asarray(lses[-1])}
    return arrays


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"accumulate": True},
        {"dtype": "bfloat16", "base2": True},
        {"o_dtype": "float32", "accumulate": True},
        {"dtype": "float32", "o_dtype": "bfloat16", "parts": 7, "hdim": 40},
    ],
    ids=str,
)
def test_merge(change: dict[str, Any], packed: bool) -> None:
    case = replace(BASE, **change, batch=1 if packed else 2)
    merging = Merging(case)
    call = jax.jit(partial(flash_attn_merge, base2=case.base2, out_dtype=case.o_dtype or None))
    o, lse = call(**arguments(merging, packed))
    assert o.dtype == jnp.dtype(case.out_dtype)
    got = (np.asarray(o)[None], np.asarray(lse)[None]) if packed else (np.asarray(o), np.asarray(lse))
    merging.judge(got)


def test_accumulates_in_place() -> None:
    """A loop over blocks of keys, as in ring attention: the results are in the memory that was donated."""
    arrays = arguments(Merging(replace(BASE, accumulate=True)))

    def loop(out: Any, lse: Any) -> Any:
        def step(carry: Any, part: Any) -> Any:
            o, lse = part
            return flash_attn_merge(o[None], lse[None], out=carry[0], lse=carry[1]), None

        return jax.lax.scan(step, (out, lse), (arrays["outs"], arrays["lses"]))[0]

    want = (arrays["out"], arrays["lse"])
    for i in range(BASE.parts):
        want = flash_attn_merge(
            arrays["outs"][i : i + 1], arrays["lses"][i : i + 1], out=want[0], lse=want[1]
        )
    place = arrays["out"].unsafe_buffer_pointer()
    got = jax.jit(loop, donate_argnums=(0, 1))(arrays["out"], arrays["lse"])
    assert got[0].unsafe_buffer_pointer() == place
    for a, b in zip(got, want, strict=True):
        assert np.array_equal(bits(np.asarray(a)), bits(np.asarray(b)))


def test_parts_of_attention() -> None:
    """Attention over two halves of the keys, merged, is that over all."""
    rng = np.random.default_rng(1)
    q, k, v = (jnp.asarray(rng.standard_normal((2, 30, 2, 64)), jnp.float32) for _ in range(3))
    halves = [
        flash_attn_func(q, k[:, part], v[:, part], return_lse=True) for part in (slice(13), slice(13, 30))
    ]
    o, lse = flash_attn_merge(*(jnp.stack(x) for x in zip(*halves, strict=True)))
    want, want_lse = flash_attn_func(q, k, v, return_lse=True)
    assert np.abs(np.asarray(o - want)).max() < 1e-5
    assert np.abs(np.asarray(lse - want_lse)).max() < 1e-5


def test_mapped_and_sharded() -> None:
    merging = Merging(replace(BASE, accumulate=True))
    arrays = arguments(merging)
    want = flash_attn_merge(**arrays)
    # Over heads, of which parts have one each: another axis in each array.
    names = ("outs", "lses", "out", "lse")
    mapped = jax.vmap(
        lambda outs, lses, out, lse: flash_attn_merge(outs, lses, out=out, lse=lse),
        in_axes=(3, 2, 2, 1),
        out_axes=(2, 1),
    )(
        *(
            arrays[name].reshape(*arrays[name].shape[:axis], 2, 2, *arrays[name].shape[axis + 1 :])
            for name, axis in zip(names, (3, 2, 2, 1), strict=True)
        )
    )
    for a, b in zip(mapped, want, strict=True):
        assert np.array_equal(bits(np.asarray(a).reshape(b.shape)), bits(np.asarray(b)))

    specs = (P(None, None, None, "heads"), P(None, None, "heads"))
    sharded = jax.shard_map(
        lambda outs, lses: flash_attn_merge(outs, lses),
        mesh=Mesh(np.array(jax.devices()), ("heads",)),
        in_specs=specs,
        out_specs=(P(None, None, "heads"), P(None, "heads")),
    )
    got = jax.jit(sharded)(arrays["outs"], arrays["lses"])
    for a, b in zip(got, flash_attn_merge(arrays["outs"], arrays["lses"]), strict=True):
        assert np.array_equal(bits(np.asarray(a)), bits(np.asarray(b)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"outs": jnp.zeros((3, 4, 64))}, r"outs: got shape \(3, 4, 64\), expected"),
        ({"outs": jnp.zeros((0, 2, 8, 4, 64))}, "outs: got shape .* 1 part or more"),
        ({"lses": jnp.zeros((3, 2, 8, 4))}, r"lses: got shape \(3, 2, 8, 4\), expected \(3, 2, 4, 8\)"),
        ({"lses": jnp.zeros((3, 2, 4, 8), jnp.bfloat16)}, "lses: got dtype bfloat16, expected float32"),
        ({"out": jnp.zeros((2, 8, 4, 64))}, "lse: got None, expected both out and lse, or neither"),
        ({"out": jnp.zeros((2, 8, 4, 32)), "lse": jnp.zeros((2, 4, 8))}, "out: got shape"),
        ({"out_dtype": "int8"}, "out_dtype: got 'int8'"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_wrong_arguments(wrong: dict[str, Any], message: str) -> None:
    arrays: dict[str, Any] = {"outs": jnp.zeros((3, 2, 8, 4, 64)), "lses": jnp.zeros((3, 2, 4, 8))}
    with pytest.raises(InvalidArgumentError, match=message):
        flash_attn_merge(**(arrays | wrong))


def test_what_has_no_kernel_and_no_derivative() -> None:
    outs, lses = jnp.zeros((3, 2, 8, 4, 12)), jnp.zeros((3, 2, 4, 8))
    with pytest.raises(jax.errors.JaxRuntimeError, match="UNIMPLEMENTED: hdim = 12: merge kernels take"):
        jax.block_until_ready(flash_attn_merge(outs, lses))
    with pytest.raises(NotImplementedError, match="merging have no derivatives"):
        jax.grad(lambda x: flash_attn_merge(x, lses)[0].sum())(outs)
