# SPDX-License-Identifier: MIT OR Apache-2.0
"""8 threads over all devices append to caches of their own and decode; run by test_decode_capture.py.

All threads start at once with nothing loaded, so that binding, loading and launching race.
"""

from __future__ import annotations

import sys
import threading

from serving import Server, Serving

from pyfa_rocm import Stream, use_device

THREADS, STEPS = 8, 3


def _case(thread: int) -> Serving:
    return Serving(
        prompts=(7 * thread, 40, 64), new=1 + thread % 3, slots=thread % 4 >= 2, splits=(0, 1, 3)[thread % 3],
        dtype=("float16", "bfloat16")[thread // 4], page_size=(1, 16, 32, 64)[thread % 4], seed=thread,
    )  # fmt: skip


def _work(thread: int, devices: int, barrier: threading.Barrier, errors: list[str]) -> None:
    try:
        barrier.wait()
        with use_device(thread % devices), Stream() as stream:
            server = Server(_case(thread))
            for _ in range(STEPS):
                server.set_inputs()
                server.enqueue(stream)
                stream.synchronize()
                server.judge()
            assert {x.device for x in (server.o, *server.caches)} == {thread % devices}
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
    print("\n".join(errors) or f"right: {THREADS} threads x {STEPS} steps on {devices} devices")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
