# SPDX-License-Identifier: MIT OR Apache-2.0
"""Calls of one kind of decode, append and merge share a plan, which changes nothing but the time they take.

test_functions.py shows the same of forward.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyfa_rocm as p
from pyfa_rocm import DeviceArray, InvalidArgumentError, kv_append, merge
from pyfa_rocm._call import cached_plan, plan
from pyfa_rocm._runtime import library

_TABLES: dict[str, dict[Any, Any]] = {
    "decode": cached_plan._plans,
    "append": kv_append._plans,
    "merge": merge._plans,
}


def normal(*shape: int, seed: int, dtype: Any = np.float16) -> DeviceArray:
    host = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return DeviceArray.from_numpy(host.astype(dtype))


def decode(seed: int, batch: int = 2, **options: Any) -> Callable[[], bytes]:
    """A call of attention over a cache with data of its own; its result as bytes."""
    q, k, v = normal(batch, 1, 4, 64, seed=seed), *(normal(batch, 64, 2, 64, seed=seed + i) for i in (1, 2))
    lengths = DeviceArray.from_numpy(np.arange(20, 20 + batch, dtype=np.int32))

    def call() -> bytes:
        out, lse = p.flash_attn_with_kvcache(
            q, k, v, cache_seqlens=lengths, return_softmax_lse=True, **options
        )
        return bytes(out.to_numpy().tobytes() + lse.to_numpy().tobytes())

    return call


def append(seed: int, batch: int = 2) -> Callable[[], bytes]:
    """A call that stores tokens and rotates queries."""
    k, v, q = (normal(batch, 3, 2, 64, seed=seed + i) for i in range(3))
    cos, sin = (normal(64, 16, seed=seed + i) for i in (3, 4))

    def call() -> bytes:
        k_cache, v_cache = (
            DeviceArray.from_numpy(np.zeros((batch, 32, 2, 64), np.float16)) for _ in range(2)
        )
        out = DeviceArray.from_numpy(np.zeros((batch, 3, 2, 64), np.float16))
        p.flash_attn_kv_append(k_cache, v_cache, k, v, q=q, q_out=out, rotary_cos=cos, rotary_sin=sin)
        return b"".join(x.to_numpy().tobytes() for x in (k_cache, v_cache, out))

    return call


def merging(seed: int, batch: int = 2) -> Callable[[], bytes]:
    """A call that merges two parts."""
    outs = normal(2, batch, 5, 2, 64, seed=seed, dtype=np.float32)
    lses = normal(2, batch, 2, 5, seed=seed + 1, dtype=np.float32)

    def call() -> bytes:
        return b"".join(x.to_numpy().tobytes() for x in p.flash_attn_merge(outs, lses))

    return call


_CALLS = {"decode": decode, "append": append, "merge": merging}


@pytest.fixture(autouse=True)
def forgotten() -> None:
    for table in _TABLES.values():
        table.clear()


@pytest.mark.parametrize("name", _CALLS)
def test_a_plan_is_not_the_data(name: str) -> None:
    """Calls of one kind: each with its own inputs and results."""
    calls = [_CALLS[name](10 * i) for i in range(4)]
    found = [call() for call in calls]
    assert len(_TABLES[name]) == 1
    assert len(set(found)) == len(calls)
    for call, result in zip(calls, found, strict=True):
        _TABLES[name].clear()
        assert call() == result


@pytest.mark.parametrize("name", _CALLS)
def test_plans_are_bounded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_MOST_PLANS", 3)
    for i in range(7):
        _CALLS[name](0, batch=1 + i)()
        assert 0 < len(_TABLES[name]) <= 3


@pytest.mark.parametrize("name", _CALLS)
def test_threads_share_a_plan(name: str) -> None:
    """8 threads, one kind of call, data of their own: cffi lets go of the GIL while the C library runs."""
    calls = [_CALLS[name](10 * i) for i in range(8)]
    want = [call() for call in calls]
    barrier, wrong = threading.Barrier(len(calls)), list[int]()

    def work(i: int) -> None:
        barrier.wait()
        wrong.extend(i for _ in range(6) if calls[i]() != want[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(_TABLES[name]) == 1


def test_an_option_makes_another_plan() -> None:
    plain = decode(0)()
    assert decode(0, softmax_scale=0.3)() != plain
    assert decode(0, window_size=(4, 0))() != plain
    assert decode(0)() == plain
    assert len(_TABLES["decode"]) == 3


def test_options_that_may_change_are_not_remembered() -> None:
    assert decode(0, softmax_scale=np.array(0.3))() == decode(0, softmax_scale=0.3)()
    assert len(_TABLES["decode"]) == 1


def test_addresses_are_checked_in_each_call() -> None:
    """Addresses of one call may be right where those of the next are not."""
    q, k, v = normal(2, 1, 4, 64, seed=0), normal(2, 64, 4, 64, seed=1), normal(2, 64, 4, 64, seed=2)
    out = normal(2, 1, 4, 64, seed=3)
    outs = normal(2, 2, 5, 2, 64, seed=4, dtype=np.float32)
    lses = normal(2, 2, 2, 5, seed=5, dtype=np.float32)
    merged = p.flash_attn_merge(outs, lses)
    new = normal(2, 1, 4, 64, seed=6)
    for _ in range(2):
        p.flash_attn_with_kvcache(q, k, v, out=out)
        with pytest.raises(InvalidArgumentError, match="overlaps"):
            p.flash_attn_with_kvcache(q, k, v, out=q)
        p.flash_attn_kv_append(k, v, new, new)
        with pytest.raises(InvalidArgumentError, match="overlaps"):
            p.flash_attn_kv_append(k, k, new, new)
        p.flash_attn_merge(outs, lses, out=merged[0], lse=merged[1])
        with pytest.raises(InvalidArgumentError, match="overlaps"):
            p.flash_attn_merge(outs, lses, out=outs[0], lse=merged[1])
    assert {name: len(table) for name, table in _TABLES.items()} == {"decode": 1, "append": 1, "merge": 2}


def test_a_refused_call_has_stored_nothing() -> None:
    """A known plan does not save the question that comes before the append."""
    q, k, v = normal(2, 1, 4, 64, seed=0), normal(2, 64, 4, 64, seed=1), normal(2, 64, 4, 64, seed=2)
    new, out = normal(2, 1, 4, 64, seed=3), normal(2, 1, 4, 64, seed=4)
    lengths = DeviceArray.from_numpy(np.array([3, 5], np.int32))
    p.flash_attn_with_kvcache(q, k, v, new, new, cache_seqlens=lengths, out=out)
    before = k.to_numpy().tobytes()
    other = normal(2, 1, 4, 64, seed=5)
    with pytest.raises(InvalidArgumentError, match="overlaps"):
        p.flash_attn_with_kvcache(q, k, v, other, other, cache_seqlens=lengths, out=q)
    assert k.to_numpy().tobytes() == before


class Noted:
    """The C library, which notes what sizes are asked for and given. Values in keys take so much more."""

    def __init__(self, more: int = 0) -> None:
        self.ffi, self.lib = library.load()
        self.more = more
        self.asked: list[int] = []
        self.seen: list[tuple[int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lib, name)

    def fmha_decode_workspace_bytes(self, params: Any, nbytes: Any) -> int:
        status = int(self.lib.fmha_decode_workspace_bytes(params, nbytes))
        nbytes[0] += self.more if params.cache.k.data == params.cache.v.data else 0
        self.asked.append(nbytes[0])
        return status

    def fmha_decode(self, params: Any, stream: Any) -> int:
        self.seen.append((int(self.ffi.cast("uintptr_t", params.workspace)), params.workspace_bytes))
        return int(self.lib.fmha_decode(params, stream))


def test_workspace_reaches_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for once a plan, allocated in each call, and handed over with its size."""
    noted = Noted()
    monkeypatch.setattr(library, "load", lambda: (noted.ffi, noted))
    call = decode(0, num_splits=2)
    assert len({call() for _ in range(3)}) == 1
    assert len(noted.asked) == 1
    assert noted.asked[0] > 0
    assert [nbytes for _, nbytes in noted.seen] == noted.asked * 3
    assert all(address % 256 == 0 and address for address, _ in noted.seen)


def test_values_in_keys_have_a_workspace_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls with such values and without come in turn: each is asked about once, and has its own size."""
    noted = Noted(more=4096)
    monkeypatch.setattr(library, "load", lambda: (noted.ffi, noted))
    q, k, v = normal(2, 1, 4, 64, seed=0), normal(2, 64, 2, 64, seed=1), normal(2, 64, 2, 64, seed=2)
    found = [p.flash_attn_with_kvcache(q, k, x, num_splits=2).to_numpy() for x in (k, v) * 2]
    assert len(_TABLES["decode"]) == 1
    assert len(noted.asked) == 2
    assert noted.asked[0] == noted.asked[1] + 4096
    assert [nbytes for _, nbytes in noted.seen] == noted.asked * 2
    assert not (found[0] == found[1]).all()
    for first, again in zip(found[:2], found[2:], strict=True):
        np.testing.assert_array_equal(first, again)
