# SPDX-License-Identifier: MIT OR Apache-2.0
"""How long a workload takes with each kernel that can do it: by HIP events, or by the clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyfa_rocm import array
from pyfa_rocm.cli.bench.subjects import milliseconds
from pyfa_rocm.cli.first_day.workloads import Workload
from pyfa_rocm.clock.estimate import launch_times
from pyfa_rocm.clock.subjects import Enqueue
from pyfa_rocm.device import runtime
from pyfa_rocm.emulator import Time
from pyfa_rocm.errors import HipError, UnsupportedError

__all__ = ["NO_CLOCK", "REPEAT", "by_clock", "has_card", "modelled", "timed", "times_by_clock"]

# Timed calls of a kernel on a card, after a warm-up; the median counts.
REPEAT = 10
# The software device plays more cards than its clock has constants of.
NO_CLOCK = "the clock has no constants of"


def has_card() -> bool:
    """Tell whether times are measured; those of the software device are modelled."""
    return not runtime().emulated


def times_by_clock(
    enqueue: Enqueue, constants: Mapping[str, tuple[float, float]] | None = None
) -> list[Time]:
    """Return the time of each launch; none: the clock does not know the card."""
    try:
        return [time for _, time in launch_times(enqueue, constants=constants)]
    except HipError as error:
        if NO_CLOCK not in str(error):
            raise
        return []


def by_clock(
    enqueue: Enqueue, constants: Mapping[str, tuple[float, float]] | None = None
) -> dict[str, float] | None:
    """Return the range of seconds, of all launches together; None: the clock does not know the card."""
    times = times_by_clock(enqueue, constants)
    if not times:
        return None
    return {"low": sum(x.seconds.low for x in times), "high": sum(x.seconds.high for x in times)}


def timed(workload: Workload) -> dict[str, Any]:
    """Time a workload with every candidate: a result of a step."""
    measured = has_card()
    result: dict[str, Any] = {
        "workload": workload.as_json(),
        "unit": workload.unit,
        "work": workload.work,
        "repeat": REPEAT if measured else None,
        "candidates": [],
        "reason": "",
    }
    try:
        ready = workload.ready()
        for number, kernel in enumerate(ready.kernels, 1):
            enqueue = ready.enqueue(number)
            row: dict[str, Any] = {"kernel": kernel, "measured": None, "modelled": None}
            if measured:
                row["measured"] = milliseconds(enqueue.call, REPEAT) / 1e3
            else:
                row["modelled"] = by_clock(enqueue)
            result["candidates"].append(row)
    except UnsupportedError as error:
        result["reason"] = str(error)
    except HipError as error:
        if "emory" not in str(error):
            raise
        result["reason"] = "out of memory"
    finally:
        array.memory.release()
    return result


def modelled(workload: Workload, kernels: list[str]) -> list[dict[str, Any]]:
    """Return the clock's range for some kernels of a workload; the device is the software device."""
    ready = workload.ready()
    found = []
    for number, kernel in enumerate(ready.kernels, 1):
        if kernel in kernels:
            found.append({"kernel": kernel, "modelled": by_clock(ready.enqueue(number))})
    array.memory.release()
    return found
