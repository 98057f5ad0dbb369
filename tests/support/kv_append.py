# SPDX-License-Identifier: MIT OR Apache-2.0
"""Appends to a KV cache: how one is described, put on the device, run, and judged by float64.

E = 2^-24 being half an ulp of float32, a rotated element x cos - y sin is off by at most
2 E (|x cos| + |y sin|), one product and one sum being rounded; its quotient by a scale by 3 E of it. Then
it is rounded once, to half an ulp of the type it is stored in. A value that is neither rotated nor
quantised keeps its bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from cases_judge import within
from cases_place import Placed, bits, canary
from cases_types import DTYPES, Array, Layout
from reference import ulp
from strict import forgiven

import pyfa_rocm
from pyfa_rocm import Cache, CacheScale, CacheTensor, DeviceArray, KvAppendParams, Rotary
from pyfa_rocm.oracle.rounding import P_SCALES

_E = 2.0**-24
_POSITIONS = 300  # of rotary's tables


@dataclass(frozen=True)
class Append:
    """An append. `lengths`: new tokens of each sequence; `used`: tokens in the cache before.

    `table` is "2d", "1d", "none" (a cache without pages) or "slots"; `order` is of the cache's page, token
    and head; `together`: keys and values of a page lie side by side. `scales`: by "page", "sequence", or one.
    """

    lengths: tuple[int, ...] = (3, 3)
    used: tuple[int, ...] = (5, 17)
    packed: bool = False
    nhead_q: int = 4
    nhead_k: int = 2
    hdim_q: int = 64
    hdim_v: int = 64
    dtype: str = "float16"
    cache_dtype: str = ""
    page_size: int = 16
    table: str = "2d"
    order: tuple[int, int, int] = (0, 1, 2)
    together: bool = False
    rotary_dim: int = 0
    interleaved: bool = False
    rotary_float: bool = False
    positions: bool = False
    wide: bool = False
    in_place: bool = False
    scales: str = ""
    parts: str = "qkv"
    seed: int = 0

    @property
    def stored(self) -> str:
        return self.cache_dtype or self.dtype


class Appending:
    """An append's arrays, on both sides."""

    def __init__(self, case: Append) -> None:
        self.case = case
        self.rng = np.random.default_rng((case.seed, case.hdim_q))
        self.batch, self.longest = len(case.lengths), max(case.lengths, default=0)
        self.total = sum(case.lengths)
        self.held: list[Any] = []
        self._put_cache()
        self._put_tokens()

    def _on_device(self, host: Array) -> int:
        array = DeviceArray.from_numpy(host)
        self.held.append(array)
        return int(array.data)

    def _put_cache(self) -> None:
        """Pages in a random order, one of which no sequence owns; buffers full of NaN."""
        case, rng = self.case, self.rng
        ends = [n + m for n, m in zip(case.lengths, case.used, strict=True)]
        if case.table == "none":
            self.page_size, self.pages = max(ends) + 1, self.batch + 2
            self.owned = [[int(x)] for x in rng.permutation(self.pages)[: self.batch]]
        else:
            self.page_size = case.page_size
            counts = [-(-n // self.page_size) for n in ends]
            self.pages = sum(counts) + 1
            order = iter(rng.permutation(self.pages).tolist())
            self.owned = [[next(order) for _ in range(count)] for count in counts]
        sizes = (self.pages, self.page_size, case.nhead_k)
        hdims = (case.hdim_q, case.hdim_v)
        self.places: list[tuple[int, tuple[int, ...]]] = []  # offset and strides of k and v
        both = tuple(sizes[dim] for dim in case.order)
        self.size = 0
        rows = sum(hdims) if case.together else 0
        for hdim in hdims:
            row = rows or hdim
            ordered = [row * int(np.prod(both[i + 1 :])) for i in range(3)]
            strides = tuple(ordered[case.order.index(dim)] for dim in range(3))
            if case.together and self.places:
                self.places.append((self.places[0][0] + hdims[0], strides))
                continue
            self.places.append((self.size + 64, strides))
            self.size += 128 + row * int(np.prod(sizes))
        self.before = canary(self.size, DTYPES[case.stored])
        self.buffer = DeviceArray.from_numpy(self.before)

    def _put_tokens(self) -> None:
        case, rng = self.case, self.rng
        rows = (1, self.total) if case.packed else (self.batch, self.longest)
        self.values: dict[str, Array] = {}
        self.placed: dict[str, Placed] = {}
        for name, nhead, hdim in (
            ("q", case.nhead_q, case.hdim_q),
            ("k", case.nhead_k, case.hdim_q),
            ("v", case.nhead_k, case.hdim_v),
        ):
            if name not in case.parts:
                continue
            shape = (*rows, nhead, hdim)
            data = rng.standard_normal(shape, np.float32).astype(DTYPES[case.dtype])
            self.values[name] = data
            self.placed[name] = Placed.put(Layout((0, 1, 2), (0, 1, 1, 8)), shape, data.dtype, data)
        if "q" in case.parts and not case.in_place:
            shape = self.values["q"].shape
            self.placed["q_out"] = Placed.put(Layout((0, 2, 1)), shape, DTYPES[case.dtype], None)
        integer = np.int64 if case.wide else np.int32
        self.position = np.zeros(rows, integer)
        self.slot = np.full(rows, -1, integer)
        for b, at, place in self._tokens():
            self.position[at] = rng.integers(0, 200) if case.positions else place
            if case.table == "slots" and rng.random() < 0.8:
                page, token = self.owned[b][place // self.page_size], place % self.page_size
                self.slot[at] = page * self.page_size + token
        half = case.rotary_dim // 2
        table = rng.standard_normal((2, _POSITIONS, half), np.float32)
        self.tables = table.astype(np.float32 if case.rotary_float else DTYPES[case.dtype])
        count = self.pages if case.scales == "page" else self.batch
        self.scale = rng.uniform(0.01, 0.05, (2, count, case.nhead_k)).astype(np.float32)

    def _tokens(self) -> Any:
        """Every token: its sequence, its index, and its place in the sequence."""
        begin = 0
        for b, (length, used) in enumerate(zip(self.case.lengths, self.case.used, strict=True)):
            count = length if self.case.packed else self.longest
            for i in range(count):
                yield b, ((0, begin + i) if self.case.packed else (b, i)), used + i
            begin += length

    def _cache(self) -> Cache:
        case = self.case
        item = DTYPES[case.stored].itemsize
        k, v = (CacheTensor(self.buffer.data + item * at, *strides) for at, strides in self.places)
        fields: dict[str, Any] = {}
        if case.table == "2d":
            width = max(map(len, self.owned)) + 1
            table = np.full((self.batch, width + 2), -1, np.int32)
            for b, pages in enumerate(self.owned):
                table[b, : len(pages)] = pages
            fields = {
                "block_table": self._on_device(table),
                "stride_block_table": width + 2,
                "max_pages": width,
            }
        elif case.table == "1d":
            flat = np.array([page for pages in self.owned for page in pages], np.int32)
            starts = np.cumsum([0, *map(len, self.owned)], dtype=np.int32)
            fields = {
                "kv_indptr": self._on_device(starts),
                "kv_indices": self._on_device(flat),
                "indices": len(flat),
            }
        elif case.table == "none":
            index = np.array([pages[0] for pages in self.owned], np.int32)
            fields = {"cache_batch_idx": self._on_device(index)}
        if case.scales:
            for i, name in enumerate(("k_scale", "v_scale")):
                fields[name] = CacheScale(self._on_device(self.scale[i]), case.nhead_k, 1)
        return Cache(
            dtype=case.stored,
            pages=self.pages,
            page_size=self.page_size,
            k=k,
            v=v,
            scale_per_page=case.scales == "page",
            **fields,
        )

    def params(self) -> KvAppendParams:
        """Arguments of the raw function."""
        case = self.case
        fields: dict[str, Any] = {name: placed.strided() for name, placed in self.placed.items()}
        if case.packed:
            starts = np.cumsum([0, *case.lengths], dtype=np.int32)
            fields |= {"cu_seqlens": self._on_device(starts), "total": self.total}
        if case.rotary_dim:
            cos, sin = (self._on_device(x) for x in self.tables)
            half = case.rotary_dim // 2
            dtype = "float32" if case.rotary_float else None
            fields["rotary"] = Rotary(cos, sin, _POSITIONS, half, case.rotary_dim, dtype, case.interleaved)
        if case.positions:
            fields |= {"positions": self._on_device(self.position), "positions_int64": case.wide}
        if case.table == "slots":
            fields |= {"slots": self._on_device(self.slot), "slots_int64": case.wide}
        return KvAppendParams(
            dtype=case.dtype, batch=self.batch, seqlen=self.longest, nhead_q=case.nhead_q,
            nhead_k=case.nhead_k, hdim_q=case.hdim_q, hdim_v=case.hdim_v, cache=self._cache(),
            seqused_k=self._on_device(np.array(case.used, np.int32)), **fields,
        )  # fmt: skip

    def _flash(self) -> None:
        """Call the public function."""
        case = self.case
        at = (0,) if case.packed else ()
        arrays: dict[str, Any] = {name: placed.array[at] for name, placed in self.placed.items()}
        for name, (offset, strides), hdim in zip(
            ("k_cache", "v_cache"), self.places, (case.hdim_q, case.hdim_v), strict=True
        ):
            shape = (self.pages, self.page_size, case.nhead_k, hdim)
            arrays[name] = self.buffer._view(offset, shape, (*strides, 1))
        arrays |= {name: DeviceArray.from_numpy(np.ascontiguousarray(x)) for name, x in self.hosts().items()}
        pyfa_rocm.flash_attn_kv_append(
            **arrays, rotary_interleaved=case.interleaved, scale_per_page=case.scales == "page"
        )

    def hosts(self) -> dict[str, Array]:
        """Arguments of the public functions besides the cache and the tokens."""
        case = self.case
        at = (0,) if case.packed else ()
        hosts: dict[str, Any] = {"cache_seqlens": np.array(case.used, np.int32)}
        if case.packed:
            hosts["cu_seqlens"] = np.cumsum([0, *case.lengths], dtype=np.int32)
        if case.rotary_dim:
            hosts["rotary_cos"], hosts["rotary_sin"] = self.tables
        for name, wanted, host in (
            ("positions", case.positions, self.position),
            ("slots", case.table == "slots", self.slot),
        ):
            if wanted:
                hosts[name] = host[at]
        if case.table == "2d":
            hosts["block_table"] = np.full((self.batch, max(map(len, self.owned))), -1, np.int32)
            for b, pages in enumerate(self.owned):
                hosts["block_table"][b, : len(pages)] = pages
        if case.table == "none":
            hosts["cache_batch_idx"] = np.array([pages[0] for pages in self.owned], np.int32)
        if case.scales:
            hosts["k_scale"], hosts["v_scale"] = self.scale
        return hosts

    def run(self, public: bool = False) -> None:
        """Append by the raw or the public function, and judge the cache, all of it, and q."""
        for name, placed in self.placed.items():
            placed.watch(holds_input=name != "q_out")
        with forgiven():
            self._flash() if public else pyfa_rocm.fmha_kv_append(self.params())
            pyfa_rocm.synchronize()
        for name, placed in self.placed.items():
            if name == "q_out" or (name == "q" and self.case.in_place):
                self.judge_q(placed.take())
            else:
                assert placed.unchanged(), f"{name} was written"
        self.judge_cache(self.buffer.to_numpy())

    def judge_cache(self, now: Array) -> None:
        """Judge what the cache's buffer is now, all of it."""
        for i, name in enumerate("kv"):
            if name in self.case.parts:
                self._judge_cache(i, name, now)
        assert np.array_equal(bits(now), bits(self.before)), "what is no slot of a new token was written"

    def _rotated(self, name: str, at: tuple[int, int]) -> tuple[Array, Array]:
        """A token's elements (nhead, hdim) in float64, and how far float32 may be off."""
        case, x = self.case, self.values[name][at].astype(np.float64)
        error = np.zeros_like(x)
        if name == "v" or not case.rotary_dim:
            return x, error
        dim, half = case.rotary_dim, case.rotary_dim // 2
        first, second = (
            (slice(0, dim, 2), slice(1, dim, 2)) if case.interleaved else (slice(half), slice(half, dim))
        )
        cos, sin = self.tables[:, self.position[at]].astype(np.float64)
        a, b = x[:, first].copy(), x[:, second].copy()
        x[:, first], x[:, second] = a * cos - b * sin, b * cos + a * sin
        error[:, first] = 2 * _E * (np.abs(a * cos) + np.abs(b * sin))
        error[:, second] = 2 * _E * (np.abs(b * cos) + np.abs(a * sin))
        return x, error

    def judge_q(self, got: Array) -> None:
        """Judge the rotated queries."""
        for _, at, _ in self._tokens():
            want, error = self._rotated("q", at)
            bound = error + (error > 0) * ulp(np.abs(want) + error, self.case.dtype) / 2
            within("q", got[at], want, bound, str(at))

    def _judge_cache(self, which: int, name: str, now: Array) -> None:
        """Judge each new token, and put what was there before in its place."""
        case = self.case
        offset, (page_stride, token_stride, head_stride) = self.places[which]
        hdim = (case.hdim_q, case.hdim_v)[which]
        for b, at, place in self._tokens():
            if case.table == "slots":
                if self.slot[at] < 0:
                    continue
                page, token = divmod(int(self.slot[at]), self.page_size)
            elif case.table == "none":
                page, token = self.owned[b][0], place
            else:
                page, token = self.owned[b][place // self.page_size], place % self.page_size
            want, error = self._rotated(name, at)
            for head in range(case.nhead_k):
                begin = offset + page * page_stride + token * token_stride + head * head_stride
                here = slice(begin, begin + hdim)
                scale = self._scale(which, page, b, head)
                right, bound = self._stored(want[head], error[head], scale)
                within(name, now[here], right, bound, f"{at}[{head}]")
                now[here] = self.before[here]

    def _scale(self, which: int, page: int, b: int, head: int) -> float:
        if not self.case.scales:
            return 1.0
        return float(self.scale[which, page if self.case.scales == "page" else b, head])

    def _stored(self, want: Array, error: Array, scale: float) -> tuple[Array, Array]:
        """Return a row as the cache keeps it, and how far it may be off."""
        stored = self.case.stored
        if not stored.startswith("float8"):
            return want, error + (error > 0) * ulp(np.abs(want) + error, stored) / 2
        want, error = want / scale, error / scale + 3 * _E * np.abs(want / scale)
        most = P_SCALES[stored]  # the type's largest number
        want = np.clip(want, -most, most)
        return want, error + ulp(np.abs(want) + error, stored) / 2
