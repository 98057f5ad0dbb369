# SPDX-License-Identifier: MIT OR Apache-2.0
"""A problem run on the device and judged against float64: what `prove` and `demo` share."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pyfa_rocm import array, attention, fmha
from pyfa_rocm._call import params
from pyfa_rocm.cli import reference
from pyfa_rocm.cli.rounding import numerics_of
from pyfa_rocm.device import synchronize

Array = npt.NDArray[Any]
# A time is the best of this many: other work on the machine can only add to it.
REPEATS = 3


@dataclass(frozen=True)
class Trial:
    """A self-attention problem; hdim is that of q, k and v."""

    batch: int
    seqlen: int
    nhead_q: int
    nhead_k: int
    hdim: int
    dtype: str
    causal: bool
    seed: int = 0

    def inputs(self) -> tuple[Array, Array, Array]:
        """Return q, k, v from a normal distribution, the same for the same seed."""
        rng = np.random.default_rng(self.seed)
        dtype = array.bfloat16 if self.dtype == "bfloat16" else np.dtype(self.dtype)
        shapes = [
            (self.batch, self.seqlen, heads, self.hdim)
            for heads in (self.nhead_q, self.nhead_k, self.nhead_k)
        ]
        q, k, v = (rng.standard_normal(shape, np.float32).astype(dtype) for shape in shapes)
        return q, k, v


@dataclass(frozen=True)
class Errors:
    """How far O and LSE are from float64.

    Attributes
    ----------
    o, lse : float
        Largest distances.
    o_bound, lse_bound : float
        Tolerances of the elements that are furthest off.
    o_ratio, lse_ratio : float
        Largest distances as fractions of their element's tolerance.
    """

    o: float
    o_bound: float
    o_ratio: float
    lse: float
    lse_bound: float
    lse_ratio: float

    @property
    def ok(self) -> bool:
        """Whether O and LSE are within tolerance (false for NaN)."""
        return self.o_ratio <= 1.0 and self.lse_ratio <= 1.0


@dataclass(frozen=True)
class Outcome:
    """What a run came to.

    Attributes
    ----------
    seconds : float
        Wall time of a call including waiting for it, its kernel being loaded already: the best of REPEATS.
    peak_bytes : int
        Peak of the device bytes held for it: q, k, v, O and LSE.
    errors : Errors
        How right it was.
    """

    seconds: float
    peak_bytes: int
    errors: Errors


def _distance(got: Array, expected: Array, tolerance: Array) -> tuple[float, float, float]:
    """Return the largest distance, the tolerance there, and the largest share of a tolerance used."""
    with np.errstate(all="ignore"):  # whatever a broken kernel may give
        distance = np.abs(got.astype(np.float64) - expected)
        ratio = distance / tolerance
    return float(distance.max()), float(tolerance.flat[distance.argmax()]), float(ratio.max())


def judge(problem: Trial, o: Array, lse: Array, kernel: fmha.KernelInfo) -> Errors:
    """Compare what a kernel gave for a problem with float64."""
    numerics = numerics_of(problem.dtype, None, kernel.tile_n, kernel.arch)
    expected = reference.attention(*problem.inputs(), causal=problem.causal, numerics=numerics)
    return Errors(
        *_distance(o, expected.o, expected.o_tolerance),
        *_distance(lse, expected.lse, np.broadcast_to(expected.lse_tolerance, expected.lse.shape)),
    )


def run(problem: Trial) -> Outcome:
    """Run a problem on the current device and judge the result."""
    before = array.memory.live_bytes
    array.memory.reset_peak()
    q, k, v = (array.DeviceArray.from_numpy(x) for x in problem.inputs())
    params = kernel_params(problem)
    fmha.fmha_fwd_prepare(params)
    seconds = math.inf
    for _ in range(REPEATS):
        out = lse = None  # given back first, so that the peak is one call's
        synchronize()
        start = time.perf_counter()
        out, lse = attention.flash_attn_func(q, k, v, causal=problem.causal, return_lse=True)
        synchronize()
        seconds = min(seconds, time.perf_counter() - start)
    assert isinstance(out, array.DeviceArray)
    assert isinstance(lse, array.DeviceArray)
    peak = array.memory.peak_bytes - before
    return Outcome(
        seconds, peak, judge(problem, out.to_numpy(), lse.to_numpy(), fmha.fmha_fwd_kernel(params))
    )


def to_json(value: dict[str, Any]) -> str:
    """JSON text, with null for NaN and infinities, which JSON cannot say."""

    def finite(x: Any) -> Any:
        if isinstance(x, dict):
            return {key: finite(item) for key, item in x.items()}
        if isinstance(x, list):
            return [finite(item) for item in x]
        return None if isinstance(x, float) and not math.isfinite(x) else x

    return json.dumps(finite(value), indent=2)


def kernel_params(problem: Trial) -> params.FwdParams:
    """Describe a problem, contiguous, for the raw layer: for questions about kernels, not for running."""

    def contiguous(heads: int) -> params.Strided:
        row = heads * problem.hdim
        return params.Strided(0, problem.seqlen * row, row, problem.hdim)

    return params.FwdParams(
        dtype=problem.dtype,
        batch=problem.batch,
        seqlen_q=problem.seqlen,
        seqlen_k=problem.seqlen,
        nhead_q=problem.nhead_q,
        nhead_k=problem.nhead_k,
        hdim_q=problem.hdim,
        hdim_v=problem.hdim,
        softmax_scale=problem.hdim**-0.5,
        mask="causal" if problem.causal else "none",
        q=contiguous(problem.nhead_q),
        k=contiguous(problem.nhead_k),
        v=contiguous(problem.nhead_k),
        o=contiguous(problem.nhead_q),
    )
