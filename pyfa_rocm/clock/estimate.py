# SPDX-License-Identifier: MIT OR Apache-2.0
"""How long a subject takes on a card, by the software device's clock."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyfa_rocm import emulator
from pyfa_rocm.clock.subjects import Enqueue, Subject
from pyfa_rocm.device import synchronize
from pyfa_rocm.emulator import Range, Time
from pyfa_rocm.oracle.problem import Problem

__all__ = ["Estimate", "estimate", "launch_times"]

# Workgroups that are modelled along each axis of a grid.
POINTS = 3


@dataclass(frozen=True)
class Estimate:
    """The clock's estimate of a problem.

    Attributes
    ----------
    kernel : str
        The kernel that ran; for a backward pass the one of dK and dV.
    cycles, seconds, tflops : Range
        `low` of the seconds is at the fast ends of all constants, `low` of TFLOPS at the slow ends.
    clock_hz : Range
        Clock of the launch that takes longest.
    binds : dict of str to float
        As `emulator.Time`, of the launch that takes longest.
    launches : int
        Number of launches.
    longest : Time
        Time of the launch that takes longest.
    parts : tuple of (str, Range)
        Each launch's kernel and seconds, in order.
    """

    kernel: str
    cycles: Range
    seconds: Range
    clock_hz: Range
    tflops: Range
    binds: dict[str, float]
    launches: int
    longest: Time
    parts: tuple[tuple[str, Range], ...] = ()

    @property
    def middle_seconds(self) -> float:
        """Return the middle of the range: what is compared with a measurement."""
        return (self.seconds.low + self.seconds.high) / 2

    @property
    def middle_tflops(self) -> float:
        """Return the speed at that time."""
        return self.tflops.low * self.seconds.high / self.middle_seconds

    def as_json(self) -> dict[str, Any]:
        """Return it for a JSON object."""
        ranges = {name: vars(getattr(self, name)) for name in ("cycles", "seconds", "clock_hz", "tflops")}
        return {"kernel": self.kernel, **ranges, "binds": self.binds, "launches": self.launches}


@contextmanager
def _without_checks() -> Iterator[None]:
    """Launch without the software device's checks: they cost time and say nothing of speed.

    A choice of the user's stands.
    """
    if "FMHA_EMU_CHECKS" in os.environ:
        yield
        return
    os.environ["FMHA_EMU_CHECKS"] = "none"
    try:
        yield
    finally:
        del os.environ["FMHA_EMU_CHECKS"]


def estimate(subject: Subject, shape: Problem, direction: str = "forward", events: int = 0) -> Estimate:
    """Time a problem: its sampled workgroups run, on arrays of the real size.

    A subject with variants has the time of the one that is fastest at the middle of the range.

    Raises
    ------
    UnsupportedError
        The subject cannot do it.
    """
    variants = (_estimate(variant, shape, direction, events) for variant in subject.variants())
    return min(variants, key=lambda found: found.middle_seconds)


def launch_times(
    enqueue: Enqueue, events: int = 0, constants: Mapping[str, tuple[float, float]] | None = None
) -> list[tuple[str, Time]]:
    """Run the sampled workgroups of what is enqueued; return the kernel and the time of each launch.

    `events` and `constants` are those of `emulator.profile`.
    """
    clock = emulator.profile(timing=True, sample=POINTS, events=events, constants=constants)
    with _without_checks(), clock as profile:
        enqueue.call()
        synchronize()
    return [
        (launch.kernel, launch.time)
        for launch in profile.launches
        if launch.time is not None and not any(word in launch.kernel for word in enqueue.untimed)
    ]


def _estimate(subject: Subject, shape: Problem, direction: str, events: int) -> Estimate:
    with _without_checks(), subject.prepare(shape, direction) as enqueue:
        parts = launch_times(enqueue, events)
    timed = [time for _, time in parts]
    longest = max(timed, key=lambda time: time.seconds.high)

    def total(name: str) -> Range:
        ranges = [getattr(time, name) for time in timed]
        return Range(sum(x.low for x in ranges), sum(x.high for x in ranges))

    seconds, flops = total("seconds"), shape.flops(direction)
    return Estimate(
        kernel=enqueue.kernel,
        cycles=total("cycles"),
        seconds=seconds,
        clock_hz=longest.clock_hz,
        tflops=Range(flops / seconds.high / 1e12, flops / seconds.low / 1e12),
        binds=longest.binds,
        launches=len(timed),
        longest=longest,
        parts=tuple((kernel, time.seconds) for kernel, time in parts),
    )
