# SPDX-License-Identifier: MIT OR Apache-2.0
"""Orthogonal arrays: few rows in which every combination of any `strength` factors' values occurs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

Row = tuple[int, ...]
# Random rows tried for each one taken.
_TRIES = 40


def cover(factors: dict[str, Sequence[Any]], strength: int, seed: int) -> list[dict[str, Any]]:
    """Return rows, a value for each factor, that hold every `strength`-wise combination at least once.

    Greedy: of some random rows built around a combination that is still missing, the one that has most of the
    missing ones is taken.
    """
    sizes = [len(values) for values in factors.values()]
    groups = list(combinations(range(len(sizes)), strength))
    missing = {(group, at) for group in groups for at in product(*(range(sizes[i]) for i in group))}
    rng, rows = random.Random(seed), list[Row]()
    order = sorted(missing)  # a set's own order may differ from run to run
    rng.shuffle(order)
    for combination in order:
        if combination not in missing:
            continue
        row = max(
            (_around(combination, sizes, rng) for _ in range(_TRIES)), key=lambda r: _gain(r, groups, missing)
        )
        missing -= {(group, tuple(row[i] for i in group)) for group in groups}
        rows.append(row)
    names = list(factors)
    return [{name: factors[name][i] for name, i in zip(names, row, strict=True)} for row in rows]


def _around(
    combination: tuple[tuple[int, ...], tuple[int, ...]], sizes: list[int], rng: random.Random
) -> Row:
    row = [rng.randrange(size) for size in sizes]
    for factor, value in zip(*combination, strict=True):
        row[factor] = value
    return tuple(row)


def _gain(row: Row, groups: list[tuple[int, ...]], missing: set[Any]) -> int:
    return sum((group, tuple(row[i] for i in group)) in missing for group in groups)
