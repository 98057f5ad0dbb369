# SPDX-License-Identifier: MIT OR Apache-2.0
"""Gradients of pyfa_rocm.jax under JAX's transformations: vmap, scan, checkpoint, export, several devices.

test_jax_grad.py shows that gradients are right. Here they equal those of a loop, of the plain call, or of the
whole, to the bit if nothing is summed in another order.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

from adapters.with_jax import jax_cases, jax_gradients  # isort: skip  # before jax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from pyfa_rocm.jax import flash_attn_func, flash_attn_varlen_func
from pyfa_rocm.jax._library import BACKWARD, FORWARD

# Bits are compared, so dQ is summed in a fixed order.
attend: Any = partial(flash_attn_func, causal=True, deterministic=True)
ARRAY = P("batch", None, "heads")
# Half an ulp of float16, relative: a sum that is stored is off by at most this.
HALF = 2.0**-11


def arrays(*batch: int, rows: int = 40, nhead_q: int = 2, nhead_k: int = 2, seed: int = 1) -> list[jax.Array]:
    rng = np.random.default_rng(seed)
    shapes = [(*batch, rows, n, 64) for n in (nhead_q, nhead_k, nhead_k)]
    return [jnp.asarray(rng.standard_normal(shape), jnp.float16) for shape in shapes]


def squares(out: Any) -> Any:
    return (out.astype(jnp.float32) ** 2).sum()


def loss(*xs: Any, function: Any = attend) -> Any:
    return squares(function(*xs))


def same(got: Any, want: Any) -> None:
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)


gradient = jax.grad(loss, (0, 1, 2))


@pytest.mark.parametrize("in_axes", [(0, 0, 0), (1, 2, 3), (4, 0, 4), (0, None, None), (None, 0, 1)])
@pytest.mark.parametrize("compiled", [False, True])
def test_vmap(in_axes: tuple[int | None, ...], compiled: bool) -> None:
    """vmap of grad is a loop; grad of vmap is it too, and sums over what is not mapped."""
    whole = arrays(3, 2)
    placed = [x[0] if a is None else jnp.moveaxis(x, 0, a) for x, a in zip(whole, in_axes, strict=True)]
    each = [
        gradient(*(x if a is None else x.take(i, a) for x, a in zip(placed, in_axes, strict=True)))
        for i in range(3)
    ]
    mapped = jax.vmap(gradient, in_axes=in_axes)
    same((jax.jit(mapped) if compiled else mapped)(*placed), [jnp.stack(x) for x in zip(*each, strict=True)])

    def total(*xs: Any) -> Any:
        return squares(jax.vmap(attend, in_axes=in_axes)(*xs))

    of_map = jax.grad(total, (0, 1, 2))
    found = (jax.jit(of_map) if compiled else of_map)(*placed)
    for got, parts, axis in zip(found, zip(*each, strict=True), in_axes, strict=True):
        if axis is not None:
            same(jnp.moveaxis(got, axis, 0), jnp.stack(parts))
            continue
        wide = [np.asarray(x, np.float32) for x in parts]
        size = sum(abs(x) for x in wide)
        assert (abs(np.asarray(got, np.float32) - sum(wide)) <= 2 * HALF * size).all()


def test_vmap_of_options() -> None:
    """Lengths that differ, mapped with the sequences; and two maps, one of them of nothing but q."""
    q, k, v = (x[:, 0] for x in arrays(3, 1))
    lengths = jnp.array([[0, 20, 40], [0, 0, 33], [0, 15, 15]], jnp.int32)

    def packed(q: Any, k: Any, v: Any, cu: Any) -> Any:
        out = flash_attn_varlen_func(q, k, v, cu, cu, 40, 40, causal=True, deterministic=True)
        return squares(out)

    differentiate = jax.grad(packed, (0, 1, 2))
    got = jax.jit(jax.vmap(differentiate))(q, k, v, lengths)
    each = [differentiate(*one) for one in zip(q, k, v, lengths, strict=True)]
    same(got, [jnp.stack(x) for x in zip(*each, strict=True)])
    for x, cu in zip(got[1], lengths, strict=True):
        assert not x[int(cu[-1]) :].any()

    q, k, v = arrays(2, 3, 1)
    twice = jax.vmap(jax.vmap(gradient, in_axes=(0, 0, None)), in_axes=(0, None, 0))
    got = jax.jit(twice)(q, k[0], v[:, 0])
    for i, j in product(range(2), range(3)):
        same([x[i, j] for x in got], gradient(q[i, j], k[0, j], v[i, 0]))


@pytest.mark.parametrize("batch", [1, 2])
def test_vmap_with_bias(batch: int) -> None:
    """Its gradient is summed over the batch of each element, and not over what is mapped."""
    q, k, v = (x.astype(jnp.float32) for x in arrays(3, batch, rows=20))
    bias = jnp.asarray(np.random.default_rng(4).standard_normal((3, 1, 2, 1, 20)), jnp.float32)

    def biased(q: Any, k: Any, v: Any, bias: Any) -> Any:
        return squares(flash_attn_func(q, k, v, bias=bias, deterministic=True))

    differentiate = jax.grad(biased, (0, 3))
    with jax_gradients.forward_is(jax_gradients.formula):
        got = jax.jit(jax.vmap(differentiate))(q, k, v, bias)
        shared = jax.jit(jax.vmap(differentiate, in_axes=(0, 0, 0, None)))(q, k, v, bias[0])
        own = [differentiate(q[i], k[i], v[i], bias[i]) for i in range(3)]
        same_bias = [differentiate(q[i], k[i], v[i], bias[0]) for i in range(3)]
    for i in range(3):
        for found, want in ((got, own[i]), (shared, same_bias[i])):
            for a, b in zip(found, want, strict=True):
                assert abs(a[i] - b).max() <= 2.0**-18 * abs(b).max()


def test_vmap_is_few_launches() -> None:
    """Gradients fold into the batch as O does."""
    placed = arrays(6, 1)
    text = jax.jit(jax.vmap(gradient)).lower(*placed).as_text()
    for target in (FORWARD, BACKWARD):
        counts = text.partition(f"@{target}(")[2].partition("repeat_counts = dense<")[2].partition(">")[0]
        assert eval(counts) == 1


def test_scan_over_layers() -> None:
    """As unrolled: gradients of what each layer has, and of what all share."""
    (q, k, v), scales = arrays(1), jnp.array([1.0, 0.5, 2.0], jnp.float16)

    def layer(x: Any, scale: Any, k: Any, v: Any) -> Any:
        return attend(x * scale, k, v)

    def scanned(q: Any, scales: Any, k: Any, v: Any) -> Any:
        return squares(jax.lax.scan(lambda x, s: (layer(x, s, k, v), None), q, scales)[0])

    def unrolled(q: Any, scales: Any, k: Any, v: Any) -> Any:
        for scale in scales:
            q = layer(q, scale, k, v)
        return squares(q)

    got, want = (jax.jit(jax.grad(f, (0, 1, 2, 3)))(q, scales, k, v) for f in (scanned, unrolled))
    same(got[0], want[0])
    for a, b in zip(got[1:], want[1:], strict=True):  # sums over layers or elements
        a, b = (np.asarray(x, np.float32) for x in (a, b))
        assert abs(a - b).max() <= 8 * HALF * abs(b).max()


def saved_attention(primitive: Any, *_: Any, **__: Any) -> bool:
    return str(primitive.name) == FORWARD


POLICIES = {
    "nothing": (None, 2),
    "everything": (jax.checkpoint_policies.everything_saveable, 1),
    "dots": (jax.checkpoint_policies.dots_saveable, 2),
    "attention": (saved_attention, 1),
}


@pytest.mark.parametrize(("policy", "calls"), POLICIES.values(), ids=POLICIES)
def test_checkpoint(policy: Any, calls: int) -> None:
    """The same numbers; the forward pass runs anew unless its results are kept."""
    xs = arrays(2)
    step = jax.jit(jax.value_and_grad(jax.checkpoint(loss, policy=policy), (0, 1, 2)))
    same(step(*xs), jax.value_and_grad(loss, (0, 1, 2))(*xs))
    assert step.lower(*xs).as_text().count(f"@{FORWARD}(") == calls


def test_checkpoint_of_scanned_layers() -> None:
    (q, k, v), scales = arrays(1), jnp.array([1.0, 0.5], jnp.float16)

    def run(q: Any, *, remat: Any) -> Any:
        body = remat(lambda x, scale: (attend(x * scale, k, v), None))
        return squares(jax.lax.scan(body, q, scales)[0])

    kept, anew = (jax.jit(jax.grad(partial(run, remat=f)))(q) for f in (lambda f: f, jax.checkpoint))
    same(anew, kept)


def test_control_flow() -> None:
    """Gradients pass cond and while_loop's counted form; and without jit."""
    q, k, v = arrays(1)
    want = gradient(q, k, v)[0]

    def chosen(q: Any, which: Any) -> Any:
        return jax.lax.cond(which, lambda q: loss(q, k, v), lambda q: loss(-q, k, v), q)

    same(jax.jit(jax.grad(chosen))(q, True), want)
    same(jax.jit(jax.grad(chosen))(q, False), -gradient(-q, k, v)[0])
    with jax.disable_jit():
        same(gradient(q, k, v)[0], want)


def test_vjp_of_a_jitted_function() -> None:
    """The way back is kept, and may be gone twice."""
    xs = arrays(2)
    out, pull = jax.vjp(jax.jit(attend), *xs)
    first = pull(out)
    same(pull(out), first)
    same(jax.jit(pull)(out), first)
    twice = pull(2 * out)
    for a, b in zip(twice, first, strict=True):
        assert abs(a.astype(np.float32) - 2 * b.astype(np.float32)).max() <= 8 * HALF * abs(b).max()
    rows = jax.jacrev(lambda q: attend(q, *xs[1:])[0, 5, 0, :3].astype(jnp.float32))(xs[0])
    for i in range(3):
        same(rows[i], pull(jnp.zeros_like(out).at[0, 5, 0, i].set(1))[0])


def test_export() -> None:
    """Both calls have to be allowed, and serve both platforms."""
    xs = arrays(2)
    allowed = [export.DisabledSafetyCheck.custom_call(target) for target in (FORWARD, BACKWARD)]
    with pytest.raises(ValueError, match=BACKWARD):
        export.export(jax.jit(gradient), disabled_checks=allowed[:1])(*xs)
    exported = export.export(jax.jit(gradient), platforms=("cpu", "rocm"), disabled_checks=allowed)(*xs)
    same(jax.jit(exported.call)(*xs), gradient(*xs))
    compiled = jax.jit(gradient).lower(*(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in xs)).compile()
    same(compiled(*xs), gradient(*xs))


def mesh(*sizes: int) -> Mesh:
    return Mesh(np.array(jax.devices()[: sizes[0] * sizes[1]]).reshape(sizes), ("batch", "heads"))


@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize(("sizes", "compiled"), [((2, 1), True), ((1, 2), False), ((2, 2), True)])
def test_shard_map(sizes: tuple[int, int], compiled: bool, check_vma: bool) -> None:
    """Gradients inside of it and through it; each device has whole groups of heads."""
    xs = arrays(2, nhead_q=4, nhead_k=2)
    want = gradient(*xs)
    shard = partial(jax.shard_map, mesh=mesh(*sizes), in_specs=(ARRAY,) * 3, check_vma=check_vma)
    inside = shard(gradient, out_specs=(ARRAY,) * 3)

    def through(*xs: Any) -> Any:  # with no sum over devices
        out, pull = jax.vjp(shard(attend, out_specs=ARRAY), *xs)
        return pull(2 * out)

    for differentiate in (inside, through):
        got = (jax.jit(differentiate) if compiled else differentiate)(*xs)
        assert len(got[0].sharding.device_set) == sizes[0] * sizes[1]
        same(got, want)


@jax_cases.needs_collectives
@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("compiled", [True, False])
def test_what_devices_share(check_vma: bool, compiled: bool) -> None:
    """Gradients of an operand that is on every device are summed over the devices."""
    q, k, v = arrays(2)
    k, v = k[:1], v[:1]
    spec = P(None, None, "heads")
    sharded = jax.shard_map(
        attend, mesh=mesh(2, 2), in_specs=(ARRAY, spec, spec), out_specs=ARRAY, check_vma=check_vma
    )
    step = jax.grad(partial(loss, function=sharded), (0, 1, 2))
    got = (jax.jit(step) if compiled else step)(q, k, v)
    each = [gradient(q[i : i + 1], k, v) for i in range(2)]
    same(got[0], jnp.concatenate([x[0] for x in each]))
    for a, parts in zip(got[1:], zip(*(x[1:] for x in each), strict=True), strict=True):
        wide = [np.asarray(x, np.float32) for x in parts]
        assert (abs(np.asarray(a, np.float32) - sum(wide)) <= HALF * sum(abs(x) for x in wide)).all()
