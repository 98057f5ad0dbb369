# SPDX-License-Identifier: MIT OR Apache-2.0
"""A small problem for each group of features, run through the public functions and judged against float64.

The gradients of each are proved too if the library has a kernel for them. They are those of the oracle's O
and LSE, so no forward kernel of their type is needed: a small kernel set has a feature's backward kernel in
one type, and its forward kernel perhaps in another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyfa_rocm.array import DeviceArray, dtype_of
from pyfa_rocm.attention import flash_attn_func
from pyfa_rocm.backward import flash_attn_bwd, flash_attn_varlen_bwd
from pyfa_rocm.device import current_device, describe
from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.oracle import features_decode
from pyfa_rocm.oracle.gradients import gradients
from pyfa_rocm.oracle.reference import attention, largest_share
from pyfa_rocm.oracle.rounding import P_SCALES, Numerics, fp8_of, numerics_of
from pyfa_rocm.varlen import flash_attn_varlen_func

__all__ = ["FEATURES", "Feature", "Problem", "Proof", "Shape", "prove", "prove_feature"]

Array = npt.NDArray[Any]
Ratios = dict[str, float]
NHEAD_Q, NHEAD_K = 2, 1
DECODING = "paged cache, ALiBi"
# Types in which gradients are tried, in this order, by the feature's own.
_GRADIENT_TYPES = {
    "float16": ("float16", "bfloat16", "float32"),
    "bfloat16": ("bfloat16", "float16", "float32"),
}


class Shape(NamedTuple):
    """The sizes of a feature's problem, which has NHEAD_Q query heads and NHEAD_K key heads."""

    dtype: str
    seqlen_q: int
    seqlen_k: int
    hdim_q: int
    hdim_v: int

    def inputs(self) -> tuple[Array, Array, Array]:
        """Return q, k and v, the same at every call."""
        shapes = (
            (1, self.seqlen_q, NHEAD_Q, self.hdim_q),
            (1, self.seqlen_k, NHEAD_K, self.hdim_q),
            (1, self.seqlen_k, NHEAD_K, self.hdim_v),
        )
        q, k, v = (_normal(seed, shape, self.dtype) for seed, shape in enumerate(shapes))
        return q, k, v

    def dout(self) -> Array:
        """Return a gradient of O."""
        return _normal(7, (1, self.seqlen_q, NHEAD_Q, self.hdim_v), self.dtype)


@dataclass(frozen=True)
class Problem:
    """The requests of a feature to the functions, and to the oracle.

    Attributes
    ----------
    shape : Shape
        Sizes of all sequences together.
    options : dict
        Arguments of the functions; arrays are on the host.
    reference : dict
        The oracle's arguments.
    forward_only : dict
        Arguments of the forward function that the backward one does not have.
    lengths : tuple of int
        Lengths of packed sequences; (): one sequence, not packed.
    o_dtype : str, optional
        Type of O if it is not that of q.
    """

    shape: Shape
    options: dict[str, Any]
    reference: dict[str, Any]
    forward_only: dict[str, Any] = field(default_factory=dict)
    lengths: tuple[int, ...] = ()
    o_dtype: str | None = None

    def on_device(self) -> dict[str, Any]:
        """Return the options with their arrays on the device."""
        return {name: _put(x) if isinstance(x, np.ndarray) else x for name, x in self.options.items()}

    def starts(self) -> npt.NDArray[np.int32]:
        """Return where each sequence begins, and the end of the last."""
        return np.cumsum((0, *(self.lengths or (self.shape.seqlen_q,))), dtype=np.int32)

    def packing(self) -> tuple[Any, ...]:
        """Return the arguments of the varlen functions that describe the sequences."""
        starts = _put(self.starts())
        return starts, starts, max(self.lengths), max(self.lengths)

    def sequences(self) -> Iterator[tuple[slice, slice]]:
        """Yield the rows of q, and of k and v, of each sequence that has any."""
        if not self.lengths:
            yield slice(None), slice(None)
        for start, length in zip(self.starts()[:-1], self.lengths, strict=False):
            if length:
                yield (slice(start, start + length),) * 2

    def numerics(self) -> Numerics:
        """How this device's kernels round."""
        return numerics_of(self.shape.dtype, self.o_dtype, arch=describe(current_device()).arch)


class Proof(NamedTuple):
    """The result of a problem.

    Attributes
    ----------
    feature : str
        Key of FEATURES.
    shape : Shape
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
    shape: Shape
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
    def ratios(self) -> Ratios:
        """The results that were judged: their names, and the largest share of a tolerance that each used."""
        named = {name: getattr(self, f"{name}_ratio") for name in ("o", "lse", "dq", "dk", "dv", "dbias")}
        return {name: ratio for name, ratio in named.items() if ratio is not None}

    @property
    def ok(self) -> bool:
        """Tell whether all is within tolerance (false for NaN), or there was nothing to judge."""
        return all(ratio <= 1.0 for ratio in self.ratios.values())


def _normal(seed: int, shape: tuple[int, ...], dtype: str) -> Array:
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return values.astype(dtype_of(dtype))


def _put(x: Array) -> DeviceArray:
    return DeviceArray.from_numpy(np.ascontiguousarray(x))


def _forward(problem: Problem) -> tuple[Array, Array, Array | None]:
    """Run the forward pass: O and LSE, with a batch of one, and what dropout kept."""
    q, k, v = (_put(x[0] if problem.lengths else x) for x in problem.shape.inputs())
    options = problem.on_device() | problem.forward_only
    if problem.lengths:
        out, lse = flash_attn_varlen_func(q, k, v, *problem.packing(), return_lse=True, **options)
        return out.to_numpy()[None], lse.to_numpy()[None], None
    if "dropout_p" not in options:
        out, lse = flash_attn_func(q, k, v, return_lse=True, **options)
        return out.to_numpy(), lse.to_numpy(), None
    # The oracle drops what the kernel says it dropped: the sign of the probabilities.
    out, lse, s_dmask = flash_attn_func(q, k, v, return_attn_probs=True, **options)
    return out.to_numpy(), lse.to_numpy(), ~np.signbit(s_dmask.to_numpy())


def _oracle(problem: Problem, keep: Array | None) -> Iterator[tuple[slice, slice, dict[str, Any]]]:
    """Yield the rows and the oracle's arguments of each sequence."""
    arguments = problem.reference | {"numerics": problem.numerics()}
    if keep is not None:
        arguments["keep"] = keep
    for rows, keys in problem.sequences():
        yield rows, keys, arguments


def _judge(problem: Problem, o: Array, lse: Array, keep: Array | None) -> Ratios:
    q, k, v = problem.shape.inputs()
    worst = {"o": 0.0, "lse": 0.0}
    for rows, keys, arguments in _oracle(problem, keep):
        want = attention(q[:, rows], k[:, keys], v[:, keys], **arguments)
        found = {
            "o": largest_share(o[:, rows], want.o, want.o_tolerance),
            "lse": largest_share(lse[:, :, rows], want.lse, want.lse_tolerance),
        }
        worst = {name: float(np.maximum(worst[name], found[name])) for name in worst}  # NaN stays
    return worst


def _backward(problem: Problem, keep: Array | None) -> Ratios:
    """Run the backward pass from the oracle's O and LSE, rounded, and judge the gradients.

    Raises
    ------
    UnsupportedError
        The library has no kernel for it; nothing was run.
    """
    shape, dtype = problem.shape, dtype_of(problem.shape.dtype)
    q, k, v = shape.inputs()
    dout, o = shape.dout(), np.zeros((1, shape.seqlen_q, NHEAD_Q, shape.hdim_v), dtype)
    lse = np.zeros((1, NHEAD_Q, shape.seqlen_q), np.float32)
    for rows, keys, arguments in _oracle(problem, keep):
        forward = attention(q[:, rows], k[:, keys], v[:, keys], **arguments)
        o[:, rows], lse[:, :, rows] = forward.o.astype(dtype), forward.lse.astype(np.float32)
    arrays: list[Any] = [_put(x[0] if problem.lengths else x) for x in (dout, q, k, v, o, lse)]
    run: Any = flash_attn_varlen_bwd if problem.lengths else flash_attn_bwd
    packing = problem.packing() if problem.lengths else ()
    options, like = problem.on_device(), {"dq": q, "dk": k, "dv": v}
    if "bias" in options:
        options["dbias"], like["dbias"] = True, problem.options["bias"]
    found = run(*arrays, *packing, **options)
    got = {name: x.to_numpy().reshape(y.shape) for (name, y), x in zip(like.items(), found, strict=True)}
    worst = dict.fromkeys(got, 0.0)
    for rows, keys, arguments in _oracle(problem, keep):
        want = gradients(
            q[:, rows], k[:, keys], v[:, keys], o[:, rows], lse[:, :, rows], dout[:, rows], **arguments
        )
        for name in got:
            gradient = want[name]
            part = got[name] if name == "dbias" else got[name][:, rows if name == "dq" else keys]
            share = largest_share(part, gradient.value, gradient.bound_in(shape.dtype))
            worst[name] = float(np.maximum(worst[name], share))
    return worst


def _varlen(shape: Shape) -> Problem:
    """Three packed sequences, one of them empty."""
    options = {"causal": True, "alibi_slopes": np.array([0.5, 0.125], np.float32)}
    return Problem(shape, options, options, lengths=(60, 0, shape.seqlen_q - 60))


def _bias(shape: Shape) -> Problem:
    options = {"bias": _normal(3, (1, NHEAD_Q, shape.seqlen_q, shape.seqlen_k), shape.dtype)}
    return Problem(shape, options, options)


def _dropout(shape: Shape) -> Problem:
    chance = 0.25
    options = {"dropout_p": chance, "causal": True, "philox": (1, 2)}
    return Problem(shape, options, {"causal": True, "keep_scale": float(np.float32(1 / (1 - chance)))})


def _softcap(shape: Shape) -> Problem:
    options = {"softcap": 2.0, "window_size": (40, 20)}
    return Problem(shape, options, options)


def _causal(shape: Shape) -> Problem:
    return Problem(shape, {"causal": True}, {"causal": True})


def _fp8(shape: Shape) -> Problem:
    descale = {"q_descale": 0.5, "k_descale": 2.0, "v_descale": 0.25}
    return Problem(shape, {}, {"descale": tuple(descale.values())}, forward_only=descale, o_dtype="bfloat16")


class Feature(NamedTuple):
    """A problem: its sizes, and what is asked in any sizes."""

    shape: Shape
    problem: Callable[[Shape], Problem]

    def on_this_device(self) -> Feature:
        """Return it with the 8-bit float of this device, if it has another one."""
        own = fp8_of(describe(current_device()).arch)
        if own is None or self.shape.dtype not in P_SCALES:
            return self
        return self._replace(shape=self.shape._replace(dtype=own))


FEATURES = {
    "varlen, causal, ALiBi": Feature(Shape("float16", 200, 200, 64, 64), _varlen),
    "bias, head dim 72": Feature(Shape("float16", 100, 130, 72, 72), _bias),
    "dropout, causal": Feature(Shape("bfloat16", 100, 130, 64, 64), _dropout),
    "softcap, window": Feature(Shape("float16", 100, 130, 128, 128), _softcap),
    "head dims 192 and 128": Feature(Shape("float16", 130, 130, 192, 128), _causal),
    "float32": Feature(Shape("float32", 100, 130, 64, 64), _causal),
    "fp8": Feature(Shape("float8_e4m3fnuz", 128, 128, 128, 128), _fp8),
}


def _prove_gradients(feature: Feature, keep: Array | None) -> dict[str, Any]:
    """Return the fields of Proof about gradients, in the first type that has a kernel for them."""
    own = feature.shape.dtype
    reasons = []
    for dtype in _GRADIENT_TYPES.get(own, (own,)):
        try:
            ratios = _backward(feature.problem(feature.shape._replace(dtype=dtype)), keep)
        except UnsupportedError as error:
            reasons.append(str(error))
            continue
        return {"gradient_dtype": dtype} | {f"{name}_ratio": ratio for name, ratio in ratios.items()}
    return {"gradient_reason": reasons[0]}


def prove_feature(name: str) -> Proof:
    """Run one problem, forward and backward. One without a kernel in this build is not wrong."""
    feature = FEATURES[name].on_this_device()
    problem = feature.problem(feature.shape)
    try:
        o, lse, keep = _forward(problem)
    except UnsupportedError as error:
        if "dropout_p" in problem.options:  # the forward pass says what was dropped
            return Proof(
                name, feature.shape, reason=str(error), gradient_reason="its forward pass did not run"
            )
        return Proof(name, feature.shape, reason=str(error), **_prove_gradients(feature, None))
    forward = _judge(problem, o, lse, keep)
    return Proof(name, feature.shape, forward["o"], forward["lse"], **_prove_gradients(feature, keep))


def prove_decoding() -> Proof:
    """Run a problem over a KV cache, which has no gradients."""
    shape = Shape(
        features_decode.cache_dtype(),
        features_decode.SEQLEN_Q,
        max(features_decode.LENGTHS),
        features_decode.HDIM,
        features_decode.HDIM,
    )
    try:
        return Proof(DECODING, shape, *features_decode.errors())
    except UnsupportedError as error:
        return Proof(DECODING, shape, reason=str(error))


def prove() -> Iterator[Proof]:
    """Run one problem after the other."""
    for name in FEATURES:
        yield prove_feature(name)
    yield prove_decoding()
