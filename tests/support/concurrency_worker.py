# SPDX-License-Identifier: MIT OR Apache-2.0
"""8 threads over all devices, each with a stream and problems of both passes; test_concurrency.py runs it.

All threads start at once with nothing loaded, so that binding, loading and launching race.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from backward import Backward
from cases import Case, Placement, expected, judge
from racing import race

import pyfa_rocm
from pyfa_rocm import Stream, use_device

THREADS, ROUNDS = 8, 4


def _case(thread: int, turn: int) -> Case:
    return Case(
        batch=1, seqlen_q=30 + 37 * thread, seqlen_k=90 + 20 * turn, nhead_k=2, ratio=1 + thread % 3,
        hdim=(64, 128)[turn % 2], dtype=("float16", "bfloat16")[thread // 2 % 2], causal=turn >= 2,
        seed=100 * thread + turn,
    )  # fmt: skip


def _work(thread: int, device: int) -> None:
    with use_device(device), Stream() as stream:
        for turn in range(ROUNDS):
            case = _case(thread, turn)
            placement = Placement(case)
            pyfa_rocm.fmha_fwd(placement.params(), stream.handle)
            # Errors belong to the thread that made them.
            with pytest.raises(pyfa_rocm.InvalidArgumentError, match=f"batch = {-1 - thread}:"):
                pyfa_rocm.fmha_fwd(replace(placement.params(), batch=-1 - thread))
            stream.synchronize()
            judge(expected(case, placement.inputs), *placement.results())
            backward = Backward(case)
            pyfa_rocm.fmha_bwd(backward.params(), stream.handle)
            stream.synchronize()
            backward.judge({name: placed.take() for name, placed in backward.grads.items()})
            assert placement.q.buffer.device == device


if __name__ == "__main__":
    sys.exit(race(_work, THREADS, f"{ROUNDS} problems"))
