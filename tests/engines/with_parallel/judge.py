# SPDX-License-Identifier: MIT OR Apache-2.0
"""How far the merged results of ranks may be from float64.

E = 2^-24 is half an ulp of float32. A rank merges parts i, each with an O of its own that is off by no more
than b_i, and a log-sum-exp off by l_i: the oracle's bounds of a call on one device. Both are of keys that no
other part has, so that O = sum_i w_i o_i with w_i = exp(lse_i - lse). Then

    |dO| <= sum_i w_i (b_i + e_i (|o_i| + |O|)) + ulp(O),    |dlse| <= sum_i w_i e_i + E (m + |lse|)

The weight of a part is wrong by e_i, relative: l_i, and in each of the at most m merges that it goes through
the merge's own rounding (tests/support/merge.py), of two terms: E (3 |d| + 3) of exp of a difference d of
log-sum-exps, 8 E of sums and quotient, and E (|lse| + 6) of the log-sum-exp so far. O is rounded once, at the
end. d is no larger than the distance of the farthest part's log-sum-exp from the last one.

Gradients are sums of those of the calls, in float32, of the O and log-sum-exp that forward gave: the bound is
that of one call on all keys, whose chain of sums is as long. Where ranks share a head of k, each rounds its
own part of the gradient before the sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from adapters.with_torch.torch_cases import to_numpy
from backward import judge_gradient
from built import this_arch
from engines.with_parallel.work import Problem
from reference import Gradient, attention, gradients, numerics_of, ulp

from pyfa_rocm._shards import Shards, calls

_E = 2.0**-24


def judge(problem: Problem, results: list[tuple[Any, ...]]) -> None:
    """Assert that what all ranks have is attention and its gradients."""
    out, lse, *grads = joined(problem, results)
    q, k, v, dout = (to_numpy(x) for x in problem.tensors())
    numerics = numerics_of(problem.dtype, arch=this_arch())
    want, bound, want_lse, lse_bound = _merged(problem, q, k, v)
    np.testing.assert_array_equal(np.isneginf(lse), np.isneginf(want_lse))
    seen = np.isfinite(want_lse)
    assert (np.abs(lse - want_lse)[seen] <= lse_bound[seen]).all()
    error = np.abs(out.astype(np.float64) - want)
    assert (error <= bound).all(), f"O is off by {error.max()}, {(error / bound).max()} of what it may be"
    for start, stop in zip(problem.starts[:-1], problem.starts[1:], strict=True) if grads else ():
        own = slice(start, stop)
        if start == stop:
            continue
        copies = max(1, problem.heads // problem.nhead_k)
        keys, values = (np.repeat(x[None, own], copies, axis=2) for x in (k, v))
        exact = gradients(
            q[None, own], keys, values, out[None, own], lse[None, :, own], dout[None, own],
            numerics=numerics, **problem.options,
        )  # fmt: skip
        for name, gradient in zip(("dq", "dk", "dv"), grads, strict=True):
            want_grad = exact[name] if name == "dq" else _summed(exact[name], copies, problem.dtype)
            judge_gradient(name, want_grad, gradient[None, own], problem.dtype)


def _summed(gradient: Gradient, copies: int, dtype: str) -> Gradient:
    """Return the gradient of heads of k, of those of copies of each, which are rounded before."""
    if copies == 1:
        return gradient
    batch, rows, heads, width = gradient.value.shape
    shape = (batch, rows, heads // copies, copies, width)
    parts = (gradient.value, gradient.bound_in(dtype), gradient.variance_in(dtype))
    return Gradient(*(x.reshape(shape).sum(axis=3) for x in parts))


def joined(problem: Problem, results: list[tuple[Any, ...]]) -> list[Any]:
    """Return all rows, in their order, of what ranks have; the log-sum-exp is (nhead, rows)."""
    rows = np.concatenate([to_numpy(x[0]) for x in results])
    order = np.argsort(rows)
    assert (rows[order] == np.arange(sum(problem.lengths))).all()
    parts = [[to_numpy(x[i]) for x in results] for i in range(1, len(results[0]))]
    return [
        np.concatenate(x, axis=1)[:, order] if i == 1 else np.concatenate(x)[order]
        for i, x in enumerate(parts)
    ]


def _merged(problem: Problem, q: Any, k: Any, v: Any) -> tuple[Any, Any, Any, Any]:
    """Return O (rows, nhead, hdim) and the log-sum-exp (nhead, rows) in float64, each with its bound."""
    shards = Shards(problem.lengths, problem.rings, problem.heads, problem.zigzag)
    shape = q.shape[:-1] + v.shape[-1:]
    out, bound = np.zeros(shape), np.zeros(shape)
    lse, lse_bound = np.full(shape[1::-1], -np.inf), np.zeros(shape[1::-1])
    for ring in range(problem.rings):
        rows = shards.ring_rows(ring)
        parts = [x for other in range(problem.rings) for x in _parts(problem, shards, ring, other, q, k, v)]
        if not parts or not rows.size:
            continue
        lses = np.stack([x[2] for x in parts])
        with np.errstate(divide="ignore", invalid="ignore"):
            total = np.logaddexp.reduce(lses, axis=0)
            weights = np.where(np.isfinite(lses), np.exp(lses - total), 0.0)
            away = np.where(np.isfinite(lses), np.abs(lses - total), 0.0).max(axis=0)
        size = np.where(np.isfinite(total), np.abs(total), 0.0)
        of_merges = len(parts) * _E * (3 * away + size + 17)
        e = np.stack([x[3] for x in parts]) + of_merges
        by_rows = [x.transpose(0, 2, 1)[..., None] for x in (weights, e)]
        values = np.stack([x[0] for x in parts])
        o = (by_rows[0] * values).sum(axis=0)
        errors = np.stack([x[1] for x in parts]) + by_rows[1] * (np.abs(values) + np.abs(o))
        off = (by_rows[0] * errors).sum(axis=0)
        out[rows], bound[rows] = o, off + ulp(np.abs(o) + off, problem.dtype)
        lse[:, rows] = total
        lse_bound[:, rows] = (weights * e).sum(axis=0) + _E * (len(parts) + size)
    return out, bound, lse, lse_bound


def _parts(
    problem: Problem, shards: Shards, ring: int, other: int, q: Any, k: Any, v: Any
) -> list[tuple[Any, ...]]:
    """Return O, its bound, the log-sum-exp and its bound of each call of a rank, at all of its rows."""
    rows, keys = shards.ring_rows(ring), shards.ring_rows(other)
    numerics = numerics_of(problem.dtype, arch=this_arch())
    parts = []
    for call in calls(shards, ring, other, problem.causal, problem.window_size):
        shape = (rows.size, q.shape[1], v.shape[-1])
        o, off = np.zeros(shape), np.zeros(shape)
        lse, lse_off = np.full(shape[1::-1], -np.inf), np.zeros(shape[1::-1])
        for (a, b), (c, d) in zip(call.q, call.k, strict=True):
            x = attention(
                q[None, rows[a:b]], k[None, keys[c:d]], v[None, keys[c:d]], window_size=call.window_size,
                softcap=problem.softcap, numerics=numerics, max_seqlen_k=max(s - r for r, s in call.k),
            )  # fmt: skip
            o[a:b], off[a:b], lse[:, a:b], lse_off[:, a:b] = (
                x.o[0], x.o_tolerance[0], x.lse[0], x.lse_tolerance[0]
            )  # fmt: skip
        parts.append((o, off, lse, lse_off))
    return parts
