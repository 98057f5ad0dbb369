# SPDX-License-Identifier: MIT OR Apache-2.0
"""Profiles of kernels on the software device.

Numbers called *counted* are exact. Those called *modelled* are estimates for the card that is played (for
an MI300X if that is an MI250X) from counts and the constants that :func:`constants` lists with their sources;
the caches are simple set-associative ones, cold at the start of each launch.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from pyfa_rocm._runtime import hip, software_device
from pyfa_rocm.device import device_count, synchronize
from pyfa_rocm.errors import InvalidArgumentError

__all__ = [
    "ACCESS",
    "Access",
    "Caches",
    "Counted",
    "GlobalMemory",
    "LaunchProfile",
    "Lds",
    "Matrix",
    "Modelled",
    "Occupancy",
    "Profile",
    "Range",
    "Scratch",
    "Time",
    "cache_model",
    "constants",
    "profile",
    "timing_constants",
]


@dataclass(frozen=True)
class Matrix:
    """MFMA instructions of one kind: how many, and their floating-point operations, two a multiply-add."""

    count: int
    flops: int


@dataclass(frozen=True)
class GlobalMemory:
    """Accesses of vector and scalar instructions to global memory.

    Attributes
    ----------
    load_bytes, store_bytes, atomic_bytes : int
        Bytes of the active lanes that were in range.
    scalar_load_bytes : int
        Bytes of s_load and s_buffer_load, mostly kernel arguments.
    lines_touched, lines_read, lines_written : int
        Number of different lines of 128 bytes.
    """

    load_bytes: int
    store_bytes: int
    atomic_bytes: int
    scalar_load_bytes: int
    lines_touched: int
    lines_read: int
    lines_written: int


@dataclass(frozen=True)
class Scratch:
    """Bytes of private memory: registers spilt, arrays. Not in the cache model."""

    load_bytes: int
    store_bytes: int


@dataclass(frozen=True)
class Lds:
    """Bytes that lanes moved from and to LDS; loads from memory to LDS are writes."""

    read_bytes: int
    write_bytes: int
    atomic_bytes: int


@dataclass(frozen=True)
class Counted:
    """Exact counts of a launch.

    Attributes
    ----------
    workgroups, waves : int
        Workgroups and waves that ran.
    instructions : dict of str to int
        Wave instructions: "total", and by class "valu", "transcendental", "mfma", "salu", "smem", "lds",
        "vmem_load", "vmem_store", "vmem_atomic", "branch", "sync" (s_barrier, s_waitcnt) and "other".
    mfma, mfma_by_type : dict of str to Matrix
        By mnemonic, and by the type of the inputs.
    """

    workgroups: int
    waves: int
    instructions: dict[str, int]
    mfma: dict[str, Matrix]
    mfma_by_type: dict[str, Matrix]
    memory: GlobalMemory
    scratch: Scratch
    lds: Lds

    @property
    def flops(self) -> int:
        """Floating-point operations of all MFMA instructions."""
        return sum(matrix.flops for matrix in self.mfma.values())


@dataclass(frozen=True)
class Caches:
    """Traffic through the modelled caches.

    Attributes
    ----------
    l2_requests, l2_hits : int
        Lines that instructions asked the L2s for.
    l2_fill_bytes, l2_writeback_bytes : int
        Traffic between the L2s and the rest of the GPU.
    mall_hits, mall_misses : int
        Lines of fills that hit and that missed the memory-side cache.
    hbm_read_bytes, hbm_write_bytes : int
        Traffic that reaches the memory.
    """

    l2_requests: int
    l2_hits: int
    l2_fill_bytes: int
    l2_writeback_bytes: int
    mall_hits: int
    mall_misses: int
    hbm_read_bytes: int
    hbm_write_bytes: int

    @property
    def hbm_bytes(self) -> int:
        """Bytes read from and written to HBM."""
        return self.hbm_read_bytes + self.hbm_write_bytes


@dataclass(frozen=True)
class Occupancy:
    """Waves and workgroups of the kernel that a compute unit holds, and what limits them.

    The unit is a work-group processor on RDNA, unless the kernel was compiled for CU mode.

    Attributes
    ----------
    vgprs, lds_bytes : int
        Allocated amounts, rounded up to the hardware's granules; VGPRs and AccVGPRs together.
    limit : str
        "registers", "lds", "waves" or "workgroups".
    """

    vgprs: int
    lds_bytes: int
    waves_per_workgroup: int
    workgroups_per_cu: int
    waves_per_simd: int
    limit: str


@dataclass(frozen=True)
class Modelled:
    """Estimates from the counts, for the card that is played, or for an MI300X instead of an MI250X.

    Attributes
    ----------
    lds_cycles, lds_conflict_cycles : int
        LDS accesses in cycles of the LDS, and how many of those are due to bank conflicts.
    """

    lds_cycles: int
    lds_conflict_cycles: int
    caches: Caches
    occupancy: Occupancy


@dataclass(frozen=True)
class Range:
    """A range from the fast ends of all constants of the clock to the slow ends."""

    low: float
    high: float


@dataclass(frozen=True)
class Time:
    """Modelled time of a launch on a card; the ends of :func:`timing_constants` give the ranges.

    Attributes
    ----------
    card : str
        "mi300x", "mi355x", "rx7900xtx" or "rx9070xt".
    cycles, seconds, clock_hz : Range
        Ranges for the launch. `seconds` includes the cost to start a kernel, `cycles` does not.
    tflops : Range
        10^12 operations a second of the matrix instructions that the launch issues. They include operations
        on keys that a mask hides from some rows of a tile; published speeds of attention leave those out.
    binds : dict of str to float
        Shares from 0 to 1, in the middle of the range. "matrix" and "vector" are the use of the ports while a
        compute unit has work. "lds" and "l1" are the use of the pipes of a compute unit. "latency" and
        "barriers" are the shares of the time in which neither port runs and a wave waits for loads or at a
        barrier. "memory" is the share of the launch that its traffic through L2, Infinity Cache and HBM needs
        at their bandwidths.
    sampled_workgroups, workgroups, workgroups_per_cu : int
        Number of modelled workgroups, of all, and of those that share a compute unit.
    events : dict or None
        Instructions that one compute unit issued; see :func:`profile`.
    """

    card: str
    cycles: Range
    seconds: Range
    clock_hz: Range
    tflops: Range
    binds: dict[str, float]
    sampled_workgroups: int
    workgroups: int
    workgroups_per_cu: int
    events: dict[str, Any] | None = field(repr=False)

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Time:
        """Read the "time" of a record."""
        names = ("card", "binds", "sampled_workgroups", "workgroups", "workgroups_per_cu")
        found: dict[str, Any] = {name: record[name] for name in names}
        for name in ("cycles", "seconds", "clock_hz", "tflops"):
            found[name] = Range(**record[name])
        return cls(**found, events=record.get("events"))


@dataclass(frozen=True)
class LaunchProfile:
    """Profile of one launch. `json` is the software device's unchanged record.

    `time` is None unless :func:`profile` was asked for it and the launch ran to its end.
    """

    kernel: str
    arch: str
    device: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    counted: Counted
    modelled: Modelled
    json: dict[str, Any] = field(repr=False)
    time: Time | None = None

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> LaunchProfile:
        """Read a record of version 1 or later."""
        counted, modelled = record["counted"], record["modelled"]
        matrices = {
            name: {key: Matrix(**value) for key, value in counted[name].items()}
            for name in ("mfma", "mfma_by_type")
        }
        return cls(
            kernel=record["kernel"],
            arch=record["arch"],
            device=record["device"],
            grid=tuple(record["grid"]),
            block=tuple(record["block"]),
            counted=Counted(
                workgroups=counted["workgroups"],
                waves=counted["waves"],
                instructions=counted["instructions"],
                mfma=matrices["mfma"],
                mfma_by_type=matrices["mfma_by_type"],
                memory=GlobalMemory(**counted["global"]),
                scratch=Scratch(**counted["scratch"]),
                lds=Lds(**counted["lds"]),
            ),
            modelled=Modelled(
                lds_cycles=modelled["lds"]["cycles"],
                lds_conflict_cycles=modelled["lds"]["conflict_cycles"],
                caches=Caches(**modelled["caches"]),
                occupancy=Occupancy(**modelled["occupancy"]),
            ),
            json=record,
            time=Time.from_json(record["time"]) if "time" in record else None,
        )


@dataclass
class Profile:
    """The launches of a `with profile()` block, in the order in which they ended; filled in at its end."""

    launches: list[LaunchProfile] = field(default_factory=list)


def _wait_for_devices() -> None:
    for device in range(device_count()):
        synchronize(device)


_profiling = threading.Lock()


class _TimingRequest(ctypes.Structure):
    """fmha_emu_timing_request."""

    _fields_ = (
        ("points", ctypes.c_uint32),
        ("only_sampled", ctypes.c_uint32),
        ("events", ctypes.c_uint32),
    )


_POINTS = 3  # of each axis of the grid: the first workgroup, the middle one, the last


@contextmanager
def _timing(
    library: ctypes.CDLL,
    timing: bool,
    sample: int | None,
    events: int,
    constants: Mapping[str, tuple[float, float]] | None,
) -> Iterator[None]:
    """Switch the clock on for the block, if it is asked for."""
    if not timing and (sample is not None or events or constants):
        raise InvalidArgumentError("profile: sample, events and constants need timing=True, got timing=False")
    if sample is not None and not 1 <= sample < 1 << 32:
        raise InvalidArgumentError(f"sample: got {sample}, expected None or 1 or more points")
    if not 0 <= events < 1 << 32:
        raise InvalidArgumentError(f"events: got {events}, expected 0 or more")
    if not timing:
        yield
        return
    request = _TimingRequest(_POINTS if sample is None else sample, sample is not None, events)
    try:
        for name, (fast, slow) in (constants or {}).items():
            key, values = name.encode(), (ctypes.c_double(fast), ctypes.c_double(slow))
            if library.fmha_emu_set_timing_constant(key, *values):
                hip.forget_error()
                raise InvalidArgumentError(
                    f"constants: got {name!r}: ({fast}, {slow}), expected a name of timing_constants() and "
                    "two numbers of 0 or more"
                )
        if status := library.fmha_emu_timing(ctypes.byref(request)):
            raise software_device.failure("profile(timing=True)", status)
        yield
    finally:
        library.fmha_emu_timing(None)
        library.fmha_emu_set_timing_constant(None, ctypes.c_double(0), ctypes.c_double(0))


@contextmanager
def profile(
    *,
    timing: bool = False,
    sample: int | None = None,
    events: int = 0,
    constants: Mapping[str, tuple[float, float]] | None = None,
) -> Iterator[Profile]:
    """Profile every launch of the block, by any thread of the process, on the software device.

    A profiled launch runs its workgroups in order on one thread. Launches outside such a block are not
    counted and cost nothing extra.

    Parameters
    ----------
    timing : bool
        Model how long each launch takes on the card that is played, or on an MI300X instead of an MI250X:
        `LaunchProfile.time`. Raises HipError if the clock has no constants of the card.
    sample : int, optional
        With `timing`: run only the workgroups that the clock models, about this many on each axis of the
        grid; 3 are enough where cost is linear in a workgroup's place. Counts are then those of the
        workgroups that ran, and results are incomplete. By default every workgroup runs, and three of each
        axis are modelled.
    events : int
        With `timing`: keep the first `events` instructions that a compute unit issues, at the fast end, over
        the middle workgroup and those beside it. `Time.events` has a list of each of "wave", "simd", "slot"
        (of `slot_cycles`), "slots" (that it occupies its port), "stalled" (slots held up), "reason" (a place
        in "reasons") and "instruction" (a key of "instructions", which has "pc", "text" and "class").
    constants : dict of str to (fast, slow), optional
        Replace some of :func:`timing_constants` in this block.

    Yields
    ------
    Profile
        Its `launches` are filled in at the end of the block.

    Raises
    ------
    HipError
        The device is a GPU.
    InvalidArgumentError
        Another such block is active, or an argument is out of its range.

    Examples
    --------
    >>> with emulator.profile() as p:
    ...     out = flash_attn_func(q, k, v)
    >>> p.launches[0].counted.flops
    """
    library = software_device.library()
    if not _profiling.acquire(blocking=False):
        raise InvalidArgumentError("profile: got a block inside another, expected one at a time")
    try:
        result = Profile()
        _wait_for_devices()
        with _timing(library, timing, sample, events, constants):
            library.fmha_emu_profile_enable(1)
            try:
                yield result
            finally:
                try:
                    _wait_for_devices()
                finally:
                    library.fmha_emu_profile_enable(0)
        result.launches = [
            LaunchProfile.from_json(record) for record in software_device.json_of(library.fmha_emu_profile)
        ]
    finally:
        _profiling.release()


def constants() -> dict[str, dict[str, Any]]:
    """Return the constants of the model: name to {"value", "source"}."""
    value: dict[str, dict[str, Any]] = software_device.json_of(
        software_device.library().fmha_emu_profile_constants
    )
    return value


def timing_constants() -> dict[str, dict[str, Any]]:
    """Return the further constants of the clock: name to {"fast", "slow", "unit", "source"}."""
    value: dict[str, dict[str, Any]] = software_device.json_of(
        software_device.library().fmha_emu_timing_constants
    )
    return value


class Access(IntEnum):
    """Kinds of accesses for :func:`cache_model`."""

    READ = 0
    WRITE = 1
    ATOMIC = 2
    END_OF_KERNEL = 3


# One row that cache_model takes: any range of bytes. The workgroup's number modulo 8 is its XCD.
ACCESS = np.dtype([("address", "u8"), ("bytes", "u8"), ("workgroup", "u4"), ("kind", "u4")])


def cache_model(accesses: Iterable[tuple[int, int, int, int]] | npt.NDArray[np.void]) -> Caches:
    """Run made-up accesses through the caches of the profile.

    Parameters
    ----------
    accesses : iterable of (address, bytes, workgroup, kind), or array of ACCESS
        In this order, one after the other. `Access.END_OF_KERNEL` writes back and empties the L2s.
    """
    array = accesses if isinstance(accesses, np.ndarray) else np.array(list(accesses), ACCESS)
    if array.dtype != ACCESS or array.ndim != 1:
        raise InvalidArgumentError(
            f"accesses: got {array.dtype} with {array.ndim} dimensions, expected ACCESS, 1"
        )
    array = np.ascontiguousarray(array)
    function = software_device.library().fmha_emu_cache_model
    record = software_device.json_of(
        function, ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.size)
    )
    return Caches(**record["caches"])
