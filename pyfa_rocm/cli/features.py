# SPDX-License-Identifier: MIT OR Apache-2.0
"""One small problem for each group of features, through the public functions, judged against float64."""

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

__all__ = ["FEATURES", "Proof", "prove"]

Array = npt.NDArray[Any]


class Proof(NamedTuple):
    """What a problem came to.

    Attributes
    ----------
    feature : str
        Of FEATURES.
    o_ratio, lse_ratio : float or None
        Largest distances from float64 as fractions of their element's tolerance; None: it did not run.
    reason : str
        Why it did not run.
    """

    feature: str
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


def _inputs(
    dtype: str, seqlen_q: int, seqlen_k: int, hdim: int, hdim_v: int | None = None
) -> tuple[Array, Array, Array]:
    """Return q, k, v of one sequence, with two heads of q to one of k and v."""
    shapes = ((1, seqlen_q, 2, hdim), (1, seqlen_k, 1, hdim), (1, seqlen_k, 1, hdim_v or hdim))
    q, k, v = (_normal(seed, shape, dtype) for seed, shape in enumerate(shapes))
    return q, k, v


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
    """Run one problem; `reference` is what the oracle takes beside the inputs, where that is not the same."""
    q, k, v = (DeviceArray.from_numpy(x) for x in host)
    arrays = {name: DeviceArray.from_numpy(x) for name, x in options.items() if isinstance(x, np.ndarray)}
    out, lse = flash_attn_func(q, k, v, return_lse=True, **(options | arrays))
    reference = {"numerics": _numerics(host[0].dtype.name)} | reference
    return _judge(out.to_numpy(), lse.to_numpy(), attention(*host, **reference))


def _varlen() -> tuple[float, float]:
    """Three sequences, one of them empty."""
    lengths = (60, 0, 140)
    starts = np.cumsum((0, *lengths), dtype=np.int32)
    host = _inputs("float16", 200, 200, 64)
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
                *(x[:, rows] for x in host), causal=True, alibi_slopes=slopes, numerics=_numerics("float16")
            )
            ratios.append(_judge(out.to_numpy()[None, rows], lse.to_numpy()[None, :, rows], expected))
    return max(o for o, _ in ratios), max(x for _, x in ratios)


def _bias() -> tuple[float, float]:
    bias = _normal(3, (1, 2, 100, 130), "float16")
    return _dense(_inputs("float16", 100, 130, 72), {"bias": bias}, bias=bias)


def _dropout() -> tuple[float, float]:
    """Against the oracle that drops what the kernel says it dropped: the sign of the probabilities."""
    chance, host = 0.25, _inputs("bfloat16", 100, 130, 64)
    q, k, v = (DeviceArray.from_numpy(x) for x in host)
    out, lse, s_dmask = flash_attn_func(q, k, v, chance, causal=True, philox=(1, 2), return_attn_probs=True)
    keep = ~np.signbit(s_dmask.to_numpy())
    expected = attention(*host, causal=True, keep=keep, keep_scale=float(np.float32(1 / (1 - chance))))
    return _judge(out.to_numpy(), lse.to_numpy(), expected)


def _softcap() -> tuple[float, float]:
    options: dict[str, Any] = {"softcap": 2.0, "window_size": (40, 20)}
    return _dense(_inputs("float16", 100, 130, 128), options, **options)


def _two_head_dims() -> tuple[float, float]:
    return _dense(_inputs("float16", 130, 130, 192, 128), {"causal": True}, causal=True)


def _fp32() -> tuple[float, float]:
    return _dense(_inputs("float32", 100, 130, 64), {"causal": True}, causal=True)


def _fp8() -> tuple[float, float]:
    reference = {"descale": (0.5, 2.0, 0.25), "numerics": _numerics("float8_e4m3fnuz", "bfloat16")}
    return _dense(
        _inputs("float8_e4m3fnuz", 128, 128, 128), reference, q_descale=0.5, k_descale=2.0, v_descale=0.25
    )


FEATURES: dict[str, Callable[[], tuple[float, float]]] = {
    "varlen, causal, ALiBi": _varlen,
    "bias, head dim 72": _bias,
    "dropout, causal": _dropout,
    "softcap, window": _softcap,
    "head dims 192 and 128": _two_head_dims,
    "float32": _fp32,
    "fp8": _fp8,
}


def prove() -> Iterator[Proof]:
    """Run one problem after the other; what this build has no kernel for is said, and not judged."""
    for feature, run in FEATURES.items():
        try:
            yield Proof(feature, *run(), "")
        except UnsupportedError as error:
            yield Proof(feature, None, None, str(error))
