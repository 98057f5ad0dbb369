# SPDX-License-Identifier: MIT OR Apache-2.0
"""Launches of the objects: their argument blocks, and what a run has to show.

AITER packs arguments in slots of 16 bytes (in newer kernels of 8), each with one pointer or number at its
start.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from emulator.support import hip
from numpy.typing import NDArray

from . import wheel
from .findings import BOUNDS, known

Array = NDArray[Any]
Value = hip.Buffer | int | float | None


def slots(*values: Value, bytes_each: int = 16) -> bytes:
    """An argument block. None is a null pointer."""
    out = []
    for value in values:
        if isinstance(value, float):
            packed = struct.pack("<f", value)
        elif isinstance(value, int):
            packed = struct.pack("<i" if value < 0 else "<I", value)
        else:
            packed = struct.pack("<Q", value.address if value else 0)
        out.append(packed.ljust(bytes_each, b"\0"))
    return b"".join(out)


class Memory:
    """Device memory of a test, given back at its end."""

    def __init__(self) -> None:
        self._buffers: list[hip.Buffer] = []

    def of(self, array: Array) -> hip.Buffer:
        """A copy of an array."""
        self._buffers.append(hip.Buffer.of(np.ascontiguousarray(array)))
        return self._buffers[-1]

    def poisoned(self, count: int, dtype: Any) -> hip.Buffer:
        """Room for what a kernel writes, NaN everywhere before."""
        return self.of(np.full(count, np.nan, dtype))

    def free(self) -> None:
        """Give all of it back."""
        for buffer in self._buffers:
            buffer.free()


def read(buffer: hip.Buffer, dtype: Any, shape: Sequence[int]) -> Array:
    """Return a kernel's output as float64; it must have written every element."""
    raw = buffer.read(np.uint8).view(dtype)[: int(np.prod(shape))]
    out: Array = raw.reshape(shape).astype(np.float64)
    missing = np.isnan(out).sum()
    assert not missing, f"{missing} of {out.size} elements are NaN or were never written"
    return out


@dataclass
class Launch:
    """One launch of an object's kernel."""

    name: str
    args: bytes
    grid: tuple[int, int, int]
    block: int = 256
    variant: str = (
        ""  # behind the name in the table of findings, of an object that has code for several cases
    )

    def run(self, checks: str) -> None:
        """Run it under these checks (FMHA_EMU_CHECKS); HipError if the device objects."""
        data = wheel.image(self.name)
        module = hip.Module(data)
        try:
            with environment("FMHA_EMU_CHECKS", checks):
                module.launch(wheel.kernel(data), self.args, self.grid, (self.block, 1, 1))
        finally:
            hip.recover()
            module.unload()


@contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """A variable of the environment, for as long as it is needed."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


# Checks that need another one: only `waits` knows whether a write to LDS had ended before a barrier, and
# `hazards-shipped` only picks the kernels to which `hazards` applies.
NEEDS = {"lds-race": "lds-race,waits", "hazards-shipped": "hazards,hazards-shipped"}


def prove(launch: Launch, judge: Callable[[], None], short: Launch | None = None) -> None:
    """Right, and with the known findings only.

    With the checks of its known findings off the launch must be clean, and `judge` content. Then each finding
    must come. `short`: the launch that shows a finding of bounds, which no switch turns off.
    """
    findings = known(launch.name + launch.variant)
    launch.run(",".join(f"-{f.check}" for f in findings if f.check != BOUNDS))
    judge()
    for finding in findings:
        bounds = finding.check == BOUNDS
        shown = short if bounds else launch
        assert shown, f"{launch.name}: no launch shows {finding}"
        with pytest.raises(hip.HipError) as caught:
            shown.run("none" if bounds else f"none,{NEEDS.get(finding.check, finding.check)}")
        assert re.search(finding.text, caught.value.fault), (
            f"expected {finding.text}, got {caught.value.fault}"
        )
