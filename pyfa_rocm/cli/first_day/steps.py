# SPDX-License-Identifier: MIT OR Apache-2.0
"""The steps of `first-day`: each has a name, and a result that goes into the file."""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyfa_rocm import array, attention
from pyfa_rocm._runtime import hip, library
from pyfa_rocm.cli import prove
from pyfa_rocm.cli.bench.subjects import milliseconds
from pyfa_rocm.cli.first_day import timing
from pyfa_rocm.cli.first_day.clockwork import Clockwork
from pyfa_rocm.cli.first_day.machine import Sensors, under_load
from pyfa_rocm.cli.first_day.sizes import DayOne
from pyfa_rocm.cli.first_day.workloads import Attention, Workload
from pyfa_rocm.clock.subjects import Ours
from pyfa_rocm.device import current_device, describe, synchronize
from pyfa_rocm.oracle import forced
from pyfa_rocm.oracle.problem import Problem

__all__ = ["PARTS", "Step", "steps"]

PARTS = ("prove", "kernels", "published", "choices", "decode", "overhead", "clocks", "model")
Result = dict[str, Any]
# A problem so small that its kernel takes next to no time.
_TINY = Problem(1, 1, 1, 16, 64, False)


@dataclass(frozen=True)
class Step:
    """A unit of work whose result is kept.

    Attributes
    ----------
    name : str
        A key of the file, which begins with its part.
    run : callable
        Given the results so far, does it.
    """

    name: str
    run: Callable[[dict[str, Result]], Result]

    @property
    def part(self) -> str:
        """The part that it belongs to."""
        return self.name.partition(" ")[0]


def kernels_of_this_device(pattern: str) -> tuple[list[forced.Row], dict[str, str]]:
    """Return the rows of the kernels that can be asked for here, and for others why they are not."""
    device = describe(current_device())
    rows, left = [], {}
    for row in json.loads(library.build_info_json())["kernels"]:
        name = row["name"]
        if row["arch"] != device.arch or not re.search(pattern, name):
            continue
        units = row.get("compute_units")
        if row["family"] not in forced.FAMILIES:
            left[name] = "runs beside others, and cannot be asked for"
        elif units and device.compute_units not in units:
            left[name] = f"for cards with {' or '.join(map(str, units))} compute units"
        else:
            rows.append(row)
    return rows, left


def _force(row: forced.Row, seed: int, sizes: forced.Sizes, _: object) -> Result:
    """Run a kernel on a random problem."""
    try:
        outcome = forced.run(row, seed, sizes)
    except forced.NotOfferedError as error:
        return {"kernel": row["name"], "family": row["family"], "reason": str(error)}
    finally:
        array.memory.release()
    return {
        "kernel": row["name"],
        "family": row["family"],
        "problem": outcome.problem,
        "shares": outcome.shares,
        "right": outcome.right,
        "runs": sizes.runs,
        "same_bits": outcome.same_bits,
        "same_bits_promised": outcome.promised,
        "reason": "",
    }


def _prove() -> Result:
    """Prove as `prove` does; where files lie on this machine is nobody's concern."""
    report = prove.report(prove.PROBLEM)
    return {"report": {name: x for name, x in report.items() if name not in ("library", "hip_runtime")}}


def _time(workload: Workload, _: object) -> Result:
    return timing.timed(workload)


def _host_microseconds(call: Callable[[], Any], calls: int) -> float:
    """Return the median time that a call takes the calling thread, launches being enqueued only."""
    found = []
    for _ in range(5):
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        found.append((time.perf_counter_ns() - start) / calls / 1e3)
        synchronize()
    return statistics.median(found)


def _overhead(calls: int) -> Result:
    """Measure what a call costs the host, and how soon one launch follows the other."""
    with Ours().prepare(_TINY, "forward") as enqueue:
        enqueue.call()
        synchronize()
        raw = _host_microseconds(enqueue.call, calls)

        def many() -> None:
            for _ in range(calls):
                enqueue.call()

        on_device = milliseconds(many, 5) / calls / 1e3 if timing.has_card() else None
        modelled = None if timing.has_card() else timing.by_clock(enqueue)
    q, k, v = (array.DeviceArray.from_numpy(x) for x in _TINY.inputs())
    out = attention.flash_attn_func(q, k, v)
    public = _host_microseconds(lambda: attention.flash_attn_func(q, k, v, out=out), calls)
    return {
        "calls": calls,
        "fmha_fwd_microseconds": raw,
        "flash_attn_func_microseconds": public,
        "launch": {"measured": on_device, "modelled": modelled},
    }


def _clocks(load: Attention, seconds: float) -> Result:
    """Read clocks and power while a large problem runs; on the software device, ask the clock."""
    properties = hip.call("hipGetDeviceProperties", current_device())
    result: Result = {
        "workload": load.as_json(),
        "peak_hz": float(properties.clockRate) * 1e3,
        "memory_peak_hz": float(properties.memoryClockRate) * 1e3,
        "sensors": {},
        "modelled_hz": None,
    }
    enqueue = load.ready().enqueue(1)
    if timing.has_card():

        def work() -> None:
            for _ in range(4):
                enqueue.call()
            synchronize()

        result["sensors"] = under_load(Sensors.of_current_device(), work, seconds)
    else:
        if times := timing.times_by_clock(enqueue):
            longest = max(times, key=lambda found: found.seconds.high)
            result["modelled_hz"] = vars(longest.clock_hz)
    array.memory.release()
    return result


def _model(clockwork: Clockwork, of: str, workload: Workload, results: dict[str, Result]) -> Result:
    """Model the kernels of a timed step that matter: the library's choice, and the fastest."""
    rows = [row for row in results.get(of, {}).get("candidates", []) if row["measured"] is not None]
    if not rows:
        return {"of": of, "card": "", "candidates": [], "reason": "nothing was measured"}
    fastest = min(rows, key=lambda row: row["measured"])
    wanted = list(dict.fromkeys((rows[0]["kernel"], fastest["kernel"])))
    return {"of": of} | clockwork.ask(workload, wanted)


def _timed(part: str, workloads: Iterable[Workload]) -> Iterator[tuple[str, Workload]]:
    for workload in workloads:
        yield f"{part} {workload}", workload


def steps(day: DayOne, parts: Iterable[str], pattern: str, clockwork: Clockwork) -> list[Step]:
    """Return the steps of some parts, in the order in which they run: what matters most comes first.

    Parameters
    ----------
    day : DayOne
        How much is run.
    parts : iterable of str
        Some of PARTS.
    pattern : str
        Regular expression that is found in the names of the kernels to force.
    clockwork : Clockwork
        The software device beside the card.
    """
    chosen = set(parts)
    rows, _ = kernels_of_this_device(pattern)

    def forcing(seed: int) -> list[Step]:
        return [Step(f"kernels {row['name']} {seed}", partial(_force, row, seed, day.forced)) for row in rows]

    timed = [
        *_timed("published", day.published),
        *_timed("choices", day.choices),
        *_timed("decode", day.decode),
    ]
    found = [Step("prove", lambda _: _prove()), *forcing(0)]
    found += [Step(name, partial(_time, work)) for name, work in timed]
    found.append(Step("overhead", lambda _: _overhead(day.calls)))
    found.append(Step("clocks", lambda _: _clocks(day.load, day.load_seconds)))
    if timing.has_card():
        here = [(name, work) for name, work in timed if name.partition(" ")[0] in chosen]
        found += [Step(f"model {name}", partial(_model, clockwork, name, work)) for name, work in here]
        if "clocks" in chosen:
            found.append(Step("model constants", lambda _: clockwork.constants(day.load)))
    for seed in range(1, day.rounds):
        found += forcing(seed)
    return [step for step in found if step.part in chosen]
