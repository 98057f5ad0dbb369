# SPDX-License-Identifier: MIT OR Apache-2.0
"""A small problem for each group of features, run through the public functions and judged against float64.

The gradients of each are proved too if the library has a kernel for them. They are those of the oracle's O
and LSE, so no forward kernel of their type is needed: a small kernel set has a feature's backward kernel in
one type, and its forward kernel perhaps in another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyfa_rocm.attention import flash_attn_func
from pyfa_rocm.backward import flash_attn_bwd, flash_attn_varlen_bwd
from pyfa_rocm.device import current_device, describe
from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.oracle import features_decode
from pyfa_rocm.oracle.params import options_on_device, put
from pyfa_rocm.oracle.problem import Problem
from pyfa_rocm.oracle.rounding import P_SCALES, Numerics, fp8_of, numerics_of
from pyfa_rocm.oracle.shares import Shares, backward_shares, forward_shares, right_results
from pyfa_rocm.varlen import flash_attn_varlen_func

__all__ = ["FEATURES", "Proof", "prove", "prove_feature"]

Array = npt.NDArray[Any]
DECODING = "paged cache, ALiBi"
# Types in which gradients are tried, in this order, by the feature's own.
_GRADIENT_TYPES = {
    "float16": ("float16", "bfloat16", "float32"),
    "bfloat16": ("bfloat16", "float16", "float32"),
}


class Proof(NamedTuple):
    """The result of a problem.

    Attributes
    ----------
    feature : str
        Key of FEATURES.
    problem : Problem
        The problem.
    o_ratio, lse_ratio : float or None
        Largest distances from float64, as fractions of the element's tolerance. None if it did not run.
    reason : str
        Why it did not run, or "".
    gradient_dtype : str or None
        Type in which the gradients were proved: the problem's, or another if only that has a kernel. None if
        they were not.
    dq_ratio, dk_ratio, dv_ratio, dbias_ratio : float or None
        As o_ratio, of the gradients; dbias_ratio only of a problem with a bias.
    gradient_reason : str
        Why they were not proved, or "".
    """

    feature: str
    problem: Problem
    o_ratio: float | None = None
    lse_ratio: float | None = None
    reason: str = ""
    gradient_dtype: str | None = None
    dq_ratio: float | None = None
    dk_ratio: float | None = None
    dv_ratio: float | None = None
    dbias_ratio: float | None = None
    gradient_reason: str = ""

    @property
    def ratios(self) -> Shares:
        """The results that were judged: their names, and the largest share of a tolerance that each used."""
        named = {name: getattr(self, f"{name}_ratio") for name in ("o", "lse", "dq", "dk", "dv", "dbias")}
        return {name: ratio for name, ratio in named.items() if ratio is not None}

    @property
    def ok(self) -> bool:
        """Tell whether all is within tolerance (false for NaN), or there was nothing to judge."""
        return all(ratio <= 1.0 for ratio in self.ratios.values())


def _numerics(problem: Problem) -> Numerics:
    """How this device's kernels round; of those of fp8 the ones with the wider bounds."""
    o_dtype = "bfloat16" if problem.dtype in P_SCALES else None
    arch = describe(current_device()).arch
    return numerics_of(problem.dtype, o_dtype, arch=arch, pipeline="pingpong")


def _packing(problem: Problem) -> tuple[Any, ...]:
    """Return the arguments of the varlen functions that describe the sequences."""
    starts = put(problem.starts())
    return starts, starts, *problem.longest


def _forward(problem: Problem, kernel: int = 0) -> tuple[Array, Array, Array | None]:
    """Run the forward pass: O and LSE, with a batch of one, and what dropout kept."""
    q, k, v = (put(x[0] if problem.lengths else x) for x in problem.inputs())
    options = options_on_device(problem) | {"kernel": kernel}
    options |= zip(("q_descale", "k_descale", "v_descale"), problem.descale, strict=False)
    if problem.lengths:
        out, lse = flash_attn_varlen_func(q, k, v, *_packing(problem), return_lse=True, **options)
        return out.to_numpy()[None], lse.to_numpy()[None], None
    if not problem.dropout_p:
        out, lse = flash_attn_func(q, k, v, return_lse=True, **options)
        return out.to_numpy(), lse.to_numpy(), None
    # The oracle drops what the kernel says it dropped: the sign of the probabilities.
    out, lse, s_dmask = flash_attn_func(q, k, v, return_attn_probs=True, **options)
    return out.to_numpy(), lse.to_numpy(), ~np.signbit(s_dmask.to_numpy())


def _backward(problem: Problem, keep: Array | None, kernel: int = 0) -> Shares:
    """Run the backward pass from the oracle's O and LSE, rounded, and judge the gradients.

    Raises
    ------
    UnsupportedError
        The library has no kernel for it; nothing was run.
    """
    (q, k, v), numerics = problem.inputs(), _numerics(problem)
    o, lse = right_results(problem, numerics, keep)
    arrays = [put(x[0] if problem.lengths else x) for x in (problem.dout(), q, k, v, o, lse)]
    run: Any = flash_attn_varlen_bwd if problem.lengths else flash_attn_bwd
    packing = _packing(problem) if problem.lengths else ()
    options = options_on_device(replace(problem, sinks=())) | {"kernel": kernel}
    like = {"dq": q, "dk": k, "dv": v}
    if problem.bias:
        options["dbias"], like["dbias"] = True, options["bias"]
    found = run(*arrays, *packing, **options)
    got = {name: x.to_numpy().reshape(y.shape) for (name, y), x in zip(like.items(), found, strict=True)}
    return backward_shares(problem, got, o, lse, numerics, keep)


FEATURES = {
    "varlen, causal, ALiBi": Problem(
        1, 2, 1, 200, 64, True, "float16", lengths=(60, 0, 140), alibi_slopes=(0.5, 0.125)
    ),
    "bias, head dim 72": Problem(1, 2, 1, 100, 72, False, "float16", seqlen_k=130, bias=True),
    "dropout, causal": Problem(1, 2, 1, 100, 64, True, seqlen_k=130, dropout_p=0.25),
    "softcap, window": Problem(
        1, 2, 1, 100, 128, False, "bfloat16", seqlen_k=130, softcap=2.0, window_size=(40, 20)
    ),
    "sinks, window": Problem(
        1, 4, 2, 100, 64, True, "bfloat16", seqlen_k=130, window_size=(40, -1), sinks=(0.5, -2.0, 6.0, 30.0)
    ),
    "head dims 192 and 128": Problem(1, 2, 1, 130, 192, True, "bfloat16", hdim_v=128),
    "float32": Problem(1, 2, 1, 100, 64, True, "float32", seqlen_k=130),
    "fp8": Problem(1, 2, 1, 128, 128, False, "float8_e4m3fnuz", descale=(0.5, 2.0, 0.25)),
}


def _prove_gradients(problem: Problem, keep: Array | None) -> dict[str, Any]:
    """Return the fields of Proof about gradients, in the first type that has a kernel for them."""
    own = problem.dtype
    reasons = []
    for dtype in _GRADIENT_TYPES.get(own, (own,)):
        try:
            ratios = _backward(replace(problem, dtype=dtype), keep)
        except UnsupportedError as error:
            reasons.append(str(error))
            continue
        return {"gradient_dtype": dtype} | {f"{name}_ratio": ratio for name, ratio in ratios.items()}
    return {"gradient_reason": reasons[0]}


def prove_feature(name: str) -> Proof:
    """Run one problem, forward and backward. One without a kernel in this build is not wrong."""
    problem = FEATURES[name]
    if problem.dtype in P_SCALES and (own := fp8_of(describe(current_device()).arch)) is not None:
        problem = replace(problem, dtype=own)
    try:
        o, lse, keep = _forward(problem)
    except UnsupportedError as error:
        if problem.dropout_p:  # the forward pass says what was dropped
            return Proof(name, problem, reason=str(error), gradient_reason="its forward pass did not run")
        return Proof(name, problem, reason=str(error), **_prove_gradients(problem, None))
    forward = forward_shares(problem, o, lse, _numerics(problem), keep)
    return Proof(name, problem, forward["o"], forward["lse"], **_prove_gradients(problem, keep))


def prove_decoding() -> Proof:
    """Run a problem over a KV cache, which has no gradients."""
    problem = replace(features_decode.PROBLEM, dtype=features_decode.cache_dtype())
    try:
        return Proof(DECODING, problem, *features_decode.errors())
    except UnsupportedError as error:
        return Proof(DECODING, problem, reason=str(error))


def prove() -> Iterator[Proof]:
    """Run one problem after the other."""
    for name in FEATURES:
        yield prove_feature(name)
    yield prove_decoding()
