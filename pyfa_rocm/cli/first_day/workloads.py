# SPDX-License-Identifier: MIT OR Apache-2.0
"""The problems that `first-day` times: as JSON, and ready to run by each kernel that can do them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyfa_rocm import fmha
from pyfa_rocm._call.backward import BwdParams
from pyfa_rocm._call.params import FwdParams
from pyfa_rocm.cli.bench.decode_trial import DecodeTrial, Decoding
from pyfa_rocm.clock.subjects import Enqueue, Ours, ProblemArrays
from pyfa_rocm.device import runtime
from pyfa_rocm.oracle.params import candidates
from pyfa_rocm.oracle.problem import Problem

__all__ = ["Attention", "Decode", "Ready", "Workload", "from_json"]


@dataclass(frozen=True)
class Ready:
    """A workload whose arrays are on the device.

    Attributes
    ----------
    kernels : list of str
        The kernels that can do it, the library's choice first.
    enqueue : callable
        Given a kernel's number, from 1, what runs it.
    """

    kernels: list[str]
    enqueue: Callable[[int], Enqueue]


class Workload(ABC):
    """A problem that is timed."""

    unit: str

    @property
    @abstractmethod
    def work(self) -> float:
        """Operations or bytes that count, as the field counts them."""

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """Return it for a JSON object, which `from_json` reads."""

    @abstractmethod
    def ready(self) -> Ready:
        """Put it on the device; UnsupportedError: the library has no kernel for it."""


class _Numbered(Ours):
    """The library's candidate of a number. Asked for number 0, it only notes the names of all."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.kernels: list[str] = []

    def choose(self, params: FwdParams | BwdParams, info: Callable[[Any], fmha.KernelInfo]) -> None:
        """See Ours."""
        if not self.number:
            self.kernels = [kernel.name for kernel in candidates(params, info)]
        params.kernel = self.number

    def enqueue(self, arrays: ProblemArrays, direction: str) -> Enqueue:
        """Return what runs it."""
        return self._forward(arrays) if direction == "forward" else self._backward(arrays)


@dataclass(frozen=True)
class Attention(Workload):
    """A forward or backward pass, its arrays (batch, nhead, seqlen, hdim)."""

    problem: Problem
    direction: str
    unit = "flops"

    @property
    def work(self) -> float:
        """See Workload."""
        return self.problem.flops(self.direction)

    def as_json(self) -> dict[str, Any]:
        """See Workload."""
        p = self.problem
        names = ("batch", "nhead_q", "nhead_k", "seqlen", "hdim", "causal", "dtype")
        return {"kind": "attention", "direction": self.direction} | {name: getattr(p, name) for name in names}

    def ready(self) -> Ready:
        """See Workload."""
        arrays = ProblemArrays(self.problem)
        if not runtime().emulated:
            arrays.fill_all()
        asked = _Numbered(0)
        asked.enqueue(arrays, self.direction)
        if self.direction == "backward" and not runtime().emulated:  # O and LSE are to be numbers
            _Numbered(1).enqueue(arrays, "forward").call()
        return Ready(asked.kernels, lambda number: _Numbered(number).enqueue(arrays, self.direction))

    def __str__(self) -> str:
        """Say it in a line."""
        return f"{self.direction} {self.problem} {self.problem.dtype}"


@dataclass(frozen=True)
class Decode(Workload):
    """One query of each sequence over a paged cache."""

    trial: DecodeTrial
    unit = "bytes"

    @property
    def work(self) -> float:
        """See Workload."""
        return float(self.trial.least_bytes)

    def as_json(self) -> dict[str, Any]:
        """See Workload."""
        names = ("batch", "context", "group", "nhead_k", "hdim", "page_size", "dtype")
        found = self.trial.as_json()
        return {"kind": "decode"} | {name: found[name] for name in names}

    def ready(self) -> Ready:
        """See Workload."""
        decoding = Decoding(self.trial)
        params = decoding.params
        kernels = [kernel.name for kernel in candidates(params, fmha.fmha_decode_kernel)]

        def enqueue(number: int) -> Enqueue:
            params.kernel = number
            decoding.make_room()
            fmha.fmha_decode_prepare(params)
            return Enqueue(kernels[number - 1], decoding.run)

        return Ready(kernels, enqueue)

    def __str__(self) -> str:
        """Say it in a line."""
        x = self.trial
        return f"b{x.batch} {x.nhead_q}/{x.nhead_k} s{x.seqlen_k} d{x.hdim} {x.dtype}"


def from_json(value: dict[str, Any]) -> Workload:
    """Read a workload."""
    fields = {name: x for name, x in value.items() if name not in ("kind", "direction")}
    if value["kind"] == "decode":
        return Decode(DecodeTrial.of(**fields))
    return Attention(Problem(**fields), value["direction"])
