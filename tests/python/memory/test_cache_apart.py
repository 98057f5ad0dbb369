# SPDX-License-Identifier: MIT OR Apache-2.0
"""Keys and values of a cache that is written may lie in one another's gaps, but share no element of a page.

A page of keys may be where another page of values is: one pool may have the pages of both, and tables keep
them apart.
"""

from __future__ import annotations

import numpy as np
import pytest

import pyfa_rocm as p

PAGES, PAGE, HEADS, HDIM = 2, 3, 2, 8
SHAPE = (PAGES, PAGE, HEADS, HDIM)
ROOM = 4096


def _cache(memory: p.DeviceArray, start: int, strides: tuple[int, int, int]) -> p.DeviceArray:
    return memory._view(start, SHAPE, (*strides, 1))


def _elements(start: int, strides: tuple[int, int, int]) -> set[int]:
    """The elements of a page."""
    index = np.indices(SHAPE[1:])
    return set((start + sum(i * s for i, s in zip(index, (*strides[1:], 1), strict=True))).ravel().tolist())


def _is_refused(k: p.DeviceArray, v: p.DeviceArray, new: p.DeviceArray) -> bool:
    message = ""
    try:
        p.flash_attn_kv_append(k, v, new, new)
    except p.InvalidArgumentError as error:
        message = str(error)
    return "cache->v is written but overlaps cache->k" in message


@pytest.mark.parametrize(
    "strides",
    [
        (48, 16, 8),  # dense
        (96, 32, 16),  # a gap of a row behind each row: the heads may alternate
        (96, 32, 8),  # behind each token: the tokens may
        (48, 8, 24),  # heads outside of tokens
        (8, 40, 16),  # pages inside, with gaps
        (160, 40, 16),  # gaps of all kinds
    ],
)
def test_same_strides(strides: tuple[int, int, int]) -> None:
    """Refused exactly when an element is shared, wherever the values begin."""
    memory = p.DeviceArray.empty((ROOM,), "float16")
    new = p.DeviceArray.from_numpy(np.ones((1, 1, HEADS, HDIM), np.float16))
    start = ROOM // 2
    keys = _elements(start, strides)
    for delta in range(-344, 352, 8):
        shared = bool(keys & _elements(start + delta, strides))
        k, v = _cache(memory, start, strides), _cache(memory, start + delta, strides)
        assert _is_refused(k, v, new) == shared, delta


def test_other_strides() -> None:
    """Refused if the first element of one is another's; never if none is shared."""
    memory = p.DeviceArray.empty((ROOM,), "float16")
    new = p.DeviceArray.from_numpy(np.ones((1, 1, HEADS, HDIM), np.float16))
    start = ROOM // 2
    all_strides = [(96, 32, 16), (160, 40, 16), (8, 40, 16), (48, 8, 24)]
    for of_keys in all_strides:
        for of_values in all_strides:
            keys = _elements(start, of_keys)
            for delta in range(-344, 352, 8):
                values = _elements(start + delta, of_values)
                if start in values or start + delta in keys or not keys & values:
                    k, v = _cache(memory, start, of_keys), _cache(memory, start + delta, of_values)
                    assert _is_refused(k, v, new) == bool(keys & values), (of_keys, of_values, delta)


def test_one_array_for_both() -> None:
    """Nothing is written."""
    cache = p.DeviceArray.from_numpy(np.zeros(SHAPE, np.float16))
    new = p.DeviceArray.from_numpy(np.ones((1, 1, HEADS, HDIM), np.float16))
    assert _is_refused(cache, cache, new)
    assert not cache.to_numpy().any()
