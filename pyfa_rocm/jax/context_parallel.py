# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention of sequences that are cut among the devices of a mesh, inside ``jax.shard_map``.

As `pyfa_rocm.torch.context_parallel`: in each step keys and values come from one more device, by
``ppermute``, and partial results are merged in float32. Devices run one program, so a step is a ``switch``
among the sets of calls that differ: two with a causal mask and no window, if there is one sequence. Packed
sequences leave devices different numbers of rows, so all but the fullest have some that are of no sequence.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from pyfa_rocm._call.params import Options
from pyfa_rocm._shards import Call, Shards, calls
from pyfa_rocm.errors import InvalidArgumentError
from pyfa_rocm.jax._operands import Operands, require_static
from pyfa_rocm.jax._primitive import alike, bind
from pyfa_rocm.jax.attention import flash_attn_func
from pyfa_rocm.jax.merge import flash_attn_merge
from pyfa_rocm.jax.varlen import flash_attn_varlen_func

__all__ = ["context_parallel_attn_func", "context_parallel_attn_varlen_func", "local_rows"]


class _Problem(NamedTuple):
    """A call on all devices of a mesh's axis, known while tracing: of packed sequences, or of one length."""

    axis: str | None
    rings: int
    lengths: tuple[int, ...]
    packed: bool
    causal: bool
    window_size: tuple[int, int]
    softmax_scale: float | None
    softcap: float
    zigzag: bool

    def plans(self, step: int) -> list[tuple[Call, ...]]:
        """Return the calls of each device in a step, on the keys of the device so many before it."""
        shards = Shards(self.lengths, self.rings, zigzag=self.zigzag)
        return [
            calls(shards, ring, (ring - step) % self.rings, self.causal, self.window_size)
            for ring in range(self.rings)
        ]

    def options(self, call: Call) -> dict[str, Any]:
        return {
            "softmax_scale": self.softmax_scale,
            "softcap": self.softcap,
            "window_size": call.window_size,
        }

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
    rings, heads = _devices(ring, ulysses)
    if zigzag and rings > 1 and q.shape[1] * heads % 2:
        raise InvalidArgumentError(f"q: got {q.shape[1]} rows, expected an even number with zigzag")
    lengths = (q.shape[1] * heads * rings,)
    options = (softmax_scale, causal, window_size, softcap, zigzag)
    out, lse = _attend((q, k, v), (ring, ulysses), (rings, heads), lengths, False, *options)
    return (out, lse) if return_lse else out


def context_parallel_attn_varlen_func(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens: Sequence[int],
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
    """Like `context_parallel_attn_func`, but of packed sequences of any lengths.

    Arguments that are not listed are as there.

    Parameters
    ----------
    q : array, (total_local, nhead_q, hdim)
        This device's rows: of all packed rows, in the order of ``local_rows(cu_seqlens, ...)``, ``shard_map``
        hands over those by ``P((ring, ulysses))``. Rows of no sequence may hold any numbers.
    k, v : array, (total_local, nhead_k, hdim) and (total_local, nhead_k, hdim_v)
        The same rows of k and v.
    cu_seqlens : sequence of int
        Where each whole sequence starts, and the end: numbers that are known while tracing.

    Returns
    -------
    out : array, (total_local, nhead_q, hdim_v)
        This device's rows; those of no sequence are 0, and so are their gradients.
    lse : array, float32 (nhead_q, total_local)
        Only with `return_lse`; -inf for rows of no sequence.

    Raises
    ------
    TypeError, InvalidArgumentError, UnsupportedError, NotImplementedError, jax.errors.JaxRuntimeError
        As in `flash_attn_func`.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> from jax.sharding import Mesh
    >>> from jax.sharding import PartitionSpec as P
    >>> from pyfa_rocm.jax.context_parallel import context_parallel_attn_varlen_func, local_rows
    >>> mesh, starts = Mesh(jax.devices()[:1], ("ring",)), (0, 30, 100)
    >>> q = jnp.ones((100, 2, 128), jnp.bfloat16)[local_rows(starts, rings=1)]
    >>> def attend(q):
    ...     return context_parallel_attn_varlen_func(q, q, q, starts, causal=True, ring="ring")
    >>> jax.shard_map(attend, mesh=mesh, in_specs=P("ring"), out_specs=P("ring"))(q).shape
    (100, 2, 128)
    """
    rings, heads = _devices(ring, ulysses)
    lengths = _lengths(cu_seqlens)
    rows = _rows_of_a_device(Shards(lengths, rings, zigzag=bool(zigzag)), heads)
    for name, x in (("q", q), ("k", k), ("v", v)):
        if x.ndim != 3 or x.shape[0] != rows:
            raise InvalidArgumentError(
                f"{name}: got shape {x.shape}, expected ({rows}, nhead, hdim): a device's rows of sequences "
                f"of lengths {list(lengths)}, as local_rows puts them"
            )
    options = (softmax_scale, causal, window_size, softcap, zigzag)
    out, lse = _attend((q, k, v), (ring, ulysses), (rings, heads), lengths, True, *options)
    return (out, lse) if return_lse else out


def local_rows(
    seqlen: int | Sequence[int], *, rings: int = 1, heads: int = 1, zigzag: bool = True
) -> npt.NDArray[np.int64]:
    """Return the places of rows in the order in which devices have them, one device after the other.

    Parameters
    ----------
    seqlen : int or sequence of int
        A sequence's length, or the `cu_seqlens` of packed ones. A device's rows of no sequence are -1.
    rings, heads : int
        Sizes of the axes `ring` and `ulysses`.
    zigzag : bool
        As in `context_parallel_attn_func`.

    Examples
    --------
    ``x[:, local_rows(...)]``, or ``x[local_rows(...)]`` of packed rows, is what ``shard_map`` cuts. The
    inverse begins behind the rows of no sequence:

    >>> import numpy as np
    >>> from pyfa_rocm.jax.context_parallel import local_rows
    >>> order = local_rows((0, 5, 8), rings=2)
    >>> print(order)
    [ 0  3  4  5  7  1  2  6 -1 -1]
    >>> print(order[np.argsort(order, kind="stable")[-8:]])
    [0 1 2 3 4 5 6 7]
    """
    if isinstance(seqlen, int):
        shards = Shards((seqlen,), rings, heads, zigzag)
        return np.concatenate([shards.gathered(ring) for ring in range(rings)])
    shards = Shards(_lengths(seqlen), rings, zigzag=zigzag)
    rows = heads * _rows_of_a_device(shards, heads)
    parts = [shards.ring_rows(ring) for ring in range(rings)]
    return np.concatenate([np.pad(x, (0, rows - x.size), constant_values=-1) for x in parts])


def _rows_of_a_device(shards: Shards, heads: int) -> int:
    """Return how many rows each device has: those of the ring's fullest, shared among `heads`."""
    return max(-(-shards.ring_rows(ring).size // heads) for ring in range(shards.rings))


def _lengths(cu_seqlens: Sequence[int]) -> tuple[int, ...]:
    require_static({"cu_seqlens": cu_seqlens})
    starts = [int(x) for x in cu_seqlens]
    if not starts or starts[0]:
        raise InvalidArgumentError(f"cu_seqlens: got {starts}, expected first rows from 0 on, and the end")
    return tuple(stop - start for start, stop in pairwise(starts))


def _devices(ring: str | None, ulysses: str | None) -> tuple[int, int]:
    """Return the sizes of the two axes."""
    if ring is None and ulysses is None:
        raise InvalidArgumentError("ring, ulysses: got None, expected an axis of the mesh for one or both")
    rings, heads = (1 if axis is None else int(jax.lax.psum(1, axis)) for axis in (ring, ulysses))
    return rings, heads


def _attend(
    arrays: tuple[Any, Any, Any],
    axes: tuple[str | None, str | None],
    sizes: tuple[int, int],
    lengths: tuple[int, ...],
    packed: bool,
    softmax_scale: float | None,
    causal: bool,
    window_size: tuple[int, int],
    softcap: float,
    zigzag: bool,
) -> tuple[Any, Any]:
    """Return O and the log-sum-exp of this device's rows. Rows are the third dimension from the end."""
    require_static({"causal": causal, "window_size": window_size, "zigzag": zigzag})
    (ring, ulysses), (rings, heads) = axes, sizes
    q, k, v = _heads_of(ulysses, heads, *arrays) if heads > 1 else arrays
    left, right = (int(side) for side in window_size)
    problem = _Problem(
        ring, rings, lengths, packed, bool(causal), (left, right), softmax_scale, float(softcap), bool(zigzag)
    )
    out, lse = _ring(problem, q, k, v)
    lse = jax.lax.stop_gradient(lse)
    if heads > 1:
        row = q.ndim - 3
        out = jax.lax.all_to_all(out, ulysses, row, row + 1, tiled=True)
        lse = jax.lax.all_to_all(lse, ulysses, row + 1, row, tiled=True)
    return out, lse


def _heads_of(axis: str | None, ranks: int, q: Any, k: Any, v: Any) -> list[Any]:
    """Return all rows of this device's heads of q, k and v, along an axis of the mesh."""
    nhead_q, nhead_k = q.shape[-2], k.shape[-2]
    if nhead_q % ranks or (nhead_k % ranks and ranks % nhead_k):
        raise InvalidArgumentError(
            f"ulysses: got {ranks} devices for {nhead_q} heads of q and {nhead_k} of k, expected a divisor "
            "of the first, and of the second a divisor or a multiple; let more of the devices be the ring's"
        )
    copies = max(1, ranks // nhead_k)
    k, v = (jnp.repeat(x, copies, axis=-2) for x in (k, v))
    row = q.ndim - 3
    return [jax.lax.all_to_all(x, axis, row + 1, row, tiled=True) for x in (q, k, v)]


class _Placed(NamedTuple):
    """A call of the kernels: its rows of q and of k, their lengths if they are packed, and the longest."""

    call: Call
    q: slice
    k: slice
    lengths: dict[str, Any]
    longest: dict[str, Any]


def _placed(problem: _Problem, plan: tuple[Call, ...]) -> Iterator[_Placed]:
    """Yield the calls of the kernels: each range of rows by itself, or all those of a call if packed."""
    for call in plan:
        if not problem.packed:
            for rows, keys in zip(call.q, call.k, strict=True):
                yield _Placed(call, slice(*rows), slice(*keys), {}, {})
            continue
        lengths: dict[str, Any] = {}
        for name, ranges in (("q", call.q), ("k", call.k)):
            first, last = ranges[0][0], ranges[-1][1]
            starts = [start - first for start, _ in ranges]
            lengths[f"cu_seqlens_{name}"] = np.array([*starts, last - first], np.int32)
            lengths[f"seqused_{name}"] = np.array([stop - start for start, stop in ranges], np.int32)
        at, of = (slice(ranges[0][0], ranges[-1][1]) for ranges in (call.q, call.k))
        longest = {f"max_seqlen_{name}": int(lengths[f"seqused_{name}"].max()) for name in "qk"}
        yield _Placed(call, at, of, lengths, longest)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _ring(problem: _Problem, q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    out = jnp.zeros((*q.shape[:-1], v.shape[-1]), jnp.float32)
    lse = jnp.full(out.shape[:-1], -jnp.inf, jnp.float32).swapaxes(-1, -2)
    q, k, v, out, lse = alike([q, k, v, out, lse])
    for step in range(problem.rings):
        plans = problem.plans(step)
        if any(plans):
            keys, values = (problem.moved(plans, step, x) for x in (k, v))
            out, lse = problem.chosen(
                plans, functools.partial(_merge_calls, problem), out, lse, q, keys, values
            )
    return out.astype(q.dtype), lse


def _merge_calls(
    problem: _Problem, plan: tuple[Call, ...], out: Any, lse: Any, q: Any, k: Any, v: Any
) -> Any:
    """Return O and the log-sum-exp, merged with what the calls give."""
    for at in _placed(problem, plan):
        attend = flash_attn_varlen_func if problem.packed else flash_attn_func
        arrays = {"q": q[..., at.q, :, :], "k": k[..., at.k, :, :], "v": v[..., at.k, :, :]} | at.lengths
        part, part_lse = attend(**arrays, **at.longest, **problem.options(at.call), return_lse=True)
        merged, total = flash_attn_merge(
            part[None], part_lse[None], out=out[..., at.q, :, :], lse=lse[..., at.q]
        )
        out, lse = out.at[..., at.q, :, :].set(merged), lse.at[..., at.q].set(total)
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
        plans = problem.plans(step)
        if any(plans):
            block = [problem.moved(plans, step, x) for x in (k, v)]
            run = functools.partial(_add_gradients, problem)
            dq, *parts = problem.chosen(plans, run, dq, *nothing, dout, q, *block, out, lse)
            back = [problem.moved(plans, step, x, back=True) for x in parts]
            dk, dv = dk + back[0], dv + back[1]
    return dq.astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype)


def _add_gradients(
    problem: _Problem,
    plan: tuple[Call, ...],
    dq: Any,
    dk: Any,
    dv: Any,
    dout: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
) -> tuple[Any, Any, Any]:
    """Return the gradients, with those of the calls added."""
    for at in _placed(problem, plan):
        arrays = {"q": q[..., at.q, :, :], "k": k[..., at.k, :, :], "v": v[..., at.k, :, :]} | at.lengths
        operands = Operands(Options(**problem.options(at.call)), **arrays)
        checked = operands.check(**at.longest, packed=problem.packed)
        traced = operands.traced(checked, deterministic=True)
        backward = traced.backward(operands.shapes, dbias=False)
        backward = backward._replace(results=tuple(x._replace(dtype="float32") for x in backward.results))
        arrays |= {"dout": dout[..., at.q, :, :], "o": out[..., at.q, :, :], "lse": lse[..., at.q]}
        parts = bind(backward, alike([jnp.asarray(arrays[name]) for name in backward.names]))
        dq = dq.at[..., at.q, :, :].add(parts[0])
        dk, dv = (x.at[..., at.k, :, :].add(part) for x, part in zip((dk, dv), parts[1:], strict=True))
    return dq, dk, dv


_ring.defvjp(_forward, _backward)
