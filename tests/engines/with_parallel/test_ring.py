# SPDX-License-Identifier: MIT OR Apache-2.0
"""Attention of sequences cut among processes, against float64: ring, Ulysses, and both."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from engines.with_parallel.judge import judge
from engines.with_parallel.ranks import Ranks
from engines.with_parallel.work import Problem, attend

Of = Callable[[int], Ranks]
GRIDS = [(2, 1), (4, 1), (8, 1), (1, 2), (1, 4), (2, 2), (4, 2), (2, 4)]


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_dense(ranks: Of, grid: tuple[int, int]) -> None:
    """Sequences of one length, in the layout of four dimensions."""
    problem = Problem((64, 64), *grid)
    judge(problem, ranks(grid[0] * grid[1]).all(attend, problem, True))


def drawn(seed: int) -> Problem:
    """A random problem: ragged lengths, windows, groups of heads, masks."""
    rng = np.random.default_rng(seed)
    rings, heads = GRIDS[seed % len(GRIDS)]
    lengths = tuple(int(n) for n in rng.integers(0, 90, rng.integers(1, 4)))
    nhead_k = int(rng.choice([1, 2, 4]))
    windows = [(-1, -1), (-1, -1), (20, 0), (7, 9), (-1, 12), (0, 0), (33, -1)]
    return Problem(
        lengths if sum(lengths) else (17,), rings, heads, int(rng.choice([4, 8])), nhead_k,
        int(rng.choice([64, 128])), str(rng.choice(["float16", "bfloat16"])), bool(rng.random() < 0.5),
        windows[rng.integers(len(windows))], 0.0, bool(rng.random() < 0.7), seed,
    )  # fmt: skip


def test_softcap(ranks: Of) -> None:
    """One sequence, in float16: this build has no kernel for others, and none of its gradient."""
    judge(problem := Problem((57,), 2, softcap=20.0), ranks(2).all(attend, problem))


@pytest.mark.parametrize("seed", range(48))
def test_drawn(ranks: Of, seed: int) -> None:
    problem = drawn(seed)
    judge(problem, ranks(problem.rings * problem.heads).all(attend, problem))
