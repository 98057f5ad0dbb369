# SPDX-License-Identifier: MIT OR Apache-2.0
"""Caches beyond 4 GiB: pages, batch elements and tokens whose offsets 32 bits cannot hold.

The cache is one allocation of 5 GiB of which only the tokens' memory is ever touched.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from built import this_arch
from cases_judge import judge
from reference import attention, numerics_of

import pyfa_rocm
from pyfa_rocm import (
    Cache,
    CacheTensor,
    DecodeParams,
    DeviceArray,
    FwdParams,
    KvAppendParams,
    Lse,
    Strided,
)
from pyfa_rocm._runtime import hip

_HDIM, _LENGTH, _NHEAD_Q = 64, 40, 4
_ROW = 2 * _HDIM  # a key and its value, side by side
_ELEMENTS = 5 * 2**30 // 2


@dataclass(frozen=True)
class Far:
    """How a cache is laid out: `pages` are those of the one sequence; with one entry it has no list."""

    page_size: int
    stride_page: int
    stride_token: int
    pages: tuple[int, ...]

    def offsets(self) -> list[int]:
        """Elements from the beginning of the cache to each token."""
        places = (divmod(t, self.page_size) for t in range(_LENGTH))
        return [self.pages[page] * self.stride_page + slot * self.stride_token for page, slot in places]


_PAGE = 16 * _ROW
_LAST = _ELEMENTS // _PAGE - 1
LAYOUTS = {
    "pages": Far(16, _PAGE, _ROW, (_LAST, 0, _LAST - 1)),
    "pages apart": Far(16, _ELEMENTS // 2 - _PAGE, _ROW, (2, 0, 1)),
    "pages of one token": Far(1, _ROW, 8, tuple(_ELEMENTS // _ROW - 1 - 7 * i for i in range(_LENGTH))),
    "batch elements": Far(_LENGTH, _ELEMENTS - _LENGTH * _ROW, _ROW, (1,)),
    "tokens": Far(_LENGTH, 0, (_ELEMENTS - _ROW) // (_LENGTH - 1) // 8 * 8, (0,)),
}


@pytest.mark.parametrize("what", LAYOUTS)
def test_beyond_4_gib(what: str) -> None:
    """Appended where they should be, and found there."""
    far = LAYOUTS[what]
    assert max(far.offsets()) > 2**31
    rng = np.random.default_rng(1)
    shapes = ((1, 1, _NHEAD_Q, _HDIM), (1, _LENGTH, 1, _HDIM), (1, _LENGTH, 1, _HDIM))
    q, k, v = (rng.standard_normal(shape, np.float32).astype(np.float16) for shape in shapes)
    pool = DeviceArray.empty((_ELEMENTS,), np.float16)
    table = DeviceArray.from_numpy(np.array(far.pages, np.int32))
    strides = (far.stride_page, far.stride_token, _HDIM)
    cache = Cache(
        "float16",
        max(far.pages) + 1,
        far.page_size,
        k=CacheTensor(pool.data, *strides),
        v=CacheTensor(pool.data + 2 * _HDIM, *strides),
    )
    if len(far.pages) > 1:
        cache.block_table, cache.max_pages, cache.stride_block_table = table.data, len(far.pages), 0
    else:
        cache.cache_batch_idx = table.data
    _append(cache, k, v)
    for t, offset in enumerate(far.offsets()):
        row = np.empty(_ROW, np.float16)
        kind = hip.module().hipMemcpyKind.hipMemcpyDeviceToHost
        hip.call("hipMemcpy", row.ctypes.data, pool.data + 2 * offset, row.nbytes, kind)
        assert row.tobytes() == k[0, t, 0].tobytes() + v[0, t, 0].tobytes()
    o, lse = _decode(cache, q)
    judge(attention(q, k, v, numerics=numerics_of("float16", None, 128, this_arch())), o, lse)


def _strided(array: DeviceArray) -> Strided:
    return Strided(array.data, *array.strides[:3])


def _append(cache: Cache, k: np.ndarray, v: np.ndarray) -> None:
    arrays = [DeviceArray.from_numpy(x) for x in (k, v)]
    of_k, of_v = map(_strided, arrays)
    pyfa_rocm.fmha_kv_append(
        KvAppendParams("float16", 1, _LENGTH, 1, _HDIM, _HDIM, cache=cache, k=of_k, v=of_v)
    )
    pyfa_rocm.synchronize()


def _decode(cache: Cache, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    on_device, o = DeviceArray.from_numpy(q), DeviceArray.empty(q.shape, np.float16)
    lse = DeviceArray.empty((1, _NHEAD_Q, 1), np.float32)
    nothing = Strided(0, 0, 0, 0)
    fwd = FwdParams(
        "float16", 1, 1, _LENGTH, _NHEAD_Q, 1, _HDIM, _HDIM, _HDIM**-0.5, _strided(on_device), nothing,
        nothing, _strided(o), lse=Lse(lse.data, _NHEAD_Q, 1),
    )  # fmt: skip
    pyfa_rocm.fmha_decode(DecodeParams(fwd, cache, num_splits=1))
    return o.to_numpy(), lse.to_numpy()


def test_slopes_far_apart() -> None:
    """Slopes of two sequences, further apart than 32 bits count: those of the second hide all but one key."""
    keys, stride = 16, 2**31 + 64
    k = np.zeros((2, keys, 1, _HDIM), np.float16)
    v = np.broadcast_to(np.arange(keys, dtype=np.float16)[None, :, None, None], k.shape)
    pool = DeviceArray.empty((stride + 1,), np.float32)
    for at, slope in ((0, 0.0), (stride, 10.0)):
        host = np.array([slope], np.float32)
        kind = hip.module().hipMemcpyKind.hipMemcpyHostToDevice
        hip.call("hipMemcpy", pool.data + 4 * at, host.ctypes.data, 4, kind)
    q, o = (DeviceArray.from_numpy(np.zeros((2, 1, 1, _HDIM), np.float16)) for _ in range(2))
    held = [DeviceArray.from_numpy(np.ascontiguousarray(x)) for x in (k, v)]
    of_k, of_v = (CacheTensor(x.data, *x.strides[:3]) for x in held)
    nothing = Strided(0, 0, 0, 0)
    fwd = FwdParams(
        "float16", 2, 1, keys, 1, 1, _HDIM, _HDIM, 1.0, _strided(q), nothing, nothing, _strided(o),
        mask="causal", alibi_slopes=pool.data, alibi_stride_batch=stride,
    )  # fmt: skip
    pyfa_rocm.fmha_decode(DecodeParams(fwd, Cache("float16", 2, keys, k=of_k, v=of_v), num_splits=1))
    # In the second sequence the key before weighs exp(-10): 15 - 4.5e-5, which float16 rounds to 15.
    assert o.to_numpy()[:, 0, 0, 0].tolist() == [7.5, 15]
