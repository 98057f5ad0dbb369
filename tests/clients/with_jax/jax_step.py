# SPDX-License-Identifier: MIT OR Apache-2.0
"""One step of a model, of XLA's kernels and ours, and the bounds that hold for each of its stages.

As a program: runs it several times, judges each, and prints how often HIP's graph functions were called,
which hip_calls.c counts. With an argument it is a step with gradients.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from backward import NAMES, judge_gradient
from built import this_arch
from cases import judge
from reference import attention, gradients, numerics_of

from pyfa_rocm.jax import flash_attn_func

BATCH, ROWS, HEADS, HDIM = 2, 96, 2, 64
WIDTH = HEADS * HDIM
# Half the distance from 1 to the next number, and from 0.
HALF_ULP, HALF_LEAST = 2.0**-11, 2.0**-25
LEAST_NORMAL = 2.0**-14
NUMERICS = numerics_of("float16", "float16", arch=this_arch())
# Multiply-adds of the four projections.
PRODUCTS = BATCH * ROWS * WIDTH * 4 * WIDTH
RUNS = 5
COUNTED = (
    "hipStreamBeginCapture",
    "hipGraphAddKernelNode",
    "hipGraphAddChildGraphNode",
    "hipGraphExecKernelNodeSetParams",
    "hipGraphExecChildGraphNodeSetParams",
    "hipGraphLaunch",
)

Stages = dict[str, Any]


@jax.jit
def step(x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Stages:
    """Project, attend, project back, add: the whole of a block but its normalisation."""
    q, k, v = ((x @ w).reshape(BATCH, ROWS, HEADS, HDIM) for w in (wq, wk, wv))
    o, lse = flash_attn_func(q, k, v, causal=True, return_lse=True)
    y = x + o.reshape(x.shape) @ wo
    return {"q": q, "k": k, "v": v, "o": o, "lse": lse, "y": y}


@jax.jit
def gradient_step(x: Any, wq: Any, wk: Any, wv: Any, wo: Any) -> Stages:
    """A step, and the gradients of what is attended to, for a gradient of O that is q."""

    def attended(q: Any, k: Any, v: Any) -> Any:
        return flash_attn_func(q, k, v, causal=True)

    stages: Stages = step(x, wq, wk, wv, wo)
    q, k, v = (stages[name] for name in "qkv")
    _, pull = jax.vjp(attended, q, k, v)
    return stages | dict(zip(NAMES, pull(q), strict=True))


def check_gradients(got: Stages) -> None:
    """Judge the gradients by float64 on what the stages before gave."""
    q, k, v, o, lse = (np.asarray(got[name]) for name in ("q", "k", "v", "o", "lse"))
    want = gradients(q, k, v, o, lse, q, causal=True, numerics=NUMERICS)
    for name in NAMES:
        judge_gradient(name, want[name], np.asarray(got[name]), "float16")


def inputs(seed: int) -> Stages:
    """New arrays."""
    rng = np.random.default_rng(seed)
    shapes = {"x": (BATCH, ROWS, WIDTH)} | dict.fromkeys(("wq", "wk", "wv", "wo"), (WIDTH, WIDTH))
    scale = {"x": 1.0}
    return {
        name: jnp.asarray(rng.standard_normal(shape) * scale.get(name, WIDTH**-0.5), jnp.float16)
        for name, shape in shapes.items()
    }


def check(given: Stages, got: Stages) -> None:
    """Judge each stage by float64 on what the stages before it gave."""
    wide = {name: np.asarray(x, np.float64) for name, x in (given | got).items()}
    for name in "qkv":
        want, error = product(wide["x"], wide[f"w{name}"])
        _within(wide[name].reshape(want.shape), want, rounded(want, error), name)
    q, k, v = (np.asarray(got[name]) for name in "qkv")
    judge(attention(q, k, v, causal=True, numerics=NUMERICS), np.asarray(got["o"]), np.asarray(got["lse"]))
    want, error = product(wide["o"].reshape(wide["x"].shape), wide["wo"])
    want, error = wide["x"] + want, rounded(want, error)  # XLA may round the product before it adds
    _within(wide["y"], want, rounded(want, error), "y")


def product(a: Any, b: Any) -> tuple[Any, Any]:
    """The product, and what float32 may miss it by: a rounding for each term added, whatever their order.

    Some matrix units take subnormal numbers for 0.
    """
    if NUMERICS.flushes:
        a, b = (np.where(abs(x) < LEAST_NORMAL, 0, x) for x in (a, b))
    return a @ b, a.shape[-1] * 2.0**-24 * (abs(a) @ abs(b))


def rounded(want: Any, error: Any) -> Any:
    """The bound for a result that had an error before it was rounded to float16."""
    return error + HALF_ULP * (abs(want) + error) + HALF_LEAST


def _within(got: Any, want: Any, bound: Any, name: str) -> None:
    worst = float(np.max(abs(got - want) / bound))
    assert worst <= 1, f"{name}: the error is {worst} of its bound"


def main(*, with_gradients: bool) -> int:
    """Run it again and again with new arrays, and print what was counted after each run."""
    calls = ctypes.CDLL(None)
    kept, counts = [], []  # kept: or the next arrays might get the memory of these
    for seed in range(RUNS):
        given = inputs(seed)
        got = (gradient_step if with_gradients else step)(**given)
        check(given, got)
        if with_gradients:
            check_gradients(got)
        kept.append((given, got))
        counts.append({name: ctypes.c_int.in_dll(calls, f"{name}_calls").value for name in COUNTED})
    print(json.dumps(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main(with_gradients=len(sys.argv) > 1))
