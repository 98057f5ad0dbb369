# SPDX-License-Identifier: MIT OR Apache-2.0
"""8 threads over all devices append to caches of their own and decode; run by test_decode_capture.py.

All threads start at once with nothing loaded, so that binding, loading and launching race.
"""

from __future__ import annotations

import sys

from racing import race
from serving import Server, Serving

from pyfa_rocm import Stream, use_device

THREADS, STEPS = 8, 3


def _case(thread: int) -> Serving:
    return Serving(
        prompts=(7 * thread, 40, 64),
        new=1 + thread % 3,
        slots=thread % 4 >= 2,
        splits=(0, 1, 3)[thread % 3],
        dtype=("float16", "bfloat16")[thread // 4],
        page_size=(1, 16, 32, 64)[thread % 4],
        seed=thread,
    )


def _work(thread: int, device: int) -> None:
    with use_device(device), Stream() as stream:
        server = Server(_case(thread))
        for _ in range(STEPS):
            server.set_inputs()
            server.enqueue(stream)
            stream.synchronize()
            server.judge()
        assert {x.device for x in (server.o, *server.caches)} == {device}


if __name__ == "__main__":
    sys.exit(race(_work, THREADS, f"{STEPS} steps"))
