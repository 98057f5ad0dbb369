# SPDX-License-Identifier: MIT OR Apache-2.0
"""Context parallel attention as programs use it: compiled, repeated, wrongly, and with a rank that dies."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch
from engines.with_parallel.judge import joined, judge
from engines.with_parallel.ranks import Ranks
from engines.with_parallel.work import Problem, attend, groups, mesh
from torch import distributed

from pyfa_rocm.torch.context_parallel import context_parallel_attn_func, shard, unshard

Of = Callable[[int], Ranks]
PROBLEM = Problem((50, 31), 2, 2)


def test_same_bits(ranks: Of) -> None:
    """Run after run, in the output, the log-sum-exp and each gradient."""
    first, second = (joined(PROBLEM, ranks(4).all(attend, PROBLEM)) for _ in range(2))
    assert [x.tobytes() for x in first] == [x.tobytes() for x in second]


@pytest.mark.parametrize("dense", [False, True])
def test_compiled(ranks: Of, dense: bool) -> None:
    """In one graph, forward and backward, with what the plain call gives to the bit."""
    problem = Problem((32, 32), 2, 2)
    eager, compiled = (joined(problem, ranks(4).all(attend, problem, dense, x)) for x in (False, True))
    assert [x.tobytes() for x in compiled] == [x.tobytes() for x in eager]


def _there_and_back(dim: int) -> bool:
    where = {"ring": mesh(2, 2)["ring"], "ulysses": mesh(2, 2)["ulysses"]}
    x = torch.arange(2 * 13 * 3).view(2, 13, 3).movedim(1, dim)
    local = shard(x, [0, 6, 13], dim=dim, **where)
    return bool((unshard(local, [0, 6, 13], dim=dim, **where) == x).all())


@pytest.mark.parametrize("dim", [0, 1])
def test_unshard(ranks: Of, dim: int) -> None:
    assert ranks(4).all(_there_and_back, dim) == [True] * 4


def _refused() -> list[str]:
    def message(q: torch.Tensor, k: torch.Tensor, **where: Any) -> str:
        try:
            context_parallel_attn_func(q, k, k, **where)
        except (ValueError, TypeError, NotImplementedError) as error:
            return str(error)
        return ""

    world, both = distributed.group.WORLD, mesh(2, 2)
    q, k = torch.zeros(1, 3, 6, 64).half(), torch.zeros(1, 3, 3, 64).half()
    return [
        message(q, k), message(q, k, ring=both), message(q, k, ring="world"), message(q, k, ring=world),
        message(q, k[:, :2], ring=world), message(q, k, ulysses=world),
        message(q[:, :, :4], k, ulysses=world),
    ]  # fmt: skip


def test_refused(ranks: Of) -> None:
    """Each message names the argument, what it got, and what would do."""
    want = [
        "ring, ulysses: got None",
        'ring: got a DeviceMesh of 2 dimensions, expected 1: name one .* mesh\\["ring"\\]',
        "ring: got str",
        "q: got 3 rows, expected an even number with zigzag",
        "k: got shape \\(1, 2, 3, 64\\)",
        "ulysses: got 4 ranks for 6 heads of q",
        "ulysses: got 4 ranks for 3 heads of k",
    ]
    for messages in ranks(4).all(_refused):
        for message, pattern in zip(messages, want, strict=True):
            with pytest.raises(ValueError, match=pattern):
                raise ValueError(message)


def _die_in_the_middle(rank: int, how: str, problem: Problem) -> Any:
    if distributed.get_rank() == rank:
        if how == "exit":
            os._exit(3)
        signal.pause()
    return attend(problem)


@pytest.mark.parametrize("how", ["exit", "hang"])
@pytest.mark.parametrize("problem", [Problem((48,), 2), Problem((48,), 1, 2)], ids=["ring", "ulysses"])
def test_a_rank_dies(how: str, problem: Problem) -> None:
    """The other says so, after the group's timeout, and which rank's rows it misses."""
    with Ranks(2, timeout=4.0) as two:
        two.start(_die_in_the_middle, 1, how, problem)
        error = two.result(0)
        two.processes[1].kill()
    assert isinstance(error, RuntimeError)
    assert "context parallel, rank 0 of 2: " in str(error)
    if problem.rings > 1:
        # A race decides if a dead rank is found when its rows are asked for or when they do not arrive.
        found = "the keys and values, step 1, of rank 1( did not arrive)?; has that process died"
        assert re.search(found, str(error))


def test_judge_finds_a_wrong_rank(ranks: Of) -> None:
    """A rank whose rows are another's is off by more than the bound."""
    results = ranks(2).all(attend, Problem((64,), 2))
    out = results[0][1].clone()
    out[5] = out[6]
    results[0] = (results[0][0], out, *results[0][2:])
    with pytest.raises(AssertionError, match="O is off"):
        judge(Problem((64,), 2), results)


def test_groups_are_named(ranks: Of) -> None:
    assert set(ranks(4).all(_names)[0]) == {"ring", "ulysses"}


def _names() -> list[str]:
    return list(groups(PROBLEM))
