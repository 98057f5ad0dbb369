# SPDX-License-Identifier: MIT OR Apache-2.0
"""Threads over all devices that start at once: what programs that race have in common."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

__all__ = ["race"]


def race(work: Callable[[int, int], None], threads: int, done: str) -> int:
    """Run `work`, which gets the number of its thread and of its device, and return the exit status.

    The program's argument is how many devices there are; `done` is what each thread did, for the message.
    """
    devices, errors = int(sys.argv[1]), list[str]()
    barrier = threading.Barrier(threads)

    def run(thread: int) -> None:
        try:
            barrier.wait()
            work(thread, thread % devices)
        except BaseException as error:
            errors.append(f"thread {thread}: {error!r}")

    running = [threading.Thread(target=run, args=(i,)) for i in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    print("\n".join(errors) or f"right: {threads} threads x {done} on {devices} devices")
    return 1 if errors else 0
