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

from pyfa_rocm import _params, _reference, array, attention, fmha
from pyfa_rocm._rounding import numerics_of
from pyfa_rocm.device import synchronize

Array = npt.NDArray[Any]
# Times are the best of so many: what else the machine does only ever adds.
REPEATS = 3


@dataclass(frozen=True)
class Problem:
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
class Outcome:
    """What a run came to.

    Attributes
    ----------
    seconds : float
        Wall time of a call including waiting for it, its kernel being loaded already: the best of REPEATS.
    peak_bytes : int
        Peak of the device bytes held for it: q, k, v, O and LSE.
    o_error, lse_error : float
        Largest distances from float64.
    o_ratio, lse_ratio : float
        Largest distances as fractions of their element's tolerance.
    kernel : KernelInfo
        What ran.
    """

    seconds: float
    peak_bytes: int
    o_error: float
    o_ratio: float
    lse_error: float
    lse_ratio: float
    kernel: fmha.KernelInfo

    @property
    def ok(self) -> bool:
        """Whether O and LSE are within tolerance (false for NaN)."""
        return self.o_ratio <= 1.0 and self.lse_ratio <= 1.0


def run(problem: Problem) -> Outcome:
    """Run a problem on the current device and judge the result."""
    host = problem.inputs()
    before = array.memory.live_bytes
    array.memory.reset_peak()
    q, k, v = (array.DeviceArray.from_numpy(x) for x in host)
    params = kernel_params(problem, q, k, v)
    kernel = fmha.fmha_fwd_kernel(params)
    fmha.fmha_prepare(params)
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
    numerics = numerics_of(problem.dtype, None, kernel.pipeline, kernel.tile_n, kernel.arch)
    expected = _reference.attention(*host, causal=problem.causal, numerics=numerics)
    with np.errstate(all="ignore"):  # whatever a broken kernel may give
        error = np.abs(out.to_numpy().astype(np.float64) - expected.o)
        lse_error = np.abs(lse.to_numpy() - expected.lse)
    return Outcome(
        seconds=seconds,
        peak_bytes=peak,
        o_error=float(error.max()),
        o_ratio=float((error / expected.o_tolerance).max()),
        lse_error=float(lse_error.max()),
        lse_ratio=float((lse_error / expected.lse_tolerance).max()),
        kernel=kernel,
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


def kernel_params(problem: Problem, q: Any, k: Any, v: Any) -> _params.FwdParams:
    """Describe a problem for the raw layer, O like q; for questions about kernels, not for running."""
    return _params.FwdParams(
        dtype=problem.dtype,
        batch=problem.batch,
        seqlen_q=problem.seqlen,
        seqlen_k=problem.seqlen,
        nhead_q=problem.nhead_q,
        nhead_k=problem.nhead_k,
        hdim_q=problem.hdim,
        hdim_v=problem.hdim,
        softmax_scale=problem.hdim**-0.5,
        q=_params.Strided(q.data, *q.strides[:3]),
        k=_params.Strided(k.data, *k.strides[:3]),
        v=_params.Strided(v.data, *v.strides[:3]),
        o=_params.Strided(0, *q.strides[:3]),
        mask="causal" if problem.causal else "none",
    )
