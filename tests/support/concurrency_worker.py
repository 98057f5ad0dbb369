# SPDX-License-Identifier: MIT OR Apache-2.0
"""8 threads over all devices, each with a stream and problems of its own; run by test_concurrency.py.

All threads start at once with nothing loaded, so that binding, loading and launching race.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import replace

import pytest
from cases import Case, Placement, expected, judge

import pyfa_rocm
from pyfa_rocm import Stream, use_device

THREADS, ROUNDS = 8, 4


def _case(thread: int, turn: int) -> Case:
    return Case(
        batch=1, seqlen_q=30 + 37 * thread, seqlen_k=90 + 20 * turn, nhead_k=2, ratio=1 + thread % 3,
        hdim=(64, 128)[turn % 2], dtype=("float16", "bfloat16")[thread // 2 % 2], causal=turn >= 2,
        seed=100 * thread + turn,
    )  # fmt: skip


def _work(thread: int, devices: int, barrier: threading.Barrier, errors: list[str]) -> None:
    try:
        barrier.wait()
        with use_device(thread % devices), Stream() as stream:
            for turn in range(ROUNDS):
                case = _case(thread, turn)
                placement = Placement(case)
                pyfa_rocm.fmha_fwd(placement.params(), stream.handle)
                # Errors belong to the thread that made them.
                with pytest.raises(pyfa_rocm.InvalidArgumentError, match=f"batch = {-1 - thread}:"):
                    pyfa_rocm.fmha_fwd(replace(placement.params(), batch=-1 - thread))
                stream.synchronize()
                judge(expected(case, placement.inputs), *placement.results())
                assert placement.q.buffer.device == thread % devices
    except BaseException as error:
        errors.append(f"thread {thread}: {error!r}")


def main() -> int:
    devices, errors = int(sys.argv[1]), list[str]()
    barrier = threading.Barrier(THREADS)
    threads = [threading.Thread(target=_work, args=(i, devices, barrier, errors)) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print("\n".join(errors) or f"right: {THREADS} threads x {ROUNDS} problems on {devices} devices")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
