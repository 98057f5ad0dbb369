# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention of sequences that are cut among the devices of a mesh, inside ``jax.shard_map``.

As `pyfa_rocm.torch.context_parallel`: in each step keys and values come from one more device, by
``ppermute``, and partial results are merged in float32. Devices run one program, so a step is a ``switch``
among the sets of calls that differ: two with a causal mask and no window.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pyfa_rocm._call.params import Options
from pyfa_rocm._shards import Call, Shards, calls
from pyfa_rocm.errors import InvalidArgumentError
from pyfa_rocm.jax._operands import Operands, require_static
from pyfa_rocm.jax._primitive import alike, bind
from pyfa_rocm.jax.attention import flash_attn_func
from pyfa_rocm.jax.merge import flash_attn_merge

__all__ = ["context_parallel_attn_func", "local_rows"]


class _Problem(NamedTuple):
    """A call on all devices of a mesh's axis, known while tracing."""

    axis: str | None
    rings: int
    causal: bool
    window_size: tuple[int, int]
    softmax_scale: float | None
    softcap: float
    zigzag: bool

    def plans(self, rows: int, step: int) -> list[tuple[Call, ...]]:
        """Return the calls of each device in a step, on the keys of the device so many before it."""
        shards = Shards((rows * self.rings,), self.rings, zigzag=self.zigzag)
        return [
            calls(shards, ring, (ring - step) % self.rings, self.causal, self.window_size)
            for ring in range(self.rings)
        ]

    def options(self, call: Call) -> dict[str, Any]:
        return {
            "softmax_scale": self.softmax_scale, "softcap": self.softcap, "window_size": call.window_size,
        }  # fmt: skip

    def chosen(self, plans: list[tuple[Call, ...]], run: Callable[..., Any], *operands: Any) -> Any:
        """Return what `run(calls, *operands)` gives for this device's calls."""
        distinct = list(dict.fromkeys(plans))
        branches = [functools.partial(run, x) for x in distinct]
        if len(distinct) == 1:
            return branches[0](*operands)
        which = np.array([distinct.index(x) for x in plans], np.int32)
        return jax.lax.switch(jnp.asarray(which)[jax.lax.axis_index(self.axis)], branches, *operands)

    def moved(self, plans: list[tuple[Call, ...]], step: int, x: Any, *, back: bool = False) -> Any:
        """Return what comes from the device so many steps before; `back`: from that so many behind."""
        if not step:
            return x
        pairs = [((ring - step) % self.rings, ring) for ring, plan in enumerate(plans) if plan]
        return jax.lax.ppermute(x, self.axis, [pair[::-1] for pair in pairs] if back else pairs)


def context_parallel_attn_func(
    q: Any,
    k: Any,
    v: Any,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    *,
    ring: str | None = None,
    ulysses: str | None = None,
    zigzag: bool = True,
    return_lse: bool = False,
) -> Any:
    """Attention of sequences of which each device has a part of the rows. To be called in ``jax.shard_map``.

    Parameters
    ----------
    q : array, (batch, seqlen_local, nhead_q, hdim)
        This device's rows: of whole sequences whose rows were put in the order of `local_rows`, ``shard_map``
        hands over those by ``P(None, (ring, ulysses))``.
    k, v : array, (batch, seqlen_local, nhead_k, hdim)
        The same rows of k and v.
    softmax_scale, causal, window_size, softcap
        As in `flash_attn_func`, of whole sequences.
    ring, ulysses : str, optional
        Axes of the mesh: along `ring` keys and values travel, along `ulysses` rows are exchanged for heads.
    zigzag : bool
        True: a device of the ring has a piece from the front of each sequence and its counterpart from the
        back, of equal work under a causal mask. False: it has one piece.
    return_lse : bool
        Also return the log-sum-exp, which has no gradient.

    Returns
    -------
    out : array, (batch, seqlen_local, nhead_q, hdim)
        This device's rows.
    lse : array, float32 (batch, nhead_q, seqlen_local)
        Only with `return_lse`.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, NotImplementedError, jax.errors.JaxRuntimeError
        As in `flash_attn_func`.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> from functools import partial
    >>> from jax.sharding import Mesh
    >>> from jax.sharding import PartitionSpec as P
    >>> from pyfa_rocm.jax.context_parallel import context_parallel_attn_func, local_rows
    >>> mesh = Mesh(jax.devices()[:1], ("ring",))
    >>> q, k, v = (jnp.ones((1, 64, 2, 128), jnp.bfloat16)[:, local_rows(64, rings=1)] for _ in range(3))
    >>> attend = partial(context_parallel_attn_func, causal=True, ring="ring")
    >>> rows = P(None, "ring")
    >>> jax.shard_map(attend, mesh=mesh, in_specs=(rows,) * 3, out_specs=rows)(q, k, v).shape
    (1, 64, 2, 128)
    """
    require_static({"causal": causal, "window_size": window_size, "zigzag": zigzag})
    if ring is None and ulysses is None:
        raise InvalidArgumentError("ring, ulysses: got None, expected an axis of the mesh for one or both")
    rings, heads = (1 if axis is None else jax.lax.psum(1, axis) for axis in (ring, ulysses))
    rows = q.shape[1] * heads
    if zigzag and rings > 1 and rows % 2:
        raise InvalidArgumentError(f"q: got {q.shape[1]} rows, expected an even number with zigzag")
    if heads > 1:
        q, k, v = _heads_of(ulysses, heads, q, k, v)
    left, right = (int(side) for side in window_size)
    problem = _Problem(ring, rings, bool(causal), (left, right), softmax_scale, float(softcap), bool(zigzag))
    out, lse = _ring(problem, q, k, v)
    lse = jax.lax.stop_gradient(lse)
    if heads > 1:
        out = jax.lax.all_to_all(out, ulysses, 1, 2, tiled=True)
        lse = jax.lax.all_to_all(lse, ulysses, 2, 1, tiled=True)
    return (out, lse) if return_lse else out


def local_rows(seqlen: int, *, rings: int = 1, heads: int = 1, zigzag: bool = True) -> Any:
    """Return the places of a sequence's rows in the order in which devices have them, one after the other.

    ``x[:, local_rows(...)]`` is what ``shard_map`` cuts, and ``numpy.argsort`` of it undoes that.
    """
    shards = Shards((seqlen,), rings, heads, zigzag)
    return np.concatenate([shards.gathered(ring) for ring in range(rings)])


def _heads_of(axis: str | None, ranks: int, q: Any, k: Any, v: Any) -> list[Any]:
    """Return all rows of this device's heads of q, k and v, along an axis of the mesh."""
    nhead_q, nhead_k = q.shape[2], k.shape[2]
    if nhead_q % ranks or (nhead_k % ranks and ranks % nhead_k):
        raise InvalidArgumentError(
            f"ulysses: got {ranks} devices for {nhead_q} heads of q and {nhead_k} of k, expected a divisor "
            "of the first, and of the second a divisor or a multiple; let more of the devices be the ring's"
        )
    copies = max(1, ranks // nhead_k)
    k, v = (jnp.repeat(x, copies, axis=2) for x in (k, v))
    return [jax.lax.all_to_all(x, axis, 2, 1, tiled=True) for x in (q, k, v)]


def _slices(plan: tuple[Call, ...]) -> Iterator[tuple[Call, slice, slice]]:
    """Yield each range of rows of q, with those of k, of each call: here they are not packed."""
    for call in plan:
        for rows, keys in zip(call.q, call.k, strict=True):
            yield call, slice(*rows), slice(*keys)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _ring(problem: _Problem, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    batch, rows, heads, _ = q.shape
    out = jnp.zeros((batch, rows, heads, v.shape[-1]), jnp.float32)
    lse = jnp.full((batch, heads, rows), -jnp.inf, jnp.float32)
    q, k, v, out, lse = alike([q, k, v, out, lse])
    for step in range(problem.rings):
        plans = problem.plans(rows, step)
        if any(plans):
            keys, values = (problem.moved(plans, step, x) for x in (k, v))
            out, lse = problem.chosen(
                plans, functools.partial(_merge_calls, problem), out, lse, q, keys, values
            )
    return out.astype(q.dtype), lse


def _merge_calls(
    problem: _Problem, plan: tuple[Call, ...], out: Any, lse: Any, q: Any, k: Any, v: Any
) -> Any:  # fmt: skip
    """Return O and the log-sum-exp, merged with what the calls give."""
    for call, at, of in _slices(plan):
        part, part_lse = flash_attn_func(
            q[:, at], k[:, of], v[:, of], **problem.options(call), return_lse=True
        )
        merged, total = flash_attn_merge(part[None], part_lse[None], out=out[:, at], lse=lse[:, :, at])
        out, lse = out.at[:, at].set(merged), lse.at[:, :, at].set(total)
    return out, lse


def _forward(problem: _Problem, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    out, lse = _ring(problem, q, k, v)
    return (out, lse), (q, k, v, out, lse)


def _backward(problem: _Problem, saved: tuple[Any, ...], cotangents: tuple[Any, Any]) -> tuple[Any, ...]:
    """Return dq, dk and dv; those of keys go back to the device that has them, in float32."""
    q, k, v, out, lse = saved
    dq, dk, dv = (jnp.zeros(x.shape, jnp.float32) for x in (q, k, v))
    q, k, v, out, lse, dout, dq, dk, dv = alike([q, k, v, out, lse, cotangents[0], dq, dk, dv])
    nothing = dk, dv
    for step in range(problem.rings):
        plans = problem.plans(q.shape[1], step)
        if any(plans):
            block = [problem.moved(plans, step, x) for x in (k, v)]
            run = functools.partial(_add_gradients, problem)
            dq, *parts = problem.chosen(plans, run, dq, *nothing, dout, q, *block, out, lse)
            back = [problem.moved(plans, step, x, back=True) for x in parts]
            dk, dv = dk + back[0], dv + back[1]
    return dq.astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype)


def _add_gradients(
    problem: _Problem, plan: tuple[Call, ...], dq: Any, dk: Any, dv: Any, dout: Any, q: Any, k: Any, v: Any,
    out: Any, lse: Any,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Return the gradients, with those of the calls added."""
    for call, at, of in _slices(plan):
        arrays = {"q": q[:, at], "k": k[:, of], "v": v[:, of]}
        operands = Operands(Options(**problem.options(call)), **arrays)
        traced = operands.traced(operands.check(), deterministic=True)
        backward = traced.backward({name: x.shape for name, x in arrays.items()}, dbias=False)
        backward = backward._replace(results=tuple(x._replace(dtype="float32") for x in backward.results))
        arrays |= {"dout": dout[:, at], "o": out[:, at], "lse": lse[:, :, at]}
        parts = bind(backward, [arrays[name] for name in backward.names])
        dq, dk, dv = dq.at[:, at].add(parts[0]), dk.at[:, of].add(parts[1]), dv.at[:, of].add(parts[2])
    return dq, dk, dv


_ring.defvjp(_forward, _backward)
