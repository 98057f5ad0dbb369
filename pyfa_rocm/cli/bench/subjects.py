# SPDX-License-Identifier: MIT OR Apache-2.0
"""The functions that `bench` measures: ours, and torch's SDPA and eager attention where torch has a card."""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from pyfa_rocm import array, attention, backward
from pyfa_rocm._runtime import hip
from pyfa_rocm.device import synchronize
from pyfa_rocm.oracle.problem import Problem
from pyfa_rocm.oracle.reference import visible

__all__ = [
    "WARMUP",
    "Ours",
    "Subject",
    "TorchEager",
    "TorchSdpa",
    "distances",
    "head_reference",
    "milliseconds",
]

Array = npt.NDArray[Any]
Float64 = npt.NDArray[np.float64]
WARMUP = 3
# Rows of scores that the reference holds at a time.
_BLOCK = 512


class Subject(ABC):
    """A way to compute attention, with a problem's arrays on the device."""

    @abstractmethod
    def __init__(self, problem: Problem) -> None: ...

    @abstractmethod
    def forward(self) -> None:
        """Enqueue a forward pass; its results stay until the next."""

    @abstractmethod
    def backward(self) -> None:
        """Enqueue the backward pass of the last forward pass."""

    @abstractmethod
    def first_head(self, names: list[str]) -> dict[str, Array]:
        """Return results, of "o", "dq", "dk" and "dv", of the first head on the host: (seqlen, hdim)."""

    @abstractmethod
    def reset_peak(self) -> None:
        """Start to look for the peak of memory."""

    @abstractmethod
    def peak_bytes(self) -> int:
        """Return the peak of what was allocated on the device for the problem since then."""


class Ours(Subject):
    """`flash_attn_func` and `flash_attn_bwd`."""

    def __init__(self, problem: Problem) -> None:
        self._before = array.memory.live_bytes
        self._causal = problem.causal
        self._inputs = [array.DeviceArray.from_numpy(x) for x in problem.inputs()]
        self._dout = array.DeviceArray.from_numpy(problem.dout())
        self._results: dict[str, Any] = {}
        self._lse: Any = None

    def forward(self) -> None:
        """See Subject."""
        self._results = {}  # given back first, so that the peak is one call's
        self._lse = None
        q, k, v = self._inputs
        self._results["o"], self._lse = attention.flash_attn_func(
            q, k, v, causal=self._causal, return_lse=True
        )

    def backward(self) -> None:
        """See Subject."""
        out = self._results["o"]
        self._results = {"o": out}
        q, k, v = self._inputs
        grads = backward.flash_attn_bwd(self._dout, q, k, v, out, self._lse, causal=self._causal)
        self._results |= dict(zip(("dq", "dk", "dv"), grads, strict=True))

    def first_head(self, names: list[str]) -> dict[str, Array]:
        """See Subject."""
        return {name: self._results[name].to_numpy()[0, :, 0] for name in names}

    def reset_peak(self) -> None:
        """See Subject."""
        array.memory.reset_peak()

    def peak_bytes(self) -> int:
        """See Subject."""
        return int(array.memory.peak_bytes - self._before)


class _Torch(Subject):
    def __init__(self, problem: Problem) -> None:
        self._torch = torch = import_module("torch")
        self._before = torch.cuda.memory_allocated()
        self._causal = problem.causal
        dtype = getattr(torch, problem.dtype)

        def tensor(x: Array) -> Any:  # (batch, nhead, seqlen, hdim), a view of (batch, seqlen, nhead, hdim)
            return torch.from_numpy(x.view("i2")).view(dtype).to("cuda").transpose(1, 2)

        self._inputs = [tensor(x).requires_grad_() for x in problem.inputs()]
        self._dout = tensor(problem.dout())
        self._results: dict[str, Any] = {}

    def _attend(self, q: Any, k: Any, v: Any) -> Any:
        raise NotImplementedError

    def forward(self) -> None:
        self._results = {}
        self._results["o"] = self._attend(*self._inputs)

    def backward(self) -> None:
        out = self._results["o"]
        self._results = {"o": out}
        grads = self._torch.autograd.grad(out, self._inputs, self._dout, retain_graph=True)
        self._results |= dict(zip(("dq", "dk", "dv"), grads, strict=True))

    def first_head(self, names: list[str]) -> dict[str, Array]:
        return {name: self._results[name][0, 0].detach().float().cpu().numpy() for name in names}

    def reset_peak(self) -> None:
        self._torch.cuda.reset_peak_memory_stats()

    def peak_bytes(self) -> int:
        return int(self._torch.cuda.max_memory_allocated() - self._before)


class TorchSdpa(_Torch):
    """`torch.nn.functional.scaled_dot_product_attention`, whichever of its kernels torch takes."""

    def _attend(self, q: Any, k: Any, v: Any) -> Any:
        return self._torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self._causal)


class TorchEager(_Torch):
    """Attention as it is written down, in torch: all scores in memory."""

    def _attend(self, q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        if self._causal:
            shape = scores.shape[-2:]
            hidden = self._torch.ones(shape, dtype=self._torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(hidden, float("-inf"))
        return self._torch.softmax(scores, dim=-1) @ v


def milliseconds(call: Callable[[], None], repeat: int) -> float:
    """Return the median time that a call takes on the device, by HIP events, after WARMUP calls."""
    for _ in range(WARMUP):
        call()
    events: list[Any] = []
    try:
        for _ in range(2):
            events.append(hip.call("hipEventCreate"))
        begin, end = events
        taken = []
        for _ in range(repeat):
            hip.call("hipEventRecord", begin, 0)
            call()
            hip.call("hipEventRecord", end, 0)
            hip.call("hipEventSynchronize", end)
            taken.append(float(hip.call("hipEventElapsedTime", begin, end)))
        return statistics.median(taken)
    finally:
        synchronize()
        for event in events:
            with suppress(Exception):
                hip.call("hipEventDestroy", event)


def head_reference(problem: Problem) -> dict[str, Float64]:
    """Return O, dQ, dK and dV of the first head of the first batch in float64, each (seqlen, hdim).

    Needs as many key heads as query heads. The scores are made in blocks of rows, so memory is O(seqlen).
    """
    q, k, v = (x[0, :, 0].astype(np.float64) for x in problem.inputs())
    dout = problem.dout()[0, :, 0].astype(np.float64)
    scale = problem.hdim**-0.5
    found = {name: np.zeros(q.shape) for name in ("o", "dq", "dk", "dv")}
    for first in range(0, problem.seqlen, _BLOCK):
        rows = slice(first, min(first + _BLOCK, problem.seqlen))
        keys = slice(0, rows.stop if problem.causal else problem.seqlen)
        scores = scale * q[rows] @ k[keys].T
        scores[~visible(len(scores), keys.stop, causal=problem.causal)] = -np.inf
        p = np.exp(scores - scores.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        found["o"][rows] = p @ v[keys]
        d = (dout[rows] * found["o"][rows]).sum(axis=1, keepdims=True)
        ds = p * (dout[rows] @ v[keys].T - d)
        found["dq"][rows] = scale * ds @ k[keys]
        found["dk"][keys] += scale * ds.T @ q[rows]
        found["dv"][keys] += p.T @ dout[rows]
    return found


def distances(got: dict[str, Array], want: dict[str, Float64]) -> float:
    """Return the largest distance of any element of the results from the reference."""
    return max(float(np.abs(x.astype(np.float64) - want[name]).max()) for name, x in got.items())
