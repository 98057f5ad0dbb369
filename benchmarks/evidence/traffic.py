# SPDX-License-Identifier: MIT OR Apache-2.0
"""Memory traffic over lengths, counted, beside that of standard attention."""

from __future__ import annotations

from typing import Any

from pyfa_rocm.cli import traffic
from pyfa_rocm.oracle.problem import Problem

LENGTHS = (256, 512, 1024, 2048)
BACKWARD_LENGTHS = LENGTHS[:-1]
HEADS, HDIM, ELEMENT_BYTES = 2, 128, 2


def once(seqlen: int, direction: str) -> int:
    """Return the bytes of the tensors that a pass cannot do without, each moved once.

    Forward q, k, v and O; backward q, k, v, O, dO and three gradients; and the LSE.
    """
    tensors = 4 if direction == "forward" else 8
    return HEADS * seqlen * (tensors * HDIM * ELEMENT_BYTES + 4)


def collect() -> list[dict[str, Any]]:
    """Return a row for each direction and length."""
    rows = []
    for direction, lengths, measure in (
        ("forward", LENGTHS, traffic.measure),
        ("backward", BACKWARD_LENGTHS, traffic.measure_backward),
    ):
        for seqlen in lengths:
            problem = Problem(1, HEADS, HEADS, seqlen, HDIM, False)
            found = measure(problem)
            assert found is not None  # on the software device it never is
            rows.append({"direction": direction, "seqlen": seqlen, "once": once(seqlen, direction), **found})
    return rows
