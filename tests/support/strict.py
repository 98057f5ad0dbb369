# SPDX-License-Identifier: MIT OR Apache-2.0
"""Tells the software device about a test's memory, so that its checks have something to check.

On a GPU all of this does nothing.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
import numpy.typing as npt

import pyfa_rocm


@cache
def _library() -> ctypes.CDLL | None:
    """The software device; None if a GPU is in use."""
    runtime = pyfa_rocm.runtime()
    return ctypes.CDLL(runtime.path) if runtime.emulated else None


def _call(library: ctypes.CDLL, name: str, address: int, nbytes: int) -> None:
    code = getattr(library, name)(ctypes.c_void_p(address), ctypes.c_size_t(nbytes))
    assert code == 0, f"{name}({address:#x}, {nbytes}): error {code}"


def only_initialized(address: int, nbytes: int, written: npt.NDArray[np.bool_]) -> None:
    """Let a kernel read of this memory only what `written` says, a flag a byte, or what it wrote."""
    if (library := _library()) is None:
        return
    _call(library, "fmha_emu_track_initialized", address, nbytes)
    edges = np.flatnonzero(np.diff(written, prepend=False, append=False))
    for first, end in edges.reshape(-1, 2).tolist():
        _call(library, "fmha_emu_mark_initialized", address + first, end - first)


@contextmanager
def read_only(ranges: Iterable[tuple[int, int]]) -> Iterator[None]:
    """Kernels launched inside the block by this thread may not write these (address, bytes)."""
    if (library := _library()) is None:
        yield
        return
    try:
        for address, nbytes in ranges:
            _call(library, "fmha_emu_declare_read_only", address, nbytes)
        yield
    finally:
        library.fmha_emu_end_read_only()


@contextmanager
def wave_order(schedule: str) -> Iterator[None]:
    """Make the software device run the waves of a workgroup in another order; a GPU has its own."""
    os.environ["FMHA_EMU_SCHEDULE"] = schedule
    try:
        yield
    finally:
        del os.environ["FMHA_EMU_SCHEDULE"]


@contextmanager
def races_allowed() -> Iterator[None]:
    """Let workgroups of one launch write the same global memory, in an order that nothing decides."""
    before = os.environ.get("FMHA_EMU_CHECKS")
    os.environ["FMHA_EMU_CHECKS"] = ",".join(filter(None, (before, "-global-race")))
    try:
        yield
    finally:
        if before is None:
            del os.environ["FMHA_EMU_CHECKS"]
        else:
            os.environ["FMHA_EMU_CHECKS"] = before


@contextmanager
def forgiven() -> Iterator[None]:
    """Let a launch inside that the device stops be a failure of only this test."""
    try:
        yield
    except pyfa_rocm.HipError:
        forgive()
        raise


def forgive() -> None:
    """Take note of the launch that the device stopped, so that it serves the next."""
    if (library := _library()) is not None:
        library.hipDeviceSynchronize()
        library.hipGetLastError()
