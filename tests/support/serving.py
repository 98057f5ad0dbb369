# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sequences that grow in a paged cache: what a step of a server appends and decodes, in memory of its own.

Keys and queries are rotated by the append, which rounds them. So a step is judged in two: what the append
wrote against float64, and O and LSE against the oracle's of what the append wrote.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from built import this_arch
from cases_judge import judge
from cases_types import DTYPES, Array
from reference import attention, numerics_of, ulp
from strict import only_initialized

import pyfa_rocm
from pyfa_rocm import (
    Cache,
    CacheTensor,
    DecodeParams,
    DeviceArray,
    FwdParams,
    KvAppendParams,
    Lse,
    Rotary,
    Stream,
    Strided,
)
from pyfa_rocm._runtime import hip

_HDIM, _LONGEST = 64, 300


def upload(target: DeviceArray, host: Array) -> None:
    """Overwrite an array on the device."""
    assert (target.shape, target.nbytes) == (host.shape, host.nbytes)
    kind = hip.module().hipMemcpyKind.hipMemcpyHostToDevice
    hip.call("hipMemcpy", target.data, host.ctypes.data, host.nbytes, kind)


@dataclass(frozen=True)
class Serving:
    """Sequences to serve. `slots`: new tokens go by slots and positions, else by the table and lengths.

    `prompts` are the lengths before the first step, each of which adds `new` tokens to a sequence.
    """

    prompts: tuple[int, ...] = (5, 0, 90)
    new: int = 2
    slots: bool = False
    splits: int = 0
    dtype: str = "bfloat16"
    page_size: int = 16
    nhead_k: int = 2
    ratio: int = 4
    seed: int = 0


class Server:
    """The arrays of a `Serving`; nothing moves from step to step."""

    def __init__(self, case: Serving) -> None:
        self.case = case
        self.rng = np.random.default_rng(case.seed)
        self.batch, self.nhead_q = len(case.prompts), case.nhead_k * case.ratio
        self.width = -(-_LONGEST // case.page_size)
        self.pages = self.batch * self.width + 2
        order = self.rng.permutation(self.pages)[: self.batch * self.width]
        self.owned = order.reshape(self.batch, self.width).astype(np.int32)
        self.table = DeviceArray.from_numpy(self.owned)
        shape = (self.pages, case.page_size, case.nhead_k, _HDIM)
        empty = np.full(shape, np.nan, DTYPES[case.dtype])
        self.caches = [DeviceArray.from_numpy(empty) for _ in range(2)]
        for cache in self.caches:
            only_initialized(cache.data, cache.nbytes, np.zeros(cache.nbytes, np.bool_))
        angles = np.outer(np.arange(_LONGEST), 100.0 ** -(np.arange(_HDIM // 2) / (_HDIM // 2)))
        self.turns = np.stack([np.cos(angles), np.sin(angles)]).astype(np.float32)
        self.turns_on_device = DeviceArray.from_numpy(self.turns)
        self.keys, self.values = ([np.empty((0, case.nhead_k, _HDIM))] * self.batch for _ in range(2))
        self.lengths = np.zeros(self.batch, np.int32)
        self._put_step()
        self.prefill(case.prompts)

    def _put_step(self) -> None:
        """Allocate what a step reads and writes."""
        case = self.case
        rows = (self.batch, case.new)
        dtype = DTYPES[case.dtype]
        self.q, self.o = (DeviceArray.empty((*rows, self.nhead_q, _HDIM), dtype) for _ in range(2))
        self.q_out = DeviceArray.empty(self.q.shape, dtype)
        self.k, self.v = (DeviceArray.empty((*rows, case.nhead_k, _HDIM), dtype) for _ in range(2))
        self.lse = DeviceArray.empty((self.batch, self.nhead_q, case.new), np.float32)
        self.before, self.after = (DeviceArray.empty((self.batch,), np.int32) for _ in range(2))
        self.slots, self.positions = (DeviceArray.empty(rows, np.int64) for _ in range(2))
        self.append, self.decode = self._append(), self._decode()
        nbytes = pyfa_rocm.fmha_decode_workspace_bytes(self.decode)
        self.workspace = DeviceArray.empty((max(nbytes, 1),), np.uint8)
        if nbytes:
            self.decode.workspace, self.decode.workspace_bytes = self.workspace.data, nbytes

    def _cache(self) -> Cache:
        k, v = (CacheTensor(x.data, *x.strides[:3]) for x in self.caches)
        return Cache(
            self.case.dtype, self.pages, self.case.page_size, k=k, v=v, block_table=self.table.data,
            stride_block_table=self.width, max_pages=self.width,
        )  # fmt: skip

    def _append(self) -> KvAppendParams:
        case = self.case
        turns = self.turns_on_device
        half = _HDIM // 2
        params = KvAppendParams(
            case.dtype, self.batch, case.new, case.nhead_k, _HDIM, _HDIM, self.nhead_q, self._cache(),
            q=_strided(self.q), q_out=_strided(self.q_out), k=_strided(self.k), v=_strided(self.v),
            rotary=Rotary(turns[0].data, turns[1].data, _LONGEST, half, _HDIM, "float32"),
        )  # fmt: skip
        if not case.slots:
            params.seqused_k = self.before.data
            return params
        params.slots, params.positions = self.slots.data, self.positions.data
        params.slots_int64 = params.positions_int64 = True
        return params

    def _decode(self) -> DecodeParams:
        case = self.case
        nothing = Strided(0, 0, 0, 0)
        fwd = FwdParams(
            case.dtype, self.batch, case.new, _LONGEST, self.nhead_q, case.nhead_k, _HDIM, _HDIM,
            _HDIM**-0.5, _strided(self.q_out), nothing, nothing, _strided(self.o),
            lse=Lse(self.lse.data, *self.lse.strides[:2]), mask="causal", seqused_k=self.after.data,
        )  # fmt: skip
        return DecodeParams(fwd, self._cache(), num_splits=case.splits)

    def _draw(self, rows: tuple[int, ...], heads: int) -> Array:
        return self.rng.standard_normal((*rows, heads, _HDIM), np.float32).astype(DTYPES[self.case.dtype])

    def prefill(self, lengths: tuple[int, ...]) -> None:
        """Append so many packed tokens to each sequence, at once."""
        case, total = self.case, sum(lengths)
        if total == 0:
            return
        k, v = (self._draw((total,), case.nhead_k) for _ in range(2))
        starts = np.cumsum([0, *lengths], dtype=np.int32)
        held = [DeviceArray.from_numpy(x) for x in (k, v, starts, self.lengths)]
        of_k, of_v = (Strided(x.data, 0, *x.strides[:2]) for x in held[:2])
        params = KvAppendParams(
            case.dtype, self.batch, max(lengths), case.nhead_k, _HDIM, _HDIM, cache=self._cache(),
            k=of_k, v=of_v, rotary=self.append.rotary, cu_seqlens=held[2].data, total=total,
            seqused_k=held[3].data,
        )  # fmt: skip
        pyfa_rocm.fmha_kv_append(params)
        pyfa_rocm.synchronize()
        for b in range(self.batch):
            self._remember(b, *(x[starts[b] : starts[b + 1]] for x in (k, v)))

    def _remember(self, b: int, k: Array, v: Array) -> None:
        self.keys[b] = np.concatenate([self.keys[b], k.astype(np.float64)])
        self.values[b] = np.concatenate([self.values[b], v.astype(np.float64)])
        self.lengths[b] += len(k)

    def set_inputs(self) -> None:
        """Put the next step's tokens, lengths, slots and positions where it reads them."""
        case, rows = self.case, (self.batch, self.case.new)
        self.q_host = self._draw(rows, self.nhead_q)
        k, v = (self._draw(rows, case.nhead_k) for _ in range(2))
        upload(self.before, self.lengths)
        places = self.lengths[:, None] + np.arange(case.new)
        pages = np.take_along_axis(self.owned, places // case.page_size, axis=1).astype(np.int64)
        upload(self.slots, pages * case.page_size + places % case.page_size)
        upload(self.positions, places.astype(np.int64))
        for b in range(self.batch):
            self._remember(b, k[b], v[b])
        upload(self.after, self.lengths)
        for array, host in ((self.q, self.q_host), (self.k, k), (self.v, v)):
            upload(array, host)

    def enqueue(self, stream: Stream) -> None:
        """Enqueue the step."""
        pyfa_rocm.fmha_kv_append(self.append, stream.handle)
        pyfa_rocm.fmha_decode(self.decode, stream.handle)

    def everything(self) -> list[bytes]:
        """Return what the step wrote, caches included."""
        return [x.to_numpy().tobytes() for x in (self.q_out, self.o, self.lse, *self.caches)]

    def _cached(self, cache: DeviceArray, b: int) -> Array:
        """The tokens of a sequence, in order."""
        rows: Array = cache.to_numpy()[self.owned[b]].reshape(-1, self.case.nhead_k, _HDIM)
        return rows[: self.lengths[b]]

    def judge(self) -> None:
        """Assert that the step did what it should; it is over."""
        q_out, o, lse = (x.to_numpy() for x in (self.q_out, self.o, self.lse))
        numerics = numerics_of(self.case.dtype, None, 128, this_arch())
        for b, length in enumerate(self.lengths):
            k, v = (self._cached(cache, b) for cache in self.caches)
            assert np.array_equal(v.astype(np.float64), self.values[b])
            self._judge_turned(k, self.keys[b], np.arange(length))
            self._judge_turned(
                q_out[b], self.q_host[b].astype(np.float64), np.arange(length)[-self.case.new :]
            )
            want = attention(q_out[b : b + 1], k[None], v[None], causal=True, numerics=numerics)
            judge(want, o[b : b + 1], lse[b : b + 1])

    def _judge_turned(self, got: Array, x: Array, positions: Array) -> None:
        cos, sin = self.turns[:, positions, None].astype(np.float64)
        a, b = x[..., : _HDIM // 2], x[..., _HDIM // 2 :]
        want = np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
        # Two roundings in float32 of what is below |a| + |b|, and one of the result.
        size = np.abs(a) + np.abs(b)
        bound = 2.0**-23 * np.concatenate([size, size], axis=-1)
        assert (
            np.abs(got.astype(np.float64) - want) <= bound + ulp(np.abs(want) + bound, self.case.dtype) / 2
        ).all()


def _strided(array: DeviceArray) -> Strided:
    return Strided(array.data, *array.strides[:3])
