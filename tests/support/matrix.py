# SPDX-License-Identifier: MIT OR Apache-2.0
"""Orthogonal arrays: few rows in which every combination of any `strength` factors' values occurs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
# Random rows tried for each one taken.
_TRIES = 40


def cover(factors: Mapping[str, Sequence[Any]], strength: int, seed: int) -> list[dict[str, Any]]:
    """Return rows, a value for each factor, that hold every `strength`-wise combination at least once.

    Greedy: of some random rows built around a combination that is still missing, the one that has most of the
    missing ones is taken.
    """
    sizes = np.array([len(values) for values in factors.values()])
    groups = np.array(list(combinations(range(len(sizes)), strength)))
    steps, first, number = _numbering(sizes, groups)
    missing = np.ones(number, np.bool_)
    rng, rows = np.random.default_rng(seed), list[Ints]()
    for combination in rng.permutation(number):
        if not missing[combination]:
            continue
        group = int(np.searchsorted(first, combination, side="right")) - 1
        tried = rng.integers(0, sizes, (_TRIES, len(sizes)))
        tried[:, groups[group]] = (combination - first[group]) // steps[group] % sizes[groups[group]]
        held = (tried[:, groups] * steps).sum(axis=2) + first
        best = int(missing[held].sum(axis=1).argmax())
        missing[held[best]] = False
        rows.append(tried[best])
    named = [list(zip(factors.items(), row, strict=True)) for row in rows]
    return [{name: values[i] for (name, values), i in row} for row in named]


def _numbering(sizes: Ints, groups: Ints) -> tuple[Ints, Ints, int]:
    """Number all combinations: in each group, what a step of a value counts, and the first; and how many."""
    counts = np.cumprod(sizes[groups], axis=1)
    steps = np.concatenate([np.ones((len(groups), 1), np.int64), counts[:, :-1]], axis=1)
    first = np.concatenate([[0], np.cumsum(counts[:, -1])])
    return steps, first[:-1], int(first[-1])
