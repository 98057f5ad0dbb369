# SPDX-License-Identifier: MIT OR Apache-2.0
"""Append and decode of a step in one graph, replayed as sequences grow; and by 8 threads on two devices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from capture import Graph
from inner import ROOT, run_on_two_devices
from serving import Server, Serving

import pyfa_rocm

CASE = Serving()


@pytest.mark.parametrize(
    "change",
    [
        {"splits": 1},
        {"splits": 4},
        {"slots": True, "splits": 4},
        {"slots": True, "splits": 1, "new": 1},
        {"page_size": 1, "dtype": "float16"},
        {"page_size": 64, "new": 1, "prompts": (0, 128, 63, 17, 60)},
    ],
    ids=str,
)
def test_replays_over_growing_lengths(change: dict[str, Any]) -> None:
    """Bit for bit what fresh calls give, caches included, and right; only device memory tells the lengths."""
    case = replace(CASE, **change)
    replayed, fresh = Server(case), Server(case)
    grows = ((0,) * len(case.prompts), (70, 1, 0, 16, 100), (1, 100, 90, 3, 9))
    for server in (replayed, fresh):
        server.set_inputs()
    seen = set()
    with pyfa_rocm.Stream() as stream, Graph(replayed.enqueue, stream) as graph:
        fresh.enqueue(stream)  # as Graph did
        for grow in grows:
            for server in (replayed, fresh):
                server.prefill(grow[: len(case.prompts)])
                server.set_inputs()
            graph.replay()
            fresh.enqueue(stream)
            stream.synchronize()
            replayed.judge()
            assert replayed.everything() == fresh.everything()
            seen.add(replayed.o.to_numpy().tobytes())
    assert len(seen) == len(grows)


def test_eight_threads_on_two_devices() -> None:
    """Each with a stream and caches of its own, against the oracle."""
    assert "right: 8 threads x 3 steps on 2 devices" in run_on_two_devices(
        str(ROOT / "tests" / "support" / "serving_worker.py"), "2"
    )
