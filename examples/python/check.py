# SPDX-License-Identifier: MIT OR Apache-2.0
"""The code that the examples share: attention in float64, bounds of a kernel's rounding, status codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import pyfa_rocm as fa

Array = npt.NDArray[np.generic]


def say_what_runs() -> None:
    """Print versions, and the HIP runtime: a GPU's, or the software device."""
    runtime = fa.runtime()
    print(f"pyfa_rocm {fa.__version__} on {runtime.path}{' (software device)' if runtime.emulated else ''}")


def ok(result: tuple[Any, ...]) -> Any:
    """Return what a function of hip-python gave besides its status."""
    status, *values = result
    if status.name != "hipSuccess":
        raise RuntimeError(status.name)
    return values[0] if values else None


def is_right(
    what: str, q: Array, k: Array, v: Array, o: Array, lse: Array, window: tuple[int, int] = (-1, -1)
) -> bool:
    """Print the largest error of bfloat16 attention, in units of what roundings allow; True if at most 1.

    Parameters
    ----------
    what : str
        Name of it, for the line that is printed.
    q, k, v, o : array (batch, seqlen, nhead, hdim)
        Inputs and output on the host.
    lse : array (batch, nhead, seqlen_q)
        Log-sum-exp of the scores.
    window : (int, int)
        Keys to the left and right of its own column that a query sees; -1: all. (-1, 0) is causal.
    """
    queries, keys, values = (x.astype(np.float64).transpose(0, 2, 1, 3) for x in (q, k, v))
    groups = q.shape[2] // k.shape[2]  # query heads on one key head
    keys, values = keys.repeat(groups, axis=1), values.repeat(groups, axis=1)
    scores = queries @ keys.swapaxes(2, 3) / np.sqrt(q.shape[3])
    # How far right of its own column a key is; the last query's own is the last key.
    distance = np.arange(k.shape[1]) - (np.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1])
    left, right = (n if n >= 0 else k.shape[1] + q.shape[1] for n in window)
    scores[..., (distance < -left) | (distance > right)] = -np.inf

    largest = scores.max(axis=3, keepdims=True)
    p = np.exp(scores - largest)
    total = p.sum(axis=3, keepdims=True)
    expected = p / total @ values
    magnitude = p / total @ np.abs(values)
    # Half an ulp of o, 2^-8 of it, half an ulp of each p, which the kernel rounds as well, and float32's own.
    allowed = 2.0**-8 * np.abs(expected) + (2.0**-8 + 2.0**-16) * magnitude
    error = np.abs(o.astype(np.float64).transpose(0, 2, 1, 3) - expected) / allowed
    lse_allowed = 1e-5 * np.maximum(1, np.abs(largest))
    lse_error = np.abs(lse[..., None] - (np.log(total) + largest)) / lse_allowed
    worst = float(max(error.max(), lse_error.max()))  # NaN if there is one
    print(f"{what}: largest error {worst:.2f} of what roundings allow")
    return worst <= 1


def finish(right: bool) -> None:
    """Print the verdict and end the program with it."""
    print("right" if right else "WRONG")
    raise SystemExit(0 if right else 1)
