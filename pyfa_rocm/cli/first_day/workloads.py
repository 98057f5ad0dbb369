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
            for number in range(1, info(params).candidate_count + 1):
                params.kernel = number
                self.kernels.append(info(params).name)
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
    """One query of each sequence over a paged cache; `group` query heads share a key head."""

    batch: int
    context: int
    group: int
    nhead_k: int
    hdim: int
    page_size: int
    dtype: str
    unit = "bytes"

    def _trial(self) -> DecodeTrial:
        return DecodeTrial(
            *(self.batch, self.nhead_k * self.group, self.nhead_k, 1, self.hdim, False, self.dtype),
            seqlen_k=self.context,
            page_size=self.page_size,
        )

    @property
    def work(self) -> float:
        """See Workload."""
        return float(self._trial().least_bytes)

    def as_json(self) -> dict[str, Any]:
        """See Workload."""
        return {"kind": "decode"} | vars(self)

    def ready(self) -> Ready:
        """See Workload."""
        decoding = Decoding(self._trial())
        params, kernels = decoding.params, []
        params.kernel = 1
        for number in range(1, fmha.fmha_decode_kernel(params).candidate_count + 1):
            params.kernel = number
            kernels.append(fmha.fmha_decode_kernel(params).name)

        def enqueue(number: int) -> Enqueue:
            params.kernel = number
            decoding.make_room()
            fmha.fmha_decode_prepare(params)
            return Enqueue(kernels[number - 1], decoding.run)

        return Ready(kernels, enqueue)

    def __str__(self) -> str:
        """Say it in a line."""
        heads = f"{self.nhead_k * self.group}/{self.nhead_k}"
        return f"b{self.batch} {heads} s{self.context} d{self.hdim} {self.dtype}"


def from_json(value: dict[str, Any]) -> Workload:
    """Read a workload."""
    fields = {name: x for name, x in value.items() if name not in ("kind", "direction")}
    if value["kind"] == "decode":
        return Decode(**fields)
    return Attention(Problem(**fields), value["direction"])
