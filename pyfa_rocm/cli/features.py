# SPDX-License-Identifier: MIT OR Apache-2.0
"""A small problem for each group of features, run through the public functions and judged against float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pyfa_rocm.array import DeviceArray, dtype_of
from pyfa_rocm.attention import flash_attn_func
from pyfa_rocm.cli.reference import Expected, attention
from pyfa_rocm.cli.rounding import Numerics, numerics_of
from pyfa_rocm.device import current_device, describe
from pyfa_rocm.errors import UnsupportedError
from pyfa_rocm.varlen import flash_attn_varlen_func

__all__ = ["FEATURES", "Feature", "Proof", "Shape", "prove"]

Array = npt.NDArray[Any]
NHEAD_Q, NHEAD_K = 2, 1


class Shape(NamedTuple):
    """The problem of a feature: one sequence, with NHEAD_Q query heads and NHEAD_K key heads."""

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
    """

    feature: str
    shape: Shape
    o_ratio: float | None
    lse_ratio: float | None
    reason: str

    @property
    def ok(self) -> bool:
        """Whether O and LSE are within tolerance (false for NaN), or there was nothing to judge."""
        if self.o_ratio is None or self.lse_ratio is None:
            return True
        return self.o_ratio <= 1.0 and self.lse_ratio <= 1.0


def _normal(seed: int, shape: tuple[int, ...], dtype: str) -> Array:
    values = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return values.astype(dtype_of(dtype))


def _judge(o: Array, lse: Array, expected: Expected) -> tuple[float, float]:
    with np.errstate(all="ignore"):  # whatever a broken kernel may give
        o_ratio = np.abs(o.astype(np.float64) - expected.o) / expected.o_tolerance
        off = np.where(lse == expected.lse, 0.0, np.abs(lse - expected.lse)) / expected.lse_tolerance
    return float(o_ratio.max()), float(off.max())


def _numerics(dtype: str, o_dtype: str | None = None) -> Numerics:
    return numerics_of(dtype, o_dtype, arch=describe(current_device()).arch)


def _dense(
    host: tuple[Array, Array, Array], reference: dict[str, Any], **options: Any
) -> tuple[float, float]:
    """Run one problem. `reference` has the oracle's arguments where they differ from the function's."""
    q, k, v = (DeviceArray.from_numpy(x) for x in host)
    arrays = {name: DeviceArray.from_numpy(x) for name, x in options.items() if isinstance(x, np.ndarray)}
    out, lse = flash_attn_func(q, k, v, return_lse=True, **(options | arrays))
    reference = {"numerics": _numerics(host[0].dtype.name)} | reference
    return _judge(out.to_numpy(), lse.to_numpy(), attention(*host, **reference))


def _varlen(shape: Shape) -> tuple[float, float]:
    """Three packed sequences, one of them empty."""
    lengths = (60, 0, shape.seqlen_q - 60)
    starts = np.cumsum((0, *lengths), dtype=np.int32)
    host = shape.inputs()
    slopes = np.array([0.5, 0.125], np.float32)
    q, k, v = (DeviceArray.from_numpy(x[0]) for x in host)
    cu_seqlens, device_slopes = DeviceArray.from_numpy(starts), DeviceArray.from_numpy(slopes)
    out, lse = flash_attn_varlen_func(
        q, k, v, cu_seqlens, cu_seqlens, max(lengths), max(lengths), causal=True, alibi_slopes=device_slopes,
        return_lse=True,
    )  # fmt: skip
    ratios = []
    for start, length in zip(starts[:-1], lengths, strict=True):
        if length:
            rows = slice(start, start + length)
            expected = attention(
                *(x[:, rows] for x in host), causal=True, alibi_slopes=slopes, numerics=_numerics(shape.dtype)
            )
            ratios.append(_judge(out.to_numpy()[None, rows], lse.to_numpy()[None, :, rows], expected))
    return max(o for o, _ in ratios), max(x for _, x in ratios)


def _bias(shape: Shape) -> tuple[float, float]:
    bias = _normal(3, (1, NHEAD_Q, shape.seqlen_q, shape.seqlen_k), shape.dtype)
    return _dense(shape.inputs(), {"bias": bias}, bias=bias)


def _dropout(shape: Shape) -> tuple[float, float]:
    """The oracle drops what the kernel says it dropped: the sign of the probabilities."""
    chance, host = 0.25, shape.inputs()
    q, k, v = (DeviceArray.from_numpy(x) for x in host)
    out, lse, s_dmask = flash_attn_func(q, k, v, chance, causal=True, philox=(1, 2), return_attn_probs=True)
    keep = ~np.signbit(s_dmask.to_numpy())
    expected = attention(*host, causal=True, keep=keep, keep_scale=float(np.float32(1 / (1 - chance))))
    return _judge(out.to_numpy(), lse.to_numpy(), expected)


def _softcap(shape: Shape) -> tuple[float, float]:
    options: dict[str, Any] = {"softcap": 2.0, "window_size": (40, 20)}
    return _dense(shape.inputs(), options, **options)


def _causal(shape: Shape) -> tuple[float, float]:
    return _dense(shape.inputs(), {"causal": True}, causal=True)


def _fp8(shape: Shape) -> tuple[float, float]:
    reference = {"descale": (0.5, 2.0, 0.25), "numerics": _numerics(shape.dtype, "bfloat16")}
    return _dense(shape.inputs(), reference, q_descale=0.5, k_descale=2.0, v_descale=0.25)


class Feature(NamedTuple):
    """A problem, and what runs it and returns the largest errors of O and LSE, as in Proof."""

    shape: Shape
    run: Callable[[Shape], tuple[float, float]]


FEATURES = {
    "varlen, causal, ALiBi": Feature(Shape("float16", 200, 200, 64, 64), _varlen),
    "bias, head dim 72": Feature(Shape("float16", 100, 130, 72, 72), _bias),
    "dropout, causal": Feature(Shape("bfloat16", 100, 130, 64, 64), _dropout),
    "softcap, window": Feature(Shape("float16", 100, 130, 128, 128), _softcap),
    "head dims 192 and 128": Feature(Shape("float16", 130, 130, 192, 128), _causal),
    "float32": Feature(Shape("float32", 100, 130, 64, 64), _causal),
    "fp8": Feature(Shape("float8_e4m3fnuz", 128, 128, 128, 128), _fp8),
}


def prove() -> Iterator[Proof]:
    """Run one problem after the other. A feature without a kernel in this build does not count as wrong."""
    for name, feature in FEATURES.items():
        try:
            yield Proof(name, feature.shape, *feature.run(feature.shape), "")
        except UnsupportedError as error:
            yield Proof(name, feature.shape, None, None, str(error))
