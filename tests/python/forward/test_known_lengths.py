# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lengths that the host knows and that do not fit are refused, by name, index and capacity."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pyfa_rocm import InvalidArgumentError
from pyfa_rocm._call.lengths import require_appended, require_cached, require_packed

STARTS = {"cu_seqlens_q": [0, 30, 50], "cu_seqlens_k": [0, 60, 61]}
TOTALS, LONGEST = {"q": 52, "k": 61}, {"q": 30, "k": 60}
PACKED: list[tuple[dict[str, Any], dict[str, int], str]] = [
    ({"cu_seqlens_q": [-1, 30, 50]}, {}, "cu_seqlens_q: got -1 at 0, expected 0 to 52: in order, and"),
    ({"cu_seqlens_q": [0, 30, 29]}, {}, "cu_seqlens_q: got 29 at 2, expected 30 to 52"),
    ({"cu_seqlens_q": [0, 30, 53]}, {}, "cu_seqlens_q: got 53 at 2, expected 30 to 52"),
    ({"cu_seqlens_k": [0, 62, 61]}, {}, "cu_seqlens_k: got 62 at 1, expected 0 to 61"),
    ({}, {"q": 29}, "max_seqlen_q: got 29, expected 30 or more: cu_seqlens_q has so many rows of sequence 0"),
    ({}, {"k": 0}, "max_seqlen_k: got 0, expected 60 or more"),
    ({"seqused_q": [30, 21]}, {}, "seqused_q: got 21 at 1, expected 0 to 20, the rows of that sequence"),
    ({"seqused_k": [-1, 1]}, {}, "seqused_k: got -1 at 0, expected 0 to 60"),
    ({"seqused_q": [30, 2]}, {"q": 29}, "max_seqlen_q: got 29, expected 30 or more: seqused_q has so many"),
]


def test_packed_sequences_that_fit() -> None:
    require_packed(STARTS, STARTS, TOTALS, LONGEST)
    both = STARTS | {"seqused_q": [0, 20], "seqused_k": [60, 1]}
    require_packed(both, both, TOTALS, LONGEST)
    # A bound is one of the rows in use.
    require_packed(both, both, TOTALS, {"q": 20, "k": 60})
    require_packed(STARTS, [*STARTS, "seqused_q"], TOTALS, {"q": 20, "k": 60})
    require_packed({"seqused_q": [99]}, ["seqused_q"], TOTALS, LONGEST)  # without starts nobody knows
    require_packed({"cu_seqlens_q": [], "cu_seqlens_k": [5]}, STARTS, TOTALS, LONGEST)


@pytest.mark.parametrize(("change", "longest", "said"), PACKED, ids=[said[:30] for *_, said in PACKED])
def test_packed_sequences_that_do_not(change: dict[str, Any], longest: dict[str, int], said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(said)):
        require_packed(STARTS | change, STARTS | change, TOTALS, LONGEST | longest)


PAGES = {"q": (2, 1, 4, 64), "k_cache": (9, 16, 2, 64), "block_table": (2, 3)}
DENSE = {"q": (5, 4, 64), "k_cache": (2, 40, 2, 64)}


def test_cached_sequences_that_fit() -> None:
    require_cached({"cache_seqlens": [0, 47]}, PAGES, 1, None)
    require_cached({"cu_seqlens_q": [0, 2, 5], "cu_seqlens_k": [0, 40, 80]}, DENSE, 0, 40)
    # Then the lengths are those of cache_seqlens, which the host does not know.
    require_cached({"cu_seqlens_k": [0, 99]}, DENSE | {"cache_seqlens": (1,)}, 0, None)


@pytest.mark.parametrize(("host", "shapes", "new", "most", "said"), [
    ({"cache_seqlens": [0, 48]}, PAGES, 1, None,
     "cache_seqlens: got 48 at 1, expected at most 47: the cache has room for 48 tokens of a sequence"),
    ({"cache_seqlens": [-1, 3]}, PAGES, 1, None, "cache_seqlens: got -1 at 0, expected 0 or more"),
    ({"cache_seqlens": [41]}, DENSE, 0, None, "got 41 at 0, expected at most 40: the cache has room for 40"),
    ({"cache_seqlens": [31]}, DENSE, 0, 30, "got 31 at 0, expected at most 30: max_seqlen_k says that there"),
    ({"cu_seqlens_q": [0, 6]}, DENSE, 0, None, "cu_seqlens_q: got 6 at 1, expected 0 to 5"),
    ({"cu_seqlens_k": [0, 41]}, DENSE, 0, None, "difference of cu_seqlens_k: got 41 at 0, expected at"),
])  # fmt: skip
def test_cached_sequences_that_do_not(
    host: dict[str, list[int]], shapes: dict[str, Any], new: int, most: int | None, said: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(said)):
        require_cached(host, shapes, new, most)


APPENDED = {"k": (2, 3, 2, 64), "k_cache": (9, 16, 2, 64), "block_table": (2, 3)}
PACKED_NEW = {"k": (5, 2, 64), "k_cache": (2, 40, 2, 64), "cu_seqlens": (3,)}


def test_appends_that_fit() -> None:
    require_appended({"cache_seqlens": [45, 0]}, APPENDED, None)
    require_appended({"cache_seqlens": [36, 39], "cu_seqlens": [0, 4, 5]}, PACKED_NEW, None)
    require_appended({"cache_seqlens": [38, 39], "cu_seqlens": [0, 4, 5]}, PACKED_NEW, 2)
    require_appended({"cache_seqlens": [40, 40]}, PACKED_NEW, None)  # of tokens that the device counts
    require_appended({"cache_seqlens": [99, 99]}, APPENDED | {"slots": (2, 3)}, None)
    require_appended({"cache_seqlens": [99, 99]}, {"q": (2, 3, 4, 64)}, None)  # nothing is stored


@pytest.mark.parametrize(("host", "shapes", "most", "said"), [
    ({"cache_seqlens": [46, 0]}, APPENDED, None,
     "cache_seqlens: got 46 at 0, expected at most 45: the cache has room for 48 tokens of a sequence"),
    ({"cache_seqlens": [36, 40], "cu_seqlens": [0, 4, 5]}, PACKED_NEW, None, "got 40 at 1, expected at"),
    ({"cache_seqlens": [39, 39], "cu_seqlens": [0, 4, 5]}, PACKED_NEW, 2, "got 39 at 0, expected at most"),
    ({"cu_seqlens": [0, 4, 6]}, PACKED_NEW, None, "cu_seqlens: got 6 at 2, expected 4 to 5"),
    ({"cu_seqlens": [0, 4, 3]}, PACKED_NEW, None, "cu_seqlens: got 3 at 2, expected 4 to 5"),
])  # fmt: skip
def test_appends_that_do_not(
    host: dict[str, list[int]], shapes: dict[str, Any], most: int | None, said: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape(said)):
        require_appended(host, shapes, most)
