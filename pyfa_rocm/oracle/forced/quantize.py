# SPDX-License-Identifier: MIT OR Apache-2.0
"""The quantiser's kernels on random problems."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pyfa_rocm import fmha
from pyfa_rocm._call.params import Strided
from pyfa_rocm._call.quantize import Descale, QuantizeParams
from pyfa_rocm.array import dtype_of
from pyfa_rocm.oracle.forced.outcome import (
    DTYPE_OF,
    Array,
    Outcome,
    Row,
    Sizes,
    drawn,
    nothing,
    number_of,
    repeated,
    workspace,
)
from pyfa_rocm.oracle.params import put
from pyfa_rocm.oracle.reference import largest_share
from pyfa_rocm.oracle.rounding import P_SCALES, ulp

__all__ = ["quantize"]

_E = 2.0**-24


def _hadamard(n: int) -> Array:
    matrix = np.ones((1, 1))
    while len(matrix) < n:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    orthonormal: Array = matrix / np.sqrt(n)
    return orthonormal


def quantize(row: Row, seed: int, sizes: Sizes) -> Outcome:
    """Quantise normal numbers by head, rotated; or only rotate them, with a kernel that keeps their type.

    A rotated element is off by at most log2(hdim) E times the sum of its row's sizes over sqrt(hdim); a scale
    by that and 3 E of it, and an element by 4 E of itself more, before its one rounding.
    """
    rng = drawn(row, seed)
    dtype, out_dtype = DTYPE_OF[row["dtype"]], DTYPE_OF[row["o_dtype"]]
    nhead, hdim = int(rng.integers(1, sizes.most_heads + 1)), 2 ** int(rng.integers(3, 9))
    seqlen, scaled = int(rng.integers(1, sizes.longest + 1)), out_dtype != dtype
    shape = (1, seqlen, nhead, hdim)
    x = rng.standard_normal(shape, np.float32).astype(dtype_of(dtype))
    source, out, scales = put(x), nothing(shape, out_dtype), nothing((1, nhead), "float32")
    params = QuantizeParams(
        dtype=dtype, out_dtype=out_dtype, batch=1, seqlen=seqlen, nhead=nhead, hdim=hdim,
        x=Strided(source.data, *source.strides[:3]), out=Strided(out.data, *out.strides[:3]),
        descale=Descale(scales.data, nhead, 1, 1) if scaled else None,
        scale_unit="head" if scaled else None, hadamard=True,
    )  # fmt: skip
    number_of(params, fmha.fmha_quantize_kernel, row["name"])
    if nbytes := fmha.fmha_quantize_workspace_bytes(params):
        _room, address = workspace(nbytes)
        params = replace(params, workspace=address, workspace_bytes=nbytes)

    def run() -> dict[str, Array]:
        fmha.fmha_quantize(params)
        return {"out": out.to_numpy()} | ({"descale": scales.to_numpy()} if scaled else {})

    found, same = repeated(run, sizes.runs)
    want = x.astype(np.float64) @ _hadamard(hdim)
    error = np.log2(hdim) * _E * np.abs(x.astype(np.float64)).sum(-1, keepdims=True) / np.sqrt(hdim)
    error = error + 2 * _E * np.abs(want)
    shares = {}
    if scaled:
        largest, most = np.abs(want).max((1, 3)), P_SCALES[out_dtype]
        off = (error.max((1, 3)) + 3 * _E * largest) / most
        shares["descale"] = largest_share(found["descale"], largest / most, off)
        by = found["descale"].astype(np.float64)[:, None, :, None]
        want, error = np.clip(want / by, -most, most), error / by + 4 * _E * np.abs(want / by)
    bound = error + ulp(np.abs(want) + error, out_dtype) / 2
    shares["out"] = largest_share(found["out"], want, bound)
    text = f"{seqlen} tokens, heads {nhead}, d{hdim}, rotated" + (", a scale a head" if scaled else "")
    return Outcome(text, shares, same, promised=True)
