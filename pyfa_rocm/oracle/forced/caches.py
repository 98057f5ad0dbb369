# SPDX-License-Identifier: MIT OR Apache-2.0
"""Kernels around a KV cache on random problems: decoding, appends to a cache, merges of partial outputs."""

from __future__ import annotations

import numpy as np

from pyfa_rocm import fmha
from pyfa_rocm._call.decode import DecodeParams
from pyfa_rocm._call.kv_append import KvAppendParams, Rotary
from pyfa_rocm._call.merge import LseParts, MergeParams, Parts
from pyfa_rocm._call.params import Lse, Strided
from pyfa_rocm.array import dtype_of
from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.oracle.forced.outcome import (
    DTYPE_OF,
    TRIES,
    Array,
    NotOfferedError,
    Outcome,
    Row,
    Sizes,
    choose,
    drawn,
    hdim_of,
    nothing,
    number_of,
    repeated,
    workspace,
)
from pyfa_rocm.oracle.forced.problem import words
from pyfa_rocm.oracle.merging import merged
from pyfa_rocm.oracle.paged import PAGE_SIZE, Pool
from pyfa_rocm.oracle.params import forward_params, put
from pyfa_rocm.oracle.problem import Problem
from pyfa_rocm.oracle.reference import attention, largest_share
from pyfa_rocm.oracle.rounding import numerics_of, ulp
from pyfa_rocm.oracle.shares import Shares, raise_shares

__all__ = ["append", "decode", "merge"]

_SEQUENCES = 3
# Rows of keys that a step of the decoding kernels takes, for the oracle's bounds.
_TILE_N = 128
_E = 2.0**-24


def _decoding(row: Row, rng: np.random.Generator, sizes: Sizes) -> tuple[Problem, Pool]:
    """Draw a problem of decoding for a kernel: packed queries, and their keys in pages."""
    step = max(row["hdim_step"], 16 if row["layout"] == "vectors" else 8)
    hdim, hdim_v = hdim_of(rng, row["hdim_q"], step), hdim_of(rng, row["hdim_v"], step)
    nhead_k = int(rng.integers(1, max(2, sizes.most_heads // 2)))
    nhead_q = nhead_k * int(rng.integers(1, 5))
    if row["latent"]:
        hdim_v = min(hdim, hdim_v)
    rows = int(rng.integers(1, max(2, row["tile_m"] // 2))), 1, int(rng.integers(1, 9))
    lengths = tuple(n + int(rng.integers(1, sizes.longest + 1)) for n in rows)
    problem = Problem(
        *(1, nhead_q, nhead_k, sum(rows), hdim, bool(rng.random() < 0.7), DTYPE_OF[row["dtype"]]),
        seed=int(rng.integers(2**31)), seqlen_k=sum(lengths), hdim_v=hdim_v, lengths=rows, lengths_k=lengths,
        softcap=float(choose(rng, (0.0, 0.0, 20.0))),
        window_size=(int(rng.integers(0, sizes.longest)), -1) if rng.random() < 0.3 else (),
        alibi_slopes=tuple(map(float, rng.random(nhead_q, np.float32))) if rng.random() < 0.3 else (),
    )  # fmt: skip
    stored = DTYPE_OF[row["cache_dtype"]]
    vectors = row["layout"] == "vectors"
    return problem, Pool(rng, lengths, nhead_k, (hdim, hdim_v), stored, vectors, row["latent"])


def decode(row: Row, seed: int, sizes: Sizes) -> Outcome:
    """Run a kernel over a paged cache."""
    rng = drawn(row, seed)
    for _ in range(TRIES):
        p, pool = _decoding(row, rng, sizes)
        q = p.inputs()[0]
        host = {"q": q[0], "cu_seqlens_q": p.starts(), "seqused_k": np.array(p.lengths_k, np.int32)}
        host |= {name: x for name, x in p.options().items() if isinstance(x, np.ndarray)}
        held = {name: put(x) for name, x in host.items()}
        params = DecodeParams(forward_params(p, **held), pool.cache())
        params.fwd.k = params.fwd.v = Strided(0, 0, 0, 0)
        params.fwd.total_k = 0
        try:
            kernel = number_of(params, fmha.fmha_decode_kernel, row["name"])
            break
        except (NotOfferedError, UnsupportedError):
            continue
    else:
        raise NotOfferedError(f"not offered for {TRIES} random problems, the last: paged {words(p)}")
    room, params.workspace = workspace(nbytes := fmha.fmha_decode_workspace_bytes(params))
    params.workspace_bytes = nbytes
    lse_at = params.fwd.lse
    assert lse_at is not None

    def run() -> dict[str, Array]:
        o, lse = nothing(p.o_shape, p.dtype), nothing(p.lse_shape, "float32")
        params.fwd.o, params.fwd.lse = params.fwd.o._replace(data=o.data), lse_at._replace(data=lse.data)
        fmha.fmha_decode(params)
        return {"o": o.to_numpy(), "lse": lse.to_numpy()}

    found, same = repeated(run, sizes.runs)
    del room
    shares: Shares = {}
    numerics = numerics_of(p.dtype, None, _TILE_N, kernel.arch)
    for b, (_, rows, keys) in enumerate(p.sequences()):
        tokens = (pool.sequence(which, b, keys.stop - keys.start) for which in (0, 1))
        want = attention(q[:, rows], *tokens, max_seqlen_k=p.longest[1], numerics=numerics, **p.options())
        raise_shares(shares, "o", found["o"][:, rows], want.o, want.o_tolerance)
        raise_shares(shares, "lse", found["lse"][:, :, rows], want.lse, want.lse_tolerance)
    return Outcome(f"paged {words(p)}", shares, same, promised=True)


def append(row: Row, seed: int, sizes: Sizes) -> Outcome:
    """Append new tokens to a paged cache, keys rotated; where it keeps 8 bits, by scales.

    A rotated element is off by at most 2 E (|x cos| + |y sin|), its quotient by a scale by 3 E of it, and it
    is rounded once. All else in the cache must keep its bits.
    """
    rng = drawn(row, seed)
    dtype, stored = DTYPE_OF[row["dtype"]], DTYPE_OF[row["o_dtype"]]
    nhead, hdim = int(rng.integers(1, sizes.most_heads + 1)), 16 * int(rng.integers(1, 9))
    used = [int(rng.integers(0, sizes.longest)) for _ in range(_SEQUENCES)]
    new = int(rng.integers(1, 6))
    pool = Pool(rng, [n + new for n in used], nhead, (hdim, hdim), stored)
    shape = (_SEQUENCES, new, nhead, hdim)
    k, v = (rng.standard_normal(shape, np.float32).astype(dtype_of(dtype)) for _ in range(2))
    half = hdim // 2
    angles = rng.uniform(0, 6.28, (max(used) + new, half))
    tables = [f(angles).astype(np.float32) for f in (np.cos, np.sin)]
    held = [put(x) for x in (k, v, np.array(used, np.int32), *tables)]
    of_k, of_v = (Strided(x.data, *x.strides[:3]) for x in held[:2])
    params = KvAppendParams(
        dtype=dtype, batch=_SEQUENCES, seqlen=new, nhead_k=nhead, hdim_q=hdim, hdim_v=hdim,
        cache=pool.cache(), k=of_k, v=of_v, seqused_k=held[2].data,
        rotary=Rotary(held[3].data, held[4].data, len(angles), half, hdim, "float32"),
    )  # fmt: skip
    number_of(params, fmha.fmha_kv_append_kernel, row["name"])

    def run() -> dict[str, Array]:
        fmha.fmha_kv_append(params)
        return {"k": pool.held[0].to_numpy(), "v": pool.held[1].to_numpy()}

    found, same = repeated(run, sizes.runs)
    shares = {}
    for which, (name, x) in enumerate((("k", k), ("v", v))):
        want, bound = pool.tokens[which].astype(np.float64), np.zeros(pool.tokens[which].shape)
        for b in range(_SEQUENCES):
            at = used[b] + np.arange(new)
            place = pool.table[b, at // PAGE_SIZE], at % PAGE_SIZE
            value, error = x[b].astype(np.float64), np.zeros(x[b].shape)
            if which == 0:
                value, error = _rotated(value, *(table[at].astype(np.float64) for table in tables))
            scale = pool.scale[which, b].astype(np.float64)[:, None]
            value, error = value / scale, error / scale + 3 * _E * np.abs(value / scale) * (scale != 1)
            exact = (error == 0) & (stored == dtype)
            want[place] = value
            bound[place] = np.where(exact, 0.0, error + ulp(np.abs(value) + error, stored) / 2)
        shares[name] = largest_share(found[name], want, bound)
    text = f"{_SEQUENCES} x {new} tokens behind {used}, heads {nhead}, d{hdim}, rotary"
    return Outcome(text, shares, same, promised=True)


def _rotated(x: Array, cos: Array, sin: Array) -> tuple[Array, Array]:
    """Rotate (tokens, nhead, hdim) by tables (tokens, hdim / 2); return the bound of float32's error, too."""
    half = x.shape[2] // 2
    a, b, cos, sin = x[..., :half], x[..., half:], cos[:, None], sin[:, None]
    value = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=2)
    sizes = np.abs(a * cos) + np.abs(b * sin), np.abs(b * cos) + np.abs(a * sin)
    return value, 2 * _E * np.concatenate(sizes, axis=2)


def merge(row: Row, seed: int, sizes: Sizes) -> Outcome:
    """Merge partial outputs, of which a fifth is empty."""
    rng = drawn(row, seed)
    dtype, o_dtype = DTYPE_OF[row["dtype"]], DTYPE_OF[row["o_dtype"]]
    parts, batch = int(rng.integers(1, 9)), int(rng.integers(1, 3))
    seqlen, nhead = int(rng.integers(1, sizes.longest + 1)), int(rng.integers(1, sizes.most_heads + 1))
    hdim = 8 * int(rng.integers(1, 33))
    lses = rng.normal(0, 3, (parts, batch, nhead, seqlen)).astype(np.float32)
    lses[rng.random(lses.shape) < 0.2] = -np.inf
    shape = (parts, batch, seqlen, nhead, hdim)
    values = rng.standard_normal(shape, np.float32).astype(dtype_of(dtype))
    held, held_lses = put(values), put(lses)
    params = MergeParams(
        dtype=dtype, o_dtype=o_dtype, parts=parts, batch=batch, seqlen=seqlen, nhead=nhead, hdim=hdim,
        o_parts=Parts(held.data, *held.strides[:4]),
        lse_parts=LseParts(held_lses.data, *held_lses.strides[:3]),
        o=Strided(0, *held.strides[1:4]), lse=Lse(0, *held_lses.strides[1:3]),
    )  # fmt: skip
    number_of(params, fmha.fmha_merge_kernel, row["name"])

    def run() -> dict[str, Array]:
        o, lse = nothing(shape[1:], o_dtype), nothing((batch, nhead, seqlen), "float32")
        params.o = params.o._replace(data=o.data)
        params.lse = Lse(lse.data, *lse.strides[:2])
        fmha.fmha_merge(params)
        return {"o": o.to_numpy(), "lse": lse.to_numpy()}

    found, same = repeated(run, sizes.runs)
    want = merged(list(values), lses, False, o_dtype)
    shares = {name: largest_share(found[name], *pair) for name, pair in zip(("o", "lse"), want, strict=True)}
    text = f"{parts} parts of {batch} x {seqlen}, heads {nhead}, d{hdim}"
    return Outcome(text, shares, same, promised=True)
