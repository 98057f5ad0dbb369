# SPDX-License-Identifier: MIT OR Apache-2.0
"""The instructions that one modelled compute unit issued, as a file for Perfetto or chrome://tracing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyfa_rocm.clock.estimate import Estimate
from pyfa_rocm.errors import FmhaError

__all__ = ["events", "write"]


def events(estimate: Estimate) -> Iterator[dict[str, Any]]:
    """Give the events of the format: a process a SIMD, a thread a wave; a microsecond is a cycle.

    An instruction is as long as it occupies its port; a wait before it, which is named for its reason, as
    long as the wave could not go on.
    """
    recorded = estimate.longest.events
    assert recorded is not None
    cycles, names = recorded["slot_cycles"], recorded["instructions"]
    columns = ("wave", "simd", "slot", "slots", "stalled", "reason", "instruction")
    threads = set()
    for wave, simd, slot, slots, stalled, reason, instruction in zip(
        *(recorded[name] for name in columns), strict=True
    ):
        place = {"pid": simd, "tid": wave}
        if (simd, wave) not in threads:
            threads.add((simd, wave))
            yield {"ph": "M", "name": "process_name", "args": {"name": f"SIMD {simd}"}, **place}
            yield {"ph": "M", "name": "thread_name", "args": {"name": f"wave {wave}"}, **place}
        what = names[str(instruction)]
        if stalled:
            wait = {"ph": "X", "ts": (slot - stalled) * cycles, "dur": stalled * cycles, "cat": "wait"}
            yield {"name": recorded["reasons"][reason], **wait, **place}
        issued = {"ph": "X", "ts": slot * cycles, "dur": max(slots, 1) * cycles, "cat": what["class"]}
        yield {"name": what["text"], **issued, **place, "args": {"pc": what["pc"]}}


def write(estimate: Estimate, path: Path) -> None:
    """Write the file.

    Raises
    ------
    FmhaError
        It cannot be written.
    """
    about = {"kernel": estimate.kernel, "unit": "a microsecond is a cycle", "end": "the fast end"}
    try:
        path.write_text(json.dumps({"traceEvents": list(events(estimate)), "otherData": about}))
    except OSError as error:
        raise FmhaError(f"--trace: cannot write {path}: {error.strerror}") from error
