# SPDX-License-Identifier: MIT OR Apache-2.0
"""Random shapes over all kinds of calls, from threads that open and close streams; test_soak.py runs it.

Prints a line of JSON for each sample of what the process holds, and a last one of what was done.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

import pyfa_rocm as p
from pyfa_rocm._runtime import hip

HDIM, PAGE = 64, 8
SAMPLES = 24


def ones(*shape: int) -> p.DeviceArray:
    """Attention over ones gives ones, whatever the lengths."""
    return p.DeviceArray.from_numpy(np.ones(shape, p.bfloat16))


def integers(*values: int) -> p.DeviceArray:
    return p.DeviceArray.from_numpy(np.array(values, np.int32))


def is_one(x: p.DeviceArray) -> bool:
    return bool((x.to_numpy() == 1).all())


def forward(draw: random.Random, stream: p.Stream | None) -> bool:
    x = ones(draw.randint(1, 2), draw.randint(1, 70), draw.randint(1, 2), HDIM)
    o = p.flash_attn_func(
        x, x, x, causal=draw.random() < 0.5, softmax_scale=draw.random() + 0.01, stream=stream
    )
    return is_one(o)


def backward(draw: random.Random, stream: p.Stream | None) -> bool:
    x = ones(1, draw.randint(1, 70), draw.randint(1, 2), HDIM)
    o, lse = p.flash_attn_func(x, x, x, return_lse=True, stream=stream)
    *_, dv = p.flash_attn_bwd(o, x, x, x, o, lse, deterministic=draw.random() < 0.5, stream=stream)
    return abs(float(dv.to_numpy().astype(np.float64).mean()) - 1) < 2**-7


def packed(draw: random.Random, stream: p.Stream | None) -> bool:
    first = draw.randint(1, 30)
    x, starts = ones(first + 7, draw.randint(1, 2), HDIM), integers(0, first, first + 7)
    longest = max(first, 7)
    return is_one(
        p.flash_attn_varlen_func(x, x, x, starts, starts, longest, longest, causal=True, stream=stream)
    )


def decode(draw: random.Random, stream: p.Stream | None) -> bool:
    pages, heads, new = draw.randint(4, 9), draw.randint(1, 2), draw.randint(1, PAGE)
    k, v = (ones(pages, PAGE, heads, HDIM) for _ in range(2))
    table = p.DeviceArray.from_numpy(np.array([draw.sample(range(pages), 2)], np.int32))
    o = p.flash_attn_with_kvcache(
        ones(1, new, 2 * heads, HDIM), k, v, ones(1, new, heads, HDIM), ones(1, new, heads, HDIM),
        cache_seqlens=integers(draw.randint(0, PAGE)), block_table=table, causal=True,
        num_splits=draw.randint(0, 2), stream=stream,
    )  # fmt: skip
    return is_one(o) and is_one(k)


def append(draw: random.Random, stream: p.Stream | None) -> bool:
    pages, new = draw.randint(4, 9), draw.randint(1, PAGE)
    k, v = (ones(pages, PAGE, 1, HDIM) for _ in range(2))
    table = p.DeviceArray.from_numpy(np.array([draw.sample(range(pages), 2)], np.int32))
    tokens = ones(1, new, 1, HDIM)
    p.flash_attn_kv_append(
        k, v, tokens, tokens, integers(draw.randint(0, PAGE)), block_table=table, stream=stream
    )
    return is_one(k) and is_one(v)


def merge(draw: random.Random, stream: p.Stream | None) -> bool:
    parts, rows = draw.randint(1, 9), draw.randint(1, 70)
    outs = p.DeviceArray.from_numpy(np.ones((parts, 1, rows, 1, HDIM), np.float32))
    lses = p.DeviceArray.from_numpy(np.zeros((parts, 1, 1, rows), np.float32))
    o, _ = p.flash_attn_merge(outs, lses, stream=stream)
    return bool(np.allclose(o.to_numpy(), 1))


def refused(draw: random.Random, stream: p.Stream | None) -> bool:
    x = ones(1, draw.randint(1, 70), 1, HDIM)
    try:
        p.flash_attn_func(x, x, x, softmax_scale=-draw.random() - 1, stream=stream)
    except p.FmhaError:
        return True
    return False


KINDS: tuple[Callable[[random.Random, p.Stream | None], bool], ...] = (
    forward, backward, packed, decode, append, merge, refused,
)  # fmt: skip


class Soak:
    """The threads, what they have done, and what went wrong."""

    def __init__(self, seconds: float, threads: int) -> None:
        self.done: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._end = time.monotonic() + seconds
        self._threads = [threading.Thread(target=self._work, args=(seed,)) for seed in range(threads)]

    def _work(self, seed: int) -> None:
        draw = random.Random(seed)
        while time.monotonic() < self._end and len(self.wrong) < 5:
            try:
                with p.Stream() as stream:
                    for _ in range(10):
                        kind = draw.choice(KINDS)
                        if not kind(draw, draw.choice((stream, None))):
                            self.wrong.append(f"{kind.__name__}: wrong values")
                        self.done[kind.__name__] += 1
            except Exception as error:
                self.wrong.append(repr(error)[:500])

    def run(self, sample: Callable[[], None], every: float) -> None:
        for thread in self._threads:
            thread.start()
        while any(thread.is_alive() for thread in self._threads):
            time.sleep(every)
            sample()
        for thread in self._threads:
            thread.join()


def holds() -> dict[str, int]:
    """Return what the process holds now."""
    status = Path("/proc/self/status").read_text()
    free, total = hip.call("hipMemGetInfo")
    gc.collect()
    return {
        "mappings": len(Path("/proc/self/maps").read_text().splitlines()),
        "resident": int(status.split("VmRSS:")[1].split()[0]) << 10,
        "threads": int(status.split("Threads:")[1].split()[0]),
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "device": int(total) - int(free),
        "live": p.memory.live_bytes,
        "kept": p.memory.kept_bytes,
        "objects": len(gc.get_objects()),
    }


def main(seconds: float, threads: int, most_kept_blocks: int) -> None:
    p.memory.most_kept_blocks = most_kept_blocks
    with p.Stream() as stream:  # what is loaded or cached once
        for kind in KINDS:
            kind(random.Random(0), stream)
    p.synchronize()
    before, samples = holds(), []
    soak = Soak(seconds, threads)
    soak.run(lambda: samples.append(holds()), seconds / SAMPLES)
    p.synchronize()
    p.memory.release()
    print(
        json.dumps(
            {"before": before, "samples": samples, "after": holds(), "done": soak.done, "wrong": soak.wrong}
        )
    )


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
