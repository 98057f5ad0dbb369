# SPDX-License-Identifier: MIT OR Apache-2.0
"""A problem run on the device and judged against float64: what `prove` and `demo` share."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyfa_rocm import array, attention, backward, fmha
from pyfa_rocm.device import runtime, synchronize
from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.oracle import reference
from pyfa_rocm.oracle.gradients import gradients
from pyfa_rocm.oracle.params import backward_params, forward_params
from pyfa_rocm.oracle.problem import Problem
from pyfa_rocm.oracle.rounding import numerics_of

Array = npt.NDArray[Any]
# A time is the best of this many: other work on the machine can only add to it.
_REPEATS = 3


class Results(NamedTuple):
    """The results of a path for a problem, on the host.

    Attributes
    ----------
    o, lse : array
        Results of the forward pass.
    gradients : dict of str to array
        "dq", "dk" and "dv"; empty if they were not asked for.
    """

    o: Array
    lse: Array
    gradients: dict[str, Array]


class Distance(NamedTuple):
    """How far a result is from float64.

    Attributes
    ----------
    error : float
        Largest distance of an element.
    bound : float
        Tolerance of that element.
    ratio : float
        Largest distance as a fraction of its element's tolerance.
    """

    error: float
    bound: float
    ratio: float


# Keyed by result: "o", "lse", and "dq", "dk", "dv" of a backward pass.
Errors = dict[str, Distance]


def is_right(errors: Errors) -> bool:
    """Tell whether every result is within tolerance (false for NaN)."""
    return all(distance.ratio <= 1.0 for distance in errors.values())


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run.

    Attributes
    ----------
    seconds : float
        Wall time of a call including waiting for it, its kernel being loaded already: the best of `repeats`.
    peak_bytes : int
        Peak of the device bytes held for it: q, k, v, O and LSE.
    errors : Errors
        How right it was.
    """

    seconds: float
    peak_bytes: int
    errors: Errors


def _distance(got: Array, expected: Array, tolerance: Array) -> Distance:
    with np.errstate(all="ignore"):  # whatever a broken kernel may give
        distance = np.abs(got.astype(np.float64) - expected)
        ratio = distance / tolerance
    return Distance(float(distance.max()), float(tolerance.flat[distance.argmax()]), float(ratio.max()))


def judge(problem: Problem, results: Results, kernel: fmha.KernelInfo) -> Errors:
    """Compare what kernels gave for a problem with float64; the gradients with those of this O and LSE."""
    numerics = numerics_of(problem.dtype, None, kernel.tile_n, kernel.arch)
    inputs = problem.inputs()
    want = reference.attention(*inputs, causal=problem.causal, numerics=numerics)
    lse_tolerance = np.broadcast_to(want.lse_tolerance, want.lse.shape)
    errors = {
        "o": _distance(results.o, want.o, want.o_tolerance),
        "lse": _distance(results.lse, want.lse, lse_tolerance),
    }
    if results.gradients:
        expected = gradients(
            *inputs, results.o, results.lse, problem.dout(), causal=problem.causal, numerics=numerics
        )
        for name, gradient in expected.items():
            bound = gradient.bound_in(problem.dtype)
            errors[name] = _distance(results.gradients[name], gradient.value, bound)
    return errors


def repeats() -> int:
    """How often to time a call: on the software device, whose times are of no card, once."""
    return 1 if runtime().emulated else _REPEATS


def run(problem: Problem) -> Outcome:
    """Run a problem on the current device, forward and backward, and judge the results."""
    before = array.memory.live_bytes
    array.memory.reset_peak()
    q, k, v = (array.DeviceArray.from_numpy(x) for x in problem.inputs())
    params = forward_params(problem)
    fmha.fmha_fwd_prepare(params)
    seconds = math.inf
    for _ in range(repeats()):
        out = lse = None  # given back first, so that the peak is one call's
        synchronize()
        start = time.perf_counter()
        out, lse = attention.flash_attn_func(q, k, v, causal=problem.causal, return_lse=True)
        synchronize()
        seconds = min(seconds, time.perf_counter() - start)
    assert isinstance(out, array.DeviceArray)
    assert isinstance(lse, array.DeviceArray)
    peak = array.memory.peak_bytes - before
    found: dict[str, Array] = {}
    if not no_gradients(problem):
        dout = array.DeviceArray.from_numpy(problem.dout())
        grads = backward.flash_attn_bwd(dout, q, k, v, out, lse, causal=problem.causal)
        found = {name: x.to_numpy() for name, x in zip(("dq", "dk", "dv"), grads, strict=True)}
    results = Results(out.to_numpy(), lse.to_numpy(), found)
    return Outcome(seconds, peak, judge(problem, results, fmha.fmha_fwd_kernel(params)))


def to_json(value: dict[str, Any]) -> str:
    """JSON text, with null for NaN and infinities, which JSON cannot say."""

    def finite(x: Any) -> Any:
        if isinstance(x, dict):
            return {key: finite(item) for key, item in x.items()}
        if isinstance(x, list):
            return [finite(item) for item in x]
        return None if isinstance(x, float) and not math.isfinite(x) else x

    return json.dumps(finite(value), indent=2)


def no_gradients(problem: Problem) -> str:
    """Why the library has no gradients of a problem here; "" if it has."""
    try:
        fmha.fmha_bwd_supported(backward_params(problem))
    except UnsupportedError as error:
        return str(error)
    return ""
