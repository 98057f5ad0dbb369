# SPDX-License-Identifier: MIT OR Apache-2.0
"""Kernels around a KV cache on random problems: decoding, appends to a cache, merges of partial outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyfa_rocm import fmha
from pyfa_rocm._call.cache import Cache, CacheScale, CacheTensor
from pyfa_rocm._call.decode import DecodeParams
from pyfa_rocm._call.kv_append import KvAppendParams, Rotary
from pyfa_rocm._call.merge import LseParts, MergeParams, Parts
from pyfa_rocm._call.params import FwdParams, Lse, Strided
from pyfa_rocm.array import DeviceArray, dtype_of
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
    judged,
    nothing,
    number_of,
    put,
    repeated,
    workspace,
)
from pyfa_rocm.oracle.merging import merged
from pyfa_rocm.oracle.reference import attention
from pyfa_rocm.oracle.rounding import numerics_of, ulp

__all__ = ["append", "decode", "merge"]

_PAGE = 16
_VECTOR_BYTES = 16
_SEQUENCES = 3
# Rows of keys that a step of the decoding kernels takes, for the oracle's bounds.
_TILE_N = 128
_E = 2.0**-24


class _Pool:
    """Keys and values of some sequences in pages of a pool, dealt out in a random order."""

    def __init__(self, rng: np.random.Generator, lengths: list[int], nhead: int, hdims: tuple[int, int],
                 dtype: str, vectors: bool) -> None:  # fmt: skip
        self.dtype, self.vectors, self.hdims, self.nhead = dtype, vectors, hdims, nhead
        counts = [-(-length // _PAGE) for length in lengths]
        self.pages = sum(counts)
        order = rng.permutation(self.pages).astype(np.int32)
        starts = np.cumsum([0, *counts])
        self.table = np.zeros((len(lengths), max(counts)), np.int32)
        for b, count in enumerate(counts):
            self.table[b, :count] = order[starts[b] : starts[b] + count]
        self.tokens: list[Array] = [
            rng.standard_normal((self.pages, _PAGE, nhead, hdim), np.float32).astype(dtype_of(dtype))
            for hdim in hdims
        ]
        scaled = dtype.startswith("float8")
        shape = (2, len(lengths), nhead)
        scale = rng.uniform(0.25, 2.0, shape) if scaled else np.ones(shape)
        self.scale: Array = scale.astype(np.float32)
        self.held: list[DeviceArray] = [put(self._laid_out(i)) for i in range(2)]
        self.held += [put(self.table), put(self.scale[0]), put(self.scale[1])]

    def _laid_out(self, which: int) -> Array:
        x = self.tokens[which]
        if not self.vectors:
            return x
        pages, size, nhead, hdim = x.shape
        if which == 0:
            vector = _VECTOR_BYTES // x.itemsize
            x = x.reshape(pages, size, nhead, hdim // vector, vector)
            return np.asarray(x.transpose(0, 2, 3, 1, 4))
        return np.asarray(x.transpose(0, 2, 3, 1))  # a vector of all tokens of a page

    def cache(self) -> Cache:
        """Describe it to the library."""
        k, v, table, *scales = self.held
        steps = [(x.strides[0], 0, x.strides[1]) if self.vectors else x.strides[:3] for x in (k, v)]
        fields: dict[str, Any] = {}
        if self.dtype.startswith("float8"):
            fields = {
                name: CacheScale(x.data, self.nhead, 1)
                for name, x in zip(("k_scale", "v_scale"), scales, strict=True)
            }
        if self.vectors:
            fields |= {"k_vector": _VECTOR_BYTES // self.tokens[0].itemsize, "v_vector": _PAGE}
        return Cache(
            self.dtype, self.pages, _PAGE, k=CacheTensor(k.data, *steps[0]), v=CacheTensor(v.data, *steps[1]),
            block_table=table.data, stride_block_table=self.table.shape[1], max_pages=self.table.shape[1],
            **fields,
        )  # fmt: skip

    def sequence(self, which: int, b: int, length: int) -> Array:
        """Return keys (0) or values (1) of a sequence in float64, (1, length, nhead, hdim)."""
        x = self.tokens[which][self.table[b]].reshape(-1, self.nhead, self.hdims[which])[None, :length]
        return np.asarray(x.astype(np.float64) * self.scale[which, b].astype(np.float64)[:, None])


class _Decoding:
    """A random problem of decoding for a kernel."""

    def __init__(self, row: Row, rng: np.random.Generator, sizes: Sizes) -> None:
        self.dtype = DTYPE_OF[row["dtype"]]
        step = max(row["hdim_step"], 16 if row["layout"] == "vectors" else 8)
        self.hdims = (hdim_of(rng, row["hdim_q"], step), hdim_of(rng, row["hdim_v"], step))
        self.nhead_k = int(rng.integers(1, max(2, sizes.most_heads // 2)))
        self.group = int(rng.integers(1, 5))
        self.rows = [int(rng.integers(1, max(2, row["tile_m"] // 2))), 1, int(rng.integers(1, 9))]
        self.lengths = [n + int(rng.integers(1, sizes.longest + 1)) for n in self.rows]
        self.causal = bool(rng.random() < 0.7)
        self.softcap = float(choose(rng, (0.0, 0.0, 20.0)))
        self.window = int(rng.integers(0, sizes.longest)) if rng.random() < 0.3 else -1
        nhead_q = self.nhead_k * self.group
        self.slopes = rng.random(nhead_q, np.float32) if rng.random() < 0.3 else None
        stored = DTYPE_OF[row["cache_dtype"]]
        self.pool = _Pool(rng, self.lengths, self.nhead_k, self.hdims, stored, row["layout"] == "vectors")
        shape = (sum(self.rows), nhead_q, self.hdims[0])
        self.q = rng.standard_normal(shape, np.float32).astype(dtype_of(self.dtype))
        self.starts = np.cumsum([0, *self.rows], dtype=np.int32)
        self.held = {
            "q": put(self.q),
            "starts": put(self.starts),
            "used": put(np.array(self.lengths, np.int32)),
        }
        if self.slopes is not None:
            self.held["slopes"] = put(self.slopes)
        self.o_shape = (1, sum(self.rows), nhead_q, self.hdims[1])
        self.lse_shape = (1, nhead_q, sum(self.rows))

    def params(self) -> DecodeParams:
        """Describe it to the library, with nowhere to write yet."""
        total, nhead_q, hdim = self.q.shape
        nowhere = Strided(0, 0, 0, 0)
        right = 0 if self.causal else 2**31 - 1
        fwd = FwdParams(
            dtype=self.dtype, batch=_SEQUENCES, seqlen_q=max(self.rows), seqlen_k=max(self.lengths),
            nhead_q=nhead_q, nhead_k=self.nhead_k, hdim_q=hdim, hdim_v=self.hdims[1],
            softmax_scale=hdim**-0.5, k=nowhere, v=nowhere,
            q=Strided(self.held["q"].data, 0, nhead_q * hdim, hdim),
            o=Strided(0, 0, nhead_q * self.hdims[1], self.hdims[1]), lse=Lse(0, 0, total),
            mask="window" if self.window >= 0 else "causal" if self.causal else "none",
            window_left=max(self.window, 0), window_right=right, softcap=self.softcap,
            cu_seqlens_q=self.held["starts"].data, total_q=total, seqused_k=self.held["used"].data,
        )  # fmt: skip
        if "slopes" in self.held:
            fwd.alibi_slopes = self.held["slopes"].data
        return DecodeParams(fwd, self.pool.cache())

    def __str__(self) -> str:
        """Say it in a line."""
        pairs = ", ".join(f"{m}x{n}" for m, n in zip(self.rows, self.lengths, strict=True))
        more = ["causal"] * self.causal + [f"window {self.window}"] * (self.window >= 0)
        more += [f"softcap {self.softcap:g}"] * bool(self.softcap) + ["alibi"] * (self.slopes is not None)
        heads = f"heads {self.nhead_k * self.group}/{self.nhead_k}"
        return ", ".join([f"paged {pairs}", heads, "d{}/{}".format(*self.hdims), *more])


def decode(row: Row, seed: int, sizes: Sizes) -> Outcome:
    """Run a kernel over a paged cache."""
    rng = drawn(row, seed)
    for _ in range(TRIES):
        problem = _Decoding(row, rng, sizes)
        params = problem.params()
        try:
            kernel = number_of(params, fmha.fmha_decode_kernel, row["name"])
            break
        except (NotOfferedError, UnsupportedError):
            continue
    else:
        raise NotOfferedError(f"not offered for {TRIES} random problems, the last: {problem}")
    room, params.workspace = workspace(nbytes := fmha.fmha_decode_workspace_bytes(params))
    params.workspace_bytes = nbytes

    def run() -> dict[str, Array]:
        o, lse = nothing(problem.o_shape, problem.dtype), nothing(problem.lse_shape, "float32")
        params.fwd.o = params.fwd.o._replace(data=o.data)
        params.fwd.lse = Lse(lse.data, 0, lse.strides[1])
        fmha.fmha_decode(params)
        return {"o": o.to_numpy(), "lse": lse.to_numpy()}

    found, same = repeated(run, sizes.runs)
    del room
    shares = dict.fromkeys(found, 0.0)
    numerics = numerics_of(problem.dtype, None, _TILE_N, kernel.arch)
    for b, length in enumerate(problem.lengths):
        rows = slice(*problem.starts[b : b + 2])
        want = attention(
            problem.q[None, rows], problem.pool.sequence(0, b, length), problem.pool.sequence(1, b, length),
            causal=problem.causal, window_size=(problem.window, -1), max_seqlen_k=max(problem.lengths),
            softcap=problem.softcap, alibi_slopes=problem.slopes, numerics=numerics,
        )  # fmt: skip
        for name, got, value, bound in (
            ("o", found["o"][:, rows], want.o, want.o_tolerance),
            ("lse", found["lse"][:, :, rows], want.lse, want.lse_tolerance),
        ):
            shares[name] = float(np.maximum(shares[name], judged(got, value, bound)))
    return Outcome(str(problem), shares, same, promised=True)


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
    pool = _Pool(rng, [n + new for n in used], nhead, (hdim, hdim), stored, vectors=False)
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
            place = pool.table[b, at // _PAGE], at % _PAGE
            value, error = x[b].astype(np.float64), np.zeros(x[b].shape)
            if which == 0:
                value, error = _rotated(value, *(table[at].astype(np.float64) for table in tables))
            scale = pool.scale[which, b].astype(np.float64)[:, None]
            value, error = value / scale, error / scale + 3 * _E * np.abs(value / scale) * (scale != 1)
            exact = (error == 0) & (stored == dtype)
            want[place] = value
            bound[place] = np.where(exact, 0.0, error + ulp(np.abs(value) + error, stored) / 2)
        shares[name] = judged(found[name], want, bound)
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
    shares = {name: judged(found[name], *pair) for name, pair in zip(("o", "lse"), want, strict=True)}
    text = f"{parts} parts of {batch} x {seqlen}, heads {nhead}, d{hdim}"
    return Outcome(text, shares, same, promised=True)
